"""A plan's order: as control edges, and its worth beside other orders of the placement and priorities of links."""

from dataclasses import dataclass

import numpy as np

from pesto.core.graph import Graph
from solvers import Problem
from solvers.arrays import Bools, Ints, ints, rank_of
from solvers.timing.replay import bottom_levels, fifo, prepare, replay


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderWorth:
    """Makespans in ticks of one placement."""

    enforced: int
    """In the plan's order; links first come, first served, as in the plan."""
    fifo: int
    """As a runtime does unasked: devices and links first come, first served."""
    listed: int
    """Whatever is ready by falling bottom level; links first come, first served."""
    scheduled: int
    """In the plan's order, and links send what is wanted first (`send_ranks`)."""

    @property
    def gain(self) -> float:
        """Share of the FIFO time that enforcing the order saves; below 0 where FIFO is faster."""
        return 1.0 - self.enforced / self.fifo if self.fifo else 0.0

    @property
    def scheduled_gain(self) -> float:
        """Share of the enforced time that links with priorities would save besides; below 0 where they cost time."""
        return 1.0 - self.scheduled / self.enforced if self.enforced else 0.0


def order_worth(problem: Problem, device: Ints, rank: Ints) -> OrderWorth:
    """Replay a plan's placement and order, and what else could become of that placement. Four compiled replays.

    device: [n] device of each task. rank: [n] the plan's order, as `pesto.core.simulator.simulate` takes it. ValueError
    when a device cannot run its task or the order contradicts the precedence.
    """
    g = prepare(problem)
    level = bottom_levels(problem, device=device)
    by_level = rank_of(np.argsort(-level, kind="stable"))
    send_rank = send_ranks(problem, device, rank)
    return OrderWorth(
        enforced=replay(problem, device, rank, prepared=g).makespan,
        fifo=fifo(problem, device, prepared=g).makespan,
        listed=replay(problem, device, by_level, strict=False, prepared=g).makespan,
        scheduled=replay(problem, device, rank, send_rank=send_rank, prepared=g).makespan,
    )


def send_ranks(problem: Problem, device: Ints, rank: Ints) -> Ints:
    """[p] priority of each payload: the rank of the first task that reads it at another location; last where none."""
    p, at = problem, problem.location[device]
    cut = (p.payload >= 0) & (at[p.src] != at[p.dst])
    first = np.full(p.payloads, int(rank.max(initial=0)) + 1)
    np.minimum.at(first, p.payload[cut], rank[p.dst[cut]])
    return ints(first)


def neighbours(lane: Ints, rank: Ints, chained: Bools) -> tuple[Ints, Ints]:
    """(before, after) of the `chained` ops that follow each other on one processor (`lane`) in `rank` order."""
    member = np.flatnonzero(chained)
    sequence = member[np.lexsort((rank[member], lane[member]))]
    before, after = sequence[:-1], sequence[1:]
    same = lane[before] == lane[after]
    return before[same], after[same]


def chain(graph: Graph, lane: Ints, rank: Ints, chained: Bools) -> tuple[Ints, Ints]:
    """`neighbours`, without the pairs that an edge of the graph joins already.

    `rank` must be a topological order of the graph, so that the chains close no cycle with its edges.
    """
    before, after = neighbours(lane, rank, chained)
    known = np.unique(graph.edge_src * graph.ops + graph.edge_dst)
    fresh = ~np.isin(before * graph.ops + after, known)
    return before[fresh], after[fresh]
