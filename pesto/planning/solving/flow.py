"""The whole program on one screen: graph -> costs -> problem -> coarsening -> schedule -> plan."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.errors import InfeasibleError, InputError, NothingFoundError, SolverError
from pesto.core.graph import Graph
from pesto.core.memory import shortage
from pesto.core.plans.execution_modes import ModePrediction, loss_remedy, predict_intended_mode
from pesto.core.plans.orders import OrderWorth, order_worth
from pesto.core.plans.plan import Plan, best_bound, verify
from pesto.core.plans.shared_variables import CompanionPlan, shared_pins
from pesto.core.plans.warm_start import carry_over
from pesto.core.problem import build_problem
from pesto.core.quantities import size
from pesto.core.settings import NEAR, Settings
from pesto.core.simulator import Timeline
from pesto.planning.coarsen import Removed, coarsen
from pesto.planning.solving.background_compiler import COARSE, FIRST, SEARCH, shared_compiler
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, LinkTieRuns
from pesto.planning.solving.colocation_ties import ColocationTie, find_ties
from pesto.planning.solving.exact import (
    LATE_S,
    LIVES,
    ExactOutcome,
    ExactRun,
    exact_seconds,
    exact_with_memory,
    solve_coarse,
    strengthen_bound,
)
from pesto.planning.solving.interrupt import hold, release
from pesto.planning.solving.quick_candidates import (
    MOST_TASKS,
    RIVALS,
    Level,
    baselines,
    cpu_deadline,
    multilevel,
    repair_candidate,
    repairs,
)
from pesto.planning.solving.record import SolveRecord, make_plan
from pesto.planning.solving.search import MOST_WALKED, AnnealingSearch, engine_of
from pesto.planning.solving.tracker import Contribution, Stage, Tracker, Watch
from pesto.planning.solving.trust import Trust, least_p90, measure_trust, solve_error_model
from solvers import ANSWERED, FAILED, Limit, Problem, Status, api
from solvers.api import WINDOWS
from solvers.bounds import quick_bounds
from solvers.bounds.evidence import FullBound
from solvers.deadlines import Late, never
from solvers.timing.replay import fifo

_TARGETS = 2
"""A graph of fewer than this multiple of the coarsening target is not coarsened for the exact solver: 400 ops by
default."""
_SHARE = 0.8
"""Share of the time limit for the exact solver on a graph itself, if search follows."""
_ALONE = 120
"""Ops up to which CP-SAT proves more without windows: in a minute (1 to 3 CPU seconds on a busy machine) a grid of
32 ops keeps a gap of 0 %, with windows 0.97 %, a series-parallel graph of 100 ops 0.10 %, with windows 0.54 %."""


def is_small(problem: Problem, settings: Settings) -> bool:
    """Return True if the exact solver gets the graph itself: that is small."""
    return 0 < problem.tasks < _TARGETS * settings.coarsen_to


def full_graph_run(problem: Problem, settings: Settings, lower_bound: int) -> ExactRun:
    """Return how the exact solver is run on a graph itself: for most of the time, from a known bound in ticks.

    Without congestion it gets a problem without links, for which a bound of the graph need not hold.
    """
    seconds = _SHARE * settings.time_limit_s if settings.search else settings.time_limit_s
    engine = api.solve_whole if problem.tasks <= _ALONE else api.solve
    return ExactRun(engine=engine, seconds=seconds, lower_bound=lower_bound if settings.congestion else 0)


def full_graph_level(bench: CandidateEvaluator, best: Candidate | None) -> Level:
    """Return the full graph as a coarse graph of itself, to start from the best plan so far."""
    n = bench.problem.tasks
    itself = replace(
        coarsen(bench.problem, n), node_of=np.arange(n), rank=bench.topological, reason="the graph itself", rounds=()
    )
    schedule, by = (None, "") if best is None else (best.timeline.schedule, best.name)
    return Level(coarsening=itself, problem=bench.problem, schedule=schedule, by=by)


def proven_bound(done: ExactOutcome, known: FullBound) -> FullBound:
    """Return the bound of the graph after the exact solver ran on all of it; a failed solver's bound is ignored."""
    result = done.result
    return best_bound(result.lower_bound, result.solver, known) if result.status in ANSWERED else known


