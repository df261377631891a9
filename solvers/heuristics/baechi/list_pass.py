"""The compiled list scheduler of m-ETF and m-SCT: an event loop that starts an operator wherever one can start now.

An operator is offered to a device as soon as all its predecessors have finished, from the tick on at which all its
inputs can be there; transfers take their time and wait for nothing. Whenever a device is idle and operators can start
on it, the one that is first in a given order does; of several such devices the first. The first operator of a unit
that starts decides where the unit is, and takes the memory of all of it; pairs of an operator and a device whose
location has no room for the unit, or is not the unit's, are dropped.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, offsets
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import inlined, routine, subkernel
from solvers.heuristics.baechi.graph import OperatorGraph

NONE = -1


class ListRules(NamedTuple):
    """Priorities and waiting rules of a run."""

    place: Ints
    """[k] rank of each operator in the order; a permutation, topological."""
    child: Ints
    """[k] favourite child of each operator, NONE for none."""
    wait: Ints
    """[k] ticks that the favourite child's input takes to another location, at most."""
    patient: bool
    """True: a device is awake from the end of its last operator until `wait` later (Hanen and Munier). False:
    while the child's predecessors have all finished and no other device could begin it earlier (Baechi's code)."""


class ListResult(NamedTuple):
    """The result of a run."""

    device: Ints
    """[k] device of each operator, NONE for one that has not started."""
    start: Ints
    finish: Ints
    at: Ints
    """[u] location of each unit, NONE for none."""
    room: Ints
    """[l] bytes left; negative where what can only be there does not fit."""
    waiting: Ints
    """[k] predecessors of each operator that have not finished."""


class ReadyLanes(NamedTuple):
    """For each device, two heaps: who can start later, by time, and who can start now, by place in the order.

    With favourite children, each device has a second lane for what is urgent: can start now wherever it can be.
    """

    later: Ints
    """[lanes, k] tick at which each operator of `later_item` can start."""
    later_item: Ints
    """[lanes, k] operators that can start later."""
    now: Ints
    """[lanes, k] operators that can start now, as places in the order."""
    size: Ints
    """[lanes, 2] entries of both heaps."""


class DeviceClock(NamedTuple):
    """The devices, and the ticks at which something happens on one."""

    time: Ints
    device: Ints
    size: Ints
    """[1] number of events in the heap."""
    busy: Ints
    """[m] the operator that each device runs, NONE when idle."""
    last: Ints
    """[m] the operator that each device ran last."""
    ready: Ints
    """[k, l] with favourite children, else [0, 0]: when the inputs of what has been offered can be at each location."""


class EdgeRows(NamedTuple):
    """Edges by head (in) and by tail (out), as compressed rows."""

    into: Ints
    tail: Ints
    comm: Ints
    out: Ints
    head: Ints


def schedule(g: OperatorGraph, rules: ListRules) -> ListResult:
    """Run until nothing more can start; operators without a device have found no room.

    Units with one location are there from the start. O((k m + e l) log k).
    """
    k, m = g.duration.shape
    favourites = bool((rules.child >= 0).any())
    task = np.empty(k, dtype=np.int64)
    task[rules.place] = np.arange(k)
    pinned, room = np.count_nonzero(g.allowed, axis=1) == 1, np.array(g.capacity)
    at = np.where(pinned, g.allowed.argmax(axis=1), NONE)
    np.subtract.at(room, at[pinned], g.memory[pinned])
    waiting = np.bincount(g.dst, minlength=k).astype(np.int64)
    r = ListResult(np.full(k, NONE, np.int64), np.zeros(k, np.int64), np.zeros(k, np.int64), at, room, waiting)
    lanes = 2 * m if favourites else m
    heaps = [np.empty((lanes, k), dtype=np.int64) for _ in range(3)]
    queue = ReadyLanes(heaps[0], heaps[1], heaps[2], np.zeros((lanes, 2), dtype=np.int64))
    none, events = np.full(m, NONE, dtype=np.int64), np.empty(2 * k + 1, dtype=np.int64)
    ready = np.zeros((k, len(g.capacity)) if favourites else (0, 0), dtype=np.int64)
    clock = DeviceClock(events, events.copy(), np.zeros(1, dtype=np.int64), none, none.copy(), ready)
    by_head, by_tail = np.argsort(g.dst, kind="stable"), np.argsort(g.src, kind="stable")
    into, out = offsets(waiting), offsets(np.bincount(g.src, minlength=k))
    rows = EdgeRows(into, g.src[by_head], g.comm[by_head], out, g.dst[by_tail])
    _run(g, rules, rows, (r, queue, clock), task)
    return r


@routine
def _run(
    g: OperatorGraph, rules: ListRules, rows: EdgeRows, work: tuple[ListResult, ReadyLanes, DeviceClock], task: Ints
) -> None:
    r, queue, clock = work
    busy, size, later = clock.busy, queue.size, queue.later  # each look into a tuple counts a reference
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
        _admit(queue, clock, rules.place, now)
        while _start(g, rules, work, task, now):
            pass
        # The next tick at which a device may be free or an idle device have more to start.
        now = clock.time[0] if clock.size[0] > 0 else -1
        for lane in range(len(size)):
            if busy[lane % len(busy)] < 0 and size[lane, 0] > 0 and (now < 0 or later[lane, 0] < now):
                now = later[lane, 0]
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
    g: OperatorGraph, rules: ListRules, work: tuple[ListResult, ReadyLanes, DeviceClock], task: Ints, now: int
) -> bool:
    """Start one operator now; False when none can."""
    r, _, clock = work
    best, at, kept = int(np.int64(-1)), int(np.int64(-1)), False
    for d in range(len(clock.busy)):
        if clock.busy[d] >= 0:
            continue
        first, awake = _candidate(g, rules, work, (task, d), now)
        if first < 0:
            continue
        if best < 0 or first < best or (first == best and rules.patient and kept and not awake):
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
    if rules.patient and rules.child[i] >= 0:
        clock.size[0] = push(clock.time, clock.device, clock.size[0], (r.finish[i] + rules.wait[i], at))
    return True


@subkernel
def _candidate(
    g: OperatorGraph,
    rules: ListRules,
    work: tuple[ListResult, ReadyLanes, DeviceClock],
    where: tuple[Ints, int],
    now: int,
) -> tuple[int, bool]:
    """The place in the order of what an idle device would start now (-1: nothing), and whether it is awake.

    An awake device takes urgent operators, or else the favourite child of the operator that it ran last.
    """
    r, queue, clock = work
    task, d = where
    last = clock.last[d]
    child = rules.child[last] if last >= 0 else NONE
    awake = child >= 0 and _possible(g, r, child, d)
    if awake and rules.patient:
        awake = now < r.finish[last] + rules.wait[last]
    elif awake:
        awake = r.waiting[child] == 0
        here = max(now, clock.ready[child, g.location[d]])
        other = 0
        while awake and other < len(clock.busy):
            free = r.finish[clock.busy[other]] if clock.busy[other] >= 0 else now
            earlier = max(free, clock.ready[child, g.location[other]]) < here
            awake = not (earlier and _possible(g, r, child, other))
            other += 1
    if not awake:
        return _top(g, queue, r, (task, d, d)), False
    urgent = _top(g, queue, r, (task, len(clock.busy) + d, d))
    if urgent < 0 and r.waiting[child] == 0 and clock.ready[child, g.location[d]] <= now:
        return rules.place[child], True
    return urgent, True


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
