"""Op-level search: annealing on a coarse graph, then on the full one, from the best that is known."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pesto.coarsen import Coarsening
from pesto.settings import Settings
from pesto.solving.candidates import Bench, Turns
from pesto.solving.search_graphs import Ground, Grounds
from pesto.solving.tracker import SoFar, Stage
from solvers import Limit, Options, Problem, Schedule, api
from solvers.search.annealing import Heat, Walk, Weighed
from solvers.search.parallel import Budget, walk_all
from solvers.timing.replay import replay

_LOG = logging.getLogger("pesto")
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


def search(
    bench: Bench, planning: Problem, ladder: Sequence[Coarsening], so_far: SoFar, settings: Settings
) -> Stage[None]:
    """`search`: what walks from the best candidates come to.

    planning: the problem whose memory estimates what is alive at peaks. ladder: coarsenings of it by steps, fine to
    coarse. Ends when no time is left (when deterministic, after what is planned), or at `settings.gap` of the full
    graph. A failure costs what was not found yet, and is a warning.
    """
    try:
        grounds = Grounds(bench, planning, ladder, _known(so_far)[0])
        for found in _rounds(grounds, bench, so_far, settings):
            again = bench.ordered("search", f"annealed on {found.rule}", found.device, found.rank)
            yield replace(again, turns=Turns(tried=0, least=again.makespan))  # it was priced to be weighed
    except Exception as error:
        _LOG.warning("search failed: %r", error)


def _rounds(grounds: Grounds, bench: Bench, so_far: SoFar, settings: Settings) -> Iterator[Weighed]:
    def over() -> bool:
        # When deterministic the gap is looked at between phases alone.
        return not settings.deterministic and so_far.gap <= settings.gap

    besides: list[Schedule] = []
    for at in range(len(PHASES)):
        late = so_far.left_s <= 0 and not settings.deterministic
        if late or so_far.gap <= settings.gap:
            return
        lanes = _begun(grounds, _starts(so_far, settings, at, besides), settings, at)
        budget = _budget(bench, settings, [each.share for each in PHASES[at:]], so_far.left_s)
        yield from walk_all([walk for _, walk in lanes], budget, over)
        found = None if at or over() else _windows(lanes, settings)
        besides = []
        if found is not None:
            yield found
            besides = [replay(bench.problem, found.device, found.rank, prepared=bench.prepared)]


def _windows(lanes: Sequence[tuple[Ground, Walk]], settings: Settings) -> Weighed | None:
    """Neighbourhoods of the best point so far, each searched exactly by CP-SAT; what that found, if it is better.

    It orders transfers freely, so first come, first served may make more of it, or less: another point to begin with.
    None when deterministic, as a loaded machine's clock would end it, or when there is little time.
    """
    seconds = _WINDOWS * settings.time_limit_s
    known = [
        (w.kept.makespan, k, w.home) for k, (_, w) in enumerate(lanes) if w.kept is not None and w.home is not None
    ]
    if settings.deterministic or seconds < _WINDOWS_LEAST_S or not known:
        return None
    _, lane, best = min(known, key=lambda each: each[:2])
    ground, _ = lanes[lane]
    arena = ground.arena
    held = np.zeros_like(arena.problem.capacity)
    np.add.at(held, best.at, arena.problem.memory)
    roomy = arena.problem.holding(capacity=np.maximum(arena.problem.capacity, held))
    options = Options(seconds=seconds, seed=settings.seed, workers=settings.workers, start=arena.schedule(best))
    result = api.solve(roomy, "cpsat-windows", options)
    if result.limit is Limit.INTERRUPT:
        raise KeyboardInterrupt
    if result.schedule is None or result.schedule.makespan >= best.makespan:
        return None
    found = ground.weigh(arena.spot_of(result.schedule))
    return None if (found.over > 0).any() else found


def _begun(grounds: Grounds, starts: Sequence[Schedule], settings: Settings, at: int) -> list[tuple[Ground, Walk]]:
    """A walk a core, one from each start in turn."""
    found = []
    for lane in range(_lanes(settings)):
        start, heat = starts[lane % len(starts)], PHASES[at].heat.times(_SPREAD**lane)
        ground = grounds.at(PHASES[at].nodes, start)
        seed = settings.seed + 1000 * at + lane
        found.append((ground, Walk(ground.arena, ground.project(start), heat, ground.weigh, seed)))
    return found


def _budget(bench: Bench, settings: Settings, shares: list[float], left: float) -> Budget:
    """The first of the rounds that are left gets its share of the seconds that are."""
    planned = int(settings.time_limit_s * shares[0] * _STRETCHES) if settings.deterministic else None
    return Budget(
        seconds=left * shares[0] / sum(shares), stretches=planned, rarer=1 + bench.problem.tasks // _OPS_A_PAUSE
    )


def _lanes(settings: Settings) -> int:
    return _LANES if settings.deterministic else max(1, min(os.cpu_count() or 1, settings.workers))


def _starts(so_far: SoFar, settings: Settings, at: int, besides: Sequence[Schedule]) -> list[Schedule]:
    """The best candidates, a core one; later rounds begin with the best alone, and with what is given `besides`."""
    return [*_known(so_far)[: _lanes(settings) if at == 0 else 1], *besides]


def _known(so_far: SoFar) -> list[Schedule]:
    """All candidates, best first, no two equally long."""
    known = sorted(so_far.candidates.values(), key=lambda c: (not c.fits, c.makespan))
    return [c.timeline.schedule for k, c in enumerate(known) if k == 0 or c.makespan != known[k - 1].makespan]
