"""Sizes that TensorFlow leaves open, inferred op by op, and bounds of those that depend on the data.

Where TensorFlow's own inference has no answer there are rules by op type. Bounds are intervals: TensorFlow infers
shapes for the largest inputs, which is right where an output grows with its inputs. What reads sizes as values, and
what shrinks as an input grows, has a rule on intervals; no bound takes the place of a value.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.tf import private
from pesto.tf.importer.intervals import Interval, exactly
from pesto.tf.importer.size_rules import GROWING, OpSizes, Rule, apply_rule
from pesto.tf.importer.value_ranges import Tensor, ValueRanges
from pesto.tf.nodes.needed_nodes import RESOURCE, VARIANT, Shape, StepNodes, UnlimitedSize, is_known
from pesto.tf.nodes.shape_inference import bare_graph_def
from pesto.tf.nodes.v1_loops import closes_loop

Special = Mapping[str, Callable[[StepNodes, int], Mapping[int, Shape]]]
"""Op type -> function from the nodes, with the shapes inferred so far, and an index to shapes of outputs."""

_OPAQUE = (RESOURCE, VARIANT)
_FEW = 64
"""Elements of a tensor whose value may be a shape."""
_REPEATED = ("Enter", "RefEnter", "Merge", "RefMerge")
_SHAPES = frozenset(("Shape", "ShapeN", "Size", "Rank"))
"""Ops that make sizes into values."""
_ENDS = frozenset(("StridedSlice",))
"""Ops whose results may shrink as an input grows, so that a rule alone bounds them."""
_KERNELS: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    **{op: {1: (0, 1)} for op in ("Conv2D", "DepthwiseConv2dNative", "Dilation2D")},
    "Conv3D": {1: (0, 1, 2)},
}
"""Op type -> input -> dimensions whose growth shrinks the output."""
_STEPS = 64
"""Sizes that are tried below a bound where an op takes certain sizes alone, as a Split does."""
_DEPTH = 32
"""Ops that are followed back from a lower bound of a size."""


def infer_open_shapes(
    nodes: StepNodes, rules: Mapping[str, Rule], special: Special, handles: Mapping[Tensor, Tensor]
) -> list[tuple[Shape, ...]]:
    """Return [n] the shapes of all outputs, with what `rules`, `special` and TensorFlow infer of those that are open.

    handles: tensors that are others, such as variables' handles that come out of loops.
    """
    inference = _ShapeInference(nodes, rules, special, handles)
    inference.run()
    return inference.shapes


def infer_bounds(
    nodes: StepNodes,
    rules: Mapping[str, Rule],
    special: Special,
    handles: Mapping[Tensor, Tensor],
    stated: Mapping[Tensor, tuple[int, ...]],
) -> tuple[dict[Tensor, tuple[int, ...]], Callable[[Tensor], UnlimitedSize]]:
    """Return upper bounds of open shapes, and a function from an open tensor to that because of which it has none.

    stated: largest shapes that the user gives. Raise InputError for one that contradicts what is inferred.
    """
    bounds = _SizeBounds(nodes, rules, special, handles)
    bounds.stated = stated
    bounds.run()
    return bounds.upper, bounds.unlimited


def check_stated(name: str, output: int, stated: Sequence[int], inferred: Shape) -> None:
    """Raise InputError where the shape that a user gives for an op's output contradicts what is known of it."""
    if inferred is not None and (
        len(inferred) != len(stated) or any(n >= 0 and n != m for n, m in zip(inferred, stated, strict=True))
    ):
        own = ", ".join("?" if n < 0 else str(n) for n in inferred)
        raise InputError.build(
            f"op {shown(name)}: its output {output} is [{own}], but the shape given for it is {list(stated)}",
            remedy=f"give {len(inferred)} sizes that agree with it, or leave it out",
        )


