"""The strongest lower bound that a few seconds find without a solver."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, bools
from solvers.bounds import quick_bounds
from solvers.bounds.distances import DistanceArguments
from solvers.bounds.loads import device_weights
from solvers.bounds.relations import separated
from solvers.bounds.schedule_facts import ScheduleFacts, known_within, united
from solvers.bounds.windows import dense, distances_of, informed, settled
from solvers.compiled.kernels import routine
from solvers.problem import FORBIDDEN, Problem
from solvers.structure.paths import paths_of
from solvers.structure.units import units_of

# Energetic reasoning: the work that windows force into an interval, against what the devices can do there.

MOST = 400
"""Tasks at most: O(n^3 m)."""


def overloaded(known: ScheduleFacts) -> bool:
    """Return True if an interval holds more work than the devices can do: a proof that no schedule is so short."""
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
    for a in times[0]:
        for b in times[1]:
            if b > a and _need(jobs, weight, a, b, total * (b - a)):
                return True
    return False


@routine
def _need(jobs: tuple[Ints, Ints, Ints], weight: Ints, a: int, b: int, most: int) -> bool:
    """Return True if more than `most` is needed within [a, b]."""
    head, finish, ticks = jobs
    need = 0
    for x in range(len(head)):
        if head[x] >= b or finish[x] <= a:
            continue
        least = most + 1
        for device in range(len(weight)):
            took = ticks[x, device]
            if took >= 0:
                inside = max(0, min(took, b - a, head[x] + took - a, b - finish[x] + took))
                least = min(least, weight[device] * inside)
        need += least
        # Most intervals are far from full or far too full: the sum is given up as soon as it decides.
        if need > most:
            return True
    return False


# Probing: of two tasks that an edge joins, both at one location, and at two; what leaves no schedule is out.


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
            known = _probe(known, int(problem.src[edge]), int(problem.dst[edge]))
        if known is before:
            return known
    return None


def _probe(known: ScheduleFacts, one: int, two: int) -> ScheduleFacts | None:
    if known.unit[one] == known.unit[two] or known.apart[one, two]:
        return known
    together = united(known, np.array([one]), np.array([two]))
    together = together and settled(together)
    pair = known.apart.copy()
    pair[one, two] = pair[two, one] = True
    apart = settled(replace(known, apart=bools(pair)))
    if together is None:
        return apart
    return together if apart is None else known


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
    """One idea."""

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
    """The best of the quick bounds and of the stronger ideas, and what each idea says. Never above the optimum.

    upper: the makespan of a valid schedule, at which the search ends. seconds: no idea is begun after this, nor another
    length refuted; the same input gives the same bound where all had time. (0, "none") where a group can be nowhere.
    """
    trials = _BoundAttempts(problem, upper, seconds)
    if not units_of(problem).allowed.any(axis=1).all():
        return trials.bound()
    paths = paths_of(problem)
    for bound in _FAST:
        trials.add(bound.__name__, partial(bound, problem, paths))
    if dense(problem):
        trials.add("ancestor_work", partial(segments, problem, upper, ANCESTORS))
        trials.add("transfers", partial(segments, problem, upper, TRANSFERS))
        trials.add("refuted", partial(trials.refuted, trials.informed))
        trials.add("energetic", partial(trials.refuted, trials.within_energy))
        trials.add("probed", partial(trials.refuted, trials.probed))
    return trials.bound()


def segments(problem: Problem, upper: int | None, arguments: DistanceArguments) -> int:
    """The distance from the start to the end of a `dense` problem; `upper` as in `strong`."""
    known = known_within(problem, _longest(problem) if upper is None else upper)
    known = None if known is None else separated(known, None)
    return 0 if known is None else distances_of(known, arguments).ticks


class _BoundAttempts:
    """Runs ideas one after the other."""

    def __init__(self, problem: Problem, upper: int | None, seconds: float) -> None:
        self._problem, self._ends, self._tried = problem, time.monotonic() + seconds, list[BoundAttempt]()
        self._upper = _longest(problem) if upper is None else upper

    def add(self, name: str, idea: Callable[[], int]) -> None:
        """Try an idea, while there is time and something left to prove."""
        began = time.monotonic()
        if self.bound().ticks < self._upper and began < self._ends:
            ticks = idea()
            self._tried.append(BoundAttempt(name, ticks, time.monotonic() - began))

    def refuted(self, test: Callable[[int], ScheduleFacts | None]) -> int:
        """The least length above the bound that a test does not refute, in steps that double, then halve."""
        # Each refuted length is a bound that holds when time runs out, so the search climbs from below and never
        # tests a length that its caller has a schedule for.
        low, high, step = self.bound().ticks, self._upper, 1
        while low < high and time.monotonic() < self._ends:
            length = min(low + step - 1, high - 1)
            if test(length) is None:
                low, step = length + 1, 2 * step
            else:
                high, step = length, 1
        return low

    def informed(self, length: int) -> ScheduleFacts | None:
        """Nothing but `informed`."""
        return informed(self._problem, length, self._ends)

    def within_energy(self, length: int) -> ScheduleFacts | None:
        """Energetic reasoning on the windows, too."""
        known = informed(self._problem, length, self._ends)
        return None if known is None or overloaded(known) else known

    def probed(self, length: int) -> ScheduleFacts | None:
        """Either case of each edge, too."""
        return probed(self._problem, length, self._ends)

    def bound(self) -> StrongBound:
        """The best so far."""
        best = max(self._tried, key=lambda tried: tried.ticks, default=BoundAttempt("none", 0, 0.0))
        return StrongBound(ticks=best.ticks, name=best.name, tried=tuple(self._tried))


def _longest(problem: Problem) -> int:
    """A makespan that some schedule has, if there is any: all tasks and transfers one after the other."""
    ticks = problem.duration.max(axis=1, initial=0).sum()
    return int(ticks + problem.locations * problem.transfer.max(axis=1, initial=0).sum())
