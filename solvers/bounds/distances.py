"""Least ticks between any two tasks, at one location and at two: longest paths, raised by the work between. Compiled.

For tasks i before j, near(i, j) is the least time from the finish of i to the start of j when they share a location,
far(i, j) when they do not, d = min(near, far). Each task x that descends from i and precedes j runs between the two, at
the location of i, of j, or at another:

    near(i, j)  >=  min(near(i, x) + p(x) + near(x, j),  far(i, x) + p(x) + far(x, j))
    far(i, j)   >=  min(near(i, x) + p(x) + far(x, j),  far(i, x) + p(x) + near(x, j),  far(i, x) + p(x) + far(x, j))

(the last only with a third location). So a path of tasks pays for a transfer where its ends are apart, and segments at
a task that all others precede or follow add up. Four arguments, over any weights y of the devices, raise a distance D
by the work between i and j:

- all x of a set S are done by all devices:  D >= min near-or-far head + sum c(x) / sum y + min tail   (`packed`)
- where D is too short for x to be elsewhere, x is where j is, and so are all such x: they share the devices of one
  location, or prove that D is too short when two of them cannot meet                                   (`forced`)
- the devices of other locations than i's start later by a transfer, those of others than j's end earlier (`spread`)
- where i and j share a location that has no memory for all x, one x is elsewhere                      (`crowded`)

The second is the bound of Papadimitriou and Yannakakis (1990) for delays between processors, without duplication and
for a segment; the first that of `solvers.bounds.quick_bounds.preemptive`.

The start and the end of the schedule count as tasks without ticks: d(start, j) is a head, d(j, end) a tail, and
d(start, end) a bound on the makespan. One sweep in topological order is the fixed point of all of this.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints, rank_of
from solvers.bounds.quick_bounds import preemptive_sorted
from solvers.compiled.dag import topological_order
from solvers.compiled.kernels import routine
from solvers.problem import Problem

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
    """Return the positions between i and j, by least distance from i."""
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
    """Return the least distance for the work inside, on all devices."""
    found = 0
    for q in range(len(t.total)):
        head, work, tail = np.empty_like(inside), np.empty_like(inside), np.empty_like(inside)
        count = 0
        for x in inside:
            if t.work[q, x] > 0:
                head[count], work[count], tail[count] = t.least[x, i], t.work[q, x], t.least[j, x]
                count += 1
        head, work, tail = head[:count], work[:count], tail[:count]
        found = max(found, -(-preemptive_sorted(head * t.total[q], work, tail * t.total[q]) // t.total[q]))
    return found


@routine
def spread(t: DistanceTable, i: int, j: int, inside: Ints) -> int:
    """Return the least distance for the work inside, other locations starting later than i's and ending before j's.

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
    """Return the same for sets of tasks from `first` on, by decreasing tail."""
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
    """Return the least distance of i and j at one location, for what has no memory there."""
    bytes_, least = t.memory[i] + t.memory[j], NEVER
    for x in inside:
        bytes_ += t.memory[x]
        least = min(least, t.far[x, i] + t.took[x] + t.far[j, x])
    return least if bytes_ > t.room else 0


@routine
def forced(t: DistanceTable, i: int, j: int, inside: Ints) -> tuple[int, int]:
    """Return the least distances of i and j at one location and at two, for what is forced to their locations."""
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
    """Return the least distance of at least `low` that nothing refutes: by steps that double, then by halves."""
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


DENSE = 500
"""Tasks of a problem at most for which all pairs are looked at: about half a second a round of O(n^3)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PathLengths:
    """Ticks of tasks and edges, and what is known of locations: the input of `distances`."""

    took: Ints
    """[n] least ticks of each task."""
    near: Ints
    """[e] least ticks from the finish of an edge's tail to the start of its head at one location, or NEVER."""
    far: Ints
    """[e] the same ticks at two locations."""
    head: Ints
    """[n] least ticks known from the start of the schedule to the start of each task."""
    tail: Ints
    """[n] least ticks known from the finish of each task to the end of the schedule."""
    apart: Bools
    """[n, n] whether two tasks cannot share a location."""
    unit: Ints
    """[n] unit of each task; tasks of one unit share a location."""
    work: Ints
    """[q, n] least weighted ticks of each task, for each of q weights of the devices."""
    total: Ints
    """[q] sum of each of the weights."""
    most: Ints
    """[q] sum of each of the weights at the one location where it is greatest."""
    sites: int
    """Number of locations."""


