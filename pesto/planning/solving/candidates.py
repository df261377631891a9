"""Candidates for the plan: a placement and an order each, run by one event loop and evaluated on the full graph."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.errors import InfeasibleError, InputError
from pesto.core.graph import Graph
from pesto.core.memory import footprint, shortage
from pesto.core.problem import build_problem, constants_first
from pesto.core.settings import Settings
from pesto.core.simulator import Timeline
from pesto.planning.coarsen import Coarsening
from solvers import Problem, Schedule
from solvers.arrays import Ints, rank_of
from solvers.bounds import quick_bounds
from solvers.compiled.dag import topological_order
from solvers.memory.peaks import Gauge, gauge, peaks
from solvers.timing.loop import Prepared
from solvers.timing.replay import bottom_levels, first_come, prepare, replay
from solvers.timing.turns import SteadyingEffort, contenders, draw_merges, steady_order

LARGER = "use more or larger devices"
_TASKS_RUN, _LEAST, _MOST, _EFFORT = 200_000, 4, 128, 8
"""Total tasks that are run to price a candidate, limits of the number of runs, and a factor of both for a plan."""
_STEADY, _MERGES, _STEADYING, _RUNS = 0.005, 40, 12_000_000, 4000
"""Share of a step that link ties may add before another order is sought; limits of merges, tasks and runs for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTieRuns:
    """Runs of one placement and order that differ in which of the devices asking in the same tick links serve first."""

    tried: int
    """Number of random orders tried; 0 if no two devices ask for a link in one tick, so that there is one."""
    least: int
    """Makespan of the shortest of these runs, in ticks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """One way to run the step, timed by the compiled event loop; a plan is verified by the reference simulator."""

    name: str
    """Name of the stage of the solve, or of the method, that made it."""
    rule: str
    """One line that says how it was made."""
    rank: Ints
    """[n] position of each op in the one order that all devices follow."""
    timeline: Timeline
    """The step as the event loop ran it."""
    peak: Ints
    """[l] peak bytes at each location."""
    fits: bool
    """True if the peaks are within every location's capacity."""
    turns: LinkTieRuns | None = None
    """Inside: runs in other orders of links that nothing enforces; None if it was not priced."""

    @property
    def short(self) -> int:
        """Largest memory shortfall of a location, in bytes; at most 0 if all fit."""
        return int((self.peak - self.timeline.problem.capacity).max())

    @property
    def makespan(self) -> int:
        """Ticks of the simulated step."""
        return self.timeline.schedule.makespan

    @property
    def unsteady(self) -> int:
        """Makespan plus its spread over the link tie-breaking orders tried, in ticks; smaller is more stable."""
        return self.makespan + (self.makespan - self.turns.least if self.turns else 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateEvaluator:
    """Evaluates every candidate of one solve on the full graph."""

    graph: Graph
    problem: Problem
    prepared: Prepared
    gauge: Gauge
    topological: Ints
    """[n] position of each op in a topological order; breaks ties."""
    per_edge: bool
    """True if the problem has one payload an edge."""

    @classmethod
    def of(cls, graph: Graph, problem: Problem, *, per_edge: bool = False) -> "CandidateEvaluator":
        """Return an evaluator with everything that depends on the full-graph problem alone."""
        position = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
        return cls(
            graph=graph,
            problem=problem,
            prepared=prepare(problem),
            gauge=gauge(problem, footprint(graph, per_edge=per_edge)),
            topological=position,
            per_edge=per_edge,
        )

    def placed(self, name: str, rule: str, device: Ints) -> Candidate:
        """Return a candidate from a placement alone, in list order."""
        return self.ordered(name, rule, device, self._list_order(device, self._priority(device)))

    def scheduled(self, name: str, rule: str, schedule: Schedule) -> Candidate:
        """Return a candidate from a schedule of the full graph."""
        return self.ordered(name, rule, schedule.device, self.order_of(schedule))

    def unordered(self, candidate: Candidate) -> Candidate:
        """Return the same placement in the order of a runtime without one: devices first in, first out."""
        rule = f"{candidate.rule}; its order left to the framework"
        return self.first_come(candidate.name, rule, candidate.timeline.schedule.device)

    def first_come(self, name: str, rule: str, device: Ints) -> Candidate:
        """Return a candidate from a placement alone: the first in, first out run, in the order that it served."""
        schedule, rank = first_come(self.problem, device, prepared=self.prepared)
        return self._measured(name, rule, schedule, rank)

    def ordered(self, name: str, rule: str, device: Ints, rank: Ints) -> Candidate:
        """Return a candidate from a placement, run in an order; raise InputError if that is impossible."""
        rank = rank if self.per_edge else constants_first(self.graph, rank)
        try:
            schedule = replay(self.problem, device, rank, prepared=self.prepared)
        except ValueError as wrong:
            raise InputError.of(wrong) from wrong
        return self._measured(name, rule, schedule, rank)

    def _measured(self, name: str, rule: str, schedule: Schedule, rank: Ints) -> Candidate:
        timeline = Timeline(problem=self.problem, schedule=schedule)
        peak = peaks(self.gauge, timeline.schedule)
        fits = bool((peak <= self.problem.capacity).all())
        return Candidate(name=name, rule=rule, rank=rank, timeline=timeline, peak=peak, fits=fits)

    def priced(self, candidate: Candidate, enough: float = math.inf, *, effort: int = 1) -> Candidate:
        """Evaluate a candidate under the worst link tie-breaking found, as no enforced order says who is first.

        Return the longest run that fits the memory, of the given one and random ones, more with more `effort`; none is
        tried beyond one of `enough` ticks.
        """
        run, worst, least, tried = candidate.timeline.schedule, candidate, candidate.makespan, 0
        if candidate.fits and len(contenders(self.problem, run)):
            count = min(max(effort * _TASKS_RUN // self.problem.tasks, _LEAST), effort * _MOST)
            for ticks, rank in draw_merges(self.prepared, run.device, candidate.rank, count=count):
                if worst.makespan >= enough:
                    break
                tried, least = tried + 1, min(least, ticks)
                if ticks > worst.makespan:
                    other = self.ordered(candidate.name, candidate.rule, run.device, rank)
                    worst = other if other.fits else worst
        known = candidate.turns or LinkTieRuns(tried=0, least=least)
        return replace(worst, turns=LinkTieRuns(tried=max(tried, known.tried), least=min(least, known.least)))

    def priced_well(self, candidate: Candidate) -> Candidate:
        """Evaluate as `priced` with a plan's effort, in an order that hardly depends on link ties, if one is found."""
        priced = self.priced(candidate, effort=_EFFORT)
        if not priced.fits or priced.turns is None or priced.turns.least >= (1.0 - _STEADY) * priced.makespan:
            return priced
        effort = SteadyingEffort(merges=_MERGES, runs=min(_STEADYING // self.problem.tasks, _RUNS), enough=_STEADY / 2)
        device = priced.timeline.schedule.device
        rank = steady_order(self.problem, self.prepared, device, priced.rank, effort)
        other = self.priced(self.ordered(priced.name, priced.rule, device, rank), effort=_EFFORT)
        return min(priced, other, key=lambda each: (not each.fits, each.unsteady))

    def expand(self, coarsening: Coarsening, coarse: Schedule) -> tuple[Ints, Ints, str]:
        """Return (device, rank, rule) of the full graph from a coarse schedule: the best of three orders.

        Members of a node run one after another as the paper has it (3.3), or all ops are served as they become
        ready, by the coarse order or by bottom level.
        """
        device = coarse.device[coarsening.node_of]
        first = np.full(coarsening.nodes, len(device))
        np.minimum.at(first, coarsening.node_of, coarsening.rank)
        node = np.lexsort((first, coarse.finish, coarse.start))
        inner = rank_of(np.lexsort((coarsening.rank, rank_of(node)[coarsening.node_of])))
        orders = [
            ("nodes one after another", inner),
            ("ready ops in coarse order", self._list_order(device, inner)),
            ("ready ops by bottom level", self._list_order(device, self._priority(device))),
        ]
        runs = [
            (replay(self.problem, device, rank, prepared=self.prepared).makespan, rule, rank) for rule, rank in orders
        ]
        _, rule, rank = min(runs, key=lambda run: run[0])
        return device, rank, rule

    def order_of(self, schedule: Schedule) -> Ints:
        """Return [n] rank of each task by start, then finish, then topological position."""
        return rank_of(np.lexsort((self.topological, schedule.finish, schedule.start)))

    def _priority(self, device: Ints) -> Ints:
        """[n] rank by falling bottom level under a placement."""
        return rank_of(np.lexsort((self.topological, -bottom_levels(self.problem, device=device))))

    def _list_order(self, device: Ints, priority: Ints) -> Ints:
        return self.order_of(replay(self.problem, device, priority, strict=False, prepared=self.prepared))


def formulate(
    graph: Graph, costs: Costs, cluster: Cluster, settings: Settings, pins: Mapping[str, str] | None = None
) -> Problem:
    """Return the full-graph problem that every plan is checked against; its static memory is the variables'.

    `pins` maps variables to devices by name, as of `Plan.pins`. Raise InfeasibleError, with the bytes short, if the
    variables alone cannot fit.
    """
    problem = build_problem(graph, costs, cluster, memory=graph.param_bytes, per_edge=settings.per_edge, pins=pins)
    if quick_bounds.memory_proof(problem) is not None:
        raise InfeasibleError.build(f"the variables do not fit: {shortage(graph, problem, cluster)}", remedy=LARGER)
    return problem


def shortest_fitting(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the shortest candidate that fits, the first of equals; None if none fits."""
    return min((c for c in candidates if c.fits), key=lambda c: c.makespan, default=None)
