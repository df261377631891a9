"""Ops of a step that have no place in a plan's order, and the reason: `Graph.loose`."""

import re
from collections.abc import Collection
from typing import Any

import numpy as np

from pesto.core.graph import BOUND, BRANCHED, FREE, SHARED, Graph
from pesto.tf.nodes.needed_nodes import StepNodes, producer
from pesto.tf.nodes.v1_loops import find_node_conditions, find_outermost_loops
from solvers.arrays import Bools, Ints

UNCHAINED = frozenset(
    ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "VarHandleOp", "VariableV2", "Variable")
)
"""Op types that other programs start from too: handles and feeds have no place in an order."""
HANDLES = re.compile(r"^(OneShot)?Iterator(V\d)?$|HashTable|Queue(V\d)?$")
"""Op types that make iterators, tables and queues, which have no place in an order either."""
CARRIED = frozenset(("Switch", "RefSwitch"))
"""Switches of v1 conditionals: TensorFlow places them with their data, whatever a plan says. They compute nothing."""

_LIGHT = frozenset((
    "Cast", "Const", "Enter", "ExpandDims", "Fill", "Identity", "NoOp", "Pack", "Placeholder", "PlaceholderV2",
    "PlaceholderWithDefault", "RandomUniform", "ReadVariableOp", "Reshape", "Shape", "StridedSlice", "VarHandleOp",
    "Variable", "VariableV2",
))  # fmt: skip
"""Ops that compute nothing worth an order."""
_DRAWN = frozenset(("RandomUniform",))
"""Light op types that start a kernel in every step; other programs read them as initial values only."""
_TINY_BYTES = 64
"""Steps, rates and shapes: what programs fetch by itself, such as the number of the step."""


def classify_loose(graph: Graph, nodes: StepNodes, program: Any) -> Ints:
    """Return [n] `Graph.loose` of the ops of `graph`, which are the nodes of a step in `program` (a flat GraphDef)."""
    label, index = find_outermost_loops(nodes).tolist(), {name: i for i, name in enumerate(graph.names)}
    op = [index[nodes.defs[i if first < 0 else first].name] for i, first in enumerate(label)]
    looseness = np.where(find_shared_ops(program, graph), SHARED, BOUND)
    looseness[_match_types(graph, {t for t in graph.types if t in UNCHAINED or HANDLES.search(t)})] = FREE
    # What is read of a reference is its value at that time: no other op can read it ahead of the reader.
    refs = [op[i] for i, node in enumerate(nodes.defs) if any(nodes.signatures.output_refs(node) or ())]
    looseness[refs] = np.where(looseness[refs] == BOUND, BOUND, BRANCHED)
    under = find_node_conditions(nodes, op, {i for i, first in enumerate(label) if first >= 0})
    looseness[_match_types(graph, CARRIED) | np.array([bool(u) for u in under])] = BRANCHED
    return looseness


def find_shared_ops(program: Any, graph: Graph) -> Bools:
    """Return [n] ops of the step that other fetches of the program (tf.Graph or flat GraphDef) need without its rest.

    A chain in front of such an op would make every program that reads it run a part of the step. Reports that need
    real work of the step stay behind the chains: they are fetched with it (`pesto.tf.enforce.sessions`).
    """
    before: list[list[int]] = [[] for _ in range(graph.ops)]
    for a, b in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True):
        before[b].append(a)
    index = {name: i for i, name in enumerate(graph.names)}
    shared = np.zeros(graph.ops, dtype=np.bool_)
    sizes = np.bincount(graph.tensor_op, weights=graph.tensor_bytes, minlength=graph.ops)
    # Tiny cheap values such as the step number are read by reports and hooks at any time; a chain in front of them
    # would run half the step for a report.
    steady = _find_light_closures(graph, before, _LIGHT - _DRAWN)
    stack = np.flatnonzero(steady & (sizes <= _TINY_BYTES)).tolist()
    graph_def = program.as_graph_def() if hasattr(program, "as_graph_def") else program
    read = {producer(text) for node in graph_def.node if node.name not in index for text in node.input}
    light = _find_light_closures(graph, before, _LIGHT)
    stack += [index[name] for name in read if name in index and light[index[name]]]
    while stack:
        i = stack.pop()
        if not shared[i]:
            shared[i] = True
            stack += before[i]
    return shared


def _match_types(graph: Graph, types: Collection[str]) -> Bools:
    return np.isin(graph.type_of, [k for k, t in enumerate(graph.types) if t in types])


def _find_light_closures(graph: Graph, before: list[list[int]], types: Collection[str]) -> Bools:
    """[n] whether an op and all that it needs are of `types`."""
    light = _match_types(graph, types)
    for i, needed in enumerate(before):
        if light[i] and not all(light[p] for p in needed):
            light[i] = False
    return light
