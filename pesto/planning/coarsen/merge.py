"""Groups first, then acyclic batch merging, until the target or until nothing can be merged.

Batches cannot make a cycle: pairs along edges by the corrected Theorem 3.5, and level siblings.
`docs/internals/coarsening.md` has the theorem, its correction and proofs. They hold for any *levels* that rise along
every edge, not only for the paper's heights. Caps start tight and grow geometrically; the last stage has none.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pesto.planning.coarsen.coarsening import (
    Caps,
    Coarsening,
    Quotient,
    Round,
    UnitForest,
    places,
    quotient,
    ranks,
)
from solvers import Problem
from solvers.arrays import Bools, Ints, rank_of
from solvers.compiled.dag import adjacency, heights, root, topological_order
from solvers.compiled.kernels import routine, subkernel

_TINY = 64
"""A node of less than this part of a cap may join any other: it changes neither balance nor parallelism."""


class Joining(IntEnum):
    """Effect that a merge may have on groups."""

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
    """True if no batch with this pair can have a cycle through it."""


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


class LongestPaths(NamedTuple):
    """Longest paths in ticks through each node, and what remains of them without the neighbour they run through."""

    start: Ints
    """[n] latest arrival of a predecessor's result."""
    before: Ints
    """[n] the predecessor whose result arrives last, -1 for a root."""
    start_else: Ints
    """[n] latest arrival from any other predecessor."""
    tail: Ints
    """[n] ticks of the longest path after the node."""
    after: Ints
    """[n] the successor on the longest path after the node, -1 for a leaf."""
    tail_else: Ints
    """[n] ticks of the longest path that starts with any other successor."""
    longest: int
    """Ticks of the critical path."""


def earliest_levels(q: Quotient) -> Ints:
    """Return [n] levels counted from the roots: the heights of Definition 3.4."""
    return q.height


def latest_levels(q: Quotient) -> Ints:
    """Return [n] levels counted from the leaves, so that a constant stands beside its first consumer."""
    below = heights(q.size, q.dst, q.src)
    return below.max(initial=0) + 1 - below


def phased_levels(q: Quotient) -> Ints:
    """Return [n] levels that exhaust one kind of nodes before the next, so that most nodes of a kind can meet."""
    offset, edge = adjacency(q.size, q.src)
    waiting = np.bincount(q.dst, minlength=q.size).astype(np.int64)
    by_kind = np.zeros(int(q.nodes.kind.max(initial=-1)) + 2, dtype=np.int64)
    np.cumsum(np.bincount(q.nodes.kind, minlength=len(by_kind) - 1), out=by_kind[1:])
    return _phased(offset, q.dst[edge], waiting, q.nodes.kind, by_kind)


def longest_paths(q: Quotient) -> LongestPaths:
    """Return the longest paths to and from every node, by the nodes' own times; transfers do not count."""
    order = np.argsort(q.height, kind="stable")
    out_offset, out_edge = adjacency(q.size, q.src)
    in_offset, in_edge = adjacency(q.size, q.dst)
    start, before, start_else = _push(order, out_offset, q.dst[out_edge], q.nodes.time)
    tail, after, tail_else = _push(np.ascontiguousarray(order[::-1]), in_offset, q.src[in_edge], q.nodes.time)
    longest = int((start + q.nodes.time).max(initial=0))
    return LongestPaths(start, before, start_else, tail, after, tail_else, longest)


@routine
def _push(order: Ints, offset: Ints, head: Ints, time: Ints) -> tuple[Ints, Ints, Ints]:
    best, second = np.zeros((2, len(time)), np.int64)
    via = np.full(len(time), -1, np.int64)
    for node in order:
        value = best[node] + time[node]
        for other in head[offset[node] : offset[node + 1]]:
            if via[other] < 0 or value > best[other]:
                second[other] = best[other]
                best[other], via[other] = value, node
            elif value > second[other]:
                second[other] = value
    return best, via, second


