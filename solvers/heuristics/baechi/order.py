"""The order in which m-ETF and m-SCT break ties, and sources kept for their readers.

Deviation: the source starts every operator without inputs at once, one device after the other, and units follow their
variables. Here a source waits, as if it read what its guide reads, until its guide could start but for it
(`solvers.heuristics.lists.guides`), and so is offered to the devices at the ticks at which its guide would be.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints, rank_of
from solvers.compiled.dag import adjacency, topological_order
from solvers.heuristics.baechi.graph import OperatorGraph
from solvers.heuristics.lists.guides import guided
from solvers.timing.loop import Prepared


class OrderedGraph(NamedTuple):
    """A graph to schedule."""

    graph: OperatorGraph
    """With edges that hold sources back."""
    place: Ints
    """[k] rank of each operator: a topological order, sources just before their guides."""


def ordered(g: OperatorGraph) -> OrderedGraph:
    """Hold every source with a guide back. O(e + k log k), as a guide has few inputs."""
    k = len(g.duration)
    found = guided(_prepared(g, k), ints(g.unit), topological_order(k, g.src, g.dst))
    held = found.guide != np.arange(k)
    source = np.flatnonzero(held)
    into, edge = adjacency(k, g.dst)
    first, count = into[found.guide[source]], np.diff(into)[found.guide[source]]
    reader = np.repeat(source, count)
    edge = edge[np.arange(len(reader)) + np.repeat(first - np.cumsum(count) + count, count)]
    real = ~held[g.src[edge]]
    edge, reader = edge[real], reader[real]
    graph = g._replace(
        src=np.concatenate([g.src, g.src[edge]]),
        dst=np.concatenate([g.dst, reader]),
        comm=np.concatenate([g.comm, g.comm[edge]]),
    )
    return OrderedGraph(graph, rank_of(found.order))


def _prepared(g: OperatorGraph, k: int) -> Prepared:
    """Return the arrays of a graph that `guided` reads; read-only like a problem's, so that it is compiled once."""
    offset, edge = adjacency(k, g.src)
    return Prepared(
        offset=ints(offset), head=ints(g.dst[edge]), carried=ints(np.full(len(edge), -1)),
        indegree=ints(np.bincount(g.dst, minlength=k)), duration=ints(g.duration), location=ints(g.location),
        transfer=ints(g.comm), path_class=ints(g.path_class), path_links=ints(np.zeros((1, 1, 0), dtype=np.int64)),
        links=0, carries=0,
    )  # fmt: skip
