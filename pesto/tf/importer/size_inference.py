"""Sizes that TensorFlow leaves open, inferred op by op, with rules where its own inference has no answer."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.tf import private
from pesto.tf.importer.largest_values import largest
from pesto.tf.importer.size_rules import OpSizes, Rule, apply_rule
from pesto.tf.nodes.frames import closes_loop
from pesto.tf.nodes.inference import unplaced
from pesto.tf.nodes.needed_nodes import Nodes
from pesto.tf.nodes.signatures import RESOURCE, VARIANT
from pesto.tf.nodes.sizes import Shape, is_known

Tensor = tuple[int, int]
"""A node and the number of its output."""
Special = Mapping[str, Callable[[Nodes, int], Mapping[int, Shape]]]
"""By op type: from nodes with the shapes inferred so far, and one of them, to shapes of its outputs."""

_OPAQUE = (RESOURCE, VARIANT)
_FEW = 64
"""Elements of a tensor whose value may be a shape."""
_REPEATED = ("Enter", "RefEnter", "Merge", "RefMerge")


def inferred_shapes(
    nodes: Nodes, rules: Mapping[str, Rule], special: Special, handles: Mapping[Tensor, Tensor], *, bounds: bool
) -> list[tuple[Shape, ...]]:
    """[n] the shapes of all outputs, with what `rules`, `special` and TensorFlow infer of those that are open.

    handles: tensors that are others, such as variables' handles that come out of loops. bounds: whether the rules give
    upper bounds: then sizes that have to be equal may come out unequal, and the least of them holds.
    """
    return _Inference(nodes, rules, special, handles, bounds).run()


class _Inference:
    """One walk over the nodes, in a TensorFlow graph that holds a copy of each op whose sizes are open."""

    def __init__(
        self, nodes: Nodes, rules: Mapping[str, Rule], special: Special, handles: Mapping[Tensor, Tensor], bounds: bool
    ) -> None:
        self.rules, self.special, self.handles, self.bounds = rules, special, handles, bounds
        self.nodes = nodes
        self.shapes = list(nodes.shapes)
        self.graph = tf.Graph()
        self.stand_ins: dict[Tensor, Any] = {}
        """Tensors of copies, by the tensors whose place they take."""
        self.bounded: set[Tensor] = set()
        """Tensors with a size that is an upper bound."""
        self.ensured = dict(self._ensured())

    def run(self) -> list[tuple[Shape, ...]]:
        with self.graph.as_default():
            tf.import_graph_def(unplaced(self.nodes.defs, self.nodes.signatures.library.values()), name="")
            for i in range(len(self.nodes.defs)):
                self._visit(i)
        return self.shapes

    def _visit(self, i: int) -> None:
        open_ = [k for k, dtype in enumerate(self.nodes.dtypes[i]) if self._is_open(i, k, dtype)]
        led = {k: self.handles[i, k] for k in range(len(self.nodes.dtypes[i])) if (i, k) in self.handles}
        moved = any(t in self.stand_ins for t in self.nodes.inputs[i])
        if open_ or (moved and self._matters(i)):
            outputs = self._outputs(i) if moved else self._original(i)
            self._take(i, open_, outputs)
        for k, source in led.items():
            self.stand_ins[i, k] = self._tensor(source)

    def _matters(self, i: int) -> bool:
        """Whether readers of node `i` learn more from it than the shapes of its outputs: sizes, lists, handles."""
        for dtype, shape in zip(self.nodes.dtypes[i], self.shapes[i], strict=True):
            few = shape is not None and len(shape) <= 1 and math.prod(shape) <= _FEW
            if dtype in _OPAQUE or (few and tf.as_dtype(dtype % 100).is_integer):
                return True
        return False

    def _is_open(self, i: int, k: int, dtype: int) -> bool:
        return dtype not in _OPAQUE and not is_known(self.shapes[i][k])

    def _take(self, i: int, open_: list[int], outputs: Sequence[Any]) -> None:
        """Keep what is inferred of the outputs of node `i`, and have its readers read them."""
        bounded = self.bounds and any(t in self.bounded for t in self.nodes.inputs[i])
        rule = self.special.get(self.nodes.defs[i].op) if open_ else None
        found = {} if rule is None else rule(replace(self.nodes, shapes=self.shapes), i)
        for k, tensor in enumerate(outputs):
            if k in open_:
                before = self.shapes[i][k]
                inferred = _filled(before, _shape_of(tensor))
                shape = inferred
                if not is_known(shape):
                    shape = self._by_rule(i, k, inferred, found.get(k))
                    bounded = bounded or self.bounds
                self.shapes[i] = (*self.shapes[i][:k], shape, *self.shapes[i][k + 1 :])
                self._set_shape(tensor, shape, i)
            if bounded:
                self.bounded.add((i, k))
            self.stand_ins[i, k] = tensor

    def _by_rule(self, i: int, k: int, inferred: Shape, special: Shape) -> Shape:
        if (i, k) in self.ensured:
            return self.ensured[i, k]
        if special is not None:
            return _filled(inferred, special) if inferred is not None else special
        round_ = self._entering(i) if self.nodes.defs[i].op in _REPEATED else None
        if round_ is not None:
            return round_
        sizes = OpSizes(
            node=self.nodes.defs[i],
            output=k,
            inferred=inferred,
            inputs=[self.shapes[p][j] for p, j in self.nodes.inputs[i]],
            value=lambda at: self._value(self.nodes.inputs[i][at]),
            largest=lambda at: largest(self.nodes, self.shapes, self._value, self.nodes.inputs[i][at]),
        )
        shape = apply_rule(self.rules, sizes)
        return inferred if shape is None else shape

    def _value(self, tensor: Tensor) -> Any:
        found = self._tensor(tensor)
        value = tf.get_static_value(found)
        return private.constant_value(found) if value is None and found.dtype.is_integer else value

    def _entering(self, i: int) -> Shape:
        """The shape with which a value entered a v1 loop: it keeps that, as Python checks and a GraphDef forgets."""
        if self.nodes.defs[i].op in _REPEATED[2:]:
            before = [p for p, _ in self.nodes.inputs[i] if not closes_loop(self.nodes, p, i)]
            if len(before) == len(self.nodes.inputs[i]) or not before:
                return None
            if self.nodes.defs[before[0]].op not in _REPEATED[:2]:
                return None
            i = before[0]
        p, k = self.nodes.inputs[i][0]
        return self.shapes[p][k]

    def _tensor(self, tensor: Tensor) -> Any:
        found = self.stand_ins.get(tensor)
        if found is not None:
            return found
        i, k = tensor
        found = self._original(i)[k]
        self._set_shape(found, self.shapes[i][k], i)
        return found

    def _original(self, i: int) -> Sequence[Any]:
        """The outputs of node `i` as it was imported."""
        outputs: Sequence[Any] = self.graph.get_operation_by_name(self.nodes.defs[i].name).outputs
        return outputs

    def _set_shape(self, tensor: Any, shape: Shape, i: int) -> None:
        # How many axes a gradient is summed over is a bound; which they are is a value that TensorFlow knows better.
        if shape is not None and not _axes(self.nodes.defs[i]) and not tensor.shape.is_fully_defined():
            # What was recorded when the step was traced may be of another form of it.
            with contextlib.suppress(ValueError):
                tensor.set_shape([None if n < 0 else n for n in shape])

    def _outputs(self, i: int) -> Sequence[Any]:
        """The outputs of a copy of node `i` that reads what takes the place of its inputs.

        Where TensorFlow refuses that, as upper bounds of sizes that must be equal differ, bounded sizes of one input
        are left open at a time, so that those of the others hold, and the least of what comes out is taken.
        """
        inputs = [self._tensor(t) for t in self.nodes.inputs[i]]
        whole = self._copy(i, inputs)
        if whole is not None:
            return whole
        bounded = [at for at, t in enumerate(self.nodes.inputs[i]) if t in self.bounded]
        made = [self._copy(i, self._opened(i, inputs, [at])) for at in bounded]
        tried = [outputs for outputs in made if outputs is not None]
        if not tried:
            last = self._copy(i, self._opened(i, inputs, bounded))
            return self._original(i) if last is None else last
        return min(tried, key=lambda outputs: sum(map(_elements, outputs)))

    def _opened(self, i: int, inputs: Sequence[Any], places: Sequence[int]) -> list[Any]:
        """`inputs` with bounded sizes left open in some places."""
        given = list(inputs)
        for at in places:
            p, k = self.nodes.inputs[i][at]
            shape = self.nodes.shapes[p][k]
            sizes = None if shape is None else [None if n < 0 else n for n in shape]
            given[at] = tf.compat.v1.placeholder(given[at].dtype, sizes)
        return given

    def _copy(self, i: int, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """The outputs of an op like node `i` with other inputs; None where TensorFlow refuses it."""
        node = self.nodes.defs[i]
        attrs = {name: value for name, value in node.attr.items() if not name.startswith("_")}
        dtypes = [tf.as_dtype(dtype) for dtype in self.nodes.dtypes[i]]
        try:
            op = self.graph.create_op(node.op, list(inputs), dtypes, name=f"{node.name}/pesto_sizes", attrs=attrs)
        except (ValueError, TypeError):
            return None
        return op.outputs

    def _ensured(self) -> Iterator[tuple[Tensor, Shape]]:
        """Tensors that the program itself holds to a size, by tf.ensure_shape, and that size."""
        for i, node in enumerate(self.nodes.defs):
            if node.op == "EnsureShape" and is_known(self.nodes.shapes[i][0]):
                tensor = self.nodes.inputs[i][0]
                yield tensor, self.nodes.shapes[i][0]
                while self.nodes.defs[tensor[0]].op in ("Identity", "StopGradient"):
                    tensor = self.nodes.inputs[tensor[0]][0]
                    yield tensor, self.nodes.shapes[i][0]


def _axes(node: Any) -> bool:
    return bool(node.op == "BroadcastGradientArgs")


def _shape_of(tensor: Any) -> Shape:
    return None if tensor.shape.rank is None else tuple(-1 if n is None else n for n in tensor.shape.as_list())


def _filled(shape: Shape, better: Shape) -> Shape:
    """`shape` with the sizes of `better` where it has none."""
    if shape is None or better is None or len(shape) != len(better):
        return better if shape is None else shape
    return tuple(n if n >= 0 else m for n, m in zip(shape, better, strict=True))


def _elements(tensor: Any) -> float:
    shape = _shape_of(tensor)
    return float(np.inf) if shape is None or -1 in shape else float(math.prod(shape))
