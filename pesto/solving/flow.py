"""The whole program on one screen: graph -> costs -> problem -> coarsening -> schedule -> plan."""

import time
from dataclasses import dataclass

from pesto.cluster import Cluster
from pesto.costs import Costs
from pesto.errors import InfeasibleError, NothingFoundError, SolverError
from pesto.graph import Graph
from pesto.memory.peaks import shortage
from pesto.plans.order_worth import OrderWorth, order_worth
from pesto.plans.plan import Coarse, Plan, verify
from pesto.plans.warm_start import carried
from pesto.problem import build
from pesto.settings import Settings
from pesto.solving.background_bound import strengthened
from pesto.solving.candidates import Bench, Candidate
from pesto.solving.exact import MOST_TASKS, RIVALS, Start, baselines, exact
from pesto.solving.interrupt import hold, release
from pesto.solving.levels import levels
from pesto.solving.record import Account, coarse_account, make_plan
from pesto.solving.repair import mend
from pesto.solving.search import improve
from pesto.solving.search_graphs import MOST
from pesto.solving.tracker import Tracker, Watch
from solvers.bounds import quick_bounds
from solvers.bounds.evidence import FullBound
from solvers.problem import Problem
from solvers.result import FAILED, Limit

_LARGER = "use more or larger devices"
CANDIDATES = ("start", "single", "expert", "layer-balanced", *RIVALS, "list", "levels", "repaired", "coarse", "search")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """A verified plan and how it was found."""

    plan: Plan
    problem: Problem
    candidates: dict[str, Candidate | None]
    """By the names of CANDIDATES; None where none was found, and no `start` where none was given."""
    last: Candidate | None
    """The exact solver's last schedule, expanded; `coarse` is the best of all that it found."""
    start: Start | None
    """What the exact solver began with."""
    order: OrderWorth
    """What enforcing the plan's order is worth."""
    stages_s: dict[str, float]
    interrupted: bool


