"""EST First: the order of tasks whose devices are known, earliest start time first (Wang & Sinnen 2018).

Of all tasks whose predecessors are scheduled, the one that can start earliest comes next; it could start when its
device is free and all that it reads has arrived. Ties: largest bottom level, then least index. Links are without
contention, as in the source.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints, rank_of
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import routine, subroutine
from solvers.problem import Problem
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
    """[n] the tasks in EST First order, which is topological; device: [n]. O(n (m + log n) + e log e).

    Each device has one heap of tasks that could start as soon as it is free and one of tasks whose data is on the
    way, so that the next task is found by looking at two heads a device.
    """
    level = bottom_levels(problem, device=device)
    by_level = np.lexsort((np.arange(problem.tasks), -level))
    place = rank_of(by_level)
    return ints(_order(prepare(problem), ints(device), ints(by_level), place))


@routine
def _order(g: Prepared, device: Ints, by_level: Ints, place: Ints) -> Ints:
    n, q = len(device), _queues(device, g.duration.shape[1])
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
        _admit(q, d)
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
def _queues(device: Ints, devices: int) -> _DeviceQueues:
    first, n = np.zeros(devices + 1, dtype=np.int64), len(device)
    for task in range(n):
        first[device[task] + 1] += 1
    for d in range(devices):
        first[d + 1] += first[d]
    return _DeviceQueues(
        first,
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.zeros(devices, dtype=np.int64),
        np.zeros(devices, dtype=np.int64),
        np.zeros(devices, dtype=np.int64),
    )


@subroutine
def _add(q: _DeviceQueues, d: int, ready: int, place: int) -> None:
    """Queue a free task of device `d`."""
    here = slice(q.first[d], q.first[d + 1])
    if ready <= q.free[d]:
        q.nows[d] = push(q.now[here], q.now[here], q.nows[d], (place, place))
    else:
        q.soons[d] = push(q.soon_time[here], q.soon[here], q.soons[d], (ready, place))


@subroutine
def _admit(q: _DeviceQueues, d: int) -> None:
    """Move what has arrived by the time at which device `d` is free."""
    here = slice(q.first[d], q.first[d + 1])
    while q.soons[d] > 0 and q.soon_time[q.first[d]] <= q.free[d]:
        place = q.soon[q.first[d]]
        q.soons[d] = drop(q.soon_time[here], q.soon[here], q.soons[d])
        q.nows[d] = push(q.now[here], q.now[here], q.nows[d], (place, place))


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
