"""Op-level search: annealing on a coarse graph, then on the full one, in turn with exact windows of the best plan."""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pesto.core.settings import Settings
from pesto.planning.coarsen import Coarsening
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, LinkTieRuns
from pesto.planning.solving.search_graphs import SearchGraphs
from pesto.planning.solving.tracker import SoFar, Stage
from pesto.planning.solving.windows import LEAST_S, WORTH_S, WindowTurns
from solvers import Problem, Schedule
from solvers.compiled.interruption import struck
from solvers.deadlines import Late, never
from solvers.search.annealing import Temperature, Walk, WalkBudget, walk_all

_LOG = logging.getLogger("pesto")
_OPS_A_PAUSE = 50_000
"""Ops of the full graph for which points are weighed at every pause; with more it takes as long, and is as rare."""
_SPREAD = 2.0
"""Each walk is hotter than the one before it by this."""
_LANES = 2
"""Walks at once when deterministic: as many on every machine."""
_STRETCHES = 20
"""Stretches that stand for a second when deterministic."""


class SearchPhase(NamedTuple):
    """One round of walks."""

    nodes: int | None
    """Of the graph that is walked on, about; None for all ops."""
    share: float
    """Of the time."""
    heat: Temperature


PHASES = (
    SearchPhase(800, 0.35, Temperature(8e-3, 4e-4)),
    SearchPhase(3200, 0.35, Temperature(2e-3, 2e-4)),
    SearchPhase(None, 0.3, Temperature(5e-4, 5e-5)),
)
ALTERNATING = (
    SearchPhase(800, 0.25, Temperature(8e-3, 4e-4)),
    SearchPhase(3200, 0.25, Temperature(2e-3, 2e-4)),
    SearchPhase(None, 0.2, Temperature(5e-4, 5e-5)),
    SearchPhase(None, 0.15, Temperature(2e-4, 2e-5)),
    SearchPhase(None, 0.15, Temperature(1e-4, 1e-5)),
)
"""By the clock, where windows have turns between the last rounds."""
_BEFORE = 2
"""Rounds before the first that a turn of windows follows: while walks find much, they find more a second."""


class AnnealingSearch:
    """`search`: what walks from the best candidates come to, in rounds, with turns of windows between the last.

    planning: the problem whose memory estimates what is alive at peaks. ladder: coarsenings of it by steps, fine to
    coarse. Ends when no time is left (when deterministic, after what is planned), or at `settings.gap` of the full
    graph. A failure costs what was not found yet, is a warning, and the end of search.
    """

    def __init__(
        self,
        bench: CandidateEvaluator,
        planning: Problem,
        ladder: Sequence[Coarsening],
        so_far: SoFar,
        settings: Settings,
    ) -> None:
        self._bench, self._planning, self._ladder = bench, planning, ladder
        self._so_far, self._settings = so_far, settings
        self._phases = PHASES if settings.deterministic else ALTERNATING
        self._next = 0
        """The round that comes next."""
        self.begins_s = 0.0
        """Seconds that the start of the last round took: with no more time than that left, none is started."""
        self.spent: Late = never
        """Returns True once a plan fits and the time limit is over: a round that has only begun ends."""
        self._grounds: SearchGraphs | None = None
        self.windows = WindowTurns(bench, planning, settings, self._over)
        """Turns of windows; without weight there are none."""

    def first_round(self, kept_s: float) -> Stage[None]:
        """The first round: its share of the time, without so many seconds that an exact solver is to have after it."""
        return self._guarded(1, kept_s)

    def other_rounds(self) -> Stage[None]:
        """All rounds that are left."""
        return self._guarded(len(self._phases), 0.0)

    def _over(self) -> bool:
        # When deterministic the gap is looked at between phases alone.
        return not self._settings.deterministic and self._so_far.gap <= self._settings.gap

    def _guarded(self, until: int, kept_s: float) -> Stage[None]:
        try:
            while self._next < until:
                late = self._so_far.left_s <= kept_s + self.begins_s and not self._settings.deterministic
                if late or self._so_far.gap <= self._settings.gap:
                    return
                at, self._next = self._next, self._next + 1
                yield from self._round(at, kept_s)
        except Exception as error:
            if struck(error):
                raise
            self._next = len(self._phases)
            _LOG.warning("search failed: %r", error)

    def _round(self, at: int, kept_s: float) -> Iterator[Candidate]:
        so_far, settings, windows = self._so_far, self._settings, self.windows
        phase, turns = self._phases[at], len(self._phases) - 1 - max(at, _BEFORE)
        shares = [*(each.share for each in self._phases[at:]), turns * windows.weight]
        # All candidates, best first, no two equally long.
        known = sorted(so_far.candidates.values(), key=lambda c: (not c.fits, c.makespan))
        distinct_candidates = [
            c.timeline.schedule for k, c in enumerate(known) if k == 0 or c.makespan != known[k - 1].makespan
        ]
        starts = distinct_candidates[: _lanes(settings) if at == 0 else 1]
        begins = time.monotonic()
        if self._grounds is None:
            self._grounds = SearchGraphs(self._bench, self._planning, self._ladder, starts[0])
        lanes = _begin_walks(self._grounds, starts, settings, at, phase)
        began, before = time.monotonic(), starts[0].makespan
        self.begins_s = began - begins
        if self.spent():
            return
        # The first of the rounds that are left gets its share of the seconds that are.
        bench = self._bench
        left = so_far.left_s - kept_s
        planned = int(settings.time_limit_s * shares[0] * _STRETCHES) if settings.deterministic else None
        budget = WalkBudget(
            seconds=left * shares[0] / sum(shares), stretches=planned, rarer=1 + bench.problem.tasks // _OPS_A_PAUSE
        )
        for found in walk_all(lanes, budget, self._over):
            again = self._bench.ordered("search", f"annealed on {found.rule}", found.device, found.rank)
            yield replace(again, turns=LinkTieRuns(tried=0, least=again.makespan))  # it was priced to be weighed
        best = so_far.best
        if _BEFORE <= at < len(self._phases) - 1 and windows.weight and best is not None and not self._over():
            rate = (before - best.makespan) / max(time.monotonic() - began, 1e-3)
            seconds = so_far.left_s * windows.weight / (sum(shares[1:-1]) + turns * windows.weight)
            if seconds >= WORTH_S or (turns == 1 and seconds >= LEAST_S):
                with so_far.ledger.at("windows"):
                    yield from windows.turn(best.timeline.schedule, seconds, rate)


def _begin_walks(
    grounds: SearchGraphs, starts: Sequence[Schedule], settings: Settings, at: int, phase: SearchPhase
) -> list[Walk]:
    """A walk a core, one from each start in turn."""
    found = []
    for lane in range(_lanes(settings)):
        start, heat = starts[lane % len(starts)], phase.heat.times(_SPREAD**lane)
        ground = grounds.at(phase.nodes, start)
        seed = settings.seed + 1000 * at + lane
        found.append(Walk(ground.arena, ground.project(start), heat, ground.weigh, seed))
    return found


def _lanes(settings: Settings) -> int:
    return _LANES if settings.deterministic else max(1, min(os.cpu_count() or 1, settings.workers))
