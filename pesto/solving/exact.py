"""The stages of a solve: the baselines, and the exact solver on the coarse graph."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import tee

import numpy as np

from pesto.baselines.expert import expert
from pesto.baselines.layer_balanced import layer_balanced
from pesto.baselines.places import accelerators
from pesto.cluster import Cluster
from pesto.memory.peaks import measure
from pesto.settings import Settings
from pesto.solving.candidates import Bench, Candidate
from pesto.solving.levels import Level, quick
from pesto.solving.tracker import Tracker
from solvers import api
from solvers.arrays import Ints
from solvers.base import Progress
from solvers.bounds import quick_bounds
from solvers.heuristics.devices_of_location import devices_at
from solvers.heuristics.methods import PLACERS
from solvers.problem import FORBIDDEN, Problem
from solvers.result import ANSWERED, Options, Result
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild

_LOG = logging.getLogger("pesto.solver")
"""The exact solver's own lines, which -v shows."""
_SHARES = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
"""Of the activations' bytes, the largest of which planning counts that can fit at all."""
_FULL = 0.95
"""Of all memory: planning aims at no more."""
RIVALS = ("pardnn", "etf", "m-etf", "metis")
"""Methods of the literature that take seconds and are sometimes the best (docs/comparison.md)."""
MOST_TASKS = 300_000
"""Ops above which they are not given the full graph, and nothing is searched: each would take a minute or so."""
_EXACT, _EXACT_LEAST_S = 0.15, 5.0
"""Share of the time limit that the exact solver gets where search follows; these seconds, or half of the limit, at
least."""
_MANY = 4
"""Accelerators beyond which quick methods also try half of them."""
_TRIES = 3
"""List schedules to make until one's measured peaks fit, each planned with less capacity than the one before."""


def baselines(bench: Bench, cluster: Cluster, tracker: Tracker) -> Problem:
    """Offer `single`, `expert`, `list`, `layer-balanced` and RIVALS; return the problem that planning should use.

    Its memory is what is alive at the peak when all runs on one device, charged to the ops that made it: summed
    over a device that estimates its peak. Its capacity is lowered until a list schedule's measured peaks fit.
    """
    problem = bench.problem
    for location in _distinct(problem, accelerators(problem, cluster)):
        device = devices_at(problem, np.full(problem.tasks, location))
        tracker.offer(bench.placed("single", f"everything on {cluster.devices[location].name}", device))
    alive = measure(bench.graph, tracker.candidates["single"].timeline, per_edge=bench.per_edge).alive
    by_rule = expert(bench.graph, problem, cluster)
    tracker.offer(bench.placed("expert", by_rule.rule, by_rule.device))
    by_layer = layer_balanced(bench.graph, problem, cluster)
    tracker.offer(bench.placed("layer-balanced", by_layer.rule, by_layer.device))
    trials, these = tee(estimates(problem, alive))
    planning = _list(bench, tracker, next(these))
    if problem.tasks > MOST_TASKS:
        return planning
    free = quick_bounds.share(problem.holding(memory=np.zeros_like(problem.memory)), problem)
    for name in RIVALS:
        trials, these = tee(trials)
        for posed in these if PLACERS[name].memory else (free,):
            schedule = quick(posed, name).schedule
            if schedule is not None:
                tracker.offer(bench.scheduled(name, f"{name} on the full graph", schedule))
                break
    _fewer(bench, cluster, tracker, planning)
    return planning


def _fewer(bench: Bench, cluster: Cluster, tracker: Tracker, planning: Problem) -> None:
    """Offer `list` and `pardnn` on half of many accelerators: what is greedy spreads too thin over all of them."""
    places = accelerators(planning, cluster)
    kept = len(places) // 2
    if len(places) <= _MANY:
        return
    duration = np.where(np.isin(planning.location, places[kept:]), FORBIDDEN, planning.duration)
    pinned = (duration == FORBIDDEN).all(axis=1)
    duration[pinned] = planning.duration[pinned]
    half = replace(planning, duration=duration)
    for name in ("list", "pardnn"):
        posed = half if name == "list" else half.holding(memory=np.zeros_like(half.memory))
        schedule = quick(posed, name).schedule
        if schedule is not None:
            rule = f"{name} on the full graph, {kept} of {len(places)} accelerators"
            tracker.offer(bench.scheduled(name, rule, schedule))


