"""A unit tried at another location: what this changes over time, and whether there is room for it."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.kernels import inlined, spliced, subkernel
from solvers.heuristics.overflow.buffers import BufferLives
from solvers.heuristics.overflow.bytes_over_time import ByteTrees, add, highest
from solvers.heuristics.overflow.first_readers import shift, take_back
from solvers.heuristics.overflow.potential import FamilyRows, Scratch, held_for, hold, most_rows, scratch_for


class UnitTies(NamedTuple):
    """Families, bytes and costs that a move of a unit changes."""

    task: tuple[Ints, Ints]
    """(offset [u + 1], tasks)"""
    family: tuple[Ints, Ints]
    """(offset [u + 1], families of which it makes or reads something)"""
    neighbour: tuple[Ints, Ints, Ints]
    """(offset [u + 1], units that it exchanges payloads with, ticks): one entry an edge and direction."""
    allowed: Bools
    """[u, l] whether a unit can be at a location."""
    ticks: Ints
    """[u, l] ticks of its tasks at each location."""
    static: Ints
    """[u] bytes that a unit holds throughout."""
    work: Ints
    """[u] number of steps, about, that one `try_at` takes."""


class Trial(NamedTuple):
    """Work arrays of `try_at`."""

    old: FamilyRows
    new: FamilyRows
    segment: Ints
    """[s, 4] location, first position, first one after, and bytes of each change."""
    work: Scratch


def trial_for(v: BufferLives, ties: UnitTies, at: Ints, locations: int) -> Trial:
    """Room for the largest unit; each is `at` its location, [u]."""
    rows = most_rows(v, locations, ties.family)
    tasks = int(np.diff(ties.task[0]).max(initial=0))
    work = scratch_for(v, at, locations)
    return Trial(held_for(rows), held_for(rows), np.empty((4 * rows + 2 * tasks + 2, 4), dtype=np.int64), work)


@subkernel
def try_at(
    v: BufferLives, ties: UnitTies, now: tuple[Ints, Ints], t: ByteTrees, trial: Trial, what: tuple[int, int]
) -> bool:
    """Move a unit, `what` = (unit, location), in `now` = (location of each unit, limits), and in the levels.

    Where that would raise the level of another location than its own above its limit, at any position at which it
    raises it at all, nothing is moved, and False returned.
    """
    at, limit = now
    unit, there = what
    place = at[unit]
    old = _held(v, ties, at, trial.work, (trial.old, unit))
    shift(v, at, trial.work.fronts, unit, there)
    new = _held(v, ties, at, trial.work, (trial.new, unit))
    count = _differences(trial, old, new)
    count = _own(v, ties, trial.segment, count, (unit, place, there))
    s = trial.segment
    # All changes before any look: where a unit's bytes only shift, rise and fall cancel.
    for k in range(count):
        add(t, s[k, 0], (s[k, 1], s[k, 2]), s[k, 3])
    fits = True
    for k in range(count):
        # Its own location may stay above the limit: to be lower is all that a move off it has to achieve.
        if fits and s[k, 3] > 0 and s[k, 0] != place:
            fits = highest(t, s[k, 0], (s[k, 1], s[k, 2])) <= limit[s[k, 0]]
    if not fits:
        take_back(v, at, trial.work.fronts, unit, place)
        for k in range(count):
            add(t, s[k, 0], (s[k, 1], s[k, 2]), -s[k, 3])
    return fits


@subkernel
def _held(v: BufferLives, ties: UnitTies, at: Ints, w: Scratch, found: tuple[FamilyRows, int]) -> int:
    """List the rows of the families that a unit touches; `found` = (rows, unit); return how many."""
    rows, unit = found
    offset, family = ties.family
    count = int(np.int64(0))
    for k in range(offset[unit], offset[unit + 1]):
        count = hold(v, at, family[k], w, (rows, count))
    return count


@spliced
def _differences(trial: Trial, olds: int, news: int) -> int:
    """Segments that turn the old rows into the new ones. Both come family by family, each by rising key."""
    old, new, count = trial.old, trial.new, 0
    i, j = 0, 0
    while i < olds or j < news:
        if j == news or (i < olds and old.key[i] < new.key[j]):
            count = _note(trial.segment, count, old.location[i], (old.low[i], old.high[i]), -old.size[i])
            i += 1
        elif i == olds or new.key[j] < old.key[i]:
            count = _note(trial.segment, count, new.location[j], (new.low[j], new.high[j]), new.size[j])
            j += 1
        else:
            here, size = old.location[i], old.size[i]
            count = _shifted(trial.segment, count, here, (old.low[i], new.low[j]), -size)
            count = _shifted(trial.segment, count, here, (old.high[i], new.high[j]), size)
            i, j = i + 1, j + 1
    return count


@inlined
def _note(segment: Ints, count: int, location: int, interval: tuple[int, int], size: int) -> int:
    low, high = interval
    if low >= high or size == 0:
        return count
    segment[count, 0], segment[count, 1], segment[count, 2], segment[count, 3] = location, low, high, size
    return count + 1


@inlined
def _shifted(segment: Ints, count: int, location: int, ends: tuple[int, int], size: int) -> int:
    """An end that moves from `ends[0]` to `ends[1]`: `size` more bytes in between where that is later."""
    was, now = ends
    if now > was:
        return _note(segment, count, location, (was, now), size)
    return _note(segment, count, location, (now, was), -size)


@spliced
def _own(v: BufferLives, ties: UnitTies, segment: Ints, count: int, what: tuple[int, int, int]) -> int:
    """Segments of a unit's static and scratch bytes; `what` = (unit, from, to)."""
    unit, place, there = what
    whole = (0, len(v.ticks))
    count = _note(segment, count, place, whole, -ties.static[unit])
    count = _note(segment, count, there, whole, ties.static[unit])
    offset, tasks = ties.task
    for k in range(offset[unit], offset[unit + 1]):
        task = tasks[k]
        interval = (v.begin[task], v.gone[task])
        count = _note(segment, count, place, interval, -v.scratch[task])
        count = _note(segment, count, there, interval, v.scratch[task])
    return count
