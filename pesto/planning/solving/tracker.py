"""The one place that keeps what a solve has found: candidates, the best of them, the bound, and the clock."""

import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

from pesto.core.plans.plan import Plan
from pesto.core.problem import TICK_S
from pesto.planning.solving.candidates import Candidate, shortest_fitting
from pesto.planning.solving.interrupt import keep, received
from solvers import relative_gap
from solvers.bounds.evidence import FullBound
from solvers.compiled.interruption import struck

ENGINES = ("start", "baselines", "list", "repair", "exact", "annealing", "windows", "bounds", "choice")
"""Who contributes: the older plan that a solve began from; baselines and methods of the literature; list schedules of
the graph and of coarser ones; what was moved until it fits; the exact solver on the coarse graph; annealing; exact
windows of the plan; what looks for a better bound beside both; and what became of the best when it was chosen: priced
well, left without an order, or passed over for one of less p90."""
_OF = {
    "start": "start", "list": "list", "levels": "list", "repaired": "repair", "coarse": "exact", "search": "annealing",
    "windows": "windows",
}  # fmt: skip
"""Name of a candidate -> engine; all others are baselines."""
_AT = {
    "start": "start", "baselines": "baselines", "coarsen": "list", "repair": "repair", "solve": "exact",
    "search": "annealing", "verify": "choice",
}  # fmt: skip
"""Name of a stage -> engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """Contribution of one engine to a solve."""

    engine: str
    """A name of `pesto.planning.solving.tracker.ENGINES`."""
    solver: str
    """Solver that it called, a name of `pesto solvers`; "" if it has none."""
    gained: int
    """Ticks that its candidates, each as it came, took off the best plan before. The first plan that fits gains
    nothing: all gains together are what the plan is shorter than that."""
    raised: int
    """Ticks by which it raised the lower bound of the full graph."""
    cpu_s: float
    """CPU seconds, in this process and in those that it started."""


class ContributionLedger:
    """Counts what engines contribute while a solve goes on."""

    def __init__(self) -> None:
        self.first: int | None = None
        """Ticks of the first plan that fits."""
        self._gained, self._cpu_s, self._raised = dict[str, int](), dict[str, float](), dict[str, int]()
        self._bounds_s = 0.0
        self._bounds_clock: tuple[int, float] | None = None
        self._engine, self._since, self._found = "", self._now(), 0

    def found(self, candidate: str, ticks: int) -> None:
        """Note a best plan of so many ticks, which fits; the first is where gains are counted from."""
        if self.first is None:
            self.first = self._found = ticks
        engine = _OF.get(candidate, "baselines")
        self._gained[engine] = self._gained.get(engine, 0) + self._found - ticks
        self._found = ticks

    def raised(self, engine: str, ticks: int) -> None:
        """Note that an engine has made the bound higher by so many ticks."""
        self._raised[engine] = self._raised.get(engine, 0) + ticks

    @contextmanager
    def at(self, engine: str) -> Iterator[None]:
        """CPU seconds inside are an engine's, or those of the one of a stage of that name, and nobody else's."""
        before = self._turn(_AT.get(engine, engine))
        try:
            yield
        finally:
            self._turn(before)

    @contextmanager
    def bounding(self) -> Iterator[None]:
        """CPU seconds of this thread inside are of `bounds`, whoever's turn it is meanwhile."""
        began = time.thread_time()
        self._bounds_clock = time.pthread_getcpuclockid(threading.get_ident()), began
        try:
            yield
        finally:
            self._bounds_clock, self._bounds_s = None, time.thread_time() - began

    def of(self, plan: int, solvers: Mapping[str, str]) -> tuple[Contribution, ...]:
        """Return the contributions of engines that had a turn to a plan of so many ticks; `solvers` are theirs."""
        self._turn(self._engine)
        gained = self._gained | {"choice": self._found - plan}
        cpu_s = self._cpu_s | {"bounds": self._bounds()}
        return tuple(
            Contribution(
                engine=e,
                solver=solvers.get(e, ""),
                gained=gained.get(e, 0),
                raised=self._raised.get(e, 0),
                cpu_s=cpu_s.get(e, 0.0),
            )
            for e in ENGINES
            if e in gained or e in cpu_s
        )

    def _turn(self, engine: str) -> str:
        """Give the turn to another engine; return the one before."""
        now, before = self._now(), self._engine
        self._cpu_s[before] = self._cpu_s.get(before, 0.0) + max(now - self._since, 0.0)
        self._engine, self._since = engine, now
        return before

    def _bounds(self) -> float:
        clock = self._bounds_clock
        if clock is None:
            return self._bounds_s
        try:
            return time.clock_gettime(clock[0]) - clock[1]
        except OSError:  # the thread has just ended
            return self._bounds_s

    def _now(self) -> float:
        """CPU seconds of this process and of those that it started and that have ended, but for bounds."""
        t = os.times()
        return t.user + t.system + t.children_user + t.children_system - self._bounds()


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
"""Clock for the time limit, in seconds."""
T = TypeVar("T")
Evaluate = Callable[[Candidate, float], Candidate]
"""Evaluates a candidate under the worst link tie-breaking found; may stop early once its makespan reaches the given
cutoff in ticks."""
Stage = Generator[Candidate, None, T]
"""A stage of a solve: yields candidates as they are found and returns what later stages need."""


class SoFar(Protocol):
    """The part of the tracker that a stage may read."""

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
        """Ledger of what engines contribute."""
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
        """The candidate with the smallest memory shortfall seen so far, kept even if another candidate of the same name
        replaced it."""
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
        """True if the best plan reaches the lower bound of the full graph: nothing can be better."""
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
        """Return the best candidate, once whichever of all is best has been priced by `price`."""
        settled: set[str] = set()
        while (best := self.best) is not None and best.name not in settled:
            settled.add(best.name)
            self.candidates[best.name] = price(best)
        return best

    def near(self, share: float, price: Callable[[Candidate], Candidate]) -> list[Candidate]:
        """Return candidates that fit and, priced, are at most `share` longer than the best, the shortest first."""

        def nearly_best() -> list[Candidate]:
            best = self.best
            limit = -math.inf if best is None else (1 + share) * best.makespan
            near = [c for c in self.candidates.values() if c.fits and c.makespan <= limit]
            return sorted(near, key=lambda c: c.makespan)

        for candidate in nearly_best():
            self.candidates[candidate.name] = price(candidate)
        return nearly_best()

    def _tell(self, candidate: Candidate) -> None:
        self._watch(
            Incumbent(
                name=candidate.name,
                makespan_s=candidate.makespan * TICK_S,
                lower_bound_s=self.lower_bound * TICK_S,
                seconds=time.perf_counter() - self._began,
            )
        )