_LARGER = "use more or larger devices"
UNCOMPILED = "compiling took the time limit, so nothing was searched - solve again: what is compiled stays"
CANDIDATES = (
    "start", "single", "expert", "layer-balanced", *RIVALS, "list", "levels", "repaired", "coarse", "search", "windows",
)  # fmt: skip
"""`start` is an older plan, carried over (`pesto.core.plans.warm_start`); `single` is all on one GPU; RIVALS are the
quick ones among the literature's methods; `list` is list scheduling of the full graph, `levels` quick schedules of
coarser graphs; `repaired` is one of these that does not fit the memory, with ops moved until it does; `coarse` is the
exact solver on the coarse graph, or a small one itself, expanded; `search` anneals from the best of these, and
`windows` searches windows of the best exactly."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolveOutcome:
    """A verified plan and how it was found."""

    plan: Plan
    problem: Problem
    candidates: dict[str, Candidate | None]
    """Name of CANDIDATES -> candidate; None if there is none, and no `start` if none was given."""
    exact: ExactOutcome | None
    """Outcome of the exact solver; None if it did not run, or was cut off without an answer."""
    order: OrderWorth
    """Worth of enforcing the plan's order."""
    ties: tuple[ColocationTie, ...]
    """Ops that tie most of the variables to one device, with their costs."""
    enforced: ModePrediction | None
    """Predicted step in the mode in which it is meant to be run; None if the graph does not name one, or the time
    limit was over before."""
    remedy: str
    """Remedy for a loss of more than LOSS of the step in that mode; empty for less."""
    turns: LinkTieRuns
    """The plan's step if links serve devices that ask in the same tick in other orders."""
    trust: Trust | None
    """The plan and its best rivals under errors of times; None if these could not be added up, or the time limit was
    over before."""
    stages_s: dict[str, float]
    """Seconds of each stage that was run, by its name."""
    first: int
    """Makespan in ticks of the first plan that fitted, from which gains are counted."""
    contributions: tuple[Contribution, ...]
    """Contribution of each engine that did something for the plan."""
    interrupted: bool
    costs: Costs
    """Costs that the plan rests on."""
    compiled: bool = True
    """True if the code of engines was compiled in time; otherwise they were left out."""

    @property
    def removed(self) -> Removed | None:
        """Edges that coarsening removed for the exact solver; None if that did not run."""
        return None if self.exact is None else self.exact.coarsening.removed(self.problem.src, self.problem.dst)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Lines that a reader should know and a plan has no place for."""
        costs = [f"costs: {self.costs.note}"] if self.costs.note else []
        lost = [f"as {self.enforced.way}: {self.enforced} - {self.remedy}"] if self.enforced and self.remedy else []
        left_out = [] if self.compiled else [UNCOMPILED]
        return (*map(str, self.ties), *lost, *costs, *left_out)


class EarlierPlans(NamedTuple):
    """Plans that were made before a solve, and how much of its time."""

    start: Plan | None = None
    """Plan that the search begins from."""
    beside: Plan | None = None
    """Plan of another step: the variables that this step shares with it stay where it has them."""
    spent_s: float = 0.0
    """Seconds of the time limit that were used before; with `math.inf` only what is always made is made."""


NOTHING = EarlierPlans()
"""No plan, and no time."""


def solve(
    graph: Graph, cluster: Cluster, costs: Costs, settings: Settings, watch: Watch, earlier: EarlierPlans = NOTHING
) -> SolveOutcome:
    """Return the best verified plan of all candidates (see CANDIDATES); `watch` hears of every better one and bound.

    A stage yields candidates; the tracker keeps the best, the bound and the clock. What the first plan needs is
    compiled before the time limit begins, all else within it. Ctrl-C ends the search with the best plan.

    Raise InfeasibleError with the proof if the variables, or all that is alive, cannot fit the memory;
    NothingFoundError with the bytes short if no candidate fits; SolverError if the exact solver is not installed;
    UsageError if `start` knows none of the ops; the errors of `shared_pins` for a plan to stay beside;
    KeyboardInterrupt if Ctrl-C comes before there is a plan.
    """
    settings.check_installed()
    release()
    kept = None if earlier.beside is None else _shared_pins(earlier.beside, graph, cluster)
    tracker, done, closing_s, compiled = Tracker(watch), None, 0.0, True
    if shared_compiler().lacks(*FIRST):
        with tracker.timed("compiling"):
            shared_compiler().need(*FIRST)
    tracker.limit(settings.time_limit_s, earlier.spent_s)
    with tracker.timed("problem"):
        problem = formulate(graph, costs, cluster, settings, {} if kept is None else kept.variables)
        bench = CandidateEvaluator.of(graph, problem, per_edge=settings.per_edge)
        tracker.price, tracker.bound = bench.priced, FullBound(*quick_bounds.best(problem))
        given = SolveRecord(graph=graph, cluster=cluster, costs=costs, settings=settings, bound=tracker.bound,
                            exact=None, beside=kept)  # fmt: skip
        tracker.make = partial(_make_verified, bench, tracker, given)
    if earlier.start is not None:
        tracker.run("start", carry_start(earlier.start, bench, cluster))
    with tracker.interruptible():
        rivals, spent = _is_late(tracker, settings, _RIVALS), _is_spent(tracker, settings)
        planning = tracker.run("baselines", baselines(bench, cluster, rivals, spent, _list_s(tracker, settings)))
        closing_s = tracker.elapsed_s
        compiled = tracker.proven or shared_compiler().need(*COARSE, late=_is_spent(tracker, settings, _QUICK))
        needless = tracker.proven or spent()
        if compiled and not needless:
            level, ladder = tracker.run(
                "coarsen", multilevel(bench, planning, settings, _is_late(tracker, settings, _QUICK))
            )
            tracker.run("repair", repairs(bench, tracker, settings, _is_spent(tracker, settings, _ENGINES)))
            limit_s = settings.time_limit_s
            if limit_s > 0:
                # The end of the solve takes as long as the baselines took on the same busy machine.
                tracker.keep(min(closing_s, _CLOSING * limit_s), least=min(_LEAST * limit_s, _LEAST_S))
            compiled = limit_s == 0 or shared_compiler().need(*SEARCH, late=_is_spent(tracker, settings, _ENGINES))
        if compiled and not needless:
            with strengthen_bound(problem, tracker, settings):
                rounds = None
                if settings.search and problem.tasks <= MOST_TASKS:
                    rounds = AnnealingSearch(bench, planning, ladder, tracker, settings)
                    rounds.begins_s, rounds.spent = _engine_start_s(tracker, settings), _is_spent(tracker, settings)
                if not _begins_with_search(problem, tracker, settings):
                    done = _solve_exactly(bench, level, tracker, settings, rounds)
                    _go_on(done)
                if rounds is not None:
                    if done is not None and done.useless:
                        rounds.windows.weight = 0.0
                    tracker.run("search", rounds.other_rounds())
    hold()
    with tracker.timed("verify"):
        chosen = _choose(bench, cluster, tracker, settings) or _nothing_fits(tracker, cluster, done)
        given = replace(given, bound=tracker.bound, exact=done)
        plan = make_plan(given, chosen, tracker.candidates)
        verify(plan, graph, problem, cluster)
    return replace(_outcome(plan, bench, tracker, given, closing_s), compiled=compiled)


def _make_verified(bench: CandidateEvaluator, tracker: Tracker, given: SolveRecord, candidate: Candidate) -> Plan:
    if given.settings.placement_only:
        candidate = bench.unordered(candidate)
    others = dict(tracker.candidates) | {candidate.name: candidate}
    plan = make_plan(replace(given, bound=tracker.bound), candidate, others)
    verify(plan, given.graph, bench.problem, given.cluster)
    return plan


def _shared_pins(other: Plan, graph: Graph, cluster: Cluster) -> CompanionPlan:
    """Return where the plan of another step keeps the variables that `graph` shares; errors as of `shared_pins`."""
    made = other.provenance
    pins = shared_pins((other.held, other.variable_devices(), made.graph_source), graph, cluster)
    return CompanionPlan(source=made.graph_source, fingerprint=made.graph_fingerprint, variables=pins)


def _choose(bench: CandidateEvaluator, cluster: Cluster, tracker: Tracker, settings: Settings) -> Candidate | None:
    """The shortest candidate; if robust, that of least p90 among the nearly shortest; without an order, as FIFO."""
    if settings.placement_only:
        # The shortest candidate when all are first in, first out; where none fits so, the nearest with ops moved.
        candidates = tracker.candidates
        candidates.update({name: bench.unordered(c) for name, c in candidates.items()})
        if candidates and tracker.best is None:
            tracker.nearest = min(candidates.values(), key=lambda c: c.short)
            late, timing = never if settings.deterministic else cpu_deadline(), partial(fifo, prepared=bench.prepared)
            moved = repair_candidate(
                bench, tracker.nearest, name="repaired", late=late, headroom=settings.headroom, timing=timing
            )
            candidates["repaired"] = bench.first_come(moved.name, moved.rule, moved.timeline.schedule.device)
            tracker.nearest = min(tracker.nearest, candidates["repaired"], key=lambda c: c.short)
        return tracker.best
    best = tracker.settle(bench.priced_well)
    if best is None or not settings.robust:
        return best
    near = tracker.near(NEAR, bench.priced_well)
    chosen = least_p90(bench, cluster, near, solve_error_model(bench, settings))
    tracker.candidates[chosen.name] = chosen
    return chosen


_RIVALS, _QUICK, _ENGINES = 0.25, 0.5, 0.75
"""Shares of the time limit after which no further method of the literature, and no further size of coarse graph, is
tried, and after which neither repairs nor engines wait for what is still being compiled."""
HURRY_S = 1.0
"""Seconds that quick candidates have at least: they load compiled code for some tenths of them."""
_CLOSING = 0.4
"""Maximum share of the time limit kept for the end after the search: choosing, checking and trusting a plan."""
_STARTS = 2
"""An exact solver's process takes about this multiple of the time to start annealing."""
_OVER = 1.05
"""Share of the time limit after which nothing is predicted of a plan that needs further runs of the step."""
_LEAST, _LEAST_S = 0.25, 1.0
"""Share of the time limit, and its maximum in seconds, that engines get however long the quick candidates took."""


