"""Baechi's graph optimisations (Jeon et al. 2020; `grouper.py`, `placer_lib.py`): co-placement and operator fusion.

*Co-placement*: colocation groups share a device, and so do an operator and its only reader. *Fusion*: co-placed
operators that an edge joins become one when that cannot make a cycle: the tail has no other successor, or the head no
other predecessor (the released code's rule; two operators with a second path between them break it).

Deviations. Only operators with the same allowed devices are co-placed by reading, and only while all of them fit one
location: the source knows one kind of device and fails where a group fits none. Nor is an operator of a colocation
group co-placed with a reader in another: in a whole training step, which the source does not place (see below), each
update of a weight is the only reader of its own read of the step's count, and all weights would be one unit. An edge of
precedence alone, which costs nothing, co-places nothing (`ignore_control_edges` of the released code). The released
code tests each edge once, in the order of a queue; here all edges that pass are fused at once, tails and heads in turn,
until few pass: the result does not depend on an order. *Forward-operator-based placement* needs to know of which
operator another is the gradient; a problem says so only where both are in a group, which follows the first placed.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints
from solvers.compiled.dag import root
from solvers.compiled.kernels import routine
from solvers.heuristics.baechi.graph import OperatorGraph, graph_of
from solvers.problem import Problem
from solvers.structure.units import Units, distinct, merged, placeable_units

_FEW = 64
"""Fusion ends with a round that fuses less than one in so many operators."""


class FusedProblem(NamedTuple):
    """A problem after both optimisations."""

    graph: OperatorGraph
    node: Ints
    """[n] the operator of each task."""


def fused(problem: Problem) -> FusedProblem:
    """Co-place, then fuse. O((e log e + n (m + l)) log n), in practice a few rounds."""
    units = placeable_units(problem)
    kind = distinct(problem.allowed)[1]
    together = merged(problem, co_placed(problem, units, kind))
    node = fuse(problem, together.unit, kind)
    return FusedProblem(graph_of(problem, node, together), node)


def co_placed(problem: Problem, units: Units, kind: Ints) -> Ints:
    """[n] a label for each task, equal for tasks of a unit, and of a task and its only reader."""
    reader = _only_readers(problem)
    free = (problem.group < 0) | (problem.group[reader] < 0)
    join = np.flatnonzero((reader >= 0) & (kind == kind[reader]) & free)
    most = np.array(problem.capacity, dtype=np.int64)
    return _joined((join, reader[join]), units.unit, np.array(units.allowed), np.array(units.memory), most)


def fuse(problem: Problem, unit: Ints, kind: Ints) -> Ints:
    """[n] the operator of each task, 0..k-1 by first task; operators lie within units and kinds, and form no cycle.

    When all tails of the edges have one successor each, every path from a tail begins with its edge: none returns to
    it, whatever else is fused. So too for heads with one predecessor.
    """
    node, size = np.arange(problem.tasks), problem.tasks
    inner = (unit[problem.src] == unit[problem.dst]) & (kind[problem.src] == kind[problem.dst])
    by_tail, idle = True, 0
    while size and idle < 2:
        src, dst, within = _quotient(node, (problem.src, problem.dst, inner), size)
        one = src if by_tail else dst
        chosen = within & (np.bincount(one, minlength=size)[one] == 1)
        label = _components(size, src[chosen], dst[chosen])
        _, first = np.unique(label, return_inverse=True)
        node = first[node]
        left = int(first.max()) + 1
        idle = idle + 1 if (size - left) * _FEW < size else 0
        by_tail, size = not by_tail, left
    return ints(node)


def _only_readers(problem: Problem) -> Ints:
    """[n] the only successor of each task, -1 where there are none or several, or none that a payload goes to."""
    n = problem.tasks
    least = np.full(n, n, dtype=np.int64)
    most = np.full(n, -1, dtype=np.int64)
    np.minimum.at(least, problem.src, problem.dst)
    np.maximum.at(most, problem.src, problem.dst)
    reads = np.zeros(n, dtype=np.bool_)
    reads[problem.src[problem.payload >= 0]] = True
    return np.where((least == most) & reads, most, -1)


def _quotient(node: Ints, edges: tuple[Ints, Ints, Bools], size: int) -> tuple[Ints, Ints, Bools]:
    """Distinct edges between operators; an edge is within a unit when any of its fine ones is (then all are)."""
    src, dst, inner = node[edges[0]], node[edges[1]], edges[2]
    out = src != dst
    pair, example = np.unique((src * size + dst)[out], return_index=True)
    tail, head = np.divmod(pair, max(1, size))
    return tail, head, inner[out][example]


@routine
def _joined(joins: tuple[Ints, Ints], unit: Ints, allowed: Bools, memory: Ints, capacity: Ints) -> Ints:
    """Union the units of both ends of each join, in order, where a location can hold the result."""
    parent = np.arange(len(memory))
    for k in range(len(joins[0])):
        a, b = root(parent, unit[joins[0][k]]), root(parent, unit[joins[1][k]])
        fits = False
        for there in range(len(capacity)):
            both = allowed[a, there] and allowed[b, there]
            fits = fits or (both and memory[a] + memory[b] <= capacity[there])
        if a == b or not fits:
            continue
        low, high = min(a, b), max(a, b)
        parent[high] = low
        memory[low] += memory[high]
        for there in range(len(capacity)):
            allowed[low, there] = allowed[low, there] and allowed[high, there]
    label = np.empty(len(unit), dtype=np.int64)
    for task in range(len(unit)):
        label[task] = root(parent, unit[task])
    return label


@routine
def _components(size: int, one: Ints, other: Ints) -> Ints:
    """[size] the least member of the component of each."""
    parent = np.arange(size)
    for k in range(len(one)):
        a, b = root(parent, one[k]), root(parent, other[k])
        parent[max(a, b)] = min(a, b)
    for at in range(size):
        parent[at] = root(parent, at)
    return parent
