"""What one solve has found so far: candidates, the best of them, and the seconds of each stage."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pesto.problem import TICK_S
from pesto.solving.candidates import Candidate, best
from solvers.bounds.evidence import FullBound


@dataclass(frozen=True, slots=True, kw_only=True)
class Incumbent:
    """The best plan so far, as told to whoever watches."""

    name: str
    makespan_s: float
    lower_bound_s: float
    """Of the full graph."""
    seconds: float
    """Since the solve began."""


Watch = Callable[[Incumbent], None]


class Tracker:
    """Keeps the best candidate of each name, and tells `watch` of every better plan, or bound."""

    def __init__(self, watch: Watch) -> None:
        self.candidates: dict[str, Candidate] = {}
        self.stages_s: dict[str, float] = {}
        self.bound = FullBound(0, "none")
        self._watch = watch
        self._began = time.perf_counter()

    @property
    def best(self) -> Candidate | None:
        """The shortest candidate that fits the memory."""
        return best(self.candidates.values())

    @property
    def lower_bound(self) -> int:
        """Ticks of the best lower bound of the full graph."""
        return self.bound.ticks

    @property
    def gap(self) -> float:
        """(makespan - lower bound) / makespan of the best plan, on the full graph; 1 where there is none."""
        best = self.best
        if best is None:
            return 1.0
        return (best.makespan - self.lower_bound) / best.makespan if best.makespan else 0.0

    @property
    def proven(self) -> bool:
        """Whether the best plan reaches the lower bound of the full graph: nothing can be better."""
        return self.best is not None and self.best.makespan == self.lower_bound

    def strengthen(self, bound: FullBound) -> None:
        """Take in a lower bound of the full graph, and tell of it beside the best plan."""
        if bound.ticks > self.bound.ticks:
            self.bound, best = bound, self.best
            if best is not None:
                self._tell(best)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the seconds inside to the stage's."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.stages_s[name] = self.stages_s.get(name, 0.0) + time.perf_counter() - began

    def offer(self, candidate: Candidate) -> None:
        """Keep a candidate if it is its name's first, fits where that did not, or is shorter."""
        known, leader = self.candidates.get(candidate.name), self.best
        if known is None or (not candidate.fits, candidate.makespan) < (not known.fits, known.makespan):
            self.candidates[candidate.name] = candidate
        if candidate.fits and (leader is None or candidate.makespan < leader.makespan):
            self._tell(candidate)

    def _tell(self, candidate: Candidate) -> None:
        self._watch(
            Incumbent(
                name=candidate.name,
                makespan_s=candidate.makespan * TICK_S,
                lower_bound_s=self.lower_bound * TICK_S,
                seconds=time.perf_counter() - self._began,
            )
        )
