"""Units moved off a location until its peak fits: ParDNN's heaps (4.1.2), on times that stay fixed."""

import heapq
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.kernels import inlined, kernel, routine, spliced, subkernel, subroutine
from solvers.heuristics.overflow.buffers import BufferLives
from solvers.heuristics.overflow.bytes_over_time import ByteTrees, highest, peak_at
from solvers.heuristics.overflow.first_readers import shift, take_back
from solvers.heuristics.overflow.potential import Potentials, Scratch, credit
from solvers.heuristics.overflow.try_move import Trial, UnitTies, try_at


class RepairPass(NamedTuple):
    """State that changes while units move."""

    at: Ints
    """[u] location of each unit."""
    cost: Ints
    """[u] move_cost of each unit, equation (4.5)."""
    load: Ints
    """[l] ticks of the units at each location."""
    open: Bools
    """[u] whether a unit may be moved: not in this pass yet, nor refused by all locations since this one is in turn."""
    moved: Bools
    """[u] whether a unit was moved in this pass and so is not moved again."""
    potential: Potentials
    attraction: Ints
    """[l] ticks of a unit's exchange with each location; work array."""
    limit: Ints
    """[l] bytes that each location may hold."""
    left: Ints
    """[1] steps left until it is time to look at the clock."""
    paused: Bools
    """[1] whether an instant was left because the steps had run out."""


class _Heaps(NamedTuple):
    """Entries are never removed but when they come up: those that no longer hold are skipped."""

    ratio: list[tuple[float, int]]
    """(cost / potential, unit)"""
    cost: list[tuple[int, int]]
    """(cost, unit) of those whose potential alone covers the overflow."""
    waiting: list[tuple[int, int]]
    """(-potential, unit) of those that may cover what is left of it later."""


@routine
def relieve_location(v: BufferLives, ties: UnitTies, p: RepairPass, t: ByteTrees, trial: Trial, place: int) -> bool:
    """Move units off a location until its peak is within its limit, or nothing helps; True: not done yet, call again.

    Position by position, the one of the highest level first. The steps of a call are limited to those `left`, so that
    its caller can look at the clock, and Python at its signals.
    """
    while p.left[0] > 0:
        now = peak_at(t, place)
        over = highest(t, place, (now, now + 1)) - p.limit[place]
        if over > 0:
            over = _relieve_instant(v, ties, p, t, trial, (place, now))
            if over <= 0:
                continue
            return bool(p.paused[0])
        return False
    return True


@spliced
def _relieve_instant(
    v: BufferLives, ties: UnitTies, p: RepairPass, t: ByteTrees, trial: Trial, where: tuple[int, int]
) -> int:
    """Move units until a location fits at one position; the bytes that it still lacks.

    First those that free bytes there by themselves; then those that are the last of several to keep some.
    """
    over = 0
    for last in (False, True):
        p.potential.last[0] = last
        over = _relieve_by(v, ties, p, t, trial, where)
        if over <= 0 or p.paused[0]:
            break
    return over


@spliced
def _relieve_by(
    v: BufferLives, ties: UnitTies, p: RepairPass, t: ByteTrees, trial: Trial, where: tuple[int, int]
) -> int:
    """The same with one way to count potentials."""
    place, now = where
    potentials(v, ties, p.at, trial.work, (place, now), p.potential)
    p.left[0] -= len(v.reader) + len(v.unit) + len(p.at)
    p.paused[0] = False
    # Lists of nothing, for numba to see what will be in them.
    heaps = _Heaps(
        [(0.0, 0) for _ in range(0)],
        [(0, 0) for _ in range(0)],
        [(0, 0) for _ in range(0)],
    )
    for unit in range(len(p.at)):
        if p.potential.bytes[unit] > 0:
            _enter(p, heaps, unit, place)
    while True:
        over = highest(t, place, (now, now + 1)) - p.limit[place]
        if over <= 0:
            return over
        unit = _select(p, heaps, place, over)
        if unit < 0:
            return over
        if _move(v, ties, p, t, trial, (unit, now)):
            for k in range(p.potential.length[0]):
                p.potential.known[p.potential.changed[k]] = False
                _enter(p, heaps, p.potential.changed[k], place)
            p.potential.length[0] = 0
        else:
            p.open[unit] = False
        p.paused[0] = p.left[0] <= 0
        if p.paused[0]:
            return over


@kernel
def potentials(v: BufferLives, ties: UnitTies, at: Ints, w: Scratch, where: tuple[int, int], into: Potentials) -> None:
    """M_pot of every unit at a location and position, `where`: with what is static and what tasks need as they run."""
    place, now = where
    into.bytes[:] = 0
    more = int(np.int64(1))
    for family in range(len(v.family) - 1):
        root = v.family[family + 1] - 1
        if v.begin[v.maker[root]] <= now < v.over[family]:
            credit(v, at, (family, place, now), w, into, more)
    for task in range(len(v.unit)):
        unit = v.unit[task]
        if at[unit] == place and v.begin[task] <= now < v.gone[task]:
            into.bytes[unit] += v.scratch[task]
    for unit in range(len(at)):
        if at[unit] == place:
            into.bytes[unit] += ties.static[unit]
    into.known[:] = False
    into.length[0] = 0


