"""Bounds of sizes that depend on the data: intervals from TensorFlow's shape inference and from rules.

TensorFlow infers shapes for the largest inputs, which is right where an output grows with its inputs. What reads sizes
as values, and what shrinks as an input grows, has a rule on intervals; no bound takes the place of a value.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.tf.importer.intervals import Interval
from pesto.tf.importer.size_inference import ShapeInference, Special, Tensor, fill_open_sizes, tensor_shape, to_tf_shape
from pesto.tf.importer.size_rules import GROWING, Rule
from pesto.tf.nodes.needed_nodes import StepNodes, UnlimitedSize
from pesto.tf.nodes.sizes import Shape, is_known

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
_PASSES = ("Identity", "StopGradient")


def inferred_bounds(
    nodes: StepNodes,
    rules: Mapping[str, Rule],
    special: Special,
    handles: Mapping[Tensor, Tensor],
    stated: Mapping[Tensor, tuple[int, ...]],
) -> tuple[dict[Tensor, tuple[int, ...]], Callable[[Tensor], UnlimitedSize]]:
    """Upper bounds of open shapes, and a function from an open tensor to that because of which it has none.

    stated: largest shapes that the user gives. InputError for one that contradicts what is inferred.
    """
    bounds = _SizeBounds(nodes, rules, special, handles)
    bounds.stated = stated
    bounds.run()
    return bounds.upper, bounds.unlimited


class _SizeBounds(ShapeInference):
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
        self.ensured = dict(self._ensured())
        self.stated: Mapping[Tensor, tuple[int, ...]] = {}

    def take(self, i: int, open_: list[int], outputs: Sequence[Any]) -> None:
        """Keep bounds of the outputs of node `i`; its readers read values, or tensors of the largest shape."""
        rule = self.special.get(self.nodes.defs[i].op) if open_ else None
        special = {} if rule is None else rule(replace(self.nodes, bounds=self.upper), i)
        for k, tensor in enumerate(outputs):
            if k not in open_:
                self.stand_ins[i, k] = tensor
                continue
            shape = fill_open_sizes(self.shapes[i][k], tensor_shape(tensor))
            better = self.ensured.get((i, k), special.get(k, self.entering(i)))
            if (i, k) in self.ensured:
                shape = better
            elif not is_known(shape):
                shape = self._bound(i, k, shape, better)
            if (i, k) in self.stated:
                shape = self._agreed(i, k, shape)
            if shape is not None and is_known(shape):
                self.upper[i, k] = shape
            self.partly[i, k] = shape
            # Readers that use the value must not see a bound as if it were the size: the stand-in keeps the op, whose
            # value is unknown, and gets only the shape.
            if self.is_value(i, k):
                self.set_shape(tensor, shape)
                self.stand_ins[i, k] = tensor
            else:
                self.stand_ins[i, k] = self._placeholder(tensor.dtype, shape)

    def _agreed(self, i: int, k: int, bound: Shape) -> tuple[int, ...]:
        """The largest shape that the user gives for an output; InputError where it is not within what is inferred."""
        given = self.stated[i, k]
        check_stated(self.nodes.defs[i].name, k, given, self.shapes[i][k])
        if bound is not None and not _within(given, bound):
            most = ", ".join("?" if n < 0 else str(n) for n in bound)
            raise InputError.build(
                f"op {shown(self.nodes.defs[i].name)}: its output {k} is at most [{most}], but the shape "
                "given for it "
                f"is {list(given)}",
                remedy="give one within that, or leave it out",
            )
        return given

    def _bound(self, i: int, k: int, inferred: Shape, better: Shape) -> Shape:
        """The largest shape of an output, where TensorFlow infers none from the largest inputs."""
        if better is not None:
            return fill_open_sizes(inferred, better)
        grown = fill_open_sizes(inferred, self._grown(i, k))
        if is_known(grown):
            return grown
        extents = self.by_rule(i, k, grown)
        if extents is None:
            return grown
        if not is_known(grown):
            self.lower[i, k] = tuple(max(0, int(n)) for n in extents.low.tolist())
        return tuple(int(max(n, 0)) if np.isfinite(n) else -1 for n in extents.high.tolist())

    def _grown(self, i: int, k: int, *, low: bool = False) -> Shape:
        """The shape of an output for the largest, or least, values of operands with which it grows."""
        places, sources = GROWING.get(self.nodes.defs[i].op, ()), self.nodes.inputs[i]
        if not places:
            return None
        inputs = self._inputs(i) if not low else self._least_inputs(i, _DEPTH)
        for at in places:
            p, j = sources[at]
            bounds, shape = self.ranges.at(sources[at]), self.nodes.shapes[p][j]
            bound = np.maximum(bounds.low, 0) if low else bounds.high
            if shape is None or not is_known(shape) or not np.isfinite(bound).all():
                return None
            value = np.broadcast_to(np.maximum(bound, 0), shape)
            inputs[at] = tf.constant(value, inputs[at].dtype)
        made = self.copy(i, inputs)
        return None if made is None else tensor_shape(made[k])

    def outputs(self, i: int) -> Sequence[Any]:
        """The outputs of a copy of node `i` for the largest inputs.

        Where TensorFlow refuses these, sizes that must be equal may have unequal bounds: then each input's bounded
        sizes are left open in turn, and the least of what comes out is taken. Where sizes are broadcast, one may be 1,
        and the largest of all is taken. What remains takes certain sizes alone, and the largest of them is sought.
        """
        inputs = self._inputs(i)
        made = self._axes(i) or self.copy(i, inputs)
        if made is not None:
            return made
        bounded = [at for at, t in enumerate(self.nodes.inputs[i]) if t in self.partly]
        broadcast = self._broadcast(i, inputs, bounded)
        if broadcast is not None:
            return broadcast
        tried = [self.copy(i, self._opened(i, inputs, [at])) for at in bounded]
        # Two inputs that must have equal sizes may have unequal bounds, for example 10 and 7. Opening one lets the
        # other decide, and the smaller result is still an upper bound.
        accepted = [outputs for outputs in tried if outputs is not None]
        best = min(accepted, key=lambda outputs: sum(map(_elements, outputs)), default=None)
        if best is None or not all(is_known(tensor_shape(tensor)) for tensor in best):
            best = self._largest_accepted(i, inputs, bounded) or best
        if best is None:
            best = self.copy(i, self._opened(i, inputs, bounded))
        return self.original(i) if best is None else best

    def _broadcast(self, i: int, inputs: Sequence[Any], bounded: Sequence[int]) -> Sequence[Any] | None:
        """The outputs where an input's bounded sizes may be 1 and are repeated; None where that cannot be."""
        results = []
        for at in bounded:
            extents = self.extents(self.nodes.inputs[i][at])
            if extents is None or not self._may_be_one(i, at, extents):
                continue
            ones = [
                1 if low <= 1 < high else int(high) if np.isfinite(high) else None
                for low, high in zip(extents.low.tolist(), extents.high.tolist(), strict=True)
            ]
            given = list(inputs)
            given[at] = tf.compat.v1.placeholder(inputs[at].dtype, ones)
            made = self.copy(i, given)
            results += [] if made is None else [made]
        if not results:
            return None
        opened_ = self.copy(i, self._opened(i, inputs, bounded))
        if opened_ is None or any(len({tensor.shape.rank for tensor in of}) > 1 for of in zip(*results, strict=True)):
            return None
        for k, tensor in enumerate(opened_):
            shapes = [tensor_shape(made[k]) for made in results]
            if all(shape is not None for shape in shapes):
                sizes = zip(*(shape or () for shape in shapes), strict=True)
                self.set_shape(tensor, tuple(-1 if -1 in of else max(of) for of in sizes))
        return opened_

    def _may_be_one(self, i: int, at: int, extents: Interval) -> bool:
        known = self.nodes.shapes[self.nodes.inputs[i][at][0]][self.nodes.inputs[i][at][1]]
        if known is None:
            return False
        free = [low <= 1 for n, low in zip(known, extents.low.tolist(), strict=True) if n < 0]
        return bool(free) and all(free)

    def _largest_accepted(self, i: int, inputs: Sequence[Any], bounded: Sequence[int]) -> Sequence[Any] | None:
        """The outputs for the largest size of the one bounded dimension among the inputs that TensorFlow accepts."""
        open_ = [
            (at, d)
            for at in bounded
            for d, n in enumerate(self.nodes.shapes[self.nodes.inputs[i][at][0]][self.nodes.inputs[i][at][1]] or ())
            if n < 0
        ]
        if len(open_) != 1:
            return None
        ((at, d),) = open_
        sizes = tensor_shape(inputs[at])
        if sizes is None or sizes[d] < 0:
            return None
        # A Split into 4 rejects a bound of 10 but takes 8. Trying sizes downwards finds the largest accepted one.
        for n in range(sizes[d] - 1, max(sizes[d] - 1 - _STEPS, -1), -1):
            given = list(inputs)
            given[at] = tf.compat.v1.placeholder(inputs[at].dtype, [*sizes[:d], n, *sizes[d + 1 :]])
            made = self.copy(i, given)
            if made is not None:
                return made
        return None

    def _inputs(self, i: int) -> list[Any]:
        """Make the inputs of a copy of node `i`: of the shapes, largest or least, that make its output largest."""
        inputs = [self.tensor(t) for t in self.nodes.inputs[i]]
        op = self.nodes.defs[i].op
        if op in _SHAPES or op in _ENDS:
            return self._opened(i, inputs, [at for at, t in enumerate(self.nodes.inputs[i]) if t in self.partly])
        for at, dimensions in _KERNELS.get(op, {}).items():
            extents = self.extents(self.nodes.inputs[i][at]) if self.nodes.inputs[i][at] in self.partly else None
            if extents is not None:
                sizes: list[int | None] = [int(n) if np.isfinite(n) else None for n in extents.high.tolist()]
                for d in dimensions:
                    sizes[d] = max(1, int(extents.low[d]))
                inputs[at] = tf.compat.v1.placeholder(inputs[at].dtype, sizes)
        return inputs

    def _opened(self, i: int, inputs: Sequence[Any], places: Sequence[int]) -> list[Any]:
        """`inputs` with what is known of their shapes alone in some places."""
        given = list(inputs)
        for at in places:
            p, k = self.nodes.inputs[i][at]
            given[at] = self._placeholder(given[at].dtype, self.nodes.shapes[p][k])
        return given

    def _placeholder(self, dtype: Any, shape: Shape) -> Any:
        return tf.compat.v1.placeholder(dtype, to_tf_shape(shape))

    def _axes(self, i: int) -> Sequence[Any] | None:
        """The axes that the gradients of two broadcast tensors are summed over, where the bounds tell them."""
        if self.nodes.defs[i].op != "BroadcastGradientArgs":
            return None
        one, other = (self.ranges.at(t) for t in self.nodes.inputs[i])
        if not one.low.ndim or not other.low.ndim:
            return None
        rank = max(one.low.size, other.low.size)
        axes: tuple[list[int], list[int]] = ([], [])
        for d in range(rank):
            sizes = [self._size(x, d - rank) for x in (one, other)]
            if sizes[0] == sizes[1] and sizes[0][0] == sizes[0][1] != 1:
                continue
            sure = [size == (1.0, 1.0) for size in sizes]
            if not any(sure) and any(size[0] <= 1 for size in sizes):
                return None  # either, or neither
            for k in (0, 1):
                if sure[k]:
                    axes[k].append(d)
        dtype = tf.as_dtype(self.nodes.dtypes[i][0])
        return [tf.constant(np.array(of, dtype=np.int64), dtype) for of in axes]

    def _size(self, extents: Interval, d: int) -> tuple[float, float]:
        """The bounds of dimension `d`, counted from the last; 1 before the first."""
        return (float(extents.low[d]), float(extents.high[d])) if -d <= extents.low.size else (1.0, 1.0)

    def extents(self, tensor: Tensor) -> Interval | None:
        """The extents of a tensor between their bounds; None for an unknown rank."""
        if tensor not in self.partly:
            return super().extents(tensor)
        shape = self.partly[tensor]
        if shape is None:
            return None
        high = np.array(shape, dtype=np.float64)
        low = np.array(self._lower(tensor, _DEPTH), dtype=np.float64)
        return Interval(low, np.where(high < 0, np.inf, high))

    def largest(self, tensor: Tensor) -> Shape:
        """The largest shape of a tensor."""
        return self.partly.get(tensor, super().largest(tensor))

    def _lower(self, tensor: Tensor, depth: int) -> tuple[int, ...]:
        """Lower bounds of a tensor's extents: those that TensorFlow infers for the least inputs, else 0."""
        if tensor not in self.lower:
            i, k = tensor
            known, rank = self.nodes.shapes[i][k], len(self.partly[tensor] or ())
            least: Shape = (0,) * rank
            own = self.nodes.defs[i].op not in self.special and tensor not in self.ensured
            if depth and known is not None and own and not self.nodes.defs[i].op.endswith(("Enter", "Merge")):
                self.lower[tensor] = tuple(max(n, 0) for n in known)  # asked again only on a way round a loop
                with self.graph.as_default():
                    made = self.copy(i, self._least_inputs(i, depth)) if self.nodes.inputs[i] else None
                    inferred = fill_open_sizes(
                        None if made is None else tensor_shape(made[k]), self._grown(i, k, low=True)
                    )
                least = fill_open_sizes(known, inferred)
            self.lower[tensor] = tuple(max(n, 0) for n in least or (0,) * rank)
        return self.lower[tensor]

    def _least_inputs(self, i: int, depth: int) -> list[Any]:
        inputs = [self.tensor(t) for t in self.nodes.inputs[i]]
        if self.nodes.defs[i].op in _ENDS or self.nodes.defs[i].op in _KERNELS:
            return self._opened(i, inputs, [at for at, t in enumerate(self.nodes.inputs[i]) if t in self.partly])
        for at, tensor in enumerate(self.nodes.inputs[i]):
            if tensor in self.partly:
                shape = None if self.partly[tensor] is None else self._lower(tensor, depth - 1)
                inputs[at] = self._placeholder(inputs[at].dtype, shape)
        return inputs

    def unlimited(self, tensor: Tensor) -> UnlimitedSize:
        """Return the cause for which an open tensor has no bound."""
        seen: set[Tensor] = set()
        size: Tensor | None = None
        while tensor not in seen:
            seen.add(tensor)
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

    def _ensured(self) -> Iterator[tuple[Tensor, Shape]]:
        """Tensors that the program itself holds to a size, by tf.ensure_shape, and that size."""
        for i, node in enumerate(self.nodes.defs):
            if node.op == "EnsureShape" and is_known(self.nodes.shapes[i][0]):
                tensor = self.nodes.inputs[i][0]
                yield tensor, self.nodes.shapes[i][0]
                while self.nodes.defs[tensor[0]].op in _PASSES:
                    tensor = self.nodes.inputs[tensor[0]][0]
                    yield tensor, self.nodes.shapes[i][0]


def _within(given: Sequence[int], bound: Sequence[int]) -> bool:
    """Return True if a shape is of the rank of a bound and no larger, where that is known."""
    return len(given) == len(bound) and all(not 0 <= m < n for n, m in zip(given, bound, strict=True))


def check_stated(name: str, output: int, given: Sequence[int], known: Shape) -> None:
    """InputError where the shape that a user gives for an op's output contradicts what is known of it."""
    if known is not None and (
        len(known) != len(given) or any(n >= 0 and n != m for n, m in zip(known, given, strict=True))
    ):
        own = ", ".join("?" if n < 0 else str(n) for n in known)
        raise InputError.build(
            f"op {shown(name)}: its output {output} is [{own}], but the shape given for it is {list(given)}",
            remedy=f"give {len(known)} sizes that agree with it, or leave it out",
        )


def _elements(tensor: Any) -> float:
    shape = tensor_shape(tensor)
    return math.inf if shape is None or -1 in shape else float(math.prod(shape))
