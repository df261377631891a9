"""`auto`: heuristics, then several exact engines on the cores there are, which share what they find.

    heuristics    the list schedule is the first incumbent, seconds at most
    bounds        the solver-free arguments of `solvers.bounds.strong` are the first bound
    race          lanes of processes: each runs one engine for a leg, the next leg starts with the best schedule and
                  the best bound that any engine has found, and goes to the engine that closed most of the gap in a
                  second of its last leg (those without a leg first)

It ends when gap, limit or Ctrl-C say so, or a proof is complete, and returns the best schedule with the best bound. An
engine that fails is dropped, and named in the detail. That no schedule exists is said where two engines agree.
"""

import os
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib import metadata

from solvers import bounds
from solvers.auto.race import Race
from solvers.base import Progress, Report
from solvers.bounding.strong import strong
from solvers.entry import OWN
from solvers.heuristics.list import ListScheduler
from solvers.problem import Problem
from solvers.result import Limit, Options, Result
from solvers.watch import Watch

ENGINES = ("cpsat", "highs", "highs", "scip")
"""Engines by rank; of these, one more than there are lanes take part."""
CORES_PER_LANE = 2
"""CP-SAT's eight workers gain little beyond two cores on graphs of 200 tasks, and lose much on one."""
_HEURISTICS, _BOUNDS = 0.1, 0.1
"""Shares of the limit that come before the race, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """The portfolio as a `Solver`. It runs here, its engines in processes of their own."""

    engines: tuple[str, ...] = ENGINES
    cores: int | None = None
    """Cores to use; None for those that this process may run on."""

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """The best schedule and bound of all that take part, within `options`."""
        watch = Watch(problem, options, report, solver="auto", version=_version())
        proof = bounds.memory_proof(problem)
        if proof is not None:
            return watch.infeasible(proof)
        _first_schedule(watch)
        _first_bound(watch)
        if watch.within_gap:
            return watch.result(Limit.GAP, "")
        lanes = max(1, (self.cores or len(os.sched_getaffinity(0))) // CORES_PER_LANE)
        if options.deterministic:
            lanes = 1
        race = Race(watch, self.engines[: lanes + 1], lanes)
        _run(race, lanes)
        return race.result()


def _version() -> str:
    try:
        return metadata.version(OWN)
    except metadata.PackageNotFoundError:
        return ""


def _first_schedule(watch: Watch) -> None:
    def report(progress: Progress) -> None:
        if progress.schedule is not None:
            watch.better_schedule(progress.schedule)

    options = watch.options
    quick = Options(seconds=_HEURISTICS * options.seconds, start=watch.best, deterministic=options.deterministic)
    found = ListScheduler().solve(watch.problem, quick, report)
    watch.better_bound(found.lower_bound, found.bound_by)


def _first_bound(watch: Watch) -> None:
    upper = watch.best.makespan if watch.best else None
    found = strong(watch.problem, upper=upper, seconds=_BOUNDS * watch.options.seconds)
    watch.better_bound(found.ticks, found.name)


def _run(race: Race, lanes: int) -> None:
    """Run all lanes to their ends; what ends one early, Ctrl-C too, stops all."""
    with ThreadPoolExecutor(lanes) as pool:
        running: list[Future[None]] = []
        try:
            running += [pool.submit(race.lane) for _ in range(lanes)]
            for ended in wait(running, return_when=FIRST_EXCEPTION).done:
                ended.result()
        except BaseException:
            race.stop.set()
            raise