@routine
def _phased(offset: Ints, head: Ints, waiting: Ints, kind: Ints, by_kind: Ints) -> Ints:
    level = np.zeros(len(kind), np.int64)
    queue = np.empty(len(kind), np.int64)
    read, write = by_kind[:-1].copy(), by_kind[:-1].copy()
    for node in range(len(kind)):
        if waiting[node] == 0:
            queue[write[kind[node]]] = node
            write[kind[node]] += 1
    done = base = 0
    while done < len(kind):
        for k in range(len(read)):
            top = base
            while read[k] < write[k]:
                node = queue[read[k]]
                read[k] += 1
                done += 1
                level[node] = max(level[node], base) + 1
                top = max(top, level[node])
                for other in head[offset[node] : offset[node + 1]]:
                    level[other] = max(level[other], level[node])
                    waiting[other] -= 1
                    if waiting[other] == 0:
                        queue[write[kind[other]]] = other
                        write[kind[other]] += 1
            base = top
    return level


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
    """Return the edges that satisfy condition (ii) and the caps, least loss first.

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
    """Return neighbours of equal level, kind and `near`, in the order of these."""
    when = paths.start - paths.tail
    order = np.lexsort((when, near, q.nodes.kind, level))
    u, v = order[:-1], order[1:]
    same = (level[u] == level[v]) & (q.nodes.kind[u] == q.nodes.kind[v]) & (near[u] == near[v])
    u, v = u[same], v[same]
    start, tail = np.maximum(paths.start[u], paths.start[v]), np.maximum(paths.tail[u], paths.tail[v])
    saved = np.zeros(len(u), dtype=np.int64)
    return _rank_pairs(q, paths, limits, Pairs(u, v, np.ones(len(u), dtype=np.bool_)), (saved, start, tail))


def match(q: Quotient, units: UnitForest, level: Ints, pairs: Pairs, bounds: UniteLimits) -> Ints:
    """Return [n] partner of each node, -1 for none: greedy, best pair first. Unites the units of the chosen pairs."""
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
    """Return [units] the unit that each is united into now."""
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
        if a != b:
            low, high = min(a, b), max(a, b)
            units.parent[high] = low
            units.time[low] += units.time[high]
            units.memory[low] += units.memory[high]
            units.grouped[low] |= units.grouped[high]
        mate[u], mate[v] = v, u
        left -= 1
        if not free:
            for other in crossing.in_tail[crossing.in_offset[v] : crossing.in_offset[v + 1]]:
                into[other] = min(into[other], key)
            for other in crossing.out_head[crossing.out_offset[u] : crossing.out_offset[u + 1]]:
                out_of[other] = max(out_of[other], key)
    return mate


WHOLE = int(np.iinfo(np.int64).max)
"""No cap."""
_MOST = 0.75
"""Until the last stage a united group stays below this part of a fair share, so that the rest can balance it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scale:
    """Units that the caps are measured in."""

    caps: Caps
    target: int
    tasks: int
    total: int
    """Ticks of all tasks."""
    critical: int
    """Ticks of the critical path."""
    locations: Ints
    """[kinds] locations where nodes of a kind can run."""
    capacity: Ints
    """[kinds] bytes of the largest location of each kind."""
    fair: float
    """Total time over the locations of the kind with most time."""

    @property
    def stages(self) -> int:
        """Stages until the cap on time is the total, and the last one, without caps."""
        return 1 + max(1, math.ceil(math.log(max(1.0, self.target / self.caps.time), self.caps.growth)))

    def limits(self, stage: int) -> MergeLimits:
        """Return the caps of one stage, 0..stages-1."""
        mean = max(1.0, self.total / self.target)
        if stage == self.stages - 1:
            whole = np.full(len(self.locations), WHOLE)
            return MergeLimits(
                time=WHOLE,
                members=WHOLE,
                path=WHOLE,
                mean=mean,
                loss=WHOLE,
                unit_time=whole,
                unit_memory=self._unit_memory(1.0),
            )
        caps, grown = self.caps, self.caps.growth**stage
        group = caps.group * math.sqrt(grown)
        free = self.locations <= 1
        fair = self.total / np.maximum(1, self.locations)
        return MergeLimits(
            time=_ticks(caps.time * grown * self.total / self.target),
            members=_ticks(max(2.0, caps.members * grown * self.tasks / self.target)),
            path=_ticks(max(self.critical, caps.path * self.fair) * math.sqrt(grown)),
            mean=mean,
            loss=_ticks(caps.loss * (grown - 1) * self.total / self.target),
            unit_time=np.where(free, WHOLE, (min(group, _MOST) * fair).astype(np.int64)),
            unit_memory=self._unit_memory(min(group, 1.0)),
        )

    def _unit_memory(self, share: float) -> Ints:
        # What is scarce is room at a location, unless that is so ample that only balance matters.
        return np.where(self.locations <= 1, WHOLE, (self.capacity * share).astype(np.int64))


