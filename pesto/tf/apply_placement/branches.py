"""The branches of v1 conditionals: when theirs is not taken, ops are dead, and so is all that waits for them."""

from collections.abc import Iterable

import numpy as np

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.tf.apply_placement.placement import StepPlacement
from pesto.tf.apply_placement.step_graph import StepTrace
from pesto.tf.nodes.v1_loops import MERGES, Conditions, node_conditions
from solvers.arrays import Bools

__all__ = ["MERGES", "conditional_ops", "op_conditions", "reroute_branch_edges"]


def conditional_ops(trace: StepTrace) -> Bools:
    """[n] ops of the trace that run only under conditions; they have no place in a chain."""
    return np.array([bool(c) for c in op_conditions(trace)], dtype=np.bool_)


def op_conditions(trace: StepTrace) -> list[Conditions]:
    """[n] what each op runs under; nothing for what always runs."""
    op = trace.op_of_node
    return node_conditions(trace.nodes, op, {i for i, o in enumerate(op) if trace.graph.names[o] in trace.loops})


def reroute_branch_edges(
    pairs: Iterable[tuple[int, int]], placement: StepPlacement, trace: StepTrace
) -> list[tuple[int, int]]:
    """The edges `pairs` (before, after), with the Merge behind a branch in place of an op in it.

    An edge out of a branch would kill what always runs. InputError when the plan has the Merge after that.
    """
    # An op in a branch that is not taken is dead, and so is every op that waits for it. An edge out of the branch would
    # kill ops that always run; the Merge behind the branch is alive in both cases.
    pairs = list(pairs)
    under = op_conditions(trace) if pairs else []
    kept = [(a, b) for a, b in pairs if under[a] <= under[b]]
    for a, b in pairs:
        if not under[a] <= under[b]:
            kept += [(m, b) for m in _first_unconditional_after(a, b, placement, under)]
    return kept


def _first_unconditional_after(a: int, b: int, placement: StepPlacement, under: list[Conditions]) -> list[int]:
    """The first ops after `a` that run whenever `b` does."""
    graph, rank = placement.graph, placement.rank
    unconditional: set[int] = set()
    seen, stack = {a}, [a]
    while stack:
        for c in graph.edge_dst[graph.edge_src == stack.pop()].tolist():
            if c not in seen and c != b:
                seen.add(c)
                (unconditional.add if under[c] <= under[b] else stack.append)(c)
    # The plan ranks all Merges behind b, so an edge from one of them would close a cycle with the chain.
    if not unconditional or max(rank[m] for m in unconditional) > rank[b]:
        raise InputError.build(
            f"op {shown(graph.names[b])} uses a variable that {shown(graph.names[a])} updates in a branch, "
            "and nothing "
            "in the graph orders them",
            remedy="make it wait for the tf.cond, by tf.control_dependencies",
        )
    return sorted(unconditional)
