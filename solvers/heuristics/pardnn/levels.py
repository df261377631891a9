"""Top and bottom levels (ParDNN, Qararyah et al. 2020, table 4.2), of a graph and of what is left of it."""

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.kernels import routine
from solvers.heuristics.pardnn.weights import WeightedGraph


@routine
def levels(w: WeightedGraph, gone: Bools) -> tuple[Ints, Ints]:
    """[n] top and bottom levels in the graph without the nodes that are `gone`, whose own are 0. O(n + e)."""
    n = len(gone)
    top, bottom = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for node in range(n):
        if gone[node]:
            continue
        for k in range(w.into[node], w.into[node + 1]):
            parent = w.tail[k]
            if not gone[parent]:
                top[node] = max(top[node], top[parent] + w.took[parent] + w.in_cost[k])
    for node in range(n - 1, -1, -1):
        if gone[node]:
            continue
        for k in range(w.out[node], w.out[node + 1]):
            if not gone[w.head[k]]:
                bottom[node] = max(bottom[node], w.out_cost[k] + bottom[w.head[k]])
        bottom[node] += w.took[node]
    return top, bottom
