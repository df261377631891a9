"""What search walks on: the full graph or a coarse one, and the way back to the full one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pesto.planning.coarsen import Coarsening, coarsen, contract
from pesto.planning.solving.candidates import CandidateEvaluator
from solvers import FORBIDDEN, Problem, Schedule
from solvers.arrays import Ints, ints, rank_of
from solvers.search.annealing import PointValue
from solvers.search.workspace import Solution, Workspace
from solvers.structure.units import placeable_units

SMALLEST = 25
"""Nodes of the coarsest graph whose nodes are moved whole."""
MOST = 40_000
"""Nodes of the largest graph that is walked on. Larger full graphs are coarsened along the best plan."""
_FINEST = 3200
"""Nodes of the largest graph along a plan, where the full graph is walked on at last."""
_HARDLY = 1.25
"""A full graph of at most so many times a coarse one's nodes is walked on in its place."""
_LONGER = 1.05
"""What a coarse graph may make of a plan, as a multiple of its makespan; one that makes more is made along the plan."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchGraph:
    """A graph to walk on, and the way back to the full one."""

    bench: CandidateEvaluator
    coarsening: Coarsening | None
    """None for the full graph."""
    arena: Workspace

    def weigh(self, spot: Solution) -> PointValue:
        """A point on the full graph, priced, with its real peaks."""
        schedule = self.arena.schedule(spot)
        if self.coarsening is None:
            device, rank, rule = schedule.device, rank_of(spot.order), "op by op"
        else:
            device, rank, rule = self.bench.expand(self.coarsening, schedule)
            rule = f"{self.coarsening.nodes} nodes, {rule}"
        found = self.bench.priced(self.bench.ordered("search", rule, device, rank))
        over = np.maximum(found.peak - self.bench.problem.capacity, 0)
        return PointValue(makespan=found.makespan, device=device, rank=found.rank, over=ints(over), rule=rule)

    def project(self, schedule: Schedule) -> Solution:
        """The point nearest to a schedule of the full graph: each unit where most of its work is, by mean start."""
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
    """What the walks of one search walk on."""

    def __init__(
        self, bench: CandidateEvaluator, planning: Problem, ladder: Sequence[Coarsening], best: Schedule
    ) -> None:
        self._bench, self._planning = bench, planning
        self._large = planning.tasks > MOST
        self._sets = coarsen_along(planning, best, MOST) if self._large else extend_ladder(planning, ladder)
        self._made: dict[int | None, SearchGraph] = {}

    def at(self, nodes: int | None, start: Schedule) -> SearchGraph:
        """A graph of about so many nodes, or the full one; along the start where another would make it too long."""
        if nodes is not None and self._planning.tasks <= _HARDLY * nodes:
            nodes = None
        if nodes not in self._made:
            most = nodes or (MOST if self._large else None)
            self._made[nodes] = search_graph_of(self._bench, self._planning, self._sets, most)
        found = self._made[nodes]
        if self._large or nodes is None or found.weigh(found.project(start)).makespan <= _LONGER * start.makespan:
            return found
        return search_graph_of(self._bench, self._planning, coarsen_along(self._planning, start, _FINEST), nodes)


def search_graph_of(
    bench: CandidateEvaluator, planning: Problem, sets: Sequence[Coarsening], nodes: int | None
) -> SearchGraph:
    """The largest graph of at most so many nodes, or the full one."""
    fits = [c for c in sets if nodes is not None and c.target <= nodes and c.nodes < planning.tasks]
    level = fits[0] if fits else None
    problem = contract(planning, level.node_of) if level is not None else planning
    node_of = level.node_of if level is not None else np.arange(planning.tasks)
    coarser = [c for c in reversed(sets) if c.nodes < problem.tasks]
    return SearchGraph(
        bench=bench,
        coarsening=level,
        arena=Workspace.of(problem, [_labels(node_of, c.node_of, problem.tasks) for c in coarser]),
    )


def _labels(node_of: Ints, coarse: Ints, nodes: int) -> Ints:
    """[nodes] the coarser node of each node."""
    label = np.zeros(nodes, dtype=np.int64)
    label[node_of] = coarse
    return label


def extend_ladder(planning: Problem, ladder: Sequence[Coarsening]) -> list[Coarsening]:
    """The ladder, carried on to the smallest graphs."""
    found = list(ladder)
    while found[-1].nodes > 2 * SMALLEST:
        last = found[-1]
        further = last.then(coarsen(contract(planning, last.node_of), last.nodes // 2))
        if further.nodes >= last.nodes:
            break
        found.append(further)
    return found


def coarsen_along(planning: Problem, schedule: Schedule, nodes: int) -> list[Coarsening]:
    """Coarsenings, of at most so many nodes down to the smallest, that a schedule's placement survives unchanged.

    Only tasks that it has at one location are merged, as in the V-cycles of multilevel partitioning (Walshaw,
    "Multilevel refinement for combinatorial optimisation problems", 2004; KaHIP).
    """
    there = planning.location == planning.location[schedule.device][:, None]
    pinned = replace(planning, duration=np.where(there, planning.duration, FORBIDDEN))
    return extend_ladder(pinned, [coarsen(pinned, nodes)])
