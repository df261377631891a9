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
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from solvers.milp.polish.attempt import STEP, RunSlice, attempt
from solvers.milp.polish.neighbourhoods import Neighbourhood, connected, in_a_row, in_order, restricted
from solvers.milp.vendor import RunRequest, Vendor, VendorOutcome
from solvers.problem import Problem
from solvers.result import Status
from solvers.schedule import Schedule

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
        if _last(outcome) or (found is None and ended and around.movable.all()):
            break
        sizes[move] = max(_LEAST, min(problem.tasks, sizes[move] * (_GROWTH if ended else 1 / _GROWTH)))
    return best


def _last(outcome: VendorOutcome | None) -> bool:
    return outcome is not None and outcome.left


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
