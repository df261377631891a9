"""Which tasks must share a location, which cannot, and in which order they run, in every schedule of some ticks."""

from dataclasses import replace
from itertools import combinations

import numpy as np

from solvers.arrays import Bools, Ints, bools
from solvers.bounds.distances import Distances
from solvers.bounds.loads import Jobs, preemptive
from solvers.bounds.schedule_facts import ScheduleFacts, confined, raised, united
from solvers.compiled.dag import topological_order
from solvers.structure.paths import NEVER

_UNITS = 30


def separated(known: ScheduleFacts, found: Distances | None) -> ScheduleFacts | None:
    """With the pairs of tasks that cannot share a location; None where two of one unit are such a pair.

    Their units have no location in common with memory and time for both, or they have no room in their windows one
    after the other on the only device for both, or their distance at one location is too long, or their units have
    such a pair.
    """
    apart = (_no_room(known) | _no_time(known))[known.unit[:, None], known.unit[None, :]]
    busy = known.took > 0
    # Without time to run before the other, and the other way round. A comparable pair has one order only.
    late = _late(known)
    apart |= one_device(known) & np.outer(busy, busy) & late & late.T
    if found is not None:
        apart |= _too_far(known, found, found.near)
    if len(known.apart):
        apart |= known.apart
    np.fill_diagonal(apart, val=False)
    # With every pair of tasks of two units of which some pair is one of `pairs`.
    some = np.zeros((len(known.paths.units.allowed),) * 2, dtype=np.bool_)
    one, two = np.nonzero(apart)
    some[known.unit[one], known.unit[two]] = True
    apart = some[known.unit[:, None], known.unit[None, :]]
    return None if apart.diagonal().any() else replace(known, apart=bools(apart))


def joined(known: ScheduleFacts, found: Distances) -> ScheduleFacts | None:
    """With pairs at one location whose distance at two is too long; None as in `known_within`.

    Of two locations, all that is apart from a third task is together, too.
    """
    together = _too_far(known, found, found.far)
    if np.count_nonzero(known.paths.units.allowed.any(axis=0)) == 2:
        # As floats, since numpy multiplies integer matrices without BLAS.
        apart = known.apart.astype(np.float32)
        together |= apart @ apart > 0
    one, two = np.nonzero(np.triu(together) & (known.unit[:, None] != known.unit[None, :]))
    return united(known, one, two) if len(one) else known


def ordered(known: ScheduleFacts, found: Distances) -> ScheduleFacts | None:
    """With an edge wherever two tasks are on one device and only one order has time; None where these make a cycle."""
    p = known.problem
    comparable = np.empty((p.tasks, p.tasks), dtype=np.bool_)
    comparable[np.ix_(found.task, found.task)] = found.near[1:-1, 1:-1] >= 0
    busy = known.took > 0
    open_ = one_device(known) & (known.unit[:, None] == known.unit[None, :]) & np.outer(busy, busy)
    open_ &= ~(comparable | comparable.T)
    np.fill_diagonal(open_, val=False)
    then, before = np.nonzero(_late(known) & open_)
    if not len(then):
        return known
    src, dst = np.concatenate([p.src, before]), np.concatenate([p.dst, then])
    if len(topological_order(p.tasks, src, dst)) < p.tasks:
        return None
    more = replace(p, src=src, dst=dst, payload=np.concatenate([p.payload, np.full(len(then), -1)]))
    return raised(replace(known, problem=more), known.head, known.tail)


def unloaded(known: ScheduleFacts) -> ScheduleFacts | None:
    """Without the locations where the work of a unit, and of all that can only be there, takes too long.

    And without those of tasks that are apart from one of the unit and can only be there.
    """
    units = known.paths.units
    size = np.bincount(known.unit, minlength=len(units.allowed))
    fixed = np.count_nonzero(units.allowed, axis=1) == 1
    taken = known.apart.astype(np.float32) @ (known.able & fixed[known.unit][:, None]).astype(np.float32) > 0
    allowed = units.allowed.copy()
    np.logical_and.at(allowed, known.unit, ~taken)
    for place in range(units.allowed.shape[1]):
        there = (fixed & units.allowed[:, place])[known.unit]
        if not _fits(known, there, place):
            return None
        for unit in np.flatnonzero(units.allowed[:, place] & ~fixed & ((size > 1) | there.any())).tolist():
            allowed[unit, place] = _fits(known, there | (known.unit == unit), place)
    return known if (allowed == units.allowed).all() else confined(known, allowed)


