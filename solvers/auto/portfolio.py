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
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from importlib import metadata

from solvers import api
from solvers.auto.race import EngineRace
from solvers.base import OWN, Progress, Report, SolveMonitor
from solvers.bounds import quick_bounds
from solvers.heuristics.list_solver import ListScheduler
from solvers.problem import Problem
from solvers.result import Limit, Options, Result

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
        """The same portfolio, which ends once `stop` is set."""
        return replace(self, stop=stop)

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """The best schedule and bound of all that take part, within `options`."""
        watch = SolveMonitor(problem, options, report, solver="auto", version=_version())
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
            threading.Thread(target=_halt_once, args=(race, self.stop), daemon=True).start()
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


def _version() -> str:
    try:
        return metadata.version(OWN)
    except metadata.PackageNotFoundError:
        return ""


def _first_schedule(watch: SolveMonitor) -> None:
    def report(progress: Progress) -> None:
        if progress.schedule is not None:
            watch.better_schedule(progress.schedule)

    quick = replace(watch.options, seconds=_HEURISTICS * watch.options.seconds, start=watch.best)
    found = ListScheduler().solve(watch.problem, quick, report)
    watch.better_bound(*quick_bounds.best(watch.problem))
    if found.schedule is not None:
        watch.better_schedule(found.schedule)


def _halt_once(race: EngineRace, stop: threading.Event) -> None:
    """In a thread of its own: end the race when it is time; whoever gave `stop` sets it sooner or later."""
    stop.wait()
    race.halt()
