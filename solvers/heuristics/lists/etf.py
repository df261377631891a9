"""ETF: earliest task first (Hwang, Chow, Anger, Lee 1989).

Of all pairs of a task that is ready and a processor, the one whose start is earliest comes next, appended to what the
processor runs. Ties go to the task of the higher static level (here: mean ticks along the heaviest path to the end),
then by topological order, then to the device that runs the task fastest, then to the lower index. The source knows
equal processors alone; where they differ a start says nothing of the finish, and ETF uses a slow device as gladly as a
fast one. Beyond the source: groups, device kinds, shared payloads and sources of the graph as
`solvers.heuristics.lists.list_schedule` says. Memory plays no part.

Each device keeps the tasks whose inputs it must still wait for by the time of their arrival, and those that could start
at once by level. A task that has been placed, or whose unit has gone elsewhere, is dropped when it comes to the top.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, rank_of
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import routine, subroutine
from solvers.heuristics.lists import list_schedule
from solvers.heuristics.lists.list_schedule import (
    ListTables,
    PartialSchedule,
    by_level,
    mean_weights,
    upward,
)
from solvers.heuristics.methods import Placement
from solvers.problem import Problem
from solvers.result import Options

_LATER, _NOW = 0, 1


class _StartQueues(NamedTuple):
    """For each device a heap of the tasks that it would wait for, and one of those that it could start."""

    time: Ints
    """[m, n] arrival of the last input of what the device would wait for."""
    later: Ints
    """[m, n] the task at each such time, as a place in the order."""
    now: Ints
    """[m, n] tasks that could start, as places in the order."""
    size: Ints
    """[2, m] how many are in `later` and in `now`."""
    free: Ints
    """[m] when each device has finished what it was given."""
    order: Ints
    """[n] tasks by falling static level."""
    turn: Ints
    """[n] place of each task in `order`."""


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return the schedule's devices and starts. O(e l + n m log n)."""
    weights = mean_weights(problem)
    level = upward(problem, weights._replace(carried=np.zeros_like(weights.carried)))
    order = by_level(problem, level)
    tables = list_schedule.tables_of(problem, order)
    growing = list_schedule.begin(tables)
    m, n = problem.devices, problem.tasks
    queues = _StartQueues(
        time=np.empty((m, n), dtype=np.int64), later=np.empty((m, n), dtype=np.int64),
        now=np.empty((m, n), dtype=np.int64), size=np.zeros((2, m), dtype=np.int64), free=np.zeros(m, dtype=np.int64),
        order=order, turn=rank_of(order),
    )  # fmt: skip
    _run(tables, growing, queues)
    return list_schedule.placement_of(growing)


@routine
def _run(t: ListTables, s: PartialSchedule, q: _StartQueues) -> None:
    times, later, now, size, free, order = q.time, q.later, q.now, q.size, q.free, q.order
    duration, location, arrival = t.duration, t.location, s.ready
    freed = list_schedule.sources(t, s)
    for _ in range(len(t.order)):
        # What became ready is offered to every device that can take it.
        for k in range(freed):
            task = s.freed[k]
            list_schedule.arrivals(t, s, t.guide[task])
            allowed, home, place = t.allowed[t.unit[task]], s.at[t.unit[task]], q.turn[task]
            for d in range(len(free)):
                here = location[d]
                if duration[task, d] < 0 or not allowed[here] or (home >= 0 and home != here):
                    continue
                if arrival[here] <= free[d]:
                    size[_NOW, d] = push(now[d], now[d], size[_NOW, d], (place, place))
                else:
                    size[_LATER, d] = push(times[d], later[d], size[_LATER, d], (arrival[here], place))
        _settle_queues(t, s, q)
        best, start, first = -1, 0, 0
        for d in range(len(free)):
            if size[_NOW, d] > 0:
                time, place = free[d], now[d, 0]
            elif size[_LATER, d] > 0:
                time, place = times[d, 0], later[d, 0]
            else:
                continue
            better = best < 0 or time < start or (time == start and place < first)
            tie = best >= 0 and time == start and place == first
            if better or (tie and duration[order[place], d] < duration[order[place], best]):
                best, start, first = d, time, place
        freed = list_schedule.append(t, s, free, (order[first], best))


@subroutine
def _settle_queues(t: ListTables, s: PartialSchedule, q: _StartQueues) -> None:
    """Move what has arrived by now, and drop what is gone, until the tops of all heaps hold."""
    time, later, now, size, free, order = q.time, q.later, q.now, q.size, q.free, q.order
    unit, location, device, at = t.unit, t.location, s.device, s.at
    for d in range(len(free)):
        while size[_LATER, d] > 0:
            place = later[d, 0]
            gone = list_schedule.is_gone(device, at, unit[order[place]], order[place], location[d])
            if not gone and time[d, 0] > free[d]:
                break
            size[_LATER, d] = drop(time[d], later[d], size[_LATER, d])
            if not gone:
                size[_NOW, d] = push(now[d], now[d], size[_NOW, d], (place, place))
        while size[_NOW, d] > 0:
            task = order[now[d, 0]]
            if not list_schedule.is_gone(device, at, unit[task], task, location[d]):
                break
            size[_NOW, d] = drop(now[d], now[d], size[_NOW, d])