def one_device(known: ScheduleFacts) -> Bools:
    """[n, n] pairs that can only run on one and the same device wherever they share a location."""
    p, able = known.problem, known.able
    found = np.ones((p.tasks, p.tasks), dtype=np.bool_)
    for place in range(p.locations):
        can = p.allowed[:, p.location == place]
        single = np.count_nonzero(can, axis=1) == 1
        only = np.where(single, can.argmax(axis=1), -1) if can.shape[1] else np.full(p.tasks, -1)
        alike = (only[:, None] == only[None, :]) & single[:, None]
        found &= alike | ~np.outer(able[:, place], able[:, place])
    return found


def _no_room(known: ScheduleFacts) -> Bools:
    """[u, u] units that no location has the memory for, both together."""
    units, capacity = known.paths.units, known.problem.capacity
    found = np.ones((len(units.memory),) * 2, dtype=np.bool_)
    for place in range(len(capacity)):
        room = units.memory[:, None] + units.memory[None, :] <= capacity[place]
        found &= ~(room & np.outer(units.allowed[:, place], units.allowed[:, place]))
    np.fill_diagonal(found, val=False)
    return found


def _no_time(known: ScheduleFacts) -> Bools:
    """[u, u] units, one of several tasks, that no location has the time for, both together; of the _UNITS longest."""
    units = known.paths.units
    size = np.bincount(known.unit, minlength=len(units.memory))
    work = np.bincount(known.unit, weights=known.took, minlength=len(size))
    found = np.zeros((len(size),) * 2, dtype=np.bool_)
    longest = np.argsort(-work, kind="stable")[:_UNITS].tolist() if (size > 1).any() else []
    for one, two in combinations(longest, 2):
        if max(size[one], size[two]) > 1:
            both = (known.unit == one) | (known.unit == two)
            places = np.flatnonzero(units.allowed[one] & units.allowed[two]).tolist()
            found[one, two] = found[two, one] = not any(_fits(known, both, place) for place in places)
    return found


def _late(known: ScheduleFacts) -> Bools:
    """[n, n] at [j, i]: whether j has no time to finish before i starts."""
    head, took, tail = known.head, known.took, known.tail
    return bools((head + took)[:, None] + (took + tail)[None, :] > known.upper)


def _too_far(known: ScheduleFacts, found: Distances, distance: Ints) -> Bools:
    """[n, n] comparable pairs that this distance, [n + 2, n + 2], leaves no time for; symmetric."""
    between = np.empty((known.problem.tasks,) * 2, dtype=np.int64)
    between[np.ix_(found.task, found.task)] = distance[1:-1, 1:-1]
    head, took, tail = known.head, known.took, known.tail
    late = (between >= 0) & (between + (head + took)[None, :] + (took + tail)[:, None] > known.upper)
    return late | late.T


def _fits(known: ScheduleFacts, tasks: Bools, place: int) -> bool:
    """Return True if the devices of a location can do the work of these tasks, and each what it alone can do there."""
    p, paths = known.problem, known.paths
    can = p.allowed[:, p.location == place]
    alone = can & (np.count_nonzero(can, axis=1) == 1)[:, None]
    sets = [(tasks, can.shape[1]), *((tasks & alone[:, k], 1) for k in range(can.shape[1] if can.shape[1] > 1 else 0))]
    for some, speed in sets:
        at = np.flatnonzero(some & (paths.took[:, place] < NEVER))
        jobs = Jobs(paths.head[at, place] * speed, paths.took[at, place], paths.tail[at, place] * speed)
        if preemptive(jobs) > known.upper * speed:
            return False
    return True
