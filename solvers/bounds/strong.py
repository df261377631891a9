"""The strongest lower bound that a few seconds find without a solver."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, bools
from solvers.base import Report, SolveMonitor
from solvers.bounds import quick_bounds
from solvers.bounds.distances import DistanceArguments
from solvers.bounds.quick_bounds import device_weights
from solvers.bounds.windows import (
    ScheduleFacts,
    dense,
    distances_of,
    informed,
    known_within,
    separate_tasks,
    tighten,
    with_shared_locations,
)
from solvers.compiled.kernels import routine
from solvers.instances.plain import chain
from solvers.problem import FORBIDDEN, Problem
from solvers.result import Limit, Options, Result
from solvers.structure.units import paths_of, units_of

VERSION = "1"
"""Changes when a bound may."""
_SHARE = 0.9
"""Share of the time limit that the arguments get: compiled ones check the clock only now and then."""
MOST = 400
"""Greatest number of tasks for energetic reasoning, which takes O(n^3 m)."""


def overloaded(known: ScheduleFacts) -> bool:
    """Return True if an interval holds more work than the devices can do: a proof that no schedule is so short.

    Energetic reasoning: the work that windows force into an interval, against what the devices can do there.
    """
    p = known.problem
    if p.tasks > MOST:
        return False
    able = p.allowed & known.able[:, p.location]
    head, took, finish = known.head, known.took, known.upper - known.tail
    starts, ends = np.unique([head, finish - took]), np.unique([finish, head + took])
    for weight in device_weights(p, known.paths):
        # Whoever can be where it weighs nothing may weigh nothing.
        confined = (took > 0) & ~(able & (weight == 0)).any(axis=1)
        ticks = np.where(able, p.duration, FORBIDDEN)[confined][:, weight > 0]
        alike = np.unique(np.vstack([weight[weight > 0], ticks]), axis=1)
        jobs = (head[confined], finish[confined], np.ascontiguousarray(alike[1:]))
        if len(ticks) and _overloaded(jobs, np.ascontiguousarray(alike[0]), (starts, ends), int(weight.sum())):
            return True
    return False


@routine
def _overloaded(jobs: tuple[Ints, Ints, Ints], weight: Ints, times: tuple[Ints, Ints], total: int) -> bool:
    head, finish, ticks = jobs
    for a in times[0]:
        for b in times[1]:
            most, need = total * (b - a), 0
            # Most intervals are far from full or far too full: the sum is given up as soon as it decides.
            for x in range(len(head) if b > a else 0):
                if head[x] >= b or finish[x] <= a:
                    continue
                least = most + 1
                for device in range(len(weight)):
                    took = ticks[x, device]
                    if took >= 0:
                        inside = max(0, min(took, b - a, head[x] + took - a, b - finish[x] + took))
                        least = min(least, weight[device] * inside)
                need += least
                if need > most:
                    return True
    return False


def probed(problem: Problem, upper: int, ends: float) -> ScheduleFacts | None:
    """Return the facts of `informed` for a `dense` problem, strengthened by refuting either case of each edge.

    None as in `informed`. Edges with the least time to spare come first, until nothing changes, or until the clock
    (`time.monotonic`) is at `ends`.
    """
    known = informed(problem, upper, ends)
    while known is not None:
        # Facts found at one edge help at the others, so all edges are probed again until a whole round finds nothing.
        before = known
        # The edges with a payload between two units.
        p = known.problem
        slack = -(known.head + known.took)[p.src] - (known.took + known.tail)[p.dst]
        edges = np.flatnonzero(p.payload >= 0)
        by_slack = edges[np.argsort(slack[edges], kind="stable")]
        for edge in by_slack.tolist():
            if known is None or time.monotonic() >= ends:
                return known
            one, two = int(problem.src[edge]), int(problem.dst[edge])
            if known.unit[one] == known.unit[two] or known.apart[one, two]:
                continue
            together = with_shared_locations(known, np.array([one]), np.array([two]))
            together = together and tighten(together)
            pair = known.apart.copy()
            pair[one, two] = pair[two, one] = True
            apart = tighten(replace(known, apart=bools(pair)))
            if together is None:
                known = apart
            elif apart is None:
                known = together
        if known is before:
            return known
    return None


_FAST = (
    quick_bounds.critical_path,
    quick_bounds.device_load,
    quick_bounds.device_window,
    quick_bounds.unit_load,
    quick_bounds.link_window,
)
ANCESTORS = DistanceArguments(transfers=False, forced=False, spread=False, memory=False)
TRANSFERS = DistanceArguments()


class BoundAttempt(NamedTuple):
    """One idea that was tried."""

    name: str
    ticks: int
    """Bound that it proves, in ticks; an idea that refutes lengths starts from the best bound so far."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StrongBound:
    """A lower bound on the makespan."""

    ticks: int
    name: str
    """The first idea that found it."""
    tried: tuple[BoundAttempt, ...]
    """Every idea, in the order in which they were tried."""