def scale(problem: Problem, q: Quotient, caps: Caps, target: int) -> Scale:
    """Measure the finest quotient of a problem."""
    kinds = int(q.nodes.kind.max(initial=-1)) + 1
    first = np.zeros(kinds, dtype=np.int64)
    first[q.nodes.kind] = np.arange(q.size)
    may = places(problem)[first]
    time = np.bincount(q.nodes.kind, weights=q.nodes.time, minlength=kinds)
    locations = may.sum(axis=1)
    total = int(q.nodes.time.sum())
    return Scale(
        caps=caps,
        target=target,
        tasks=q.size,
        total=total,
        critical=longest_paths(q).longest,
        locations=locations,
        capacity=np.where(may, problem.capacity, 0).max(axis=1, initial=0),
        fair=total / max(1, int(locations[np.argmax(time)])) if kinds else 0.0,
    )


def _ticks(value: float) -> int:
    return min(WHOLE, math.ceil(value))


Levels = Callable[[Quotient], Ints]

_FEW = 0.02
"""A pass that merges a smaller part of the nodes counts as stuck: the next kind of merge has more to offer."""


def coarsen(problem: Problem, target: int = 200, *, caps: Caps | None = None) -> Coarsening:
    """Merge tasks into at most `target` nodes if that is feasible (Pesto, section 3.3; docs/internals/coarsening.md).

    Only tasks with the same allowed devices meet in a node, the graph over the nodes is acyclic, and tasks of one
    group stay in groups: `contract` gives the nodes the groups that follow. Every batch is asserted to be acyclic.
    Raise ValueError if `target` is not positive, RuntimeError if a batch made a cycle, which is a bug.
    """
    if target < 1:
        raise ValueError(f"target {target} must be positive")
    work = _Merging(problem, target, caps or Caps())
    reason = work.run()
    q = work.quotient
    # Nodes numbered in topological order: whoever sorts them by time and then by index keeps to the precedence.
    node_of = rank_of(topological_order(q.size, q.src, q.dst))[work.node_of]
    inner = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    return Coarsening(
        node_of=node_of,
        nodes=q.size,
        rank=ranks(node_of, inner),
        target=target,
        reason=reason,
        rounds=tuple(work.rounds),
        largest_group_share=work.largest_group_share(),
    )


