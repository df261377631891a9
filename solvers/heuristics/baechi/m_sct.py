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

from solvers.arrays import Ints
from solvers.heuristics.baechi.favourite import favourites
from solvers.heuristics.baechi.fusion import fused
from solvers.heuristics.baechi.graph import OperatorGraph
from solvers.heuristics.baechi.list_pass import schedule
from solvers.heuristics.baechi.list_state import ListRules
from solvers.heuristics.baechi.m_etf import require_room
from solvers.heuristics.baechi.order import ordered
from solvers.heuristics.methods import Placement
from solvers.problem import Problem
from solvers.result import Options


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
