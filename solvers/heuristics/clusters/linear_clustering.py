"""Linear clustering with Guided Load Balancing and EST First, the rival of ParDNN (its thesis, section 6.4.2).

Linear clustering (Kim & Browne 1988) takes the longest path of the graph, communication included, as a cluster,
removes it, and repeats until nothing is left. Guided Load Balancing (Radulescu & van Gemund 1998) then maps the
clusters, in the order of the start times that the clustering implies, each to the least loaded processor; EST First
(Wang & Sinnen 2018) orders the tasks. Costs are means over devices and pairs of processors. Of equal paths the one
that begins, then goes on, with the task that is first in topological order is taken.

The algorithm recomputes all levels for each path: O(n (n + e)). Here the same paths are found by need. A longest path
begins at a task of greatest bottom level; a removal can only lower levels, and only of what has its level from a task
that is gone, so that these are marked, each once, and a marked level, which is then an upper bound, is recomputed
only when it is the greatest of all, or of the successors of one that is, which a heap a task finds. On training steps
and on graphs of bounded width this is near-linear; where width grows with depth, as in a square grid, each of the
O(sqrt n) long paths may lower all levels, and O(n sqrt n) remains.

Deviations, for what the sources do not have. A unit (tasks that must share a location) belongs to the first path that
holds a task of its. A unit with one location stands alone, and is mapped before all else. A path is cut where no
location takes both sides.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints, rank_of
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import routine, subroutine
from solvers.heuristics.clusters.est_first import est_first
from solvers.heuristics.clusters.load_balance import glb
from solvers.heuristics.devices_of_location import devices_at, elements
from solvers.heuristics.lists.means import MeanCostGraph, dag_of, edge_ticks, mean_ticks, mean_transfers
from solvers.heuristics.methods import Placement
from solvers.problem import Problem
from solvers.result import Options
from solvers.structure.units import Units, placeable_units


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Paths, to processors by load, in order of earliest start."""
    units = placeable_units(problem)
    g = dag_of(problem, mean_ticks(problem), edge_ticks(problem, mean_transfers(problem, elements(units))))
    piece, allowed = _pieces_of(g, units, clusters_of_paths(g))
    of_task = piece[units.unit]
    load = np.bincount(of_task[g.order], weights=g.took, minlength=len(allowed)).astype(np.int64)
    start = np.full(len(allowed), np.iinfo(np.int64).max)
    np.minimum.at(start, of_task[g.order], _starts(g, of_task[g.order]))
    at = glb(load, allowed, order=np.argsort(start, kind="stable"))
    device = devices_at(problem, at[of_task])
    return Placement(device=device, rank=rank_of(est_first(problem, device)))


def clusters_of_paths(g: MeanCostGraph) -> Ints:
    """[n] the number of the path to which each place of `g` belongs, 0 for the longest, in the order of removal."""
    return _clusters(g)


def _pieces_of(g: MeanCostGraph, units: Units, cluster: Ints) -> tuple[Ints, Bools]:
    """The units of each path in pieces that some location takes: [u] piece of each unit, [pieces, l] where it can be.

    cluster: [n], by place. Pieces are numbered by path, then along it.
    """
    n, unit = len(cluster), units.unit[g.order]
    home, first = np.full(len(units.memory), n), np.full(len(units.memory), n)
    np.minimum.at(home, unit, cluster)
    at_home = cluster == home[unit]
    np.minimum.at(first, unit[at_home], np.flatnonzero(at_home))
    piece, allowed = _cut(np.lexsort((first, home)), home, units.allowed)
    return ints(piece), allowed


@routine
def _cut(order: Ints, home: Ints, allowed: Bools) -> tuple[Ints, Bools]:
    """Pieces of units of the same home, in `order`, whose allowed locations have one in common."""
    piece, can = np.empty(len(order), dtype=np.int64), np.empty_like(allowed)
    last, path, pieces = -1, -1, 0
    for unit in order:
        if home[unit] != path:
            last, path = -1, home[unit]
        forced = np.count_nonzero(allowed[unit]) <= 1
        if forced or last < 0 or not np.any(can[last] & allowed[unit]):
            piece[unit] = pieces
            can[pieces] = allowed[unit]
            last = last if forced else pieces
            pieces += 1
        else:
            piece[unit] = last
            can[last] &= allowed[unit]
    return piece, can[:pieces]


@routine
def _starts(g: MeanCostGraph, piece: Ints) -> Ints:
    """[n] top level of each place when what stays within a piece, [n], is free."""
    start = np.zeros(len(piece), dtype=np.int64)
    for at in range(len(piece)):
        for k in range(g.entry[at], g.entry[at + 1]):
            tail = g.tail[k]
            ticks = 0 if piece[tail] == piece[at] else g.cost[k]
            start[at] = max(start[at], start[tail] + g.took[tail] + ticks)
    return start


