"""Op-level search: annealing on coarse graphs, then on the full one, in turn with exact windows of the best plan."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pesto.core.settings import Settings
from pesto.planning.coarsen import Coarsening, coarsen, contract
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, LinkTieRuns
from pesto.planning.solving.exact import SolverThread
from pesto.planning.solving.tracker import SoFar, Stage
from solvers import FAILED, FORBIDDEN, Limit, Options, Problem, Schedule, api
from solvers.arrays import ints, rank_of
from solvers.compiled.interruption import struck
from solvers.deadlines import Late, never
from solvers.search.annealing import PointValue, Temperature, Walk, WalkBudget, walk_all
from solvers.search.workspace import Solution, Workspace
from solvers.structure.units import placeable_units

SHARE = 0.1
"""Weight of the first turn of windows, beside about 1 of all rounds of annealing together; 0 for no windows."""
_MORE, _LESS, _LEAST = 2.0, 0.5, 0.05
"""Factors of the weight after a turn that gained more a second than annealing before it, and after one that gained
less; and its minimum."""
WORTH_S, LEAST_S = 4.0, 1.5
"""Minimum seconds of a turn, and of the last turn: an engine takes one to load."""
_MOST_TASKS = 40_000
"""Ops beyond which there are no windows: to try one takes as long as to run the plan."""
_OTHERWISE = "cpsat"
"""Engine of windows if the solver has none."""


def engine_of(settings: Settings) -> str:
    """Return the name of the engine that searches windows."""
    return settings.solver if settings.solver in api.WINDOWS else _OTHERWISE


class WindowTurns:
    """Turns of windows in one solve, with their weight beside annealing."""

    def __init__(
        self, bench: CandidateEvaluator, planning: Problem, settings: Settings, enough: Callable[[], bool] | None = None
    ) -> None:
        self._enough = enough
        self.engine = engine_of(settings)
        many = settings.deterministic or planning.tasks > _MOST_TASKS
        self.weight = 0.0 if many else SHARE
        """Weight of the next turn; 0 if there are no windows, or an engine has failed."""
        self._bench, self._planning, self._settings, self._turns = bench, planning, settings, 0

    def turn(self, start: Schedule, seconds: float, rate: float) -> Iterator[Candidate]:
        """Yield better plans as they are found, then set the weight by the gain against annealing's ticks a second.

        A failure is a warning, and the end of windows. Raise KeyboardInterrupt after Ctrl-C, once all plans are
        yielded.
        """
        began, best = time.monotonic(), start.makespan
        for schedule in self._schedules(start, seconds):
            rule = f"windows searched by {self.engine}"
            candidate = self._bench.priced(self._bench.scheduled("windows", rule, schedule))
            if candidate.fits:
                best = min(best, candidate.makespan)
            yield candidate
        gained = (start.makespan - best) / max(time.monotonic() - began, 1e-3)
        self.weight = max(self.weight * (_MORE if gained > max(rate, 0.0) else _LESS), min(_LEAST, self.weight))

    def _schedules(self, start: Schedule, seconds: float) -> Iterator[Schedule]:
        p, settings = self._planning, self._settings
        held = np.zeros_like(p.capacity)
        np.add.at(held, p.location[start.device], p.memory)
        roomy = p.holding(capacity=np.maximum(p.capacity, held))
        self._turns += 1
        options = Options(
            seconds=seconds,
            seed=(settings.seed + self._turns * 7919) % 2**31,
            workers=settings.workers,
            formulation=settings.formulation,
            start=start,
        )
        with SolverThread(roomy, self.engine, options, by=api.improve, enough=self._enough) as running:
            yield from running.schedules()
        result = running.result()
        if result.status in FAILED or not api.has_begun(result):
            self.weight = 0.0
            _LOG.warning("windows by %s failed: %s", self.engine, result.detail)
        if running.interrupted or result.limit is Limit.INTERRUPT:
            raise KeyboardInterrupt


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

    bench: CandidateEvaluator
    coarsening: Coarsening | None
    """None for the full graph."""
    arena: Workspace

    def weigh(self, spot: Solution) -> PointValue:
        """Evaluate a point on the full graph, priced, with its real peaks."""
        schedule = self.arena.schedule(spot)
        if self.coarsening is None:
            device, rank, rule = schedule.device, rank_of(spot.order), "op by op"
        else:
            device, rank, rule = self.bench.expand(self.coarsening, schedule)
            rule = f"{self.coarsening.nodes} nodes, {rule}"
        priced = self.bench.priced(self.bench.ordered("search", rule, device, rank))
        over = np.maximum(priced.peak - self.bench.problem.capacity, 0)
        return PointValue(makespan=priced.makespan, device=device, rank=priced.rank, over=ints(over), rule=rule)

    def project(self, schedule: Schedule) -> Solution:
        """Return the point nearest to a full graph's schedule: each unit where most of its work is, by mean start."""
        if self.coarsening is None:
            return self.arena.solution_of(schedule)
        p, node_of, arena = self.bench.problem, self.coarsening.node_of, self.arena
        units = placeable_units(arena.problem)
        took = schedule.finish - schedule.start + 1
        weight = np.zeros(units.allowed.shape, dtype=np.int64)
        np.add.at(weight, (units.unit[node_of], p.location[schedule.device]), took)
        at = np.where(units.allowed, weight, -1).argmax(axis=1)[units.unit]
        moment = np.bincount(node_of, weights=took * schedule.start.astype(np.float64))
        middle = np.argsort(moment / np.bincount(node_of, weights=took), kind="stable")
        run = arena.run(arena.devices(at), rank_of(middle), strict=False)
        return arena.solution(at, arena.order_of(run))


