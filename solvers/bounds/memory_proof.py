"""Proofs, in a line of numbers, that no placement satisfies memory and groups.

Each is tried on what the ones before leave: units that fit one location only fill it, which leaves fewer for others.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from solvers.arrays import Ints, bools, offsets
from solvers.problem import Problem
from solvers.structure.units import Units, distinct, every_packing, units_of

_SETS = 256
"""Sets of locations whose memory is summed at most: the smallest."""


def proof(problem: Problem) -> str | None:
    """Return why no placement satisfies memory and groups; None when no proof is found. O(u l log u), u units.

    Each unit alone; the bytes of the units that each set of locations must hold; the number of locations that these
    need, packed whole (bound L2 of Martello and Toth 1990); and all packings, where they are few.
    """
    return next(_proofs(problem), None)


def _proofs(p: Problem) -> Iterator[str]:
    units = units_of(p)
    room = np.where(units.allowed, p.capacity, -1).max(axis=1, initial=-1)
    for unit in np.flatnonzero(units.memory > room)[:1].tolist():
        name = _named(p, units, unit)
        if room[unit] < 0:
            yield f"{name}: no location can run all of its tasks"
        else:
            need, most = int(units.memory[unit]), int(room[unit])
            yield f"{name} needs {need} bytes, the largest location for it has {most}: {need - most} bytes short"
    yield from _sets(p, units)
    fitting, why = fitting_units(p, units)
    if why:
        yield why
    else:
        yield from _sets(p, fitting)
        _, nodes = every_packing(fitting, p.capacity)
        if nodes >= 0:
            needy = fitting.memory[fitting.memory > 0].tolist()
            what = f"{len(needy)} tasks and groups of {sum(needy)} bytes"
            yield f"no packing of {what} into {p.locations} locations: none of {nodes} partial ones can be completed"


def fitting_units(p: Problem, units: Units) -> tuple[Units, str]:
    """Remove the locations that have no room for a unit beside what can only be there; return why one is left none.

    The reason is empty where each unit has a location.
    """
    allowed = units.allowed
    while True:
        alone = np.count_nonzero(allowed, axis=1) == 1
        held = np.where(allowed & alone[:, None], units.memory[:, None], 0)
        room = p.capacity - held.sum(axis=0) + held
        tighter = allowed & (units.memory[:, None] <= room)
        if (tighter == allowed).all():
            return replace(units, allowed=bools(allowed)), ""
        stuck = np.flatnonzero(~tighter.any(axis=1))
        if len(stuck):
            unit = int(stuck[np.argmax(units.memory[stuck])])
            need, most, name = int(units.memory[unit]), int(room[unit].max()), _named(p, units, unit)
            why = f"{name} needs {need} bytes, which what can only be there leaves at none of its locations"
            if most < need:
                short = f"{need - most} bytes short"
                why = f"{name} needs {need} bytes, what can only be elsewhere leaves at most {most}: {short}"
            return replace(units, allowed=bools(tighter)), why
        allowed = tighter


def packed_bins(sizes: Ints, capacity: int) -> int:
    """Return the bins of a capacity that items of these sizes, each <= `capacity`, need at least.

    L2 of Martello and Toth. For each a <= capacity / 2: the items above capacity - a, and those above half, each in a
    bin of its own; those from a to half fill what the latter leave, and more bins. Sizes sum to 62 bits.
    """
    item = np.sort(sizes)[::-1]
    total = offsets(item)
    above_half = int(np.count_nonzero(2 * item > capacity))
    # Only sizes that occur, and 0, can change the bound as thresholds: all of them are evaluated at once on prefix sums
    # of the sorted sizes, in O(n log n).
    least = np.unique(np.append(item[above_half:], 0))
    alone = np.searchsorted(-item, -(capacity - least), side="left")
    small = np.searchsorted(-item, -least, side="right")
    left = (above_half - alone) * capacity - (total[above_half] - total[alone])
    more = np.maximum(0, total[np.maximum(small, above_half)] - total[above_half] - left)
    return int((above_half + -(-more // max(capacity, 1))).max())


def _named(p: Problem, units: Units, unit: int) -> str:
    task = int(np.argmax(units.unit == unit))
    return f"group {p.group[task]}" if p.group[task] >= 0 else f"task {task}"


def _sets(p: Problem, units: Units) -> Iterator[str]:
    example, which = distinct(units.allowed)
    sets, held = units.allowed[example], np.zeros(len(example), dtype=np.int64)
    np.add.at(held, which, units.memory)
    for among in (*sets[np.argsort(np.count_nonzero(sets, axis=1), kind="stable")[:_SETS]], sets.any(axis=0)):
        inside = ~(sets & ~among).any(axis=1)
        need, most = sum(held[inside].tolist()), sum(p.capacity[among].tolist())
        places = ", ".join(map(str, np.flatnonzero(among).tolist()))
        if need > most:
            yield (
                f"the tasks confined to locations {places} need {need} bytes, "
                f"these have {most}: {need - most} bytes short"
            )
        elif among.any() and (bins := _bins(p.capacity[among], units.memory[inside[which]])) > among.sum():
            lack = "" if len(set(p.capacity[among].tolist())) == 1 else ", with what the smaller ones lack of that"
            yield (
                f"the tasks confined to locations {places} need {need} bytes, these have {most}, but packed whole "
                f"they fill {bins} of {int(p.capacity[among].max())} bytes{lack}"
            )


def _bins(capacity: Ints, memory: Ints) -> int:
    """Return the locations needed when all are as large as the largest and what the others lack is packed, too."""
    most = int(capacity.max())
    if most * (len(capacity) + 1) >= 2**62:
        return 0
    return packed_bins(np.concatenate([memory, most - capacity]), most)
