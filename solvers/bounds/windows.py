"""Time windows of tasks, and what else must hold in every schedule of at most some ticks.

Which tasks must share a location, which cannot, where each can be, and in which order they run: facts from longest
paths, groups and memory, and for few tasks from the distances of all pairs.
"""

import math
import time
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from solvers.arrays import Bools, Ints, bools, ints
from solvers.bounds.distances import DENSE, DistanceArguments, Distances, PathLengths, distances
from solvers.bounds.distances import NEVER as NO_DISTANCE
from solvers.bounds.quick_bounds import (
    Jobs,
    device_weights,
    fitting_units,
    link_window,
    preemptive,
    unit_load,
)
from solvers.compiled.dag import connected, topological_order
from solvers.problem import Problem
from solvers.structure.units import NEVER, LocationPaths, Units, least_at, paths_of, units_of

_PATH_ROUNDS, _ROUNDS = 100, 30
"""Rounds of longest paths, and of all arguments, after which what is known must do."""
_UNITS = 30
"""Number of units, those of most work, of which pairs are tested for time at one location."""
_EFFORT_A_SECOND = 25_000_000
"""Units of `DistanceArguments.effort` that one core does in about a second."""
_LONGEST = 2**45
"""Ticks beyond which weighted sums over all pairs might overflow."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduleFacts:
    """Facts about every schedule of a problem with a makespan of at most `upper`."""

    problem: Problem
    """With an edge without payload for each order of two tasks that was found to be the only one."""
    upper: int
    paths: LocationPaths
    """Units that must share a location, where each can be, and the heads and tails of tasks there."""
    apart: Bools
    """[n, n] tasks that cannot share a location, symmetric; [0, 0] where pairs were not looked at."""

    @property
    def head(self) -> Ints:
        """[n] earliest start of each task."""
        return ints(self.paths.head.min(axis=1, initial=NEVER))

    @property
    def tail(self) -> Ints:
        """[n] least ticks from the finish of each task to the end of the schedule."""
        return ints(self.paths.tail.min(axis=1, initial=NEVER))

    @property
    def took(self) -> Ints:
        """[n] least ticks of each task."""
        return ints(self.paths.took.min(axis=1, initial=NEVER))

    @property
    def unit(self) -> Ints:
        """[n] tasks of one unit share a location."""
        return self.paths.units.unit

    @property
    def able(self) -> Bools:
        """[n, l] where each task can be."""
        return self.paths.units.allowed[self.unit]


def known_within(problem: Problem, upper: int) -> ScheduleFacts | None:
    """Return the facts from longest paths, groups and memory; None proves that no schedule takes `upper` ticks."""
    nothing = np.zeros(problem.tasks, dtype=np.int64)
    return _propagate(problem, upper, units_of(problem), (nothing, nothing))


def with_times(known: ScheduleFacts, head: Ints, tail: Ints) -> ScheduleFacts | None:
    """Add heads and tails, [n], that hold too, and all that follows; None as in `known_within`."""
    return _again(known, known.paths.units, (np.maximum(known.head, head), np.maximum(known.tail, tail)))


def with_locations(known: ScheduleFacts, allowed: Bools) -> ScheduleFacts | None:
    """Allow each unit only where `allowed`, [u, l], too, and add all that follows; None as in `known_within`."""
    units = replace(known.paths.units, allowed=bools(known.paths.units.allowed & allowed))
    return _again(known, units, (known.head, known.tail))


def with_shared_locations(known: ScheduleFacts, one: Ints, two: Ints) -> ScheduleFacts | None:
    """Put tasks `one[k]` and `two[k]` at one location, and add all that follows; None as in `known_within`."""
    return _again(known, _joined(known.paths.units, one, two), (known.head, known.tail))


def edge_ticks(known: ScheduleFacts) -> tuple[Ints, Ints]:
    """Return [e] least ticks from finish to start of an edge's ends at one location, and [e] at two.

    `solvers.bounds.distances.NEVER` where that cannot be.
    """
    p, able, unit = known.problem, known.able, known.unit
    near = np.where((able[p.src] & able[p.dst]).any(axis=1), 0, NO_DISTANCE)
    far = np.full(p.edges, NO_DISTANCE, dtype=np.int64)
    for here, there in _hops(p):
        both = able[p.src, here] & able[p.dst, there] & (unit[p.src] != unit[p.dst])
        far = np.where(both, np.minimum(far, _hop_ticks(p, here, there)), far)
    return near, far


def _hops(p: Problem) -> list[tuple[int, int]]:
    return [(here, there) for here in range(p.locations) for there in range(p.locations) if here != there]


def _hop_ticks(p: Problem, here: int, there: int) -> Ints:
    """Return [e] ticks of each edge's payload, 0 for none, from one location to another."""
    if not p.payloads:
        return np.zeros(p.edges, dtype=np.int64)
    return np.where(p.payload < 0, 0, p.transfer[p.payload, p.path_class[here, there]])


