"""CP-SAT as a `Solver`: the whole model, and windows of it between two runs; claims what full resolution proves."""

from dataclasses import dataclass, replace
from importlib import metadata

from solvers.base import Report, SolveMonitor
from solvers.bounds import quick_bounds
from solvers.bounds.strong import compile_ahead, strong
from solvers.cpsat.descent import Descent
from solvers.cpsat.exact import HORIZON, RunLimits, RunOutcome, Scaled, exact, scale
from solvers.problem import Problem
from solvers.result import Limit, Options, Result
from solvers.timing.rebuild import rebuild

_EFFORT = 0.25
"""CP-SAT's deterministic seconds in a second of `Options.seconds`. One takes about 1.5 s on two idle cores, and up
to eight more are spent than asked for."""
_WINDOW_EFFORT = 0.1
"""The same for windows, whose deterministic seconds take about 4 s each."""
_FIRST = 0.1
"""Share of the limit that the first run on the whole model gets: what is easy needs no more."""
_IDLE = 150
"""Rounds without a better schedule after which windows give up."""
_BOUND, _BOUND_LEAST_S = 0.1, 10.0
"""Share of what is left that strong bounds may take, where at least so many seconds are."""
_WORKERS_A_LANE = 4
_TASKS_A_SECOND = 40
"""Tasks that a second of a run must be planned for, for all pairs of them to be looked at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpSat:
    """OR-Tools CP-SAT on the interval model of `solvers.cpsat.model`, helped by windows (`solvers.cpsat.descent`)."""

    horizon: int = HORIZON
    """Ticks of a schedule beyond which times are rounded to coarser ticks."""
    windows: float = 0.5
    """Share of the limit that windows may take; 0 for CP-SAT on the whole model alone."""
    workers: int | None = None
    """The most threads, whatever is asked for; None for those that are. Deterministic runs have those that are."""
    near: float = 1.0
    """The gap beyond which CP-SAT is not shown the best schedule: a hint keeps it near what may be far off."""

    def compile_ahead(self) -> None:
        """Compile what finds bounds and windows."""
        compile_ahead()

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Solve within `options`; never worse than `options.start`.

        "optimal" is claimed only where the bound at full resolution equals the makespan. RuntimeError when CP-SAT
        refuses the model.
        """
        if self.workers is not None and not options.deterministic:
            options = replace(options, workers=min(options.workers, self.workers))
        watch = watching(problem, options, report, "cpsat")
        if watch.within_gap or options.seconds == 0:
            return watch.result(_limit(watch), "")
        scaled, rest, clocked = scale(problem, options.start, self.horizon), 1.0, False
        # Windows know of static bytes alone.
        if self.windows and problem.lives is None:
            rest = 1 - _FIRST - self.windows
            ended = exact(watch, scaled, _leg(watch, _FIRST))
            if ended.complete:
                return _outcome(watch, ended, clocked=False)
            clocked = ended.clocked
            clocked |= descend(watch, scaled, watch.clock_s - rest * options.seconds, self.windows)
            strengthen(watch)
            if _met(watch):
                return watch.result(Limit.GAP, "")
        leg = _leg(watch, rest, last=True)
        ended = exact(watch, scaled, leg._replace(hint=options.deterministic or watch.within(self.near)))
        return _outcome(watch, ended, clocked=clocked or ended.clocked)


_ALONE, _NEAR = 4, 0.01
"""Threads and gap of CP-SAT alone: two chains of 32 or 50 ops tied layer by layer (benchmarks/small_graphs.py), whose
start is 19 or 14 % above the bound, are proven in 12 to 15 s by 4 threads without a hint on two cores; not in 24 s by
2, 3 or 12, nor with a hint. A layered graph whose start is 0.004 % above takes 1 s with a hint, without one 14."""


