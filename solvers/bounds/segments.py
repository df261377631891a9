"""Least ticks from the finish of one task to the start of another, from the work between them. Compiled.

Of the tasks x between i and j, each has distances from i and to j, told apart by whether x is at the same location
(near) or at another (far). Three arguments, over any weights y of the devices:

- all x of a set S are done by all devices:  D >= min near-or-far head + sum c(x) / sum y + min tail   (`packed`)
- where D is too short for x to be elsewhere, x is where j is, and so are all such x: they share the devices of one
  location, or prove that D is too short when two of them cannot meet                                   (`forced`)
- the devices of other locations than i's start later by a transfer, those of others than j's end earlier (`spread`)
- where i and j share a location that has no memory for all x, one x is elsewhere                      (`crowded`)

The second is the bound of Papadimitriou and Yannakakis (1990) for delays between processors, without duplication and
for a segment; the first that of `solvers.bounds.loads.preemptive`.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.bounds.loads import preemptive_sorted
from solvers.compiled.kernels import routine

NONE = -1
"""The distance of two tasks of which none precedes the other."""
NEVER = 2**58
"""The distance of two tasks at one location that cannot share one, or at two that must."""


class DistanceTable(NamedTuple):
    """Distances by position: rows are the later tasks. [n + 2, n + 2] but where noted."""

    near: Ints
    """Least ticks from the finish of i to the start of j when they share a location."""
    far: Ints
    """The same ticks when i and j are at two locations."""
    least: Ints
    """Least ticks from the finish of i to the start of j, wherever they are."""
    apart: Bools
    """True if two tasks cannot share a location, symmetric."""
    took: Ints
    """[n + 2] least ticks of each task."""
    unit: Ints
    """[n + 2] tasks of one unit share a location."""
    work: Ints
    """[q, n + 2] least weighted ticks of each task."""
    total: Ints
    """[q] sum of each of the weights."""
    most: Ints
    """[q] sum of each of the weights at the one location where it is greatest."""
    memory: Ints
    """[n + 2] bytes of each task."""
    room: int
    """Bytes of the largest location."""
    sites: int
    """Number of locations."""


@routine
def between(t: DistanceTable, i: int, j: int) -> Ints:
    """The positions between i and j, by least distance from i."""
    found = np.empty(j - i, dtype=np.int64)
    count = 0
    for x in range(i + 1, j):
        if t.least[x, i] >= 0 and t.least[j, x] >= 0:
            found[count] = x
            count += 1
    found = found[:count]
    head = np.empty(count, dtype=np.int64)
    for k in range(count):
        head[k] = t.least[found[k], i]
    return found[np.argsort(head, kind="mergesort")]


@routine
def packed(t: DistanceTable, i: int, j: int, inside: Ints) -> int:
    """Least distance for the work inside, on all devices."""
    found = 0
    for q in range(len(t.total)):
        head, work, tail = _jobs(t, (i, j), inside, q)
        found = max(found, -(-preemptive_sorted(head * t.total[q], work, tail * t.total[q]) // t.total[q]))
    return found


@routine
def _jobs(t: DistanceTable, ends: tuple[int, int], inside: Ints, q: int) -> tuple[Ints, Ints, Ints]:
    i, j = ends
    head, work, tail = np.empty_like(inside), np.empty_like(inside), np.empty_like(inside)
    count = 0
    for x in inside:
        if t.work[q, x] > 0:
            head[count], work[count], tail[count] = t.least[x, i], t.work[q, x], t.least[j, x]
            count += 1
    return head[:count], work[:count], tail[:count]


@routine
def spread(t: DistanceTable, i: int, j: int, inside: Ints) -> int:
    """Least distance for the work inside, where other locations start later than i's and end sooner than j's.

    For each set S of a least head h and a least tail e, with a = min far head - h and b = min far tail - e,

        work(S) <= Y (D - h - e) - (Y - y1) (a + b)    or    D < a + h + b + e and work(S) <= y1 (D - h - e),

    Y being the sum of the weights and y1 the most at one location. O(n^2) for each weight.
    """
    tail = np.empty(len(inside), dtype=np.int64)
    for k in range(len(inside)):
        tail[k] = -t.least[j, inside[k]]
    place = np.argsort(tail, kind="mergesort")
    found = 0
    for q in range(len(t.total)):
        for first in range(len(inside)):
            if first == 0 or t.least[inside[first], i] > t.least[inside[first - 1], i]:
                found = max(found, _spread_from(t, (i, j), (inside, place), q, first))
    return found


@routine
def _spread_from(t: DistanceTable, ends: tuple[int, int], sets: tuple[Ints, Ints], q: int, first: int) -> int:
    """The same for sets of tasks from `first` on, by decreasing tail."""
    i, j = ends
    inside, place = sets
    work, head, far_head, far_tail, found = 0, NEVER, NEVER, NEVER, 0
    y, y1 = t.total[q], t.most[q]
    for k in place:
        x = inside[k]
        if k < first or t.work[q, x] == 0:
            continue
        work += t.work[q, x]
        tail = t.least[j, x]
        head = min(head, t.least[x, i])
        # At the ends of the schedule there is no location to be near to.
        far_head = head if i == 0 else min(far_head, t.far[x, i])
        far_tail = tail if j == len(t.took) - 1 else min(far_tail, t.far[j, x])
        # Either some of the set is away from the first location, which costs idle time at both ends of the others, or
        # all of it shares the devices of one location: the bound is the lesser of the two cases.
        several = NEVER
        if far_head < NEVER and far_tail < NEVER:
            lost = (y - y1) * (far_head - head + far_tail - tail)
            several = max(-(-(work + y * (head + tail) + lost) // y), far_head + far_tail)
        found = max(found, min(several, head + tail - (-work // y1)))
    return found


@routine
def crowded(t: DistanceTable, i: int, j: int, inside: Ints) -> int:
    """Least distance of i and j at one location, for what has no memory there."""
    bytes_, least = t.memory[i] + t.memory[j], NEVER
    for x in inside:
        bytes_ += t.memory[x]
        least = min(least, t.far[x, i] + t.took[x] + t.far[j, x])
    return least if bytes_ > t.room else 0


@routine
def forced(t: DistanceTable, i: int, j: int, inside: Ints) -> tuple[int, int]:
    """Least distances, when i and j share a location and when not, for what is forced to the locations of i and j."""
    near = far = NEVER
    inner = i > 0 and j < len(t.took) - 1
    # The calls below stand in loops, once each: compiling what they inline takes seconds.
    for together in range(1, -1, -1):
        if together or inner:
            ticks = _shortest(t, (i, j, together > 0), inside, t.near[j, i] if together else t.far[j, i])
            if together:
                near = ticks
            far = ticks
    return near, far


@routine
def _shortest(t: DistanceTable, ends: tuple[int, int, bool], inside: Ints, low: int) -> int:
    """The least distance of at least `low` that nothing refutes: by steps that double, then by halves."""
    high, step, ticks = NEVER, 1, low
    # Feasibility is monotone in the distance, so bisection applies; doubling first, as most answers are near `low`.
    while low < high:
        if _feasible(t, ends, inside, ticks):
            high = ticks
        else:
            low = ticks + 1
        ticks = low + min(step, NEVER - low) - 1 if high == NEVER else (low + high) // 2
        step *= 2
    return high


@routine
def _feasible(t: DistanceTable, ends: tuple[int, int, bool], inside: Ints, ticks: int) -> bool:
    """Return True if what is forced to the location of i, or of j, can be done there within `ticks`."""
    at = np.empty((2, len(inside)), dtype=np.int64)
    count = np.zeros(2, dtype=np.int64)
    for x in inside:
        to_i, to_j, elsewhere = _options(t, ends, x, ticks)
        # A task with a choice of locations is forced to neither, and must not count for either.
        if elsewhere or (to_i and to_j):
            continue
        if not to_i and not to_j:
            return False
        at[int(to_j), count[int(to_j)]] = x
        count[int(to_j)] += 1
    for side in range(2):
        if count[side] > 1 and not _meet(t, ends, at[side, : count[side]], (ticks, side > 0)):
            return False
    return True


@routine
def _options(t: DistanceTable, ends: tuple[int, int, bool], x: int, ticks: int) -> tuple[bool, bool, bool]:
    """Return whether x has time at the location of i, at that of j, and elsewhere; one location counts as that of j."""
    i, j, together = ends
    took, last = t.took[x], len(t.took) - 1
    if i == 0:
        return False, t.least[x, i] + took + t.near[j, x] <= ticks, t.least[x, i] + took + t.far[j, x] <= ticks
    if j == last:
        return t.near[x, i] + took + t.least[j, x] <= ticks, False, t.far[x, i] + took + t.least[j, x] <= ticks
    elsewhere = t.far[x, i] + took + t.far[j, x] <= ticks and (together or t.sites > 2)
    if together:
        return False, t.near[x, i] + took + t.near[j, x] <= ticks, elsewhere
    return t.near[x, i] + took + t.far[j, x] <= ticks, t.far[x, i] + took + t.near[j, x] <= ticks, elsewhere


@routine
def _meet(t: DistanceTable, ends: tuple[int, int, bool], there: Ints, limit: tuple[int, bool]) -> bool:
    """Return True if all tasks can be at the location of j, or else of i, in some ticks: `limit` is (ticks, of j)."""
    for a in range(len(there)):
        for b in range(a):
            if t.apart[there[a], there[b]]:
                return False
    i, j, together = ends
    ticks, of_j = limit
    head, tail = np.empty_like(there), np.empty_like(there)
    for k in range(len(there)):
        x = there[k]
        head[k] = t.least[x, i] if i == 0 else (t.near[x, i] if together or not of_j else t.far[x, i])
        tail[k] = t.least[j, x] if j == len(t.took) - 1 else (t.near[j, x] if together or of_j else t.far[j, x])
    by = np.argsort(head, kind="mergesort")
    head, tail, there = head[by], tail[by], there[by]
    for q in range(len(t.total)):
        work, speed = t.work[q][there], t.most[q]
        some = work > 0
        if preemptive_sorted(head[some] * speed, work[some], tail[some] * speed) > ticks * speed:
            return False
    return True
