"""Shapes as TensorFlow infers them from a GraphDef."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from pesto.core.errors import InputError
from pesto.core.files.json import shown, without_collection

_SCALARS_KNOWN = 22
"""GraphDef version from which a placeholder of shape [] is a scalar; before, TensorFlow takes its rank for unknown."""


@without_collection()  # it would go through all of TensorFlow's objects again and again
def infer_shapes(graph_def: Any) -> Any:
    """`graph_def` through TensorFlow: defaults filled in, `_output_shapes` on every node, colocations kept.

    Where TensorFlow infers no shape, the one that the GraphDef was exported with stays.
    InputError, one line, when TensorFlow refuses it.
    """
    bare = _bare(copy_graph_def(graph_def))
    try:
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(bare, name="")
        inferred = graph.as_graph_def(add_shapes=True)
    except Exception as error:  # what it raises for a bad graph is anything from TypeError to OpError
        raise InputError.build(
            f"TensorFlow refuses the graph: {shown(error)}", remedy="repair or export it again"
        ) from error
    fill_shapes_from(inferred, graph_def)
    return inferred


def bare_graph_def(nodes: Iterable[Any], functions: Iterable[Any], producer: int) -> Any:
    """A GraphDef of NodeDefs and FunctionDefs of a graph of version `producer`, without devices and recorded shapes."""
    graph_def = graph_pb2.GraphDef()
    graph_def.versions.producer = producer
    graph_def.node.extend(nodes)
    graph_def.library.function.extend(functions)
    return _bare(graph_def)


def _bare(graph_def: Any) -> Any:
    graph_def.versions.producer = graph_def.versions.producer or _SCALARS_KNOWN
    names = {node.name for node in graph_def.node}
    _make_scalars_known(graph_def)
    for node in graph_def.node:
        node.attr.pop("_output_shapes", None)
        node.device = ""
        if "_class" in node.attr:
            where = node.attr["_class"].list.s
            where[:] = [w for w in where if w.decode(errors="replace").removeprefix("loc:@") in names]
    return graph_def


def _make_scalars_known(graph_def: Any) -> None:
    """Give variables of TensorFlow 0 that are scalars the op that has this shape; `Variable` hides it.

    Where the shape was left open when the program was written, what assigns to the variable does not validate it.
    """
    scalars = {node.name: node for node in graph_def.node if node.op == "Variable" and _is_scalar(node.attr["shape"])}
    for node in graph_def.node:
        if node.op == "Assign" and "validate_shape" in node.attr and not node.attr["validate_shape"].b:
            variable = scalars.pop(node.input[0].partition(":")[0], None)
            if variable is not None:
                variable.attr["shape"].shape.unknown_rank = True
    for node in scalars.values():
        node.op = "VariableV2"


def _is_scalar(value: Any) -> bool:
    return not value.shape.unknown_rank and not value.shape.dim


def fill_shapes_from(graph_def: Any, other: Any) -> None:
    """Give the tensors of `graph_def` the shapes of `other` where its own are open."""
    shaped = [node for node in other.node if "_output_shapes" in node.attr]
    shapes_of = {node.name: node.attr["_output_shapes"].list.shape for node in shaped}
    for node in graph_def.node:
        own, known_there = node.attr["_output_shapes"].list.shape, shapes_of.get(node.name, ())
        if len(own) == len(known_there):
            for shape, better in zip(own, known_there, strict=True):
                _complete(shape, better)


def _complete(shape: Any, other: Any) -> None:
    """Fill what a TensorShapeProto leaves open from another: its rank, or those of its dimensions that are known."""
    if shape.unknown_rank:
        shape.CopyFrom(other)
    elif not other.unknown_rank and len(shape.dim) == len(other.dim):
        for own, known in zip(shape.dim, other.dim, strict=True):
            if own.size < 0:
                own.size = known.size


def copy_graph_def(graph_def: Any) -> Any:
    """A GraphDef of its own."""
    copy = graph_pb2.GraphDef()
    copy.CopyFrom(graph_def)
    return copy
