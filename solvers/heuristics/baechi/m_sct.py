"""m-SCT (Jeon et al., "Baechi", SoCC 2020, and its released code, `placer/m_sct.py`): small communication times.

SCT (Hanen and Munier 1995): each operator has at most one favourite child, each child one favourite parent
(`favourite`, `program`). An idle device is *awake* for the favourite child of what it ran last, as in the released
code, while the child's predecessors have all finished, it has not started, and no other device could begin it earlier;
it then takes *urgent* operators, those whose inputs are wherever they can run, or else the child. Otherwise it takes
what comes first, as in ETF. m-SCT drops pairs of an operator and a device without the memory. The graph is co-placed
and fused first (`fusion`).

Deviations: those of m-ETF (`etf`). To the released code an operator is urgent only when every device is idle, too.

The guarantee of SCT (`favourite`) is for other rules, which `kept` gives with `patient`: a device is awake from the
end of what it ran until the child's input from there could be anywhere, and what could start on several devices goes to
one that is not awake. With a device for each operator, none then starts later than its longest path allows in which
only edges to favourite children cost nothing: by induction its inputs are there by then where its favourite parent ran,
and either that device still waits for it, or it is urgent and another is idle. On models of neural networks, whose
communications are not small, this waits too long: steps were 6 %, 12 % and 23 % longer on an RNNLM, a NASNet and a
Transformer than with the rules of the released code.
"""

import numpy as np

from solvers.arrays import Floats, Ints
from solvers.compiled.kernels import routine
from solvers.heuristics.baechi.fusion import fused
from solvers.heuristics.baechi.graph import OperatorGraph, OperatorWeights, weights_of
from solvers.heuristics.baechi.list_pass import schedule
from solvers.heuristics.baechi.list_state import ListRules
from solvers.heuristics.baechi.m_etf import require_room
from solvers.heuristics.baechi.order import ordered
from solvers.heuristics.methods import Placement
from solvers.problem import Problem
from solvers.result import Options

# Favourite children of SCT: from the linear program, or greedily.

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


def place(problem: Problem, options: Options) -> Placement:
    """The placement, without an order. The program, then O((n m + e l) log n)."""
    f = fused(problem)
    todo = ordered(f.graph)
    listed = schedule(todo.graph, kept(f.graph, todo.place, favourites(f.graph, options)))
    require_room(f.graph, listed)
    return Placement(device=listed.device[f.node])


def kept(g: OperatorGraph, place_: Ints, child: Ints, *, patient: bool = False) -> ListRules:
    """The scheduler's orders with favourite children, [k] or -1; a device waits while the child's input would cross."""
    chosen = child[g.src] == g.dst
    wait = np.zeros(len(child), dtype=np.int64)
    wait[g.src[chosen]] = g.comm[chosen].max(axis=1, initial=0)
    return ListRules(place_, child, wait, patient)
