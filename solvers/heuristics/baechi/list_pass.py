"""The compiled list scheduler of m-ETF and m-SCT: an event loop that starts an operator wherever one can start now.

An operator is offered to a device as soon as all its predecessors have finished, from the tick on at which all its
inputs can be there; transfers take their time and wait for nothing. Whenever a device is idle and operators can start
on it, the one that is first in a given order does; of several such devices the first. The first operator of a unit
that starts decides where the unit is, and takes the memory of all of it; pairs of an operator and a device whose
location has no room for the unit, or is not the unit's, are dropped.
"""

import numpy as np

from solvers.arrays import Ints
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import inlined, routine, subkernel
from solvers.heuristics.baechi.graph import OperatorGraph
from solvers.heuristics.baechi.list_state import (
    NONE,
    DeviceClock,
    EdgeRows,
    ListResult,
    ListRules,
    ReadyLanes,
    clock_of,
    fresh,
    lanes_of,
    rows_of,
)


def schedule(g: OperatorGraph, asked: ListRules) -> ListResult:
    """Run until nothing more can start; operators without a device have found no room.

    Units with one location are there from the start. O((k m + e l) log k).
    """
    k, m = g.duration.shape
    favourites = bool((asked.child >= 0).any())
    task = np.empty(k, dtype=np.int64)
    task[asked.place] = np.arange(k)
    r = fresh(g)
    _run(g, asked, rows_of(g, k), (r, lanes_of(2 * m if favourites else m, k), clock_of(g, k, favourites)), task)
    return r


@routine
def _run(
    g: OperatorGraph, asked: ListRules, rows: EdgeRows, work: tuple[ListResult, ReadyLanes, DeviceClock], task: Ints
) -> None:
    r, queue, clock = work
    ready = np.zeros(len(g.capacity), dtype=np.int64)
    for i in task:
        if r.waiting[i] == 0:
            _offer(g, rows, work, (i, ready))
    now = int(np.int64(0))
    while True:
        while clock.size[0] > 0 and clock.time[0] == now:
            d = clock.device[0]
            clock.size[0] = drop(clock.time, clock.device, clock.size[0])
            i = clock.busy[d]
            if i < 0 or r.finish[i] > now:
                continue  # the end of a wait
            clock.busy[d], clock.last[d] = NONE, i
            for edge in range(rows.out[i], rows.out[i + 1]):
                j = rows.head[edge]
                r.waiting[j] -= 1
                if r.waiting[j] == 0:
                    _offer(g, rows, work, (j, ready))
        _admit(queue, clock, asked.place, now)
        while _start(g, asked, work, task, now):
            pass
        now = _next(queue, clock)
        if now < 0:
            return


@subkernel
def _offer(
    g: OperatorGraph, rows: EdgeRows, work: tuple[ListResult, ReadyLanes, DeviceClock], what: tuple[int, Ints]
) -> None:
    """Queue an operator whose predecessors have finished at the devices where it may be."""
    r, queue, clock = work
    i, ready = what
    ready[:] = 0
    for edge in range(rows.into[i], rows.into[i + 1]):
        tail = rows.tail[edge]
        here = g.location[r.device[tail]]
        for there in range(len(ready)):
            ticks = r.finish[tail]
            if here != there:
                ticks += rows.comm[edge, g.path_class[here, there]]
            ready[there] = max(ready[there], ticks)
    m, decided, latest = len(g.location), r.at[g.unit[i]], np.int64(0)
    for d in range(m):
        there = g.location[d]
        if _possible(g, r, i, d) and (decided < 0 or decided == there):
            latest = max(latest, ready[there])
    for d in range(m):
        there = g.location[d]
        if not _possible(g, r, i, d):
            continue
        queue.size[d, 0] = push(queue.later[d], queue.later_item[d], queue.size[d, 0], (ready[there], i))
        if len(queue.size) > m:
            lane = m + d
            queue.size[lane, 0] = push(queue.later[lane], queue.later_item[lane], queue.size[lane, 0], (latest, i))
    for there in range(clock.ready.shape[1]):
        clock.ready[i, there] = ready[there]


@inlined
def _possible(g: OperatorGraph, r: ListResult, i: int, d: int) -> bool:
    """Return True if an operator that has not started can run on a device: kind, unit, room."""
    unit, there = g.unit[i], g.location[d]
    if r.device[i] >= 0 or g.duration[i, d] < 0 or not g.allowed[unit, there]:
        return False
    return r.at[unit] == there or (r.at[unit] < 0 and g.memory[unit] <= r.room[there])


