"""PipeDream's partition: contiguous stages with the least bottleneck (Harlap et al. 2018; Narayanan et al. 2019, 3.1).

The source cuts a chain of layers into as many stages as there are machines so that the slowest stage is as fast as
possible; a stage takes the ticks of its layers (forward and backward together), a cut what crosses it in both
directions, and a stage's weights must fit. Its dynamic program is A(j, m) = min over i of max(A(i, m - 1), C_i,
T(i + 1 .. j)). Here replication, which our plans do not have, is left out, and the same optimum is found by a binary
search over the bottleneck: for a given one, a stage that reaches as far as it may is never worse than a shorter one,
as whatever can follow the shorter one can follow it too.

How a training step becomes a chain, which the source takes from a framework's list of layers: `order_of_layers`.
Deviations. Stages may be empty. Units that not every element can take are no part of the chain: they go, after it, to
the location nearest to their place in it that has room. A tensor that passes over several cuts counts at each.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints, offsets
from solvers.compiled.kernels import routine
from solvers.heuristics.clusters.layers import order_of_layers
from solvers.heuristics.devices_of_location import devices_at, elements
from solvers.heuristics.lists.means import mean_ticks, mean_transfers
from solvers.heuristics.methods import NoRoomError, Placement
from solvers.problem import Problem
from solvers.result import Options
from solvers.structure.units import Units, placeable_units


class StageItems(NamedTuple):
    """The sequence of c items that the program cuts into stages."""

    ticks: Ints
    """[c] ticks of each item."""
    memory: Ints
    """[c] bytes of each item."""
    cut: Ints
    """[c + 1] ticks of what crosses a cut before each item; 0 at both ends."""


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Stages along the chain of layers, the first at the first element. O(n log n + e + n log ticks)."""
    units = placeable_units(problem)
    pes = elements(units)
    order = order_of_layers(problem, units)
    whole = units.allowed[:, pes].all(axis=1) & (np.count_nonzero(units.allowed, axis=1) > 1)
    # ([u] location of the units with but one, -1 for others; [l] bytes left). NoRoomError when these do not fit.
    capacity = problem.capacity
    forced = np.count_nonzero(units.allowed, axis=1) == 1
    at = np.where(forced, units.allowed.argmax(axis=1), -1)
    room = np.array(capacity)
    np.subtract.at(room, at[forced], units.memory[forced])
    if (room < 0).any():
        raise NoRoomError(f"{-int(room.min())} bytes too many at location {int(room.argmin())}, where they must be")
    linked = order[whole[order]]
    stage = stages(_chain(problem, units, linked, mean_transfers(problem, pes)), room[pes])
    at[linked] = pes[stage]
    np.subtract.at(room, at[linked], units.memory[linked])
    # Place what is not yet, [u] -1, nearest to the location of the unit before it in the order.
    stuck = _nearest(order, at, units.allowed, units.memory, room)
    if stuck >= 0:
        raise NoRoomError(f"{units.memory[stuck]} bytes of unit {stuck} find no room")
    return Placement(device=devices_at(problem, at[units.unit]))


def stages(chain: StageItems, room: Ints) -> Ints:
    """[c] the stage of each item, rising: the least max(ticks of a stage, ticks of a cut) that room [k] allows.

    Stages are as long as that least bottleneck allows, the first ones first. NoRoomError where memory allows none.
    O(c log ticks + k log c log ticks).
    """
    if not len(chain.ticks):
        return ints(np.zeros(0, dtype=np.int64))
    ticks, memory = offsets(chain.ticks), offsets(chain.memory)
    low, high = int(chain.ticks.max(initial=0)) - 1, max(int(ticks[-1]), int(chain.cut.max(initial=0)))
    ends = _ends((ticks, memory, chain.cut), room, high)
    if ends[-1] < len(chain.ticks):
        raise NoRoomError(f"{memory[-1] - memory[ends[-1]]} bytes of the last layers find no room")
    while high - low > 1:
        middle = (low + high) // 2
        if _ends((ticks, memory, chain.cut), room, middle)[-1] == len(chain.ticks):
            high = middle
        else:
            low = middle
    ends = _ends((ticks, memory, chain.cut), room, high)
    return ints(np.searchsorted(ends, np.arange(len(chain.ticks)), side="right"))


def _chain(problem: Problem, units: Units, linked: Ints, sent: Ints) -> StageItems:
    """The units `linked`, in this order, with the ticks of the payloads, [p], that pass between two of them."""
    c = len(linked)
    at = np.full(len(units.memory), -1, dtype=np.int64)
    at[linked] = np.arange(c)
    ticks = np.zeros(len(units.memory), dtype=np.int64)
    np.add.at(ticks, units.unit, mean_ticks(problem))
    carries = problem.payload >= 0
    payload, reader = problem.payload[carries], at[units.unit[problem.dst[carries]]]
    payload, reader = payload[reader >= 0], reader[reader >= 0]
    writer = at[units.unit[problem.producer]]
    first, last = writer.copy(), writer.copy()
    np.minimum.at(first, payload, reader)
    np.maximum.at(last, payload, reader)
    cut, known = np.zeros(c + 2, dtype=np.int64), writer >= 0
    # A payload is sent up to its last reader and down to its first.
    np.add.at(cut, first[known] + 1, sent[known])
    np.subtract.at(cut, last[known] + 1, sent[known])
    return StageItems(ticks[linked], units.memory[linked], np.cumsum(cut)[: c + 1])


@routine
def _ends(sums: tuple[Ints, Ints, Ints], room: Ints, most: int) -> Ints:
    """[k] where each stage ends when each reaches as far as `most` ticks and its room allow."""
    ticks, memory, cut = sums
    last = np.zeros(len(cut), dtype=np.int64)  # the last place up to here that can be cut
    for at in range(1, len(cut)):
        last[at] = at if cut[at] <= most else last[at - 1]
    ends, begin = np.empty(len(room), dtype=np.int64), np.int64(0)
    for stage in range(len(room)):
        end = min(
            np.searchsorted(ticks, ticks[begin] + most, side="right") - 1,
            np.searchsorted(memory, memory[begin] + room[stage], side="right") - 1,
        )
        begin = max(begin, last[end])
        ends[stage] = begin
    return ends


@routine
def _nearest(order: Ints, at: Ints, allowed: Bools, memory: Ints, room: Ints) -> int:
    """Return the first unit without room, or -1."""
    before = 0
    for unit in order:
        if at[unit] < 0:
            best = -1
            for there in range(len(room)):
                free = allowed[unit, there] and room[there] >= memory[unit]
                if free and (best < 0 or abs(there - before) < abs(best - before)):
                    best = there
            if best < 0:
                return unit
            at[unit] = best
            room[best] -= memory[unit]
        elif np.count_nonzero(allowed[unit]) > 1:
            before = at[unit]
    return -1
