"""Rows that say how far a graph must be spread so that no device has too much; compiled."""

import numpy as np

from solvers.arrays import Floats, Ints
from solvers.compiled.kernels import routine, subroutine
from solvers.pipelining.dags.load_moves import Knots

_NEAR = 1.0 - 1e-9


@routine
def spreading_cuts(given: Knots, edge: Ints, lengths: Floats) -> tuple[Ints, Ints]:
    """[m, q] load behind each edge, on the shortest ways from each knot to all nearer than 1, and [m] their load.

    `edge`: [2 q] the number of each of the edges of `given`; `lengths`: [q] of each.
    """
    m, q = len(given.loads), len(lengths)
    behind, near = np.zeros((m, q), dtype=np.int64), np.zeros(m, dtype=np.int64)
    for v in range(m):
        order, came, via = _ways(given, edge, lengths, v)
        below = given.loads.copy()
        for u in order[::-1]:
            near[v] += given.loads[u]
            if u != v:
                behind[v, via[u]] += below[u]
                below[came[u]] += below[u]
    return behind, near


@subroutine
def _ways(given: Knots, edge: Ints, lengths: Floats, v: int) -> tuple[Ints, Ints, Ints]:
    """Knots nearer than 1 to v, the nearest first; [m] the knot before each on the way, and the edge between them."""
    m = len(given.loads)
    far, came, via = np.full(m, _NEAR), np.full(m, -1), np.full(m, -1)
    done, order, ended = np.zeros(m, dtype=np.bool_), np.zeros(m, dtype=np.int64), 0
    reached, many = np.zeros(m, dtype=np.int64), 1
    far[v], reached[0] = 0.0, v
    while ended < many:
        best = ended
        for at in range(ended + 1, many):
            if far[reached[at]] < far[reached[best]]:
                best = at
        u = reached[best]
        reached[best], reached[ended] = reached[ended], u
        done[u], order[ended] = True, u
        ended += 1
        for e in range(given.begin[u], given.begin[u + 1]):
            w, way = given.to[e], far[u] + lengths[edge[e]]
            if done[w] or way >= far[w]:
                continue
            if came[w] < 0:
                reached[many] = w
                many += 1
            far[w], came[w], via[w] = way, u, edge[e]
    return order[:ended], came, via
