"""All packings of units into locations, looked at one by one: the first that holds every unit, or that none does."""

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.kernels import routine, spliced
from solvers.structure.units import Units

_UNITS = 2000
"""Units of which packings are looked at at most."""
_NODES = 300_000
"""Partial packings that are looked at at most."""


def every_packing(units: Units, capacity: Ints) -> tuple[Ints | None, int]:
    """Locations, [u], that hold every unit, -1 for those without bytes; and how many partial packings lead to none.

    (None, k): none of the k partial packings can be completed, so no packing exists. (None, -1): the units or their
    partial packings are too many to tell. capacity: [l] bytes.
    """
    order = np.argsort(-units.memory, kind="stable")
    order = order[units.memory[order] > 0]
    if len(order) > _UNITS:
        return None, -1
    memory, allowed = units.memory[order], units.allowed[order]
    _, alike = np.unique(allowed, axis=1, return_inverse=True)
    choice = np.full(len(order) + 1, -1, dtype=np.int64)
    room = np.minimum(capacity, memory.sum())
    nodes = _packings(memory, allowed, room, alike.ravel().astype(np.int64), choice)
    if (choice[:-1] < 0).any():
        return None, nodes
    at = np.full(len(units.memory), -1, dtype=np.int64)
    at[order] = choice[:-1]
    return at, -1


@routine
def _packings(memory: Ints, allowed: Bools, room: Ints, alike: Ints, choice: Ints) -> int:
    """Put the first packing into `choice`; else return the number of partial ones, -1 when they are too many.

    The first packing in lexicographic order is not lost: of equal units the earlier is at the lower location, and of
    locations alike, with equal room, a unit is at the first (else swap the two).
    """
    units, nodes, at = len(memory), 0, int(np.int64(0))
    rest = np.zeros(units + 1, dtype=np.int64)
    for unit in range(units - 1, -1, -1):
        rest[unit] = rest[unit + 1] + memory[unit]
    while 0 <= at < units:
        if choice[at] >= 0:
            room[choice[at]] += memory[at]
        choice[at] = _next(memory, allowed, room, alike, (at, choice))
        if choice[at] < 0:
            at -= 1
            continue
        nodes += 1
        room[choice[at]] -= memory[at]
        if at == units - 1 or nodes > _NODES:
            return -1
        # A location with less room than the smallest unit is full.
        if np.sum(room[room >= memory[units - 1]]) >= rest[at + 1]:
            at += 1
            choice[at] = -1
    return nodes


@spliced
def _next(memory: Ints, allowed: Bools, room: Ints, alike: Ints, where: tuple[int, Ints]) -> int:
    """The next location for a unit, -1 for none."""
    at, choice = where
    first = choice[at] + 1
    if at > 0 and memory[at] == memory[at - 1] and np.all(allowed[at] == allowed[at - 1]):
        first = max(first, choice[at - 1])
    for place in range(first, len(room)):
        if allowed[at, place] and room[place] >= memory[at]:
            twin = False
            for other in range(place):
                twin = twin or (alike[other] == alike[place] and room[other] == room[place])
            if not twin:
                return place
    return -1