def solve(
    graph: Graph, cluster: Cluster, costs: Costs, settings: Settings, watch: Watch, start: Plan | None = None
) -> Outcome:
    """The best verified plan of all candidates; `watch` hears of every better one.

    Candidates are `start` (an older plan, carried over: `pesto.plans.warm_start`), `single` (all on one GPU), `expert`,
    `layer-balanced`, the quick ones among the literature's methods (`pesto.solving.exact.RIVALS`), `list` (list
    scheduling of the full graph), `levels` (quick schedules of coarser graphs), `repaired` (one of these that does not
    fit the memory, with ops moved until it does), `coarse` (the exact solver on the coarsened graph, expanded; where
    search follows, not beyond `pesto.solving.search_graphs.MOST` ops) and `search` (annealing from the best of these:
    `pesto.solving.search`; not beyond `pesto.solving.exact.MOST_TASKS`). Meanwhile the lower bound is made stronger.

    InfeasibleError with the proof when the variables cannot fit the memory; NothingFoundError when no candidate fits,
    with the bytes short; UsageError when `start` knows none of the ops. Ctrl-C ends the search, and the best plan known
    is returned; KeyboardInterrupt when there is none yet.
    """
    release()
    tracker = Tracker(watch)
    with tracker.stage("problem"):
        problem = formulate(graph, costs, cluster, settings)
        bench = Bench.of(graph, problem, per_edge=settings.per_edge)
        tracker.bound = FullBound(*quick_bounds.best(problem))
    _carry(start, bench, cluster, tracker)
    found, interrupted = _search(bench, cluster, tracker, settings)
    coarse = found.account if found is not None else None
    hold()
    with tracker.stage("verify"):
        chosen = tracker.best or _nothing_fits(tracker, cluster, coarse)
        account = Account(
            graph=graph, cluster=cluster, costs=costs, settings=settings, bound=tracker.bound, coarse=coarse
        )
        plan = make_plan(account, chosen, tracker.candidates)
        verify(plan, graph, problem, cluster)
    return Outcome(
        plan=plan,
        problem=problem,
        last=found.last if found is not None else None,
        start=found.start if found is not None else None,
        candidates={name: tracker.candidates.get(name) for name in CANDIDATES[start is None :]},
        order=order_worth(problem, plan.schedule.device, plan.rank),
        stages_s=tracker.stages_s,
        interrupted=interrupted,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Found:
    account: Coarse
    last: Candidate | None
    start: Start | None


def _carry(start: Plan | None, bench: Bench, cluster: Cluster, tracker: Tracker) -> None:
    """Offer `start`, the plan that the solve begins from, if there is one."""
    if start is not None:
        with tracker.stage("start"):
            known = carried(start, bench.graph, bench.problem, cluster)
            tracker.offer(bench.ordered("start", known.rule, known.device, known.rank))


def _search(bench: Bench, cluster: Cluster, tracker: Tracker, settings: Settings) -> tuple[_Found | None, bool]:
    """Offer all candidates; return what the exact solver did, and whether the search was interrupted."""
    found = None
    try:
        with tracker.stage("baselines"):
            planning = baselines(bench, cluster, tracker)
        if tracker.proven:
            return None, False
        with tracker.stage("coarsen"):
            level, ladder = levels(bench, planning, tracker, settings.coarsen_to)
        with tracker.stage("repair"):
            mend(bench, tracker)
        ends = time.perf_counter() + settings.time_limit_s
        with strengthened(bench.problem, tracker, settings):
            if not _at_once(bench.problem, tracker, settings):
                with tracker.stage("solve"):
                    done = exact(bench, level, settings, tracker)
                found = _Found(account=coarse_account(level.coarsening, done.result), last=done.last, start=done.start)
                if done.result.limit is Limit.INTERRUPT:
                    return found, True
            if settings.search and bench.problem.tasks <= MOST_TASKS:
                with tracker.stage("search"):
                    improve(bench, planning, ladder, tracker, settings, ends)
    except KeyboardInterrupt:
        if tracker.best is None:
            raise
        return found, True
    return found, False


def _at_once(problem: Problem, tracker: Tracker, settings: Settings) -> bool:
    """Whether search begins without a coarse optimum: a plan was given, or so few nodes say nothing of so many ops."""
    start = tracker.candidates.get("start")
    return settings.search and (problem.tasks > MOST or (start is not None and start.fits))


def formulate(graph: Graph, costs: Costs, cluster: Cluster, settings: Settings) -> Problem:
    """The full-graph problem that every plan is checked against; its static memory is the variables'.

    InfeasibleError, with the bytes short, when the variables alone cannot fit.
    """
    problem = build(graph, costs, cluster, memory=graph.param_bytes, per_edge=settings.per_edge)
    if quick_bounds.memory_proof(problem) is not None:
        raise InfeasibleError(f"the variables do not fit: {shortage(graph, problem, cluster)} - {_LARGER}")
    return problem


def _nothing_fits(tracker: Tracker, cluster: Cluster, coarse: Coarse | None) -> Candidate:
    """Say that the exact solver failed, or how far the nearest candidate is from fitting."""
    if coarse is not None and coarse.status in FAILED:
        raise SolverError(
            f"no plan fits, and {coarse.solver} failed: {coarse.status}: {coarse.detail} - see pesto doctor"
        )

    def short(candidate: Candidate) -> int:
        return max(int(p) - d.memory_bytes for p, d in zip(candidate.peak, cluster.devices, strict=True))

    nearest = min(tracker.candidates.values(), key=short)
    worst = max(range(len(cluster.devices)), key=lambda d: int(nearest.peak[d]) - cluster.devices[d].memory_bytes)
    device = cluster.devices[worst]
    peak, most = int(nearest.peak[worst]) / 2**30, device.memory_bytes / 2**30
    raise NothingFoundError(
        f"no plan found fits the memory: the nearest ({nearest.name}) peaks at {peak:.2f} GiB on {device.name}, "
        f"{peak - most:.2f} GiB more than its {most:.2f} GiB - {_LARGER}, or a smaller batch"
    )
