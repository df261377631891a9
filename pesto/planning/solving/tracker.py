"""The one place that keeps what a solve has found: candidates, the best of them, the bound, and the clock."""

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

from pesto.core.plans.plan import Plan
from pesto.core.problem import TICK_S
from pesto.planning.solving.candidates import Candidate, shortest_fitting
from pesto.planning.solving.contributions import ContributionLedger
from pesto.planning.solving.interrupt import keep, received
from solvers import relative_gap
from solvers.bounds.evidence import FullBound
from solvers.compiled.interruption import struck


@dataclass(frozen=True, slots=True, kw_only=True)
class Incumbent:
    """The best plan so far, as told to whoever watches."""

    name: str
    """What made the plan: a name in `Provenance.candidates_ticks`."""
    makespan_s: float
    """Predicted seconds of a training step."""
    lower_bound_s: float
    """Seconds that no plan of the full graph can be below."""
    seconds: float
    """Seconds since the solve began."""


Watch = Callable[[Incumbent], None]


@runtime_checkable
class StageWatch(Protocol):
    """A watch that hears of stages, too. It may be called from two threads: bounds are looked for beside the rest."""

    def __call__(self, incumbent: Incumbent) -> None:
        """Hear of a better plan, or bound."""
        ...

    def begins(self, stage: str) -> None:
        """Hear of a stage that begins."""
        ...


@runtime_checkable
class PlanWatch(Protocol):
    """A watch that takes better plans, too, which are made only if it asks for them."""

    def __call__(self, incumbent: Incumbent) -> None:
        """Hear of a better plan, or bound."""
        ...

    def take_plan(self, made: Callable[[], Plan]) -> None:
        """Take a better plan: `made` makes and verifies it, also in another thread; PestoError as of the solve."""
        ...


CLOCK: Callable[[], float] = time.perf_counter
"""Tells the seconds that the time limit is counted in."""
T = TypeVar("T")
Evaluate = Callable[[Candidate, float], Candidate]
"""Makes a candidate as long as a plan may promise; of what is not below so many ticks it need not know how long."""
Stage = Generator[Candidate, None, T]
"""What a stage of a solve is: candidates as they are found, and at the end what later stages need to know."""


class SoFar(Protocol):
    """What a stage may read of what the stages before it, and itself, have found."""

    @property
    def candidates(self) -> Mapping[str, Candidate]:
        """The best candidate of each name."""
        ...

    @property
    def best(self) -> Candidate | None:
        """The shortest candidate that fits the memory."""
        ...

    @property
    def gap(self) -> float:
        """(makespan - lower bound) / makespan of the best plan, on the full graph."""
        ...

    @property
    def left_s(self) -> float:
        """Seconds until the time limit."""
        ...

    @property
    def ledger(self) -> ContributionLedger:
        """Whose turn it is, for what engines contribute."""
        ...


