"""Batches of merges that cannot make a cycle: pairs along edges by the corrected Theorem 3.5, and level siblings.

`docs/internals/coarsening.md` has the theorem, its correction and proofs. They hold for any *levels* that rise along
every edge, not only for the paper's heights.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pesto.planning.coarsen.quotient import Quotient, UnitForest
from pesto.planning.coarsen.topological_levels import LongestPaths
from solvers.arrays import Bools, Ints, rank_of
from solvers.compiled.dag import adjacency, root
from solvers.compiled.kernels import routine, subkernel

_TINY = 64
"""A node of less than this part of a cap may join any other: it changes neither balance nor parallelism."""


class Joining(IntEnum):
    """What a merge may do to groups."""

    WITHIN = 0
    """Only pairs of one group."""
    KEEP = 1
    """Any pair but of two different groups."""
    UNITE = 2
    """Any pair."""


class Pairs(NamedTuple):
    """Candidates, best first."""

    u: Ints
    v: Ints
    free: Bools
    """Whether no batch with this pair can have a cycle through it."""


class LevelCrossings(NamedTuple):
    """The edges that rise by one level, by tail and by head, and the order in which pairs may point at each other."""

    key: Ints
    out_offset: Ints
    out_head: Ints
    in_offset: Ints
    in_tail: Ints


class UniteLimits(NamedTuple):
    """Caps on the units that a pair unites; by kind, as a kind may have one location only."""

    joining: int
    budget: int
    """Merges left until the target."""
    time: Ints
    """[kinds] most ticks of a unit."""
    memory: Ints
    """[kinds] most bytes of a unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """Caps of one round."""

    time: int
    """Ticks of a merged node."""
    members: int
    """Fine tasks of a merged node."""
    path: int
    """Ticks of the longest path through a merged node."""
    mean: float
    """Ticks of a mean node at the target."""
    loss: int
    """Ticks by which what a merge costs, in delay and waiting, may exceed the transfer that it saves."""
    unit_time: Ints
    """[kinds] ticks of a united unit."""
    unit_memory: Ints
    """[kinds] bytes of a united unit."""


def along_edges(q: Quotient, level: Ints, paths: LongestPaths, limits: MergeLimits) -> Pairs:
    """Edges that satisfy condition (ii) and the caps, least loss first.

    With W(u) the other successors of u and P(v) the other predecessors of v, (u, v) is eligible when v is one level
    above u or below all of W(u); |succ(u)| = 1 and |pred(v)| = 1 are special cases. It is free when v is below all of
    W(u), or is one level above u and u is above all of P(v).
    """
    rise = level[q.dst] - level[q.src]
    least = np.full(q.size, np.iinfo(np.int64).max)
    np.minimum.at(least, q.src, rise)
    lowest = rise == least[q.src]
    alone = lowest & (np.bincount(q.src[lowest], minlength=q.size)[q.src] == 1)
    near = rise == 1
    only = near & (np.bincount(q.dst[near], minlength=q.size)[q.dst] == 1)
    at = np.flatnonzero((near | alone) & (q.nodes.kind[q.src] == q.nodes.kind[q.dst]))
    u, v = q.src[at], q.dst[at]
    start = np.where(paths.before[v] == u, paths.start_else[v], paths.start[v])
    tail = np.where(paths.after[u] == v, paths.tail_else[u], paths.tail[u])
    start, tail = np.maximum(paths.start[u], start), np.maximum(paths.tail[v], tail)
    return _rank_pairs(q, paths, limits, Pairs(u, v, (alone | only)[at]), (q.weight[at], start, tail))


def among_siblings(q: Quotient, level: Ints, paths: LongestPaths, limits: MergeLimits, near: Ints) -> Pairs:
    """Neighbours in the order of (level, kind, `near`): equal levels, kinds and `near`."""
    when = paths.start - paths.tail
    order = np.lexsort((when, near, q.nodes.kind, level))
    u, v = order[:-1], order[1:]
    same = (level[u] == level[v]) & (q.nodes.kind[u] == q.nodes.kind[v]) & (near[u] == near[v])
    u, v = u[same], v[same]
    start, tail = np.maximum(paths.start[u], paths.start[v]), np.maximum(paths.tail[u], paths.tail[v])
    saved = np.zeros(len(u), dtype=np.int64)
    return _rank_pairs(q, paths, limits, Pairs(u, v, np.ones(len(u), dtype=np.bool_)), (saved, start, tail))


