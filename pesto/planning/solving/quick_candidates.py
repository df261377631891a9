"""Stages that make candidates before the engines: baselines, quick schedules of coarse graphs, and repairs.

Baselines begin with placements by rule: TensorFlow's default, the Expert's (Pesto, 5.2), and layers cut where their
times balance. All but the default read a network's own scopes and layers, as people place by hand.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import tee

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.graph import Graph
from pesto.core.memory import footprint, measure
from pesto.core.settings import Settings
from pesto.planning.coarsen import Caps, Coarsening, coarsen, contract, shortest
from pesto.planning.solving.background_compiler import shared_compiler
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.tracker import ENGINES_SHARE, UNLIMITED, BaselineLimits, Stage, Tracker
from solvers import FORBIDDEN, MOST, Limit, Options, Problem, Result, Schedule, api
from solvers.arrays import Ints, rank_of
from solvers.bounds import quick_bounds
from solvers.compiled.dag import topological_order
from solvers.deadlines import Late, after, never
from solvers.heuristics.devices_of_location import devices_at, earliest
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
    evaluator: CandidateEvaluator, planning: Problem, settings: Settings, late: Late = never
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
            device, rank, rule = evaluator.expand(coarsening, schedule)
            rule = f"{by} of {coarsening.nodes} nodes, {rule}"
            candidate = evaluator.ordered("levels", rule, device, rank)
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


_LAYER = re.compile(r"(?:^|[/_])(?:layer|block|stage)_(\d+)(?=[/_]|$)")
_BRANCH = re.compile(r"(?:^|[/_])cell_(\d+)[/_]branch_(\d+)(?=[/_]|$)")
_FIRST = re.compile(r"(?:^|[/_])(?:embeddings?|stem)(?=[/_]|$)")
_LAST = re.compile(r"(?:^|[/_])(?:attention|softmax|logits|loss|head)(?=[/_]|$)")
_NUMBERED = re.compile(r"(?:^|/)(?:\w*_)?(?:layer|block|stage|cell|unit)_\d+(?=/|$)")
_EARLY = 0.1
"""Share of a layer's time before which its forward pass begins, whatever else is in its scope."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RulePlacement:
    """A device for every op, with one line that says by which rule."""

    device: Ints
    rule: str


def accelerators(problem: Problem, cluster: Cluster) -> list[int]:
    """Return the locations of other kinds than cpu on which some op may run, or the hosts if there are none."""
    used = [int(k) for k in np.unique(problem.location[problem.allowed.any(axis=0)])]
    return [k for k in used if cluster.devices[k].kind != "cpu"] or used


def framework_default(graph: Graph, problem: Problem, cluster: Cluster) -> RulePlacement:
    """Place everything on the first accelerator, and on the host what has no kernel for one, as TensorFlow does.

    "If a GPU is available, ops with a GPU kernel are placed on GPU:0" (TensorFlow's guide to GPUs; the greedy placer of
    Abadi et al. 2016, 3.2.1, was never released). Colocation and kernels are the problem's own constraints.
    """
    first = accelerators(problem, cluster)[0]
    device = devices_at(problem, np.full(graph.ops, first))
    return RulePlacement(device=device, rule=f"everything on {cluster.devices[first].name}, as TensorFlow does unasked")


def expert(graph: Graph, problem: Problem, cluster: Cluster) -> RulePlacement:
    """Place layers in order over the accelerators; attention and softmax with the last, embedding with the first.

    Parallel branches of a cell are split evenly instead (NASNet): by their times, longest first, each to the
    accelerator with the least of its cell. Ops outside every scope follow the op that feeds them; a group follows the
    most of its time. A graph whose names show neither layers nor branches is cut into consecutive pieces of equal time
    in topological order.
    """
    targets = accelerators(problem, cluster)
    wish, rule = _branches(graph, problem, len(targets)), "branches of a cell split evenly"
    if wish is None:
        share, rule = _layer_shares(graph), "layers in order, attention and softmax with the last"
        if share is None:
            took, order = shortest(problem), topological_order(problem.tasks, problem.src, problem.dst)
            share, rule = np.empty(problem.tasks), "consecutive pieces of equal time (no layers in the names)"
            share[order] = (np.cumsum(took[order]) - took[order]) / max(1, int(took.sum()))
        wish = np.minimum((share * len(targets)).astype(np.int64), len(targets) - 1)
        wish = np.where(share < 0, -1, wish)
    wish = unify_groups(problem, fill_from_neighbours(problem, wish))
    return RulePlacement(device=devices_at(problem, np.array(targets)[wish]), rule=rule)


