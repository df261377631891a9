"""The race of the portfolio's engines: who runs next, for how long, and what is shared between legs."""

import threading
import time
from dataclasses import dataclass, replace
from functools import partial

from solvers import api
from solvers.base import Progress, Report, SolveMonitor, SolverEntry
from solvers.bounds.strong import VERSION
from solvers.problem import Problem
from solvers.process import parent
from solvers.process.judge import Judge
from solvers.result import FAILED, SEEDS, Limit, Options, Result

ARGUMENTS = "bounds"
"""The engine that finds no schedules, and so is none of the table of solvers."""
_ARGUMENTS = SolverEntry(module="solvers.bounds.strong", attribute="BoundSolver", isolated=True)
_LEAST_S = 3.0
"""Seconds of a leg at least: a process starts and builds its model anew in each."""
_FIRST = 1 / 8
"""Share of the limit that an engine's first leg takes; each later one is twice as long."""
_ARGUED = 1 / 6
"""Share of the limit that the arguments get."""
_STOPPED = frozenset({Limit.TIME, Limit.GAP, Limit.INTERRUPT})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """One finished run of one engine."""

    engine: str
    allowed: float
    """Seconds that the run was given."""
    seconds: float
    gain: float
    """Relative fall of the makespan plus relative rise of the bound, by anyone, meanwhile."""


