"""Tasks by position in a topological order, and which of them serve as anchors."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Floats, Ints, ints, rank_of
from solvers.bounds.evidence import HEAVIEST
from solvers.bounds.loads import device_weights, device_work
from solvers.bounds.segments import NEVER
from solvers.compiled.dag import adjacency, topological_order
from solvers.compiled.kernels import routine
from solvers.problem import Problem
from solvers.structure.paths import NEVER as NOWHERE
from solvers.structure.paths import LocationPaths

_COUNTED = 2048
"""Tasks, those of most work, that are counted as ancestors and descendants."""
_WEIGHTS = 2
"""Weights of the devices that are used at most: of those that alone bound the makespan by half of the best."""


class PositionGraph(NamedTuple):
    """The tasks of a problem by position, and their edges both ways; of n + 2 entries, start and end are the last."""

    task: Ints
    """[n] task at each position."""
    before_at: Ints
    before: Ints
    """[e] predecessors, by successor from `before_at`."""
    before_near: Ints
    """[e] least ticks between the two at one location, or NEVER."""
    before_far: Ints
    """[e] the same at two."""
    after_at: Ints
    after: Ints
    after_near: Ints
    after_far: Ints
    took: Ints
    """[n + 2] least ticks of each task."""
    mask: Ints
    """[n + 2] a bit for each location where the task can be."""
    unit: Ints
    """[n + 2] tasks of one unit share a location."""


class WeightedLoads(NamedTuple):
    """The tasks of a `PositionGraph`, weighted by speeds of devices."""

    weights: Ints
    """[q, m] weight of a tick on each device, in each of q ways to weigh."""
    work: Ints
    """[q, n] least weighted ticks of the task at each position."""
    total: Ints
    """[q] sum of the weights."""
    most: Ints
    """[q] sum of the weights at the one location where it is greatest."""


def net_of(problem: Problem, paths: LocationPaths) -> PositionGraph:
    """The tasks in topological order. O(n l + e) and for each pair of sets of locations that an edge joins, O(e)."""
    n, able = problem.tasks, paths.units.allowed[paths.units.unit]
    task = topological_order(n, problem.src, problem.dst)
    place = rank_of(task)
    bits = able @ (1 << np.arange(problem.locations))
    near, far = _edge_ticks(problem, bits, paths.units.unit)
    src, dst = place[problem.src], place[problem.dst]
    sides = []
    for at, other in ((dst, src), (src, dst)):
        offset, edge = adjacency(n, at)
        sides.append((offset, other[edge], near[edge], far[edge]))
    everywhere = (1 << problem.locations) - 1
    took = np.append(paths.took.min(axis=1, initial=NOWHERE)[task], [0, 0])
    mask = np.append(bits[task], [everywhere, everywhere]).astype(np.int64)
    return PositionGraph(task, *sides[0], *sides[1], took, mask, np.append(paths.units.unit[task], [-1, -2]))


def _edge_ticks(p: Problem, bits: Ints, unit: Ints) -> tuple[Ints, Ints]:
    """[e] least ticks between the ends of an edge at one location, and at two."""
    one, two = bits[p.src], bits[p.dst]
    near = np.where(one & two > 0, 0, NEVER)
    far = np.full(p.edges, NEVER, dtype=np.int64)
    ticks = p.transfer.T if p.payloads else np.zeros((p.transfer.shape[1], 1), dtype=np.int64)
    joined, which = np.unique(np.stack([one, two]), axis=1, return_inverse=True)
    for k in range(joined.shape[1]):
        here, there = ((joined[side, k] >> np.arange(p.locations)) & 1 > 0 for side in range(2))
        hops = np.outer(here, there) & ~np.eye(p.locations, dtype=np.bool_)
        edge = np.flatnonzero(which.ravel() == k)
        if hops.any():
            least = ticks[np.unique(p.path_class[hops])].min(axis=0)
            far[edge] = np.where(p.payload[edge] < 0, 0, least[p.payload[edge]])
    far[unit[p.src] == unit[p.dst]] = NEVER
    return near, far


def loads_of(problem: Problem, paths: LocationPaths, net: PositionGraph) -> WeightedLoads:
    """The weights of the devices that alone give the best bounds."""
    rows, works = [], []
    for weight in (weight for weight in device_weights(problem, paths) if weight.sum() <= HEAVIEST):
        ticks = np.where(paths.took == NOWHERE, NOWHERE, device_work(problem, weight))
        rows.append(weight)
        works.append(ticks.min(axis=1, initial=NOWHERE)[net.task])
    weights = np.array(rows, dtype=np.int64).reshape(len(rows), problem.devices)
    work = np.array(works, dtype=np.int64).reshape(len(rows), problem.tasks)
    total = weights.sum(axis=1)
    alone = work.sum(axis=1) / np.maximum(total, 1)
    best = np.argsort(-alone, kind="stable")[:_WEIGHTS]
    best = best[alone[best] > alone.max(initial=0) / 2]
    at = np.zeros((len(rows), problem.locations), dtype=np.int64)
    for device, place in enumerate(problem.location.tolist()):
        at[:, place] += weights[:, device]
    return WeightedLoads(
        ints(weights[best]), ints(work[best]), ints(total[best]), ints(at.max(axis=1, initial=0)[best])
    )


def choose(net: PositionGraph, loads: WeightedLoads, paths: LocationPaths, most: int) -> Ints:
    """At most `most` positions: for each step of the longest paths, what most of the work precedes or follows."""
    n = len(net.task)
    head = paths.head.min(axis=1, initial=NOWHERE)[net.task]
    tail = paths.tail.min(axis=1, initial=NOWHERE)[net.task]
    length = head + net.took[:n] + tail
    heavy = np.argsort(-loads.work[0], kind="stable")[:_COUNTED]
    number = np.full(n, -1, dtype=np.int64)
    number[heavy] = np.arange(len(heavy))
    work = loads.work[0][heavy].astype(np.float64)
    related = _reached(net.before_at, net.before, number, work, reverse=False)
    related += _reached(net.after_at, net.after, number, work, reverse=True)
    step = head * most // (int(length.max(initial=0)) + 1)
    # Tasks near a longest path come first, and of these the one that most work precedes or follows: the more work lies
    # between two anchors, the more their distance can be raised.
    slack = length <= 0.9 * length.max(initial=0)
    by = np.lexsort((-related, slack, step))
    return ints(np.sort(by[np.flatnonzero(np.diff(step[by], prepend=-1))]))


@routine
def _reached(offset: Ints, other: Ints, number: Ints, work: Floats, reverse: bool) -> Floats:
    """[n] the work, by number, of what precedes each position; `reverse` with the edges of successors."""
    n, words, one = len(number), (len(work) + 63) // 64, np.uint64(1)
    seen, found = np.zeros((n, words), dtype=np.uint64), np.zeros(n)
    for k in range(n):
        x = n - 1 - k if reverse else k
        for e in range(offset[x], offset[x + 1]):
            for word in range(words):
                seen[x, word] |= seen[other[e], word]
        for word in range(words):
            bits, y = seen[x, word], word * 64
            while bits:
                if bits & one:
                    found[x] += work[y]
                bits >>= one
                y += 1
        if number[x] >= 0:
            seen[x, number[x] >> 6] |= one << np.uint64(number[x] & 63)
            found[x] += work[number[x]] / 2
    return found
