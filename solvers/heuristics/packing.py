"""Memory first: units packed into locations, for when a list scheduler runs out of room."""

from collections.abc import Iterator

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.kernels import routine
from solvers.problem import Problem
from solvers.structure.units import Units, every_packing

_FIRST, _ROOMIEST, _TIGHTEST = range(3)


def packings(problem: Problem, units: Units) -> Iterator[tuple[Ints, int]]:
    """Ways to put every unit somewhere: ([u] locations, -1 where no room was left; bytes of those units).

    The units largest first, or those with fewest locations first, or in the given order of their first task, each
    to the first, the roomiest or the tightest location that can take it (first and best fit decreasing, Johnson 1974).
    Where none of these holds every unit, the packing that looking at all finds, with -1 for units without bytes.
    """
    choices = np.count_nonzero(units.allowed, axis=1)
    first = np.full(len(units.memory), problem.tasks, dtype=np.int64)
    np.minimum.at(first, units.unit, np.arange(problem.tasks))
    orders = (
        np.argsort(-units.memory, kind="stable"),
        np.lexsort((-units.memory, choices)),
        np.lexsort((first, choices)),
    )
    lacks = True
    for order in orders:
        for policy in (_ROOMIEST, _TIGHTEST, _FIRST):
            at = _pack(order, units.allowed, units.memory, problem.capacity, policy)
            short = int(units.memory[at < 0].sum())
            lacks = lacks and short > 0
            yield at, short
    if lacks:
        whole, _ = every_packing(units, problem.capacity)
        if whole is not None:
            yield whole, 0


@routine
def _pack(order: Ints, allowed: Bools, memory: Ints, capacity: Ints, policy: int) -> Ints:
    at, room = np.full(len(memory), -1, dtype=np.int64), capacity.copy()
    for unit in order:
        best = -1
        for there in range(len(room)):
            if not allowed[unit, there] or room[there] < memory[unit]:
                continue
            roomier = best >= 0 and room[there] > room[best]
            tighter = best >= 0 and room[there] < room[best]
            if best < 0 or (policy == _ROOMIEST and roomier) or (policy == _TIGHTEST and tighter):
                best = there
        if best >= 0:
            at[unit] = best
            room[best] -= memory[unit]
    return at