def whole_model() -> CpSat:
    """CP-SAT on the whole model alone."""
    return CpSat(windows=0.0, workers=_ALONE, near=_NEAR)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpSatWindows:
    """Windows alone: better schedules as quickly as may be, bounds without a solver."""

    horizon: int = HORIZON
    rounds: int | None = None
    """Neighbourhoods after which it ends; None for the time limit alone."""

    def compile_ahead(self) -> None:
        """Compile what finds bounds and windows."""
        compile_ahead()

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Improve on `options.start`, or on the first schedule that CP-SAT finds, within `options`."""
        watch = watching(problem, options, report, "cpsat-windows")
        if watch.within_gap or options.seconds == 0:
            return watch.result(_limit(watch), "")
        scaled = scale(problem, options.start, self.horizon)
        if watch.best is None:
            ended = exact(watch, scaled, _leg(watch, 1.0, first=True))
            if ended.infeasible:
                return _outcome(watch, ended, clocked=False)
        strengthen(watch)
        clocked = descend(watch, scaled, watch.clock_s, 1.0, self.rounds)
        return watch.result(_limit(watch), _repeatable(watch, clocked=clocked))


def watching(problem: Problem, options: Options, report: Report, name: str) -> SolveMonitor:
    """Return a watch that knows the bounds that need no solver."""
    watch = SolveMonitor(problem, options, report, solver=name, version=metadata.version("ortools"))
    watch.better_bound(*quick_bounds.best(problem))
    return watch


def descend(watch: SolveMonitor, scaled: Scaled, seconds: float, share: float, rounds: int | None = None) -> bool:
    """Search windows for so many seconds, or rounds; when deterministic, for a share of the effort.

    Whether the clock ended it.
    """
    best, options, ends = watch.best, watch.options, watch.elapsed + seconds
    if best is None:
        return False
    lanes = max(1, options.workers // _WORKERS_A_LANE)
    descent = Descent(scaled.problem, best, seed=options.seed, lanes=lanes)
    most = share * _WINDOW_EFFORT * options.seconds if options.deterministic else float("inf")

    def clock() -> float:
        return ends - watch.elapsed

    def over() -> bool:
        idle = rounds is None and descent.idle >= _IDLE and share < 1
        return watch.within_gap or descent.effort >= most or idle

    descent.run(lambda found: watch.better_schedule(rebuild(watch.problem, found)), clock, over, rounds)
    return not over() and clock() <= 0


def strengthen(watch: SolveMonitor) -> None:
    """Look for a better bound without a solver, where there is time."""
    best = watch.best
    if best is not None and watch.remaining >= _BOUND_LEAST_S and not watch.options.deterministic:
        found = strong(watch.problem, upper=best.makespan, seconds=_BOUND * watch.remaining)
        watch.better_bound(found.ticks, found.name)


def _met(watch: SolveMonitor) -> bool:
    return watch.within_gap  # asked by name, since a type checker takes a property for what it was before


def _limit(watch: SolveMonitor) -> Limit:
    return Limit.GAP if watch.within_gap else Limit.TIME


def _leg(watch: SolveMonitor, share: float, *, first: bool = False, last: bool = False) -> RunLimits:
    planned = share * watch.options.seconds
    seconds = watch.clock_s if first or last or watch.options.deterministic else min(watch.clock_s, planned)
    # By the plan and not by the clock, so that it is the same in every deterministic run.
    thorough = planned * _TASKS_A_SECOND >= watch.problem.tasks
    return RunLimits(seconds, _EFFORT * planned, first, thorough)


def _outcome(watch: SolveMonitor, ended: RunOutcome, *, clocked: bool) -> Result:
    if ended.infeasible and watch.best is None:
        return watch.infeasible("CP-SAT finds the model infeasible")
    if ended.complete and not watch.closed:
        # CP-SAT says "optimal" for a run that its gap limit ended, too.
        if watch.options.gap > 0:
            return watch.result(Limit.GAP, "")
        if watch.best is None:
            return watch.result(Limit.OTHER, "no schedule found but for rounded bytes")
        return watch.result(Limit.OTHER, f"optimal up to rounding of {watch.open_ticks} ticks")
    return watch.result(Limit.TIME, _repeatable(watch, clocked=clocked) or ended.detail)


def _repeatable(watch: SolveMonitor, *, clocked: bool) -> str:
    """Owns up where the wall clock, and not the effort, ended a run that was to be deterministic."""
    unrepeatable = watch.options.deterministic and clocked
    return "ended by the wall clock, so not repeatable - run it on an idle machine" if unrepeatable else ""
