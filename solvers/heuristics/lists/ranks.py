"""Levels of the list schedulers: longest paths to the end and from the start, exact in fractions of a tick."""

import math
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, rank_of
from solvers.compiled.dag import adjacency, topological_order
from solvers.compiled.kernels import routine
from solvers.problem import MOST, Problem


class PathWeights(NamedTuple):
    """Weights of tasks and edges on a path."""

    took: Ints
    """[n] what each task counts."""
    carried: Ints
    """[e] what each edge counts."""
    scale: int
    """Units of `took` and `carried` in a tick."""


def mean_weights(problem: Problem) -> PathWeights:
    """Mean ticks of a task over the devices that can run it, and of a payload over the pairs of different locations.

    Means are fractions, and a list scheduler asks whether two levels are equal: the unit is that part of a tick in
    which all of them are whole. Where 64 bits cannot hold paths of such, it is the tick, and means are rounded.
    O(n m + p c + e).
    """
    count = np.count_nonzero(problem.allowed, axis=1)
    off = problem.path_class[~np.eye(problem.locations, dtype=bool)]
    pairs = max(len(off), 1)
    share = np.bincount(off, minlength=problem.transfer.shape[1])
    scale = math.lcm(pairs, *np.unique(count).tolist())
    longest = sum(float(x.max(axis=1, initial=0).sum(dtype=np.float64)) for x in (problem.duration, problem.transfer))
    duration = np.where(problem.allowed, problem.duration, 0)
    if longest * scale * (problem.devices + pairs) < MOST:
        took = duration.sum(axis=1) * (scale // np.maximum(count, 1))
        sent = (problem.transfer @ share) * (scale // pairs)
    else:
        scale = 1
        took = np.rint(duration.sum(axis=1, dtype=np.float64) / count).astype(np.int64)
        sent = np.rint(problem.transfer @ (share / pairs)).astype(np.int64)
    carried = np.zeros(problem.edges, dtype=np.int64)
    carries = problem.payload >= 0
    carried[carries] = sent[problem.payload[carries]]
    return PathWeights(took, carried, scale)


def without_transfers(weights: PathWeights) -> PathWeights:
    """The same tasks, with edges that count nothing: the weights of static levels."""
    return weights._replace(carried=np.zeros_like(weights.carried))


def upward(problem: Problem, weights: PathWeights) -> Ints:
    """[n] weight of the heaviest path from each task, itself included, to the end. O(n + e log e).

    The upward rank of Topcuoglu, Hariri and Wu 2002; without transfers the static level of Sih and Lee 1993.
    """
    order = topological_order(problem.tasks, problem.src, problem.dst)
    offset, edge = adjacency(problem.tasks, problem.src)
    return _heaviest(order[::-1].copy(), weights.took, (offset, problem.dst[edge], weights.carried[edge]))


def downward(problem: Problem, weights: PathWeights) -> Ints:
    """[n] weight of the heaviest path from the start to each task, itself not included. O(n + e log e).

    The downward rank of Topcuoglu, Hariri and Wu 2002.
    """
    order = topological_order(problem.tasks, problem.src, problem.dst)
    offset, edge = adjacency(problem.tasks, problem.dst)
    arrived = (offset, problem.src[edge], weights.carried[edge])
    return _heaviest(order, weights.took, arrived) - weights.took


def by_level(problem: Problem, level: Ints) -> Ints:
    """[n] tasks by falling level, ties in topological order.

    level: [n], never less than that of a successor. A topological order then.
    """
    place = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    return np.lexsort((place, -level))


@routine
def _heaviest(order: Ints, took: Ints, edges: tuple[Ints, Ints, Ints]) -> Ints:
    """Compute for each task of `order` its weight plus the maximum over its edges of edge weight and next level."""
    offset, other, carried = edges
    level = took.copy()
    for task in order:
        most = 0
        for k in range(offset[task], offset[task + 1]):
            most = max(most, carried[k] + level[other[k]])
        level[task] += most
    return level
