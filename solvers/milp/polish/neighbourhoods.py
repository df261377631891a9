"""Neighbourhoods of a schedule, each a smaller problem: some tasks are free in place or order, all others stay."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from solvers.arrays import Bools, Ints, rank_of
from solvers.compiled.dag import topological_order
from solvers.problem import FORBIDDEN, Problem
from solvers.schedule import Schedule
from solvers.structure.units import units_of

_REACH = 6
"""A connected task may move by this part of the makespan."""
_ORDERED = 3
"""Tasks whose order alone is free, for each that is free altogether."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Neighbourhood:
    """The tasks of a schedule whose place or order may change."""

    free: Bools
    """[n] whether a task's order is open."""
    movable: Bools
    """[n] whether a task's device is open, too."""
    since: Ints
    """[n] tick by which what finishes, and is not free, stays before a free task."""
    until: Ints
    """[n] tick from which what starts, and is not free, stays behind a free task."""


def restricted(problem: Problem, schedule: Schedule, around: Neighbourhood) -> Problem:
    """The problem whose schedules agree with a valid one outside a neighbourhood: in devices, and in orders of tasks.

    Devices are forbidden, and orders are edges without a payload, so that any formulation can be made of it.
    """
    stays = np.zeros_like(problem.allowed)
    stays[np.arange(problem.tasks), schedule.device] = True
    rank = _rank(problem, schedule)
    pairs = [(a, b) for a, b in _orders(problem, schedule, around, rank) if rank[a] < rank[b]]
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return replace(
        problem,
        duration=np.where(stays | around.movable[:, None], problem.duration, FORBIDDEN),
        src=np.concatenate([problem.src, edges[:, 0]]),
        dst=np.concatenate([problem.dst, edges[:, 1]]),
        payload=np.concatenate([problem.payload, np.full(len(edges), -1)]),
    )


def _rank(p: Problem, s: Schedule) -> Ints:
    """[n] the place of each task in the order of the starts; tasks of no ticks in one that precedence allows."""
    return rank_of(np.lexsort((rank_of(topological_order(p.tasks, p.src, p.dst)), s.finish, s.start)))


def _orders(p: Problem, s: Schedule, around: Neighbourhood, rank: Ints) -> Iterator[tuple[int, int]]:
    """The chain of each device's tasks that are not free, and where the free ones fit in."""
    for device in range(p.devices):
        chain = np.flatnonzero(~around.free & (s.device == device))
        chain = chain[np.argsort(rank[chain])]
        yield from zip(chain[:-1].tolist(), chain[1:].tolist(), strict=True)
        before = np.searchsorted(s.finish[chain], around.since, side="right") - 1
        behind = np.searchsorted(s.start[chain], around.until, side="left")
        for task in np.flatnonzero(around.free).tolist():
            if before[task] >= 0:
                yield int(chain[before[task]]), task
            if behind[task] < len(chain):
                yield task, int(chain[behind[task]])


def in_a_row(rng: np.random.Generator, problem: Problem, schedule: Schedule, size: int) -> Neighbourhood:
    """`size` tasks that start one after the other."""
    order = np.lexsort((schedule.finish, schedule.start))
    first = int(rng.integers(0, max(1, problem.tasks - size + 1)))
    free = np.zeros(problem.tasks, dtype=bool)
    free[order[first : first + size]] = True
    return Neighbourhood(
        free=free,
        movable=_whole(problem, free),
        since=np.full(problem.tasks, schedule.start[free].min()),
        until=np.full(problem.tasks, schedule.finish[free].max()),
    )


def in_order(rng: np.random.Generator, problem: Problem, schedule: Schedule, size: int) -> Neighbourhood:
    """The orders alone of several times `size` tasks that start one after the other."""
    found = in_a_row(rng, problem, schedule, min(problem.tasks, _ORDERED * size))
    return replace(found, movable=np.zeros_like(found.free))


def connected(rng: np.random.Generator, problem: Problem, schedule: Schedule, size: int) -> Neighbourhood:
    """`size` tasks that edges join to a random one, each free to move by a part of the schedule."""
    free = np.zeros(problem.tasks, dtype=bool)
    fringe = [int(rng.integers(problem.tasks))]
    while fringe and np.count_nonzero(free) < size:
        task = fringe.pop(int(rng.integers(len(fringe))))
        free[task] = True
        beside = np.concatenate([problem.dst[problem.src == task], problem.src[problem.dst == task]])
        fringe = sorted({*fringe, *beside[~free[beside]].tolist()})
    reach = -(-schedule.makespan // _REACH)
    return Neighbourhood(
        free=free, movable=_whole(problem, free), since=schedule.start - reach, until=schedule.finish + reach
    )


def _whole(p: Problem, free: Bools) -> Bools:
    """Which of the free tasks belong to units of which all tasks are free."""
    unit = units_of(p).unit
    whole = np.ones(int(unit.max(initial=-1)) + 1, dtype=bool)
    np.logical_and.at(whole, unit, free)
    found: Bools = free & whole[unit]
    return found
