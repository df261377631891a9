"""The literature's homogeneous costs: one number of ticks for each task and for each payload."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints, offsets, rank_of
from solvers.compiled.dag import adjacency, topological_order
from solvers.problem import Problem


class MeanCostGraph(NamedTuple):
    """The tasks in topological order, from here on called by their places in it, with mean costs."""

    order: Ints
    """[n] the task at each place."""
    took: Ints
    """[n] mean ticks of the task at each place."""
    offset: Ints
    """[n + 1] where the edges that leave each place start in `head` and `ticks`."""
    head: Ints
    """[e] places of the successors, rising for each tail."""
    ticks: Ints
    """[e] mean ticks of each edge's payload."""
    entry: Ints
    """[n + 1] where the edges that enter each place start in `tail` and `cost`."""
    tail: Ints
    """[e] places of the predecessors."""
    cost: Ints
    """[e] mean ticks of each edge's payload, in the order of `tail`."""


def mean_ticks(problem: Problem) -> Ints:
    """[n] mean ticks of each task over the devices that can run it, rounded up, as in HEFT (Topcuoglu 2002)."""
    allowed = np.count_nonzero(problem.allowed, axis=1)
    return ints(-(-np.where(problem.allowed, problem.duration, 0).sum(axis=1) // allowed))


def mean_transfers(problem: Problem, places: Ints) -> Ints:
    """[p] mean ticks of each payload over all ordered pairs of `places` (locations), rounded; 0 without a pair."""
    if len(places) < 2:
        return ints(np.zeros(problem.payloads, dtype=np.int64))
    pairs = problem.path_class[np.ix_(places, places)][~np.eye(len(places), dtype=bool)]
    share = np.bincount(pairs, minlength=problem.transfer.shape[1]) / len(pairs)
    return ints(np.rint(problem.transfer @ share).astype(np.int64))


def edge_ticks(problem: Problem, sent: Ints) -> Ints:
    """[e] ticks of each edge when its payload takes `sent`, [p]; 0 where it carries none."""
    ticks = np.zeros(problem.edges, dtype=np.int64)
    carries = problem.payload >= 0
    ticks[carries] = sent[problem.payload[carries]]
    return ints(ticks)


def dag_of(problem: Problem, took: Ints, ticks: Ints) -> MeanCostGraph:
    """The graph with the costs of its tasks, [n], and edges, [e]. O(n + e log e)."""
    order = topological_order(problem.tasks, problem.src, problem.dst)
    place = rank_of(order)
    by = np.lexsort((place[problem.dst], place[problem.src]))
    tail, head, ticks = place[problem.src[by]], place[problem.dst[by]], ticks[by]
    offset = offsets(np.bincount(tail, minlength=problem.tasks))
    entry, entering = adjacency(problem.tasks, head)
    return MeanCostGraph(order, took[order], offset, head, ticks, entry, tail[entering], ticks[entering])
