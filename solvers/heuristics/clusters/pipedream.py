"""PipeDream's partition: contiguous stages with the least bottleneck (Harlap et al. 2018; Narayanan et al. 2019, 3.1).

The source cuts a chain of layers into as many stages as there are machines so that the slowest stage is as fast as
possible; a stage takes the ticks of its layers (forward and backward together), a cut what crosses it in both
directions, and a stage's weights must fit. Its dynamic program is A(j, m) = min over i of max(A(i, m - 1), C_i,
T(i + 1 .. j)). Here replication, which our plans do not have, is left out, and the same optimum is found by a binary
search over the bottleneck: for a given one, a stage that reaches as far as it may is never worse than a shorter one,
as whatever can follow the shorter one can follow it too.

Deviations. Stages may be empty. Units that not every element can take are no part of the chain: they go, after it, to
the location nearest to their place in it that has room. A tensor that passes over several cuts counts at each.

A training step becomes a chain of layers by its graph alone (`order_of_layers`). PipeDream (Narayanan et al. 2019, 3.1)
and other pipelines cut a chain of layers, each with its forward and backward pass and its weights. Here a layer is what
follows a variable, and backward operations stand with the forward operations whose outputs they read:

- A *variable* is a task without inputs in a group, with what is computed from it alone. It stands at the level of the
  first forward task that reads it together with what depends on another one, or else of its first reader; a level is
  the number of tasks on a longest path.
- What depends on no variable (constants, shapes, random masks, the input) stands with its first reader, if there are
  variables at all.
- A forward task stands behind the latest variable that it depends on, then at its own level. All steps of a recurrent
  layer are so one layer, as they read one variable.
- Forward ends at the level where what is passed on over it is used most clearly last in, first out: where the levels
  of writers and of readers of the tensors that are alive there covary least. Without such a level, as in a graph that
  is no training step, nothing is folded.
- A task beyond stands with the forward task (or variable) of which it reads most; one that reads none, with that task
  beyond of which it reads most; of equals, with the latest.
- A unit stands with its variable, else with its first task.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints, offsets
from solvers.compiled.dag import heights
from solvers.compiled.kernels import routine, subroutine
from solvers.heuristics.devices_of_location import devices_at, elements
from solvers.heuristics.lists.list_schedule import MeanCostGraph, dag_of
from solvers.heuristics.methods import NoRoomError, Placement
from solvers.problem import Problem, mean_ticks, mean_transfers
from solvers.result import Options
from solvers.structure.units import Units, placeable_units

_LAST_IN_FIRST_OUT = -1 / 3
"""Correlation of the levels of writers and readers up to which a step is folded."""
_SPAN = 1 / 4
"""Mean span of these tensors, as a share of all levels, from which on a step is folded."""
_NOWHERE = np.iinfo(np.int64).max


class _LayerTasks(NamedTuple):
    """The tasks by place in topological order."""

    level: Ints
    variable: Ints
    """[n] the unit of the variable that each is, -1 for all else."""
    loose: Bools
    """[n] what depends on no variable."""
    stands: Ints
    """[u] where the variable of each unit stands, _NOWHERE without one."""


def order_of_layers(problem: Problem, units: Units) -> Ints:
    """Return the [u] units along the chain. O(n log n + e log e)."""
    # An edge that only orders is known by its 0.
    weight = np.zeros(problem.edges, dtype=np.int64)
    carries = problem.payload >= 0
    weight[carries] = 1 + mean_transfers(problem)[problem.payload[carries]]
    g = dag_of(problem, np.ones(problem.tasks, dtype=np.int64), weight)
    unit, heads = units.unit[g.order], np.repeat(np.arange(problem.tasks), np.diff(g.entry))
    level = heights(problem.tasks, problem.src, problem.dst)[g.order]
    variable, loose = _variables(g, np.where(problem.group[g.order] >= 0, unit, -1))
    mixed = (variable < 0)[g.tail] & ~loose[g.tail]
    turn = last_forward(level, g.tail[mixed & (g.cost > 0)], heads[mixed & (g.cost > 0)])
    other = np.zeros(problem.tasks, dtype=bool)
    other[heads[mixed]] = True
    other &= level <= turn
    reads = (variable[g.tail] >= 0) & (variable[heads] < 0)
    read, reader = variable[g.tail[reads]], heads[reads]
    stands, alone, first = np.full((3, len(units.memory)), _NOWHERE)
    np.minimum.at(stands, read[other[reader]], level[reader[other[reader]]])
    np.minimum.at(alone, read, level[reader])
    loose &= bool((variable >= 0).any())
    stands = np.where(stands == _NOWHERE, alone, stands)
    np.minimum.at(first, unit, _positions(g, _LayerTasks(level, variable, loose, stands), turn))
    layers = stands * (int(level.max(initial=0)) + 1)
    return ints(np.argsort(np.where(stands == _NOWHERE, first, layers), kind="stable"))


def last_forward(level: Ints, tail: Ints, head: Ints) -> int:
    """Return the last level of the forward pass; the last of all where nothing is to be folded.

    level: [n], from 1. tail, head: [e] places of edges. Sums over the edges that are open at each level, of the levels
    at which they begin and end, of their squares and of their product give the covariance at each. O(e + levels).
    """
    last = int(level.max(initial=1))
    if not len(tail):
        return last
    x, y = level[tail].astype(np.float64), level[head].astype(np.float64)
    count, sum_x, sum_y, square_x, square_y, product = (
        np.cumsum(np.bincount(level[tail], term, last + 1) - np.bincount(level[head], term, last + 1))
        for term in (np.ones(len(x)), x, y, x * x, y * y, x * y)
    )
    safe = np.maximum(count, 1.0)
    together = product - sum_x * sum_y / safe
    spread = np.sqrt(np.maximum((square_x - sum_x**2 / safe) * (square_y - sum_y**2 / safe), 0.0))
    turn = int(together.argmin())
    clear = spread[turn] > 0 and together[turn] <= _LAST_IN_FIRST_OUT * spread[turn]
    return turn if clear and sum_y[turn] - sum_x[turn] >= _SPAN * last * count[turn] else last


@routine
def _variables(g: MeanCostGraph, grouped: Ints) -> tuple[Ints, Bools]:
    """[n] unit of the variable that each place is, -1 for none; [n] whether it depends on no variable.

    A variable has no inputs and is in a group, or is computed from one alone.
    """
    variable, loose = np.full(len(grouped), -1, dtype=np.int64), np.empty(len(grouped), dtype=np.bool_)
    for at in range(len(grouped)):
        variable[at] = grouped[at] if g.entry[at] == g.entry[at + 1] else variable[g.tail[g.entry[at]]]
        for k in range(g.entry[at], g.entry[at + 1]):
            if variable[g.tail[k]] != variable[at]:
                variable[at] = -1
        loose[at] = variable[at] < 0
        for k in range(g.entry[at], g.entry[at + 1]):
            loose[at] = loose[at] and loose[g.tail[k]]
    return variable, loose


@routine
def _positions(g: MeanCostGraph, rows: _LayerTasks, turn: int) -> Ints:
    """[n] where each place stands: layer * (levels + 1) + level."""
    n = len(g.took)
    scale = rows.level.max() + 1 if n else 1
    position = np.full(n, _NOWHERE, dtype=np.int64)
    for at in range(n):
        if rows.variable[at] >= 0:
            if rows.stands[rows.variable[at]] != _NOWHERE:
                position[at] = rows.stands[rows.variable[at]] * scale
        elif not rows.loose[at]:
            if rows.level[at] > turn:
                position[at] = _back(g, rows, (at, turn), position)
                continue
            # Behind the latest variable that a forward task depends on.
            layer = np.int64(0)
            for k in range(g.entry[at], g.entry[at + 1]):
                if position[g.tail[k]] != _NOWHERE:
                    layer = max(layer, position[g.tail[k]] // scale)
            position[at] = layer * scale + rows.level[at]
    for at in range(n - 1, -1, -1):
        if position[at] == _NOWHERE:
            for k in range(g.offset[at], g.offset[at + 1]):
                position[at] = min(position[at], position[g.head[k]])
    return position


@subroutine
def _back(g: MeanCostGraph, rows: _LayerTasks, where: tuple[int, int], position: Ints) -> int:
    """With what a task beyond the turn reads most of, forward tasks before others; of equals, with the latest."""
    at, turn = where
    most, latest = np.int64(-1), np.int64(0)
    for beyond in range(2):
        for k in range(g.entry[at], g.entry[at + 1]):
            tail = g.tail[k]
            if position[tail] == _NOWHERE or (rows.level[tail] > turn) != bool(beyond) or g.cost[k] < 1 - beyond:
                continue
            if g.cost[k] > most or (g.cost[k] == most and position[tail] > latest):
                most, latest = g.cost[k], position[tail]
        if most >= 0:
            break
    return int(latest)


class StageItems(NamedTuple):
    """The sequence of c items that the program cuts into stages."""

    ticks: Ints
    """[c] ticks of each item."""
    memory: Ints
    """[c] bytes of each item."""
    cut: Ints
    """[c + 1] ticks of what crosses a cut before each item; 0 at both ends."""


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return stages along the chain of layers, the first at the first element. O(n log n + e + n log ticks)."""
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
    """Return [c] the stage of each item, rising: the least max(ticks of a stage, ticks of a cut) that room [k] allows.

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