def estimates(problem: Problem, alive: Ints) -> Iterator[Problem]:
    """Problems for planning: their memory is [n] `alive` bytes, what exceeds the variables' scaled down more and more.

    What is alive when one device is at its peak is not alive at once on several; where it is more than all devices
    hold, no planner could place it, and that would be no proof of anything. So the first is the largest that is not
    proven to exceed the memory; a method that finds no room with one should try the next. The last knows but variables.
    """
    beyond = np.maximum(alive - problem.memory, 0)
    for share in _SHARES:
        planning = problem.holding(memory=problem.memory + (share * beyond).astype(np.int64))
        roomy = planning.holding(capacity=(_FULL * problem.capacity).astype(np.int64))
        if share == 0 or quick_bounds.memory_proof(roomy) is None:
            yield quick_bounds.share(planning, problem)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """The quick schedule that the exact solver began with."""

    makespan: int
    """Ticks, on the problem that the solver got."""
    expanded: Candidate
    """Offered only with congestion."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exact:
    """What the exact solver did on the coarse graph."""

    result: Result
    """Without congestion, of the problem without links."""
    last: Candidate | None
    """The expansion of its last schedule, which one of an earlier schedule may beat.

    None when it has no answer, or none better than its start.
    """
    start: Start | None
    """None where memory defeats the list scheduler."""


def exact(bench: Bench, level: Level, settings: Settings, tracker: Tracker) -> Exact:
    """Solve the coarse problem; offer the expansion of every schedule it finds on the way as `coarse`.

    Without congestion the solver gets the problem without links, so that transfers never wait for each other (Pesto,
    3.2.2, Fig 5). Its placement and orders are then timed on the real links, and the start, which knows of them, is not
    offered.
    """

    def expanded(schedule: Schedule) -> Candidate:
        real = schedule if settings.congestion else rebuild(level.problem, schedule)
        device, rank, rule = bench.expand(level.coarsening, real)
        by = f"{level.by}, the start," if schedule is start else settings.solver
        candidate = bench.ordered("coarse", f"{by} on {level.coarsening.nodes} nodes, {rule}", device, rank)
        if settings.congestion or schedule is not start:
            tracker.offer(candidate)
        return candidate

    def report(progress: Progress) -> None:
        for line in progress.log:
            _LOG.info("%s", line)
        if progress.schedule is not None:
            expanded(progress.schedule)

    problem, start = _posed(level, settings)
    began = Start(makespan=start.makespan, expanded=expanded(start)) if start is not None else None
    result = api.solve(problem, settings.solver, _options(settings, start), report)
    if result.schedule is None or result.schedule is start:  # nothing of its own
        return Exact(result=result, last=None, start=began)
    last = expanded(result.schedule)
    return Exact(result=result, last=last if result.status in ANSWERED else None, start=began)


def _posed(level: Level, settings: Settings) -> tuple[Problem, Schedule | None]:
    """What the exact solver gets: a problem, and a schedule of it to start from."""
    if settings.congestion:
        return level.problem, level.schedule
    free = replace(level.problem, path_links=np.full_like(level.problem.path_links, -1))
    return free, rebuild(free, level.schedule) if level.schedule is not None else None


def _options(settings: Settings, start: Schedule | None) -> Options:
    return Options(
        seconds=exact_seconds(settings),
        gap=settings.gap,
        seed=settings.seed,
        workers=settings.workers,
        deterministic=settings.deterministic,
        formulation=settings.formulation,
        start=start,
    )


def exact_seconds(settings: Settings) -> float:
    """The exact solver's part of the time: all of it, or what search leaves."""
    limit = settings.time_limit_s
    return max(_EXACT * limit, min(_EXACT_LEAST_S, limit / 2)) if settings.search else limit


def _distinct(problem: Problem, locations: list[int]) -> list[int]:
    """One location of each class of equals: the same durations and capacity, and the same paths to all others."""
    others = np.setdiff1d(np.arange(problem.locations), locations)
    seen: dict[tuple[object, ...], int] = {}
    for location in locations:
        columns = problem.duration[:, problem.location == location]
        paths = (problem.path_class[location, others].tolist(), problem.path_class[others, location].tolist())
        key = (columns.tobytes(), int(problem.capacity[location]), *map(tuple, paths))
        seen.setdefault(key, location)
    return list(seen.values())


def _list(bench: Bench, tracker: Tracker, planning: Problem) -> Problem:
    """Offer `list`; return the last problem that it could plan with."""
    attempt = planning
    for _ in range(_TRIES):
        result = quick(attempt, "list")
        if result.schedule is None:
            break
        planning = attempt
        candidate = bench.scheduled("list", "list scheduling of the full graph", result.schedule)
        tracker.offer(candidate)
        if candidate.fits:
            break
        over = candidate.peak / np.maximum(1, bench.problem.capacity)
        attempt = planning.holding(capacity=(planning.capacity / np.maximum(1.0, over * 1.02)).astype(np.int64))
        quick_bounds.share(attempt, planning)
    return planning