class _Merging:
    """The current quotient, which is the one mutable thing, and the merges that led to it."""

    def __init__(self, problem: Problem, target: int, caps: Caps) -> None:
        self.target = target
        self.quotient, self.units = quotient(problem)
        self.scale = scale(problem, self.quotient, caps, target)
        self.paths = longest_paths(self.quotient)
        self.limits = self.scale.limits(0)
        self.node_of = np.arange(problem.tasks)
        self.rounds: list[Round] = []

    def run(self) -> str:
        """Merge, and return why it stopped."""
        last = self.scale.stages - 1
        for stage in range(self.scale.stages):
            self.limits = self.scale.limits(stage)
            for joining in Joining:
                while self.left > 0 and self._pass(joining, last=stage == last):
                    pass
        size = self.quotient.size
        if self.left <= 0:
            return f"reached {self.target}" if self.rounds else f"{size} tasks are no more than {self.target}"
        # One more merge without a cap on memory tells whether memory is the obstacle.
        q, limits = self.quotient, self.limits
        parent, time, memory, grouped = self.units
        units = UnitForest(parent.copy(), time.copy(), memory.copy(), grouped.copy())
        bounds = self._bounds(Joining.UNITE)._replace(budget=1, memory=np.full_like(limits.unit_memory, WHOLE))
        pairs = along_edges(q, q.height, self.paths, limits)
        obstacle = f"tasks of {len(np.unique(q.nodes.kind))} kinds of allowed devices alternate along its paths"
        if (match(q, units, q.height, pairs, bounds) >= 0).any():
            obstacle = "uniting more would exceed the memory of a location"
        return f"no feasible pair left at {size} nodes: {obstacle}"

    @property
    def left(self) -> int:
        """Number of merges until the target."""
        return self.quotient.size - self.target

    def largest_group_share(self) -> float:
        """Return the time of the largest united group with a choice of locations, as a share of the total."""
        root = roots(self.units)[self.quotient.nodes.unit]
        choice = self.units.grouped[root] & (self.scale.locations[self.quotient.nodes.kind] > 1)
        return int(self.units.time[root[choice]].max(initial=0)) / max(1, self.scale.total)

    def _pass(self, joining: Joining, *, last: bool) -> bool:
        """Merge edges while they yield, then siblings; return True if that merged enough to try again."""
        few = 0.0 if last else _FEW
        before = self.quotient.size
        while True:
            size = self.quotient.size
            for levels in (earliest_levels, latest_levels):
                self._edges(levels, joining)
            if size - self.quotient.size <= few * size:
                break
        for levels in (earliest_levels, latest_levels):
            self._siblings(levels, joining, related=True)
        if joining == Joining.UNITE:
            for levels in (earliest_levels, latest_levels):
                self._siblings(levels, joining, related=False)
        if joining == Joining.UNITE and last:
            self._edges(phased_levels, joining)
            self._siblings(phased_levels, joining, related=False)
        return before - self.quotient.size > few * before

    def _edges(self, levels: Levels, joining: Joining) -> None:
        q = self.quotient
        if self.left > 0:
            level = levels(q)
            pairs = along_edges(q, level, self.paths, self.limits)
            self._batch(f"edges, {levels.__name__} levels, {joining.name.lower()}", level, pairs, joining)

    def _siblings(self, levels: Levels, joining: Joining, *, related: bool) -> None:
        q = self.quotient
        if self.left <= 0:
            return
        level = levels(q)
        near = np.zeros(q.size, dtype=np.int64)
        if related and joining == Joining.WITHIN:
            near = roots(self.units)[q.nodes.unit]
        elif related:
            # [n] the predecessor (or successor) with the largest transfer; -1 - node where there is none, to keep it
            # apart.
            after = levels is latest_levels
            near = -1 - np.arange(q.size)
            order = np.argsort(q.weight, kind="stable")
            one, other = (q.src, q.dst) if after else (q.dst, q.src)
            near[one[order]] = other[order]
        pairs = among_siblings(q, level, self.paths, self.limits, near)
        name = "related siblings" if related else "siblings"
        self._batch(f"{name}, {levels.__name__} levels, {joining.name.lower()}", level, pairs, joining)

    def _batch(self, step: str, level: Ints, pairs: Pairs, joining: Joining) -> None:
        q = self.quotient
        mate = match(q, self.units, level, pairs, self._bounds(joining))
        merged = int(np.count_nonzero(mate >= 0)) // 2
        if merged:
            cap = -1 if self.limits.time == WHOLE else self.limits.time
            self.rounds.append(Round(step=step, nodes=q.size, edges=len(q.src), merged=merged, cap=cap))
            # [n] new node of each node when partners become one, in the order of their first members.
            own = np.arange(len(mate))
            first = np.where(mate >= 0, np.minimum(mate, own), own)
            label = (np.cumsum(first == own) - 1)[first]
            self.quotient = q.merged(label, q.size - merged)
            self.paths = longest_paths(self.quotient)
            self.node_of = label[self.node_of]

    def _bounds(self, joining: Joining) -> UniteLimits:
        return UniteLimits(int(joining), self.left, self.limits.unit_time, self.limits.unit_memory)
