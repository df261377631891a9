"""Levels, spans and potentials of ParDNN (Qararyah et al. 2020, table 4.2).

Top and bottom levels count every edge with its time, as no node has a place yet. What a level is for the sums of
work within a span, which the text leaves open: the top level, at which a node can start; a node is within a span
when it can start there (at its end no more, as that is where the child starts).
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, offsets
from solvers.compiled.kernels import routine
from solvers.heuristics.pardnn.slicing import SlicedClusters
from solvers.heuristics.pardnn.weights import NOWHERE, WeightedGraph


class ClusterSpans(NamedTuple):
    """The spans of c clusters among the L different top levels of the graph."""

    level: Ints
    """[n] rank of each node's top level among the different ones."""
    levels: int
    low: Ints
    """[c] first rank within the span of each cluster."""
    high: Ints
    """[c] the rank behind its last."""
    first: Ints
    """[c] top level of the first node of each cluster's path, in ticks."""
    end: Ints
    """[c] end of each span, in ticks."""


def spans_of(w: WeightedGraph, c: SlicedClusters, top: Ints) -> ClusterSpans:
    """The spans of all clusters; `top`: [n] top levels of the whole graph. O(n log n + e).

    A span lasts from the finish of the last parent of the first node of a path, 0 when that is the source, to the
    start of the first child of its last node, the length of the critical path when that is the sink.
    """
    levels, level = np.unique(top, return_inverse=True)
    longest = int((top + w.took).max(initial=0))
    begin, end = _limits(w, c.first, c.last, top, longest)
    return ClusterSpans(
        level=level.astype(np.int64),
        levels=len(levels),
        low=np.searchsorted(levels, begin),
        high=np.searchsorted(levels, end),
        first=top[c.first] if len(top) else np.zeros(len(c.first), dtype=np.int64),
        end=end,
    )


def potentials(w: WeightedGraph, c: SlicedClusters, s: ClusterSpans) -> Ints:
    """[c] work of all nodes within the span of each cluster but its own. O(n + c).

    Nodes at places that nothing can be mapped to, such as a host, do not count.
    """
    counted = np.where(w.place < w.ticks.shape[1], w.took, 0)
    within = offsets(np.bincount(s.level, weights=counted, minlength=s.levels).astype(np.int64))
    member = np.flatnonzero(c.cluster != NOWHERE)
    of = c.cluster[member]
    inside = (s.level[member] >= s.low[of]) & (s.level[member] < s.high[of])
    own = np.zeros(len(s.low), dtype=np.int64)
    np.add.at(own, of[inside], counted[member[inside]])
    return within[s.high] - within[s.low] - own


@routine
def _limits(w: WeightedGraph, first: Ints, last: Ints, top: Ints, longest: int) -> tuple[Ints, Ints]:
    begin, end = np.zeros(len(first), dtype=np.int64), np.full(len(first), longest, dtype=np.int64)
    for c in range(len(first)):
        if first[c] < 0:
            continue
        for k in range(w.into[first[c]], w.into[first[c] + 1]):
            begin[c] = max(begin[c], top[w.tail[k]] + w.took[w.tail[k]])
        for k in range(w.out[last[c]], w.out[last[c] + 1]):
            end[c] = min(end[c], top[w.head[k]])
    return begin, end
