"""The order of a plan as control edges: one chain for each processor."""

import numpy as np

from pesto.core.graph import Graph
from solvers.arrays import Bools, Ints


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
