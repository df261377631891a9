"""Split and place at once: a placement whose longest ops, beside which others idle, are cut, and placed again.

While an op holds everybody up, the other accelerators idle. Such an op is worth the bytes that could be sent in the
time that cutting it saves. What is cut then, and what beside it, is a labelling problem (`divide_partly`); the parts of
what is cut are pinned to different devices, and all else is searched again from where it was.
"""

import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from pesto.choosing.strategy_choice.timed_split import (
    TimedSplit,
    accelerators_of,
    board_size,
    feed_s_per_byte,
    s_per_byte,
)
from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.costs.analytical import model_costs
from pesto.core.errors import InfeasibleError, NothingFoundError
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.plans.warm_start import carry_over
from pesto.core.settings import Settings
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, formulate, shortest_fitting
from pesto.planning.solving.flow import EarlierPlans, SolveOutcome, solve
from pesto.planning.solving.quick_candidates import baselines
from pesto.planning.solving.tracker import BaselineLimits, Watch
from pesto.split.division import Division
from pesto.split.op_strategy import cut_ops
from pesto.split.program import CutGain
from pesto.split.split_search import Split, divide_partly
from pesto.split.typed_graph import TypedGraph
from pesto.split.worker_parts import WorkerParts, build_split_step, build_worker_parts
from solvers.arrays import Floats, ints
from solvers.deadlines import Late
from solvers.timing.replay import idle_under

Placement = tuple[Cluster, SolveOutcome]
"""A cluster, or one board of it, and a placement of the step on it."""


class Aim(NamedTuple):
    """Which ops are worth to be cut."""

    share: float
    """Minimum share of the step for which the others must idle beside an op."""
    alone: bool
    """True to count as if the others idled beside every op: what else there is to do is then placed around it."""


class _CutRequest(NamedTuple):
    placement: int
    """Index of the placement whose ops are cut."""
    workers: int
    """Number of parts."""
    aim: Aim | Division
    """Ops to cut: by an aim, or those that a division of the step cuts."""


