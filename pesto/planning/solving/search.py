"""Op-level search: annealing on coarse graphs, then on the full one, in turn with exact windows of the best plan."""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pesto.planning.coarsen import Coarsening, coarsen, contract
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, LinkTieRuns
from pesto.planning.solving.exact import WindowTurns, engine_start_s
from pesto.planning.solving.tracker import Stage, Tracker
from solvers import FORBIDDEN, Problem, Schedule
from solvers.arrays import ints, rank_of
from solvers.compiled.interruption import struck
from solvers.search.annealing import PointValue, Temperature, Walk, WalkBudget, walk_all
from solvers.search.workspace import Solution, Workspace
from solvers.structure.units import placeable_units

WORTH_S, LEAST_S = 4.0, 1.5
"""Minimum seconds of a turn, and of the last turn: an engine takes one to load."""
SMALLEST = 25
"""Nodes of the coarsest graph whose nodes are moved whole."""
MOST_WALKED = 40_000
"""Nodes of the largest graph that is walked on. Larger full graphs are coarsened along the best plan."""
_FINEST = 3200
"""Nodes of the largest graph along a plan, where the full graph is walked on at last."""
_HARDLY = 1.25
"""If the full graph has at most this multiple of the coarse graph's nodes, it is walked on instead."""
_LONGER = 1.05
"""Maximum makespan of a plan's projection to a coarse graph, as a multiple of the plan's; beyond it the graph is
coarsened along the plan."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchGraph:
    """A graph to walk on, and the way back to the full one."""

    evaluator: CandidateEvaluator
    coarsening: Coarsening | None
    """None for the full graph."""
    workspace: Workspace

    def weigh(self, solution: Solution) -> PointValue:
        """Evaluate a point on the full graph, priced, with its real peaks."""
        schedule = self.workspace.schedule(solution)
        if self.coarsening is None:
            device, rank, rule = schedule.device, rank_of(solution.order), "op by op"
        else:
            device, rank, rule = self.evaluator.expand(self.coarsening, schedule)
            rule = f"{self.coarsening.nodes} nodes, {rule}"
        priced = self.evaluator.priced(self.evaluator.ordered("search", rule, device, rank))
        over = np.maximum(priced.peak - self.evaluator.problem.capacity, 0)
        return PointValue(makespan=priced.makespan, device=device, rank=priced.rank, over=ints(over), rule=rule)

    def project(self, schedule: Schedule) -> Solution:
        """Return the point nearest to a full graph's schedule: each unit where most of its work is, by mean start."""
        if self.coarsening is None:
            return self.workspace.solution_of(schedule)
        p, node_of, workspace = self.evaluator.problem, self.coarsening.node_of, self.workspace
        units = placeable_units(workspace.problem)
        took = schedule.finish - schedule.start + 1
        weight = np.zeros(units.allowed.shape, dtype=np.int64)
        np.add.at(weight, (units.unit[node_of], p.location[schedule.device]), took)
        at = np.where(units.allowed, weight, -1).argmax(axis=1)[units.unit]
        moment = np.bincount(node_of, weights=took * schedule.start.astype(np.float64))
        middle = np.argsort(moment / np.bincount(node_of, weights=took), kind="stable")
        run = workspace.run(workspace.devices(at), rank_of(middle), strict=False)
        return workspace.solution(at, workspace.order_of(run))


class SearchGraphs:
    """Graphs of one search, made when they are first walked on."""

    def __init__(
        self, evaluator: CandidateEvaluator, planning: Problem, ladder: Sequence[Coarsening], best: Schedule
    ) -> None:
        self._evaluator, self._planning = evaluator, planning
        self._large = planning.tasks > MOST_WALKED
        self._sets = coarsen_along(planning, best, MOST_WALKED) if self._large else extend_ladder(planning, ladder)
        self._made: dict[int | None, SearchGraph] = {}

    def at(self, nodes: int | None, start: Schedule) -> SearchGraph:
        """Return a graph of about so many nodes, or the full one; along the start if another would make it too long."""
        if nodes is not None and self._planning.tasks <= _HARDLY * nodes:
            nodes = None
        if nodes not in self._made:
            limit = nodes or (MOST_WALKED if self._large else None)
            self._made[nodes] = search_graph_of(self._evaluator, self._planning, self._sets, limit)
        graph = self._made[nodes]
        if self._large or nodes is None or graph.weigh(graph.project(start)).makespan <= _LONGER * start.makespan:
            return graph
        return search_graph_of(self._evaluator, self._planning, coarsen_along(self._planning, start, _FINEST), nodes)


