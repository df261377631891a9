"""The stages of a solve: the baselines, and the exact solver on the coarse graph."""

from dataclasses import replace

import numpy as np

from pesto.baselines.expert import expert
from pesto.baselines.places import accelerators, placed_at
from pesto.candidates import Bench
from pesto.cluster import Cluster
from pesto.levels import Level, list_schedule
from pesto.memory import measure
from pesto.settings import Settings
from pesto.tracker import Tracker
from solvers import api
from solvers.base import Progress
from solvers.problem import Problem
from solvers.result import Options, Result
from solvers.schedule import Schedule

_TRIES = 3
"""List schedules to make until one's measured peaks fit, each planned with less capacity than the one before."""


def baselines(bench: Bench, cluster: Cluster, tracker: Tracker) -> Problem:
    """Offer `single`, `expert` and `list`; return the problem that memory-aware planning should use.

    Its memory is what is alive at the peak when all runs on one device, charged to the ops that made it: summed
    over a device that estimates its peak. Its capacity is lowered until a list schedule's measured peaks fit.
    """
    problem = bench.problem
    for location in _distinct(problem, accelerators(problem, cluster)):
        device = placed_at(problem, np.full(problem.tasks, location))
        tracker.offer(bench.placed("single", f"everything on {cluster.devices[location].name}", device))
    alive = measure(bench.graph, tracker.candidates["single"].timeline, per_edge=bench.per_edge).alive
    by_rule = expert(bench.graph, problem, cluster)
    tracker.offer(bench.placed("expert", by_rule.rule, by_rule.device))
    return _list(bench, tracker, replace(problem, memory=alive))


def exact(bench: Bench, level: Level, settings: Settings, tracker: Tracker) -> Result:
    """Solve the coarse problem; offer the expansion of every schedule it finds on the way as `coarse`."""

    def expanded(schedule: Schedule) -> None:
        device, rank, rule = bench.expand(level.coarsening, schedule)
        by = "list start" if schedule is level.schedule else settings.solver
        tracker.offer(bench.ordered("coarse", f"{by} on {level.coarsening.nodes} nodes, {rule}", device, rank))

    def report(progress: Progress) -> None:
        if progress.schedule is not None:
            expanded(progress.schedule)

    if level.schedule is not None:
        expanded(level.schedule)
    options = Options(
        seconds=settings.time_limit_s,
        gap=settings.gap,
        seed=settings.seed,
        workers=settings.workers,
        deterministic=settings.deterministic,
        start=level.schedule,
    )
    result = api.solve(level.problem, settings.solver, options, report)
    if result.schedule is not None:
        expanded(result.schedule)
    return result


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
        result = list_schedule(attempt)
        if result.schedule is None:
            break
        planning = attempt
        candidate = bench.scheduled("list", "list scheduling of the full graph", result.schedule)
        tracker.offer(candidate)
        if candidate.fits:
            break
        over = candidate.peak / np.maximum(1, bench.problem.capacity)
        attempt = replace(planning, capacity=(planning.capacity / np.maximum(1.0, over * 1.02)).astype(np.int64))
    return planning
