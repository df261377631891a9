"""Directed acyclic graphs as index arrays: adjacency, topological order, heights. Linear in nodes and edges."""

import numpy as np

from solvers.arrays import Ints, offsets
from solvers.compiled.kernels import routine, subkernel


def adjacency(nodes: int, tail: Ints) -> tuple[Ints, Ints]:
    """Return edges by tail, as compressed rows: (offset[nodes + 1], edge[e]), `edge` holding edge indices.

    The order of the edges of one node is the order in which they are given.
    """
    offset = offsets(np.bincount(tail, minlength=nodes))
    return offset, np.argsort(tail, kind="stable").astype(np.int64)


def topological_order(nodes: int, src: Ints, dst: Ints) -> Ints:
    """Return nodes in Kahn's order (first in, first out, roots by index); fewer than `nodes` when there is a cycle."""
    offset, edge = adjacency(nodes, src)
    waiting = np.bincount(dst, minlength=nodes).astype(np.int64)
    return _kahn(offset, dst[edge], waiting)


def heights(nodes: int, src: Ints, dst: Ints) -> Ints:
    """Return the height of every node: the vertices on the longest path that ends there (Pesto, Definition 3.4).

    Raise ValueError when the graph has a cycle.
    """
    offset, edge = adjacency(nodes, src)
    waiting = np.bincount(dst, minlength=nodes).astype(np.int64)
    order = _kahn(offset, dst[edge], waiting)
    if len(order) != nodes:
        raise ValueError("the graph has a cycle")
    return _heights(order, offset, dst[edge])


def after_all(order: Ints, src: Ints, dst: Ints, key: Ints) -> Ints:
    """Return [nodes] the least keys that are no less than these, nor than those of the nodes before each.

    order: [nodes] a topological order.
    """
    offset, edge = adjacency(len(order), src)
    return _after_all(order, offset, dst[edge], key.copy())


def find_cycle(nodes: int, src: Ints, dst: Ints) -> list[int]:
    """Return one cycle as a list of nodes, each with an edge to the next and the last to the first; [] for none."""
    order = topological_order(nodes, src, dst)
    if len(order) == nodes:
        return []
    stuck = np.ones(nodes, dtype=bool)
    stuck[order] = False
    # Every stuck node has a stuck predecessor, so walking backwards must come round.
    before = np.full(nodes, -1, dtype=np.int64)
    inside = stuck[src] & stuck[dst]
    before[dst[inside]] = src[inside]
    seen: dict[int, int] = {}
    path: list[int] = []
    node = int(np.flatnonzero(stuck)[0])
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = int(before[node])
    return path[seen[node] :][::-1]


@routine
def _kahn(offset: Ints, head: Ints, waiting: Ints) -> Ints:
    nodes = len(waiting)
    order = np.empty(nodes, dtype=np.int64)
    done = 0
    for node in range(nodes):
        if waiting[node] == 0:
            order[done] = node
            done += 1
    at = 0
    while at < done:
        node = order[at]
        at += 1
        for k in range(offset[node], offset[node + 1]):
            waiting[head[k]] -= 1
            if waiting[head[k]] == 0:
                order[done] = head[k]
                done += 1
    return order[:done]


@routine
def _heights(order: Ints, offset: Ints, head: Ints) -> Ints:
    height = np.ones(len(order), dtype=np.int64)
    for node in order:
        for k in range(offset[node], offset[node + 1]):
            height[head[k]] = max(height[head[k]], height[node] + 1)
    return height


@routine
def _after_all(order: Ints, offset: Ints, head: Ints, key: Ints) -> Ints:
    for node in order:
        for k in range(offset[node], offset[node + 1]):
            key[head[k]] = max(key[head[k]], key[node])
    return key


@routine
def tails(order: Ints, took: Ints, edges: tuple[Ints, Ints, Ints]) -> Ints:
    """Return [nodes] the longest path from the start of each node to the end, of the times of nodes and edges.

    order: [nodes] a topological order. edges: as compressed rows, (offset[nodes + 1], head[e], ticks[e]).
    """
    offset, head, ticks = edges
    level = took.copy()
    for at in range(len(order) - 1, -1, -1):
        node = order[at]
        longest = 0
        for k in range(offset[node], offset[node + 1]):
            longest = max(longest, ticks[k] + level[head[k]])
        level[node] += longest
    return level


@subkernel
def root(parent: Ints, at: int) -> int:
    """Return the root of a node's tree in a forest of parents, paths halved on the way."""
    while parent[at] != at:
        parent[at] = parent[parent[at]]
        at = parent[at]
    return at


@routine
def connected(size: int, one: Ints, other: Ints) -> Ints:
    """Return [size] the least node of each node's component in an undirected graph with edges `one[k]`-`other[k]`."""
    parent = np.arange(size)
    for k in range(len(one)):
        a, b = root(parent, one[k]), root(parent, other[k])
        parent[max(a, b)] = min(a, b)
    for node in range(size):
        parent[node] = parent[parent[node]]
    return parent