AIMS = (
    (Aim(0.01, alone=False), Aim(0.01, alone=True), Aim(0.001, alone=True)),
    (Aim(0.0003, alone=False), Aim(0.0, alone=True)),
    (Aim(0.003, alone=False),),
)
"""In the order in which they are tried: a row for each placement, then the next row."""
EAGER = 4.0
"""Bytes that an op is worth, as a multiple of what a link sends in the time saved: most transfers hide behind work."""
WAITING = 0.5
"""Share of a link's latency that a transfer of an op that is cut as if alone costs besides its bytes."""
AT_ONCE = 2
"""Partial splits that are sought at once: a process each."""
TRYING = 0.7
"""Share of the time that finding what to cut may take."""
_LEAST_S = 0.1
"""Minimum seconds left for placing: a solve with a limit of 0 has none, and makes all quick candidates."""
FAR = 1.25
"""Multiple of the shortest step from which on a placement is tried after the others: cutting hardly makes up for it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TriedSplit:
    """A partial split, with its step, and the old placement carried over to it."""

    placement: int
    """Index of that placement."""
    split: Split
    parts: WorkerParts
    order: tuple[str, ...]
    """Accelerators of workers."""
    graph: Graph
    costs: Costs
    start: Candidate
    """The shortest of the old placement carried over and of the quick methods."""


def split_partially(
    step: tuple[Graph, TypedGraph], cluster: Cluster, settings: Settings, placements: Sequence[Placement], watch: Watch,
    splits: Sequence[Split] = (),
) -> TimedSplit | None:  # fmt: skip
    """Cut the long ops of a placement and search for the time limit; return the best step, None where nothing is cut.

    placements: of the cluster, or of one board of it, on which the rest is then placed too; the first is tried first,
    unless it takes much longer than another. splits: of the whole step, the shortest first. What those of one cut cut
    is tried before anything else, however little time there is.
    Of all that is tried the shortest by quick methods is searched, and timed on the cluster. The step may take longer
    than the placement: whoever asks compares. SolverError of those who solve.
    """
    began = time.monotonic()
    tried = list(_try_splits(step, placements, splits, settings, seconds=TRYING * settings.time_limit_s))
    if not tried:
        return None
    chosen = min(tried, key=lambda split: (not split.start.fits, split.start.makespan))
    on, placed = placements[chosen.placement]
    gone = TRYING * settings.time_limit_s if settings.deterministic else time.monotonic() - began
    left = max(min(_LEAST_S, settings.time_limit_s), settings.time_limit_s - gone)
    start = EarlierPlans(start=_rename_ops(placed.plan))
    try:
        result = solve(chosen.graph, on, chosen.costs, replace(settings, time_limit_s=left), watch, start)
    except (InfeasibleError, NothingFoundError):
        return None
    best = result.candidates[result.plan.provenance.chosen]
    if best is None:
        raise ValueError("a plan is of a candidate")
    # The accelerator of each part, counted as workers are; its worker's for what a host runs.
    number = {name: at for at, name in enumerate(accelerators_of(cluster))}
    lanes = [result.plan.lane_device[device] for device in result.plan.schedule.device.tolist()]
    parts = zip(lanes, chosen.parts.parts, strict=True)
    places = tuple(number.get(lane, number[chosen.order[part.worker]]) for lane, part in parts)
    costs = chosen.costs if on is cluster else model_costs(chosen.graph, cluster)
    problem = result.problem if on is cluster else formulate(chosen.graph, costs, cluster, settings)
    bench = CandidateEvaluator.of(chosen.graph, problem)
    candidate = best if on is cluster else _carry_over(result.plan, bench, cluster)
    return TimedSplit(
        split=replace(chosen.split, division=replace(chosen.split.division, places=places)), costs=costs, bench=bench,
        candidate=replace(candidate, name=best.name, rule=f"long ops cut, the rest placed: {best.rule}"), proof="",
        devices=tuple(device.name for device in cluster.devices),
        sent_bytes=replace(chosen.parts, place=ints(places)).moved_bytes(),
    )  # fmt: skip


def _try_splits(
    step: tuple[Graph, TypedGraph], placements: Sequence[Placement], splits: Sequence[Split], settings: Settings, *,
    seconds: float,
) -> Iterator[_TriedSplit]:  # fmt: skip
    """Yield partial splits of each placement: what whole splits cut, then more or fewer ops, until the time is over.

    Of the first whole split, and of one aim at least, whatever the time. In deterministic settings the first row of
    AIMS alone, each aim with an equal share of the time, and the others one by one where these cut nothing.
    """
    ends, seen, fixed = time.monotonic() + seconds, set[tuple[int, int, tuple[bool, ...]]](), settings.deterministic
    # Ops are cut in as many parts as a board has accelerators, in as many as there are, and in two.
    sizes = [list(dict.fromkeys((max(2, board_size(on)), len(on.accelerators), 2))) for on, _ in placements]
    first = cutting_order([placed.plan.makespan_s for _, placed in placements])
    begun = [
        _CutRequest(at, split.division.workers, split.division)
        for split in splits
        for at in first
        if len(split.division.factors) == 1 and split.division.workers in sizes[at]
    ]
    aimed = [
        _CutRequest(at, sizes[at][turn], aim)
        for turn, aims, at in product(range(max(map(len, sizes))), AIMS, first)
        for aim in aims
        if turn < len(sizes[at])
    ]
    rest = aimed
    if fixed:
        count = len(AIMS[0]) * len(first)
        ends, aimed, rest = math.inf, aimed[:count], aimed[count:]
        seconds = AT_ONCE * seconds / (count + len(begun))

    def late() -> bool:
        return time.monotonic() >= ends

    def find_cuts(request: _CutRequest) -> Split | None:
        on, placed = placements[request.placement]
        gain = _gain(placed, on, request.aim, request.workers)
        left = max(1.0, seconds if fixed else ends - time.monotonic())
        if not any(gain.worth):
            return None
        start = request.aim if isinstance(request.aim, Division) else None
        return divide_partly(step[1], request.workers, gain, start=start, seconds=left, deterministic=fixed)

    def find_in_time(request: _CutRequest) -> Split | None:
        return None if late() and request not in begun[:1] else find_cuts(request)

    cut = False
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        requests = [*begun, *aimed]
        for request, split in zip(requests, pool.map(find_in_time, requests), strict=True):
            if split is None:
                continue
            cut = cut or isinstance(request.aim, Aim)
            key = (request.placement, request.workers, tuple(cut_ops(split.division.strategies)))
            if key not in seen:
                seen.add(key)
                yield _try_split(step, split, placements, request.placement, late)
    for request in () if cut else rest:
        split = find_cuts(request)
        if split is not None:
            yield _try_split(step, split, placements, request.placement, late)
            return


def cutting_order(makespans: Sequence[float]) -> list[int]:
    """Return placements in the order in which their ops are cut: as they stand, but those that take far longer last."""
    return sorted(range(len(makespans)), key=lambda at: makespans[at] > FAR * min(makespans))


def _gain(placed: SolveOutcome, cluster: Cluster, aim: Aim | Division, workers: int) -> CutGain:
    """Return the bytes that links send in the time saved by cutting each op, but for starting kernels.

    Of ops that a division cuts nothing but their part in what is cut beside them.
    """
    fast = cluster.accelerators
    # Seconds of each byte, and latency, from a device to the farthest of so many with it.
    paths = [[cluster.paths[a][b] for b in fast if b != a] for a in fast]
    known = [[(0.0, 0.0) if path is None else (path.s_per_byte, path.latency_s) for path in row] for row in paths]
    reached, latency = min(sorted(row)[workers - 2] for row in known)
    # What a link sends while the host feeds a byte, and while it copies one.
    feed_s, copy_s = feed_s_per_byte(cluster, fast)
    feeding = CutGain(feed=feed_s / max(reached, 1e-15), cut_out=copy_s / max(reached, 1e-15))
    if isinstance(aim, Division):
        return replace(feeding, worth=[int(cut) for cut in cut_ops(aim.strategies)])
    run, tick_s = placed.plan.schedule, placed.plan.tick_s
    took = run.finish - run.start
    on_fast = np.isin(placed.problem.location[run.device], fast)
    idle = np.where(on_fast, took, 0) if aim.alone else idle_ticks(placed, cluster)
    some = took[took > 0]
    started = float(np.percentile(some, 25)) if len(some) else 0.0
    shrinks = np.maximum(0.0, 1.0 - started / np.maximum(took, 1))
    at_least = np.where(idle >= aim.share * run.makespan, idle, 0)
    seconds = at_least * shrinks * tick_s * (1 - 1 / workers)
    worth = (EAGER * seconds / max(reached, 1e-15)).astype(np.int64).tolist()
    transfer = int(WAITING * latency / max(reached, 1e-15)) if aim.alone else 0
    return replace(feeding, worth=worth, transfer=transfer)


def idle_ticks(placed: SolveOutcome, cluster: Cluster) -> Floats:
    """Return [n] ticks for which the other accelerators idle, on average, while each op runs; 0 of what a host runs."""
    run, fast, location = placed.plan.schedule, cluster.accelerators, placed.problem.location
    lanes = np.flatnonzero(np.isin(location, fast))
    idle = idle_under(run, ints(lanes), ints(range(placed.problem.tasks)))
    return np.where(np.isin(location[run.device], fast), idle, 0) / max(1, len(fast) - 1)


def _try_split(
    step: tuple[Graph, TypedGraph], split: Split, placements: Sequence[Placement], number: int, late: Late
) -> _TriedSplit:
    """Place a partial split by quick methods; once `late`, only from where the old plan has its ops."""
    (graph, shaped), (cluster, placed) = step, placements[number]
    parts = build_worker_parts(shaped, split.division)
    # Accelerators for workers: first the one that had most of what is cut, then the nearest, by their links.
    run = placed.plan.schedule
    at, cut = placed.problem.location[run.device], np.array(cut_ops(split.division.strategies))
    took, fast = np.where(cut, run.finish - run.start, 0), cluster.accelerators
    lanes = {location: np.flatnonzero(placed.problem.location == location) for location in fast}
    free = {location: int(idle_under(run, lane, np.flatnonzero(cut)).sum()) for location, lane in lanes.items()}
    first = max(fast, key=lambda location: int(took[at == location].sum()))
    far = {location: s_per_byte(cluster, first, location) for location in fast}
    rest = sorted(
        (location for location in fast if location != first), key=lambda location: (far[location], -free[location])
    )
    order = tuple(cluster.devices[location].name for location in (first, *rest))
    graph = build_split_step(graph, parts, order)
    costs = model_costs(graph, cluster)
    bench = CandidateEvaluator.of(graph, formulate(graph, costs, cluster, Settings()))
    carried_over = _carry_over(_rename_ops(placed.plan), bench, cluster)
    start = shortest_fitting([carried_over, *baselines(bench, cluster, BaselineLimits(late, late))]) or carried_over
    return _TriedSplit(placement=number, split=split, parts=parts, order=order, graph=graph, costs=costs, start=start)


def _rename_ops(plan: Plan) -> Plan:
    """Return a plan as if its ops were those that the first worker does."""
    return replace(plan, names=tuple(f"w0/{name}" for name in plan.names))


def _carry_over(plan: Plan, bench: CandidateEvaluator, cluster: Cluster) -> Candidate:
    """Return the run of another plan's placement and order, as far as it has these ops."""
    known = carry_over(plan, bench.graph, bench.problem, cluster)
    return bench.ordered("start", known.rule, known.device, known.rank)
