"""Guided Load Balancing: clusters of tasks to processing elements by load alone (Radulescu & van Gemund 1998)."""

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.kernels import routine


def glb(load: Ints, allowed: Bools, *, busy: Ints | None = None, order: Ints | None = None) -> Ints:
    """[c] location of each cluster: one cluster after the other, each to the least loaded location that it allows.

    load: [c] ticks of each cluster, or [c, l] where they depend on the location. allowed: [c, l], with at least one
    location a cluster. busy: [l] ticks that are there before. order: [c] the clusters in the order in which they are
    mapped; by falling load unless given, as ParDNN (Qararyah et al. 2020, 4.1.1) does. A location's load is that
    which it has with the cluster, which where all locations are alike is the least loaded one of the source; ties go
    to the first. Deviation: what has no choice is mapped before all else, as its load is where it is whatever the
    others do. O(c (l + log c)).
    """
    ticks = np.broadcast_to(load[:, None] if load.ndim == 1 else load, allowed.shape)
    if order is None:
        most = np.where(allowed, ticks, 0).max(axis=1, initial=0)
        order = np.argsort(-most, kind="stable")
    forced = np.count_nonzero(allowed[order], axis=1) == 1
    order = np.concatenate([order[forced], order[~forced]])
    loads = np.zeros(allowed.shape[1], dtype=np.int64) if busy is None else np.array(busy, dtype=np.int64)
    return _least_loaded(np.ascontiguousarray(ticks), np.ascontiguousarray(allowed), order, loads)


@routine
def _least_loaded(ticks: Ints, allowed: Bools, order: Ints, loads: Ints) -> Ints:
    """Each cluster to the allowed location whose load with it is least; `loads` are added to."""
    at = np.full(len(order), -1, dtype=np.int64)
    for cluster in order:
        best = -1
        for there in range(len(loads)):
            if not allowed[cluster, there]:
                continue
            if best < 0 or loads[there] + ticks[cluster, there] < loads[best] + ticks[cluster, best]:
                best = there
        loads[best] += ticks[cluster, best]
        at[cluster] = best
    return at