def _is_late(tracker: Tracker, settings: Settings, share: float) -> Late:
    """Return a test of whether more than a share of the time is over; never if work is counted instead."""
    return never if settings.deterministic else partial(tracker.past, share, HURRY_S)


def _is_spent(tracker: Tracker, settings: Settings, share: float = 1.0) -> Late:
    """Return a test of whether a plan fits and more than a share of the time is over, so that stages are left out."""
    late = _is_late(tracker, settings, share)
    return lambda: tracker.best is not None and late()


def _list_s(tracker: Tracker, settings: Settings) -> Callable[[], float]:
    """Return a function to the seconds that passes of a list schedule may take; infinite if no clock ends them."""
    limit_s = settings.time_limit_s
    if settings.deterministic or limit_s == 0:
        return lambda: math.inf
    return lambda: max(max(_QUICK * limit_s, HURRY_S) - tracker.used_s, (limit_s - tracker.used_s) / 2, 0.0)


def _is_hurried(tracker: Tracker, settings: Settings, closing_s: float) -> bool:
    """Return True if less time is left than half of what was kept for the end, or the solve was interrupted."""
    used = 1.0 - closing_s / 2 / max(settings.time_limit_s, closing_s, 1e-9)
    return tracker.interrupted or _is_late(tracker, settings, used)()


