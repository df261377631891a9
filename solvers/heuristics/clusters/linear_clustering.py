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

EST First takes, of all tasks whose predecessors are scheduled, the one that can start earliest; it could start when its
device is free and all that it reads has arrived. Ties: largest bottom level, then least index. Links are without
contention, as in the source.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints, rank_of
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import routine, subroutine
from solvers.heuristics.devices_of_location import devices_at, elements
from solvers.heuristics.lists.list_schedule import MeanCostGraph, dag_of, edge_ticks
from solvers.heuristics.methods import Placement
from solvers.problem import Problem, mean_ticks, mean_transfers
from solvers.result import Options
from solvers.structure.units import placeable_units
from solvers.timing.loop import Prepared
from solvers.timing.replay import bottom_levels, prepare


class _DeviceQueues(NamedTuple):
    """The free tasks of each device, by whether all that they read is there when the device is free."""

    first: Ints
    """[m + 1] where each device's heaps start in the arrays below."""
    now: Ints
    """[n] heaps of tasks that wait for the device alone, by place in `by_level`."""
    soon_time: Ints
    """[n] heaps of tasks that wait for data, by its arrival, then by place in `by_level`."""
    soon: Ints
    nows: Ints
    """[m] length of each device's heap."""
    soons: Ints
    free: Ints
    """[m] when each device is free."""


def est_first(problem: Problem, device: Ints) -> Ints:
    """Return [n] the tasks in EST First order, which is topological; device: [n]. O(n (m + log n) + e log e).

    Each device has one heap of tasks that could start as soon as it is free and one of tasks whose data is on the
    way, so that the next task is found by looking at two heads a device.
    """
    level = bottom_levels(problem, device=device)
    by_level = np.lexsort((np.arange(problem.tasks), -level))
    place = rank_of(by_level)
    return ints(_order(prepare(problem), ints(device), ints(by_level), place))


@routine
def _order(g: Prepared, device: Ints, by_level: Ints, place: Ints) -> Ints:
    n, devices = len(device), g.duration.shape[1]
    first = np.zeros(devices + 1, dtype=np.int64)
    for task in range(n):
        first[device[task] + 1] += 1
    for d in range(devices):
        first[d + 1] += first[d]
    q = _DeviceQueues(
        first, np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64),
        np.zeros(devices, dtype=np.int64), np.zeros(devices, dtype=np.int64), np.zeros(devices, dtype=np.int64),
    )  # fmt: skip
    waiting, ready = g.indegree.copy(), np.zeros(n, dtype=np.int64)
    for task in range(n):
        if waiting[task] == 0:
            _add(q, device[task], int(np.int64(0)), place[task])
    order = np.empty(n, dtype=np.int64)
    for at in range(n):
        task = by_level[_next(q)]
        d = device[task]
        finish = max(q.free[d], ready[task]) + g.duration[task, d]
        q.free[d], order[at] = finish, task
        # What has arrived by the time at which the device is free waits for it alone from now on.
        here = slice(first[d], first[d + 1])
        while q.soons[d] > 0 and q.soon_time[first[d]] <= finish:
            which = q.soon[first[d]]
            q.soons[d] = drop(q.soon_time[here], q.soon[here], q.soons[d])
            q.nows[d] = push(q.now[here], q.now[here], q.nows[d], (which, which))
        for k in range(g.offset[task], g.offset[task + 1]):
            head, payload, there = g.head[k], g.carried[k], g.location[device[g.head[k]]]
            arrival = finish
            if payload >= 0 and there != g.location[d]:
                arrival += g.transfer[payload, g.path_class[g.location[d], there]]
            ready[head] = max(ready[head], arrival)
            waiting[head] -= 1
            if waiting[head] == 0:
                _add(q, device[head], ready[head], place[head])
    return order


@subroutine
def _add(q: _DeviceQueues, d: int, ready: int, place: int) -> None:
    here = slice(q.first[d], q.first[d + 1])
    if ready <= q.free[d]:
        q.nows[d] = push(q.now[here], q.now[here], q.nows[d], (place, place))
    else:
        q.soons[d] = push(q.soon_time[here], q.soon[here], q.soons[d], (ready, place))


@subroutine
def _next(q: _DeviceQueues) -> int:
    """Take the task of least (start, place); return its place."""
    best, start, place = -1, np.int64(0), np.int64(0)
    for d in range(len(q.free)):
        if q.nows[d] > 0:
            when, which = q.free[d], q.now[q.first[d]]
        elif q.soons[d] > 0:
            when, which = q.soon_time[q.first[d]], q.soon[q.first[d]]
        else:
            continue
        if best < 0 or when < start or (when == start and which < place):
            best, start, place = d, when, which
    here = slice(q.first[best], q.first[best + 1])
    if q.nows[best] > 0:
        q.nows[best] = drop(q.now[here], q.now[here], q.nows[best])
    else:
        q.soons[best] = drop(q.soon_time[here], q.soon[here], q.soons[best])
    return int(place)


