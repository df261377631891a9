"""The graph that shrinks, with the levels of its nodes that rise along every edge, and its longest paths."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers import Problem
from solvers.arrays import Bools, Ints, offsets
from solvers.compiled.dag import adjacency, heights
from solvers.compiled.kernels import routine


class PayloadConsumers(NamedTuple):
    """Consumers of each payload. A precedence edge is carried by a payload of weight 0."""

    owner: Ints
    """[p] node that produces each payload."""
    ticks: Ints
    """[p] transfer time over the slowest path."""
    offset: Ints
    """[p + 1] range of each payload in `head`."""
    head: Ints
    """Consumers of each payload, each once, never the owner."""


class QuotientNodes(NamedTuple):
    """Columns of nodes that caps and compatibility look at, [n] each."""

    time: Ints
    """Sum of the members' shortest durations."""
    members: Ints
    """Number of fine tasks in the node."""
    kind: Ints
    """Nodes of different kinds are never merged."""
    unit: Ints
    """Index into `UnitForest` of what shares a location with the node."""


class UnitForest(NamedTuple):
    """Union-find over what must share a location: groups, and each task without one. Updated while matching."""

    parent: Ints
    time: Ints
    memory: Ints
    grouped: Bools


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quotient:
    """The acyclic graph over the current nodes. Raise RuntimeError if merging made a cycle, which is a bug."""

    nodes: QuotientNodes
    sends: PayloadConsumers
    src: Ints
    """[e] tail of each edge, ascending; parallel edges are one."""
    dst: Ints
    """[e] head of each edge."""
    weight: Ints
    """[e] transfer ticks of the payloads between tail and head, each counted once."""
    height: Ints
    """[n] longest path from a root, in vertices (Definition 3.4)."""

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.nodes.time)

    def merged(self, label: Ints, size: int) -> "Quotient":
        """Return the quotient in which nodes of one label (0..size-1) are one node."""
        first = np.zeros(size, dtype=np.int64)
        first[label[::-1]] = np.arange(len(label))[::-1]
        nodes = QuotientNodes(
            time=_sums(label, self.nodes.time, size),
            members=_sums(label, self.nodes.members, size),
            kind=self.nodes.kind[first],
            unit=self.nodes.unit[first],
        )
        s = self.sends
        return _build(nodes, PayloadConsumers(label[s.owner], s.ticks, s.offset, label[s.head]))


def quotient(problem: Problem) -> tuple[Quotient, UnitForest]:
    """Return the finest quotient, one node a task, and the units of its groups."""
    kind = kinds(problem)
    time = shortest(problem)
    groups = int(problem.group.max(initial=-1)) + 1
    alone = problem.group < 0
    unit = np.where(alone, groups + np.cumsum(alone) - 1, problem.group)
    count = groups + int(alone.sum())
    grouped = np.arange(count) < groups
    units = UnitForest(np.arange(count), _sums(unit, time, count), _sums(unit, problem.memory, count), grouped)
    nodes = QuotientNodes(time, np.ones(problem.tasks, dtype=np.int64), kind, unit)
    carried = np.where(problem.payload >= 0, problem.payload, problem.payloads + problem.src)
    sends = PayloadConsumers(
        owner=np.concatenate([problem.producer, np.arange(problem.tasks)]),
        ticks=np.concatenate([problem.transfer.max(axis=1, initial=0), np.zeros(problem.tasks, dtype=np.int64)]),
        offset=offsets(np.bincount(carried, minlength=problem.payloads + problem.tasks)),
        head=problem.dst[np.argsort(carried, kind="stable")],
    )
    return _build(nodes, sends), units


def shortest(problem: Problem) -> Ints:
    """Return [n] ticks of each task on the fastest device that may run it."""
    longest = np.iinfo(np.int64).max
    return np.where(problem.allowed, problem.duration, longest).min(axis=1, initial=longest).astype(np.int64)


def kinds(problem: Problem) -> Ints:
    """Return [n] numbers, equal for tasks with the same allowed devices and locations left by their groups."""
    rows = np.concatenate([problem.allowed, places(problem)], axis=1)
    packed = np.ascontiguousarray(np.packbits(rows, axis=1))
    whole = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
    return np.unique(whole, return_inverse=True)[1].reshape(-1).astype(np.int64)


def places(problem: Problem) -> Bools:
    """Return [n, l] True where a task may run together with its whole group."""
    may = np.zeros((problem.tasks, problem.locations), dtype=bool)
    for device, location in enumerate(problem.location):
        may[:, location] |= problem.allowed[:, device]
    grouped = np.flatnonzero(problem.group >= 0)
    group = problem.group[grouped]
    for location in range(problem.locations):
        refused = np.bincount(group, weights=~may[grouped, location]) > 0
        may[grouped, location] &= ~refused[group]
    return may


def _sums(label: Ints, values: Ints, size: int) -> Ints:
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, label, values)
    return total


def _build(nodes: QuotientNodes, sends: PayloadConsumers) -> Quotient:
    size = len(nodes.time)
    sends = PayloadConsumers(*_distinct(sends, size))
    src, dst, weight = _edges(sends, size)
    try:
        height = heights(size, src, dst)
    except ValueError as error:
        raise RuntimeError("coarsening merged nodes into a cycle: this is a bug") from error
    return Quotient(nodes=nodes, sends=sends, src=src, dst=dst, weight=weight, height=height)


@routine
def _distinct(sends: PayloadConsumers, size: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Each consumer once a payload, no owner among them, no payload without a consumer."""
    count = len(sends.owner)
    owner, ticks = np.empty(count, np.int64), np.empty(count, np.int64)
    offset, head = np.zeros(count + 1, np.int64), np.empty(len(sends.head), np.int64)
    seen = np.full(size, -1, np.int64)
    kept = at = 0
    for payload in range(count):
        seen[sends.owner[payload]] = payload
        for k in range(sends.offset[payload], sends.offset[payload + 1]):
            node = sends.head[k]
            if seen[node] != payload:
                seen[node] = payload
                head[at] = node
                at += 1
        if at > offset[kept]:
            owner[kept], ticks[kept] = sends.owner[payload], sends.ticks[payload]
            kept += 1
            offset[kept] = at
    return owner[:kept].copy(), ticks[:kept].copy(), offset[: kept + 1].copy(), head[:at].copy()


@routine
def _edges(sends: PayloadConsumers, size: int) -> tuple[Ints, Ints, Ints]:
    """Edges by tail, parallel ones summed; linear, since each node's row is collected in a scratch array."""
    start = np.zeros(size + 1, np.int64)
    for node in sends.owner:
        start[node + 1] += 1
    for node in range(size):
        start[node + 1] += start[node]
    by_owner = np.empty(len(sends.owner), np.int64)
    fill = start[:-1].copy()
    for payload, node in enumerate(sends.owner):
        by_owner[fill[node]] = payload
        fill[node] += 1
    src, dst, weight = np.empty((3, len(sends.head)), np.int64)
    slot = np.full(size, -1, np.int64)
    count = 0
    for node in range(size):
        row = count
        for payload in by_owner[start[node] : start[node + 1]]:
            for head in sends.head[sends.offset[payload] : sends.offset[payload + 1]]:
                if slot[head] < row:
                    slot[head] = count
                    src[count], dst[count], weight[count] = node, head, 0
                    count += 1
                weight[slot[head]] += sends.ticks[payload]
    return src[:count].copy(), dst[:count].copy(), weight[:count].copy()


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
