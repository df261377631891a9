"""The branches of v1 conditionals: when theirs is not taken, ops are dead, and so is all that waits for them."""

from collections.abc import Iterable

import numpy as np

from pesto.errors import InputError
from pesto.files.json import shown
from pesto.tf.enforce.placement import Placement
from pesto.tf.enforce.step_graph import Trace
from solvers.arrays import Bools

MERGES = ("Merge", "RefMerge")
Conditions = frozenset[tuple[int, int]]
"""What must hold for an op to run: (node of a predicate, its outcome) each."""

_SWITCHES = ("Switch", "RefSwitch", "_SwitchN")


def conditional(trace: Trace) -> Bools:
    """[n] ops of the trace that run only under conditions; they have no place in a chain."""
    return np.array([bool(c) for c in conditions(trace)], dtype=np.bool_)


def conditions(trace: Trace) -> list[Conditions]:
    """[n] what each op runs under; nothing for what always runs."""
    nodes, op = trace.nodes, trace.op_of_node
    looped = {i for i, o in enumerate(op) if trace.graph.names[o] in trace.loops}
    of_node: list[Conditions] = [frozenset()] * len(nodes.defs)
    found: list[Conditions] = [frozenset()] * trace.graph.ops
    for i, node in enumerate(nodes.defs):
        data = [of_node[p] | _taken(trace, p, k, looped) for p, k in nodes.inputs[i]]
        if node.op in MERGES and i not in looped:
            data = [frozenset.intersection(*data)]
        # A loop is one op: what its first nodes wait for, the others do.
        found[op[i]] = of_node[i] = found[op[i]].union(*data, *(of_node[c] for c in nodes.controls[i]))
    return found


def _taken(trace: Trace, producer: int, output: int, looped: set[int]) -> Conditions:
    if trace.nodes.defs[producer].op not in _SWITCHES or producer in looped:
        return frozenset()
    return frozenset(((trace.nodes.inputs[producer][1][0], output),))


def mended(pairs: Iterable[tuple[int, int]], placement: Placement, trace: Trace) -> list[tuple[int, int]]:
    """The edges `pairs` (before, after), with the Merge behind a branch in place of an op in it.

    An edge out of a branch would kill what always runs. InputError when the plan has the Merge after that.
    """
    pairs = list(pairs)
    under = conditions(trace) if pairs else []
    kept = [(a, b) for a, b in pairs if under[a] <= under[b]]
    for a, b in pairs:
        if not under[a] <= under[b]:
            kept += [(m, b) for m in _behind(a, b, placement, under)]
    return kept


def _behind(a: int, b: int, placement: Placement, under: list[Conditions]) -> list[int]:
    """The first ops after `a` that run whenever `b` does."""
    graph, rank = placement.graph, placement.rank
    found: set[int] = set()
    seen, stack = {a}, [a]
    while stack:
        for c in graph.edge_dst[graph.edge_src == stack.pop()].tolist():
            if c not in seen and c != b:
                seen.add(c)
                (found.add if under[c] <= under[b] else stack.append)(c)
    if not found or max(rank[m] for m in found) > rank[b]:
        raise InputError(
            f"op {shown(graph.names[b])} uses a variable that {shown(graph.names[a])} updates in a branch, and nothing "
            "in the graph orders them - make it wait for the tf.cond, by tf.control_dependencies"
        )
    return sorted(found)
