"""The weighted graph that ParDNN works on (Qararyah et al. 2020, section 4.1), made of a problem.

The source knows identical processing elements, a time for each edge, and a list of the nodes that only a host can
run. Here a node weighs its mean ticks over the locations to choose among, and an edge the mean ticks of its payload
over the pairs of locations that it may join; each edge of a payload counts, as there. A task whose unit has one
possible location is at its place from the start: it talks to the clusters, but is part of none.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, rank_of
from solvers.compiled.dag import adjacency, topological_order
from solvers.heuristics.devices_of_location import elements
from solvers.problem import FORBIDDEN, Problem
from solvers.structure.units import Units, fastest_at, placeable_units

NOWHERE = -1
"""The place of a node that is not mapped yet."""


class WeightedGraph(NamedTuple):
    """n nodes, numbered in topological order, and k places to choose among; a tuple for compiled code.

    The artificial source and sink weigh nothing and are implied: before the nodes without predecessors, and after
    those without successors.
    """

    task: Ints
    """[n] task of each node."""
    out: Ints
    """[n + 1] where the edges that leave each node start in `head` and `out_cost`."""
    head: Ints
    out_cost: Ints
    into: Ints
    """[n + 1] where the edges that enter each node start in `tail` and `in_cost`."""
    tail: Ints
    in_cost: Ints
    took: Ints
    """[n] mean ticks of each node, rounded up: its weight."""
    ticks: Ints
    """[n, k] ticks at each place, where it is allowed; 0 at all for a node that is at its place from the start, unless
    that is among the k."""
    allowed: Bools
    """[n, k] where each node's unit may be; False throughout for a node that has no choice."""
    unit: Ints
    """[n] unit of each node."""
    place: Ints
    """[n] place of each node from the start: k plus a location for one outside the k, NOWHERE for a free node."""


def weights_of(problem: Problem) -> tuple[WeightedGraph, Ints]:
    """The graph of a problem, and the location of each of the k places. O(n l + e log e)."""
    units = placeable_units(problem)
    chosen = _fastest_first(problem, units, elements(units))
    order = topological_order(problem.tasks, problem.src, problem.dst)
    number = rank_of(order)
    allowed = units.allowed[units.unit]
    fixed = np.where(np.count_nonzero(allowed, axis=1) == 1, allowed.argmax(axis=1), NOWHERE)
    # [e] mean ticks of each edge over the pairs of different locations that its ends may be at.
    cost = np.zeros(problem.edges, dtype=np.int64)
    sides = problem.locations + 1
    joined = (fixed[problem.src] + 1) * sides + fixed[problem.dst] + 1
    carries = problem.payload >= 0
    for pair in np.unique(joined[carries]).tolist():
        one, two = (chosen if side == 0 else np.array([side - 1]) for side in divmod(pair, sides))
        classes = problem.path_class[np.ix_(one, two)][one[:, None] != two[None, :]]
        if not len(classes):
            continue
        edge = np.flatnonzero(carries & (joined == pair))
        share = np.bincount(classes, minlength=problem.transfer.shape[1]) / len(classes)
        cost[edge] = np.rint(problem.transfer[problem.payload[edge]] @ share).astype(np.int64)
    src, dst = number[problem.src], number[problem.dst]
    out, leaving = adjacency(problem.tasks, src)
    into, entering = adjacency(problem.tasks, dst)
    took, ticks = _node_costs(problem, fixed, chosen)
    free = (fixed == NOWHERE)[:, None]
    # [n] places, from the locations of tasks without a choice.
    of = len(chosen) + np.arange(problem.locations + 1)
    of[chosen] = np.arange(len(chosen))
    of[NOWHERE] = NOWHERE
    places = of[fixed]
    return WeightedGraph(
        task=order,
        out=out,
        head=dst[leaving],
        out_cost=cost[leaving],
        into=into,
        tail=src[entering],
        in_cost=cost[entering],
        took=took[order],
        ticks=ticks[order],
        allowed=(allowed[:, chosen] & free)[order],
        unit=units.unit[order],
        place=places[order],
    ), chosen


def _fastest_first(problem: Problem, units: Units, chosen: Ints) -> Ints:
    """The locations by how many units they can take, then by how fast they are: as they are, when all are alike."""
    ticks = fastest_at(problem)[:, chosen]
    total = np.where(ticks == FORBIDDEN, 0, ticks).sum(axis=0)
    found: Ints = chosen[np.lexsort((total, -np.count_nonzero(units.allowed[:, chosen], axis=0)))]
    return found


def _node_costs(problem: Problem, fixed: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """[n] weight of each task, and [n, k] its ticks at each place."""
    ticks = fastest_at(problem)
    here = np.take_along_axis(ticks, np.maximum(fixed, 0)[:, None], axis=1)[:, 0]
    at = np.where(ticks == FORBIDDEN, 0, ticks)[:, chosen]
    able = np.count_nonzero(ticks[:, chosen] != FORBIDDEN, axis=1)
    mean = -(-at.sum(axis=1) // np.maximum(able, 1))
    stays = (fixed != NOWHERE)[:, None] & (chosen[None, :] != fixed[:, None])
    return np.where(fixed == NOWHERE, mean, here), np.where(stays, 0, at)
