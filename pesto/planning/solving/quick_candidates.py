"""Stages that make candidates before the engines: baselines, quick schedules of coarse graphs, and repairs."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import tee
from math import inf

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.memory import footprint, measure
from pesto.core.settings import Settings
from pesto.planning.coarsen import Caps, Coarsening, coarsen, contract
from pesto.planning.placement_rules import accelerators, expert, layer_balanced
from pesto.planning.solving.background_compiler import shared_compiler
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.tracker import SoFar, Stage
from solvers import FORBIDDEN, MOST, Limit, Options, Problem, Result, Schedule, api
from solvers.arrays import Ints
from solvers.bounds import quick_bounds
from solvers.deadlines import Late, after, never
from solvers.heuristics.devices_of_location import devices_at
from solvers.heuristics.methods import PLACERS
from solvers.heuristics.overflow.relief import relieve

SIZES = (3200, 1600, 800, 400)
"""Nodes of the coarse graphs that are tried beside the target."""
_QUICK = {"list": "list scheduling", "pardnn": "ParDNN"}
"""Heuristic for coarse graphs -> its name in a plan's rule."""
MANY_TASKS = 100_000
"""Beyond this, only the largest size and the target are tried, by steps: all others take seconds each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """One coarse graph with the better of a list schedule and ParDNN's; None if neither fits the memory."""

    coarsening: Coarsening
    problem: Problem
    schedule: Schedule | None
    by: str
    """Name of the method that made the schedule."""


def multilevel(
    bench: CandidateEvaluator, planning: Problem, settings: Settings, late: Late = never
) -> Stage[tuple[Level, list[Coarsening]]]:
    """Yield `levels`: quick schedules of coarse graphs of any size down to the target of `settings`, expanded.

    Return the best coarse graph of the target size, and the coarsenings that were reached by steps, fine to coarse.

    A list scheduler sees no further than its next choice, and a node is a longer look ahead, so neither the full
    graph nor the one that the exact solver gets is always its best. Each size is reached in two ways: from the full
    graph, and from the next larger size. Neither is always better: NASNet's graphs profit from small steps (at 200
    nodes by a quarter), recurrent networks from one large one.

    `late` is asked before each size; from then on only the target is made, in one step from the size before it.
    """
    shared_compiler().need("coarse")
    levels: list[tuple[bool, int, Level]] = []
    steps: list[Coarsening] = []
    for stepwise, coarsening in _ladder(planning, settings, late):
        steps += [coarsening] if stepwise else []
        if late() and coarsening.target != settings.coarsen_to:
            continue
        problem, fits, makespan = contract(planning, coarsening.node_of), False, MOST
        schedules = [(run_heuristic(problem, name).schedule, by) for name, by in _QUICK.items()]
        fitting = [(schedule, by) for schedule, by in schedules if schedule is not None]
        schedule, by = min(fitting, key=lambda pair: pair[0].makespan) if fitting else (None, "")
        if schedule is not None:
            device, rank, rule = bench.expand(coarsening, schedule)
            rule = f"{by} of {coarsening.nodes} nodes, {rule}"
            candidate = bench.ordered("levels", rule, device, rank)
            fits, makespan = candidate.fits, candidate.makespan
            yield candidate
        if coarsening.target == settings.coarsen_to:
            level = Level(coarsening=coarsening, problem=problem, schedule=schedule, by=by)
            levels.append((not fits, makespan, level))
    return min(levels, key=lambda row: row[:2])[2], steps


def run_heuristic(problem: Problem, name: str, *, seconds: float = Options().seconds) -> Result:
    """Return a heuristic's answer within `seconds`; raise KeyboardInterrupt if Ctrl-C ended it."""
    result = api.solve(problem, name, Options(seconds=seconds))
    if result.limit is Limit.INTERRUPT:
        raise KeyboardInterrupt
    return result


def _ladder(planning: Problem, settings: Settings, late: Late) -> Iterator[tuple[bool, Coarsening]]:
    """Yield (True if by steps, coarsening) of every size, from large to small, by steps and (but the first) at once.

    If nothing can be merged any more above a size, as where many ops are pinned, only the target is tried after it:
    all others would end at nearly the same nodes.
    """
    target, few = settings.coarsen_to, planning.tasks > MANY_TASKS
    caps = Caps(time=settings.merge_time, members=settings.merge_members)
    sizes = [size for size in (SIZES[:1] if few else SIZES) if target < size < planning.tasks] + [target]
    stepwise = coarsen(planning, sizes[0], caps=caps)
    yield True, stepwise
    for size in sizes[1:]:
        if size > target and (stepwise.nodes > stepwise.target or late()):
            continue
        stepwise = stepwise.then(coarsen(contract(planning, stepwise.node_of), size, caps=caps))
        yield True, stepwise
        if not few and not late():
            yield False, coarsen(planning, size, caps=caps)


