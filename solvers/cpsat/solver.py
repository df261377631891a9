"""CP-SAT as a `Solver`: builds the interval model, streams what it finds, claims what full resolution proves."""

import math
import threading
import time
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from solvers import bounds
from solvers.base import Progress, Report
from solvers.cpsat.model import Model, build
from solvers.cpsat.scale import HORIZON, Scaled, scale
from solvers.cpsat.translate import add_hint, rough_schedule
from solvers.problem import Problem
from solvers.rebuild import rebuild
from solvers.result import Limit, Options, Result, Status
from solvers.schedule import Schedule

NAME = "cpsat"
_EFFORT = 0.25
"""CP-SAT's deterministic seconds in a second of `Options.seconds`. One takes about 1.5 s on two idle cores, and up
to eight more are spent than asked for: the wall clock ends no run of a minute there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpSat:
    """OR-Tools CP-SAT on the interval model of `solvers.cpsat.model`."""

    horizon: int = HORIZON
    """Ticks of a schedule beyond which times are rounded to coarser ticks."""

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Solve within `options`; never worse than `options.start`.

        "optimal" is claimed only where the bound at full resolution equals the makespan. RuntimeError when CP-SAT
        refuses the model.
        """
        watch = _Watch(problem, options, report)
        watch.better_bound(bounds.best(problem)[0])
        if options.start is not None:
            watch.better_schedule(options.start)
        if not problem.tasks:
            watch.better_schedule(_nothing())
        if watch.closed or options.seconds == 0:
            return watch.result(Limit.TIME, "")
        scaled = scale(problem, options.start, self.horizon)
        model = _model(scaled, options.start, watch.lower_bound)
        solver = _solver(options, watch.remaining)
        solver.best_bound_callback = lambda bound: watch.better_bound(scaled.bound(_whole(bound, scaled.horizon)))
        # Which of several threads' solutions a callback hears first is up to the scheduler of the machine.
        found = solver.solve(model.cp, None if options.deterministic else _Incumbents(model, watch))
        if found == cp_model.MODEL_INVALID:
            raise RuntimeError(f"CP-SAT refuses the model: {model.cp.validate()}")
        if found == cp_model.INFEASIBLE:
            return watch.infeasible()
        if found in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            watch.better_schedule(rebuild(problem, rough_schedule(model, solver.value)))
            watch.better_bound(scaled.bound(_whole(solver.best_objective_bound, scaled.horizon)))
        if found == cp_model.OPTIMAL and not watch.closed:
            return watch.result(*_short_of_proof(options, watch.open_ticks))
        return watch.result(Limit.TIME, _repeatable(solver, options))


def _short_of_proof(options: Options, ticks: int) -> tuple[Limit, str]:
    # CP-SAT says "optimal" for a run that its gap limit ended, too.
    if options.gap > 0:
        return Limit.GAP, ""
    return Limit.OTHER, f"optimal up to rounding of {ticks} ticks"


def _repeatable(solver: Any, options: Options) -> str:
    """Owns up where the wall clock, and not the effort, ended a run that was to be deterministic."""
    if options.deterministic and solver.deterministic_time < solver.parameters.max_deterministic_time:
        return "ended by the wall clock, so not repeatable - run it on an idle machine"
    return ""


def _model(scaled: Scaled, start: Schedule | None, bound: int) -> Model:
    first = None if start is None else rebuild(scaled.problem, start)
    most = scaled.horizon if first is None else first.makespan
    model = build(scaled.problem, least=min(most, scaled.at_least(bound)), most=most)
    if first is not None:
        add_hint(model, first)
    return model


def _solver(options: Options, seconds: float) -> Any:
    solver = cp_model.CpSolver()
    p = solver.parameters
    p.num_workers = options.workers
    p.random_seed = options.seed
    p.max_time_in_seconds = max(0.001, seconds)
    p.relative_gap_limit = options.gap
    if options.deterministic:
        p.interleave_search = True
        p.max_deterministic_time = _EFFORT * options.seconds
    return solver


def _whole(bound: float, horizon: int) -> int:
    # Infinite before the first bound, and beyond any schedule once the search space is empty.
    return math.ceil(min(max(bound, 0.0), horizon) - 1e-6)


def _nothing() -> Schedule:
    empty = np.zeros(0, dtype=np.int64)
    names = ("device", "start", "finish", "sent_payload", "sent_to", "sent_start", "sent_finish")
    return Schedule(**dict.fromkeys(names, empty))


class _Watch:
    """The best schedule and bound so far at full resolution; CP-SAT's threads tell it, it tells `report`."""

    def __init__(self, problem: Problem, options: Options, report: Report) -> None:
        self.problem, self.options = problem, options
        self.lower_bound = 0
        self.best: Schedule | None = None
        self._report, self._lock, self._began = report, threading.Lock(), time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def remaining(self) -> float:
        return self.options.seconds - self.elapsed

    @property
    def open_ticks(self) -> int:
        return self.best.makespan - self.lower_bound if self.best else 0

    @property
    def closed(self) -> bool:
        return self.best is not None and not self.open_ticks

    def better_bound(self, bound: int) -> None:
        with self._lock:
            if bound > self.lower_bound:
                self.lower_bound = bound
                self._tell(None)

    def better_schedule(self, schedule: Schedule) -> None:
        with self._lock:
            if self.best is None or schedule.makespan < self.best.makespan:
                self.best = schedule
                self._tell(schedule)

    def _tell(self, schedule: Schedule | None) -> None:
        self._report(Progress(schedule=schedule, lower_bound=self.lower_bound, seconds=self.elapsed))

    def result(self, limit: Limit, detail: str) -> Result:
        status = Status.FEASIBLE if self.best else Status.UNKNOWN
        if self.closed:
            status, limit, detail = Status.OPTIMAL, Limit.NONE, ""
        return self._result(status, limit, self.best, detail)

    def infeasible(self) -> Result:
        return self._result(Status.INFEASIBLE, Limit.NONE, None, "CP-SAT finds the model infeasible")

    def _result(self, status: Status, limit: Limit, schedule: Schedule | None, detail: str) -> Result:
        return Result(
            status=status,
            limit=limit,
            schedule=schedule,
            lower_bound=self.lower_bound,
            seconds=self.elapsed,
            solver=NAME,
            version=metadata.version("ortools"),
            detail=detail,
        )


class _Incumbents(cp_model.CpSolverSolutionCallback):
    """Rebuilds each of CP-SAT's solutions at full resolution."""

    def __init__(self, model: Model, watch: _Watch) -> None:
        super().__init__()
        self._model, self._watch = model, watch

    def on_solution_callback(self) -> None:
        """Called by CP-SAT for each better solution."""
        self._watch.better_schedule(rebuild(self._watch.problem, rough_schedule(self._model, self.value)))
