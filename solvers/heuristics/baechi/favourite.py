"""Favourite children of SCT: from the linear program, or greedily.

j is the favourite child of i where the program's x_ij < THRESHOLD. Hanen and Munier (1995) round at 1/2, which makes
the earliest starts on processors without end at most (2 + 2r) / (2 + r) times the optimum, r being the longest
communication over the shortest operator, r <= 1; a threshold h <= 1/2 gives (1 + r) / (1 + h r).

**When the program is not solved in its limit**, half of the seconds given, the favourite children are the greedy ones:
edges by falling communication, each taken whose ends are both free; the simplex has no point before its optimum. So
too, at once, for a graph that is out of its reach (`within_reach`), which its size alone decides.
"""

import numpy as np

from solvers.arrays import Floats, Ints
from solvers.compiled.kernels import routine
from solvers.heuristics.baechi.graph import OperatorGraph, OperatorWeights, weights_of
from solvers.result import Options

THRESHOLD = 0.1
"""x_ij below which j is the favourite child of i: `sct_threshold` of Baechi's released code."""
_SHARE = 0.5
"""Share of the given seconds that the linear program may take."""
_PER_SECOND = 400_000_000
"""Squared operators in a second of the quickest large program that was measured; most take much longer."""
_TOLERANCE = 1e-6


def favourites(g: OperatorGraph, options: Options, threshold: float = THRESHOLD) -> Ints:
    """[k] the favourite child of each operator, -1 for none: by the program, or greedily where that takes too long."""
    w, seconds = weights_of(g), _SHARE * options.seconds
    if within_reach(g, seconds):
        # Not before: it loads the solver.
        from solvers.heuristics.baechi.linear_program import shares

        found = shares(g, w, seconds, deterministic=options.deterministic)
        if found is not None:
            return rounded(g, found[0], threshold)
    return greedy(g, w)


def rounded(g: OperatorGraph, share: Floats, threshold: float) -> Ints:
    """[k] the favourite child of each operator whose x = 1 - `share`, [e], is below a threshold of at most 1/2."""
    chosen = np.flatnonzero(share > 1 - threshold + _TOLERANCE)
    child = np.full(len(g.duration), -1, dtype=np.int64)
    child[g.src[chosen]] = g.dst[chosen]
    return child


def within_reach(g: OperatorGraph, seconds: float) -> bool:
    """Return True if there is hope that the program is solved in so many seconds."""
    return len(g.duration) ** 2 <= _PER_SECOND * seconds


def greedy(g: OperatorGraph, w: OperatorWeights) -> Ints:
    """[k] the favourite child of each operator when edges are taken by falling communication. O(e log e)."""
    edge = np.flatnonzero(w.open)
    edge = edge[np.argsort(-w.comm[edge], kind="stable")]
    return _greedy(len(w.took), g.src[edge], g.dst[edge])


@routine
def _greedy(count: int, src: Ints, dst: Ints) -> Ints:
    child = np.full(count, -1, dtype=np.int64)
    taken = np.zeros(count, dtype=np.bool_)
    for k in range(len(src)):
        if child[src[k]] < 0 and not taken[dst[k]]:
            child[src[k]] = dst[k]
            taken[dst[k]] = True
    return child
