"""The augmented graph: a node for each edge that may have to move data, and the pairs whose order is open."""

from dataclasses import dataclass, replace

import numpy as np

from solvers.arrays import Bools, Ints, rank_of
from solvers.compiled.dag import topological_order
from solvers.problem import Problem
from solvers.structure.paths import serial
from solvers.structure.units import Units, units_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PerEdge:
    """A problem in which every payload has one consumer, made from one in which they may have several."""

    problem: Problem
    origin: Ints
    """[p] payload of the problem that it was made from."""
    exact: bool
    """True if no two of its transfers are one in the problem that it was made from, wherever tasks are."""
    longer: int
    """Ticks by which its optimum is longer at most."""


def unshared(problem: Problem) -> PerEdge:
    """A payload of its own for every edge that carries one, as the paper counts transfers.

    Edges that are equal in source, target and payload are one.
    """
    carries = problem.payload >= 0
    pairs = np.unique(np.stack([problem.payload, problem.dst])[:, carries], axis=1)
    plain = np.unique(np.stack([problem.src, problem.dst])[:, ~carries], axis=1)
    origin, reader = pairs
    producer = problem.producer[origin]
    own = replace(
        problem,
        src=np.concatenate([producer, plain[0]]),
        dst=np.concatenate([reader, plain[1]]),
        payload=np.concatenate([np.arange(len(origin)), np.full(plain.shape[1], -1)]),
        producer=producer,
        transfer=problem.transfer[origin],
    )
    crosses = _crosses(units_of(own), producer, reader)
    meet = np.zeros((problem.payloads, problem.locations), dtype=np.int64)
    np.add.at(meet, origin, crosses.any(axis=1))
    exact = bool((meet <= 1).all())
    again = np.bincount(origin[crosses.any(axis=(1, 2))], minlength=problem.payloads) - 1
    ticks = problem.transfer.max(axis=1, initial=0).tolist()
    longer = 0 if exact else sum(max(0, n) * t for n, t in zip(again.tolist(), ticks, strict=True))
    return PerEdge(problem=own, origin=origin, exact=exact, longer=longer)


def horizon(edges: PerEdge, most: int) -> int:
    """Ticks by which some schedule with a transfer per edge ends, `most` being such for the original problem.

    Where transfers repeat, each repetition may follow the first and delay everything after it; no schedule without
    needless idle time is longer than the sum of all that is done in it.
    """
    return most if edges.exact else min(most + edges.longer, serial(edges.problem))


def _crosses(units: Units, tail: Ints, head: Ints) -> Bools:
    """[t, l, l] whether data may have to go from one location to the other, from each `tail` [t] to each `head` [t]."""
    off = ~np.eye(units.allowed.shape[1], dtype=bool)
    at, to = units.allowed[units.unit[tail]], units.allowed[units.unit[head]]
    apart = units.unit[tail] != units.unit[head]
    found: Bools = at[:, :, None] & to[:, None, :] & off & apart[:, None, None]
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AddedTransfers:
    """The t added nodes: the payloads whose ends can be apart."""

    payload: Ints
    """[t] payload that each transfer sends."""
    tail: Ints
    """[t] the producer, i in (i, k), (k, j)."""
    head: Ints
    """[t] the consumer, j."""
    crosses: Bools
    """[t, l, l] whether the transfer may go from one location to the other."""
    always: Bools
    """[t] whether the ends are apart wherever they are: classes CG and GC; GG is the other."""


def transfers_of(problem: Problem) -> AddedTransfers:
    """The added nodes of a problem in which every payload has one consumer, ordered by payload."""
    carries = np.flatnonzero(problem.payload >= 0)
    carries = carries[np.argsort(problem.payload[carries])]
    units = units_of(problem)
    crosses = _crosses(units, problem.src[carries], problem.dst[carries])
    live = crosses.any(axis=(1, 2))
    edge = carries[live]
    tail, head = problem.src[edge], problem.dst[edge]
    beside = units.allowed[units.unit[tail]] & units.allowed[units.unit[head]]
    always: Bools = ~np.any(beside, axis=1)
    return AddedTransfers(payload=problem.payload[edge], tail=tail, head=head, crosses=crosses[live], always=always)


def descendants(problem: Problem) -> Bools:
    """[n, n] whether the second task follows the first, by any path. O(e n)."""
    after = np.zeros((problem.tasks, problem.tasks), dtype=bool)
    rank = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    for edge in np.argsort(-rank[problem.src], kind="stable").tolist():
        before, then = problem.src[edge], problem.dst[edge]
        after[before] |= after[then]
        after[before, then] = True
    return after


def before(after: Bools, transfers: AddedTransfers) -> Bools:
    """[t, t] whether the first transfer precedes the second: its consumer is the producer there, or an ancestor."""
    found: Bools = after[transfers.head][:, transfers.tail] | (transfers.head[:, None] == transfers.tail)
    return found


def open_pairs(after: Bools, can: Bools) -> tuple[Ints, Ints]:
    """Pairs i < j that can use one resource (`can` [r, resources]) and of which neither follows the other ([r, r])."""
    together = can.astype(np.float32) @ can.T.astype(np.float32) > 0
    one, two = np.nonzero(np.triu(together & ~after & ~after.T, 1))
    return one, two