class EngineRace:
    """Lanes that share a `SolveMonitor`. Every lane is one thread with one engine's process at a time."""

    def __init__(self, watch: SolveMonitor, engines: tuple[str, ...]) -> None:
        self._watch = watch
        self._halted = False
        self._stops: dict[str, threading.Event] = {}
        self._idle = list(engines)
        self._legs: list[EngineRun] = []
        self._dropped: dict[str, str] = {}
        self._denied: list[str] = []
        self._lock = threading.Lock()

    def halt(self) -> None:
        """End the race: what runs is stopped, nothing more is begun."""
        with self._lock:
            self._halted = True
            for stop in self._stops.values():
                stop.set()

    def lane(self) -> None:
        """Run engines one after the other until the race is over."""
        while not self._over():
            engine = self._take()
            if engine is None:
                return
            self._leg(engine, self._seconds(engine))

    def argue(self) -> None:
        """Run the solver-free arguments, once."""
        options = self._watch.options
        self._leg(ARGUMENTS, options.seconds * (1.0 if options.deterministic else _ARGUED))

    def result(self) -> Result:
        """The best of all; infeasible where two engines found no schedule possible and none found one."""
        watch = self._watch
        if watch.best is None and len(self._denied) > 1:
            return watch.infeasible(f"{' and '.join(sorted(self._denied))} agree that no schedule exists")
        limit = Limit.TIME
        if watch.within_gap:
            limit = Limit.GAP
        elif not self._idle and not self._halted:
            limit = Limit.OTHER
        why = [f"{name} {text}" for name, text in self._dropped.items()]
        if watch.options.deterministic and self._halted and not watch.within_gap:
            why.append("ended by the wall clock, so not repeatable - run it on an idle machine")
        return replace(watch.result(limit, ""), detail="; ".join(why))

    def _over(self) -> bool:
        return self._halted or self._watch.within_gap or self._left() <= 0

    def _left(self) -> float:
        """Seconds that are left: of what was handed out where the clock must not decide, else of the clock."""
        watch = self._watch
        if not watch.options.deterministic:
            return watch.remaining
        return watch.options.seconds - sum(leg.allowed for leg in self._legs if leg.engine != ARGUMENTS)

    def _take(self) -> str | None:
        """The engine that runs next, which is then no longer idle."""
        with self._lock:
            if not self._idle:
                return None
            best = max(self._idle, key=self._promise)
            self._idle.remove(best)
            return best

    def _promise(self, engine: str) -> tuple[bool, float, int]:
        """Never run comes first, then the gain in a second of the last leg, then the fewest legs."""
        legs = self._legs_of(engine)
        if not legs:
            return True, 0.0, 0
        pace = 0.0 if self._watch.options.deterministic else legs[-1].gain / max(legs[-1].seconds, 0.1)
        return False, pace, -len(legs)

    def _legs_of(self, engine: str) -> list[EngineRun]:
        return [leg for leg in self._legs if leg.engine == engine]

    def _seconds(self, engine: str) -> float:
        """Return the seconds of the engine's next run; all that are left if the rest were too short for another one."""
        left = self._left()
        with self._lock:
            before = len(self._legs_of(engine))
            waiting = any(not self._legs_of(other) for other in self._idle)
        seconds = max(_LEAST_S, _FIRST * self._watch.options.seconds * 2**before)
        if waiting:
            # An engine that hangs must leave time for those that have not run.
            return min(seconds, left / 2)
        return left if left - seconds < max(_LEAST_S, seconds / 2) else seconds

    def _leg(self, engine: str, seconds: float) -> None:
        watch, began = self._watch, time.monotonic()
        start, bound = watch.known
        with self._lock:
            before, stop = len(self._legs_of(engine)), threading.Event()
            self._stops[engine] = stop
            if self._halted:
                stop.set()
        # A new seed in each leg, so that none repeats the last.
        seed = (watch.options.seed + before) % SEEDS
        options = replace(watch.options, seconds=max(0.0, seconds), seed=seed, start=start, lower_bound=bound)
        run = partial(arguments, watch.problem) if engine == ARGUMENTS else partial(api.solve, watch.problem, engine)
        result = run(options, report=lambda progress: self._heard(stop, progress), stop=stop)
        if result.schedule is not None:
            watch.better_schedule(result.schedule)
        if result.status not in FAILED:
            watch.better_bound(result.lower_bound, result.bound_by)
        took = time.monotonic() - began
        gain = _fall(start.makespan if start else None, watch.best.makespan if watch.best else None)
        gain += (watch.lower_bound - bound) / max(watch.lower_bound, 1)
        with self._lock:
            del self._stops[engine]
            self._legs.append(EngineRun(engine=engine, allowed=seconds, seconds=took, gain=gain))
            self._settle(engine, result)
            agreed = len(self._denied) > 1 and watch.best is None
        if watch.within_gap or agreed:
            self.halt()

    def _settle(self, engine: str, result: Result) -> None:
        """Record how an engine's run ended: failed, without any schedule, or idle until its next turn."""
        if result.status in FAILED:
            self._dropped[engine] = f"{result.status}: {result.detail}"
            self._watch.log(f"{engine} {self._dropped[engine]}")
        elif result.limit is Limit.UNCONFIRMED:
            self._denied.append(engine)
        elif result.limit in _STOPPED and engine != ARGUMENTS:
            # One that ended by itself has nothing more to give.
            self._idle.append(engine)

    def _heard(self, stop: threading.Event, progress: Progress) -> None:
        watch = self._watch
        if progress.schedule is not None:
            watch.better_schedule(progress.schedule)
        if progress.log:
            watch.log(*progress.log)
        best = watch.best
        if best is not None and best.makespan - progress.lower_bound <= watch.options.gap * best.makespan:
            # Closed by what this engine has proven so far: its result will say so, and only then all is over.
            stop.set()


def arguments(problem: Problem, options: Options, *, report: Report, stop: threading.Event) -> Result:
    """Run `solvers.bounds` in a process of its own, since its compiled code checks the clock only rarely."""
    judge = Judge(problem, options, report, solver=ARGUMENTS, version=VERSION)
    return parent.run(problem, _ARGUMENTS, options, judge, stop=stop)


def _fall(before: int | None, after: int | None) -> float:
    """Relative fall of the makespan; 1.0 for the first schedule."""
    if after is None:
        return 0.0
    return 1.0 if before is None else (before - after) / max(before, 1)