class _BottomLevels(NamedTuple):
    """The bottom levels of what is left."""

    cluster: Ints
    """[n] path of each place, -1 while it is left."""
    level: Ints
    """[n] bottom level over what is left; where it is stale, one that it had before, and so no less."""
    after: Ints
    """[n] successor that the level comes from, the first of equals, -1 for none."""
    stale: Bools
    """[n] whether something further down that the level came from is gone."""
    key: Ints
    """[e] by place, a heap of its edges by what each leads to, negated: ticks and a level, or an earlier one."""
    edge: Ints
    """[e] the edge of each entry."""
    size: Ints
    """[n] entries of each heap: edges to what may be left."""
    stack: Ints


@routine
def _clusters(g: MeanCostGraph) -> Ints:
    n = len(g.took)
    left = _nothing_gone(g)
    key, item, size, path = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), 0, 0
    for at in range(n - 1, -1, -1):
        for k in range(g.offset[at], g.offset[at + 1]):
            _lead(g, left, at, k)
        _refresh(g, left, at)
        size = push(key, item, size, (-left.level[at], at))
    # Levels only fall, so an entry that is out of date comes too early, and is put back then.
    while size > 0:
        head, found = item[0], -key[0]
        size = drop(key, item, size)
        if left.cluster[head] >= 0:
            continue
        _refresh(g, left, head)
        if found != left.level[head]:
            size = push(key, item, size, (-left.level[head], head))
            continue
        at = head
        while at >= 0:
            left.cluster[at] = path
            at = left.after[at]
        at = head
        while at >= 0:
            _spoil(g, left, at)
            at = left.after[at]
        path += 1
    return left.cluster


@subroutine
def _nothing_gone(g: MeanCostGraph) -> _BottomLevels:
    n, e = len(g.took), len(g.head)
    return _BottomLevels(
        np.full(n, -1, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.full(n, -1, dtype=np.int64),
        np.ones(n, dtype=np.bool_),
        np.empty(e, dtype=np.int64),
        np.empty(e, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
    )


@subroutine
def _lead(g: MeanCostGraph, left: _BottomLevels, at: int, k: int) -> None:
    """Enter an edge of a place with what it leads to by the level that is known."""
    mine = slice(g.offset[at], g.offset[at + 1])
    entry = (-(g.ticks[k] + left.level[g.head[k]]), k)
    left.size[at] = push(left.key[mine], left.edge[mine], left.size[at], entry)


@subroutine
def _best(g: MeanCostGraph, left: _BottomLevels, at: int) -> int:
    """The edge of a place that leads to the most by the levels that are known, the first of equals; -1 for none.

    Levels only fall: an entry that is out of date comes too early, and is entered anew then.
    """
    mine = slice(g.offset[at], g.offset[at + 1])
    while left.size[at] > 0:
        k, found = left.edge[g.offset[at]], -left.key[g.offset[at]]
        if left.cluster[g.head[k]] < 0 and found == g.ticks[k] + left.level[g.head[k]]:
            return int(k)
        left.size[at] = drop(left.key[mine], left.edge[mine], left.size[at])
        if left.cluster[g.head[k]] < 0:
            _lead(g, left, at, k)
    return -1


@subroutine
def _refresh(g: MeanCostGraph, left: _BottomLevels, place: int) -> None:
    """Make the level of a place exact: a successor counts when its own level, if it is the best, is exact."""
    size, left.stack[0] = 1 if left.stale[place] else 0, place
    while size > 0:
        at = left.stack[size - 1]
        k = _best(g, left, at)
        best = g.head[k] if k >= 0 else -1
        if best >= 0 and left.stale[best]:
            left.stack[size] = best
            size += 1
        else:
            most = g.ticks[k] + left.level[best] if k >= 0 else 0
            left.level[at], left.after[at], left.stale[at] = g.took[at] + most, best, False
            size -= 1


@subroutine
def _spoil(g: MeanCostGraph, left: _BottomLevels, place: int) -> None:
    """Mark as stale what is left and has its level from a place that is gone."""
    size, left.stack[0] = 1, place
    while size > 0:
        at = left.stack[size - 1]
        size -= 1
        for k in range(g.entry[at], g.entry[at + 1]):
            tail = g.tail[k]
            if left.cluster[tail] < 0 and left.after[tail] == at and not left.stale[tail]:
                left.stale[tail] = True
                left.stack[size] = tail
                size += 1
