"""Mapping: algorithm 2 of ParDNN (Qararyah et al. 2020, section 4.1.1), initial merging and LALB.

What the text leaves open:

- comm(sc) counts every edge between the cluster and all else. A cluster that it says should be merged with the
  primary it talks to most, but that talks to none yet, is left to load balancing.
- Equation (4.2) counts edges to what is mapped; of equal places that talk equally much the first is taken.
- The cluster's own ticks at a place are added: the same everywhere where places are alike, as in the source.
- Fenwick's tree has a row for each level and in it a column for each place, so that one walk serves all places.

Top and bottom levels count every edge with its time, as no node has a place yet. What a level is for the sums of
work within a span, which the text leaves open: the top level, at which a node can start; a node is within a span
when it can start there (at its end no more, as that is where the child starts).
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, offsets
from solvers.compiled.kernels import kernel, routine, subkernel
from solvers.heuristics.clusters.linear_clustering import glb
from solvers.heuristics.pardnn.slicing import NOWHERE, SlicedClusters, WeightedGraph


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
    """Return the spans of all clusters; `top`: [n] top levels of the whole graph. O(n log n + e).

    A span lasts from the finish of the last parent of the first node of a path, 0 when that is the source, to the
    start of the first child of its last node, the length of the critical path when that is the sink.
    """
    levels, level = np.unique(top, return_inverse=True)
    longest = int((top + w.took).max(initial=0))
    begin, end = _limits(w, c.first, c.last, top, longest)
    return ClusterSpans(
        level=level.astype(np.int64), levels=len(levels), low=np.searchsorted(levels, begin),
        high=np.searchsorted(levels, end), first=top[c.first] if len(top) else np.zeros(len(c.first), dtype=np.int64),
        end=end,
    )  # fmt: skip


def potentials(w: WeightedGraph, c: SlicedClusters, s: ClusterSpans) -> Ints:
    """Return [c] work of all nodes within the span of each cluster but its own. O(n + c).

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


class ClusterMapping(NamedTuple):
    """A mapping, which compiled code changes in place."""

    cluster: Ints
    """[n] cluster of each node."""
    place: Ints
    """[n] place of each node."""
    at: Ints
    """[c] place of each cluster, NOWHERE for an empty one."""
    tree: Ints
    """[L + 1, k] Fenwick's tree over the levels, for each place: ticks of its nodes."""
    member: Ints
    """[n] the nodes, by cluster."""
    start: Ints
    """[c + 1] where the nodes of each cluster start in `member`."""
    allowed: Bools
    """[c, k] places that can take all of a cluster."""
    load: Ints
    """[c, k] its ticks at each."""


def mapped(w: WeightedGraph, c: SlicedClusters, s: ClusterSpans, *, level_aware: bool = True) -> ClusterMapping:
    """Return a place for every cluster; by Guided Load Balancing instead of LALB unless `level_aware`.

    O(n log n + c k log L + e).
    """
    k, count = w.allowed.shape[1], len(c.first)
    member = np.argsort(c.cluster, kind="stable")[np.count_nonzero(c.cluster == NOWHERE) :]
    m = ClusterMapping(
        cluster=c.cluster, place=w.place.copy(), at=np.full(count, NOWHERE, dtype=np.int64),
        tree=np.zeros((s.levels + 1, k), dtype=np.int64), member=member,
        start=offsets(np.bincount(c.cluster[member], minlength=count)), allowed=np.ones((count, k), dtype=np.bool_),
        load=np.zeros((count, k), dtype=np.int64),
    )  # fmt: skip
    _totals(w, s.level, m, k)
    primaries = np.flatnonzero(np.diff(m.start[: k + 1]))
    for j in primaries.tolist():
        _put(w, s.level, m, j, j)
    rest = k + np.flatnonzero(np.diff(m.start[k:]))
    _merge(w, s.level, m, rest, potentials(w, c, s))
    rest = rest[m.at[rest] == NOWHERE]
    weight = np.zeros(count, dtype=np.int64)
    mine = c.cluster != NOWHERE
    np.add.at(weight, c.cluster[mine], w.took[mine])
    rest = rest[np.argsort(-weight[rest], kind="stable")]
    if level_aware:
        _lalb(w, s, m, rest)
    elif len(rest):
        busy = np.where(m.place[:, None] == np.arange(k), w.ticks, 0).sum(axis=0)
        there = glb(m.load[rest], m.allowed[rest], busy=busy, order=np.arange(len(rest)))
        _put_all(w, s.level, m, rest, there)
    return m


