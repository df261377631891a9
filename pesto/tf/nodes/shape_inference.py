"""Shapes as TensorFlow infers them from a GraphDef, and a batch size put in for the dimension that it leaves open."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from pesto.core.errors import InputError
from pesto.core.files.json import shown, without_collection
from pesto.tf.nodes.needed_nodes import producer
from pesto.tf.nodes.trip_counts import LOOPS

_SCALARS_KNOWN = 22
"""GraphDef version from which a placeholder of shape [] is a scalar; before, TensorFlow takes its rank for unknown."""
READ_ITERATOR = ("IteratorGetNext", "IteratorGetNextSync")
"""Types of the ops that take the next batch of an iterator."""
_AXES = "BroadcastGradientArgs"
_LISTS = (
    "EmptyTensorList", "TensorListFromTensor", "TensorListGetItem", "TensorListPopBack", "TensorListReserve",
    "TensorListStack",
)  # fmt: skip
_PASSES = ("Identity", "StopGradient")
_ARRAYS = ("TensorArrayV3", "TensorArrayGatherV3", "TensorArrayConcatV3")
"""Ops of version 1 loops that declare the shape of the rows which a TensorArray holds."""


@without_collection()  # it would go through all of TensorFlow's objects again and again
def infer_shapes(graph_def: Any) -> Any:
    """Return `graph_def` through TensorFlow: defaults filled in, `_output_shapes` on every node, colocations kept.

    Where TensorFlow infers no shape, the one that the GraphDef was exported with stays. Raise InputError when
    TensorFlow refuses it.
    """
    bare = _strip_node(copy_graph_def(graph_def))
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


def bare_graph_def(nodes: Iterable[Any], functions: Iterable[Any], version: int) -> Any:
    """Make a GraphDef of NodeDefs and FunctionDefs of a graph of a version, without devices and recorded shapes."""
    graph_def = graph_pb2.GraphDef()
    graph_def.versions.producer = version
    graph_def.node.extend(nodes)
    graph_def.library.function.extend(functions)
    return _strip_node(graph_def)


def _strip_node(graph_def: Any) -> Any:
    graph_def.versions.producer = graph_def.versions.producer or _SCALARS_KNOWN
    names = {node.name for node in graph_def.node}
    # `Variable` hides that a variable of TensorFlow 0 is a scalar, so it becomes the op that has this shape. Where the
    # shape was left open when the program was written, what assigns to the variable does not validate it.
    scalars = {}
    for node in graph_def.node:
        shape = node.attr["shape"].shape if node.op == "Variable" else None
        if shape is not None and not shape.unknown_rank and not shape.dim:
            scalars[node.name] = node
    for node in graph_def.node:
        if node.op == "Assign" and "validate_shape" in node.attr and not node.attr["validate_shape"].b:
            variable = scalars.pop(node.input[0].partition(":")[0], None)
            if variable is not None:
                variable.attr["shape"].shape.unknown_rank = True
    for node in scalars.values():
        node.op = "VariableV2"
    for node in graph_def.node:
        node.attr.pop("_output_shapes", None)
        node.device = ""
        if "_class" in node.attr:
            where = node.attr["_class"].list.s
            where[:] = [w for w in where if w.decode(errors="replace").removeprefix("loc:@") in names]
    return graph_def


def fill_shapes_from(graph_def: Any, other: Any) -> None:
    """Give the tensors of `graph_def` the ranks and sizes of `other` where their own are open."""
    shaped = [node for node in other.node if "_output_shapes" in node.attr]
    shapes_of = {node.name: node.attr["_output_shapes"].list.shape for node in shaped}
    for node in graph_def.node:
        own, known_there = node.attr["_output_shapes"].list.shape, shapes_of.get(node.name, ())
        for shape, better in zip(own, known_there, strict=True) if len(own) == len(known_there) else ():
            if shape.unknown_rank:
                shape.CopyFrom(better)
            elif not better.unknown_rank and len(shape.dim) == len(better.dim):
                for dim, better_dim in zip(shape.dim, better.dim, strict=True):
                    if dim.size < 0:
                        dim.size = better_dim.size


def copy_graph_def(graph_def: Any) -> Any:
    """Return a GraphDef of its own."""
    copy = graph_pb2.GraphDef()
    copy.CopyFrom(graph_def)
    return copy


def has_open_batch(graph_def: Any) -> bool:
    """Return True if a feed leaves its first dimension open."""
    return any(_is_open(shape) for shape in _iter_feed_shapes(graph_def))


def count_size_reads(graph_def: Any) -> int:
    """Count the ops that read the shape of a tensor whose first dimension alone is open."""
    shapes = {node.name: node.attr["_output_shapes"].list.shape for node in graph_def.node}
    count = 0
    for node in graph_def.node:
        for text in node.input if node.op in ("Shape", "ShapeN", "Size") else ():
            name, _, port = text.partition(":")
            shape = shapes.get(name, ())
            dims = [d.size for d in shape[int(port or 0)].dim] if int(port or 0) < len(shape) else []
            if dims and dims[0] == -1 and -1 not in dims[1:]:
                count += 1
                break
    return count


def _iter_feed_shapes(graph_def: Any) -> Iterator[Any]:
    """Yield the TensorShapeProtos that feeds declare."""
    for node in graph_def.node:
        if node.op.startswith("Placeholder"):
            yield node.attr["shape"].shape
        elif node.op in READ_ITERATOR:
            yield from node.attr["output_shapes"].list.shape


def fix_open_batch(graph_def: Any, batch: int) -> Any:
    """Return a copy with `batch` for the first dimension of feeds where it is open, and the shapes that follow from it.

    Only for its shapes: constants that hold shapes are changed too.
    """
    filled = copy_graph_def(graph_def)
    _get_first_size(_iter_feed_shapes(filled), batch)
    return propagate_batch(filled, batch)


def propagate_batch(filled: Any, batch: int) -> Any:
    """Put `batch` in where nodes, loops and functions of `filled` leave it open, of whose feeds it is known."""
    for function in filled.library.function:
        # What a function's ops had open when they were traced: inference cannot know all of it.
        nodes = function.node_def
        recorded = {
            node.name: node.attr["_output_shapes"].list.shape for node in nodes if "_output_shapes" in node.attr
        }
        op = {node.name: node.op for node in nodes}
        _get_first_size(chain(*(shapes for name, shapes in recorded.items() if op[name] != _AXES)), batch)
        for node in nodes:
            if node.op == "Sum" and node.name in recorded and len(node.input) > 1:
                summed, axes = (producer(text.partition(":")[0]) for text in node.input[:2])
                recorded_shape = recorded.get(summed, ())
                # What a gradient sums over broadcast axes is at most as large as before.
                if op.get(axes) == _AXES and len(recorded_shape) == 1:
                    recorded[node.name][0].CopyFrom(recorded_shape[0])
    for nodes in (filled.node, *(function.node_def for function in filled.library.function)):
        _fill_lists(nodes, batch)
    declared = {node.name: node.attr["output_shapes"].list for node in filled.node if node.op in LOOPS}
    if any(_is_open(shape) for listed in declared.values() for shape in listed.shape):
        # A While op declares the shapes of its variables; the declaration overrides inference. Without it TensorFlow
        # infers the shapes of the first values, from which open rows are filled.
        entered = copy_graph_def(filled)
        for node in entered.node:
            if node.op in LOOPS:
                node.attr["output_shapes"].list.Clear()
                node.attr.pop("_output_shapes", None)
        for node in infer_shapes(entered).node:
            if node.name in declared:
                pairs = zip(declared[node.name].shape, node.attr["_output_shapes"].list.shape, strict=False)
                _get_first_size((own for own, first in pairs if first.dim and first.dim[0].size == batch), batch)
    fill_shapes_from(filled, infer_shapes(filled))
    return filled


def _fill_lists(nodes: Any, batch: int) -> None:
    """Put `batch` in for the open rows of what tensor lists hold, such as an RNN's outputs of each time.

    A list with an element for each example, as of map_fn, has `batch` elements instead, whose rows stay open. How many
    elements are stacked is written down where it was set (`set_shape`): TensorFlow does not infer it.
    """
    by_name = {node.name: node for node in nodes}
    readers: dict[str, list[Any]] = {}
    for node in nodes:
        for text in node.input:
            readers.setdefault(producer(text.partition(":")[0]), []).append(node)
    for node in nodes:
        if node.op in _ARRAYS and "element_shape" in node.attr:
            _get_first_size([node.attr["element_shape"].shape], batch)
        stacked = node.attr["_output_shapes"].list.shape if node.op == "TensorListStack" else ()
        if stacked and stacked[0].dim and node.attr["num_elements"].i < 0:
            rows = stacked[0].dim[0].size
            node.attr["num_elements"].i = batch if rows < 0 and _is_of_examples(node, by_name, batch) else rows
        reading = readers.get(node.name, [])
        if node.op == "Const" and reading and all(reader.op in _LISTS for reader in reading):
            value = tf.make_ndarray(node.attr["value"].tensor)
            open_ = value.ndim == 1 and len(value) and value[0] == -1
            if open_ and not any(_is_of_examples(reader, by_name, batch) for reader in reading):
                value = np.concatenate([[batch], value[1:]]).astype(value.dtype)
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))


def _is_of_examples(node: Any, by_name: Mapping[str, Any], batch: int) -> bool:
    """Return True if a list that a node makes or reads has an element for each example of a feed of `batch`."""
    origin, _ = _find_source(node.name, by_name, (*_PASSES, *LOOPS, "TensorListStack"))
    if origin is not None and origin.op == "TensorListFromTensor":
        return _is_fed(origin.input[0], by_name, batch)
    if origin is None or origin.op != "TensorListReserve":
        return False
    number, _ = _find_source(origin.input[1], by_name, _PASSES)
    if number is None or number.op != "StridedSlice":
        return False
    sizes, begin = (_find_source(text, by_name, _PASSES)[0] for text in number.input[:2])
    if sizes is None or sizes.op != "Shape" or begin is None or begin.op != "Const":
        return False
    return not tf.make_ndarray(begin.attr["value"].tensor).any() and _is_fed(sizes.input[0], by_name, batch)


def _is_fed(text: str, by_name: Mapping[str, Any], batch: int) -> bool:
    """Return True if a tensor is a feed of `batch` rows."""
    feed, port = _find_source(text, by_name, _PASSES)
    if feed is None or not (feed.op in READ_ITERATOR or feed.op.startswith("Placeholder")):
        return False
    shapes = feed.attr["output_shapes"].list.shape if feed.op in READ_ITERATOR else [feed.attr["shape"].shape]
    return bool(shapes[port].dim) and shapes[port].dim[0].size == batch


def _find_source(text: str, by_name: Mapping[str, Any], passed: Collection[str]) -> tuple[Any, int]:
    """Return the node that makes a tensor, behind those that pass it on, and its output; None for an argument."""
    for _ in by_name:
        name, *port = text.split(":")
        node, k = by_name.get(producer(name)), int(port[-1]) if port else 0
        if node is None or node.op not in passed:
            return node, k
        text = node.input[k if node.op in LOOPS else 0]
    return None, 0


def _get_first_size(shapes: Iterable[Any], batch: int) -> None:
    for shape in shapes:
        if _is_open(shape):
            shape.dim[0].size = batch


def _is_open(shape: Any) -> bool:
    return not shape.unknown_rank and len(shape.dim) > 0 and shape.dim[0].size == -1
