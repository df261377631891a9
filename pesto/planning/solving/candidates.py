"""Candidates for the plan: a placement and an order each, run by one event loop and weighed on the full graph."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from pesto.core.errors import InputError
from pesto.core.graph import Graph
from pesto.core.memory import footprint
from pesto.core.problem import constants_first
from pesto.core.simulator import Timeline
from pesto.planning.coarsen import Coarsening
from solvers import Problem, Schedule
from solvers.arrays import Ints, rank_of
from solvers.compiled.dag import topological_order
from solvers.memory.peaks import Gauge, gauge, peaks
from solvers.timing.loop import Prepared
from solvers.timing.replay import bottom_levels, first_come, prepare, replay
from solvers.timing.turns import SteadyingEffort, contenders, draw_merges, steady_order

_TASKS_RUN, _LEAST, _MOST, _EFFORT = 200_000, 4, 128, 8
"""Tasks that are run in all to price a candidate, how many runs that may be, and how many times as many for a plan."""
_STEADY, _MERGES, _STEADYING, _RUNS = 0.005, 40, 12_000_000, 4000
"""Share of a step that turns may make of it before another order is sought; merges; tasks run in all; runs at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTieRuns:
    """Runs of one placement and order that differ in whom links serve first of devices that ask in the same tick."""

    tried: int
    """How many random orders were tried; 0 where no two devices ask for a link in one tick, so that there is one."""
    least: int
    """Ticks of the shortest of these runs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """One way to run the step, timed by the compiled event loop; a plan is verified by the reference simulator."""

    name: str
    """What made it: a stage of the solve, or a method."""
    rule: str
    """One line on how it was made."""
    rank: Ints
    """[n] position of each op in the one order that all devices follow."""
    timeline: Timeline
    """The step as the event loop ran it."""
    peak: Ints
    """[l] most bytes alive at each location."""
    fits: bool
    """Whether the peaks are within every location's capacity."""
    turns: LinkTieRuns | None = None
    """Inside: what became of it in other orders of what nothing enforces; None where it was not priced."""

    @property
    def short(self) -> int:
        """Bytes that the location lacks which lacks most; at most 0 where all fit."""
        return int((self.peak - self.timeline.problem.capacity).max())

    @property
    def makespan(self) -> int:
        """Ticks of the simulated step."""
        return self.timeline.schedule.makespan

    @property
    def unsteady(self) -> int:
        """Ticks of the step, and what the shortest of the orders that were tried is below it."""
        return self.makespan + (self.makespan - self.turns.least if self.turns else 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateEvaluator:
    """What every candidate of one solve is measured with."""

    graph: Graph
    problem: Problem
    prepared: Prepared
    gauge: Gauge
    topological: Ints
    """[n] position of each op in a topological order; breaks ties."""
    per_edge: bool
    """Whether the problem has one payload an edge."""

    @classmethod
    def of(cls, graph: Graph, problem: Problem, *, per_edge: bool = False) -> "CandidateEvaluator":
        """Everything that depends on the full-graph problem alone."""
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
        """A candidate from a placement alone, in list order."""
        return self.ordered(name, rule, device, self._list_order(device, self._priority(device)))

    def scheduled(self, name: str, rule: str, schedule: Schedule) -> Candidate:
        """A candidate from a schedule of the full graph."""
        return self.ordered(name, rule, schedule.device, self.order_of(schedule))

    def unordered(self, candidate: Candidate) -> Candidate:
        """The same placement, in the order of a runtime that nobody gives one: devices first in, first out."""
        rule = f"{candidate.rule}; its order left to the framework"
        return self.first_come(candidate.name, rule, candidate.timeline.schedule.device)

    def first_come(self, name: str, rule: str, device: Ints) -> Candidate:
        """A candidate from a placement alone, first in, first out: that run itself, in the order that it served."""
        schedule, rank = first_come(self.problem, device, prepared=self.prepared)
        return self._measured(name, rule, schedule, rank)

    def ordered(self, name: str, rule: str, device: Ints, rank: Ints) -> Candidate:
        """A candidate from a placement and an order, run in that order; InputError where that is impossible."""
        rank = rank if self.per_edge else constants_first(self.graph, rank)
        try:
            schedule = replay(self.problem, device, rank, prepared=self.prepared)
        except ValueError as wrong:
            raise InputError(str(wrong)) from wrong
        return self._measured(name, rule, schedule, rank)

    def _measured(self, name: str, rule: str, schedule: Schedule, rank: Ints) -> Candidate:
        timeline = Timeline(problem=self.problem, schedule=schedule)
        peak = peaks(self.gauge, timeline.schedule)
        fits = bool((peak <= self.problem.capacity).all())
        return Candidate(name=name, rule=rule, rank=rank, timeline=timeline, peak=peak, fits=fits)

    def priced(self, candidate: Candidate, enough: float = math.inf, *, effort: int = 1) -> Candidate:
        """The same placement and order, where links serve devices that ask in the same tick in the worst way found.

        No order that is enforced says who is first, so a plan promises no less. The longest run that fits the memory,
        of the given one and random ones, more with more `effort`; none is tried beyond one of `enough` ticks.
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
        """`priced`, with the effort that a plan is worth: in an order that hardly depends on turns, if one is found."""
        found = self.priced(candidate, effort=_EFFORT)
        if not found.fits or found.turns is None or found.turns.least >= (1.0 - _STEADY) * found.makespan:
            return found
        effort = SteadyingEffort(merges=_MERGES, runs=min(_STEADYING // self.problem.tasks, _RUNS), enough=_STEADY / 2)
        device = found.timeline.schedule.device
        rank = steady_order(self.problem, self.prepared, device, found.rank, effort)
        other = self.priced(self.ordered(found.name, found.rule, device, rank), effort=_EFFORT)
        return min(found, other, key=lambda each: (not each.fits, each.unsteady))

    def expand(self, coarsening: Coarsening, coarse: Schedule) -> tuple[Ints, Ints, str]:
        """(device, rank, rule) of the full graph from a coarse schedule: the best of three orders.

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
        return self._best(device, orders)

    def order_of(self, schedule: Schedule) -> Ints:
        """[n] rank of each task by start, then finish, then topological position."""
        return rank_of(np.lexsort((self.topological, schedule.finish, schedule.start)))

    def _priority(self, device: Ints) -> Ints:
        """[n] rank by falling bottom level under a placement."""
        return rank_of(np.lexsort((self.topological, -bottom_levels(self.problem, device=device))))

    def _best(self, device: Ints, orders: Iterable[tuple[str, Ints]]) -> tuple[Ints, Ints, str]:
        runs = [(self._makespan(device, rank), at, rule, rank) for at, (rule, rank) in enumerate(orders)]
        _, _, rule, rank = min(runs, key=lambda run: run[:2])
        return device, rank, rule

    def _makespan(self, device: Ints, rank: Ints) -> int:
        return replay(self.problem, device, rank, prepared=self.prepared).makespan

    def _list_order(self, device: Ints, priority: Ints) -> Ints:
        return self.order_of(replay(self.problem, device, priority, strict=False, prepared=self.prepared))


def shortest_fitting(candidates: Iterable[Candidate]) -> Candidate | None:
    """The shortest that fits, the first of equals; None when none fits."""
    return min((c for c in candidates if c.fits), key=lambda c: c.makespan, default=None)
