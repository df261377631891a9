"""DLS: dynamic level scheduling (Sih and Lee 1993, with their generalisation to unlike processors).

Of all pairs of a task that is ready and a processor, the one of highest dynamic level comes next, appended to what the
processor runs: DL(t, d) = SL(t) - max(data ready, processor free) + E(t) - E(t, d). E(t) is the adjusted median of the
task's ticks over all devices: what cannot run it counts as slowest of all, and where that makes the median, the slowest
device that can is taken; of an even number the lower of the two in the middle. The static level SL(t) is the sum of
these along the heaviest path to the end, without communication. Ties go to the task of the higher static level, then by
topological order, then to the device of the lower index.

Not taken over: the source's routing of each message over busy links, and its two optional terms, of descendants and of
scarce processors. Beyond the source: groups, device kinds, shared payloads and sources of the graph as
`solvers.heuristics.lists.list_schedule` says. Memory plays no part.

Of the tasks whose inputs a device must still wait for, the best is that of highest level less arrival, so each device
keeps them in a heap by that, and in another by arrival; those that could start at once are in a heap by level. What has
been placed, or whose unit has gone elsewhere, or what has moved on to the third heap, is dropped at the top.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, rank_of
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import inlined, routine, subroutine
from solvers.heuristics.lists import list_schedule
from solvers.heuristics.lists.list_schedule import ListTables, PartialSchedule, PathWeights, by_level, upward
from solvers.heuristics.methods import Placement
from solvers.problem import Problem
from solvers.result import Options

_ARRIVING, _HOPEFUL, _OPEN = 0, 1, 2


class _LevelQueues(NamedTuple):
    """For each device three heaps: what it would wait for by arrival, the same by level, and what it could start."""

    key: Ints
    """[3, m, n] the arrival; what it takes the dynamic level to be, negated; the level of a start at 0, negated."""
    item: Ints
    """[3, m, n] the task of each key, as a place in the order."""
    size: Ints
    """[3, m] entries of each heap."""
    free: Ints
    """[m] when each device has finished what it was given."""
    order: Ints
    """[n] tasks by falling static level."""
    turn: Ints
    """[n] place of each task in `order`."""
    level: Ints
    """[n] SL(t) + E(t), ticks."""


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return the schedule's devices and starts. O(e l + n m log n)."""
    median = adjusted_median(problem)
    level = upward(problem, PathWeights(median, np.zeros(problem.edges, dtype=np.int64), 1))
    order = by_level(problem, level)
    tables = list_schedule.tables_of(problem, order)
    growing = list_schedule.begin(tables)
    m, n = problem.devices, problem.tasks
    queues = _LevelQueues(
        key=np.empty((3, m, n), dtype=np.int64), item=np.empty((3, m, n), dtype=np.int64),
        size=np.zeros((3, m), dtype=np.int64), free=np.zeros(m, dtype=np.int64), order=order, turn=rank_of(order),
        level=level + median,
    )  # fmt: skip
    _run(tables, growing, queues)
    return list_schedule.placement_of(growing)


def adjusted_median(problem: Problem) -> Ints:
    """[n] the lower median of a task's ticks over all devices, no more than those of the slowest that can run it."""
    if not problem.tasks:
        return np.zeros(0, dtype=np.int64)
    none = np.iinfo(np.int64).max
    ticks = np.sort(np.where(problem.allowed, problem.duration, none), axis=1)
    return np.minimum(ticks[:, (problem.devices - 1) // 2], problem.duration.max(axis=1))


@routine
def _run(t: ListTables, s: PartialSchedule, q: _LevelQueues) -> None:
    key, item, size, free, arrival, order = q.key, q.item, q.size, q.free, s.ready, q.order
    duration, location = t.duration, t.location
    freed = list_schedule.sources(t, s)
    for _ in range(len(t.order)):
        # What became ready is offered to every device that can take it.
        for k in range(freed):
            task = s.freed[k]
            list_schedule.arrivals(t, s, t.guide[task])
            allowed, home, place = t.allowed[t.unit[task]], s.at[t.unit[task]], q.turn[task]
            for d in range(len(free)):
                if duration[task, d] < 0 or not allowed[location[d]] or (home >= 0 and home != location[d]):
                    continue
                ready, level = arrival[location[d]], q.level[task] - duration[task, d]
                if ready <= free[d]:
                    _push(key, item, size, (_OPEN, d), (-level, place))
                else:
                    _push(key, item, size, (_ARRIVING, d), (ready, place))
                    _push(key, item, size, (_HOPEFUL, d), (ready - level, place))
        _settle_queues(t, s, q)
        best, lowest, first = -1, 0, 0
        for d in range(len(free)):
            for heap in (_OPEN, _HOPEFUL):
                if size[heap, d] == 0:
                    continue
                negated, place = key[heap, d, 0], item[heap, d, 0]
                if heap == _OPEN:
                    negated += free[d]
                if best < 0 or negated < lowest or (negated == lowest and place < first):
                    best, lowest, first = d, negated, place
        freed = list_schedule.append(t, s, free, (order[first], best))


@subroutine
def _settle_queues(t: ListTables, s: PartialSchedule, q: _LevelQueues) -> None:
    """Move what has arrived by now, and drop what is gone, until the tops of all heaps hold."""
    key, item, size, free, order, levels = q.key, q.item, q.size, q.free, q.order, q.level
    unit, location, device, at, duration = t.unit, t.location, s.device, s.at, t.duration
    for d in range(len(free)):
        while size[_ARRIVING, d] > 0 and key[_ARRIVING, d, 0] <= free[d]:
            place = item[_ARRIVING, d, 0]
            task = order[place]
            _drop(key, item, size, (_ARRIVING, d))
            if not list_schedule.is_gone(device, at, unit[task], task, location[d]):
                _push(key, item, size, (_OPEN, d), (duration[task, d] - levels[task], place))
        while size[_HOPEFUL, d] > 0:
            task = order[item[_HOPEFUL, d, 0]]
            arrival = key[_HOPEFUL, d, 0] + levels[task] - duration[task, d]
            if arrival > free[d] and not list_schedule.is_gone(device, at, unit[task], task, location[d]):
                break
            _drop(key, item, size, (_HOPEFUL, d))
        while size[_OPEN, d] > 0:
            task = order[item[_OPEN, d, 0]]
            if not list_schedule.is_gone(device, at, unit[task], task, location[d]):
                break
            _drop(key, item, size, (_OPEN, d))


@inlined
def _push(key: Ints, item: Ints, size: Ints, which: tuple[int, int], entry: tuple[int, int]) -> None:
    size[which] = push(key[which], item[which], size[which], entry)


@inlined
def _drop(key: Ints, item: Ints, size: Ints, which: tuple[int, int]) -> None:
    size[which] = drop(key[which], item[which], size[which])