def _branches(graph: Graph, problem: Problem, pieces: int) -> Ints | None:
    """[n] piece of each op of a branch, -1 elsewhere; None for a graph without branches."""
    matches = [_BRANCH.search(name) for name in graph.names]
    if not any(matches):
        return None
    number: dict[tuple[int, int], int] = {}
    branch = np.array(
        [number.setdefault((int(m.group(1)), int(m.group(2))), len(number)) if m else -1 for m in matches],
        dtype=np.int64,
    )
    time = np.bincount(branch[branch >= 0], weights=shortest(problem)[branch >= 0], minlength=len(number)).tolist()
    load: dict[tuple[int, int], float] = {}
    piece = np.empty(len(number), dtype=np.int64)
    for (cell, _), k in sorted(number.items(), key=lambda item: (-time[item[1]], item[0])):
        piece[k] = min(range(pieces), key=lambda p: load.get((cell, p), 0.0))
        load[cell, int(piece[k])] = load.get((cell, int(piece[k])), 0.0) + time[k] + 1.0
    return np.where(branch < 0, -1, piece[branch])


def _layer_shares(graph: Graph) -> np.ndarray | None:
    """[n] position of each op in 0..1 along the layers, -1 where no scope tells; None without layers."""
    layer = [_LAYER.search(name) for name in graph.names]
    if not any(layer):
        return None
    layers = 1 + max(int(m.group(1)) for m in layer if m)
    share = np.array([int(m.group(1)) / layers if m else -1.0 for m in layer])
    for i, name in enumerate(graph.names):
        if share[i] < 0 and _FIRST.search(name):
            share[i] = 0.0
        elif share[i] < 0 and _LAST.search(name):
            share[i] = (layers - 1) / layers
    return share


