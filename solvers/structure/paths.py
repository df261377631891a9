"""Heads and tails: how early a task can start and how late it must finish at each location, whatever the rest does.

And the length of a schedule that does one thing at a time: a horizon that some optimal schedule keeps.
"""

from dataclasses import dataclass

import numpy as np

from solvers.arrays import Ints, ints
from solvers.compiled.dag import adjacency, topological_order
from solvers.compiled.kernels import kernel, spliced
from solvers.problem import Problem
from solvers.structure.units import Units, fastest_at, units_of

NEVER = 2**61
"""The head, tail or ticks of a task at a location where it cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocationPaths:
    """Per task and location, NEVER where the task's unit cannot be; all ticks are lower bounds in every schedule."""

    units: Units
    head: Ints
    """[n, l] earliest start of a task at a location."""
    took: Ints
    """[n, l] ticks of a task on the fastest device there."""
    tail: Ints
    """[n, l] least ticks from the finish of a task there to the end of the schedule."""


def paths_of(problem: Problem, units: Units | None = None, floors: tuple[Ints, Ints] | None = None) -> LocationPaths:
    """Return longest paths over (task, location): each predecessor sits where it delays the task least.

    A payload's transfer counts between two locations, and tasks of one unit share theirs. Contention counts nowhere.
    `units`: what is known beyond the groups of who shares a location, and where it can be. `floors`: heads and tails
    [n] that are known to hold wherever a task is. Raise ValueError when a unit can be nowhere. O(n m + e l^2).
    """
    units = units_of(problem) if units is None else units
    nowhere = np.flatnonzero(~units.allowed.any(axis=1))
    if len(nowhere):
        raise ValueError(f"task {np.argmax(units.unit == nowhere[0])} and its group have no location in common")
    took = fastest_at(problem)
    took[~units.allowed[units.unit]] = NEVER
    order = topological_order(problem.tasks, problem.src, problem.dst)
    start = [np.where(took == NEVER, NEVER, 0 if floors is None else floors[k][:, None]) for k in range(2)]
    forward = _edges_at(problem, problem.dst, problem.src)
    head = _sweep(order, forward, (took, units.unit), (problem.transfer, problem.path_class), start[0])
    hops = (problem.transfer, ints(problem.path_class.T))
    backward = _edges_at(problem, problem.src, problem.dst)
    tail = _sweep(np.ascontiguousarray(order[::-1]), backward, (took, units.unit), hops, start[1])
    return LocationPaths(units=units, head=ints(head), took=ints(took), tail=ints(tail))


def _edges_at(p: Problem, at: Ints, other: Ints) -> tuple[Ints, Ints, Ints]:
    offset, edge = adjacency(p.tasks, at)
    return offset, other[edge], p.payload[edge]


def _sweep(
    order: Ints, edges: tuple[Ints, Ints, Ints], tasks: tuple[Ints, Ints], hops: tuple[Ints, Ints], length: Ints
) -> Ints:
    """Return [n, l] the longest path of earlier tasks that leads to each task at each location, from `length`."""
    done, least = np.full_like(length, NEVER), np.full(len(order), NEVER, dtype=np.int64)
    _extend(order, edges, tasks, hops, (length, done, least))
    return length


@kernel
def _extend(
    order: Ints,
    edges: tuple[Ints, Ints, Ints],
    tasks: tuple[Ints, Ints],
    hops: tuple[Ints, Ints],
    found: tuple[Ints, Ints, Ints],
) -> None:
    """Fill the lengths, with the finishes there and the least of these."""
    offset, other, carried = edges
    took, unit = tasks
    length, done, least = found
    for task in order:
        for k in range(offset[task], offset[task + 1]):
            for there in range(took.shape[1]):
                if took[task, there] == NEVER:
                    continue
                last = other[k]
                known = done[last, there]
                if unit[last] != unit[task] and known > least[last]:
                    known = least[last] if carried[k] < 0 else _cheapest(done[last], hops, carried[k], there)
                length[task, there] = max(length[task, there], known)
        for there in range(took.shape[1]):
            if took[task, there] != NEVER:
                done[task, there] = length[task, there] + took[task, there]
                least[task] = min(least[task], done[task, there])


@spliced
def _cheapest(done: Ints, hops: tuple[Ints, Ints], payload: int, there: int) -> int:
    """Return the least of done at a location and then the transfer from it."""
    transfer, path_class = hops
    best = NEVER
    for here in range(len(done)):
        if done[here] < best:
            ticks = 0 if here == there else transfer[payload, path_class[here, there]]
            best = min(best, done[here] + ticks)
    return best


def serial(problem: Problem) -> int:
    """Return the ticks of one activity at a time, each as slow as it can be: an optimum never takes longer."""
    return longest(problem, problem.duration, problem.transfer)


def longest(problem: Problem, duration: Ints, transfer: Ints) -> int:
    """Return the sum of the largest of every row, a transfer's for every target; in integers that do not overflow.

    `duration` [n, m] and `transfer` [p, c], of which negative entries count as 0.
    """
    crossings = zip(targets(problem).tolist(), transfer.max(axis=1, initial=0).tolist(), strict=True)
    return sum(duration.max(axis=1, initial=0).tolist()) + sum(times * ticks for times, ticks in crossings)


def targets(problem: Problem) -> Ints:
    """Return [p] locations that each payload may cross to, at most."""
    distinct = np.unique(np.stack([problem.payload, problem.dst]), axis=1)[0]
    consumers = np.bincount(distinct[distinct >= 0], minlength=problem.payloads)
    return np.minimum(consumers, max(0, problem.locations - 1)).astype(np.int64)
