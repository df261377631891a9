"""Shapes of what queues and lookup tables give, which the ops that make them state."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from pesto.tf.importer.size_inference import Special
from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.sizes import Shape, shape_from

_PASSES = frozenset(("Enter", "RefEnter", "Identity", "RefIdentity", "Switch", "RefSwitch", "Merge", "RefMerge"))
_QUEUES = frozenset(
    f"{kind}{version}" for kind in ("FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue") for version in ("", "V2")
)
_TABLES = frozenset(f"{kind}{version}" for kind in ("HashTable", "MutableHashTable") for version in ("", "V2"))
_TABLES_OF_TENSORS = frozenset(("MutableHashTableOfTensors", "MutableHashTableOfTensorsV2"))


def _maker(nodes: StepNodes, i: int) -> Any:
    """Return the node that makes the queue or table that node `i` takes, as far as it can be followed back."""
    at = nodes.inputs[i][0][0]
    for _ in nodes.defs:
        if nodes.defs[at].op not in _PASSES:
            break
        at = nodes.inputs[at][0][0]
    return nodes.defs[at]


def _components(nodes: StepNodes, i: int) -> list[Shape]:
    """Return the shapes of one element of the queue; none where its maker does not state them."""
    maker = _maker(nodes, i)
    return [shape_from(shape) for shape in maker.attr["shapes"].list.shape] if maker.op in _QUEUES else []


def _element(nodes: StepNodes, i: int) -> Mapping[int, Shape]:
    return dict(enumerate(_components(nodes, i)))


def _elements(nodes: StepNodes, i: int) -> Mapping[int, Shape]:
    """Return shapes with as many elements as a constant says; a queue may give fewer to QueueDequeueUpTo."""
    many = nodes.defs[nodes.inputs[i][1][0]]
    if many.op != "Const":
        return {}
    count = int(tf.make_ndarray(many.attr["value"].tensor))
    return {k: None if shape is None else (count, *shape) for k, shape in enumerate(_components(nodes, i))}


def _values(nodes: StepNodes, i: int) -> Mapping[int, Shape]:
    """Return the shape of the values of a table: one for each key."""
    maker, keys = _maker(nodes, i), nodes.input_shapes(i)[1]
    if keys is None or maker.op not in _TABLES | _TABLES_OF_TENSORS:
        return {}
    value = shape_from(maker.attr["value_shape"].shape) if maker.op in _TABLES_OF_TENSORS else ()
    return {} if value is None else {0: (*keys, *value)}


GIVEN: Special = {
    **dict.fromkeys(("QueueDequeue", "QueueDequeueV2"), _element),
    **dict.fromkeys(("QueueDequeueMany", "QueueDequeueManyV2"), _elements),
    **dict.fromkeys(("LookupTableFind", "LookupTableFindV2"), _values),
}
"""Op type -> rule for exact shapes, which hold whatever the data are."""

GIVEN_AT_MOST: Special = dict.fromkeys(("QueueDequeueUpTo", "QueueDequeueUpToV2"), _elements)
"""Op type -> rule for upper bounds of shapes."""
