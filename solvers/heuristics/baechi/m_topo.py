"""m-TOPO (Jeon et al., "Baechi", SoCC 2020, and `placer/m_topo.py`): operators in topological order fill devices.

Each device is filled up to a load-balanced cap, the mean bytes a device plus the largest unit; then the next one is,
and none before it again. Groups, co-placement and fusion come first (`fusion`); a unit is placed with its first
operator.

Deviations: the largest unit is added, not the largest operator, as units are placed whole (the cap then always
suffices); no device is filled beyond its own capacity; a unit that neither the current device nor a later one can take
goes where most room is left, as not all devices can run it. What can only be at one location is there from the start,
and counts for its capacity but not for the cap.
"""

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.dag import topological_order
from solvers.compiled.kernels import routine
from solvers.heuristics.baechi.fusion import fused
from solvers.heuristics.baechi.graph import OperatorGraph
from solvers.heuristics.devices_of_location import devices_at, elements
from solvers.heuristics.methods import NoRoomError, Placement
from solvers.problem import Problem
from solvers.result import Options
from solvers.structure.units import Units


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """The placement, without an order. O(n (m + l) + e log e)."""
    f = fused(problem)
    return Placement(device=devices_at(problem, filled(f.graph)[f.graph.unit][f.node]))


def filled(g: OperatorGraph) -> Ints:
    """[u] the location of each unit; NoRoomError, with the bytes, where one finds no room."""
    free = np.count_nonzero(g.allowed, axis=1) > 1
    at, room = np.where(free, -1, g.allowed.argmax(axis=1)), g.capacity.copy()
    np.subtract.at(room, at[~free], g.memory[~free])
    if room.min(initial=0) < 0:
        raise NoRoomError(f"{-room.min()} bytes too many at location {room.argmin()} can only be there")
    turn = elements(Units(unit=g.unit, allowed=g.allowed, memory=g.memory))
    cap = int(g.memory[free].sum()) // max(1, len(turn)) + int(g.memory[free].max(initial=0))
    order = topological_order(len(g.unit), g.src, g.dst)
    stuck = _fill(g.unit[order], (g.allowed, g.memory), (turn, cap), at, room)
    if stuck >= 0:
        most = int(room[g.allowed[stuck]].max())
        need = int(g.memory[stuck])
        raise NoRoomError(f"a unit of {need} bytes found {most} free at most: {need - most} short")
    return at


@routine
def _fill(order: Ints, units: tuple[Bools, Ints], asked: tuple[Ints, int], at: Ints, room: Ints) -> int:
    """Fill location after location; return the unit that finds no room, -1 for none."""
    allowed, memory = units
    turn, cap = asked
    used = np.zeros(len(room), dtype=np.int64)
    current = 0
    for unit in order:
        if at[unit] >= 0:
            continue
        chosen = -1
        for step in range(current, len(turn)):
            there = turn[step]
            if allowed[unit, there] and used[there] + memory[unit] <= cap and memory[unit] <= room[there]:
                chosen = there
                break
            if step == current and allowed[unit, there]:
                current = step + 1
        if chosen < 0:
            for there in turn:
                if allowed[unit, there] and (chosen < 0 or room[there] > room[chosen]):
                    chosen = there
            if memory[unit] > room[chosen]:
                return unit
        at[unit] = chosen
        used[chosen] += memory[unit]
        room[chosen] -= memory[unit]
    return -1
