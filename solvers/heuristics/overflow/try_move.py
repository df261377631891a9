"""A unit tried at another location: what this changes over time, and whether there is room for it.

Bytes over time are segment trees, one a location: adding to an interval and its maximum take O(log).
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.kernels import inlined, kernel, spliced, subkernel
from solvers.heuristics.overflow.buffers import BufferLives
from solvers.heuristics.overflow.potential import FamilyRows, Scratch, held_for, hold, scratch_for, shift, take_back


class ByteTrees(NamedTuple):
    """One tree a location over the positions 0 .. width - 1; width is a power of two. Nothing is pushed down."""

    top: Ints
    """[l, 2 width] maximum below each node, what was added to the node itself included, to its ancestors not."""
    added: Ints
    """[l, width] what was added to all that is below each inner node."""


def levels_of(values: Ints) -> ByteTrees:
    """Return the trees of `values`, [l, k], padded with what no maximum can be: -1. O(l k)."""
    locations, positions = values.shape
    width = 1 << max(positions - 1, 0).bit_length()
    top = np.full((locations, 2 * width), -1, dtype=np.int64)
    top[:, width : width + positions] = values
    below = width
    while below > 1:
        half = below >> 1
        top[:, half:below] = np.maximum(top[:, below : 2 * below : 2], top[:, below + 1 : 2 * below : 2])
        below = half
    return ByteTrees(top, np.zeros((locations, width), dtype=np.int64))


@kernel
def add(t: ByteTrees, location: int, interval: tuple[int, int], change: int) -> None:
    """Add to the positions low <= k < high of `interval`."""
    low, high = interval
    if low >= high or change == 0:
        return
    top, added, width = t.top[location], t.added[location], t.added.shape[1]
    a, b = low + width, high + width
    while a < b:
        if a & 1:
            top[a] += change
            if a < width:
                added[a] += change
            a += 1
        if b & 1:
            b -= 1
            top[b] += change
            if b < width:
                added[b] += change
        a >>= 1
        b >>= 1
    _rebuild(top, added, (low + width) >> 1)
    _rebuild(top, added, (high - 1 + width) >> 1)


@subkernel
def _rebuild(top: Ints, added: Ints, node: int) -> None:
    while node >= 1:
        top[node] = max(top[2 * node], top[2 * node + 1]) + added[node]
        node >>= 1


@kernel
def highest(t: ByteTrees, location: int, interval: tuple[int, int]) -> int:
    """Return the maximum over low <= k < high of `interval`; -1 when that is empty."""
    low, high = interval
    if low >= high:
        return -1
    top, added, width = t.top[location], t.added[location], t.added.shape[1]
    a, b = low + width, high - 1 + width
    left, right = top[a], top[b]
    while (a >> 1) != (b >> 1) and a != b:
        if not a & 1:
            left = max(left, top[a ^ 1])
        if b & 1:
            right = max(right, top[b ^ 1])
        a >>= 1
        b >>= 1
        left += added[a]
        right += added[b]
    found = max(left, right)
    a >>= 1
    while a >= 1:
        found += added[a]
        a >>= 1
    return found


@kernel
def peak_at(t: ByteTrees, location: int) -> int:
    """Return the first position of the maximum over all positions."""
    top, width = t.top[location], t.added.shape[1]
    node = 1
    while node < width:
        node = 2 * node if top[2 * node] >= top[2 * node + 1] else 2 * node + 1
    return node - width


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
    """Return room for the largest unit; each is `at` its location, [u]."""
    # The rows that the families of one unit have at most.
    total = np.concatenate([[0], np.cumsum(np.minimum(np.diff(v.read), locations))])[v.bundle]
    of_family, (offset, families) = np.diff(total[v.family] + v.family), ties.family
    total = np.concatenate([[0], np.cumsum(of_family[families])])
    rows, tasks = int(np.diff(total[offset]).max(initial=0)), int(np.diff(ties.task[0]).max(initial=0))
    segment = np.empty((4 * rows + 2 * tasks + 2, 4), dtype=np.int64)
    return Trial(held_for(rows), held_for(rows), segment, scratch_for(v, at, locations))


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
    s, whole, (offset, tasks) = trial.segment, (0, len(v.ticks)), ties.task
    count = _note(s, count, place, whole, -ties.static[unit])
    count = _note(s, count, there, whole, ties.static[unit])
    for k in range(offset[unit], offset[unit + 1]):
        task = tasks[k]
        interval = (v.begin[task], v.gone[task])
        count = _note(s, count, place, interval, -v.scratch[task])
        count = _note(s, count, there, interval, v.scratch[task])
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
def _held(v: BufferLives, ties: UnitTies, at: Ints, w: Scratch, of: tuple[FamilyRows, int]) -> int:
    """List the rows of the families that a unit touches; of = (rows to fill, unit); return how many."""
    rows, unit = of
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