def match(q: Quotient, units: UnitForest, level: Ints, pairs: Pairs, bounds: UniteLimits) -> Ints:
    """[n] partner of each node, -1 for none: greedy, best pair first. Unites the units of the chosen pairs."""
    rising = np.flatnonzero(level[q.dst] - level[q.src] == 1)
    src, dst = q.src[rising], q.dst[rising]
    # Hubs first: they may then be merged without blocking whatever else they feed.
    key = rank_of(np.argsort(-np.bincount(src, minlength=q.size), kind="stable"))
    out_offset, out_edge = adjacency(q.size, src)
    in_offset, in_edge = adjacency(q.size, dst)
    crossing = LevelCrossings(key, out_offset, dst[out_edge], in_offset, src[in_edge])
    return _greedy(pairs, crossing, q.nodes.unit, q.nodes.kind, units, bounds)


def _rank_pairs(
    q: Quotient, paths: LongestPaths, limits: MergeLimits, pairs: Pairs, merged: tuple[Ints, Ints, Ints]
) -> Pairs:
    """The pairs within the caps, best first; `merged` is what each saves, its merged node's start and its tail."""
    saved, start, tail = merged
    u, v, free = pairs
    time, members = q.nodes.time, q.nodes.members
    both = time[u] + time[v]
    length = start + both + tail
    tiny = limits.time // _TINY
    through = paths.start + time + paths.tail
    delay = length - np.maximum(through[u], through[v])
    fits = (both <= limits.time) | (np.minimum(time[u], time[v]) <= tiny)
    fits &= (members[u] + members[v] <= limits.members) & ((length <= limits.path) | (delay <= tiny))
    # Work that may start at any time is what parallelism is made of: delaying a mean node by t ticks costs t.
    waits = time[u] * (start - paths.start[u] + tail - paths.tail[u] + time[v]).astype(np.float64)
    waits += time[v] * (start - paths.start[v] + tail - paths.tail[v] + time[u]).astype(np.float64)
    loss = delay - saved + waits / limits.mean
    kept = np.flatnonzero(fits & (loss <= limits.loss))
    kept = kept[np.lexsort((both[kept], loss[kept]))]
    return Pairs(u[kept], v[kept], free[kept])


def roots(units: UnitForest) -> Ints:
    """[units] what each is united into now."""
    parent = units.parent
    while not np.array_equal(parent, parent[parent]):
        parent = parent[parent]
    return parent


@subkernel
def _joinable(units: UnitForest, a: int, b: int, kind: int, bounds: UniteLimits) -> bool:
    if a == b:
        return True
    if bounds.joining == 0 or (bounds.joining == 1 and units.grouped[a] and units.grouped[b]):
        return False
    room = max(bounds.memory[kind], units.memory[a], units.memory[b])
    if units.memory[a] + units.memory[b] > room:
        return False
    if not units.grouped[a] and not units.grouped[b]:
        return True
    time = units.time[a] + units.time[b] <= bounds.time[kind]
    tiny = min(units.time[a], units.time[b]) <= bounds.time[kind] // _TINY
    return time or tiny


@routine
def _greedy(
    pairs: Pairs, crossing: LevelCrossings, unit: Ints, kind: Ints, units: UnitForest, bounds: UniteLimits
) -> Ints:
    mate = np.full(len(unit), -1, np.int64)
    # Least key of a chosen pair that a node points into, and largest of one that points at it.
    into = np.full(len(unit), len(unit), np.int64)
    out_of = np.full(len(unit), -1, np.int64)
    left = bounds.budget
    for k in range(len(pairs.u)):
        if left == 0:
            break
        u, v, free = pairs.u[k], pairs.v[k], pairs.free[k]
        if mate[u] >= 0 or mate[v] >= 0:
            continue
        key = crossing.key[u]
        if not free and not out_of[v] < key < into[u]:
            continue
        a, b = root(units.parent, unit[u]), root(units.parent, unit[v])
        if not _joinable(units, a, b, kind[u], bounds):
            continue
        _unite(units, a, b)
        mate[u], mate[v] = v, u
        left -= 1
        if not free:
            for other in crossing.in_tail[crossing.in_offset[v] : crossing.in_offset[v + 1]]:
                into[other] = min(into[other], key)
            for other in crossing.out_head[crossing.out_offset[u] : crossing.out_offset[u + 1]]:
                out_of[other] = max(out_of[other], key)
    return mate


@subkernel
def _unite(units: UnitForest, a: int, b: int) -> None:
    if a != b:
        low, high = min(a, b), max(a, b)
        units.parent[high] = low
        units.time[low] += units.time[high]
        units.memory[low] += units.memory[high]
        units.grouped[low] |= units.grouped[high]
