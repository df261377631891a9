"""Runs of CP-SAT on the whole interval model: between what is known and a limit, or for anything shorter at all.

Ticks suit CP-SAT: every duration and transfer is divided by one factor f and rounded up, so each schedule of the scaled
problem is, times f, a schedule of the original, idle time added. Its bound is not a bound of the original: with the
placement and orders of an optimal original schedule, the scaled makespan is a longest path of distinct activities, each
at most its own rounding too long. So, with e the sum of the largest rounding of every task and of every transfer that
there can be, optimum >= f * scaled bound - e. Where f divides everything, as the common divisor does, e is 0.
"""

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from solvers.base import SolveMonitor
from solvers.bounds.windows import informed
from solvers.cpsat.lives import add_lives
from solvers.cpsat.model import IntervalModel, add_hint, build, rough_schedule
from solvers.memory.usage import fits
from solvers.problem import FORBIDDEN, Problem
from solvers.schedule import Schedule
from solvers.structure.units import longest, serial
from solvers.timing.rebuild import rebuild

HORIZON = 1_000_000_000
"""Scaled ticks that a schedule may take: a second of nanoseconds is exact, so that optimality can be proven. Coarser
ticks gain nothing: with 1e5, 1e7 and 1e10, ten seconds on problems of 30 and 48 tasks find and prove about the same."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaled:
    """A problem in ticks of `factor` original ticks."""

    problem: Problem
    factor: int
    rounding: int
    """Original ticks by which factor * optimum of the scaled problem can exceed the original optimum."""
    horizon: int
    """Scaled ticks within which some optimal schedule of the scaled problem ends."""

    def bound(self, scaled: int) -> int:
        """Return the lower bound on the original makespan, in its ticks, that `scaled` proves."""
        return max(0, scaled * self.factor - self.rounding)

    def full(self, problem: Problem, scaled: Schedule) -> Schedule:
        """A valid scaled schedule at its own times, in the original ticks: no activity starts earlier or ends later."""
        origin = problem.location[scaled.device[problem.producer[scaled.sent_payload]]]
        ticks = problem.transfer[scaled.sent_payload, problem.path_class[origin, scaled.sent_to]]
        start, sent = scaled.start * self.factor, scaled.sent_start * self.factor
        finish = start + problem.duration[np.arange(problem.tasks), scaled.device]
        return replace(scaled, start=start, finish=finish, sent_start=sent, sent_finish=sent + ticks)

    def coarse(self, schedule: Schedule) -> Schedule | None:
        """A valid scaled schedule with the devices and orders of a valid original one; None where it may not fit.

        As early as may be; one that has to wait for memory keeps its times where the factor divides every activity.
        """
        early = rebuild(self.problem, schedule)
        if fits(self.problem, early):
            return early
        if self.rounding:
            return None
        return Schedule(
            device=schedule.device,
            sent_payload=schedule.sent_payload,
            sent_to=schedule.sent_to,
            **{
                name: getattr(schedule, name) // self.factor
                for name in ("start", "finish", "sent_start", "sent_finish")
            },
        )

    def at_least(self, bound: int) -> int:
        """Return the scaled makespan below which no schedule can be, given a `bound` on the original."""
        return -(-bound // self.factor)


def scale(problem: Problem, start: Schedule | None, horizon: int) -> Scaled:
    """The problem scaled so that `start`, or without one a serial schedule, takes about `horizon` ticks at most."""
    duration, transfer = problem.duration, problem.transfer
    exact = max(1, int(np.gcd.reduce(np.concatenate([duration[problem.allowed], transfer.ravel()]), initial=0)))
    most = serial(problem) if start is None else start.makespan
    factor = exact * max(1, -(-most // (exact * horizon)))
    scaled = replace(
        problem, duration=np.where(problem.allowed, -(-duration // factor), FORBIDDEN), transfer=-(-transfer // factor)
    )
    rounding = longest(problem, np.where(problem.allowed, -problem.duration % factor, 0), -problem.transfer % factor)
    return Scaled(problem=scaled, factor=factor, rounding=rounding, horizon=serial(scaled))


def throttled(
    tell: Callable[[str], None], most: int, clock: Callable[[], float] = time.monotonic
) -> Callable[[str], None]:
    """`tell`, but for lines beyond `most` in any second, and empty ones."""
    told: deque[float] = deque(maxlen=most)

    def line(text: str) -> None:
        now = clock()
        if text.strip() and (len(told) < most or now - told[0] >= 1.0):
            told.append(now)
            tell(text.rstrip())

    return line


_LINES_A_SECOND = 20
_KNOWING = 0.5
"""Share of a run's seconds after which no more is looked for that must hold in any schedule as short as the best."""
_BUILDING = 0.6
"""Share of what is left of the limit after which a model is given up: CP-SAT reads it for half as long again."""
_ENDED = frozenset({cp_model.OPTIMAL, cp_model.INFEASIBLE})


