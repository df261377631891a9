"""A MILP vendor as a `Solver`: formulate, warm start, run, rebuild whatever it finds, claim what its bound proves.

Times come back rounded, scaled, or overlapping where a big M hides it, so only placement and order are believed: every
incumbent is rebuilt by longest path before it is told.
"""

import math
import os
import time
from dataclasses import dataclass, replace
from importlib import metadata

from solvers.arrays import Floats
from solvers.base import Report, SolveMonitor
from solvers.bounds import quick_bounds
from solvers.bounds.strong import compile_ahead
from solvers.checker import check
from solvers.milp.formulations import HORIZON, TOLERANCE, IntegerProgram, MakespanLimits, NoScheduleError, formulate
from solvers.milp.polishing import PolishSettings, polish
from solvers.milp.vendor import RunRequest, Vendor, VendorOutcome, run_program
from solvers.problem import Problem
from solvers.result import Limit, Options, Result, Status
from solvers.structure.units import serial
from solvers.timing.rebuild import rebuild

_POLISHED = ("tight",)
"""Formulations whose start is polished first; the paper's program is left as the paper has it."""
_SHARE = 0.5
"""Share of the time limit that polishing gets at most."""
_SETTLING = 0.3
"""Share of the remaining time that time windows get at most before a program is built on them."""
_LARGE = 50_000
"""Entries of a program beyond which its disjunctions of links wait until an optimum breaks them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Milp:
    """One vendor on any formulation. What is the vendor's own is in `run` alone."""

    name: str
    package: str
    """The distribution whose version is the solver's."""
    run: Vendor
    version: str = ""
    """The solver's own version, where the distribution only brings it."""

    def compile_ahead(self) -> None:
        """Compile what finds bounds and windows."""
        compile_ahead()

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Solve within `options`; never worse than `options.start`.

        "optimal" is claimed only where the vendor's bound, less what its tolerances allow, is the rebuilt makespan.
        ValueError for an unknown formulation, RuntimeError when the vendor refuses the program.
        """
        version = self.version or metadata.version(self.package)
        watch = SolveMonitor(problem, options, report, solver=self.name, version=version)
        proof = quick_bounds.memory_proof(problem)
        if proof is not None:
            return watch.infeasible(proof)
        watch.better_bound(*quick_bounds.best(problem))
        if watch.closed or options.seconds == 0:
            return watch.result(Limit.TIME, "")
        if watch.best is not None and options.formulation in _POLISHED:
            # Small programs find what branch and bound on the whole does not in a minute.
            ask = _request(options, _SHARE * watch.remaining, _SHARE)
            search = PolishSettings(run=self.run, formulation=options.formulation, ask=ask, least=watch.lower_bound)
            polish(watch.problem, watch.best, search, watch.better_schedule)
            if watch.within_gap:
                return watch.result(Limit.GAP, "")
        most = serial(watch.problem) if watch.best is None else watch.best.makespan
        # A clock would make deterministic runs differ before their limit.
        share = 1.0 if watch.options.deterministic else _SETTLING
        now = time.monotonic()
        limits = MakespanLimits(
            least=min(watch.lower_bound, most),
            most=most,
            settle_by=now + share * watch.remaining,
            build_by=now + watch.remaining,
        )
        try:
            program = formulate(problem, options.formulation, limits)
            limits.check()
        except NoScheduleError as proof:
            return watch.infeasible(str(proof))
        except TimeoutError as late:
            return watch.result(Limit.TIME, str(late))
        listener = _Listener(watch, program, limits, f"{self.name} {options.formulation}")
        start = None if watch.best is None else program.values(watch.best)
        ask = replace(_request(options, watch.remaining, 1.0), start=start)
        large = len(program.linear.column) > _LARGE
        outcome = run_program(self.run, program, ask, listener) if large else self.run(program.linear, ask, listener)
        return _claim(outcome, watch, listener)


def _request(options: Options, seconds: float, share: float) -> RunRequest:
    """Return the request of a run of so many seconds; its effort is a share of the limit, independent of the clock."""
    return RunRequest(
        seconds=seconds,
        gap=options.gap,
        seed=options.seed,
        # More than there are cores gains nothing here; the default is made for CP-SAT's portfolio.
        threads=1 if options.deterministic else min(options.workers, os.cpu_count() or 1),
        start=None,
        effort=share * options.seconds if options.deterministic else math.inf,
    )


def _claim(outcome: VendorOutcome, watch: SolveMonitor, listener: "_Listener") -> Result:
    if outcome.status is Status.INFEASIBLE:
        if listener.binding:
            return watch.infeasible(outcome.detail or "the vendor finds the program infeasible")
        return watch.result(Limit.OTHER, "the program is infeasible, which says nothing of this problem")
    if outcome.values is not None:
        listener.incumbent(outcome.values)
    listener.bound(outcome.bound)
    if outcome.status is not Status.OPTIMAL:
        if watch.within_gap:
            return watch.result(Limit.GAP, "")
        late = watch.options.deterministic and watch.remaining <= 0
        why = "ended by the wall clock, so not repeatable - allow more seconds, or run it on an idle machine"
        return watch.result(outcome.limit, outcome.detail or (why if late else ""))
    limit = Limit.GAP if watch.options.gap > 0 else Limit.OTHER
    return watch.result(limit, listener.short_of_proof())


class _Listener:
    """Translates what a vendor finds into schedules and ticks."""

    def __init__(self, watch: SolveMonitor, program: IntegerProgram, limits: MakespanLimits, name: str) -> None:
        self._watch, self._program, self._unit, self._name = watch, program, limits.unit, name
        horizon = min(HORIZON, limits.most / limits.unit)
        self._slack = TOLERANCE * (1.0 + horizon * program.activities)
        self._own_bound = 0.0

    @property
    def enough(self) -> bool:
        """True if the gap that was asked for is reached, with bounds that the vendor may not know."""
        return self._watch.within_gap

    @property
    def binding(self) -> bool:
        """True if what holds for the program holds for the problem."""
        return self._program.binding

    def incumbent(self, values: Floats) -> None:
        """Rebuild what the point describes; dropped where a row that is missed by the tolerance makes it invalid."""
        watch = self._watch
        schedule = rebuild(watch.problem, self._program.schedule(values))
        wrong = check(watch.problem, schedule)
        if wrong:
            watch.log(f"a point within the vendor's tolerances is no schedule: {wrong[0].text}")
        else:
            watch.better_schedule(schedule)

    def bound(self, objective: float) -> None:
        """Take what the vendor has proven, less what its tolerances allow."""
        if not math.isfinite(objective):
            return
        self._own_bound = max(self._own_bound, objective * self._unit)
        ticks = math.ceil((objective - self._slack) * self._unit)
        if self._program.binding:
            # The program admits no schedule beyond `most`, so an empty remainder may be "proven" to lie there.
            most = self._watch.best.makespan if self._watch.best else ticks
            self._watch.better_bound(min(ticks, most), self._name)

    def line(self, text: str) -> None:
        """Pass on a line of the vendor's log."""
        lines = ("".join(c if c.isprintable() else " " for c in line).rstrip() for line in text.splitlines())
        self._watch.log(*(line for line in lines if line))

    def short_of_proof(self) -> str:
        """Why the vendor's optimum is not claimed to be one."""
        if not self._program.binding:
            return f"optimal for its own program, whose bound of {self._own_bound:.0f} ticks holds only there"
        return f"optimal up to the vendor's tolerances: {self._watch.open_ticks} ticks are open"
