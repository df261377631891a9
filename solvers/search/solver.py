"""Search as a solver: annealing from a list schedule, then neighbourhoods of the best searched exactly by CP-SAT."""

import os
from dataclasses import dataclass, replace
from importlib import metadata

import numpy as np

from solvers.arrays import ints, rank_of
from solvers.base import Progress, Report, SolveMonitor
from solvers.bounds import quick_bounds
from solvers.cpsat.solver import CpSatWindows
from solvers.heuristics.list_solver import ListScheduler
from solvers.problem import Problem
from solvers.result import Limit, Options, Result, Status
from solvers.schedule import Schedule
from solvers.search.annealing import PointValue, Temperature, Walk, WalkBudget, walk_all
from solvers.search.workspace import Solution, Workspace

_HEAT = Temperature(1e-2, 1e-4)
_LANES, _STRETCHES = 2, 20
"""Walks at once, and stretches that stand for a second, when deterministic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSearch:
    """Local search with links first come, first served; then windows, which order transfers as well."""

    walking: float = 0.4
    """Share of the limit that annealing may take."""

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Improve on `options.start`, or on a list schedule, within `options`; windows begin where memory defeats that.

        "optimal" only where a bound that needs no solver is met; infeasible only with a proof.
        """
        monitor = SolveMonitor(problem, options, report, solver="search", version=metadata.version("ortools"))
        monitor.better_bound(*quick_bounds.best(problem))
        first = ListScheduler().solve(problem, replace(options, start=None), lambda _: None)
        if first.status is Status.INFEASIBLE:
            return monitor.infeasible(first.detail)
        if first.schedule is not None:
            monitor.better_schedule(first.schedule)
        if monitor.best is not None and not monitor.within_gap:
            self._anneal(monitor, monitor.best)
        if not monitor.within_gap and monitor.remaining > 0:
            # Large neighbourhoods of the best schedule, each searched exactly.
            seconds = (1 - self.walking) * options.seconds if options.deterministic else monitor.remaining

            def forward(progress: Progress) -> None:
                monitor.better_bound(progress.lower_bound, progress.bound_by)
                if progress.schedule is not None:
                    monitor.better_schedule(progress.schedule)

            CpSatWindows().solve(problem, replace(options, start=monitor.best, seconds=seconds), forward)
        return monitor.result(Limit.GAP if monitor.within_gap else Limit.TIME, "")

    def _anneal(self, monitor: SolveMonitor, start: Schedule) -> None:
        options, problem, workspace = monitor.options, monitor.problem, Workspace.of(monitor.problem, [])
        lanes = _LANES if options.deterministic else max(1, min(os.cpu_count() or 1, options.workers))
        seconds = min(self.walking * options.seconds, max(monitor.remaining, 0.0))
        stretches = int(self.walking * options.seconds * _STRETCHES) if options.deterministic else None

        def evaluate(solution: Solution) -> PointValue:
            held = np.zeros(problem.locations, dtype=np.int64)
            np.add.at(held, solution.at, problem.memory)
            over = ints(np.maximum(held - problem.capacity, 0))
            device, rank = workspace.devices(solution.at), rank_of(solution.order)
            return PointValue(makespan=solution.makespan, device=device, rank=rank, over=over)

        first = workspace.solution_of(start)
        walks = [Walk(workspace, first, _HEAT, evaluate, options.seed + lane) for lane in range(lanes)]
        for value in walk_all(walks, WalkBudget(seconds=seconds, stretches=stretches), lambda: monitor.within_gap):
            monitor.better_schedule(workspace.run(value.device, value.rank))