class RunLimits(NamedTuple):
    """How long a run may take."""

    seconds: float
    effort: float
    """Deterministic seconds of CP-SAT, when the whole solve is to be deterministic."""
    first: bool = False
    """True if the first schedule ends the leg."""
    thorough: bool = True
    """True if there is time to find out all that must hold in any schedule as short as the best."""
    hint: bool = True
    """True if CP-SAT is shown the best schedule, and not its makespan alone."""


class RunOutcome(NamedTuple):
    """How a run ended."""

    complete: bool
    """True if CP-SAT looked at everything, up to the gap that was asked for."""
    infeasible: bool
    effort: float
    clocked: bool
    """True if the wall clock ended it before its effort was spent."""
    detail: str = ""
    """Reason why the run did not begin, one line."""


def exact(watch: SolveMonitor, scaled: Scaled, leg: RunLimits) -> RunOutcome:
    """Solve the scaled problem from the best schedule and bound of `watch`, telling it of all that is better.

    RuntimeError when CP-SAT refuses the model.
    """
    began = time.monotonic()
    ends = began + leg.seconds
    # A clock would make deterministic runs differ.
    knowing = math.inf if watch.options.deterministic else began + _KNOWING * leg.seconds
    built_by = began + _BUILDING * max(leg.seconds, watch.clock_s)

    def check() -> None:
        if time.monotonic() >= built_by:
            raise TimeoutError("the model is too large to be built within the limit")

    try:
        model = _model(scaled, watch.known, leg.hint, knowing if leg.thorough else -math.inf, check)
    except TimeoutError as late:
        return RunOutcome(complete=False, infeasible=False, effort=0.0, clocked=True, detail=str(late))
    solver, options = cp_model.CpSolver(), watch.options
    p = solver.parameters
    p.num_workers, p.random_seed = options.workers, options.seed
    # CP-SAT has been seen to abort when it is stopped as it begins.
    p.max_time_in_seconds = max(0.05, ends - time.monotonic())
    p.relative_gap_limit = options.gap
    p.stop_after_first_solution = leg.first
    p.log_search_progress, p.log_to_stdout = True, False
    if options.deterministic:
        p.interleave_search = True
        p.max_deterministic_time = leg.effort
    solver.best_bound_callback = lambda bound: watch.better_bound(scaled.bound(_whole(bound, scaled.horizon)))
    solver.log_callback = throttled(watch.log, _LINES_A_SECOND)
    # Which of several threads' solutions a callback hears first is up to the scheduler of the machine.
    hears = None if watch.options.deterministic else _Incumbents(model, watch, scaled)
    status = solver.solve(model.cp, hears)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT refuses the model: {model.cp.validate()}")
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        _tell(watch, scaled, rough_schedule(model, solver.value))
        watch.better_bound(scaled.bound(_whole(solver.best_objective_bound, scaled.horizon)))
    effort = float(solver.deterministic_time)
    clocked = status not in _ENDED and not leg.first and effort < leg.effort
    return RunOutcome(status in _ENDED, status == cp_model.INFEASIBLE, effort, clocked)


def _tell(watch: SolveMonitor, scaled: Scaled, rough: Schedule) -> None:
    """Tell of a solution at full resolution, as early as may be; one that has to wait for memory, at its own times."""
    early = rebuild(watch.problem, rough)
    if not fits(watch.problem, early):
        early = scaled.full(watch.problem, rough)
    if fits(watch.problem, early):
        watch.better_schedule(early)


