"""Monitor of a running solve: its best schedule and bound, reported to `report`, and the result at the end."""

import threading
import time

import numpy as np

from solvers.base import Progress, Report
from solvers.problem import Problem
from solvers.result import Limit, Options, Result, Status, wall_limit_s
from solvers.schedule import Schedule


class SolveMonitor:
    """The best valid schedule and the best lower bound of one run, at full resolution; safe to call from any thread."""

    def __init__(self, problem: Problem, options: Options, report: Report, *, solver: str, version: str) -> None:
        self.problem, self.options = problem, options
        self.lower_bound, self.bound_by = 0, ""
        self.best: Schedule | None = None
        self._solver, self._version, self._report = solver, version, report
        self._lock, self._began = threading.Lock(), time.monotonic()
        self.better_bound(options.lower_bound, "given")
        if options.start is not None:
            self.better_schedule(options.start)
        if not problem.tasks:
            empty = np.zeros(0, dtype=np.int64)
            names = ("device", "start", "finish", "sent_payload", "sent_to", "sent_start", "sent_finish")
            nothing = Schedule(**dict.fromkeys(names, empty))
            self.better_schedule(nothing)

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def remaining(self) -> float:
        """Seconds that are left of the limit."""
        return self.options.seconds - self.elapsed

    @property
    def clock_s(self) -> float:
        """Seconds until the clock ends the run: what is left of the limit, or far more where that is one of work."""
        return wall_limit_s(self.options.seconds, deterministic=self.options.deterministic) - self.elapsed

    @property
    def open_ticks(self) -> int:
        """Ticks between the bound and the best schedule, 0 without one."""
        return self.best.makespan - self.lower_bound if self.best else 0

    @property
    def closed(self) -> bool:
        """True if the best schedule is proven to be optimal."""
        return self.best is not None and not self.open_ticks

    @property
    def within_gap(self) -> bool:
        """True if the gap is closed as far as was asked for."""
        return self.within(self.options.gap)

    def within(self, gap: float) -> bool:
        """Return True if the best schedule is proven to be so near the optimum."""
        with self._lock:
            return self.best is not None and self.open_ticks <= gap * self.best.makespan

    @property
    def known(self) -> tuple[Schedule | None, int]:
        """The best schedule and the best bound, of one moment."""
        with self._lock:
            return self.best, self.lower_bound

    def better_bound(self, bound: int, by: str = "") -> None:
        """Keep a better lower bound in ticks and its source, "" for the solver, and report it."""
        with self._lock:
            if bound > self.lower_bound:
                self.lower_bound, self.bound_by = bound, by or self._solver
                self._tell(None)

    def better_schedule(self, schedule: Schedule) -> None:
        """Keep a valid schedule that is shorter, and report it."""
        with self._lock:
            if self.best is None or schedule.makespan < self.best.makespan:
                self.best = schedule
                self._tell(schedule)

    def log(self, *lines: str) -> None:
        """Pass on lines of the solver's own log."""
        with self._lock:
            self._tell(None, lines)

    def _tell(self, schedule: Schedule | None, log: tuple[str, ...] = ()) -> None:
        bound, by = self.lower_bound, self.bound_by
        self._report(Progress(schedule=schedule, lower_bound=bound, seconds=self.elapsed, bound_by=by, log=log))

    def result(self, limit: Limit, detail: str) -> Result:
        """Return the outcome: optimal where the bound is met, otherwise feasible, or unknown without a schedule."""
        status = Status.FEASIBLE if self.best else Status.UNKNOWN
        if self.closed:
            status, limit, detail = Status.OPTIMAL, Limit.NONE, ""
        return self._result(status, limit, self.best, detail)

    def infeasible(self, detail: str) -> Result:
        """Return the outcome where the solver finds no schedule possible; whatever it knows otherwise is dropped."""
        return self._result(Status.INFEASIBLE, Limit.NONE, None, detail)

    def _result(self, status: Status, limit: Limit, schedule: Schedule | None, detail: str) -> Result:
        return Result(
            status=status,
            limit=limit,
            schedule=schedule,
            lower_bound=self.lower_bound,
            seconds=self.elapsed,
            solver=self._solver,
            version=self._version,
            detail=detail,
            bound_by=self.bound_by,
        )