_SHARES = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
"""Shares of the activations' bytes that planning tries to count, largest first."""
_FULL = 0.95
"""Share of all memory that planning aims at."""
RIVALS = ("pardnn", "etf", "m-etf", "metis")
"""Methods of the literature that take seconds and are sometimes the best (docs/guides/compare.md)."""
MOST_TASKS = 300_000
"""Maximum ops for RIVALS on the full graph, and for search: beyond, each would take a minute or so."""
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
    """Yield `single`, `expert`, `layer-balanced`, `list` and RIVALS; return the problem that planning should use.

    `late` is asked before each but `single` and `list`; from then on the others are left out. Once `spent`, when a plan
    fits and there is no time, `list`, and `single` on a further kind of device, are left out. `list_s` tells the
    seconds that `list` may take from now on; one of its passes is always made.

    The problem's memory is what is alive at the peak when all runs on one device, charged to the ops that made it:
    summed over a device that estimates its peak. Its capacity is lowered until a list schedule's measured peaks fit.
    """
    problem = bench.problem
    singles: list[Candidate] = []
    for location in _distinct_locations(problem, accelerators(problem, cluster)):
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
    trials, estimated = tee(estimates(problem, alive))
    planning = next(estimated)
    if spent() or not shared_compiler().need("list", late=lambda: fits and late()):
        return planning
    planning = yield from _list(bench, planning, spent, list_s)
    if problem.tasks > MOST_TASKS:
        return planning
    free = quick_bounds.share(problem.holding(memory=np.zeros_like(problem.memory)), problem)
    for name in RIVALS:
        if late() or not shared_compiler().need(name, late=late):
            return planning
        trials, estimated = tee(trials)
        for posed in estimated if PLACERS[name].memory else (free,):
            schedule = run_heuristic(posed, name).schedule
            if schedule is not None:
                yield bench.scheduled(name, f"{name} on the full graph", schedule)
                break
    if not late():
        yield from _on_half(bench, cluster, planning)
    return planning


def _on_half(bench: CandidateEvaluator, cluster: Cluster, planning: Problem) -> Stage[None]:
    """Yield `list` and `pardnn` on half of many accelerators: greedy methods spread too thin over all of them."""
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
    """Yield problems for planning, whose memory is the variables' and less and less of [n] the `alive` bytes beyond.

    What is alive when one device is at its peak is not alive at once on several; if it is more than all devices hold,
    no planner could place it, and that would be no proof of anything. So the first is the largest that is not proven to
    exceed the memory; a method that finds no room with one should try the next. The last counts variables alone.
    """
    beyond = np.maximum(alive - problem.memory, 0)
    for share in _SHARES:
        planning = problem.holding(memory=problem.memory + (share * beyond).astype(np.int64))
        roomy = planning.holding(capacity=(_FULL * problem.capacity).astype(np.int64))
        if share == 0 or quick_bounds.memory_proof(roomy) is None:
            yield quick_bounds.share(planning, problem)


def _distinct_locations(problem: Problem, locations: list[int]) -> list[int]:
    """One location of each class of equal durations, capacity and paths to all others."""
    others = np.setdiff1d(np.arange(problem.locations), locations)
    seen: dict[tuple[object, ...], int] = {}
    for location in locations:
        columns = problem.duration[:, problem.location == location]
        paths = (problem.path_class[location, others].tolist(), problem.path_class[others, location].tolist())
        key = (columns.tobytes(), int(problem.capacity[location]), *map(tuple, paths))
        seen.setdefault(key, location)
    return list(seen.values())


def _list(bench: CandidateEvaluator, planning: Problem, spent: Late, list_s: Callable[[], float]) -> Stage[Problem]:
    """Yield `list`, once more while it does not fit, unless `spent`; return the last problem it planned with."""
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


SECONDS = 30.0
"""CPU seconds, about, for one repair while no plan fits: the largest training steps take a few, what no repair can fit
would take minutes."""
_LEAST_S = 1.0
"""Minimum seconds, about, for one repair if no time is left."""
_REPAIRS = 3
"""Maximum number of candidates to repair, shortest first."""


def repairs(bench: CandidateEvaluator, so_far: SoFar, settings: Settings, late: Late = never) -> Stage[None]:
    """Yield `repaired`: of the candidates that do not fit and are shorter than the best that does.

    `single` is left out: a repair would have to move the most of it and gain the least. If a plan fits, all of them
    have what is left of the time at most, else SECONDS of the processor each, so that a busy machine finds one, too.
    With deterministic settings none looks at a clock. Once `late` nothing is compiled for repairs any more.
    """
    best = so_far.best
    over = [c for c in so_far.candidates.values() if not c.fits and c.name != "single"]
    over = [c for c in over if best is None or c.makespan < best.makespan]
    if over and not shared_compiler().need("repair", late=late):
        return
    for candidate in sorted(over, key=lambda c: c.makespan)[:_REPAIRS]:
        ends = never if settings.deterministic else cpu_deadline()
        if so_far.best is not None and not settings.deterministic:
            ends = after(min(SECONDS, max(so_far.left_s, _LEAST_S)), time.perf_counter)
        yield repair_candidate(bench, candidate, name="repaired", late=ends, headroom=settings.headroom)


def cpu_deadline() -> Late:
    """Return a deadline after SECONDS of this thread's CPU time."""
    return after(SECONDS, time.thread_time)


def repair_candidate(
    bench: CandidateEvaluator,
    candidate: Candidate,
    *,
    name: str,
    late: Late = never,
    headroom: float,
    timing: Callable[[Problem, Ints], Schedule] | None = None,
) -> Candidate:
    """Return the candidate with units moved off full devices (ParDNN, step 2), whether or not it then fits.

    It is named `name` and its rule says what was done. It gives up once it is `late`. `headroom` is the share of each
    memory that is spared at first. `timing` makes the schedules in place of the candidate's order.
    """
    relief = relieve(
        bench.problem,
        footprint(bench.graph, per_edge=bench.per_edge),
        candidate.timeline.schedule.device,
        order=candidate.rank if timing is None else partial(timing, bench.problem),
        late=late,
        headroom=headroom,
    )
    rank = relief.rank if relief.rank is not None else bench.order_of(relief.schedule)
    if not relief.fits:
        done = "no repair found"
    elif relief.moved:
        done = f"{relief.moved} ops or groups moved to fit the memory"
    else:
        done = "run in an order that frees memory early"
    whose = "" if name == candidate.name else f"{candidate.name}: "
    return bench.ordered(name, f"{whose}{candidate.rule}; {done}", relief.device, rank)