def _again(known: ScheduleFacts, units: Units, floors: tuple[Ints, Ints]) -> ScheduleFacts | None:
    found = _propagate(known.problem, known.upper, units, floors)
    return None if found is None else replace(found, apart=known.apart)


def _propagate(problem: Problem, upper: int, units: Units, floors: tuple[Ints, Ints]) -> ScheduleFacts | None:
    """Return the fixed point of paths, late locations, edges that have no time to cross, and memory."""
    # A location that is removed lengthens paths, and longer paths remove locations, until nothing changes. Stopping
    # early is valid too: every round only adds facts.
    for round_ in range(_PATH_ROUNDS):
        units, full = fitting_units(problem, units)
        if full or not units.allowed.any(axis=1).all():
            return None
        paths = paths_of(problem, units, floors)
        known = ScheduleFacts(problem=problem, upper=upper, paths=paths, apart=bools(np.zeros((0, 0))))
        late = np.zeros_like(units.allowed)
        np.logical_or.at(late, units.unit, paths.head + paths.took + paths.tail > upper)
        # The edges between two units whose payload has no time to cross from any location to any other. Where a task
        # cannot be, all three are NEVER; a quarter of it is more than any makespan that is looked at.
        done = np.minimum(paths.head, NEVER // 4) + np.minimum(paths.took, NEVER // 4)
        rest = np.minimum(paths.took, NEVER // 4) + np.minimum(paths.tail, NEVER // 4)
        crosses = known.unit[problem.src] == known.unit[problem.dst]
        for here, there in _hops(problem):
            crosses |= done[problem.src, here] + _hop_ticks(problem, here, there) + rest[problem.dst, there] <= upper
        stuck = np.flatnonzero(~crosses)
        if round_ == _PATH_ROUNDS - 1 or not ((late & units.allowed).any() or len(stuck)):
            break
        units = _joined(replace(units, allowed=bools(units.allowed & ~late)), problem.src[stuck], problem.dst[stuck])
    return known


def _joined(units: Units, one: Ints, two: Ints) -> Units:
    """Return the units of which tasks `one[k]` and `two[k]` are in one."""
    if not len(one):
        return units
    label = connected(len(units.allowed), units.unit[one], units.unit[two])
    _, which = np.unique(label, return_inverse=True)
    allowed = np.ones((int(which.max(initial=-1)) + 1, units.allowed.shape[1]), dtype=np.bool_)
    np.logical_and.at(allowed, which, units.allowed)
    memory = np.zeros(len(allowed), dtype=np.int64)
    np.add.at(memory, which, units.memory)
    return Units(unit=ints(which[units.unit]), allowed=bools(allowed), memory=ints(memory))


def separate_tasks(known: ScheduleFacts, found: Distances | None) -> ScheduleFacts | None:
    """Add the pairs of tasks that cannot share a location; None where two of one unit are such a pair.

    Their units have no location in common with memory and time for both, or they have no room in their windows one
    after the other on the only device for both, or their distance at one location is too long, or their units have
    such a pair.
    """
    units, capacity = known.paths.units, known.problem.capacity
    no_room = np.ones((len(units.memory),) * 2, dtype=np.bool_)
    for place in range(len(capacity)):
        room = units.memory[:, None] + units.memory[None, :] <= capacity[place]
        no_room &= ~(room & np.outer(units.allowed[:, place], units.allowed[:, place]))
    np.fill_diagonal(no_room, val=False)
    # [u, u] pairs of units, one of several tasks, for which no location has the time; of the _UNITS longest.
    size = np.bincount(known.unit, minlength=len(units.memory))
    work = np.bincount(known.unit, weights=known.took, minlength=len(size))
    no_time = np.zeros((len(size),) * 2, dtype=np.bool_)
    longest = np.argsort(-work, kind="stable")[:_UNITS].tolist() if (size > 1).any() else []
    for first, second in combinations(longest, 2):
        if max(size[first], size[second]) > 1:
            both = (known.unit == first) | (known.unit == second)
            places = np.flatnonzero(units.allowed[first] & units.allowed[second]).tolist()
            no_time[first, second] = no_time[second, first] = not any(_fits(known, both, place) for place in places)
    apart = (no_room | no_time)[known.unit[:, None], known.unit[None, :]]
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


def join_tasks(known: ScheduleFacts, found: Distances) -> ScheduleFacts | None:
    """Put pairs at one location whose distance at two is too long; None as in `known_within`.

    Of two locations, all that is apart from a third task is together, too.
    """
    together = _too_far(known, found, found.far)
    if np.count_nonzero(known.paths.units.allowed.any(axis=0)) == 2:
        # As floats, since numpy multiplies integer matrices without BLAS.
        apart = known.apart.astype(np.float32)
        together |= apart @ apart > 0
    one, two = np.nonzero(np.triu(together) & (known.unit[:, None] != known.unit[None, :]))
    return with_shared_locations(known, one, two) if len(one) else known


def order_tasks(known: ScheduleFacts, found: Distances) -> ScheduleFacts | None:
    """Add an edge wherever two tasks are on one device and only one order has time; None where these make a cycle."""
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
    return with_times(replace(known, problem=more), known.head, known.tail)


def exclude_loaded(known: ScheduleFacts) -> ScheduleFacts | None:
    """Exclude the locations where the work of a unit, and of all that can only be there, takes too long.

    And those of tasks that are apart from one of the unit and can only be there. None as in `known_within`.
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
    return known if (allowed == units.allowed).all() else with_locations(known, allowed)


def one_device(known: ScheduleFacts) -> Bools:
    """Return [n, n] pairs that can only run on one and the same device wherever they share a location."""
    p, able = known.problem, known.able
    found = np.ones((p.tasks, p.tasks), dtype=np.bool_)
    for place in range(p.locations):
        can = p.allowed[:, p.location == place]
        single = np.count_nonzero(can, axis=1) == 1
        only = np.where(single, can.argmax(axis=1), -1) if can.shape[1] else np.full(p.tasks, -1)
        alike = (only[:, None] == only[None, :]) & single[:, None]
        found &= alike | ~np.outer(able[:, place], able[:, place])
    return found


def _late(known: ScheduleFacts) -> Bools:
    """Return [n, n] at [j, i] whether j has no time to finish before i starts."""
    head, took, tail = known.head, known.took, known.tail
    return bools((head + took)[:, None] + (took + tail)[None, :] > known.upper)


def _too_far(known: ScheduleFacts, found: Distances, distance: Ints) -> Bools:
    """Return [n, n] comparable pairs that this distance, [n + 2, n + 2], leaves no time for; symmetric."""
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


def informed(problem: Problem, upper: int, ends: float = math.inf) -> ScheduleFacts | None:
    """Return the facts that hold in every schedule of at most `upper` ticks; None proves that there is none.

    Longest paths by location, with groups and memory; up to `solvers.bounds.distances.DENSE` tasks also the work
    between any two tasks, who must share a location and who cannot, and the orders that follow: all to a fixed point.
    O(n^3) a round. A problem whose ticks sum to 2^45 or more is too long for the latter. No round is begun when the
    clock (`time.monotonic`) is at `ends`: what is known by then holds, though more may follow from it.
    """
    known = known_within(problem, upper)
    return known if known is None or not dense(problem) else tighten(known, ends)


def tighten(known: ScheduleFacts, ends: float = math.inf) -> ScheduleFacts | None:
    """Return the fixed point of what follows from what is known of a `dense` problem; None, `ends` as in `informed`."""
    if time.monotonic() >= ends:
        return known
    now = separate_tasks(known, None)
    # Each argument makes the next one stronger: distances separate tasks, separated tasks load other locations, and
    # loads forbid locations, which lengthens distances. A few rounds are mostly enough for a fixed point.
    for _ in range(_ROUNDS):
        if now is None or time.monotonic() >= ends:
            return now
        before = exclude_loaded(now)
        if (
            before is None
            or max(unit_load(now.problem, before.paths), link_window(now.problem, before.paths)) > now.upper
        ):
            return None
        # All arguments, with no more effort than there is time for.
        arguments, effort = DistanceArguments(), (ends - time.monotonic()) * _EFFORT_A_SECOND
        if effort < arguments.effort:
            arguments = arguments._replace(effort=max(0, int(effort)))
        found = distances_of(before, arguments)
        if found.ticks > known.upper:
            return None
        now = with_times(before, found.head, found.tail)
        now = now and separate_tasks(now, found)
        now = now and join_tasks(now, found)
        now = now and separate_tasks(now, None)
        now = now and order_tasks(now, found)
        # Distances are their own fixed point: where nothing else changed, another round would find nothing.
        if (
            now is not None
            and now.problem is before.problem
            and np.array_equal(now.paths.units.allowed, before.paths.units.allowed)
            and np.array_equal(now.apart, before.apart)
            and np.array_equal(now.head, found.head)
            and np.array_equal(now.tail, found.tail)
        ):
            return now
    return now


def dense(problem: Problem) -> bool:
    """Return True if all pairs of tasks are few enough, and ticks small enough, to be looked at."""
    ticks = problem.duration.max(axis=1, initial=0).sum(dtype=np.float64)
    sent = problem.transfer.max(axis=1, initial=0).sum(dtype=np.float64)
    return 0 < problem.tasks <= DENSE and float(ticks + problem.locations * sent) < _LONGEST


def distances_of(known: ScheduleFacts, arguments: DistanceArguments | None = None) -> Distances:
    """Return the distances of all pairs that follow from what is known of a `dense` problem."""
    p = known.problem
    work, total, most = [], [], []
    for weight in device_weights(p, known.paths):
        ticks = np.where(known.paths.took == NEVER, NEVER, least_at(p, weight, NEVER))
        work.append(ticks.min(axis=1, initial=NEVER))
        total.append(int(weight.sum()))
        most.append(int(np.bincount(p.location, weights=weight).max()))
    near, far = edge_ticks(known)
    lengths = PathLengths(
        took=known.took,
        near=near,
        far=far,
        head=known.head,
        tail=known.tail,
        apart=known.apart,
        unit=known.unit,
        work=np.array(work, dtype=np.int64).reshape(len(total), p.tasks),
        total=np.array(total, dtype=np.int64),
        most=np.array(most, dtype=np.int64),
        sites=int(np.count_nonzero(known.paths.units.allowed.any(axis=0))),
    )
    return distances(p, lengths, arguments or DistanceArguments())
