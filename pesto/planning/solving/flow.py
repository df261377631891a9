"""The whole program on one screen: graph -> costs -> problem -> coarsening -> schedule -> plan."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.errors import InfeasibleError, InputError, NothingFoundError, SolverError
from pesto.core.graph import Graph
from pesto.core.plans.execution_modes import ModePrediction, OrderWorth, predict_enforcement
from pesto.core.plans.plan import Plan
from pesto.core.plans.shared_variables import CompanionPlan, shared_pins
from pesto.core.plans.warm_start import carry_over
from pesto.core.quantities import size
from pesto.core.settings import Settings
from pesto.core.simulator import Timeline
from pesto.planning.coarsen import Removed
from pesto.planning.solving.background_compiler import COARSE, SEARCH
from pesto.planning.solving.candidates import LARGER, Candidate, CandidateEvaluator, LinkTieRuns
from pesto.planning.solving.colocation_ties import ColocationTie, find_ties
from pesto.planning.solving.exact import (
    LIVES,
    ExactOutcome,
    engine_of,
    reserved_seconds,
    solve_exactly,
    strengthen_bound,
)
from pesto.planning.solving.interrupt import hold, release
from pesto.planning.solving.quick_candidates import (
    MOST_TASKS,
    RIVALS,
    baselines,
    cpu_deadline,
    multilevel,
    repair_candidate,
    repairs,
)
from pesto.planning.solving.search import MOST_WALKED, AnnealingSearch
from pesto.planning.solving.tracker import (
    ENGINES_SHARE,
    QUICK_SHARE,
    Contribution,
    SolveRecord,
    Stage,
    Tracker,
    Watch,
    begin_solve,
)
from pesto.planning.solving.trust import Trust, least_p90, measure_trust, solve_error_model
from solvers import FAILED, Problem, Status
from solvers.deadlines import never
from solvers.timing.replay import fifo

_OVER = 1.05
"""Share of the time limit after which nothing is predicted of a plan that needs further runs of the step."""
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
    compiled: bool
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
    record = SolveRecord(graph=graph, cluster=cluster, costs=costs, settings=settings, beside=kept)
    tracker = begin_solve(record, watch, earlier.spent_s)
    evaluator, deadlines, exact = tracker.evaluator, tracker.deadlines, None
    if earlier.start is not None:
        tracker.run("start", carry_start(earlier.start, evaluator, cluster))
    with tracker.interruptible():
        planning = tracker.run("baselines", baselines(evaluator, cluster, deadlines.baseline_limits()))
        deadlines.measure_closing()
        needed = not tracker.proven and tracker.wait_for(COARSE, QUICK_SHARE) and not deadlines.spent()
        if needed:
            late = partial(deadlines.past, QUICK_SHARE)
            level, ladder = tracker.run("coarsen", multilevel(evaluator, planning, settings, late))
            tracker.run("repair", repairs(tracker))
            deadlines.keep_closing()
            needed = settings.time_limit_s == 0 or tracker.wait_for(SEARCH, ENGINES_SHARE)
        if needed:
            with strengthen_bound(tracker):
                searched = settings.search and evaluator.problem.tasks <= MOST_TASKS
                search = AnnealingSearch(tracker, planning, ladder) if searched else None
                # Search needs no coarse optimum if a plan was given, or a coarse one says nothing of so many ops.
                start, large = tracker.candidates.get("start"), evaluator.problem.tasks > MOST_WALKED
                if not (settings.search and (large or (start is not None and start.fits))):
                    if search is not None and tracker.best is not None and not settings.deterministic:
                        tracker.run("search", search.first_round(reserved_seconds(tracker)))
                    exact = solve_exactly(tracker, level, followed=search is not None)
                    if exact is not None and exact.interrupted:
                        raise KeyboardInterrupt
                if search is not None:
                    tracker.run("search", search.other_rounds(windows=exact is None or not exact.useless))
    hold()
    with tracker.ledger.timed("verify"):
        chosen = _choose(tracker) or _nothing_fits(tracker, exact)
        plan = tracker.verified_plan(chosen, None if exact is None else exact.provenance())
    return _outcome(plan, tracker, exact)


def _shared_pins(other: Plan, graph: Graph, cluster: Cluster) -> CompanionPlan:
    """Return where the plan of another step keeps the variables that `graph` shares; errors as of `shared_pins`."""
    provenance = other.provenance
    pins = shared_pins((other.held, other.variable_devices(), provenance.graph_source), graph, cluster)
    return CompanionPlan(source=provenance.graph_source, fingerprint=provenance.graph_fingerprint, variables=pins)


def carry_start(start: Plan, evaluator: CandidateEvaluator, cluster: Cluster) -> Stage[None]:
    """Yield `start`: the plan that the solve begins from, carried over to this graph and cluster."""
    known = carry_over(start, evaluator.graph, evaluator.problem, cluster)
    yield evaluator.ordered("start", known.rule, known.device, known.rank)


def _choose(tracker: Tracker) -> Candidate | None:
    """The shortest candidate; if robust, that of least p90 among the nearly shortest; without an order, as FIFO."""
    evaluator, settings = tracker.evaluator, tracker.settings
    if settings.placement_only:
        # The shortest candidate when all are first in, first out; where none fits so, the nearest with ops moved.
        candidates = tracker.candidates
        candidates.update({name: evaluator.unordered(c) for name, c in candidates.items()})
        if candidates and tracker.best is None:
            nearest = min(candidates.values(), key=lambda c: c.short)
            late, timing = (
                never if settings.deterministic else cpu_deadline(),
                partial(fifo, prepared=evaluator.prepared),
            )
            moved = repair_candidate(
                evaluator, nearest, name="repaired", late=late, headroom=settings.headroom, timing=timing
            )
            candidates["repaired"] = evaluator.first_come(moved.name, moved.rule, moved.timeline.schedule.device)
            tracker.nearest = min(nearest, candidates["repaired"], key=lambda c: c.short)
        return tracker.best
    best = tracker.settle()
    if best is None or not settings.robust:
        return best
    errors = solve_error_model(evaluator, settings)
    chosen = least_p90(evaluator, tracker.record.cluster, tracker.near(), errors)
    tracker.candidates[chosen.name] = chosen
    return chosen


def _nothing_fits(tracker: Tracker, exact: ExactOutcome | None) -> Candidate:
    """Say that the exact solver failed, that no plan can fit, or how far the nearest candidate is from fitting."""
    if exact is not None and exact.result.status in FAILED:
        result = exact.result
        raise SolverError.build(
            f"no plan fits, and {result.solver} failed: {result.status}: {result.detail}", remedy="see pesto doctor"
        )
    if exact is not None and exact.result.status is Status.INFEASIBLE and exact.coarsening.reason == LIVES:
        raise InfeasibleError.build(
            f"no plan fits the memory: {exact.result.detail}", remedy=f"{LARGER}, or a smaller batch"
        )
    nearest, devices = tracker.nearest, tracker.record.cluster.devices
    if nearest is None:
        raise NothingFoundError.build("no plan was found", remedy=f"{LARGER}, or a smaller batch")
    device = devices[int((nearest.peak - nearest.timeline.problem.capacity).argmax())]
    needed, held = size(device.memory_bytes + nearest.short), size(device.memory_bytes)
    raise NothingFoundError.build(
        f"no plan found fits the memory: the nearest ({nearest.name}) peaks at {needed} on {device.name}, "
        f"{size(nearest.short)} more than its {held}",
        remedy=f"{LARGER}, or a smaller batch",
    )


def _outcome(plan: Plan, tracker: Tracker, exact: ExactOutcome | None) -> SolveOutcome:
    evaluator, ledger, record = tracker.evaluator, tracker.ledger, tracker.record
    graph, problem, candidates = evaluator.graph, evaluator.problem, tracker.candidates
    chosen, schedule, ordered = candidates[plan.provenance.chosen], plan.schedule, not plan.placement_only
    names = CANDIDATES if "start" in candidates else CANDIDATES[1:]
    with ledger.timed("ties"):
        ties = find_ties(graph, problem, schedule.makespan, timed=not tracker.interrupted)
    trust = None
    with ledger.timed("trust"):
        over = tracker.deadlines.spent(_OVER)
        hurried = tracker.interrupted or tracker.deadlines.is_hurried
        with suppress(InputError):  # of a step of a hundred years: no reason to lose the plan
            errors = solve_error_model(evaluator, tracker.settings, hurried=hurried)
            if not over:
                trust = measure_trust(evaluator, record.cluster, chosen, candidates.values(), errors, order=ordered)
        planned = Timeline(problem=problem, schedule=schedule)
        enforcement = predict_enforcement(graph, planned, plan.rank, order=ordered, with_mode=not over)
    engines = {"exact": tracker.settings.solver, "windows": engine_of(tracker.settings)}
    return SolveOutcome(
        plan=plan, problem=problem, candidates={name: candidates.get(name) for name in names}, exact=exact,
        order=enforcement.worth, ties=ties, enforced=enforcement.mode, remedy=enforcement.remedy,
        turns=chosen.turns or LinkTieRuns(tried=0, least=chosen.makespan), trust=trust, stages_s=ledger.stages_s,
        first=ledger.first or 0, contributions=ledger.of(chosen.makespan, engines), interrupted=tracker.interrupted,
        costs=record.costs, compiled=tracker.compiled,
    )  # fmt: skip
