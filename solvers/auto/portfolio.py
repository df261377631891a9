"""`auto`: heuristics, then several exact engines on the cores there are, which share what they find.

    heuristics    the list schedule is the first incumbent, seconds at most
    race          the solver-free arguments (`bounds`) once, beside lanes of processes: each runs one engine for a leg,
                  the next leg starts with the best schedule and the best bound of all engines, and goes to the engine
                  that closed most of the gap in a second of its last leg (those without a leg first)

It ends when gap, limit or Ctrl-C say so, or a proof is complete, and returns the best schedule with the best bound. A
bound is shared once the leg that found it has ended well: an engine that crashes, hangs or lies is dropped with what
it claimed, and named in the detail. That no schedule exists is said where two engines agree.
"""

import os
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata

from solvers import api
from solvers.base import OWN, Progress, Report, SolveMonitor, SolverEntry
from solvers.bounds import quick_bounds
from solvers.bounds.strong import VERSION
from solvers.heuristics.list_solver import ListScheduler
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
        while not (self._halted or self._watch.within_gap or self._left() <= 0):
            engine = self._take()
            if engine is None:
                return
            # The seconds of its run: all that are left if the rest were too short for another one.
            left = self._left()
            with self._lock:
                before = len(self._legs_of(engine))
                waiting = any(not self._legs_of(other) for other in self._idle)
            seconds = max(_LEAST_S, _FIRST * self._watch.options.seconds * 2**before)
            if waiting:
                # An engine that hangs must leave time for those that have not run.
                seconds = min(seconds, left / 2)
            elif left - seconds < max(_LEAST_S, seconds / 2):
                seconds = left
            self._leg(engine, seconds)

    def argue(self) -> None:
        """Run the solver-free arguments, once."""
        options = self._watch.options
        self._leg(ARGUMENTS, options.seconds * (1.0 if options.deterministic else _ARGUED))

    def result(self) -> Result:
        """Return the best of all; infeasible where two engines found no schedule possible and none found one."""
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

    def _leg(self, engine: str, seconds: float) -> None:
        watch, began = self._watch, time.monotonic()

        def hear(progress: Progress) -> None:
            if progress.schedule is not None:
                watch.better_schedule(progress.schedule)
            if progress.log:
                watch.log(*progress.log)
            best = watch.best
            if best is not None and best.makespan - progress.lower_bound <= watch.options.gap * best.makespan:
                # Closed by what this engine has proven so far: its result will say so, and only then all is over.
                stop.set()

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
        result = run(options, report=hear, stop=stop)
        if result.schedule is not None:
            watch.better_schedule(result.schedule)
        if result.status not in FAILED:
            watch.better_bound(result.lower_bound, result.bound_by)
        took = time.monotonic() - began
        gain = 0.0 if watch.best is None else 1.0
        if watch.best is not None and start is not None:
            gain = (start.makespan - watch.best.makespan) / max(start.makespan, 1)
        gain += (watch.lower_bound - bound) / max(watch.lower_bound, 1)
        with self._lock:
            del self._stops[engine]
            self._legs.append(EngineRun(engine=engine, allowed=seconds, seconds=took, gain=gain))
            if result.status in FAILED:
                self._dropped[engine] = f"{result.status}: {result.detail}"
                watch.log(f"{engine} {self._dropped[engine]}")
            elif result.limit is Limit.UNCONFIRMED:
                self._denied.append(engine)
            elif result.limit in _STOPPED and engine != ARGUMENTS:
                # One that ended by itself has nothing more to give.
                self._idle.append(engine)
            agreed = len(self._denied) > 1 and watch.best is None
        if watch.within_gap or agreed:
            self.halt()


def arguments(problem: Problem, options: Options, *, report: Report, stop: threading.Event) -> Result:
    """Run `solvers.bounds` in a process of its own, since its compiled code checks the clock only rarely."""
    judge = Judge(problem, options, report, solver=ARGUMENTS, version=VERSION)
    return parent.run(problem, _ARGUMENTS, options, judge, stop=stop)


ENGINES = ("cpsat", "cpsat-windows", "highs", "scip")
"""Engines by rank; of these, one more than there are lanes take part."""
CORES_PER_LANE = 2
"""CP-SAT's eight workers gain little beyond two cores on graphs of 200 tasks, and lose much on one."""
_HEURISTICS = 0.1
"""Share of the limit that comes before the race, at most."""
_GRACE_S = 1.0
"""Seconds past the limit after which whatever still runs is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """The portfolio as a `Solver`. It runs here, its engines in processes of their own."""

    engines: tuple[str, ...] = ENGINES
    cores: int | None = None
    """Cores to use; None for those that this process may run on."""
    stop: threading.Event | None = None
    """Ends the race once another thread has set it, which it does in the end in any case."""

    def until(self, stop: threading.Event) -> "Auto":
        """Return the same portfolio, which ends once `stop` is set."""
        return replace(self, stop=stop)

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Return the best schedule and bound of all that take part, within `options`."""
        try:
            version = metadata.version(OWN)
        except metadata.PackageNotFoundError:
            version = ""
        watch = SolveMonitor(problem, options, report, solver="auto", version=version)
        if problem.lives is not None:
            # With bytes that come and go: a list schedule, repaired, and the one engine that knows of them.
            quick = replace(options, seconds=_HEURISTICS * options.seconds)
            start = api.solve(problem, "list", quick, stop=self.stop).schedule
            rest = replace(options, seconds=(1 - _HEURISTICS) * options.seconds, start=start)
            return api.solve(problem, "cpsat", rest, report=report, stop=self.stop)
        proof = quick_bounds.memory_proof(problem)
        if proof is not None:
            return watch.infeasible(proof)
        _first_schedule(watch)
        if watch.within_gap:
            return watch.result(Limit.GAP, "")
        lanes = max(1, (self.cores or len(os.sched_getaffinity(0))) // CORES_PER_LANE)
        if options.deterministic:
            lanes = 1
        race = EngineRace(watch, self.engines[: lanes + 1])
        if self.stop is not None:
            stop = self.stop

            def halt_at_stop() -> None:
                stop.wait()  # whoever gave it sets it sooner or later
                race.halt()

            threading.Thread(target=halt_at_stop, daemon=True).start()
        # Run all lanes to their ends; what ends one early, Ctrl-C too, stops all, and so does the clock.
        allowed = watch.clock_s + _GRACE_S
        clock = threading.Timer(max(0.0, min(allowed, threading.TIMEOUT_MAX)), race.halt)
        clock.daemon = True
        clock.start()
        if watch.options.deterministic:
            # Beside the lanes, the clock would decide which of their legs is given its bound.
            race.argue()
        with ThreadPoolExecutor(lanes + 1) as pool:
            running: list[Future[None]] = []
            try:
                if not watch.options.deterministic:
                    running.append(pool.submit(race.argue))
                running += [pool.submit(race.lane) for _ in range(lanes)]
                for ended in wait(running, return_when=FIRST_EXCEPTION).done:
                    ended.result()
            except BaseException:
                race.halt()
                raise
            finally:
                clock.cancel()
        return race.result()


def _first_schedule(watch: SolveMonitor) -> None:
    def report(progress: Progress) -> None:
        if progress.schedule is not None:
            watch.better_schedule(progress.schedule)

    quick = replace(watch.options, seconds=_HEURISTICS * watch.options.seconds, start=watch.best)
    result = ListScheduler().solve(watch.problem, quick, report)
    watch.better_bound(*quick_bounds.best(watch.problem))
    if result.schedule is not None:
        watch.better_schedule(result.schedule)