def layer_balanced(graph: Graph, problem: Problem, cluster: Cluster) -> RulePlacement:
    """Place contiguous layers of balanced times, as a careful engineer does; pieces of equal time without layers.

    Every numbered scope (layer_3, block_3, stage_3, cell_3) that holds a variable is a layer with its whole path, so
    that encoder/layer_0 and decoder/layer_0 are two. Gradients and updates count with their layer. The cut into
    contiguous pieces minimises the longest piece (the balanced assignment of Mirhoseini et al. 2017, 4.1, and of
    pipeline frameworks); communication is not looked at.
    """
    targets = accelerators(problem, cluster)
    layer = layers_of(graph)
    rule = f"{int(layer.max(initial=-1)) + 1} layers in order, cut where their times balance"
    start, took = earliest(problem), shortest(problem)
    if layer.max(initial=-1) < 1:
        order = np.argsort(start, kind="stable")
        layer = np.empty(graph.ops, dtype=np.int64)
        layer[order] = np.minimum(np.arange(graph.ops) * 512 // max(1, graph.ops), 511)
        rule = "consecutive pieces of equal time (no layers in the names)"
    # Layers are ordered by when their forward passes begin: after the first _EARLY of each layer's time.
    inside = np.flatnonzero(layer >= 0)
    inside = inside[np.lexsort((start[inside], layer[inside]))]
    time = np.bincount(layer[inside], weights=took[inside] + 1.0)
    reached = np.searchsorted(np.cumsum(took[inside] + 1.0), np.cumsum(time) - (1.0 - _EARLY) * time)
    by_begin = np.argsort(start[inside[np.minimum(reached, len(inside) - 1)]], kind="stable")
    piece = np.empty(len(time), dtype=np.int64)
    piece[by_begin] = balanced_cut(time.astype(np.int64)[by_begin], len(targets))
    wish = unify_groups(problem, fill_from_neighbours(problem, np.where(layer < 0, -1, piece[layer])))
    return RulePlacement(device=devices_at(problem, np.array(targets)[wish]), rule=rule)


def layers_of(graph: Graph) -> Ints:
    """Return [n] layer of each op by its scope, numbered as met; -1 outside of every layer."""
    known: dict[str, int] = {}
    scopes = [_NUMBERED.search(name) for name in graph.names]
    for name, match, held in zip(graph.names, scopes, graph.param_bytes.tolist(), strict=True):
        if held and match:
            known.setdefault(name[: match.end()], len(known))
    layers = []
    for name, match in zip(graph.names, scopes, strict=True):
        # The layer whose path, somewhere in the name, ends with the name's first numbered scope.
        path = name[: match.end()] if match else ""
        while path and path not in known:
            path = path.partition("/")[2]
        layers.append(known.get(path, -1))
    return np.array(layers, dtype=np.int64)


def balanced_cut(time: Ints, pieces: int) -> Ints:
    """Return [k] piece of each of k consecutive times, at most `pieces`, so that the longest piece is shortest."""
    low, high = max(int(time.max(initial=0)), -(-int(time.sum()) // pieces)), int(time.sum())
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _filled(time, middle).max(initial=0) < pieces else (middle + 1, high)
    return _filled(time, low)


def _filled(time: Ints, limit: int) -> Ints:
    """Pieces filled in order up to a limit each."""
    piece, held, result = 0, 0, []
    for ticks in time.tolist():
        if held + ticks > limit:
            piece, held = piece + 1, 0
        held += ticks
        result.append(piece)
    return np.array(result, dtype=np.int64)


def fill_from_neighbours(problem: Problem, wish: Ints) -> Ints:
    """Give ops without a wish (-1) the wish of a predecessor, or else of a successor, or else the first place."""
    order = topological_order(problem.tasks, problem.src, problem.dst)
    position = rank_of(order)
    filled = wish.tolist()
    for ends, others, sequence in (
        (problem.src, problem.dst, np.argsort(position[problem.src], kind="stable")),
        (problem.dst, problem.src, np.argsort(-position[problem.dst], kind="stable")),
    ):
        for a, b in zip(ends[sequence].tolist(), others[sequence].tolist(), strict=True):
            if filled[b] < 0:
                filled[b] = filled[a]
    return np.maximum(np.array(filled, dtype=np.int64), 0)


def unify_groups(problem: Problem, wish: Ints) -> Ints:
    """Give each group one wish: the one that the most of its time asks for."""
    member = np.flatnonzero(problem.group >= 0)
    if len(member) == 0:
        return wish
    votes = np.zeros((int(problem.group.max()) + 1, int(wish.max(initial=0)) + 1))
    np.add.at(votes, (problem.group[member], wish[member]), shortest(problem)[member] + 1.0)
    wish = wish.copy()
    wish[member] = votes.argmax(axis=1)[problem.group[member]]
    return wish


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
    evaluator: CandidateEvaluator,
    cluster: Cluster,
    limits: BaselineLimits = UNLIMITED,
) -> Stage[Problem]:
    """Yield `single`, `expert`, `layer-balanced`, `list` and RIVALS; return the problem that planning should use.

    The problem's memory is what is alive at the peak when all runs on one device, charged to the ops that made it:
    summed over a device that estimates its peak. Its capacity is lowered until a list schedule's measured peaks fit.
    """
    problem, (late, spent, list_s) = evaluator.problem, limits
    singles: list[Candidate] = []
    for location in _distinct_locations(problem, accelerators(problem, cluster)):
        if singles and spent():
            break
        device = devices_at(problem, np.full(problem.tasks, location))
        singles.append(evaluator.placed("single", f"everything on {cluster.devices[location].name}", device))
        yield singles[-1]
    single = min(singles, key=lambda c: (not c.fits, c.makespan))
    fits = single.fits
    alive = measure(evaluator.graph, single.timeline, per_edge=evaluator.per_edge).alive
    for name, rule in (("expert", expert), ("layer-balanced", layer_balanced)):
        if not late():
            by_rule = rule(evaluator.graph, problem, cluster)
            placed = evaluator.placed(name, by_rule.rule, by_rule.device)
            fits = fits or placed.fits
            yield placed
    trials, estimated = tee(estimates(problem, alive))
    planning = next(estimated)
    if spent() or not shared_compiler().need("list", late=lambda: fits and late()):
        return planning
    planning = yield from _list(evaluator, planning, spent, list_s)
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
                yield evaluator.scheduled(name, f"{name} on the full graph", schedule)
                break
    if not late():
        yield from _on_half(evaluator, cluster, planning)
    return planning


def _on_half(evaluator: CandidateEvaluator, cluster: Cluster, planning: Problem) -> Stage[None]:
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
            yield evaluator.scheduled(name, rule, schedule)


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


def _list(evaluator: CandidateEvaluator, planning: Problem, spent: Late, list_s: Callable[[], float]) -> Stage[Problem]:
    """Yield `list`, once more while it does not fit, unless `spent`; return the last problem it planned with."""
    attempt = planning
    for _ in range(_TRIES):
        if attempt is not planning and spent():
            break
        result = run_heuristic(attempt, "list", seconds=list_s())
        if result.schedule is None:
            break
        planning = attempt
        candidate = evaluator.scheduled("list", "list scheduling of the full graph", result.schedule)
        yield candidate
        if candidate.fits:
            break
        over = candidate.peak / np.maximum(1, evaluator.problem.capacity)
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


def repairs(tracker: Tracker) -> Stage[None]:
    """Yield `repaired`: of the candidates that do not fit and are shorter than the best that does.

    `single` is left out: a repair would have to move the most of it and gain the least. If a plan fits, all of them
    have what is left of the time at most, else SECONDS of the processor each, so that a busy machine finds one, too.
    With deterministic settings none looks at a clock.
    """
    best, settings = tracker.best, tracker.settings
    over = [c for c in tracker.candidates.values() if not c.fits and c.name != "single"]
    over = [c for c in over if best is None or c.makespan < best.makespan]
    if over and not shared_compiler().need("repair", late=partial(tracker.deadlines.spent, ENGINES_SHARE)):
        return
    for candidate in sorted(over, key=lambda c: c.makespan)[:_REPAIRS]:
        ends = never if settings.deterministic else cpu_deadline()
        if tracker.best is not None and not settings.deterministic:
            ends = after(min(SECONDS, max(tracker.deadlines.left_s, _LEAST_S)), time.perf_counter)
        yield repair_candidate(tracker.evaluator, candidate, name="repaired", late=ends, headroom=settings.headroom)


def cpu_deadline() -> Late:
    """Return a deadline after SECONDS of this thread's CPU time."""
    return after(SECONDS, time.thread_time)


def repair_candidate(
    evaluator: CandidateEvaluator,
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
        evaluator.problem,
        footprint(evaluator.graph, per_edge=evaluator.per_edge),
        candidate.timeline.schedule.device,
        order=candidate.rank if timing is None else partial(timing, evaluator.problem),
        late=late,
        headroom=headroom,
    )
    rank = relief.rank if relief.rank is not None else evaluator.order_of(relief.schedule)
    if not relief.fits:
        done = "no repair found"
    elif relief.moved:
        done = f"{relief.moved} ops or groups moved to fit the memory"
    else:
        done = "run in an order that frees memory early"
    whose = "" if name == candidate.name else f"{candidate.name}: "
    return evaluator.ordered(name, f"{whose}{candidate.rule}; {done}", relief.device, rank)
