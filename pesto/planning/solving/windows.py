"""Windows of the best plan, each searched exactly by the solver's engine, in turn with annealing while they pay."""

import logging
import time
from collections.abc import Callable, Iterator

import numpy as np

from pesto.core.settings import Settings
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.exact import SolverThread
from solvers import FAILED, Limit, Options, Problem, Schedule, api

_LOG = logging.getLogger("pesto")
SHARE = 0.1
"""What the first turn of windows weighs beside the rounds of annealing, whose weights are about 1 together; 0: none."""
_MORE, _LESS, _LEAST = 2.0, 0.5, 0.05
"""How the weight follows a turn that gained more a second than annealing before it, and one that gained less."""
WORTH_S, LEAST_S = 4.0, 1.5
"""Seconds of the least turn, and of the least that is the last: an engine takes one to load."""
_MOST_TASKS = 40_000
"""Ops beyond which there are no windows: to try one takes as long as to run the plan."""
_OTHERWISE = "cpsat"
"""The engine of windows where the solver has none."""


def engine_of(settings: Settings) -> str:
    """What searches windows."""
    return settings.solver if settings.solver in api.WINDOWS else _OTHERWISE


class WindowTurns:
    """Turns of windows in one solve, with what they weigh beside annealing."""

    def __init__(
        self, bench: CandidateEvaluator, planning: Problem, settings: Settings, enough: Callable[[], bool] | None = None
    ) -> None:
        self._enough = enough
        self.engine = engine_of(settings)
        many = settings.deterministic or planning.tasks > _MOST_TASKS
        self.weight = 0.0 if many else SHARE
        """0 where there are none, or an engine has failed."""
        self._bench, self._planning, self._settings, self._turns = bench, planning, settings, 0

    def turn(self, start: Schedule, seconds: float, rate: float) -> Iterator[Candidate]:
        """Better plans as they are found; afterwards the weight is another.

        rate: ticks that annealing gained a second before. A failure is a warning, and the end of windows. Ctrl-C ends
        it with KeyboardInterrupt, once all that was found is told.
        """
        began, best = time.monotonic(), start.makespan
        for schedule in self._found(start, seconds):
            rule = f"windows searched by {self.engine}"
            found = self._bench.priced(self._bench.scheduled("windows", rule, schedule))
            if found.fits:
                best = min(best, found.makespan)
            yield found
        gained = (start.makespan - best) / max(time.monotonic() - began, 1e-3)
        self.weight = max(self.weight * (_MORE if gained > max(rate, 0.0) else _LESS), min(_LEAST, self.weight))

    def _found(self, start: Schedule, seconds: float) -> Iterator[Schedule]:
        p, settings = self._planning, self._settings
        held = np.zeros_like(p.capacity)
        np.add.at(held, p.location[start.device], p.memory)
        roomy = p.holding(capacity=np.maximum(p.capacity, held))
        self._turns += 1
        options = Options(
            seconds=seconds,
            seed=(settings.seed + self._turns * 7919) % 2**31,
            workers=settings.workers,
            formulation=settings.formulation,
            start=start,
        )
        with SolverThread(roomy, self.engine, options, by=api.improve, enough=self._enough) as running:
            yield from running.schedules()
        result = running.result()
        if result.status in FAILED or not api.has_begun(result):
            self.weight = 0.0
            _LOG.warning("windows by %s failed: %s", self.engine, result.detail)
        if running.interrupted or result.limit is Limit.INTERRUPT:
            raise KeyboardInterrupt