def _outcome(
    plan: Plan, bench: CandidateEvaluator, tracker: Tracker, given: SolveRecord, closing_s: float
) -> SolveOutcome:
    names = CANDIDATES if "start" in tracker.candidates else CANDIDATES[1:]
    problem, chosen = bench.problem, tracker.candidates[plan.provenance.chosen]
    with tracker.timed("ties"):
        ties = find_ties(bench.graph, problem, plan.schedule.makespan, timed=not tracker.interrupted)
    trust, ordered, over = None, not plan.placement_only, _is_spent(tracker, given.settings, _OVER)()
    with tracker.timed("trust"), suppress(InputError):  # of a step of a hundred years: no reason to lose the plan
        errors = solve_error_model(bench, given.settings, hurried=_is_hurried(tracker, given.settings, closing_s))
        if not over:
            trust = measure_trust(bench, given.cluster, chosen, tracker.candidates.values(), errors, order=ordered)
    with tracker.timed("trust"):
        planned = Timeline(problem=problem, schedule=plan.schedule)
        intended = None if over else predict_intended_mode(bench.graph, planned, plan.rank, order=ordered)
        worth = order_worth(problem, plan.schedule.device, plan.rank)
    engines = {"exact": given.settings.solver, "windows": engine_of(given.settings)}
    return SolveOutcome(
        plan=plan,
        problem=problem,
        ties=ties,
        candidates={name: tracker.candidates.get(name) for name in names},
        exact=given.exact,
        enforced=intended,
        remedy=loss_remedy(intended, bench.graph, planned, plan.rank) if intended else "",
        order=worth,
        turns=chosen.turns or LinkTieRuns(tried=0, least=chosen.makespan),
        trust=trust,
        stages_s=tracker.stages_s,
        first=tracker.ledger.first or 0,
        contributions=tracker.ledger.of(chosen.makespan, engines),
        interrupted=tracker.interrupted,
        costs=given.costs,
    )