def strong(problem: Problem, *, upper: int | None = None, seconds: float = 5.0) -> StrongBound:
    """Return the best of the quick bounds and of the stronger ideas, and what each idea says. Never above the optimum.

    upper: the makespan of a valid schedule, at which the search ends. seconds: no idea is begun after this, nor another
    length refuted; the same input gives the same bound where all had time. (0, "none") where a group can be nowhere.
    """
    ends, goal = time.monotonic() + seconds, _longest(problem) if upper is None else upper
    best, tried = BoundAttempt("none", 0, 0.0), list[BoundAttempt]()

    def attempt(name: str, idea: Callable[[], int]) -> None:
        nonlocal best
        began = time.monotonic()
        if best.ticks < goal and began < ends:
            tried.append(BoundAttempt(name, idea(), time.monotonic() - began))
            best = max(tried, key=lambda one: one.ticks)

    def refute(test: Callable[[int], ScheduleFacts | None]) -> int:
        """Return the least length above the bound that a test does not refute, in steps that double, then halve."""
        # Each refuted length is a bound that holds when time runs out, so the search climbs from below and never
        # tests a length that its caller has a schedule for.
        low, high, step = best.ticks, goal, 1
        while low < high and time.monotonic() < ends:
            length = min(low + step - 1, high - 1)
            if test(length) is None:
                low, step = length + 1, 2 * step
            else:
                high, step = length, 1
        return low

    def within_energy(length: int) -> ScheduleFacts | None:
        known = informed(problem, length, ends)
        return None if known is None or overloaded(known) else known

    if units_of(problem).allowed.any(axis=1).all():
        paths = paths_of(problem)
        for bound in _FAST:
            attempt(bound.__name__, partial(bound, problem, paths))
        if dense(problem):
            attempt("ancestor_work", partial(segments, problem, upper, ANCESTORS))
            attempt("transfers", partial(segments, problem, upper, TRANSFERS))
            attempt("refuted", lambda: refute(lambda length: informed(problem, length, ends)))
            attempt("energetic", lambda: refute(within_energy))
            attempt("probed", lambda: refute(lambda length: probed(problem, length, ends)))
    return StrongBound(ticks=best.ticks, name=best.name, tried=tuple(tried))


def segments(problem: Problem, upper: int | None, arguments: DistanceArguments) -> int:
    """Return the distance from the start to the end of a `dense` problem; `upper` as in `strong`."""
    known = known_within(problem, _longest(problem) if upper is None else upper)
    known = None if known is None else separate_tasks(known, None)
    return 0 if known is None else distances_of(known, arguments).ticks


def _longest(problem: Problem) -> int:
    """Return a makespan that some schedule has, if there is any: all tasks and transfers one after the other."""
    ticks = problem.duration.max(axis=1, initial=0).sum()
    return int(ticks + problem.locations * problem.transfer.max(axis=1, initial=0).sum())


def compile_ahead() -> None:
    """Run all of it on a chain: many seconds once on a machine, after which numba has it on disk; a moment later on."""
    tiny = chain(4)
    strong(tiny)
    informed(tiny, 8)


class BoundSolver:
    """The best of all arguments as a solver that finds no schedule, so that they can run beside the others."""

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Return the bound, with `options.start` as the schedule, whose makespan the destructive arguments use."""
        began = time.monotonic()
        monitor = SolveMonitor(problem, options, report, solver="bounds", version=VERSION)
        if options.seconds > 0 and not monitor.closed:
            upper = monitor.best.makespan if monitor.best else None
            found = strong(problem, upper=upper, seconds=_SHARE * options.seconds)
            monitor.better_bound(found.ticks, found.name)
        over = time.monotonic() - began >= _SHARE * options.seconds
        return monitor.result(Limit.TIME if over else Limit.OTHER, "all arguments were tried")
