"""The strongest lower bound that a few seconds find without a solver."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from solvers.bounds import quick_bounds
from solvers.bounds.distances import DistanceArguments
from solvers.bounds.energy import overloaded
from solvers.bounds.probing import probed
from solvers.bounds.relations import separated
from solvers.bounds.schedule_facts import ScheduleFacts, known_within
from solvers.bounds.windows import dense, distances_of, informed
from solvers.problem import Problem
from solvers.structure.paths import paths_of
from solvers.structure.units import units_of

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