def carry_start(start: Plan, bench: CandidateEvaluator, cluster: Cluster) -> Stage[None]:
    """Yield `start`: the plan that the solve begins from, carried over to this graph and cluster."""
    known = carry_over(start, bench.graph, bench.problem, cluster)
    yield bench.ordered("start", known.rule, known.device, known.rank)


def _begins_with_search(problem: Problem, tracker: Tracker, settings: Settings) -> bool:
    """Return True if search needs no coarse optimum: a plan was given, or a coarse one says nothing of so many ops."""
    start = tracker.candidates.get("start")
    return settings.search and (problem.tasks > MOST_WALKED or (start is not None and start.fits))


def _solve_exactly(
    bench: CandidateEvaluator, level: Level, tracker: Tracker, settings: Settings, rounds: AnnealingSearch | None
) -> ExactOutcome | None:
    """Solve the graph itself exactly if that is small, which bounds it, else the coarse one.

    By the clock, the first round of search comes before it if there is a plan to begin from, and it is not started
    once the gap is met, or if it would hardly begin in what is left of the time. If none of its plans of the graph
    itself fits the memory, the coarse one, which estimates peaks, comes after it.
    """
    small = is_small(bench.problem, settings)

    def limited() -> Settings:
        if settings.deterministic:
            return settings
        left = tracker.left_s
        if rounds is None:  # nothing comes after it that could take less time where the engine ends late
            left -= min(LATE_S, left / 4)
        return replace(settings, time_limit_s=left)

    def enough() -> bool:
        return tracker.gap <= settings.gap

    if rounds is not None and tracker.best is not None and not settings.deterministic:
        now, kept_s = limited(), 0.0
        if not _too_short(tracker, settings, now.time_limit_s):
            kept_s = full_graph_run(bench.problem, now, 0).seconds if small else exact_seconds(now)
        tracker.run("search", rounds.first_round(kept_s))
    if enough() and (settings.gap > 0 or not settings.deterministic):
        return None
    now = limited()
    if _too_short(tracker, settings, now.time_limit_s):
        return None
    if not small:
        return tracker.run("solve", solve_coarse(bench, exact_with_memory(bench, level, tracker), now, enough=enough))
    run = full_graph_run(bench.problem, now, tracker.lower_bound if tracker.best is not None else 0)
    posed = exact_with_memory(bench, full_graph_level(bench, tracker.best), tracker)
    done = tracker.run("solve", solve_coarse(bench, posed, now, run, enough))
    tracker.strengthen(proven_bound(done, tracker.bound), by="exact")
    if tracker.best is None and not _was_interrupted(done):
        _go_on(tracker.run("solve", solve_coarse(bench, level, limited(), enough=enough)))
    return done


