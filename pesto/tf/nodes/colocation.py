"""Groups of ops that must share a device: all ops that touch one variable, table or tensor list."""

import numpy as np

from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.signatures import RESOURCE, VARIANT
from solvers.arrays import Ints

_LOCATION = b"loc:@"


def colocation_groups(nodes: StepNodes) -> Ints:
    """[n] group of each node, numbered by first member; -1 for nodes that are alone.

    TensorFlow's placer moves an op to the handle that it touches, silently, so ops are joined over every resource
    and reference input; an op that touches several handles joins them. Variants (tensor lists) are joined too: their
    edges carry no bytes and must not be cut. Of the `_class` constraints only those of ops with references bind; the
    rest are leftovers of the Python layer that a plan removes.
    """
    parent = list(range(len(nodes.defs)))
    index = {node.name.encode(): i for i, node in enumerate(nodes.defs)}
    for i, node in enumerate(nodes.defs):
        refs = nodes.signatures.input_refs(node)
        for slot, (p, k) in enumerate(nodes.inputs[i]):
            # Resource handles and references cannot cross devices: the op that uses one runs where the variable lives.
            if nodes.dtypes[p][k] in (RESOURCE, VARIANT) or (refs and refs[slot]):
                _join(parent, i, p)
        if "_class" in node.attr and nodes.signatures.has_ref(node):
            for where in node.attr["_class"].list.s:
                other = index.get(where.removeprefix(_LOCATION))
                if other is not None:
                    _join(parent, i, other)
    return number_groups(np.array([_root(parent, i) for i in range(len(parent))], dtype=np.int64))


def number_groups(root: Ints) -> Ints:
    """Groups 0, 1, … in order of their first member from any label per member; -1 where a label occurs once."""
    label, first, inverse, count = np.unique(root, return_index=True, return_inverse=True, return_counts=True)
    shared = count > 1
    rank = np.full(len(label), -1, dtype=np.int64)
    rank[np.flatnonzero(shared)[np.argsort(first[shared], kind="stable")]] = np.arange(int(shared.sum()))
    return rank[inverse].astype(np.int64)


def _root(parent: list[int], node: int) -> int:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


def _join(parent: list[int], a: int, b: int) -> None:
    a, b = _root(parent, a), _root(parent, b)
    # The smaller index leads, so that the numbering does not depend on the order of the joins.
    parent[max(a, b)] = min(a, b)
