"""The graph that shrinks: nodes with time, members, memory and kind, and edges weighted by what they transfer."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers import Problem
from solvers.arrays import Bools, Ints, offsets
from solvers.compiled.dag import heights
from solvers.compiled.kernels import routine


class PayloadConsumers(NamedTuple):
    """Who consumes each payload. A precedence edge is carried by a payload of weight 0."""

    owner: Ints
    """[p] node that produces each payload."""
    ticks: Ints
    """[p] transfer time over the slowest path."""
    offset: Ints
    """[p + 1] range of each payload in `head`."""
    head: Ints
    """Consumers of each payload, each once, never the owner."""


class QuotientNodes(NamedTuple):
    """What caps and compatibility look at, [n] each."""

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
    """The acyclic graph over the current nodes. RuntimeError when merging made a cycle: that is a bug."""

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
        """The quotient in which nodes of one label (0..size-1) are one node."""
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
    """The finest quotient, one node a task, and the units of its groups."""
    kind = kinds(problem)
    time = shortest(problem)
    groups = int(problem.group.max(initial=-1)) + 1
    alone = problem.group < 0
    unit = np.where(alone, groups + np.cumsum(alone) - 1, problem.group)
    count = groups + int(alone.sum())
    grouped = np.arange(count) < groups
    units = UnitForest(np.arange(count), _sums(unit, time, count), _sums(unit, problem.memory, count), grouped)
    nodes = QuotientNodes(time, np.ones(problem.tasks, dtype=np.int64), kind, unit)
    return _build(nodes, _sends(problem)), units


def shortest(problem: Problem) -> Ints:
    """[n] ticks of each task on the fastest device that may run it."""
    longest = np.iinfo(np.int64).max
    return np.where(problem.allowed, problem.duration, longest).min(axis=1, initial=longest).astype(np.int64)


def kinds(problem: Problem) -> Ints:
    """[n] equal for tasks with the same allowed devices, whose groups leave them the same locations."""
    rows = np.concatenate([problem.allowed, places(problem)], axis=1)
    packed = np.ascontiguousarray(np.packbits(rows, axis=1))
    whole = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
    return np.unique(whole, return_inverse=True)[1].reshape(-1).astype(np.int64)


def places(problem: Problem) -> Bools:
    """[n, l] locations where a task may run together with its whole group."""
    may = np.zeros((problem.tasks, problem.locations), dtype=bool)
    for device, location in enumerate(problem.location):
        may[:, location] |= problem.allowed[:, device]
    grouped = np.flatnonzero(problem.group >= 0)
    group = problem.group[grouped]
    for location in range(problem.locations):
        refused = np.bincount(group, weights=~may[grouped, location]) > 0
        may[grouped, location] &= ~refused[group]
    return may


def _sends(problem: Problem) -> PayloadConsumers:
    count = problem.payloads
    carried = np.where(problem.payload >= 0, problem.payload, count + problem.src)
    order = np.argsort(carried, kind="stable")
    offset = offsets(np.bincount(carried, minlength=count + problem.tasks))
    slowest = problem.transfer.max(axis=1, initial=0)
    return PayloadConsumers(
        owner=np.concatenate([problem.producer, np.arange(problem.tasks)]),
        ticks=np.concatenate([slowest, np.zeros(problem.tasks, dtype=np.int64)]),
        offset=offset,
        head=problem.dst[order],
    )


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