@subroutine
def _enter(p: RepairPass, heaps: _Heaps, unit: int, place: int) -> None:
    if p.open[unit] and p.at[unit] == place and p.potential.bytes[unit] > 0:
        heapq.heappush(heaps.ratio, (p.cost[unit] / p.potential.bytes[unit], unit))
        heapq.heappush(heaps.waiting, (-p.potential.bytes[unit], unit))


@subroutine
def _select(p: RepairPass, heaps: _Heaps, place: int, over: int) -> int:
    """The cheaper of the unit of least ratio and of the cheapest that covers the overflow alone; -1 when none is left.

    The other stays in its heap, and so does the one chosen: it is not open when it comes up again.
    """
    while heaps.waiting and -heaps.waiting[0][0] >= over:
        _, unit = heapq.heappop(heaps.waiting)
        heapq.heappush(heaps.cost, (p.cost[unit], unit))
    while heaps.ratio:
        ratio, unit = heaps.ratio[0]
        if _movable(p, unit, place) and ratio == p.cost[unit] / p.potential.bytes[unit]:
            break
        heapq.heappop(heaps.ratio)
    while heaps.cost:
        cost, unit = heaps.cost[0]
        if _movable(p, unit, place) and cost == p.cost[unit] and p.potential.bytes[unit] >= over:
            break
        heapq.heappop(heaps.cost)
    chosen = heaps.ratio[0][1] if heaps.ratio else -1
    if heaps.cost and heaps.cost[0][0] < p.cost[chosen]:
        chosen = heaps.cost[0][1]
    return chosen


@inlined
def _movable(p: RepairPass, unit: int, place: int) -> bool:
    return p.open[unit] and p.at[unit] == place and p.potential.bytes[unit] > 0


@spliced
def _move(v: BufferLives, ties: UnitTies, p: RepairPass, t: ByteTrees, trial: Trial, what: tuple[int, int]) -> bool:
    """Move a unit, `what` = (unit, position), to where it costs least of where it fits; False where it fits nowhere.

    A location's cost: the unit's ticks there and those of its exchange with all others; ties: the least loaded.
    """
    unit, now = what
    place = p.at[unit]
    offset, neighbour, ticks = ties.neighbour
    p.attraction[:] = 0
    for k in range(offset[unit], offset[unit + 1]):
        p.attraction[p.at[neighbour[k]]] += ticks[k]
    refused = ~ties.allowed[unit]
    refused[place] = True
    while True:
        there = _closest(ties.ticks[unit] - p.attraction, p.load, refused)
        if there < 0:
            return False
        p.left[0] -= ties.work[unit]
        if try_at(v, ties, (p.at, p.limit), t, trial, (unit, there)):
            break
        refused[there] = True
    _account(v, ties, p, trial.work, (unit, place, now))
    return True


@subkernel
def _closest(cost: Ints, load: Ints, refused: Bools) -> int:
    best = -1
    for there in range(len(cost)):
        if not refused[there] and (best < 0 or (cost[there], load[there]) < (cost[best], load[best])):
            best = there
    return best


@subkernel
def _account(v: BufferLives, ties: UnitTies, p: RepairPass, w: Scratch, what: tuple[int, int, int]) -> None:
    """Bring potentials, costs and loads up to date after a move, `what` = (unit, where it was, position)."""
    unit, place, now = what
    there = p.at[unit]
    less, more = int(np.int64(-1)), int(np.int64(1))
    offset, family = ties.family
    take_back(v, p.at, w.fronts, unit, place)
    for k in range(offset[unit], offset[unit + 1]):
        credit(v, p.at, (family[k], place, now), w, p.potential, less)
    shift(v, p.at, w.fronts, unit, there)
    for k in range(offset[unit], offset[unit + 1]):
        credit(v, p.at, (family[k], place, now), w, p.potential, more)
    p.moved[unit], p.open[unit] = True, False
    p.load[place] -= ties.ticks[unit, place]
    p.load[there] += ties.ticks[unit, there]
    offset, neighbour, ticks = ties.neighbour
    for k in range(offset[unit], offset[unit + 1]):
        other = neighbour[k]
        if p.at[other] == there:
            p.cost[other] += ticks[k]
        elif p.at[other] == place:
            p.cost[other] -= ticks[k]
            if not p.potential.known[other]:
                p.potential.known[other] = True
                p.potential.changed[p.potential.length[0]] = other
                p.potential.length[0] += 1
