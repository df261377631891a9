"""Decides what of a solver's claims is believed: every schedule is checked, every bound compared with what is known.

event                                             status        kept
valid answer                                      as claimed    the best valid schedule, the best bound
invalid schedule, bound above a valid makespan,   invalid       the best valid schedule, bounds of
  `solvers.bounds.quick_bounds` optimal without proof, infeasible although
  a valid schedule is known, malformed frames
infeasible, confirmed by a memory proof, or with   infeasible    the proof
  lives by all orders, one activity at a time
infeasible, confirmed by nothing                  unknown       bounds of `solvers.bounds.quick_bounds`
crash, hang, missing package                      as it is      the best valid schedule, the best bound
"""

import time

from solvers.base import Progress, Report
from solvers.bounds import quick_bounds
from solvers.checker import check
from solvers.memory.one_by_one import nothing_fits
from solvers.problem import Problem
from solvers.result import ANSWERED, Limit, Options, Result, Status
from solvers.schedule import Schedule

_LOG_KEPT = 1000
"""Lines of a solver's log that wait to be told, at most: the last ones."""


class Judge:
    """State of one solver's run: the best valid schedule, the best bound, and the first false claim."""

    def __init__(self, problem: Problem, options: Options, report: Report, *, solver: str, version: str) -> None:
        """Raise ValueError when `options.start` is invalid."""
        self.problem, self.options = problem, options
        self.lie = ""
        self._report, self._solver, self._version = report, solver, version
        self._began = time.monotonic()
        self._best = options.start
        wrong = check(problem, options.start) if options.start is not None else ()
        if wrong:
            raise ValueError(f"options.start is not a valid schedule: {wrong[0].text}")
        if options.start is not None and options.lower_bound > options.start.makespan:
            raise ValueError(f"options.lower_bound {options.lower_bound} is above the makespan of options.start")
        self._proven, self._proven_by = max(quick_bounds.best(problem), (options.lower_bound, "given"))
        self._bound, self._bound_by = self._proven, self._proven_by
        self._better = self._higher = False
        self._log: list[str] = []

    def begin(self) -> None:
        """Count seconds from now: the solver is loaded, and its limit begins."""
        self._began = time.monotonic()

    def improved(
        self, schedule: Schedule | None, lower_bound: int, bound_by: str = "", log: tuple[str, ...] = ()
    ) -> None:
        """Judge what was streamed and tell the caller of it; after a lie, nothing more."""
        self.take_in(schedule, lower_bound, bound_by, log)
        self.tell()

    def take_in(
        self, schedule: Schedule | None, lower_bound: int, bound_by: str = "", log: tuple[str, ...] = ()
    ) -> None:
        """Judge a streamed schedule or bound and keep it, with the lines of the log, for `tell`; after a lie, nothing.

        `bound_by` names what the bound comes from; "" for the solver.
        """
        if self.lie:
            return
        self._log = [*self._log, *log][-_LOG_KEPT:]
        wrong = check(self.problem, schedule) if schedule is not None else ()
        if wrong:
            self.lie = f"an invalid schedule: {wrong[0].text}"
        elif schedule is not None and (self._best is None or schedule.makespan < self._best.makespan):
            self._best, self._better = schedule, True
        if lower_bound > self._bound:
            self._bound, self._bound_by, self._higher = lower_bound, bound_by or self._solver, True
        if self._best is not None and self._bound > self._best.makespan:
            makespan = self._best.makespan
            self.lie = f"a lower bound of {self._bound} above the makespan {makespan} of a valid schedule"

    def tell(self) -> bool:
        """Report what is new since the last call; return False where no schedule or bound is, or after a lie."""
        if self.lie or not (self._better or self._higher or self._log):
            return False
        news, log = self._better or self._higher, tuple(self._log)
        seconds = time.monotonic() - self._began
        told = self._best if self._better else None
        # Forgotten first: Ctrl-C within the caller's report must not have it told again.
        self._better, self._higher, self._log = False, False, []
        by = self._bound_by if self._bound else ""
        self._report(Progress(schedule=told, lower_bound=self._bound, seconds=seconds, bound_by=by, log=log))
        return news

    def ended(self, status: Status, limit: Limit, schedule: Schedule | None, lower_bound: int, detail: str) -> Result:
        """Return the result for what the solver claims at its end."""
        self.improved(schedule, lower_bound)
        if not self.lie:
            if status in ANSWERED and schedule is None:
                self.lie = f'status "{status}" without a schedule'
            elif status is Status.OPTIMAL and schedule is not None and lower_bound != schedule.makespan:
                self.lie = f"optimal with makespan {schedule.makespan} but lower bound {lower_bound}"
            elif status is Status.INFEASIBLE and self._best is not None:
                self.lie = f"infeasible, though a valid schedule of makespan {self._best.makespan} is known"
        if self.lie:
            return self.failed(Status.INVALID, self.lie)
        if status is Status.INFEASIBLE:
            proof = quick_bounds.memory_proof(self.problem) or nothing_fits(self.problem)
            if proof:
                return self._result(Status.INFEASIBLE, Limit.NONE, proof)
            return self._result(Status.UNKNOWN, Limit.UNCONFIRMED, "said to be infeasible, which no proof confirms")
        if status in ANSWERED or status is Status.UNKNOWN:
            return self._answer(limit, detail)
        return self.failed(status, detail)

    def failed(self, status: Status, detail: str) -> Result:
        """Return the result of a run that ended in any other way; a lie noticed before takes precedence."""
        if self.lie:
            # One lie makes every other claim of the run doubtful, its bounds too.
            status, detail = Status.INVALID, self.lie
            self._bound, self._bound_by = self._proven, self._proven_by
            if self._best is not None:
                self._bound = min(self._bound, self._best.makespan)
        return self._result(status, Limit.OTHER, detail)

    def interrupted(self, detail: str = "") -> Result:
        """Return the result of a run that the user stopped."""
        return self.failed(Status.INVALID, self.lie) if self.lie else self._answer(Limit.INTERRUPT, detail)

    def _answer(self, limit: Limit, detail: str) -> Result:
        if self._best is None:
            return self._result(Status.UNKNOWN, limit, detail)
        if self._bound == self._best.makespan:
            return self._result(Status.OPTIMAL, Limit.NONE, "")
        return self._result(Status.FEASIBLE, limit, detail)

    def _result(self, status: Status, limit: Limit, detail: str) -> Result:
        return Result(
            status=status,
            limit=limit,
            schedule=self._best,
            lower_bound=self._bound,
            seconds=time.monotonic() - self._began,
            solver=self._solver,
            version=self._version,
            detail=detail,
            bound_by=self._bound_by if self._bound else "",
        )
