"""The order of a plan as control edges: one chain a device."""

import numpy as np

from pesto.graph import Graph
from solvers.arrays import Bools, Ints


def chain(graph: Graph, device: Ints, rank: Ints, chained: Bools) -> tuple[Ints, Ints]:
    """(before, after) of the edges that chain the `chained` ops of each device in `rank` order.

    Pairs that an edge of the graph joins already are left out. `rank` must be a topological order of the graph, so
    that the chains close no cycle with its edges.
    """
    member = np.flatnonzero(chained)
    sequence = member[np.lexsort((rank[member], device[member]))]
    before, after = sequence[:-1], sequence[1:]
    same = device[before] == device[after]
    before, after = before[same], after[same]
    known = np.unique(graph.edge_src * graph.ops + graph.edge_dst)
    fresh = ~np.isin(before * graph.ops + after, known)
    return before[fresh], after[fresh]
