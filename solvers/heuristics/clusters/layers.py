"""A training step as a chain of layers, from its graph alone: where each unit stands when backward is folded back.

PipeDream (Narayanan et al. 2019, 3.1) and other pipelines cut a chain of layers, each with its forward and backward
pass and its weights. Here a layer is what follows a variable, and backward operations stand with the forward
operations whose outputs they read:

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

from solvers.arrays import Bools, Ints, ints
from solvers.compiled.dag import heights
from solvers.compiled.kernels import routine, subroutine
from solvers.heuristics.lists.means import MeanCostGraph, dag_of, mean_transfers
from solvers.problem import Problem
from solvers.structure.units import Units

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
    """[u] the units along the chain. O(n log n + e log e)."""
    # An edge that only orders is known by its 0.
    weight = np.zeros(problem.edges, dtype=np.int64)
    carries = problem.payload >= 0
    weight[carries] = 1 + mean_transfers(problem, np.arange(problem.locations))[problem.payload[carries]]
    g = dag_of(problem, np.ones(problem.tasks, dtype=np.int64), weight)
    unit, heads = units.unit[g.order], np.repeat(np.arange(problem.tasks), np.diff(g.entry))
    rows, turn = _rows(problem, g, unit, heads)
    position = _positions(g, rows, turn)
    first = np.full(len(units.memory), _NOWHERE)
    np.minimum.at(first, unit, position)
    return ints(np.argsort(np.where(rows.stands == _NOWHERE, first, rows.stands * _scale(rows.level)), kind="stable"))


def _rows(problem: Problem, g: MeanCostGraph, unit: Ints, heads: Ints) -> tuple[_LayerTasks, int]:
    """With the last forward level. unit: [n] by place. heads: [e] the place that each edge of `g.tail` enters."""
    level = heights(problem.tasks, problem.src, problem.dst)[g.order]
    variable = _variables(g, np.where(problem.group[g.order] >= 0, unit, -1))
    loose = _loose(g, variable)
    mixed = (variable < 0)[g.tail] & ~loose[g.tail]
    turn = last_forward(level, g.tail[mixed & (g.cost > 0)], heads[mixed & (g.cost > 0)])
    other = np.zeros(problem.tasks, dtype=bool)
    other[heads[mixed]] = True
    other &= level <= turn
    reads = (variable[g.tail] >= 0) & (variable[heads] < 0)
    read, reader = variable[g.tail[reads]], heads[reads]
    stands, alone = np.full((2, int(unit.max(initial=-1)) + 1), _NOWHERE)
    np.minimum.at(stands, read[other[reader]], level[reader[other[reader]]])
    np.minimum.at(alone, read, level[reader])
    loose &= bool((variable >= 0).any())
    return _LayerTasks(level, variable, loose, np.where(stands == _NOWHERE, alone, stands)), turn


def last_forward(level: Ints, tail: Ints, head: Ints) -> int:
    """The last level of the forward pass; the last of all where nothing is to be folded.

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


def _scale(level: Ints) -> int:
    """Return the weight of a layer in a position: more than any level."""
    return int(level.max(initial=0)) + 1


@routine
def _variables(g: MeanCostGraph, grouped: Ints) -> Ints:
    """[n] unit of the variable that each place is: one without inputs in a group, or computed from one alone, or -1."""
    variable = np.full(len(grouped), -1, dtype=np.int64)
    for at in range(len(grouped)):
        variable[at] = grouped[at] if g.entry[at] == g.entry[at + 1] else variable[g.tail[g.entry[at]]]
        for k in range(g.entry[at], g.entry[at + 1]):
            if variable[g.tail[k]] != variable[at]:
                variable[at] = -1
    return variable


@routine
def _loose(g: MeanCostGraph, variable: Ints) -> Bools:
    """[n] whether each place depends on no variable."""
    loose = variable < 0
    for at in range(len(variable)):
        for k in range(g.entry[at], g.entry[at + 1]):
            loose[at] = loose[at] and loose[g.tail[k]]
    return loose


@routine
def _positions(g: MeanCostGraph, rows: _LayerTasks, turn: int) -> Ints:
    """[n] where each place stands: layer * `_scale` + level."""
    n = len(g.took)
    scale = rows.level.max() + 1 if n else 1
    position = np.full(n, _NOWHERE, dtype=np.int64)
    for at in range(n):
        if rows.variable[at] >= 0:
            if rows.stands[rows.variable[at]] != _NOWHERE:
                position[at] = rows.stands[rows.variable[at]] * scale
        elif not rows.loose[at]:
            forward = rows.level[at] <= turn
            position[at] = _ahead(g, rows, at, position, scale) if forward else _back(g, rows, (at, turn), position)
    for at in range(n - 1, -1, -1):
        if position[at] == _NOWHERE:
            for k in range(g.offset[at], g.offset[at + 1]):
                position[at] = min(position[at], position[g.head[k]])
    return position


@subroutine
def _ahead(g: MeanCostGraph, rows: _LayerTasks, at: int, position: Ints, scale: int) -> int:
    """Behind the latest variable that a forward task depends on."""
    layer = np.int64(0)
    for k in range(g.entry[at], g.entry[at + 1]):
        if position[g.tail[k]] != _NOWHERE:
            layer = max(layer, position[g.tail[k]] // scale)
    return layer * scale + rows.level[at]


@subroutine
def _back(g: MeanCostGraph, rows: _LayerTasks, where: tuple[int, int], position: Ints) -> int:
    """With what a task beyond the turn reads most of, forward tasks before others; of equals, with the latest."""
    at, turn = where
    most, found = np.int64(-1), np.int64(0)
    for beyond in range(2):
        for k in range(g.entry[at], g.entry[at + 1]):
            tail = g.tail[k]
            if position[tail] == _NOWHERE or (rows.level[tail] > turn) != bool(beyond) or g.cost[k] < 1 - beyond:
                continue
            if g.cost[k] > most or (g.cost[k] == most and position[tail] > found):
                most, found = g.cost[k], position[tail]
        if most >= 0:
            break
    return int(found)
