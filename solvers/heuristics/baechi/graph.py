"""Baechi's operator graph after its optimisations (Jeon et al. 2020; `grouper.py`, `placer_lib.py`).

Every pair of operators that an edge joins has one cost, the sum of its tensors (the payloads), as in the source's
operator graph; whether a tensor is there already for another reader does not count, nor who else uses a link.

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
from solvers.compiled.dag import connected, root
from solvers.compiled.kernels import routine
from solvers.heuristics.devices_of_location import elements
from solvers.problem import FORBIDDEN, Problem
from solvers.structure.units import Units, distinct, merged, placeable_units


class OperatorGraph(NamedTuple):
    """k operators on the problem's m devices at l locations, in u units."""

    duration: Ints
    """[k, m] ticks, FORBIDDEN where an operator cannot run."""
    src: Ints
    """[e] tails; each pair of operators is joined once."""
    dst: Ints
    comm: Ints
    """[e, c] ticks from one location to another, by class of the path; 0 for precedence alone."""
    unit: Ints
    """[k] the unit of each operator: units share a location."""
    allowed: Bools
    """[u, l] where each unit can be."""
    memory: Ints
    """[u] bytes of each unit."""
    capacity: Ints
    location: Ints
    path_class: Ints


class OperatorWeights(NamedTuple):
    """Durations and communication costs that the linear program of SCT reads."""

    took: Ints
    """[k] ticks of each operator."""
    comm: Ints
    """[e] ticks of each edge when its ends are apart."""
    open: Bools
    """[e] whether the ends may be together or apart; otherwise `comm` always counts, where not 0."""


def graph_of(problem: Problem, node: Ints, units: Units) -> OperatorGraph:
    """Return the graph of the operators that `node`, [n] values 0..k-1, makes of the tasks. O(e log e + n m).

    The tasks of an operator have the same allowed devices and one unit, and the operators form no cycle.
    """
    count = int(node.max(initial=-1)) + 1
    unit = np.zeros(count, dtype=np.int64)
    unit[node] = units.unit
    total = np.zeros((count, problem.devices), dtype=np.int64)
    np.add.at(total, node, np.where(problem.allowed, problem.duration, 0))
    open_ = np.zeros((count, problem.devices), dtype=np.bool_)
    open_[node] = problem.allowed
    src, dst = node[problem.src], node[problem.dst]
    leaves = src != dst
    src, dst, payload = src[leaves], dst[leaves], problem.payload[leaves]
    pair, which = np.unique(src * count + dst, return_inverse=True)
    comm = np.zeros((len(pair), problem.transfer.shape[1]), dtype=np.int64)
    # A tensor that several tasks of an operator read crosses once.
    carried = np.unique((payload * len(pair) + which)[payload >= 0])
    np.add.at(comm, carried % max(1, len(pair)), problem.transfer[carried // max(1, len(pair))])
    src, dst = np.divmod(pair, max(1, count))
    return OperatorGraph(
        duration=np.where(open_, total, FORBIDDEN), src=src, dst=dst, comm=comm, unit=unit,
        allowed=np.array(units.allowed), memory=np.array(units.memory), capacity=np.array(problem.capacity),
        location=np.array(problem.location), path_class=np.array(problem.path_class),
    )  # fmt: skip


_FEW = 64
"""Fusion ends with a round that fuses less than one in so many operators."""


def weights_of(g: OperatorGraph) -> OperatorWeights:
    """Return least durations and mean communications. O(k m + e (c + l))."""
    took = np.where(g.duration >= 0, g.duration, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
    tail, head = g.unit[g.src], g.unit[g.dst]
    among = elements(Units(unit=g.unit, allowed=g.allowed, memory=g.memory))
    if len(among) < 2:
        among = np.arange(len(g.capacity))
    pairs = g.path_class[np.ix_(among, among)][~np.eye(len(among), dtype=np.bool_)]
    # [e] ticks of each edge between two locations of the choice, on average; 0 where there is one location.
    share = np.bincount(pairs, minlength=g.comm.shape[1]) / max(1, len(pairs))
    comm = np.where(tail == head, 0, np.rint(g.comm @ share).astype(np.int64))
    return OperatorWeights(took, comm, (comm > 0) & (g.allowed[tail] & g.allowed[head]).any(axis=1))


class FusedProblem(NamedTuple):
    """A problem after both optimisations."""

    graph: OperatorGraph
    node: Ints
    """[n] the operator of each task."""


def fused(problem: Problem) -> FusedProblem:
    """Return the operators after co-placement and fusion. O((e log e + n (m + l)) log n), in practice a few rounds."""
    units = placeable_units(problem)
    kind = distinct(problem.allowed)[1]
    together = merged(problem, co_placed(problem, units, kind))
    node = fuse(problem, together.unit, kind)
    return FusedProblem(graph_of(problem, node, together), node)


def co_placed(problem: Problem, units: Units, kind: Ints) -> Ints:
    """Return [n] a label for each task, equal for tasks of a unit, and of a task and its only reader."""
    # [n] the only successor of each task, -1 where there are none or several, or none that a payload goes to.
    n = problem.tasks
    least, last = np.full(n, n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    np.minimum.at(least, problem.src, problem.dst)
    np.maximum.at(last, problem.src, problem.dst)
    reads = np.zeros(n, dtype=np.bool_)
    reads[problem.src[problem.payload >= 0]] = True
    reader = np.where((least == last) & reads, last, -1)
    free = (problem.group < 0) | (problem.group[reader] < 0)
    join = np.flatnonzero((reader >= 0) & (kind == kind[reader]) & free)
    capacity = np.array(problem.capacity, dtype=np.int64)
    return _joined((join, reader[join]), units.unit, np.array(units.allowed), np.array(units.memory), capacity)


def fuse(problem: Problem, unit: Ints, kind: Ints) -> Ints:
    """Return [n] the operator of each task, 0..k-1 by first task: within a unit and a kind, and without a cycle.

    When all tails of the edges have one successor each, every path from a tail begins with its edge: none returns to
    it, whatever else is fused. So too for heads with one predecessor.
    """
    node, size = np.arange(problem.tasks), problem.tasks
    inner = (unit[problem.src] == unit[problem.dst]) & (kind[problem.src] == kind[problem.dst])
    by_tail, idle = True, 0
    while size and idle < 2:
        # Distinct edges between operators; one is within a unit when any of its fine ones is (then all are).
        src, dst = node[problem.src], node[problem.dst]
        out = src != dst
        pair, example = np.unique((src * size + dst)[out], return_index=True)
        src, dst = np.divmod(pair, max(1, size))
        within, one = inner[out][example], src if by_tail else dst
        chosen = within & (np.bincount(one, minlength=size)[one] == 1)
        label = connected(size, src[chosen], dst[chosen])
        _, first = np.unique(label, return_inverse=True)
        node = first[node]
        left = int(first.max()) + 1
        idle = idle + 1 if (size - left) * _FEW < size else 0
        by_tail, size = not by_tail, left
    return ints(node)


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
