"""The weighted graph that ParDNN works on, and its slicing (Qararyah et al. 2020, section 4.1).

The source knows identical processing elements, a time for each edge, and a list of the nodes that only a host can
run. Here a node weighs its mean ticks over the locations to choose among, and an edge the mean ticks of its payload
over the pairs of locations that it may join; each edge of a payload counts, as there. A task whose unit has one
possible location is at its place from the start: it talks to the clusters, but is part of none.

Slicing, algorithm 1: K times the heaviest path of what is left is taken out as a primary cluster, each time with new
levels; the levels that then hold are kept while the rest is cut into secondary clusters, paths and single nodes. (The
listing computes levels before it removes the path; the text means after.) What it leaves open:

- A path starts at the node of greatest weighted level, of these the one of least top level, and goes on to the child
  of greatest weighted level, of these to the one with the longest way to the sink: with levels that are up to date
  this is a critical path.
- Device kinds: the path of primary j takes only nodes that place j can run, and a secondary goes on only while some
  place can run all of it. Nodes without a choice are in no cluster.
- Groups: when all is cut, the tasks of a unit join the cluster of its heaviest one (then: of greatest weighted
  level, then the first), which alone decides where the unit ends.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, rank_of
from solvers.compiled.dag import adjacency, topological_order
from solvers.compiled.kernels import routine, subroutine
from solvers.heuristics.devices_of_location import elements
from solvers.problem import FORBIDDEN, Problem
from solvers.structure.units import fastest_at, placeable_units

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
    """Return the graph of a problem, and the location of each of the k places. O(n l + e log e)."""
    units = placeable_units(problem)
    # The locations by how many units they can take, then by how fast they are: as they are, when all are alike.
    chosen, ticks = elements(units), fastest_at(problem)
    known = np.where(ticks == FORBIDDEN, 0, ticks)
    chosen = chosen[np.lexsort((known[:, chosen].sum(axis=0), -np.count_nonzero(units.allowed[:, chosen], axis=0)))]
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
    here = np.take_along_axis(ticks, np.maximum(fixed, 0)[:, None], axis=1)[:, 0]
    able = np.count_nonzero(ticks[:, chosen] != FORBIDDEN, axis=1)
    mean = -(-known[:, chosen].sum(axis=1) // np.maximum(able, 1))
    stays = (fixed != NOWHERE)[:, None] & (chosen[None, :] != fixed[:, None])
    free = (fixed == NOWHERE)[:, None]
    # [n] places, from the locations of tasks without a choice.
    of = len(chosen) + np.arange(problem.locations + 1)
    of[chosen] = np.arange(len(chosen))
    of[NOWHERE] = NOWHERE
    return WeightedGraph(
        task=order,
        out=out,
        head=dst[leaving],
        out_cost=cost[leaving],
        into=into,
        tail=src[entering],
        in_cost=cost[entering],
        took=np.where(fixed == NOWHERE, mean, here)[order],
        ticks=np.where(stays, 0, known[:, chosen])[order],
        allowed=(allowed[:, chosen] & free)[order],
        unit=units.unit[order],
        place=of[fixed][order],
    ), chosen


@routine
def levels(w: WeightedGraph, gone: Bools) -> tuple[Ints, Ints]:
    """Return [n] top and bottom levels in the graph without the nodes that are `gone`, whose own are 0. O(n + e)."""
    n = len(gone)
    top, bottom = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for node in range(n):
        if gone[node]:
            continue
        for k in range(w.into[node], w.into[node + 1]):
            parent = w.tail[k]
            if not gone[parent]:
                top[node] = max(top[node], top[parent] + w.took[parent] + w.in_cost[k])
    for node in range(n - 1, -1, -1):
        if gone[node]:
            continue
        for k in range(w.out[node], w.out[node + 1]):
            if not gone[w.head[k]]:
                bottom[node] = max(bottom[node], w.out_cost[k] + bottom[w.head[k]])
        bottom[node] += w.took[node]
    return top, bottom


class SlicedClusters(NamedTuple):
    """Disjoint clusters: k primaries, of which the last may be empty, then secondaries as they were found."""

    path: Ints
    """[n] the cluster into which each node was cut, NOWHERE for one without a choice."""
    cluster: Ints
    """[n] the same with units joined."""
    first: Ints
    """[c] first node of the path of each cluster, -1 for an empty one."""
    last: Ints
    """[c] last node of each cluster."""


def sliced(w: WeightedGraph, level: Ints) -> SlicedClusters:
    """Return the clusters of a graph; `level`: [n] weighted levels of the whole. O(k (n + e) + n log n)."""
    n, k = w.allowed.shape
    cut = _SlicingState(
        w.place != NOWHERE, np.full(n, NOWHERE, dtype=np.int64), np.full((n + k, 2), -1, dtype=np.int64)
    )
    _primaries(w, cut)
    top, bottom = levels(w, cut.gone)
    order = np.lexsort((top, -(top + bottom)))
    count = _secondaries(w, cut, (top + bottom, bottom), order)
    # Units join the cluster of their heaviest node.
    by = np.lexsort((np.arange(n), -level, -w.took, w.unit))
    cluster = cut.path[by[np.flatnonzero(np.diff(w.unit[by], prepend=-1))]][w.unit]
    return SlicedClusters(cut.path, cluster, cut.ends[:count, 0].copy(), cut.ends[:count, 1].copy())


class _SlicingState(NamedTuple):
    """State of the slicing: the paths cut so far."""

    gone: Bools
    """[n] nodes that are in a cluster, or in none ever."""
    path: Ints
    ends: Ints
    """[c, 2] first and last node of each cluster."""


@routine
def _primaries(w: WeightedGraph, cut: _SlicingState) -> None:
    n, k = w.allowed.shape
    for j in range(k):
        barred, can = cut.gone.copy(), np.zeros(k, dtype=np.bool_)
        can[j] = True
        for node in range(n):
            barred[node] |= not w.allowed[node, j]
        top, bottom = levels(w, barred)
        start = int(np.int64(-1))
        for node in range(n):
            if barred[node]:
                continue
            more = start < 0 or top[node] + bottom[node] > top[start] + bottom[start]
            if more or (top[node] + bottom[node] == top[start] + bottom[start] and top[node] < top[start]):
                start = node
        if start >= 0:
            _walk(w, cut, (start, j), (top + bottom, bottom), can)


@routine
def _secondaries(w: WeightedGraph, cut: _SlicingState, level: tuple[Ints, Ints], order: Ints) -> int:
    """Cut all that is left into paths, which start at nodes in `order`; return the number of clusters."""
    count = w.allowed.shape[1]
    for node in order:
        if not cut.gone[node]:
            _walk(w, cut, (node, count), level, w.allowed[node].copy())
            count += 1
    return count


@subroutine
def _walk(w: WeightedGraph, cut: _SlicingState, begin: tuple[int, int], level: tuple[Ints, Ints], can: Bools) -> None:
    """Cut a path that a place in `can` can run, by (weighted, bottom) levels.

    begin: its first node, and its cluster.
    """
    node, cluster = begin
    weighted, bottom = level
    cut.ends[cluster, 0] = node
    while node >= 0:
        cut.gone[node], cut.path[node], cut.ends[cluster, 1] = True, cluster, node
        can &= w.allowed[node]
        best, longest = -1, 0
        for k in range(w.out[node], w.out[node + 1]):
            child = w.head[k]
            if cut.gone[child] or not np.any(can & w.allowed[child]):
                continue
            way = w.out_cost[k] + bottom[child]
            if best < 0 or weighted[child] > weighted[best] or (weighted[child] == weighted[best] and way > longest):
                best, longest = child, way
        node = best