class Tracker:
    """Keeps the best candidate of each name, and tells `watch` of every better plan, or bound."""

    def __init__(self, watch: Watch) -> None:
        self.make: Callable[[Candidate], Plan] | None = None
        """Makes a plan of a candidate, for a `PlanWatch`; None: it takes none."""
        self.price: Evaluate | None = None
        """What becomes the best is priced first; None: candidates are as long as they say."""
        self.candidates: dict[str, Candidate] = {}
        self.nearest: Candidate | None = None
        """Of all that was offered, also where a shorter one of its name was kept, what lacks the fewest bytes."""
        self.stages_s: dict[str, float] = {}
        self.bound = FullBound(0, "none")
        self.interrupted = False
        self.ledger = ContributionLedger()
        self._watch = watch
        self._begins = watch.begins if isinstance(watch, StageWatch) else None
        self._began = time.perf_counter()
        self._limited_at = self._ends = CLOCK()
        self._limit_s = self._spent_s = 0.0

    @property
    def best(self) -> Candidate | None:
        """The shortest candidate that fits the memory."""
        # A copy, as the thread that looks for bounds asks too.
        return shortest_fitting(list(self.candidates.values()))

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
        return relative_gap(best.makespan, self.lower_bound)

    @property
    def proven(self) -> bool:
        """Whether the best plan reaches the lower bound of the full graph: nothing can be better."""
        return self.best is not None and self.best.makespan == self.lower_bound

    def strengthen(self, bound: FullBound, by: str = "bounds") -> None:
        """Take in a lower bound of the full graph, and tell of it beside the best plan."""
        if bound.ticks > self.bound.ticks:
            self.ledger.raised(by, bound.ticks - self.bound.ticks)
            self.bound = bound
            best = self.best
            if best is not None:
                self._tell(best)

    @property
    def left_s(self) -> float:
        """Seconds until the time limit, 0 from then on."""
        return max(self._ends - CLOCK(), 0.0)

    def limit(self, seconds: float, spent_s: float = 0.0) -> None:
        """Let the time limit begin now, with `spent_s` seconds of it used before."""
        self._limited_at = CLOCK()
        self._ends = self._limited_at + seconds - spent_s
        self._limit_s, self._spent_s = seconds, spent_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since the time limit began."""
        return CLOCK() - self._limited_at

    @property
    def used_s(self) -> float:
        """Seconds of the time limit that are used: before it began, and since then."""
        return self._spent_s + self.elapsed_s

    def past(self, share: float, least_s: float) -> bool:
        """Return True if more than this share of the time limit, and `least_s`, is used; never at a limit of 0."""
        return self._limit_s > 0 and self.used_s > max(share * self._limit_s, least_s)

    def keep(self, seconds: float, least: float) -> None:
        """End so many seconds before the time limit, which what comes after it takes; `least` are left in any case."""
        kept = min(seconds, self._ends - CLOCK() - least)
        self._ends -= kept

    def run(self, name: str, stage: Stage[T]) -> T:
        """Offer a stage's candidates as they come, and return what it does; its seconds are kept under `name`."""
        with self.timed(name), closing(stage):
            while True:
                try:
                    self.offer(next(stage))
                except StopIteration as end:
                    returned: T = end.value
                    return returned

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C inside ends what is inside, and no more than that once there is a plan to keep.

        So does any error that comes after it: what an interruption breaks off need not tell of it.
        """
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            if self.best is None or not (struck(error) or received()):
                raise
            self.interrupted = True

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds inside to the stage's."""
        if self._begins is not None:
            self._begins(name)
        began = CLOCK()
        try:
            with self.ledger.at(name):
                yield
        finally:
            self.stages_s[name] = self.stages_s.get(name, 0.0) + CLOCK() - began

    def offer(self, candidate: Candidate) -> None:
        """Keep a candidate if it is its name's first, fits where that did not, or is shorter.

        What would be the best is priced first. The others can only be longer than they say.
        """
        known, leader = self.candidates.get(candidate.name), self.best
        least = math.inf if leader is None else leader.makespan
        if self.price is not None and candidate.turns is None and candidate.fits and candidate.makespan < least:
            candidate = self.price(candidate, least)
        if self.nearest is None or candidate.short < self.nearest.short:
            self.nearest = candidate
        if known is None or (not candidate.fits, candidate.makespan) < (not known.fits, known.makespan):
            self.candidates[candidate.name] = candidate
        if candidate.fits and candidate.makespan < least:
            keep()
            self.ledger.found(candidate.name, candidate.makespan)
            self._tell(candidate)
            if self.make is not None and isinstance(self._watch, PlanWatch):
                self._watch.take_plan(partial(self.make, candidate))

    def settle(self, price: Callable[[Candidate], Candidate]) -> Candidate | None:
        """The best, once whichever of all is best has been priced by `price`."""
        settled: set[str] = set()
        while (best := self.best) is not None and best.name not in settled:
            settled.add(best.name)
            self.candidates[best.name] = price(best)
        return best

    def near(self, share: float, price: Callable[[Candidate], Candidate]) -> list[Candidate]:
        """Candidates that fit and, priced by `price`, are at most `share` longer than the best; the shortest first."""

        def those() -> list[Candidate]:
            best = self.best
            most = -math.inf if best is None else (1 + share) * best.makespan
            found = [c for c in self.candidates.values() if c.fits and c.makespan <= most]
            return sorted(found, key=lambda c: c.makespan)

        for candidate in those():
            self.candidates[candidate.name] = price(candidate)
        return those()

    def _tell(self, candidate: Candidate) -> None:
        self._watch(
            Incumbent(
                name=candidate.name,
                makespan_s=candidate.makespan * TICK_S,
                lower_bound_s=self.lower_bound * TICK_S,
                seconds=time.perf_counter() - self._began,
            )
        )