def glb(load: Ints, allowed: Bools, *, busy: Ints | None = None, order: Ints | None = None) -> Ints:
    """[c] location of each cluster: one cluster after the other, each to the least loaded location that it allows.

    load: [c] ticks of each cluster, or [c, l] where they depend on the location. allowed: [c, l], with at least one
    location a cluster. busy: [l] ticks that are there before. order: [c] the clusters in the order in which they are
    mapped; by falling load unless given, as ParDNN (Qararyah et al. 2020, 4.1.1) does. A location's load is that
    which it has with the cluster, which where all locations are alike is the least loaded one of the source; ties go
    to the first. Deviation: what has no choice is mapped before all else, as its load is where it is whatever the
    others do. O(c (l + log c)).
    """
    ticks = np.broadcast_to(load[:, None] if load.ndim == 1 else load, allowed.shape)
    if order is None:
        most = np.where(allowed, ticks, 0).max(axis=1, initial=0)
        order = np.argsort(-most, kind="stable")
    forced = np.count_nonzero(allowed[order], axis=1) == 1
    order = np.concatenate([order[forced], order[~forced]])
    loads = np.zeros(allowed.shape[1], dtype=np.int64) if busy is None else np.array(busy, dtype=np.int64)
    return _least_loaded(np.ascontiguousarray(ticks), np.ascontiguousarray(allowed), order, loads)


@routine
def _least_loaded(ticks: Ints, allowed: Bools, order: Ints, loads: Ints) -> Ints:
    """Each cluster to the allowed location whose load with it is least; `loads` are added to."""
    at = np.full(len(order), -1, dtype=np.int64)
    for cluster in order:
        best = -1
        for there in range(len(loads)):
            if not allowed[cluster, there]:
                continue
            if best < 0 or loads[there] + ticks[cluster, there] < loads[best] + ticks[cluster, best]:
                best = there
        loads[best] += ticks[cluster, best]
        at[cluster] = best
    return at


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return the paths' devices, by load, and the order of earliest start."""
    units = placeable_units(problem)
    g = dag_of(problem, mean_ticks(problem), edge_ticks(problem, mean_transfers(problem, elements(units))))
    # The units of each path in pieces that some location takes, numbered by path, then along it.
    path, unit = clusters_of_paths(g), units.unit[g.order]
    home, first = np.full((2, len(units.memory)), len(path))
    np.minimum.at(home, unit, path)
    at_home = path == home[unit]
    np.minimum.at(first, unit[at_home], np.flatnonzero(at_home))
    piece, allowed = _cut(np.lexsort((first, home)), home, units.allowed)
    of_task = ints(piece)[units.unit]
    load = np.bincount(of_task[g.order], weights=g.took, minlength=len(allowed)).astype(np.int64)
    start = np.full(len(allowed), np.iinfo(np.int64).max)
    np.minimum.at(start, of_task[g.order], _starts(g, of_task[g.order]))
    at = glb(load, allowed, order=np.argsort(start, kind="stable"))
    device = devices_at(problem, at[of_task])
    return Placement(device=device, rank=rank_of(est_first(problem, device)))


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
def clusters_of_paths(g: MeanCostGraph) -> Ints:
    """Return [n] the number of the path of each place of `g`, 0 for the longest, in the order of removal."""
    n, e = len(g.took), len(g.head)
    left = _BottomLevels(
        np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64), np.full(n, -1, dtype=np.int64),
        np.ones(n, dtype=np.bool_), np.empty(e, dtype=np.int64), np.empty(e, dtype=np.int64),
        np.zeros(n, dtype=np.int64), np.empty(n, dtype=np.int64),
    )  # fmt: skip
    key, item, size, path = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), 0, 0
    for at in range(n - 1, -1, -1):
        for k in range(g.offset[at], g.offset[at + 1]):
            _lead(g, left, at, k)
        _refresh(g, left, at)
        size = push(key, item, size, (-left.level[at], at))
    # Levels only fall, so an entry that is out of date comes too early, and is put back then.
    while size > 0:
        head, known = item[0], -key[0]
        size = drop(key, item, size)
        if left.cluster[head] >= 0:
            continue
        _refresh(g, left, head)
        if known != left.level[head]:
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
        k, known = left.edge[g.offset[at]], -left.key[g.offset[at]]
        if left.cluster[g.head[k]] < 0 and known == g.ticks[k] + left.level[g.head[k]]:
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
