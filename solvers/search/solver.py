"""Search as a solver: annealing from a list schedule, then neighbourhoods of the best searched exactly by CP-SAT."""

import os
from dataclasses import dataclass, replace
from importlib import metadata

import numpy as np

from solvers.arrays import ints, rank_of
from solvers.base import Progress, Report
from solvers.bounds import quick_bounds
from solvers.cpsat.solver import CpSatWindows
from solvers.heuristics.list_solver import ListScheduler
from solvers.problem import Problem
from solvers.progress import SolveMonitor
from solvers.result import Limit, Options, Result, Status
from solvers.schedule import Schedule
from solvers.search.annealing import PointValue, Temperature, Walk
from solvers.search.parallel import WalkBudget, walk_all
from solvers.search.workspace import Solution, Workspace

_HEAT = Temperature(1e-2, 1e-4)
_LANES, _STRETCHES = 2, 20
"""Walks at once, and stretches that stand for a second, when deterministic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSearch:
    """Local search with links first come, first served; then windows, which order transfers as well."""

    walking: float = 0.4
    """Share of the limit that annealing may take."""
    heat: Temperature = _HEAT

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Improve on `options.start`, or on a list schedule, within `options`; windows begin where memory defeats that.

        "optimal" only where a bound that needs no solver is met; infeasible only with a proof.
        """
        watch = SolveMonitor(problem, options, report, solver="search", version=metadata.version("ortools"))
        watch.better_bound(*quick_bounds.best(problem))
        first = ListScheduler().solve(problem, replace(options, start=None), _nobody)
        if first.status is Status.INFEASIBLE:
            return watch.infeasible(first.detail)
        if first.schedule is not None:
            watch.better_schedule(first.schedule)
        if watch.best is not None and not watch.within_gap:
            self._walk(watch, watch.best)
        if not watch.within_gap and watch.remaining > 0:
            left = (1 - self.walking) * options.seconds if options.deterministic else watch.remaining
            _windows(watch, left)
        return watch.result(Limit.GAP if watch.within_gap else Limit.TIME, "")

    def _walk(self, watch: SolveMonitor, start: Schedule) -> None:
        options, arena = watch.options, Workspace.of(watch.problem, [])
        lanes = _LANES if options.deterministic else max(1, min(os.cpu_count() or 1, options.workers))
        seconds = min(self.walking * options.seconds, max(watch.remaining, 0.0))
        stretches = int(self.walking * options.seconds * _STRETCHES) if options.deterministic else None

        def weigh(spot: Solution) -> PointValue:
            held = np.zeros(watch.problem.locations, dtype=np.int64)
            np.add.at(held, spot.at, watch.problem.memory)
            over = ints(np.maximum(held - watch.problem.capacity, 0))
            return PointValue(
                makespan=spot.makespan, device=arena.devices(spot.at), rank=rank_of(spot.order), over=over
            )

        spot = arena.spot_of(start)
        walks = [Walk(arena, spot, self.heat, weigh, options.seed + lane) for lane in range(lanes)]
        for found in walk_all(walks, WalkBudget(seconds=seconds, stretches=stretches), lambda: watch.within_gap):
            watch.better_schedule(arena.run(found.device, found.rank))


def _windows(watch: SolveMonitor, seconds: float) -> None:
    """Large neighbourhoods of the best schedule, each searched exactly."""

    def report(progress: Progress) -> None:
        watch.better_bound(progress.lower_bound, progress.bound_by)
        if progress.schedule is not None:
            watch.better_schedule(progress.schedule)

    options = replace(watch.options, start=watch.best, seconds=seconds)
    CpSatWindows().solve(watch.problem, options, report)


def _nobody(progress: Progress) -> None:
    del progress
