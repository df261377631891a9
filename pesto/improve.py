"""Op-level search: annealing on a coarse graph, then on the full one, from the best that is known."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pesto.candidates import Bench
from pesto.coarsen import Coarsening, coarsen, contract
from pesto.settings import Settings
from pesto.tracker import Tracker
from solvers import api
from solvers.arrays import Ints, ints
from solvers.peaks import peaks
from solvers.problem import Problem
from solvers.replay import replay
from solvers.result import Limit, Options
from solvers.schedule import Schedule
from solvers.search.arena import Arena, Spot, position
from solvers.search.team import Budget, walk_all
from solvers.search.walk import Heat, Walk, Weighed
from solvers.units import placeable_units

_LOG = logging.getLogger("pesto")
_SMALLEST = 25
"""Nodes of the coarsest graph whose nodes are moved whole."""
_FULL = 40_000
"""Ops up to which the full graph is walked on at last."""
_OPS_A_PAUSE = 50_000
"""Ops of the full graph for which points are weighed at every pause; with more it takes as long, and is as rare."""
_WINDOWS, _WINDOWS_LEAST_S = 0.1, 2.0
"""Share of the time limit that exact neighbourhoods get after the first round, if it is at least so many seconds."""
_SPREAD = 2.0
"""Each walk is hotter than the one before it by this."""
_LANES = 2
"""Walks at once when deterministic: as many on every machine."""
_STRETCHES = 20
"""Stretches that stand for a second when deterministic."""


class Phase(NamedTuple):
    """One round of walks."""

    nodes: int | None
    """Of the graph that is walked on, about; None for all ops."""
    share: float
    """Of the time."""
    heat: Heat


PHASES = (
    Phase(800, 0.35, Heat(8e-3, 4e-4)),
    Phase(3200, 0.35, Heat(2e-3, 2e-4)),
    Phase(None, 0.3, Heat(5e-4, 5e-5)),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ground:
    """A graph to walk on, and the way back to the full one."""

    bench: Bench
    coarsening: Coarsening | None
    """None for the full graph."""
    arena: Arena

    def weigh(self, spot: Spot) -> Weighed:
        """A point on the full graph, with its real peaks."""
        schedule = self.arena.schedule(spot)
        if self.coarsening is None:
            device, rank, rule = schedule.device, position(spot.order), "op by op"
        else:
            device, rank, rule = self.bench.expand(self.coarsening, schedule)
            rule = f"{self.coarsening.nodes} nodes, {rule}"
            schedule = replay(self.bench.problem, device, rank, prepared=self.bench.prepared)
        over = np.maximum(peaks(self.bench.gauge, schedule) - self.bench.problem.capacity, 0)
        return Weighed(makespan=schedule.makespan, device=device, rank=rank, over=ints(over), rule=rule)

    def project(self, schedule: Schedule) -> Spot:
        """The point nearest to a schedule of the full graph: each unit where most of its work is, by mean start."""
        if self.coarsening is None:
            return self.arena.spot_of(schedule)
        p, node_of, arena = self.bench.problem, self.coarsening.node_of, self.arena
        units = placeable_units(arena.problem)
        took = schedule.finish - schedule.start + 1
        weight = np.zeros(units.allowed.shape, dtype=np.int64)
        np.add.at(weight, (units.unit[node_of], p.location[schedule.device]), took)
        at = np.where(units.allowed, weight, -1).argmax(axis=1)[units.unit]
        moment = np.bincount(node_of, weights=took * schedule.start.astype(np.float64))
        middle = np.argsort(moment / np.bincount(node_of, weights=took), kind="stable")
        run = arena.run(arena.devices(at), position(middle), strict=False)
        return arena.spot(at, arena.order_of(run))


def improve(
    bench: Bench,
    planning: Problem,
    ladder: Sequence[Coarsening],
    tracker: Tracker,
    settings: Settings,
    ends: float,
) -> None:
    """Offer `search`: what walks from the best candidates come to.

    planning: the problem whose memory estimates what is alive at peaks. ladder: coarsenings of it by steps, fine to
    coarse. ends: the `time.perf_counter()` at which to end; when deterministic, what is left of the limit as planned.
    Ends early at `settings.gap` of the full graph. A failure costs what was not found yet, and is a warning.
    """
    sets = _coarser(planning, ladder)
    phases = [phase for phase in PHASES if phase.nodes is not None or planning.tasks <= _FULL]

    def hear(found: Weighed) -> None:
        tracker.offer(bench.ordered("search", f"annealed on {found.rule}", found.device, found.rank))

    def over() -> bool:
        # When deterministic the gap is looked at between phases alone.
        return not settings.deterministic and tracker.gap <= settings.gap

    besides: list[Schedule] = []
    for at, phase in enumerate(phases):
        late = time.perf_counter() >= ends and not settings.deterministic
        if late or tracker.gap <= settings.gap:
            return
        ground = _ground(bench, planning, sets, phase.nodes)
        walks = _walks(_starts(tracker, ground, settings, at, besides), ground, settings, at)
        budget = _budget(bench, settings, [each.share for each in phases[at:]], ends)
        try:
            walk_all(walks, budget, hear, over)
            besides = [] if at or over() else _windows(ground, walks, settings, hear)
        except Exception as error:
            _LOG.warning("search failed: %r", error)
            return


def _windows(
    ground: _Ground, walks: Sequence[Walk], settings: Settings, hear: Callable[[Weighed], None]
) -> list[Schedule]:
    """Neighbourhoods of the best point so far, each searched exactly by CP-SAT; the full schedule of what that found.

    It orders transfers freely, so first come, first served may make more of it, or less: another point to begin with.
    Nothing when deterministic, as a loaded machine's clock would end it, or when there is little time.
    """
    seconds, known = _WINDOWS * settings.time_limit_s, [walk.home for walk in walks if walk.home is not None]
    if settings.deterministic or seconds < _WINDOWS_LEAST_S or not known:
        return []
    arena = ground.arena
    best = min(known, key=lambda spot: spot.makespan)
    held = np.zeros_like(arena.problem.capacity)
    np.add.at(held, best.at, arena.problem.memory)
    roomy = replace(arena.problem, capacity=np.maximum(arena.problem.capacity, held))
    options = Options(seconds=seconds, seed=settings.seed, workers=settings.workers, start=arena.schedule(best))
    result = api.solve(roomy, "cpsat-windows", options)
    if result.limit is Limit.INTERRUPT:
        raise KeyboardInterrupt
    if result.schedule is None or result.schedule.makespan >= best.makespan:
        return []
    found = ground.weigh(arena.spot_of(result.schedule))
    if (found.over > 0).any():
        return []
    hear(found)
    return [replay(ground.bench.problem, found.device, found.rank, prepared=ground.bench.prepared)]


def _walks(starts: Sequence[Spot], ground: _Ground, settings: Settings, at: int) -> list[Walk]:
    """A walk a core, one from each start in turn."""
    walks = []
    for lane in range(_lanes(settings)):
        start, heat = starts[lane % len(starts)], PHASES[at].heat.times(_SPREAD**lane)
        walks.append(Walk(ground.arena, start, heat, ground.weigh, settings.seed + 1000 * at + lane))
    return walks


def _budget(bench: Bench, settings: Settings, shares: list[float], ends: float) -> Budget:
    """The first of the rounds that are left gets its share of what is left."""
    left = max(ends - time.perf_counter(), 0.0)
    planned = int(settings.time_limit_s * shares[0] * _STRETCHES) if settings.deterministic else None
    return Budget(
        seconds=left * shares[0] / sum(shares), stretches=planned, rarer=1 + bench.problem.tasks // _OPS_A_PAUSE
    )


def _lanes(settings: Settings) -> int:
    return _LANES if settings.deterministic else max(1, min(os.cpu_count() or 1, settings.workers))


def _starts(tracker: Tracker, ground: _Ground, settings: Settings, at: int, besides: Sequence[Schedule]) -> list[Spot]:
    """The best candidates that fit (or of all, where none does), no two equally long, a core one; projected.

    Later rounds begin with the best alone, and with what is given `besides`.
    """
    most = _lanes(settings) if at == 0 else 1
    known = sorted(tracker.candidates.values(), key=lambda c: (not c.fits, c.makespan))
    distinct = [c for k, c in enumerate(known) if c.makespan not in {b.makespan for b in known[:k]}]
    return [ground.project(each) for each in (*(c.timeline.schedule for c in distinct[:most]), *besides)]


def _coarser(planning: Problem, ladder: Sequence[Coarsening]) -> list[Coarsening]:
    """The ladder, carried on to the smallest graphs."""
    found = list(ladder)
    while found[-1].nodes > 2 * _SMALLEST:
        last = found[-1]
        further = last.then(coarsen(contract(planning, last.node_of), last.nodes // 2))
        if further.nodes >= last.nodes:
            break
        found.append(further)
    return found


def _ground(bench: Bench, planning: Problem, sets: Sequence[Coarsening], nodes: int | None) -> _Ground:
    """The largest graph of at most so many nodes, or the full one."""
    fits = [c for c in sets if nodes is not None and c.target <= nodes and c.nodes < planning.tasks]
    level = fits[0] if fits else None
    problem = contract(planning, level.node_of) if level is not None else planning
    node_of = level.node_of if level is not None else np.arange(planning.tasks)
    coarser = [c for c in reversed(sets) if c.nodes < problem.tasks]
    return _Ground(
        bench=bench,
        coarsening=level,
        arena=Arena.of(problem, [_labels(node_of, c.node_of, problem.tasks) for c in coarser]),
    )


def _labels(node_of: Ints, coarse: Ints, nodes: int) -> Ints:
    """[nodes] the coarser node of each node."""
    label = np.zeros(nodes, dtype=np.int64)
    label[node_of] = coarse
    return label
