"""The result of coarsening: which coarse node each task belongs to, and in which order the members run."""

import math
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

from solvers.arrays import Ints, ints, rank_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What one merged node or united group may reach before merging gets stuck; then all caps grow by `growth`.

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
    """What was merged: edges or siblings, by which levels, and how groups were treated."""
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
        """Share of the edges that are gone; 0 where there were none."""
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
        """What became of the edges src -> dst, [e] tasks each, of the problem that was coarsened."""
        before, left = (_pairs(a, b) for a, b in ((src, dst), (self.node_of[src], self.node_of[dst])))
        counts = [*(each.edges for each in self.rounds), left]
        shares = [1.0 - after / max(1, now) for now, after in pairwise(counts)]
        return Removed(edges=before, left=left, batches=len(self.rounds), most=max(shares, default=0.0))

    def then(self, other: "Coarsening") -> "Coarsening":
        """This coarsening followed by `other`, which coarsens this one's nodes; ValueError when sizes do not fit."""
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


def _pairs(src: Ints, dst: Ints) -> int:
    """Distinct pairs of different ends."""
    apart = src != dst
    return len(np.unique(np.stack([src[apart], dst[apart]]), axis=1).T)


def ranks(major: Ints, minor: Ints) -> Ints:
    """[n] position of each task when tasks are sorted by `major`, then by `minor`."""
    return rank_of(np.lexsort((minor, major)))
