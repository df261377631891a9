"""Small integers that a step computes from its shapes: axes, permutations, the shapes of other tensors."""

from math import prod
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.private import op_def

MOST = 64
"""Elements of a constant that is read as a value."""
_SHAPES = ("Shape", "ShapeN", "Size", "Rank")
_KEPT = frozenset(
    t.as_datatype_enum for t in (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.bool, tf.float32, tf.float64)
)
_WHOLE_NUMBERS = frozenset(t.as_datatype_enum for t in (tf.int32, tf.int64, tf.bool))

Tensor = tuple[int, int]
"""A node and the number of its output."""


def constants(nodes: StepNodes) -> dict[Tensor, Any]:
    """The value of each small constant, an array, and of what ops make of nothing but shapes and such constants."""
    values = {
        (i, 0): tf.make_ndarray(node.attr["value"].tensor) for i, node in enumerate(nodes.defs) if _small(nodes, i)
    }
    for i, node in enumerate(nodes.defs):
        if node.op in _SHAPES:
            values.update(_of_shapes(nodes, i))
    folded = _folded(nodes, values)
    return values | _run(nodes, values, folded)


def _small(nodes: StepNodes, i: int) -> bool:
    if nodes.defs[i].op != "Const" or nodes.dtypes[i][0] not in _KEPT:
        return False
    shape = nodes.shapes[i][0]
    return shape is not None and prod(shape) <= MOST


def _of_shapes(nodes: StepNodes, i: int) -> dict[Tensor, Any]:
    """Shapes read as data, where they are known before the step runs."""
    node, values = nodes.defs[i], {}
    for k, shape in enumerate(nodes.input_shapes(i)):
        if shape is None or (-1 in shape and node.op != "Rank"):
            continue
        dtype = np.int64 if nodes.dtypes[i][k] == tf.int64.as_datatype_enum else np.int32
        value = {"Size": prod(shape), "Rank": len(shape)}.get(node.op, shape)
        values[i, k] = np.asarray(value, dtype=dtype)
    return values


def _folded(nodes: StepNodes, values: dict[Tensor, Any]) -> list[int]:
    """Nodes that make whole numbers, few of them, of values that are known."""
    known, folded = set(values), []
    for i, node in enumerate(nodes.defs):
        sources = nodes.inputs[i]
        if not sources or (i, 0) in known or any(tensor not in known for tensor in sources):
            continue
        few = all(t in _WHOLE_NUMBERS for t in nodes.dtypes[i]) and all(
            shape is not None and -1 not in shape and prod(shape) <= MOST for shape in nodes.upper_bounds(i)
        )
        definition = op_def(node.op)
        if few and definition is not None and not definition.is_stateful:
            folded.append(i)
            known.update((i, k) for k in range(len(nodes.dtypes[i])))
    return folded


def _run(nodes: StepNodes, values_known: dict[Tensor, Any], folded: list[int]) -> dict[Tensor, Any]:
    """Evaluate the folded nodes with TensorFlow."""
    if not folded:
        return {}
    inside, program = set(folded), graph_pb2.GraphDef()
    given = {t: f"given/{t[0]}/{t[1]}" for i in folded for t in nodes.inputs[i] if t[0] not in inside}
    for tensor, name in given.items():
        node = program.node.add(name=name, op="Const")
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values_known[tensor]))
        node.attr["dtype"].type = node.attr["value"].tensor.dtype
    for i in folded:
        node = program.node.add(name=f"made/{i}", op=nodes.defs[i].op)
        for name, attribute in nodes.defs[i].attr.items():
            if not name.startswith("_"):
                node.attr[name].CopyFrom(attribute)
        node.input.extend(f"made/{p}:{k}" if p in inside else given[p, k] for p, k in nodes.inputs[i])
    made = [(i, k) for i in folded for k in range(len(nodes.dtypes[i]))]
    with tf.Graph().as_default() as graph, tf.device("/CPU:0"):
        tf.import_graph_def(program, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            values = session.run([f"made/{i}:{k}" for i, k in made])
    return dict(zip(made, values, strict=True))
