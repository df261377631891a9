"""Graph slicing: algorithm 1 of ParDNN (Qararyah et al. 2020, section 4.1.1).

K times the heaviest path of what is left is taken out as a primary cluster, each time with new levels; the levels
that then hold are kept while the rest is cut into secondary clusters, paths and single nodes. (The listing computes
levels before it removes the path; the text means after.) What it leaves open:

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

from solvers.arrays import Bools, Ints
from solvers.compiled.kernels import routine, subroutine
from solvers.heuristics.pardnn.levels import levels
from solvers.heuristics.pardnn.weights import NOWHERE, WeightedGraph


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
    """The clusters of a graph; `level`: [n] weighted levels of the whole. O(k (n + e) + n log n)."""
    n, k = w.allowed.shape
    cut = _SlicingState(
        w.place != NOWHERE, np.full(n, NOWHERE, dtype=np.int64), np.full((n + k, 2), -1, dtype=np.int64)
    )
    _primaries(w, cut)
    top, bottom = levels(w, cut.gone)
    order = np.lexsort((top, -(top + bottom)))
    count = _secondaries(w, cut, (top + bottom, bottom), order)
    return SlicedClusters(cut.path, _joined(w, cut.path, level), cut.ends[:count, 0].copy(), cut.ends[:count, 1].copy())


def _joined(w: WeightedGraph, path: Ints, level: Ints) -> Ints:
    """[n] the cluster of the heaviest node of each node's unit."""
    order = np.lexsort((np.arange(len(path)), -level, -w.took, w.unit))
    heaviest = order[np.flatnonzero(np.diff(w.unit[order], prepend=-1))]
    joined: Ints = path[heaviest][w.unit]
    return joined


class _SlicingState(NamedTuple):
    """State of the slicing: the paths cut so far."""

    gone: Bools
    """[n] nodes that are in a cluster, or in none ever."""
    path: Ints
    ends: Ints
    """[c, 2] first and last node of each cluster."""


@routine
def _primaries(w: WeightedGraph, cut: _SlicingState) -> None:
    """Cut k critical paths, each of what is left."""
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
