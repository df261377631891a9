"""Fix and optimise: a start improved by many small programs, each of which leaves most of the schedule as it is.

Branch and bound on a whole program of some thousand disjunctions finds little in a minute, while a program of ten free
tasks is solved in a second. So the incumbent is restricted to a random neighbourhood
(`solvers.milp.polish.neighbourhoods`), a shorter makespan is demanded, and the same formulation and vendor look for it.
What windows prove to be impossible is not even formulated. Neighbourhoods grow while their programs are solved to the
end, and shrink when they are not. Source: iterated flattening and large-neighbourhood search for scheduling, here with
integer programs (Pochet and Wolsey 2006, section 3.6, "relax-and-fix" and its improvement phase "exchange").
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from solvers.arrays import Bools, Ints, rank_of
from solvers.compiled.dag import topological_order
from solvers.milp.polish.attempt import STEP, RunSlice, attempt
from solvers.milp.vendor import RunRequest, Vendor, VendorOutcome
from solvers.problem import FORBIDDEN, Problem
from solvers.result import Status
from solvers.schedule import Schedule
from solvers.structure.units import units_of

# Neighbourhoods of a schedule, each a smaller problem: some tasks are free in place or order, all others stay.

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
    # [n] the place of each task in the order of the starts; tasks of no ticks in one that precedence allows.
    rank = rank_of(
        np.lexsort(
            (rank_of(topological_order(problem.tasks, problem.src, problem.dst)), schedule.finish, schedule.start)
        )
    )
    pairs = [(a, b) for a, b in _orders(problem, schedule, around, rank) if rank[a] < rank[b]]
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return replace(
        problem,
        duration=np.where(stays | around.movable[:, None], problem.duration, FORBIDDEN),
        src=np.concatenate([problem.src, edges[:, 0]]),
        dst=np.concatenate([problem.dst, edges[:, 1]]),
        payload=np.concatenate([problem.payload, np.full(len(edges), -1)]),
    )


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


_SLICE = 1.5
"""Seconds, or effort, of one small program at most."""
_SETTLE = 0.2
"""Part of the slice in which windows are looked for, beyond longest paths, before and in a program: on 200 tasks all of
them take 3 to 6 seconds of a core and rule out little more."""
_EMPTY = 0.02
"""Effort that a neighbourhood counts for that windows prove to be empty, and"""
_DONE = 0.25
"""part of the slice that a program solved to the end counts for, where effort is counted and not time."""
_PATIENCE = 0.4
"""Part of the whole search that may pass without a better schedule, and"""
_TRIES = 8
"""programs that must have been tried since the last, where it is the clock that passes."""
_FIRST, _LEAST = 8, 4
"""Tasks of the first neighbourhoods, and of the smallest."""
_GROWTH = 1.1
_MOVES = (in_a_row, in_order, connected)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolishSettings:
    """How to look for a better schedule."""

    run: Vendor
    formulation: str
    ask: RunRequest
    """The limits of all runs together, and what each is told of seed and threads; its start is not used."""
    least: int
    """A lower bound on the makespan, in ticks, at which the search ends."""


def polish(problem: Problem, start: Schedule, search: PolishSettings, told: Callable[[Schedule], None]) -> Schedule:
    """The best schedule found, never worse than the valid `start`; `told` hears of every better one.

    Ends at the limits of `search.ask`, at `search.least`, when nothing better was found for a good part of it, when
    nothing shorter is possible, or when a vendor had to be left behind: another run would go on beside it. With a
    finite `ask.effort` the same seed gives the same answer, unless the seconds end first. Whatever the vendor raises is
    raised.
    """
    rng, best, spent = np.random.default_rng(search.ask.seed), start, _EffortSpent(search.ask)
    sizes = dict.fromkeys(_MOVES, float(_FIRST))
    while best.makespan > search.least and not spent.over:
        move = _MOVES[int(rng.integers(len(_MOVES)))]
        around = move(rng, problem, best, min(problem.tasks, int(sizes[move])))
        found, outcome = _attempt(problem, best, search, around, spent)
        spent.count(outcome)
        if found is not None and found.makespan < best.makespan:
            best = found
            spent.refresh()
            told(best)
        ended = outcome is None or outcome.status in (Status.OPTIMAL, Status.INFEASIBLE)
        if (outcome is not None and outcome.left) or (found is None and ended and around.movable.all()):
            break
        sizes[move] = max(_LEAST, min(problem.tasks, sizes[move] * (_GROWTH if ended else 1 / _GROWTH)))
    return best


def _attempt(
    problem: Problem, best: Schedule, search: PolishSettings, around: Neighbourhood, spent: "_EffortSpent"
) -> tuple[Schedule | None, VendorOutcome | None]:
    """A schedule of the neighbourhood that is shorter, if one was found; no outcome where windows say that none is."""
    most = best.makespan - max(1, best.makespan // STEP)
    part = RunSlice(settle_by=lambda: spent.settle_by, ends=spent.ends, ask=spent.slice)
    around_it = restricted(problem, best, around)
    return attempt(around_it, most, search.least, (search.run, search.formulation), part)


class _EffortSpent:
    """Seconds or effort spent of the limits."""

    def __init__(self, ask: RunRequest) -> None:
        self._ask, self._began = ask, time.monotonic()
        self.ends = self._began + ask.seconds
        self._effort, self._better, self._tries = 0.0, 0.0, 0

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def over(self) -> bool:
        """True if to end: nothing is left, or nothing was found for too long."""
        limit, now = (self._ask.effort, self._effort) if self._counts else (self._ask.seconds, self._seconds)
        idle = now - self._better > _PATIENCE * limit and (self._counts or self._tries >= _TRIES)
        return self._seconds >= self._ask.seconds or now >= limit or idle

    @property
    def settle_by(self) -> float:
        """When to stop looking for windows, from now; where effort is counted, no clock but the limit says so."""
        return self.ends if self._counts else min(self.ends, time.monotonic() + _SETTLE * _SLICE)

    @property
    def _counts(self) -> bool:
        return math.isfinite(self._ask.effort)

    def slice(self) -> RunRequest:
        """Return the time slice of the next run."""
        left = max(0.05, self._ask.seconds - self._seconds)
        if self._counts:
            return replace(self._ask, seconds=left, effort=_SLICE, gap=0.0, start=None)
        return replace(self._ask, seconds=min(_SLICE, left), gap=0.0, start=None)

    def count(self, outcome: VendorOutcome | None) -> None:
        """Count a run, or none."""
        self._tries += 1
        if outcome is None:
            self._effort += _EMPTY
        else:
            ended = outcome.status in (Status.OPTIMAL, Status.INFEASIBLE)
            self._effort += _SLICE * (_DONE if ended else 1.0)

    def refresh(self) -> None:
        """Note that something better was found."""
        self._better, self._tries = (self._effort if self._counts else self._seconds), 0
