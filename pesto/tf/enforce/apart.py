"""What must stay out of the chains of a v1 graph: what init, save and report ops start from."""

from collections.abc import Collection
from typing import Any

import numpy as np

from pesto.tf.enforce.trace import Trace
from solvers.arrays import Bools

_LIGHT = frozenset((
    "Cast", "Const", "Enter", "ExpandDims", "Fill", "Identity", "NoOp", "Pack", "Placeholder", "PlaceholderV2",
    "PlaceholderWithDefault", "RandomUniform", "ReadVariableOp", "Reshape", "Shape", "StridedSlice", "VarHandleOp",
    "Variable", "VariableV2",
))  # fmt: skip
"""Ops that compute nothing worth an order."""
_STEPS = {"Switch": 1, "RefSwitch": 1, "_SwitchN": 1, "Merge": -1, "RefMerge": -1}
"""How many conditionals deeper than its inputs an op's outputs are."""
_TINY_BYTES = 64
"""Steps, rates and shapes: what programs fetch by itself, such as the number of the step."""


def apart(graph: Any, trace: Trace) -> Bools:
    """[n] ops of the trace that other fetches of its v1 graph need without needing the rest of the step.

    A chain in front of such an op would make every program that reads it run a part of the step. Reports that need
    real work of the step stay behind the chains: they are fetched with the step (see `pesto.tf.enforce.closures`).
    """
    light = _light_closures(trace)
    index = {name: i for i, name in enumerate(trace.graph.names)}
    found = np.zeros(trace.graph.ops, dtype=np.bool_)
    stack = [i for i in np.flatnonzero(light).tolist() if _tiny(trace, i)]
    stack += [i for i in _read_outside(graph, index) if light[i]]
    before = _predecessors(trace)
    while stack:
        i = stack.pop()
        if not found[i]:
            found[i] = True
            stack += before[i]
    return found | conditional(trace)


def conditional(trace: Trace) -> Bools:
    """[n] ops in the branches of v1 conditionals: when theirs is not taken they are dead, and so is all that waits."""
    nodes, index = trace.nodes, {name: i for i, name in enumerate(trace.graph.names)}
    depth = np.zeros(len(nodes.defs), dtype=np.int64)
    found = np.zeros(trace.graph.ops, dtype=np.bool_)
    looped = {name for loop in trace.loops.values() for name in loop.nodes}
    for i, node in enumerate(nodes.defs):
        if node.name in looped:
            continue
        before = [p for p, _ in nodes.inputs[i]] + nodes.controls[i]
        inside = max((int(depth[p]) for p in before), default=0)
        depth[i] = max(0, inside + _STEPS.get(node.op, 0))
        found[index[node.name]] = depth[i] > 0
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


def _tiny(trace: Trace, op: int) -> bool:
    sizes = trace.graph.tensor_bytes[trace.graph.tensor_op == op]
    return int(sizes.sum()) <= _TINY_BYTES


def _read_outside(graph: Any, index: dict[str, int]) -> Collection[int]:
    """Ops of the step that ops outside of it read or wait for."""
    found: set[int] = set()
    for op in graph.get_operations():
        if op.name not in index:
            found.update(index[t.op.name] for t in op.inputs if t.op.name in index)
            found.update(index[c.name] for c in op.control_inputs if c.name in index)
    return found
