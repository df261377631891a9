"""Units: the sets of tasks that must share a location, groups or single tasks, and where each can be."""

from dataclasses import dataclass

import numpy as np

from solvers.arrays import Bools, Ints, bools, ints
from solvers.compiled.kernels import kernel
from solvers.problem import FORBIDDEN, Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Units:
    """A partition of the n tasks into u units."""

    unit: Ints
    """[n] unit of each task."""
    allowed: Bools
    """[u, l] whether each of a unit's tasks has a device at a location that can run it; all False is a proof that no
    schedule exists."""
    memory: Ints
    """[u] bytes of a unit."""


def units_of(problem: Problem) -> Units:
    """The units that the groups imply, groups first (by number), then single tasks (by index). O(n (m + l))."""
    alone = problem.group < 0
    label = np.where(alone, np.arange(problem.tasks) + int(problem.group.max(initial=-1)) + 1, problem.group)
    return merged(problem, label)


def placeable_units(problem: Problem) -> Units:
    """The same for methods that place every unit; ValueError when one can be nowhere, as its tasks' devices differ."""
    units = units_of(problem)
    nowhere = np.flatnonzero(~units.allowed.any(axis=1))
    if len(nowhere):
        task = np.flatnonzero(units.unit == nowhere[0])[0]
        raise ValueError(f"no location can run task {task} and all of its group")
    return units


def merged(problem: Problem, label: Ints) -> Units:
    """The units that a label for each task, [n], implies; numbered by increasing label."""
    _, unit = np.unique(label, return_inverse=True)
    order = np.argsort(unit, kind="stable")
    first = np.flatnonzero(np.diff(unit[order], prepend=-1))
    allowed, memory = locations_of(problem), problem.memory
    if problem.tasks:
        allowed = np.logical_and.reduceat(allowed[order], first, axis=0)
        memory = np.add.reduceat(memory[order], first)
    return Units(unit=ints(unit), allowed=bools(allowed), memory=ints(memory))


def distinct(rows: Bools) -> tuple[Ints, Ints]:
    """An example of each distinct row, [d], and the number among these of every row, [n]. O(n (columns + log n)).

    Rows are named by sums of random numbers; two sets might share a name, though none ever will.
    """
    name = rows @ np.random.default_rng(0).integers(1, 2**40, rows.shape[1])
    _, example, which = np.unique(name, return_index=True, return_inverse=True)
    return ints(example), ints(which)


def locations_of(problem: Problem) -> Bools:
    """[n, l] whether a task can run at a location, groups aside."""
    found = np.zeros((problem.tasks, problem.locations), dtype=np.bool_)
    for device, location in enumerate(problem.location.tolist()):
        found[:, location] |= problem.allowed[:, device]
    return found


def fastest_at(problem: Problem) -> Ints:
    """[n, l] least ticks of a task over the devices of a location, FORBIDDEN where none can run it."""
    none = np.iinfo(np.int64).max
    found = least_at(problem, np.ones(problem.devices, dtype=np.int64), none)
    return np.where(found == none, FORBIDDEN, found)


def least_at(problem: Problem, weight: Ints, none: int) -> Ints:
    """[n, l] least weighted ticks of a task over the devices of a location, `none` where none can run it.

    weight: [m], by which the ticks on each device are multiplied.
    """
    found = np.full((problem.tasks, problem.locations), none, dtype=np.int64)
    _least_at(problem.duration, problem.location, weight, found)
    return found


@kernel
def _least_at(duration: Ints, location: Ints, weight: Ints, found: Ints) -> None:
    for task in range(len(duration)):
        for device in range(len(location)):
            ticks = duration[task, device]
            if ticks >= 0:
                there = location[device]
                found[task, there] = min(found[task, there], ticks * weight[device])
