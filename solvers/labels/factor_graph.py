"""The form that methods work on: a table an edge, forbidden as a large number, without labels that nothing allows."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, offsets
from solvers.compiled.dag import adjacency
from solvers.compiled.kernels import routine, subroutine
from solvers.labels.labelling import FORBIDDEN, Labelling

NEVER = 2**60
"""The cost of what is forbidden; what is not costs less than half of it."""


class FactorGraph(NamedTuple):
    """Variables with costs of labels, and edges with a table each; costs are whole numbers from 0 to NEVER."""

    first: Ints
    """[n + 1] where each variable's labels begin."""
    cost: Ints
    """[first[n]] cost of each label."""
    a: Ints
    """[m] variable of the rows."""
    b: Ints
    """[m] variable of the columns."""
    begin: Ints
    """[m + 1] where each edge's table begins."""
    table: Ints
    """[begin[m]] cost of each pair of labels, row after row."""


def net_of(problem: Labelling) -> FactorGraph:
    """Return the problem, with a table for each edge."""
    lengths = np.diff(problem.begin)[problem.table]
    begin = offsets(lengths)
    pair = np.repeat(problem.begin[problem.table] - begin[:-1], lengths) + np.arange(begin[-1])
    return FactorGraph(
        first=np.array(problem.first), cost=_large(problem.unary), a=np.array(problem.a), b=np.array(problem.b),
        begin=begin, table=_large(problem.costs[pair]),
    )  # fmt: skip


def _large(costs: Ints) -> Ints:
    return np.where(costs == FORBIDDEN, NEVER, costs)


def incidence(net: FactorGraph) -> tuple[Ints, Ints]:
    """Return edges of each variable, as compressed rows: (offset[n + 1], edge[2 m]), in order of edges."""
    ends = np.stack([net.a, net.b], axis=1).reshape(-1)
    offset, at = adjacency(len(net.first) - 1, ends)
    return offset, at // 2


def costs_beside(net: FactorGraph, labels: Ints, v: int, edges: Ints) -> Ints:
    """Return the cost of each label of a variable, given the labels of its labelled neighbours."""
    cost = net.cost[net.first[v] : net.first[v + 1]].copy()
    for e in edges.tolist():
        a, b = int(net.a[e]), int(net.b[e])
        table = net.table[net.begin[e] : net.begin[e + 1]].reshape(-1, net.first[b + 1] - net.first[b])
        other = int(labels[a + b - v])
        if other >= 0:
            cost = np.minimum(NEVER, cost + (table[:, other] if v == a else table[other]))
    return cost


def tidy(net: FactorGraph) -> tuple[FactorGraph, Ints] | None:
    """Leave out labels without a partner in some edge: the net, and [labels] which each was; None: nothing is allowed.

    (Arc consistency: Mackworth 1977, AC-3.)
    """
    offset, edge = incidence(net)
    keep = net.cost < NEVER
    if not _consistent(net, offset, edge, keep):
        return None
    if keep.all():
        return net, np.arange(len(keep))
    sizes = np.add.reduceat(keep, net.first[:-1], dtype=np.int64) if len(net.first) > 1 else np.zeros(0, np.int64)
    begin = offsets(sizes[net.a] * sizes[net.b])
    keeping = FactorGraph(offsets(sizes), net.cost[keep], net.a, net.b, begin, _kept_pairs(net, keep, int(begin[-1])))
    return keeping, np.flatnonzero(keep)


def runs(begin: Ints, which: Ints) -> tuple[Ints, Ints]:
    """Return the places of some runs one after the other, and where each begins among them."""
    lengths = np.diff(begin)[which]
    first = offsets(lengths)
    return np.repeat(begin[which] - first[:-1], lengths) + np.arange(first[-1]), first


@routine
def _kept_pairs(net: FactorGraph, keep: Bools, total: int) -> Ints:
    table = np.empty(total, dtype=np.int64)
    at = 0
    for e in range(len(net.a)):
        pair = net.begin[e]
        for i in range(net.first[net.a[e]], net.first[net.a[e] + 1]):
            for j in range(net.first[net.b[e]], net.first[net.b[e] + 1]):
                if keep[i] and keep[j]:
                    table[at] = net.table[pair]
                    at += 1
                pair += 1
    return table


@routine
def _consistent(net: FactorGraph, offset: Ints, edge: Ints, keep: Bools) -> bool:
    variables = len(net.first) - 1
    queue = np.empty(variables + 1, dtype=np.int64)
    waits = np.ones(variables, dtype=np.bool_)
    queue[:variables] = np.arange(variables)
    head, tail = 0, variables
    while head != tail:
        v = queue[head]
        head = (head + 1) % len(queue)
        waits[v] = False
        if not keep[net.first[v] : net.first[v + 1]].any():
            return False
        for k in range(offset[v], offset[v + 1]):
            if _revise(net, edge[k], v, keep):
                other = net.a[edge[k]] + net.b[edge[k]] - v
                if not waits[other]:
                    waits[other] = True
                    queue[tail] = other
                    tail = (tail + 1) % len(queue)
    return True


@subroutine
def _revise(net: FactorGraph, e: int, v: int, keep: Bools) -> bool:
    """Drop labels at the other end of the edge without a partner among those of v; whether there were any."""
    rows = net.b[e] == v
    other = net.a[e] if rows else net.b[e]
    columns = net.first[net.b[e] + 1] - net.first[net.b[e]]
    step, stride = (columns, 1) if rows else (1, columns)
    dropped = False
    for i in range(net.first[other + 1] - net.first[other]):
        if not keep[net.first[other] + i]:
            continue
        partner = False
        for j in range(net.first[v + 1] - net.first[v]):
            if keep[net.first[v] + j] and net.table[net.begin[e] + i * step + j * stride] < NEVER:
                partner = True
                break
        if not partner:
            keep[net.first[other] + i] = False
            dropped = True
    return dropped
