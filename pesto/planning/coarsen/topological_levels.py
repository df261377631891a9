"""Levels that rise along every edge, which is all that the proof of acyclic batch merging needs; and longest paths."""

from typing import NamedTuple

import numpy as np

from pesto.planning.coarsen.quotient import Quotient
from solvers.arrays import Ints
from solvers.compiled.dag import adjacency, heights
from solvers.compiled.kernels import routine


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
    """[n] levels counted from the roots: the heights of Definition 3.4."""
    return q.height


def latest_levels(q: Quotient) -> Ints:
    """[n] levels counted from the leaves, so that a constant stands beside its first consumer."""
    below = heights(q.size, q.dst, q.src)
    return below.max(initial=0) + 1 - below


def phased_levels(q: Quotient) -> Ints:
    """[n] levels that exhaust one kind of nodes before the next, so that as many of a kind as possible can meet."""
    offset, edge = adjacency(q.size, q.src)
    waiting = np.bincount(q.dst, minlength=q.size).astype(np.int64)
    by_kind = np.zeros(int(q.nodes.kind.max(initial=-1)) + 2, dtype=np.int64)
    np.cumsum(np.bincount(q.nodes.kind, minlength=len(by_kind) - 1), out=by_kind[1:])
    return _phased(offset, q.dst[edge], waiting, q.nodes.kind, by_kind)


def longest_paths(q: Quotient) -> LongestPaths:
    """Longest paths to and from every node, by the nodes' own times; transfers do not count."""
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