class SearchGraphs:
    """Graphs of one search, made when they are first walked on."""

    def __init__(
        self, bench: CandidateEvaluator, planning: Problem, ladder: Sequence[Coarsening], best: Schedule
    ) -> None:
        self._bench, self._planning = bench, planning
        self._large = planning.tasks > MOST_WALKED
        self._sets = coarsen_along(planning, best, MOST_WALKED) if self._large else extend_ladder(planning, ladder)
        self._made: dict[int | None, SearchGraph] = {}

    def at(self, nodes: int | None, start: Schedule) -> SearchGraph:
        """Return a graph of about so many nodes, or the full one; along the start if another would make it too long."""
        if nodes is not None and self._planning.tasks <= _HARDLY * nodes:
            nodes = None
        if nodes not in self._made:
            most = nodes or (MOST_WALKED if self._large else None)
            self._made[nodes] = search_graph_of(self._bench, self._planning, self._sets, most)
        graph = self._made[nodes]
        if self._large or nodes is None or graph.weigh(graph.project(start)).makespan <= _LONGER * start.makespan:
            return graph
        return search_graph_of(self._bench, self._planning, coarsen_along(self._planning, start, _FINEST), nodes)


def search_graph_of(
    bench: CandidateEvaluator, planning: Problem, sets: Sequence[Coarsening], nodes: int | None
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
        bench=bench,
        coarsening=level,
        arena=Workspace.of(problem, labels),
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
        """Number of the next round."""
        self.begins_s = 0.0
        """Seconds that the start of the last round took: with no more time than that left, none is started."""
        self.spent: Late = never
        """Returns True once a plan fits and the time limit is over: a round that has only begun ends."""
        self._grounds: SearchGraphs | None = None
        self.windows = WindowTurns(bench, planning, settings, self._over)
        """Turns of windows; without weight there are none."""

    def first_round(self, kept_s: float) -> Stage[None]:
        """Run the first round for its share of the time, less `kept_s` seconds that an exact solver gets after it."""
        return self._guarded(1, kept_s)

    def other_rounds(self) -> Stage[None]:
        """Run all rounds that are left."""
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
        lanes = []
        for lane in range(_lanes(settings)):  # a walk a core, one from each start in turn
            start, heat = starts[lane % len(starts)], phase.heat.times(_SPREAD**lane)
            ground = self._grounds.at(phase.nodes, start)
            seed = settings.seed + 1000 * at + lane
            lanes.append(Walk(ground.arena, ground.project(start), heat, ground.weigh, seed))
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
        for point in walk_all(lanes, budget, self._over):
            again = self._bench.ordered("search", f"annealed on {point.rule}", point.device, point.rank)
            yield replace(again, turns=LinkTieRuns(tried=0, least=again.makespan))  # it was priced to be weighed
        best = so_far.best
        if _BEFORE <= at < len(self._phases) - 1 and windows.weight and best is not None and not self._over():
            rate = (before - best.makespan) / max(time.monotonic() - began, 1e-3)
            seconds = so_far.left_s * windows.weight / (sum(shares[1:-1]) + turns * windows.weight)
            if seconds >= WORTH_S or (turns == 1 and seconds >= LEAST_S):
                with so_far.ledger.at("windows"):
                    yield from windows.turn(best.timeline.schedule, seconds, rate)


def _lanes(settings: Settings) -> int:
    return _LANES if settings.deterministic else max(1, min(os.cpu_count() or 1, settings.workers))