def _too_short(tracker: Tracker, settings: Settings, seconds: float) -> bool:
    """Return True if a plan fits, and a process would take these seconds to start."""
    return (
        tracker.best is not None
        and settings.solver in WINDOWS
        and seconds <= _STARTS * _engine_start_s(tracker, settings)
    )


def _engine_start_s(tracker: Tracker, settings: Settings) -> float:
    """Seconds that an engine takes to begin: as making coarse graphs did; 0 unless half the time is over."""
    return tracker.stages_s["coarsen"] if _is_late(tracker, settings, _QUICK)() else 0.0


def _go_on(done: ExactOutcome | None) -> None:
    """Raise KeyboardInterrupt if Ctrl-C ended the exact solver, which keeps what it had: nothing further is begun."""
    if done is not None and _was_interrupted(done):
        raise KeyboardInterrupt


def _was_interrupted(done: ExactOutcome) -> bool:
    return done.interrupted or done.result.limit is Limit.INTERRUPT


def formulate(
    graph: Graph, costs: Costs, cluster: Cluster, settings: Settings, pins: Mapping[str, str] | None = None
) -> Problem:
    """Return the full-graph problem that every plan is checked against; its static memory is the variables'.

    `pins` maps variables to devices by name, as of `Plan.pins`. Raise InfeasibleError, with the bytes short, if the
    variables alone cannot fit.
    """
    problem = build_problem(graph, costs, cluster, memory=graph.param_bytes, per_edge=settings.per_edge, pins=pins)
    if quick_bounds.memory_proof(problem) is not None:
        raise InfeasibleError.build(f"the variables do not fit: {shortage(graph, problem, cluster)}", remedy=_LARGER)
    return problem


def _nothing_fits(tracker: Tracker, cluster: Cluster, done: ExactOutcome | None) -> Candidate:
    """Say that the exact solver failed, that no plan can fit, or how far the nearest candidate is from fitting."""
    if done is not None and done.result.status in FAILED:
        result = done.result
        raise SolverError.build(
            f"no plan fits, and {result.solver} failed: {result.status}: {result.detail}", remedy="see pesto doctor"
        )
    if done is not None and done.result.status is Status.INFEASIBLE and done.coarsening.reason == LIVES:
        raise InfeasibleError.build(
            f"no plan fits the memory: {done.result.detail}", remedy=f"{_LARGER}, or a smaller batch"
        )
    nearest = tracker.nearest
    if nearest is None:
        raise NothingFoundError.build("no plan was found", remedy=f"{_LARGER}, or a smaller batch")
    device = cluster.devices[int((nearest.peak - nearest.timeline.problem.capacity).argmax())]
    most = device.memory_bytes
    raise NothingFoundError.build(
        f"no plan found fits the memory: the nearest ({nearest.name}) peaks at {size(most + nearest.short)} on "
        f"{device.name}, {size(nearest.short)} more than its {size(most)}",
        remedy=f"{_LARGER}, or a smaller batch",
    )