def _model(
    scaled: Scaled, best_known: tuple[Schedule | None, int], hint: bool, knowing: float, check: Callable[[], None]
) -> IntervalModel:
    best, bound = best_known
    first = None if best is None else scaled.coarse(best)
    most = scaled.horizon if first is None else first.makespan
    # Always known for a schedule of that length: there is one.
    known = None if first is None else informed(scaled.problem, most, knowing)
    model = build(scaled.problem, least=min(most, scaled.at_least(bound)), most=most, known=known, check=check)
    if scaled.problem.lives is not None:
        add_lives(model, scaled.problem.lives)
    if first is not None and hint:
        add_hint(model, first)
    return model


def _whole(bound: float, horizon: int) -> int:
    # Infinite before the first bound, and beyond any schedule once the search space is empty.
    return math.ceil(min(max(bound, 0.0), horizon) - 1e-6)


class _Incumbents(cp_model.CpSolverSolutionCallback):
    """Rebuilds each of CP-SAT's solutions at full resolution."""

    def __init__(self, model: IntervalModel, watch: SolveMonitor, scaled: Scaled) -> None:
        super().__init__()
        self._model, self._watch, self._scaled = model, watch, scaled

    def on_solution_callback(self) -> None:
        """Called by CP-SAT for each better solution."""
        _tell(self._watch, self._scaled, rough_schedule(self._model, self.value))


_LEAST_S = 0.02
"""Seconds that are too few for a search: CP-SAT has been seen to abort when it is stopped as it begins."""


def solve_small(cp: Any, *, effort: float, seconds: float, seed: int) -> tuple[Any, int]:
    """Return a solver that has run on a small model, on one thread, and its status; RuntimeError for a refused one."""
    solver = cp_model.CpSolver()
    p = solver.parameters
    p.num_workers, p.random_seed = 1, seed
    p.max_deterministic_time, p.max_time_in_seconds = effort, seconds
    # Measured on 50 neighbourhoods of five problems at equal effort: 36 are searched to their end, 27 by default.
    p.linearization_level = p.cp_model_probing_level = 0
    p.use_precedences_in_disjunctive_constraint = False
    status = solver.solve(cp)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT refuses the model: {cp.validate()}")
    return solver, status


def shorter(
    problem: Problem, start: Schedule, *, effort: float, seconds: float = math.inf, seed: int = 0
) -> tuple[Schedule | None, bool]:
    """Return a valid schedule that is shorter than a valid one, None if none was found; whether all was looked at.

    Links are first come, first served. effort: CP-SAT's deterministic seconds at most. RuntimeError when it refuses the
    model.
    """
    if start.makespan < 1 or seconds < _LEAST_S:
        return None, start.makespan < 1
    model = build(problem, least=0, most=start.makespan - 1)
    # Transfers that share a link start in the order in which their producers end.
    cp, on = model.cp, defaultdict[int, set[int]](set)
    for number, crossing in enumerate(model.crossings):
        for sources, _ in crossing.variants:
            for link in model.problem.holds[sources[0], crossing.to].tolist():
                on[link].add(number)
    on.pop(-1, None)
    for one, two in sorted({pair for sharing in on.values() for pair in combinations(sorted(sharing), 2)}):
        a, b = model.crossings[one], model.crossings[two]
        i, j = (int(model.problem.producer[c.payload]) for c in (a, b))
        if i != j:
            before, first, second = cp.new_bool_var(""), model.end[i], model.end[j]
            for literal, early, late, x, y in ((before, first, second, a, b), (~before, second, first, b, a)):
                there = [literal, a.present, b.present]
                cp.add(early <= late).only_enforce_if(there)
                cp.add(x.start <= y.start).only_enforce_if(there)
    add_hint(model, start)
    solver, status = solve_small(model.cp, effort=effort, seconds=min(seconds, 1e9), seed=seed)
    closed = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, closed
    return rebuild(problem, rough_schedule(model, solver.value)), closed
