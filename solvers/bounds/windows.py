"""Time windows of tasks, and what else must hold in every schedule of at most some ticks."""

import math
import time
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints
from solvers.bounds.distances import DENSE, DistanceArguments, Distances, PathLengths, distances
from solvers.bounds.loads import device_weights, device_work
from solvers.bounds.quick_bounds import link_window, unit_load
from solvers.bounds.relations import joined, ordered, separated, unloaded
from solvers.bounds.schedule_facts import ScheduleFacts, edge_ticks, known_within, raised
from solvers.problem import Problem
from solvers.structure.paths import NEVER

_ROUNDS = 30
_EFFORT_A_SECOND = 25_000_000
"""Units of `DistanceArguments.effort` that one core does in about a second."""
_LONGEST = 2**45
"""Ticks beyond which weighted sums over all pairs might overflow."""


class TimeWindows(NamedTuple):
    """When each task runs in any schedule of at most some ticks."""

    start: Ints
    """[n] earliest start of each task, in ticks."""
    finish: Ints
    """[n] latest finish of each task, in ticks."""


def windows(problem: Problem, upper: int) -> TimeWindows | None:
    """Earliest starts and latest finishes in every schedule with a makespan of at most `upper`.

    None is a proof that there is no such schedule. See `informed`, which knows more. Deterministic.
    """
    known = informed(problem, upper)
    return None if known is None else TimeWindows(known.head, ints(upper - known.tail))


def informed(problem: Problem, upper: int, ends: float = math.inf) -> ScheduleFacts | None:
    """Return the facts that hold in every schedule of at most `upper` ticks; None proves that there is none.

    Longest paths by location, with groups and memory; up to `solvers.bounds.distances.DENSE` tasks also the work
    between any two tasks, who must share a location and who cannot, and the orders that follow: all to a fixed point.
    O(n^3) a round. A problem whose ticks sum to 2^45 or more is too long for the latter. No round is begun when the
    clock (`time.monotonic`) is at `ends`: what is known by then holds, though more may follow from it.
    """
    known = known_within(problem, upper)
    return known if known is None or not dense(problem) else settled(known, ends)


def settled(known: ScheduleFacts, ends: float = math.inf) -> ScheduleFacts | None:
    """The fixed point of all that follows from what is known of a `dense` problem; None and `ends` as in `informed`."""
    if time.monotonic() >= ends:
        return known
    now = separated(known, None)
    # Each argument makes the next one stronger: distances separate tasks, separated tasks load other locations, and
    # loads forbid locations, which lengthens distances. A few rounds are mostly enough for a fixed point.
    for _ in range(_ROUNDS):
        if now is not None and time.monotonic() >= ends:
            return now
        if now is None or (before := unloaded(now)) is None:
            return None
        if max(unit_load(now.problem, before.paths), link_window(now.problem, before.paths)) > now.upper:
            return None
        # All arguments, with no more effort than there is time for.
        most = DistanceArguments()
        left = ends - time.monotonic()
        arguments = (
            most
            if left * _EFFORT_A_SECOND >= most.effort
            else most._replace(effort=max(0, int(left * _EFFORT_A_SECOND)))
        )
        found = distances_of(before, arguments)
        now = _learned(before, found)
        if now is None or _closed(before, now, found):
            return now
    return now


def _learned(known: ScheduleFacts, found: Distances) -> ScheduleFacts | None:
    """Return the facts with those that follow from the distances; None if they leave no schedule."""
    if found.ticks > known.upper:
        return None
    now = raised(known, found.head, found.tail)
    now = now and separated(now, found)
    now = now and joined(now, found)
    now = now and separated(now, None)
    return now and ordered(now, found)


def _closed(before: ScheduleFacts, now: ScheduleFacts, found: Distances) -> bool:
    """Return True if another round could find nothing: distances are their own fixed point."""
    return (
        now.problem is before.problem
        and np.array_equal(now.paths.units.allowed, before.paths.units.allowed)
        and np.array_equal(now.apart, before.apart)
        and np.array_equal(now.head, found.head)
        and np.array_equal(now.tail, found.tail)
    )


def dense(problem: Problem) -> bool:
    """Return True if all pairs of tasks are few enough, and ticks small enough, to be looked at."""
    ticks = problem.duration.max(axis=1, initial=0).sum(dtype=np.float64)
    sent = problem.transfer.max(axis=1, initial=0).sum(dtype=np.float64)
    return 0 < problem.tasks <= DENSE and float(ticks + problem.locations * sent) < _LONGEST


def distances_of(known: ScheduleFacts, arguments: DistanceArguments | None = None) -> Distances:
    """The distances of all pairs that follow from what is known of a `dense` problem."""
    p = known.problem
    work, total, most = [], [], []
    for weight in device_weights(p, known.paths):
        ticks = np.where(known.paths.took == NEVER, NEVER, device_work(p, weight))
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