def search_graph_of(
    evaluator: CandidateEvaluator, planning: Problem, sets: Sequence[Coarsening], nodes: int | None
) -> SearchGraph:
    """Return the largest graph of at most so many nodes, or the full one."""
    fits = [c for c in sets if nodes is not None and c.target <= nodes and c.nodes < planning.tasks]
    level = fits[0] if fits else None
    problem = contract(planning, level.node_of) if level is not None else planning
    node_of = level.node_of if level is not None else np.arange(planning.tasks)
    labels = []
    for coarser in (c for c in reversed(sets) if c.nodes < problem.tasks):
        label = np.zeros(problem.tasks, dtype=np.int64)  # [nodes] the coarser node of each node
        label[node_of] = coarser.node_of
        labels.append(label)
    return SearchGraph(
        evaluator=evaluator,
        coarsening=level,
        workspace=Workspace.of(problem, labels),
    )


def extend_ladder(planning: Problem, ladder: Sequence[Coarsening]) -> list[Coarsening]:
    """Return the ladder, carried on to the smallest graphs."""
    longer = list(ladder)
    while longer[-1].nodes > 2 * SMALLEST:
        last = longer[-1]
        further = last.then(coarsen(contract(planning, last.node_of), last.nodes // 2))
        if further.nodes >= last.nodes:
            break
        longer.append(further)
    return longer


def coarsen_along(planning: Problem, schedule: Schedule, nodes: int) -> list[Coarsening]:
    """Return coarsenings of at most so many nodes down to the smallest that keep a schedule's placement unchanged.

    Only tasks that it has at one location are merged, as in the V-cycles of multilevel partitioning (Walshaw,
    "Multilevel refinement for combinatorial optimisation problems", 2004; KaHIP).
    """
    there = planning.location == planning.location[schedule.device][:, None]
    pinned = replace(planning, duration=np.where(there, planning.duration, FORBIDDEN))
    return extend_ladder(pinned, [coarsen(pinned, nodes)])


_LOG = logging.getLogger("pesto")
_OPS_A_PAUSE = 50_000
"""Graph size up to which every pause evaluates the current point on the full graph; above it, evaluations are
proportionally rarer."""
_SPREAD = 2.0
"""Factor by which each walk is hotter than the one before it."""
_LANES = 2
"""Number of walks when deterministic: the same on every machine."""
_STRETCHES = 20
"""Stretches that stand for a second when deterministic."""


class SearchPhase(NamedTuple):
    """One round of walks."""

    nodes: int | None
    """Approximate number of nodes of the graph that is walked on; None for all ops."""
    share: float
    """Share of the time."""
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
"""Rounds by the clock, when windows have turns between the last ones."""
_BEFORE = 2
"""Rounds before the first that a turn of windows follows: while walks find much, they find more a second."""


class AnnealingSearch:
    """Makes `search`: walks from the best candidates, in rounds, with turns of windows between the last ones.

    `planning` is the problem whose memory estimates what is alive at peaks, `ladder` its coarsenings by steps, fine to
    coarse. Search ends when no time is left (when deterministic, after what is planned), or at `settings.gap` of the
    full graph. A failure is a warning and the end of search; what was found stays.
    """

    def __init__(self, tracker: Tracker, planning: Problem, ladder: Sequence[Coarsening]) -> None:
        self._tracker, self._planning, self._ladder = tracker, planning, ladder
        self._phases = PHASES if tracker.settings.deterministic else ALTERNATING
        self._next = 0
        """Number of the next round."""
        self._begins_s = engine_start_s(tracker)
        """Seconds that the start of the last round took: with no more time than that left, none is started."""
        self._graphs: SearchGraphs | None = None
        self._windows = WindowTurns(tracker.evaluator, planning, tracker.settings, self._over)

    def first_round(self, reserved_s: float) -> Stage[None]:
        """Run the first round for its share of the time, less what an exact solver gets after it."""
        return self._guarded(1, reserved_s)

    def other_rounds(self, *, windows: bool) -> Stage[None]:
        """Run all rounds that are left, with or without turns of `windows`."""
        if not windows:
            self._windows.weight = 0.0
        return self._guarded(len(self._phases), 0.0)

    def _over(self) -> bool:
        # When deterministic the gap is looked at between phases alone.
        return not self._tracker.settings.deterministic and self._tracker.gap <= self._tracker.settings.gap

    def _guarded(self, until: int, reserved_s: float) -> Stage[None]:
        tracker, settings = self._tracker, self._tracker.settings
        try:
            while self._next < until:
                short = tracker.deadlines.left_s <= reserved_s + self._begins_s and not settings.deterministic
                if short or tracker.gap <= settings.gap:
                    return
                number, self._next = self._next, self._next + 1
                yield from self._round(number, reserved_s)
        except Exception as error:
            if struck(error):
                raise
            self._next = len(self._phases)
            _LOG.warning("search failed: %r", error)

    def _round(self, number: int, reserved_s: float) -> Iterator[Candidate]:
        tracker, windows = self._tracker, self._windows
        evaluator, settings = tracker.evaluator, tracker.settings
        phase, turns = self._phases[number], len(self._phases) - 1 - max(number, _BEFORE)
        shares = [*(later.share for later in self._phases[number:]), turns * windows.weight]
        # All candidates, best first, no two equally long.
        known = sorted(tracker.candidates.values(), key=lambda c: (not c.fits, c.makespan))
        distinct = [c.timeline.schedule for k, c in enumerate(known) if k == 0 or c.makespan != known[k - 1].makespan]
        lanes = _LANES if settings.deterministic else max(1, min(os.cpu_count() or 1, settings.workers))
        starts = distinct[: lanes if number == 0 else 1]
        begins = time.monotonic()
        if self._graphs is None:
            self._graphs = SearchGraphs(evaluator, self._planning, self._ladder, starts[0])
        walks = []
        for lane in range(lanes):  # a walk a core, one from each start in turn
            start, heat = starts[lane % len(starts)], phase.heat.times(_SPREAD**lane)
            graph = self._graphs.at(phase.nodes, start)
            seed = settings.seed + 1000 * number + lane
            walks.append(Walk(graph.workspace, graph.project(start), heat, graph.weigh, seed))
        began, before = time.monotonic(), starts[0].makespan
        self._begins_s = began - begins
        if tracker.deadlines.spent():
            return
        # The first of the rounds that are left gets its share of the seconds that are.
        left_s = tracker.deadlines.left_s - reserved_s
        planned = int(settings.time_limit_s * shares[0] * _STRETCHES) if settings.deterministic else None
        budget = WalkBudget(
            seconds=left_s * shares[0] / sum(shares), stretches=planned,
            rarer=1 + evaluator.problem.tasks // _OPS_A_PAUSE,
        )  # fmt: skip
        for point in walk_all(walks, budget, self._over):
            again = evaluator.ordered("search", f"annealed on {point.rule}", point.device, point.rank)
            yield replace(again, turns=LinkTieRuns(tried=0, least=again.makespan))  # it was priced to be weighed
        best = tracker.best
        if _BEFORE <= number < len(self._phases) - 1 and windows.weight and best is not None and not self._over():
            rate = (before - best.makespan) / max(time.monotonic() - began, 1e-3)
            seconds = tracker.deadlines.left_s * windows.weight / (sum(shares[1:-1]) + turns * windows.weight)
            if seconds >= WORTH_S or (turns == 1 and seconds >= LEAST_S):
                with tracker.ledger.at("windows"):
                    yield from windows.turn(best.timeline.schedule, seconds, rate)