class DistanceArguments(NamedTuple):
    """Arguments that raise a distance beyond the longest path, and the effort that they may take."""

    work: bool = True
    """All devices do the work between."""
    transfers: bool = True
    """Two locations are told from one; else a transfer counts only where no placement avoids it."""
    forced: bool = True
    """Use tasks that have no time to be elsewhere: they share the devices of one location."""
    spread: bool = True
    """Other locations start later and end sooner."""
    memory: bool = True
    """Use that tasks which do not fit the memory of one location are at two."""
    effort: int = 100_000_000
    """Tasks that are looked at for pairs of tasks; the ends of the schedule are looked at whatever the effort."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distances:
    """Positions 1..n stand for the tasks in a topological order, 0 for the start and n + 1 for the end."""

    task: Ints
    """[n] the task at each position, from 1."""
    near: Ints
    """[n + 2, n + 2] at [j, i]: least ticks from the finish of i to the start of j at one location; NEVER where they
    cannot share one, NONE unless i precedes j."""
    far: Ints
    """The same at two."""
    least: Ints
    """The least of both."""

    @property
    def head(self) -> Ints:
        """[n] earliest start of each task."""
        return self._by_task(self.least[1:-1, 0])

    @property
    def tail(self) -> Ints:
        """[n] least ticks from the finish of each task to the end."""
        return self._by_task(self.least[-1, 1:-1])

    @property
    def ticks(self) -> int:
        """A lower bound on the makespan; at least NEVER where there is no schedule."""
        return int(self.least[-1, 0])

    def _by_task(self, by_position: Ints) -> Ints:
        found = np.empty_like(by_position)
        found[self.task] = by_position
        return found


def distances(problem: Problem, lengths: PathLengths, arguments: DistanceArguments) -> Distances:
    """Return the distances of all pairs, for at most DENSE tasks. O(n^3) and the effort. Deterministic."""
    n = problem.tasks
    task = topological_order(n, problem.src, problem.dst)
    place = rank_of(task) + 1
    near = np.full((n + 2, n + 2), NONE, dtype=np.int64)
    far, least, apart = near.copy(), near.copy(), np.zeros(near.shape, dtype=np.bool_)
    apart[1:-1, 1:-1] = lengths.apart[np.ix_(task, task)]
    for table in (near, far):
        table[1:-1, 0], table[-1, 1:-1], table[-1, 0] = lengths.head[task], lengths.tail[task], 0
    row, column = place[problem.dst], place[problem.src]
    np.maximum.at(near, (row, column), lengths.near)
    np.maximum.at(far, (row, column), lengths.far)
    work = np.zeros((len(lengths.total), n + 2), dtype=np.int64)
    work[:, 1:-1] = lengths.work[:, task]
    took, unit = np.zeros(n + 2, dtype=np.int64), np.full(n + 2, -1, dtype=np.int64)
    took[1:-1], unit[1:-1] = lengths.took[task], lengths.unit[task]
    memory = np.zeros(n + 2, dtype=np.int64)
    memory[1:-1] = problem.memory[task]
    room = int(problem.capacity.max(initial=0))
    t = DistanceTable(
        near, far, least, apart, took, unit, work, lengths.total, lengths.most, memory, room, lengths.sites
    )
    _fill(t, arguments)
    return Distances(task=ints(task), near=ints(near), far=ints(far), least=ints(least))


@routine
def _fill(t: DistanceTable, arguments: DistanceArguments) -> None:
    """Find distances row by row, and within a row from the nearest ancestor: what one depends on is final by then."""
    last, effort = len(t.took) - 1, arguments.effort
    for j in range(1, last + 1):
        for i in range(j - 1, -1, -1):
            if t.near[j, i] < 0:
                continue
            # Some must share a location, and some cannot.
            if not arguments.transfers:
                t.near[j, i] = t.far[j, i] = min(t.near[j, i], t.far[j, i])
            elif i > 0 and j < last:
                if t.unit[i] == t.unit[j]:
                    t.far[j, i] = NEVER
                if t.apart[j, i]:
                    t.near[j, i] = NEVER
            t.least[j, i] = min(t.near[j, i], t.far[j, i])
            # The effort is limited, and goes to pairs in the order in which their distances become final. The ends of
            # the schedule are looked at in any case: their distances are the windows of tasks and the bound itself.
            if effort > 0 or i == 0 or j == last:
                inside = between(t, i, j)
                effort -= len(inside) * (len(inside) + 8)
                if len(inside) > 0:
                    ticks = packed(t, i, j, inside) if arguments.work else 0
                    if arguments.spread:
                        ticks = max(ticks, spread(t, i, j, inside))
                    t.near[j, i], t.far[j, i] = max(t.near[j, i], ticks), max(t.far[j, i], ticks)
                    if arguments.memory and i > 0 and j < last:
                        t.near[j, i] = max(t.near[j, i], crowded(t, i, j, inside))
                    t.least[j, i] = min(t.near[j, i], t.far[j, i])
                    if arguments.forced:
                        t.near[j, i], t.far[j, i] = forced(t, i, j, inside)
                        t.least[j, i] = min(t.near[j, i], t.far[j, i])
            if i > 0:
                _pass_on(t, i, j)
        if t.least[j, 0] >= NEVER:
            t.least[last, 0] = NEVER
            return


@routine
def _pass_on(t: DistanceTable, i: int, j: int) -> None:
    """Extend the distances that end at i by that from i to j."""
    took, near, far, last = t.took[i], t.near[j, i], t.far[j, i], len(t.took) - 1
    for h in range(i):
        if t.near[i, h] < 0:
            continue
        if h == 0 or j == last:
            same = other = t.least[i, h] + took + t.least[j, i]
        else:
            here, there = t.near[i, h] + took, t.far[i, h] + took
            same = min(here + near, there + far)
            other = min(here + far, there + near)
            if t.sites > 2:
                other = min(other, there + far)
        t.near[j, h] = min(max(t.near[j, h], same), NEVER)
        t.far[j, h] = min(max(t.far[j, h], other), NEVER)
