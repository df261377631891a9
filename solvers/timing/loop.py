"""The compiled event loops of `replay`: one for a fixed order, one for a placement alone, with its queues."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints
from solvers.compiled.heap import Bitsets, bitsets, drop, insert, push, remove_least
from solvers.compiled.kernels import inlined, kernel, spliced, subkernel
from solvers.timing.links import (
    ARRIVALS,
    EVENTS,
    FREED,
    NEVER,
    READY,
    SENT,
    TOOK,
    WAITING,
    LinkState,
    Outbox,
    Prepared,
    finish_task,
    outbox_for,
    release,
    request_sends,
    reset,
    start_waiting,
    state_for,
)  # fmt: skip


class Queues(NamedTuple):
    """The ready tasks of each device by number: the place in the order or, first in, first out, as they came."""

    low: Ints
    mid: Ints
    high: Ints
    top: Ints
    """[m] 0: nothing is ready; with the others as in `solvers.compiled.heap`."""
    task: Ints
    """[n] task of each number."""
    came: Ints
    """[1] tasks that got a number as they came; -1: the numbers are the places."""
    busy: Bools
    arrival_time: Ints
    arrival_place: Ints


def queues_for(g: Prepared, order: Ints, *, fifo: bool) -> Queues:
    """Empty queues for one run."""
    n, devices = len(order), g.duration.shape[1]
    b = bitsets(devices, n)
    return Queues(
        *b,
        task=np.array(order),
        came=np.array([0 if fifo else -1]),
        busy=np.zeros(devices, dtype=np.bool_),
        arrival_time=np.empty(n, dtype=np.int64),
        arrival_place=np.empty(n, dtype=np.int64),
    )


@spliced
def line_up(s: LinkState, order: Ints) -> None:
    """Note the places, and free the tasks that wait for nothing."""
    for place in range(len(order)):
        task = order[place]
        s.place[task] = place
        if s.row[task, WAITING] == 0:
            s.freed[s.length[FREED]] = task
            s.length[FREED] += 1


@spliced
def admit(s: LinkState, q: Queues, device: Ints, order: Ints, now: int) -> None:
    """Hand the tasks whose inputs have arrived to their devices; the others wait for the time of arrival."""
    for at in range(s.length[FREED]):
        task = s.freed[at]
        ready, place = s.row[task, READY], s.place[task]
        # Who comes together is numbered by place: through the heap.
        if ready > now or q.came[0] >= 0:
            s.length[ARRIVALS] = push(q.arrival_time, q.arrival_place, s.length[ARRIVALS], (ready, place))
        else:
            insert(Bitsets(q.low, q.mid, q.high, q.top), device[task], place)
    s.length[FREED] = 0
    while s.length[ARRIVALS] > 0 and q.arrival_time[0] <= now:
        number = q.arrival_place[0]
        task = order[number]
        s.length[ARRIVALS] = drop(q.arrival_time, q.arrival_place, s.length[ARRIVALS])
        if q.came[0] >= 0:
            number = q.came[0]
            q.task[number] = task
            q.came[0] += 1
        insert(Bitsets(q.low, q.mid, q.high, q.top), device[task], number)


@spliced
def leave(q: Queues, d: int) -> int:
    """Take the first task out of a queue that is not empty."""
    return q.task[remove_least(Bitsets(q.low, q.mid, q.high, q.top), d)]


__all__ = [
    "ARRIVALS",
    "EVENTS",
    "FREED",
    "SENT",
    "LinkState",
    "Outbox",
    "Prepared",
    "begin_task",
    "finish_task",
    "order_of",
    "outbox_for",
    "reset",
    "run_listed",
    "run_queued",
    "run_strict",
    "run_waiting",
    "state_for",
    "strict_makespan",
    "turned_makespan",
]  # fmt: skip


def order_of(rank: Ints) -> Ints:
    """Tasks by (rank, index)."""
    n = len(rank)
    if n and rank.min() >= 0 and rank.max() < n:
        # A rank that is a permutation, the usual case, needs no sort.
        order = np.full(n, -1, dtype=np.int64)
        order[rank] = np.arange(n)
        if (order >= 0).all():
            return ints(order)
    return ints(np.argsort(rank, kind="stable"))


@inlined
def begin_task(s: LinkState, entry: tuple[int, int], now: int) -> None:
    """Start a task, `entry` = (task, its place in the order), and queue its finish."""
    task, place = entry
    s.start[task] = now
    s.finish[task] = now + s.row[task, TOOK]
    s.length[EVENTS] = push(s.event_time, s.event_place, s.length[EVENTS], (s.finish[task], place))


@kernel
def strict_makespan(g: Prepared, s: LinkState, device: Ints, order: Ints) -> int:
    """Run each device's tasks in `order`, links first come, first served; return the makespan, -1 for a deadlock.

    `s` as `reset` left it. The starts are the ready times, and are not written: `run_strict` does.
    """
    return turned_makespan(g, s, device, order, order)


@kernel
def turned_makespan(g: Prepared, s: LinkState, device: Ints, order: Ints, turn: Ints) -> int:
    """`strict_makespan` where of tasks that end in one tick the first in `turn`, all tasks in any order, is served."""
    _follow(s, device, order, turn)
    done, now = 0, int(np.int64(0))
    _begin_freed(s)
    while s.length[EVENTS] > 0:
        now, place = s.event_time[0], s.event_place[0]
        s.length[EVENTS] = drop(s.event_time, s.event_place, s.length[EVENTS])
        s.ended[done] = turn[place]
        done += 1
        if s.follower[place] >= 0:
            release(s, s.follower[place], now)
        finish_task(g, s, turn[place], now)
        _begin_freed(s)
    return now if done == len(order) else -1


@kernel
def run_strict(g: Prepared, s: LinkState, device: Ints, order: Ints) -> int:
    """As `strict_makespan`, with starts and finishes; return how many ran, fewer than all when the order deadlocks."""
    strict_makespan(g, s, device, order)
    return _read_off(s)


@kernel
def run_waiting(g: Prepared, s: LinkState, o: Outbox, device: Ints, order: Ints) -> int:
    """`run_strict` with links that serve by priority."""
    _follow(s, device, order, order)
    now, wake = int(np.int64(0)), NEVER
    _begin_freed(s)
    while s.length[EVENTS] > 0 or wake < NEVER:
        now = min(wake, s.event_time[0]) if s.length[EVENTS] > 0 else wake
        while s.length[EVENTS] > 0 and s.event_time[0] == now:
            place = s.event_place[0]
            s.length[EVENTS] = drop(s.event_time, s.event_place, s.length[EVENTS])
            if s.follower[place] >= 0:
                release(s, s.follower[place], now)
            request_sends(g, s, o, order[place], now)
            _begin_freed(s)
        wake = start_waiting(g, s, o, now)
        _begin_freed(s)
    return _read_off(s)


@subkernel
def _follow(s: LinkState, device: Ints, order: Ints, turn: Ints) -> None:
    """Let each task wait for the one before it on its device, and free those that wait for nothing.

    Places are those in `turn`, all tasks in any order.
    """
    s.last[:] = -1
    for place in range(len(turn)):
        s.place[turn[place]] = place
    for task in order:
        d, place = device[task], s.place[task]
        s.follower[place] = -1
        if s.last[d] >= 0:
            s.follower[s.last[d]] = task
            s.row[task, WAITING] += 1
        s.last[d] = place
        if s.row[task, WAITING] == 0:
            s.freed[s.length[FREED]] = task
            s.length[FREED] += 1


@inlined
def _begin_freed(s: LinkState) -> None:
    """Queue the finishes of the tasks that wait for nothing more; each starts as soon as it is ready."""
    for at in range(s.length[FREED]):
        task = s.freed[at]
        entry = (s.row[task, READY] + s.row[task, TOOK], s.place[task])
        s.length[EVENTS] = push(s.event_time, s.event_place, s.length[EVENTS], entry)
    s.length[FREED] = 0


@subkernel
def _read_off(s: LinkState) -> int:
    """Starts and finishes after a strict run; how many tasks ran."""
    ran = 0
    for task in range(len(s.start)):
        if s.row[task, WAITING] == 0:
            s.start[task] = s.row[task, READY]
            s.finish[task] = s.start[task] + s.row[task, TOOK]
            ran += 1
    return ran


def run_listed(g: Prepared, s: LinkState, device: Ints, order: Ints) -> int:
    """Start, whenever a device is idle, its ready task that is first in `order`; return how many ran: all."""
    return run_queued(g, s, outbox_for(g, s, None), queues_for(g, order, fifo=False), device, order)


@kernel
def run_queued(g: Prepared, s: LinkState, o: Outbox, q: Queues, device: Ints, order: Ints) -> int:
    """List scheduling under either policy of links; of what is ready, the first in `order` or the first come."""
    now, done, wake = int(np.int64(0)), 0, NEVER
    line_up(s, order)
    while now < NEVER:
        while s.length[EVENTS] > 0 and s.event_time[0] == now:
            task = order[s.event_place[0]]
            s.length[EVENTS] = drop(s.event_time, s.event_place, s.length[EVENTS])
            s.ended[done] = task
            done += 1
            q.busy[device[task]] = False
            if len(o.turn) > 0:
                request_sends(g, s, o, task, now)
            else:
                finish_task(g, s, task, now)
        if o.lines[0] > 0:
            wake = start_waiting(g, s, o, now)
        admit(s, q, device, order, now)
        for d in range(len(q.top)):
            if q.top[d] != 0 and not q.busy[d]:
                task = leave(q, d)
                begin_task(s, (task, s.place[task]), now)
                q.busy[d] = True
        now = wake if o.lines[0] > 0 else NEVER
        if s.length[EVENTS] > 0:
            now = min(now, s.event_time[0])
        if s.length[ARRIVALS] > 0:
            now = min(now, q.arrival_time[0])
    return done