@subkernel
def _admit(queue: ReadyLanes, clock: DeviceClock, place: Ints, now: int) -> None:
    """Move what can start by now to the heaps by place, on the idle devices."""
    m = len(clock.busy)
    for lane in range(len(queue.size)):
        if clock.busy[lane % m] >= 0:
            continue
        while queue.size[lane, 0] > 0 and queue.later[lane, 0] <= now:
            first = place[queue.later_item[lane, 0]]
            queue.size[lane, 0] = drop(queue.later[lane], queue.later_item[lane], queue.size[lane, 0])
            queue.size[lane, 1] = push(queue.now[lane], queue.now[lane], queue.size[lane, 1], (first, first))


@subkernel
def _start(
    g: OperatorGraph, asked: ListRules, work: tuple[ListResult, ReadyLanes, DeviceClock], task: Ints, now: int
) -> bool:
    """Start one operator now; False when none can."""
    r, _, clock = work
    best, at, kept = int(np.int64(-1)), int(np.int64(-1)), False
    for d in range(len(clock.busy)):
        if clock.busy[d] >= 0:
            continue
        first, awake = _candidate(g, asked, work, (task, d), now)
        if first < 0:
            continue
        if best < 0 or first < best or (first == best and asked.patient and kept and not awake):
            best, at, kept = first, d, awake
    if best < 0:
        return False
    i = task[best]
    unit, there = g.unit[i], g.location[at]
    if r.at[unit] < 0:
        r.at[unit] = there
        r.room[there] -= g.memory[unit]
    r.device[i], r.start[i], r.finish[i] = at, now, now + g.duration[i, at]
    clock.busy[at] = i
    clock.size[0] = push(clock.time, clock.device, clock.size[0], (r.finish[i], at))
    if asked.patient and asked.child[i] >= 0:
        clock.size[0] = push(clock.time, clock.device, clock.size[0], (r.finish[i] + asked.wait[i], at))
    return True


@subkernel
def _candidate(
    g: OperatorGraph,
    asked: ListRules,
    work: tuple[ListResult, ReadyLanes, DeviceClock],
    where: tuple[Ints, int],
    now: int,
) -> tuple[int, bool]:
    """The place in the order of what an idle device would start now (-1: nothing), and whether it is awake.

    An awake device takes urgent operators, or else the favourite child of the operator that it ran last.
    """
    r, queue, clock = work
    task, d = where
    child = asked.child[clock.last[d]] if clock.last[d] >= 0 else NONE
    if child < 0 or not _possible(g, r, child, d) or not _awake(g, asked, work, (child, d), now):
        return _top(g, queue, r, (task, d, d)), False
    urgent = _top(g, queue, r, (task, len(clock.busy) + d, d))
    if urgent < 0 and r.waiting[child] == 0 and clock.ready[child, g.location[d]] <= now:
        return asked.place[child], True
    return urgent, True


@subkernel
def _awake(
    g: OperatorGraph,
    asked: ListRules,
    work: tuple[ListResult, ReadyLanes, DeviceClock],
    what: tuple[int, int],
    now: int,
) -> bool:
    """Return True if an idle device is kept for a favourite child that could run there."""
    r, _, clock = work
    child, d = what
    if asked.patient:
        last = clock.last[d]
        return now < r.finish[last] + asked.wait[last]
    if r.waiting[child] > 0:
        return False
    here = max(now, clock.ready[child, g.location[d]])
    for other in range(len(clock.busy)):
        free = r.finish[clock.busy[other]] if clock.busy[other] >= 0 else now
        if max(free, clock.ready[child, g.location[other]]) < here and _possible(g, r, child, other):
            return False
    return True


@inlined
def _top(g: OperatorGraph, queue: ReadyLanes, r: ListResult, which: tuple[Ints, int, int]) -> int:
    """The first place in a lane of what can still run on the device; the rest before it is dropped."""
    task, lane, d = which
    while queue.size[lane, 1] > 0:
        first = queue.now[lane, 0]
        if _possible(g, r, task[first], d):
            return first
        queue.size[lane, 1] = drop(queue.now[lane], queue.now[lane], queue.size[lane, 1])
    return -1


@subkernel
def _next(queue: ReadyLanes, clock: DeviceClock) -> int:
    """The next tick at which a device may be free or an idle device have more to start; -1 for none."""
    best = -1
    if clock.size[0] > 0:
        best = clock.time[0]
    m = len(clock.busy)
    for lane in range(len(queue.size)):
        if clock.busy[lane % m] < 0 and queue.size[lane, 0] > 0 and (best < 0 or queue.later[lane, 0] < best):
            best = queue.later[lane, 0]
    return best
