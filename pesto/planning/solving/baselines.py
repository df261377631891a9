"""The candidates that take seconds: one GPU, the rules of people, and the quick methods of the literature."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import tee
from math import inf

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.memory import measure
from pesto.planning.baselines.expert import expert
from pesto.planning.baselines.layer_balanced import layer_balanced
from pesto.planning.baselines.places import accelerators
from pesto.planning.solving.background_compiler import shared_compiler
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.multilevel import run_heuristic
from pesto.planning.solving.tracker import Stage
from solvers import FORBIDDEN, Problem
from solvers.arrays import Ints
from solvers.bounds import quick_bounds
from solvers.deadlines import Late, never
from solvers.heuristics.devices_of_location import devices_at
from solvers.heuristics.methods import PLACERS

_SHARES = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
"""Of the activations' bytes, the largest of which planning counts that can fit at all."""
_FULL = 0.95
"""Of all memory: planning aims at no more."""
RIVALS = ("pardnn", "etf", "m-etf", "metis")
"""Methods of the literature that take seconds and are sometimes the best (docs/guides/compare.md)."""
MOST_TASKS = 300_000
"""Ops above which they are not given the full graph, and nothing is searched: each would take a minute or so."""
_MANY = 4
"""Accelerators beyond which quick methods also try half of them."""
_TRIES = 3
"""List schedules to make until one's measured peaks fit, each planned with less capacity than the one before."""


def baselines(
    bench: CandidateEvaluator,
    cluster: Cluster,
    late: Late = never,
    spent: Late = never,
    list_s: Callable[[], float] = lambda: inf,
) -> Stage[Problem]:
    """`single`, `expert`, `layer-balanced`, `list` and RIVALS; returns the problem that planning should use.

    late: asked before each but `single` and `list`; from then on the others are left out.
    spent: whether a plan fits and there is no time; `list`, and `single` on a further kind of device, are left out.
    list_s: seconds that `list` may take from now on; one of its passes is always made.

    Its memory is what is alive at the peak when all runs on one device, charged to the ops that made it: summed
    over a device that estimates its peak. Its capacity is lowered until a list schedule's measured peaks fit.
    """
    problem = bench.problem
    singles: list[Candidate] = []
    for location in _distinct(problem, accelerators(problem, cluster)):
        if singles and spent():
            break
        device = devices_at(problem, np.full(problem.tasks, location))
        singles.append(bench.placed("single", f"everything on {cluster.devices[location].name}", device))
        yield singles[-1]
    single = min(singles, key=lambda c: (not c.fits, c.makespan))
    fits = single.fits
    alive = measure(bench.graph, single.timeline, per_edge=bench.per_edge).alive
    for name, rule in (("expert", expert), ("layer-balanced", layer_balanced)):
        if not late():
            by_rule = rule(bench.graph, problem, cluster)
            placed = bench.placed(name, by_rule.rule, by_rule.device)
            fits = fits or placed.fits
            yield placed
    trials, these = tee(estimates(problem, alive))
    planning = next(these)
    if spent() or not shared_compiler().need("list", late=lambda: fits and late()):
        return planning
    planning = yield from _list(bench, planning, spent, list_s)
    if problem.tasks > MOST_TASKS:
        return planning
    free = quick_bounds.share(problem.holding(memory=np.zeros_like(problem.memory)), problem)
    for name in RIVALS:
        if late() or not shared_compiler().need(name, late=late):
            return planning
        trials, these = tee(trials)
        for posed in these if PLACERS[name].memory else (free,):
            schedule = run_heuristic(posed, name).schedule
            if schedule is not None:
                yield bench.scheduled(name, f"{name} on the full graph", schedule)
                break
    if not late():
        yield from _fewer(bench, cluster, planning)
    return planning


def _fewer(bench: CandidateEvaluator, cluster: Cluster, planning: Problem) -> Stage[None]:
    """`list` and `pardnn` on half of many accelerators: what is greedy spreads too thin over all of them."""
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
        schedule = run_heuristic(posed, name).schedule
        if schedule is not None:
            rule = f"{name} on the full graph, {kept} of {len(places)} accelerators"
            yield bench.scheduled(name, rule, schedule)


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


def _list(bench: CandidateEvaluator, planning: Problem, spent: Late, list_s: Callable[[], float]) -> Stage[Problem]:
    """`list`, once more while it does not fit, unless the time is `spent`; returns the last problem it planned with."""
    attempt = planning
    for _ in range(_TRIES):
        if attempt is not planning and spent():
            break
        result = run_heuristic(attempt, "list", seconds=list_s())
        if result.schedule is None:
            break
        planning = attempt
        candidate = bench.scheduled("list", "list scheduling of the full graph", result.schedule)
        yield candidate
        if candidate.fits:
            break
        over = candidate.peak / np.maximum(1, bench.problem.capacity)
        attempt = planning.holding(capacity=(planning.capacity / np.maximum(1.0, over * 1.02)).astype(np.int64))
        quick_bounds.share(attempt, planning)
    return planning
