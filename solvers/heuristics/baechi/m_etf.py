"""m-ETF (Jeon et al., "Baechi", SoCC 2020, and `placer/m_etf.py` of its code): earliest task first within memory.

ETF (Hwang, Chow, Anger and Lee 1989) starts, of all pairs of a ready operator and a device, one that can start
earliest; m-ETF drops the pairs whose device lacks the memory. As in the released code, ties go by topological order,
then by device, and a unit's memory is taken as a whole when the first of it is placed. The graph is co-placed and
fused first (`fusion`).

Deviations: transfers wait for nothing, as in ETF, where the released code queues those of a device one after another;
memory is the static bytes of the problem, never given back; sources wait for their readers (`order`); what can only be
at one location has its memory there from the start.
"""

import numpy as np

from solvers.heuristics.baechi.fusion import fused
from solvers.heuristics.baechi.graph import OperatorGraph
from solvers.heuristics.baechi.list_pass import schedule
from solvers.heuristics.baechi.list_state import NONE, ListResult, ListRules
from solvers.heuristics.baechi.order import ordered
from solvers.heuristics.methods import NoRoomError, Placement
from solvers.problem import Problem
from solvers.result import Options


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """The placement; the source leaves the order to TensorFlow, so none is given. O((n m + e l) log n)."""
    f = fused(problem)
    todo = ordered(f.graph)
    # The scheduler's orders without favourite children: that is ETF.
    place_ = todo.place
    none = np.full(len(place_), NONE, dtype=np.int64)
    asked = ListRules(place_, none, np.zeros_like(none), patient=False)
    listed = schedule(todo.graph, asked)
    require_room(f.graph, listed)
    return Placement(device=listed.device[f.node])


def require_room(g: OperatorGraph, listed: ListResult) -> None:
    """NoRoomError, with the bytes, unless everything has started in the room there is."""
    over = int(listed.room.min(initial=0))
    if over < 0:
        raise NoRoomError(f"{-over} bytes too many at location {int(listed.room.argmin())} can only be there")
    stuck = np.flatnonzero((listed.device < 0) & (listed.waiting == 0))
    if len(stuck):
        unit = int(g.unit[stuck[np.argmax(g.memory[g.unit[stuck]])]])
        most = int(listed.room[g.allowed[unit]].max(initial=0))
        raise NoRoomError(f"a unit of {g.memory[unit]} bytes found {most} free at most: {g.memory[unit] - most} short")
