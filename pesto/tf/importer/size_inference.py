"""Sizes that TensorFlow leaves open, inferred op by op, with rules where its own inference has no answer."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.tf import private
from pesto.tf.importer.intervals import Interval, exactly
from pesto.tf.importer.size_rules import OpSizes, Rule, apply_rule
from pesto.tf.importer.value_ranges import ValueRanges
from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.shape_inference import bare_graph_def
from pesto.tf.nodes.signatures import RESOURCE, VARIANT
from pesto.tf.nodes.sizes import Shape, is_known
from pesto.tf.nodes.v1_loops import closes_loop

Tensor = tuple[int, int]
"""A node and the number of its output."""
Special = Mapping[str, Callable[[StepNodes, int], Mapping[int, Shape]]]
"""Op type -> function from the nodes, with the shapes inferred so far, and an index to shapes of outputs."""

_OPAQUE = (RESOURCE, VARIANT)
_FEW = 64
"""Elements of a tensor whose value may be a shape."""
_REPEATED = ("Enter", "RefEnter", "Merge", "RefMerge")


def inferred_shapes(
    nodes: StepNodes, rules: Mapping[str, Rule], special: Special, handles: Mapping[Tensor, Tensor]
) -> list[tuple[Shape, ...]]:
    """[n] the shapes of all outputs, with what `rules`, `special` and TensorFlow infer of those that are open.

    handles: tensors that are others, such as variables' handles that come out of loops.
    """
    inference = ShapeInference(nodes, rules, special, handles)
    inference.run()
    return inference.shapes


class ShapeInference:
    """A pass over the nodes, in a TensorFlow graph that holds a copy of each op whose sizes are open."""

    def __init__(
        self, nodes: StepNodes, rules: Mapping[str, Rule], special: Special, handles: Mapping[Tensor, Tensor]
    ) -> None:
        """See `inferred_shapes`."""
        self.nodes, self.rules, self.special, self.handles = nodes, rules, special, handles
        self.shapes = list(nodes.shapes)
        self.graph = tf.Graph()
        self.stand_ins: dict[Tensor, Any] = {}
        """Tensors of copies, by the tensors whose place they take."""
        self.ranges = ValueRanges(nodes, self.extents, self.value, handles)

    def run(self) -> None:
        """Infer the shapes of all outputs."""
        with self.graph.as_default():
            nodes = self.nodes
            # Shape functions run only when ops are created, so the step is imported once and each op with open sizes is
            # created again with better-known inputs.
            program = bare_graph_def(nodes.defs, nodes.signatures.library.values(), nodes.producer)
            tf.import_graph_def(program, name="")
            for i in range(len(self.nodes.defs)):
                self._visit(i)

    def _visit(self, i: int) -> None:
        count = range(len(self.nodes.dtypes[i]))
        open_ = [k for k in count if self.nodes.dtypes[i][k] not in _OPAQUE and not is_known(self.shapes[i][k])]
        led = {k: self.handles[i, k] for k in count if (i, k) in self.handles}
        moved = any(t in self.stand_ins for t in self.nodes.inputs[i])
        if open_ or (moved and self._matters(i)):
            self.take(i, open_, self.outputs(i) if moved else self.original(i))
        for k, source in led.items():
            self.stand_ins[i, k] = self.tensor(source)

    def _matters(self, i: int) -> bool:
        """Return True if readers of node `i` use more than its outputs' shapes: sizes, lists, handles."""
        return any(dtype in _OPAQUE or self.is_value(i, k) for k, dtype in enumerate(self.nodes.dtypes[i]))

    def is_value(self, i: int, k: int) -> bool:
        """Return True if an output may hold sizes or axes: a few whole numbers."""
        shape, dtype = self.shapes[i][k], self.nodes.dtypes[i][k]
        few = shape is not None and len(shape) <= 1 and math.prod(shape) <= _FEW
        return few and bool(tf.as_dtype(dtype % 100).is_integer)

    def outputs(self, i: int) -> Sequence[Any]:
        """The outputs of a copy of node `i` that reads what takes the place of its inputs."""
        made = self.copy(i, [self.tensor(t) for t in self.nodes.inputs[i]])
        return self.original(i) if made is None else made

    def take(self, i: int, open_: list[int], outputs: Sequence[Any]) -> None:
        """Keep what is inferred of the outputs of node `i`, and have its readers read them."""
        rule = self.special.get(self.nodes.defs[i].op) if open_ else None
        special = {} if rule is None else rule(replace(self.nodes, shapes=self.shapes), i)
        for k, tensor in enumerate(outputs):
            if k in open_:
                shape = fill_open_sizes(self.shapes[i][k], tensor_shape(tensor))
                if not is_known(shape):
                    better = special.get(k, self.entering(i))
                    extents = exactly(better) if is_known(better) else self.by_rule(i, k, shape)
                    shape = shape if extents is None else extents.sizes()
                # Later rules read these shapes, so they are stored at once; nodes are visited in topological order.
                self.shapes[i] = (*self.shapes[i][:k], shape, *self.shapes[i][k + 1 :])
                self.set_shape(tensor, shape)
            self.stand_ins[i, k] = tensor

    def by_rule(self, i: int, k: int, inferred: Shape) -> Interval | None:
        """The extents of an output by the rule for its op type; None without one."""
        inputs = self.nodes.inputs[i]
        sizes = OpSizes(
            node=self.nodes.defs[i],
            output=k,
            inferred=inferred,
            arguments=len(inputs),
            extents=lambda at: self.extents(inputs[at]),
            values=lambda at: self.ranges.at(inputs[at]),
            factor=lambda at, by: self._factor(inputs[at], inputs[by]),
        )
        return apply_rule(self.rules, sizes)

    def _factor(self, tensor: Tensor, by: Tensor) -> Interval | None:
        """The values of the other factor of a product of which `by` is one."""
        i, _ = tensor
        if self.nodes.defs[i].op != "Mul" or by not in self.nodes.inputs[i]:
            return None
        one, other = self.nodes.inputs[i]
        return self.ranges.at(other if one == by else one)

    def extents(self, tensor: Tensor) -> Interval | None:
        """The extents of a tensor; None for an unknown rank."""
        i, k = tensor
        shape = self.shapes[i][k]
        if shape is None:
            return None
        sizes = np.array(shape, dtype=np.float64)
        return Interval(np.maximum(sizes, 0), np.where(sizes < 0, np.inf, sizes))

    def value(self, tensor: Tensor) -> Any:
        """The constant value of a tensor, an array; None where it has none."""
        stand_in = self.tensor(tensor)
        value = tf.get_static_value(stand_in)
        return private.constant_value(stand_in) if value is None and stand_in.dtype.is_integer else value

    def entering(self, i: int) -> Shape:
        """The shape with which a value entered a v1 loop: it keeps that, as Python checks and a GraphDef forgets."""
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
        """The shape of a tensor as far as it is inferred."""
        return self.shapes[tensor[0]][tensor[1]]

    def tensor(self, tensor: Tensor) -> Any:
        """Return the tensor of the graph that stands for another."""
        stand_in = self.stand_ins.get(tensor)
        if stand_in is not None:
            return stand_in
        i, k = tensor
        stand_in = self.original(i)[k]
        self.set_shape(stand_in, self.nodes.shapes[i][k])
        return stand_in

    def original(self, i: int) -> Sequence[Any]:
        """The outputs of node `i` as it was imported."""
        outputs: Sequence[Any] = self.graph.get_operation_by_name(self.nodes.defs[i].name).outputs
        return outputs

    def set_shape(self, tensor: Any, shape: Shape) -> None:
        """Tell TensorFlow the shape of a tensor."""
        if shape is not None and not tensor.shape.is_fully_defined():
            # What was recorded when the step was traced may be of another form of it.
            with contextlib.suppress(ValueError):
                tensor.set_shape(to_tf_shape(shape))

    def copy(self, i: int, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """The outputs of an op like node `i` with other inputs; None where TensorFlow refuses it."""
        node = self.nodes.defs[i]
        attrs = {name: value for name, value in node.attr.items() if not name.startswith("_")}
        dtypes = [tf.as_dtype(dtype) for dtype in self.nodes.dtypes[i]]
        try:
            op = self.graph.create_op(node.op, list(inputs), dtypes, name=f"{node.name}/pesto_sizes", attrs=attrs)
        except (ValueError, TypeError):
            return None
        return op.outputs


def to_tf_shape(shape: Shape) -> list[int | None] | None:
    """A shape as TensorFlow's Python takes it."""
    return None if shape is None else [None if n < 0 else n for n in shape]


def tensor_shape(tensor: Any) -> Shape:
    """The shape of a TensorFlow tensor."""
    return None if tensor.shape.rank is None else tuple(-1 if n is None else n for n in tensor.shape.as_list())


def fill_open_sizes(shape: Shape, better: Shape) -> Shape:
    """`shape` with the sizes of `better` where it has none."""
    if shape is None or better is None or len(shape) != len(better):
        return better if shape is None else shape
    return tuple(n if n >= 0 else m for n, m in zip(shape, better, strict=True))