class _ShapeInference:
    """A pass over the nodes, in a TensorFlow graph that holds a copy of each op whose sizes are open."""

    def __init__(
        self, nodes: StepNodes, rules: Mapping[str, Rule], special: Special, handles: Mapping[Tensor, Tensor]
    ) -> None:
        self.nodes, self.rules, self.special, self.handles = nodes, rules, special, handles
        self.shapes = list(nodes.shapes)
        self.graph = tf.Graph()
        self.stand_ins: dict[Tensor, Any] = {}
        """Tensors of copies, by the tensors whose place they take."""
        self.ranges = ValueRanges(nodes, self.extents, self.value, handles)

    def run(self) -> None:
        """Infer the shapes of all outputs."""
        nodes = self.nodes
        with self.graph.as_default():
            # Shape functions run only when ops are created, so the step is imported once and each op with open sizes is
            # created again with better-known inputs.
            program = bare_graph_def(nodes.defs, nodes.signatures.library.values(), nodes.producer)
            tf.import_graph_def(program, name="")
            for i, dtypes in enumerate(nodes.dtypes):
                open_ = [k for k, t in enumerate(dtypes) if t not in _OPAQUE and not is_known(self.shapes[i][k])]
                moved = any(t in self.stand_ins for t in nodes.inputs[i])
                # Readers use more than the outputs' shapes of sizes, lists and handles.
                if open_ or (moved and any(t in _OPAQUE or self.is_value(i, k) for k, t in enumerate(dtypes))):
                    self.take(i, open_, self.outputs(i) if moved else self.original(i))
                for k in range(len(dtypes)):
                    if (i, k) in self.handles:
                        self.stand_ins[i, k] = self.tensor(self.handles[i, k])

    def is_value(self, i: int, k: int) -> bool:
        """Return True if an output may hold sizes or axes: a few whole numbers."""
        shape, dtype = self.shapes[i][k], self.nodes.dtypes[i][k]
        few = shape is not None and len(shape) <= 1 and math.prod(shape) <= _FEW
        return few and bool(tf.as_dtype(dtype % 100).is_integer)

    def outputs(self, i: int) -> Sequence[Any]:
        """Return the outputs of a copy of node `i` that reads what takes the place of its inputs."""
        copies = self.copy(i, [self.tensor(t) for t in self.nodes.inputs[i]])
        return self.original(i) if copies is None else copies

    def take(self, i: int, open_: list[int], outputs: Sequence[Any]) -> None:
        """Keep what is inferred of the outputs of node `i`, and have its readers read them."""
        rule = self.special.get(self.nodes.defs[i].op) if open_ else None
        special = {} if rule is None else rule(replace(self.nodes, shapes=self.shapes), i)
        for k, tensor in enumerate(outputs):
            if k in open_:
                shape = _fill_open_sizes(self.shapes[i][k], _tensor_shape(tensor))
                if not is_known(shape):
                    better = special.get(k, self.entering(i))
                    extents = exactly(better) if is_known(better) else self.by_rule(i, k, shape)
                    shape = shape if extents is None else extents.sizes()
                # Later rules read these shapes, so they are stored at once; nodes are visited in topological order.
                self.shapes[i] = (*self.shapes[i][:k], shape, *self.shapes[i][k + 1 :])
                self.set_shape(tensor, shape)
            self.stand_ins[i, k] = tensor

    def by_rule(self, i: int, k: int, inferred: Shape) -> Interval | None:
        """Return the extents of an output by the rule for its op type; None without one."""
        nodes, inputs = self.nodes, self.nodes.inputs[i]

        def factor(slot: int, by: int) -> Interval | None:
            product = inputs[slot][0]
            if nodes.defs[product].op != "Mul" or inputs[by] not in nodes.inputs[product]:
                return None
            one, other = nodes.inputs[product]
            return self.ranges.at(other if one == inputs[by] else one)

        sizes = OpSizes(
            node=nodes.defs[i],
            output=k,
            inferred=inferred,
            arguments=len(inputs),
            input_extents=lambda slot: self.extents(inputs[slot]),
            values=lambda slot: self.ranges.at(inputs[slot]),
            factor=factor,
        )
        return apply_rule(self.rules, sizes)

    def extents(self, tensor: Tensor) -> Interval | None:
        """Return the extents of a tensor; None for an unknown rank."""
        i, k = tensor
        shape = self.shapes[i][k]
        if shape is None:
            return None
        sizes = np.array(shape, dtype=np.float64)
        return Interval(np.maximum(sizes, 0), np.where(sizes < 0, np.inf, sizes))

    def value(self, tensor: Tensor) -> Any:
        """Return the constant value of a tensor, an array; None where it has none."""
        stand_in = self.tensor(tensor)
        value = tf.get_static_value(stand_in)
        return private.constant_value(stand_in) if value is None and stand_in.dtype.is_integer else value

    def entering(self, i: int) -> Shape:
        """Return the shape with which a value entered a v1 loop: it keeps that, which a GraphDef does not say."""
        if self.nodes.defs[i].op not in _REPEATED:
            return None
        if self.nodes.defs[i].op in _REPEATED[2:]:
            before = [p for p, _ in self.nodes.inputs[i] if not closes_loop(self.nodes, p, i)]
            if len(before) == len(self.nodes.inputs[i]) or not before:
                return None
            if self.nodes.defs[before[0]].op not in _REPEATED[:2]:
                return None
            i = before[0]
        return self.largest(self.nodes.inputs[i][0])

    def largest(self, tensor: Tensor) -> Shape:
        """Return the shape of a tensor as far as it is inferred."""
        return self.shapes[tensor[0]][tensor[1]]

    def tensor(self, tensor: Tensor) -> Any:
        """Return the tensor of the graph that stands for another."""
        stand_in = self.stand_ins.get(tensor)
        if stand_in is None:
            i, k = tensor
            stand_in = self.original(i)[k]
            self.set_shape(stand_in, self.nodes.shapes[i][k])
        return stand_in

    def original(self, i: int) -> Sequence[Any]:
        """Return the outputs of node `i` as it was imported."""
        outputs: Sequence[Any] = self.graph.get_operation_by_name(self.nodes.defs[i].name).outputs
        return outputs

    def set_shape(self, tensor: Any, shape: Shape) -> None:
        """Tell TensorFlow the shape of a tensor."""
        if shape is not None and not tensor.shape.is_fully_defined():
            # What was recorded when the step was traced may be of another form of it.
            with contextlib.suppress(ValueError):
                tensor.set_shape(_to_tf_shape(shape))

    def copy(self, i: int, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """Return the outputs of an op like node `i` with other inputs; None where TensorFlow refuses it."""
        node = self.nodes.defs[i]
        attrs = {name: value for name, value in node.attr.items() if not name.startswith("_")}
        dtypes = [tf.as_dtype(dtype) for dtype in self.nodes.dtypes[i]]
        try:
            op = self.graph.create_op(node.op, list(inputs), dtypes, name=f"{node.name}/pesto_sizes", attrs=attrs)
        except (ValueError, TypeError):
            return None
        return op.outputs


class _SizeBounds(_ShapeInference):
    """A pass over the nodes; `shapes` holds known shapes, and bounds are kept apart."""

    def __init__(
        self, nodes: StepNodes, rules: Mapping[str, Rule], special: Special, handles: Mapping[Tensor, Tensor]
    ) -> None:
        super().__init__(nodes, rules, special, handles)
        self.upper: dict[Tensor, tuple[int, ...]] = {}
        self.partly: dict[Tensor, Shape] = {}
        """Shapes with upper bounds of some of their dimensions, where others have none."""
        self.lower: dict[Tensor, tuple[int, ...]] = {}
        """Lower bounds where they are known already."""
        self.stated: Mapping[Tensor, tuple[int, ...]] = {}
        self.ensured: dict[Tensor, Shape] = {}
        """Tensors that the program itself holds to a size, by tf.ensure_shape, and that size."""
        for i, node in enumerate(nodes.defs):
            if node.op == "EnsureShape" and is_known(nodes.shapes[i][0]):
                tensor = nodes.inputs[i][0]
                self.ensured[tensor] = nodes.shapes[i][0]
                while nodes.defs[tensor[0]].op in ("Identity", "StopGradient"):
                    tensor = nodes.inputs[tensor[0]][0]
                    self.ensured[tensor] = nodes.shapes[i][0]

    def take(self, i: int, open_: list[int], outputs: Sequence[Any]) -> None:
        """Keep bounds of the outputs of node `i`; its readers read values, or tensors of the largest shape."""
        name = self.nodes.defs[i].name
        rule = self.special.get(self.nodes.defs[i].op) if open_ else None
        special = {} if rule is None else rule(replace(self.nodes, bounds=self.upper), i)
        for k, tensor in enumerate(outputs):
            if k not in open_:
                self.stand_ins[i, k] = tensor
                continue
            shape = _fill_open_sizes(self.shapes[i][k], _tensor_shape(tensor))
            better = self.ensured.get((i, k), special.get(k, self.entering(i)))
            if (i, k) in self.ensured:
                shape = better
            elif not is_known(shape):
                shape = self._bound_output(i, k, shape, better)
            if (i, k) in self.stated:
                stated_shape, bound = self.stated[i, k], shape
                check_stated(name, k, stated_shape, self.shapes[i][k])
                if bound is not None and (
                    len(stated_shape) != len(bound) or any(0 <= m < n for n, m in zip(stated_shape, bound, strict=True))
                ):
                    most = ", ".join("?" if n < 0 else str(n) for n in bound)
                    raise InputError.build(
                        f"op {shown(name)}: its output {k} is at most [{most}], but the shape given for it "
                        f"is {list(stated_shape)}",
                        remedy="give one within that, or leave it out",
                    )
                shape = stated_shape
            if shape is not None and is_known(shape):
                self.upper[i, k] = shape
            self.partly[i, k] = shape
            # Readers that use the value must not see a bound as if it were the size: the stand-in keeps the op, whose
            # value is unknown, and gets only the shape.
            if self.is_value(i, k):
                self.set_shape(tensor, shape)
                self.stand_ins[i, k] = tensor
            else:
                self.stand_ins[i, k] = _make_placeholder(tensor.dtype, shape)

    def _bound_output(self, i: int, k: int, inferred: Shape, better: Shape) -> Shape:
        """Return the largest shape of an output, where TensorFlow infers none from the largest inputs."""
        if better is not None:
            return _fill_open_sizes(inferred, better)
        grown = _fill_open_sizes(inferred, self._infer_grown(i, k))
        if is_known(grown):
            return grown
        extents = self.by_rule(i, k, grown)
        if extents is None:
            return grown
        self.lower[i, k] = tuple(max(0, int(n)) for n in extents.low.tolist())
        return tuple(int(max(n, 0)) if np.isfinite(n) else -1 for n in extents.high.tolist())

    def _infer_grown(self, i: int, k: int, *, low: bool = False) -> Shape:
        """Return the shape of an output for the largest, or least, values of operands with which it grows."""
        places, sources = GROWING.get(self.nodes.defs[i].op, ()), self.nodes.inputs[i]
        if not places:
            return None
        inputs = self._make_inputs(i) if not low else self._make_least_inputs(i, _DEPTH)
        for slot in places:
            p, j = sources[slot]
            bounds, shape = self.ranges.at(sources[slot]), self.nodes.shapes[p][j]
            bound = np.maximum(bounds.low, 0) if low else bounds.high
            if shape is None or not is_known(shape) or not np.isfinite(bound).all():
                return None
            value = np.broadcast_to(np.maximum(bound, 0), shape)
            inputs[slot] = tf.constant(value, inputs[slot].dtype)
        copies = self.copy(i, inputs)
        return None if copies is None else _tensor_shape(copies[k])

    def outputs(self, i: int) -> Sequence[Any]:
        """Return the outputs of a copy of node `i` for the largest inputs.

        Where TensorFlow refuses these, sizes that must be equal may have unequal bounds: then each input's bounded
        sizes are left open in turn, and the least of what comes out is taken. Where sizes are broadcast, one may be 1,
        and the largest of all is taken. What remains takes certain sizes alone, and the largest of them is sought.
        """
        inputs = self._make_inputs(i)
        copies = self._infer_gradient_axes(i) or self.copy(i, inputs)
        if copies is not None:
            return copies
        bounded = self._find_bounded_inputs(i)
        broadcast = self._infer_broadcast(i, inputs, bounded)
        if broadcast is not None:
            return broadcast
        tried = [self.copy(i, self._open_inputs(i, inputs, [slot])) for slot in bounded]
        # Two inputs that must have equal sizes may have unequal bounds, for example 10 and 7. Opening one lets the
        # other decide, and the smaller result is still an upper bound.
        accepted = [outputs for outputs in tried if outputs is not None]
        shapes = [[_tensor_shape(tensor) for tensor in outputs] for outputs in accepted]
        elements = [sum(math.prod(s) if s is not None and -1 not in s else math.inf for s in of) for of in shapes]
        best = accepted[elements.index(min(elements))] if accepted else None
        if best is None or not all(is_known(_tensor_shape(tensor)) for tensor in best):
            best = self._search_largest_accepted(i, inputs, bounded) or best
        if best is None:
            best = self.copy(i, self._open_inputs(i, inputs, bounded))
        return self.original(i) if best is None else best

    def _find_bounded_inputs(self, i: int) -> list[int]:
        """Return the inputs of node `i` whose sizes depend on the data."""
        return [slot for slot, t in enumerate(self.nodes.inputs[i]) if t in self.partly]

    def _infer_broadcast(self, i: int, inputs: Sequence[Any], bounded: Sequence[int]) -> Sequence[Any] | None:
        """Return the outputs where an input's bounded sizes may be 1 and are repeated; None where that cannot be."""
        results = []
        for slot in bounded:
            p, k = self.nodes.inputs[i][slot]
            extents, inferred = self.extents((p, k)), self.nodes.shapes[p][k]
            if extents is None or inferred is None:
                continue
            lows, highs = extents.low.tolist(), extents.high.tolist()
            free = [low <= 1 for n, low in zip(inferred, lows, strict=True) if n < 0]
            if not free or not all(free):
                continue
            ones = [
                1 if low <= 1 < high else int(high) if np.isfinite(high) else None
                for low, high in zip(lows, highs, strict=True)
            ]
            changed_inputs = list(inputs)
            changed_inputs[slot] = tf.compat.v1.placeholder(inputs[slot].dtype, ones)
            copies = self.copy(i, changed_inputs)
            results += [] if copies is None else [copies]
        if not results:
            return None
        opened = self.copy(i, self._open_inputs(i, inputs, bounded))
        if opened is None or any(len({tensor.shape.rank for tensor in of}) > 1 for of in zip(*results, strict=True)):
            return None
        for k, tensor in enumerate(opened):
            shapes = [_tensor_shape(copies[k]) for copies in results]
            if all(shape is not None for shape in shapes):
                sizes = zip(*(shape or () for shape in shapes), strict=True)
                self.set_shape(tensor, tuple(-1 if -1 in of else max(of) for of in sizes))
        return opened

    def _search_largest_accepted(self, i: int, inputs: Sequence[Any], bounded: Sequence[int]) -> Sequence[Any] | None:
        """Return the outputs for the largest size of the inputs' one bounded dimension that TensorFlow accepts."""
        open_ = [
            (slot, d)
            for slot in bounded
            for d, n in enumerate(self.nodes.shapes[self.nodes.inputs[i][slot][0]][self.nodes.inputs[i][slot][1]] or ())
            if n < 0
        ]
        if len(open_) != 1:
            return None
        ((slot, d),) = open_
        sizes = _tensor_shape(inputs[slot])
        if sizes is None or sizes[d] < 0:
            return None
        # A Split into 4 rejects a bound of 10 but takes 8. Trying sizes downwards finds the largest accepted one.
        for n in range(sizes[d] - 1, max(sizes[d] - 1 - _STEPS, -1), -1):
            changed_inputs = list(inputs)
            changed_inputs[slot] = tf.compat.v1.placeholder(inputs[slot].dtype, [*sizes[:d], n, *sizes[d + 1 :]])
            copies = self.copy(i, changed_inputs)
            if copies is not None:
                return copies
        return None

    def _make_inputs(self, i: int) -> list[Any]:
        """Make the inputs of a copy of node `i`: of the shapes, largest or least, that make its output largest."""
        inputs = [self.tensor(t) for t in self.nodes.inputs[i]]
        op = self.nodes.defs[i].op
        if op in _SHAPES or op in _ENDS:
            return self._open_inputs(i, inputs, self._find_bounded_inputs(i))
        for slot, dimensions in _KERNELS.get(op, {}).items():
            extents = self.extents(self.nodes.inputs[i][slot]) if self.nodes.inputs[i][slot] in self.partly else None
            if extents is not None:
                sizes: list[int | None] = [int(n) if np.isfinite(n) else None for n in extents.high.tolist()]
                for d in dimensions:
                    sizes[d] = max(1, int(extents.low[d]))
                inputs[slot] = tf.compat.v1.placeholder(inputs[slot].dtype, sizes)
        return inputs

    def _make_least_inputs(self, i: int, depth: int) -> list[Any]:
        inputs = [self.tensor(t) for t in self.nodes.inputs[i]]
        if self.nodes.defs[i].op in _ENDS or self.nodes.defs[i].op in _KERNELS:
            return self._open_inputs(i, inputs, self._find_bounded_inputs(i))
        for slot in self._find_bounded_inputs(i):
            tensor = self.nodes.inputs[i][slot]
            shape = None if self.partly[tensor] is None else self._infer_lower_bounds(tensor, depth - 1)
            inputs[slot] = _make_placeholder(inputs[slot].dtype, shape)
        return inputs

    def _open_inputs(self, i: int, inputs: Sequence[Any], places: Sequence[int]) -> list[Any]:
        """Return `inputs` with what is known of their shapes alone in some places."""
        opened = list(inputs)
        for slot in places:
            p, k = self.nodes.inputs[i][slot]
            opened[slot] = _make_placeholder(opened[slot].dtype, self.nodes.shapes[p][k])
        return opened

    def _infer_gradient_axes(self, i: int) -> Sequence[Any] | None:
        """Return the axes that the gradients of two broadcast tensors are summed over, where the bounds tell them."""
        if self.nodes.defs[i].op != "BroadcastGradientArgs":
            return None
        both = [self.ranges.at(t) for t in self.nodes.inputs[i]]
        if not all(x.low.ndim for x in both):
            return None
        rank = max(x.low.size for x in both)
        axes: tuple[list[int], list[int]] = ([], [])
        for d in range(-rank, 0):  # from the last dimension; the shorter shape has 1 before its first
            sizes = [(float(x.low[d]), float(x.high[d])) if -d <= x.low.size else (1.0, 1.0) for x in both]
            if sizes[0] == sizes[1] and sizes[0][0] == sizes[0][1] != 1:
                continue
            sure = [size == (1.0, 1.0) for size in sizes]
            if not any(sure) and any(size[0] <= 1 for size in sizes):
                return None  # either, or neither
            for k in (0, 1):
                if sure[k]:
                    axes[k].append(rank + d)
        dtype = tf.as_dtype(self.nodes.dtypes[i][0])
        return [tf.constant(np.array(of, dtype=np.int64), dtype) for of in axes]

    def extents(self, tensor: Tensor) -> Interval | None:
        """Return the extents of a tensor between their bounds; None for an unknown rank."""
        if tensor not in self.partly:
            return super().extents(tensor)
        shape = self.partly[tensor]
        if shape is None:
            return None
        high = np.array(shape, dtype=np.float64)
        low = np.array(self._infer_lower_bounds(tensor, _DEPTH), dtype=np.float64)
        return Interval(low, np.where(high < 0, np.inf, high))

    def largest(self, tensor: Tensor) -> Shape:
        """Return the largest shape of a tensor."""
        return self.partly.get(tensor, super().largest(tensor))

    def _infer_lower_bounds(self, tensor: Tensor, depth: int) -> tuple[int, ...]:
        """Return lower bounds of a tensor's extents: those that TensorFlow infers for the least inputs, else 0."""
        if tensor not in self.lower:
            i, k = tensor
            imported, rank = self.nodes.shapes[i][k], len(self.partly[tensor] or ())
            least: Shape = (0,) * rank
            own = self.nodes.defs[i].op not in self.special and tensor not in self.ensured
            if depth and imported is not None and own and not self.nodes.defs[i].op.endswith(("Enter", "Merge")):
                self.lower[tensor] = tuple(max(n, 0) for n in imported)  # asked again only on a way round a loop
                with self.graph.as_default():
                    copies = self.copy(i, self._make_least_inputs(i, depth)) if self.nodes.inputs[i] else None
                    inferred = None if copies is None else _tensor_shape(copies[k])
                    least = _fill_open_sizes(imported, _fill_open_sizes(inferred, self._infer_grown(i, k, low=True)))
            self.lower[tensor] = tuple(max(n, 0) for n in least or (0,) * rank)
        return self.lower[tensor]

    def unlimited(self, tensor: Tensor) -> UnlimitedSize:
        """Return the cause for which an open tensor has no bound."""
        visited: set[Tensor] = set()
        size: Tensor | None = None
        while tensor not in visited:
            visited.add(tensor)
            i = tensor[0]
            open_ = [t for t in self.nodes.inputs[i] if t in self.partly and t not in self.upper]
            values = [
                t
                for t in self.nodes.inputs[i]
                if self.nodes.defs[i].op in self.rules or self.nodes.defs[i].op in GROWING
                if tf.as_dtype(self.nodes.dtypes[t[0]][t[1]] % 100).is_integer and not self.ranges.at(t).limited
            ]
            if not open_ and not values:
                break
            if not open_:
                size = size or tensor
            tensor = open_[0] if open_ else (self.ranges.unlimited_op(values[0]), 0)
        return UnlimitedSize(op=tensor[0], size=size or tensor)


def _make_placeholder(dtype: Any, shape: Shape) -> Any:
    return tf.compat.v1.placeholder(dtype, _to_tf_shape(shape))


def _to_tf_shape(shape: Shape) -> list[int | None] | None:
    """Return a shape as TensorFlow's Python takes it."""
    return None if shape is None else [None if n < 0 else n for n in shape]


def _tensor_shape(tensor: Any) -> Shape:
    return None if tensor.shape.rank is None else tuple(-1 if n is None else n for n in tensor.shape.as_list())


def _fill_open_sizes(shape: Shape, better: Shape) -> Shape:
    """Return `shape` with the sizes of `better` where it has none."""
    if shape is None or better is None or len(shape) != len(better):
        return better if shape is None else shape
    return tuple(n if n >= 0 else m for n, m in zip(shape, better, strict=True))
