"""A coarsening, which says to which coarse node each task belongs, and the coarse problem that it makes.

`Quotient` is the graph that shrinks while nodes are merged (`pesto.planning.coarsen.merge`).
"""

import math
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from solvers import FORBIDDEN, Problem
from solvers.arrays import Bools, Ints, ints, offsets, rank_of
from solvers.compiled.dag import connected, heights
from solvers.compiled.kernels import kernel, routine


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Caps on a merged node or united group; when merging gets stuck under them all grow by `growth`.

    The paper (section 3.3) names caps on a merged node's time and length; the cap on the path keeps parallelism, the
    one on groups keeps colocation from gathering a whole network on one device. ValueError when a factor is not
    positive and finite, or `growth` is not above 1.
    """

    time: float = 2.0
    """Time of a node, in mean times of a node at the target."""
    members: float = 4.0
    """Fine tasks of a node, in mean counts of a node at the target."""
    path: float = 0.5
    """Longest path through a merged node, in fair shares (total time / locations); never below the critical path."""
    loss: float = 0.25
    """Time that a merge may lose, in mean times of a node at the target, times how much caps have grown by then."""
    group: float = 0.25
    """Time and memory of a united group, in fair shares."""
    growth: float = 1.5
    """Factor by which caps grow when nothing can be merged under them."""

    def __post_init__(self) -> None:
        """Validate."""
        for f in fields(self):
            value = getattr(self, f.name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"caps: {f.name} = {value} - it must be positive and finite")
        if self.growth <= 1:
            raise ValueError(f"caps: growth = {self.growth} - it must be above 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One batch of merges."""

    step: str
    """Kind of merges: edges or siblings, by which levels, and how groups were treated."""
    nodes: int
    """Nodes before the batch."""
    edges: int
    """Distinct edges before the batch."""
    merged: int
    """Pairs of nodes that the batch merged, each into one."""
    cap: int
    """Cap on a merged node's time, ticks; -1 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Edges that coarsening removed: those inside nodes, and all but one between two nodes (Pesto, 3.3)."""

    edges: int
    """Pairs of tasks that an edge joined."""
    left: int
    """Pairs of nodes that an edge joins."""
    batches: int
    """Rounds of merges."""
    most: float
    """Largest share of the edges there were that one batch removed; 0 without batches."""

    @property
    def share(self) -> float:
        """Share of the edges that are gone; 0 if there were none."""
        return 1.0 - self.left / self.edges if self.edges else 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coarsening:
    """A partition of n tasks into nodes whose quotient graph is acyclic. Arrays are copied and made read-only.

    ValueError when `rank` is not a permutation, a node is empty, or a node's members are not contiguous in `rank`.
    """

    node_of: Ints
    """[n] coarse node of each task, 0..nodes-1."""
    nodes: int
    """Number of coarse nodes."""
    rank: Ints
    """[n] topological rank of each task in which the members of a node are contiguous."""
    target: int
    """Number of nodes that was asked for."""
    reason: str
    """Why coarsening stopped, for people."""
    rounds: tuple[Round, ...]
    """The batches, in order."""
    largest_group_share: float
    """Time of the largest group that must share one of several locations, as a share of the total time."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        object.__setattr__(self, "node_of", ints(self.node_of))
        object.__setattr__(self, "rank", ints(self.rank))
        n = len(self.node_of)
        if len(self.rank) != n or not np.array_equal(np.sort(self.rank), np.arange(n)):
            raise ValueError("rank must be a permutation of the tasks")
        if n and (self.node_of.min() < 0 or self.node_of.max() >= self.nodes):
            raise ValueError(f"node_of must lie in 0..{self.nodes - 1}")
        along = np.empty(n, dtype=np.int64)
        along[self.rank] = self.node_of
        runs = int(n > 0) + int(np.count_nonzero(np.diff(along)))
        if len(np.unique(self.node_of)) != self.nodes or runs != self.nodes:
            raise ValueError("every node needs members, and they must be contiguous in rank")

    def removed(self, src: Ints, dst: Ints) -> Removed:
        """Count what became of the edges src -> dst, [e] tasks each, of the problem that was coarsened."""
        ends = ((src, dst), (self.node_of[src], self.node_of[dst]))
        before, left = (len(np.unique(np.stack([a[a != b], b[a != b]]), axis=1).T) for a, b in ends)
        counts = [*(one.edges for one in self.rounds), left]
        shares = [1.0 - after / max(1, now) for now, after in pairwise(counts)]
        return Removed(edges=before, left=left, batches=len(self.rounds), most=max(shares, default=0.0))

    def then(self, other: "Coarsening") -> "Coarsening":
        """Return this coarsening followed by `other` of its nodes; raise ValueError if sizes do not fit."""
        if len(other.node_of) != self.nodes:
            raise ValueError(f"cannot compose: {self.nodes} nodes here, {len(other.node_of)} tasks there")
        return Coarsening(
            node_of=other.node_of[self.node_of],
            nodes=other.nodes,
            rank=ranks(other.rank[self.node_of], self.rank),
            target=other.target,
            reason=other.reason,
            rounds=self.rounds + other.rounds,
            largest_group_share=other.largest_group_share,
        )


def ranks(major: Ints, minor: Ints) -> Ints:
    """Return [n] position of each task when tasks are sorted by `major`, then by `minor`."""
    return rank_of(np.lexsort((minor, major)))


_SEED = 0x5EED
"""Seed of the random words that stand for nodes in the hash of a set of consumers."""


def contract(problem: Problem, node_of: Ints) -> Problem:
    """Return the problem over the nodes of a partition; `node_of` is [n], values 0..k-1, each used.

    Durations and memory are sums, a device is forbidden if it is to any member. Nodes that hold tasks of one group
    form a group. Payloads of one producing node to the same set of other nodes are one payload, whose transfer is the
    sum of theirs; a payload that stays inside its node is dropped. Precedence alone remains where no payload goes.
    Raise ValueError if `node_of` does not fit or the quotient has a cycle.
    """
    count = int(node_of.max(initial=-1)) + 1
    if len(node_of) != problem.tasks or (np.bincount(node_of, minlength=count) == 0).any():
        raise ValueError(f"node_of must give each of {problem.tasks} tasks one of 0..k-1 and use each of these")
    carries = problem.payload >= 0
    payload, head = problem.payload[carries], node_of[problem.dst[carries]]
    leaves = head != node_of[problem.src[carries]]
    # Pairs (payload, node that consumes it), each once, by payload; without the producer's own node.
    fine, node = _split(np.unique(payload[leaves] * count + head[leaves]), count)
    bundle, kept = _bundles(node_of[problem.producer], fine, node, count)
    chosen = kept[bundle[fine]] == fine
    src, dst = node_of[problem.producer[fine[chosen]]], node[chosen]
    tail, head = node_of[problem.src], node_of[problem.dst]
    bare = (problem.payload < 0) & (tail != head)  # joined by precedence alone
    bare_src, bare_dst = _split(np.setdiff1d(tail[bare] * count + head[bare], src * count + dst), count)
    sent = bundle >= 0
    # Nodes that a fine group connects, numbered by their first node.
    fine_groups, held = int(problem.group.max(initial=-1)) + 1, problem.group >= 0
    root = connected(count + fine_groups, node_of[held], count + problem.group[held])[:count]
    grouped, group = np.zeros(count, dtype=bool), np.full(count, -1, dtype=np.int64)
    grouped[node_of[held]] = True
    group[grouped] = np.unique(root[grouped], return_inverse=True)[1]
    total = np.zeros((count, problem.devices), dtype=np.int64)
    _add_durations(problem.duration, node_of, total)
    return Problem(
        duration=total,
        location=problem.location,
        memory=_sums(node_of, problem.memory, count),
        capacity=problem.capacity,
        src=np.concatenate([src, bare_src]),
        dst=np.concatenate([dst, bare_dst]),
        payload=np.concatenate([bundle[fine[chosen]], np.full(len(bare_src), -1)]),
        producer=node_of[problem.producer[kept]],
        transfer=_sums(bundle[sent], problem.transfer[sent], len(kept)),
        path_class=problem.path_class,
        path_links=problem.path_links,
        group=group,
    )


def _bundles(producer: Ints, fine: Ints, node: Ints, count: int) -> tuple[Ints, Ints]:
    """(coarse payload of each fine one or -1, first fine payload of each coarse one).

    A set of consumers is known by its size and two independent sums of 64 random bits a node: two different sets agree
    with a probability of 2^-128.
    """
    words = np.random.default_rng(_SEED).integers(0, 2**64, size=(count, 2), dtype=np.uint64)
    digest = np.zeros((len(producer), 2), dtype=np.uint64)
    np.add.at(digest, fine, words[node])
    size = np.bincount(fine, minlength=len(producer))
    sent = np.flatnonzero(size)
    order = sent[np.lexsort((digest[sent, 1], digest[sent, 0], size[sent], producer[sent]))]
    keys = (producer, size, digest[:, 0], digest[:, 1])
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
    bundle = np.full(len(producer), -1, dtype=np.int64)
    bundle[order] = np.cumsum(new) - 1
    return bundle, order[new]


def _split(pair: Ints, count: int) -> tuple[Ints, Ints]:
    first, second = np.divmod(pair, max(1, count))
    return first, second


@kernel
def _add_durations(duration: Ints, node_of: Ints, total: Ints) -> None:
    for task in range(len(node_of)):
        node = node_of[task]
        for device in range(total.shape[1]):
            ticks = duration[task, device]
            if ticks == FORBIDDEN or total[node, device] == FORBIDDEN:
                total[node, device] = FORBIDDEN
            else:
                total[node, device] += ticks


def _sums(label: Ints, values: Ints, count: int) -> Ints:
    total = np.zeros((count, *values.shape[1:]), dtype=np.int64)
    np.add.at(total, label, values)
    return total


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
