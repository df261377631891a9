"""What must stay out of the chains of a v1 graph: what init, save and report ops start from."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from pesto.tf.enforce.step_graph import Trace
from pesto.tf.nodes.needed_nodes import producer
from solvers.arrays import Bools

_LIGHT = frozenset((
    "Cast", "Const", "Enter", "ExpandDims", "Fill", "Identity", "NoOp", "Pack", "Placeholder", "PlaceholderV2",
    "PlaceholderWithDefault", "RandomUniform", "ReadVariableOp", "Reshape", "Shape", "StridedSlice", "VarHandleOp",
    "Variable", "VariableV2",
))  # fmt: skip
"""Ops that compute nothing worth an order."""
_TINY_BYTES = 64
"""Steps, rates and shapes: what programs fetch by itself, such as the number of the step."""


def apart(program: Any, trace: Trace) -> Bools:
    """[n] ops of the trace that other fetches of the program (tf.Graph or flat GraphDef) need without its rest.

    A chain in front of such an op would make every program that reads it run a part of the step. Reports that need
    real work of the step stay behind the chains: they are fetched with the step (see `pesto.tf.enforce.fetch_closure`).
    """
    light = _light_closures(trace)
    index = {name: i for i, name in enumerate(trace.graph.names)}
    found = np.zeros(trace.graph.ops, dtype=np.bool_)
    sizes = np.bincount(trace.graph.tensor_op, weights=trace.graph.tensor_bytes, minlength=trace.graph.ops)
    stack = np.flatnonzero(light & (sizes <= _TINY_BYTES)).tolist()
    stack += [i for i in _read_outside(program, index) if light[i]]
    before = _predecessors(trace)
    while stack:
        i = stack.pop()
        if not found[i]:
            found[i] = True
            stack += before[i]
    return found


def _light_closures(trace: Trace) -> Bools:
    """[n] whether an op and all that it needs are light."""
    g = trace.graph
    light = np.isin(g.type_of, [k for k, t in enumerate(g.types) if t in _LIGHT])
    for i, before in enumerate(_predecessors(trace)):
        if light[i] and not all(light[p] for p in before):
            light[i] = False
    return light


def _predecessors(trace: Trace) -> list[list[int]]:
    before: list[list[int]] = [[] for _ in range(trace.graph.ops)]
    for a, b in zip(trace.graph.edge_src.tolist(), trace.graph.edge_dst.tolist(), strict=True):
        before[b].append(a)
    return before


def _read_outside(program: Any, index: Mapping[str, int]) -> Collection[int]:
    """Ops of the step that ops outside of it read or wait for."""
    graph_def = program.as_graph_def() if hasattr(program, "as_graph_def") else program
    read = {producer(text) for node in graph_def.node if node.name not in index for text in node.input}
    return {index[name] for name in read if name in index}