@kernel
def _totals(w: WeightedGraph, level: Ints, m: ClusterMapping, k: int) -> None:
    for c in range(len(m.at)):
        for node in m.member[m.start[c] : m.start[c + 1]]:
            for place in range(k):
                m.allowed[c, place] &= w.allowed[node, place]
                m.load[c, place] += w.ticks[node, place]
    for node in range(len(m.place)):
        if 0 <= m.place[node] < k:
            add(m.tree, level[node], m.place[node], w.ticks[node, m.place[node]])


@subkernel
def add(tree: Ints, level: int, place: int, ticks: int) -> None:
    """Add ticks at a level of a place. O(log L)."""
    at = level + 1
    while at < len(tree):
        tree[at, place] += ticks
        at += at & -at


@subkernel
def work(tree: Ints, low: int, high: int, found: Ints) -> None:
    """[k] ticks of each place at the levels from `low` to before `high`, into `found`. O(k log L)."""
    found[:] = 0
    while high > 0:
        for place in range(len(found)):
            found[place] += tree[high, place]
        high &= high - 1
    while low > 0:
        for place in range(len(found)):
            found[place] -= tree[low, place]
        low &= low - 1


@subkernel
def talk(w: WeightedGraph, m: ClusterMapping, c: int, found: Ints) -> int:
    """[k] communication of a cluster with what is mapped to each place, into `found`; return that with all else."""
    found[:] = 0
    total = 0
    for node in m.member[m.start[c] : m.start[c + 1]]:
        for k in range(w.out[node], w.out[node + 1]):
            if m.cluster[w.head[k]] != c:
                total += w.out_cost[k]
                if 0 <= m.place[w.head[k]] < len(found):
                    found[m.place[w.head[k]]] += w.out_cost[k]
        for k in range(w.into[node], w.into[node + 1]):
            if m.cluster[w.tail[k]] != c:
                total += w.in_cost[k]
                if 0 <= m.place[w.tail[k]] < len(found):
                    found[m.place[w.tail[k]]] += w.in_cost[k]
    return total


@kernel
def _put(w: WeightedGraph, level: Ints, m: ClusterMapping, c: int, place: int) -> None:
    m.at[c] = place
    for node in m.member[m.start[c] : m.start[c + 1]]:
        m.place[node] = place
        add(m.tree, level[node], place, w.ticks[node, place])


@routine
def _put_all(w: WeightedGraph, level: Ints, m: ClusterMapping, clusters: Ints, place: Ints) -> None:
    for at in range(len(clusters)):
        _put(w, level, m, clusters[at], place[at])


@routine
def _merge(w: WeightedGraph, level: Ints, m: ClusterMapping, rest: Ints, potential: Ints) -> None:
    """Lines 1-7: each cluster of more communication than potential to the primary that it talks to most."""
    comm = np.zeros(w.allowed.shape[1], dtype=np.int64)
    for c in rest:
        if talk(w, m, c, comm) <= potential[c]:
            continue
        best = int(np.int64(-1))
        for place in range(len(comm)):
            if m.allowed[c, place] and comm[place] > 0 and (best < 0 or comm[place] > comm[best]):
                best = place
        if best >= 0:
            _put(w, level, m, c, best)


@routine
def _lalb(w: WeightedGraph, s: ClusterSpans, m: ClusterMapping, rest: Ints) -> None:
    """Lines 8-15, by equation (4.2): least work within the span and communication with other places."""
    k = w.allowed.shape[1]
    comm, busy = np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64)
    for c in rest:
        talk(w, m, c, comm)
        work(m.tree, s.low[c], s.high[c], busy)
        best, least = int(np.int64(-1)), 0
        for place in range(k):
            if not m.allowed[c, place]:
                continue
            cost = busy[place] + m.load[c, place] - comm[place]
            if best < 0 or cost < least or (cost == least and comm[place] > comm[best]):
                best, least = place, cost
        _put(w, s.level, m, c, best)
