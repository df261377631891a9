"""Fix and optimise: a start improved by many small programs, each of which leaves most of the schedule as it is.

A neighbourhood of a schedule is a smaller problem: some tasks are free in place or order, all others stay. `attempt`
looks for a schedule of it that is shorter than is known, in one run of a vendor within a slice of the time.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from solvers.arrays import Bools, Ints, bools, rank_of
from solvers.compiled.dag import topological_order
from solvers.milp.formulations import MakespanLimits, NoScheduleError, formulate
from solvers.milp.tight.times import windows_of
from solvers.milp.vendor import LastIncumbent, RunRequest, Vendor, VendorOutcome, run_program
from solvers.problem import FORBIDDEN, Problem
from solvers.result import Status
from solvers.schedule import Schedule
from solvers.structure.units import units_of
from solvers.timing.rebuild import rebuild

STEP = 5_000
"""A better schedule is asked for that is shorter by a tick, or by this part of the makespan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSlice:
    """Time that one small program may take, on `time.monotonic`."""

    settle_by: Callable[[], float]
    """When to stop looking for tighter windows, from now."""
    ends: float
    """When a program that is not built yet is of no use any more."""
    ask: Callable[[], RunRequest]
    """Function that returns the limits of the run, from now on."""


def attempt(
    problem: Problem, most: int, least: int, program_of: tuple[Vendor, str], part: RunSlice
) -> tuple[Schedule | None, VendorOutcome | None]:
    """Return a schedule of a problem that takes `most` ticks or less, if one was found, by a vendor on a formulation.

    No outcome where windows say that there is none, or the time was up first. Whatever the vendor raises is raised.
    """
    run, formulation = program_of
    windows = windows_of(problem, most, part.settle_by())
    if windows is None:
        return None, None
    limits = MakespanLimits(least=min(least, most), most=most, settle_by=part.settle_by(), build_by=part.ends)
    try:
        program = formulate(windows.problem, formulation, limits)
    except (NoScheduleError, TimeoutError):
        return None, None
    listener = LastIncumbent()
    outcome = run_program(run, program, part.ask(), listener)
    values = listener.values if outcome.values is None else outcome.values
    return None if values is None else rebuild(problem, program.schedule(values)), outcome


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
    # The chain of each device's tasks that are not free, and where the free ones fit in.
    pairs: list[tuple[int, int]] = []
    for device in range(problem.devices):
        chain = np.flatnonzero(~around.free & (schedule.device == device))
        chain = chain[np.argsort(rank[chain])]
        pairs += zip(chain[:-1].tolist(), chain[1:].tolist(), strict=True)
        before = np.searchsorted(schedule.finish[chain], around.since, side="right") - 1
        behind = np.searchsorted(schedule.start[chain], around.until, side="left")
        for task in np.flatnonzero(around.free).tolist():
            if before[task] >= 0:
                pairs.append((int(chain[before[task]]), task))
            if behind[task] < len(chain):
                pairs.append((task, int(chain[behind[task]])))
    edges = np.array([(a, b) for a, b in pairs if rank[a] < rank[b]], dtype=np.int64).reshape(-1, 2)
    return replace(
        problem, duration=np.where(stays | around.movable[:, None], problem.duration, FORBIDDEN),
        src=np.concatenate([problem.src, edges[:, 0]]), dst=np.concatenate([problem.dst, edges[:, 1]]),
        payload=np.concatenate([problem.payload, np.full(len(edges), -1)]),
    )  # fmt: skip


def in_a_row(rng: np.random.Generator, problem: Problem, schedule: Schedule, size: int) -> Neighbourhood:
    """Return `size` tasks that start one after the other."""
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
    """Return the orders alone of several times `size` tasks that start one after the other."""
    around = in_a_row(rng, problem, schedule, min(problem.tasks, _ORDERED * size))
    return replace(around, movable=np.zeros_like(around.free))


def connected(rng: np.random.Generator, problem: Problem, schedule: Schedule, size: int) -> Neighbourhood:
    """Return `size` tasks that edges join to a random one, each free to move by a part of the schedule."""
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
    """Return which of the free tasks belong to units of which all tasks are free."""
    unit = units_of(p).unit
    whole = np.ones(int(unit.max(initial=-1)) + 1, dtype=bool)
    np.logical_and.at(whole, unit, free)
    return bools(free & whole[unit])


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


def polish(problem: Problem, start: Schedule, search: PolishSettings, report: Callable[[Schedule], None]) -> Schedule:
    """Return the best schedule found, never worse than the valid `start`; `report` is called with every better one.

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
        most = best.makespan - max(1, best.makespan // STEP)
        part = RunSlice(settle_by=lambda: spent.settle_by, ends=spent.ends, ask=spent.slice)
        vendor = search.run, search.formulation
        schedule, outcome = attempt(restricted(problem, best, around), most, search.least, vendor, part)
        spent.count(outcome)
        if schedule is not None and schedule.makespan < best.makespan:
            best = schedule
            spent.refresh()
            report(best)
        ended = outcome is None or outcome.status in (Status.OPTIMAL, Status.INFEASIBLE)
        if (outcome is not None and outcome.left) or (schedule is None and ended and around.movable.all()):
            break
        sizes[move] = max(_LEAST, min(problem.tasks, sizes[move] * (_GROWTH if ended else 1 / _GROWTH)))
    return best


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
