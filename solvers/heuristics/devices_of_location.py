"""From locations to devices: where methods may choose, which device of a location each task gets; two simple methods.

Round robin and random placement decide locations alone. What their sources do not have, groups and device kinds, is
respected: a unit's turn comes with its first task, and skips the locations that cannot take it.
"""

import numpy as np

from solvers.arrays import Bools, Ints, ints
from solvers.compiled.dag import adjacency, tails, topological_order
from solvers.compiled.kernels import routine
from solvers.heuristics.methods import Placement
from solvers.problem import Problem, least_ticks
from solvers.result import Options
from solvers.structure.units import Units, placeable_units


def elements(units: Units) -> Ints:
    """Locations among which a method chooses (the processing elements): those of units that have a choice.

    All that any unit can use when no unit has one.
    """
    choice = np.count_nonzero(units.allowed, axis=1) > 1
    useful = units.allowed[choice] if choice.any() else units.allowed
    return ints(np.flatnonzero(useful.any(axis=0)))


def devices_at(problem: Problem, location: Ints) -> Ints:
    """Return [n] a device at the wished location of each task that can run there, else at the first that it can run on.

    location: [n]. Where a location has several devices (the cores of a host), each task gets the one that is free
    first when they are served by the earliest time at which their inputs can be there. O(n m + n log n + e).
    """
    here = problem.allowed & (problem.location[None, :] == location[:, None])
    device = np.where(here.any(axis=1), here.argmax(axis=1), problem.allowed.argmax(axis=1))
    at = problem.location[device]
    crowded = np.flatnonzero(np.bincount(problem.location, minlength=problem.locations) > 1).tolist()
    if not crowded:
        return ints(device)
    head = earliest(problem)
    for place in crowded:
        tasks = np.flatnonzero(at == place)
        tasks = tasks[np.argsort(head[tasks], kind="stable")]
        devices = np.flatnonzero(problem.location == place)
        device[tasks] = _shared_out(tasks, head, devices, problem.duration, problem.allowed)
    return ints(device)


def earliest(problem: Problem) -> Ints:
    """[n] earliest start of each task when nothing but precedence and the shortest durations count. O(n m + e)."""
    took, order = least_ticks(problem), topological_order(problem.tasks, problem.src, problem.dst)
    offset, edge = adjacency(problem.tasks, problem.dst)
    return tails(order[::-1].copy(), took, (offset, problem.src[edge], np.zeros_like(edge))) - took


@routine
def _shared_out(tasks: Ints, head: Ints, devices: Ints, duration: Ints, allowed: Bools) -> Ints:
    free = np.zeros(len(devices), dtype=np.int64)
    chosen = np.empty(len(tasks), dtype=np.int64)
    for k in range(len(tasks)):
        best = -1
        for d in range(len(devices)):
            if allowed[tasks[k], devices[d]] and (best < 0 or free[d] < free[best]):
                best = d
        free[best] = max(free[best], head[tasks[k]]) + duration[tasks[k], devices[best]]
        chosen[k] = devices[best]
    return chosen


def place_in_turn(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """One location after the other. O(n l + e)."""
    units = placeable_units(problem)
    order = topological_order(problem.tasks, problem.src, problem.dst)
    at = _in_turn(order, units.unit, units.allowed)
    return Placement(device=devices_at(problem, at[units.unit]))


@routine
def _in_turn(order: Ints, unit: Ints, allowed: Bools) -> Ints:
    at = np.full(len(allowed), -1, dtype=np.int64)
    turn = 0
    for task in order:
        if at[unit[task]] >= 0:
            continue
        for step in range(allowed.shape[1]):
            there = (turn + step) % allowed.shape[1]
            if allowed[unit[task], there]:
                at[unit[task]] = there
                break
        if np.count_nonzero(allowed[unit[task]]) > 1:
            turn = at[unit[task]] + 1
    return at


def place_at_random(problem: Problem, options: Options) -> Placement:
    """Uniform, from `options.seed`. O(n l)."""
    units = placeable_units(problem)
    drawn = np.random.default_rng(options.seed).random(units.allowed.shape)
    return Placement(device=devices_at(problem, np.where(units.allowed, drawn, -1.0).argmax(axis=1)[units.unit]))
