"""Least ticks between any two tasks, at one location and at two: longest paths, raised by the work between.

For tasks i before j, near(i, j) is the least time from the finish of i to the start of j when they share a location,
far(i, j) when they do not, d = min(near, far). Each task x that descends from i and precedes j runs between the two, at
the location of i, of j, or at another:

    near(i, j)  >=  min(near(i, x) + p(x) + near(x, j),  far(i, x) + p(x) + far(x, j))
    far(i, j)   >=  min(near(i, x) + p(x) + far(x, j),  far(i, x) + p(x) + near(x, j),  far(i, x) + p(x) + far(x, j))

(the last only with a third location). So a path of tasks pays for a transfer where its ends are apart, and segments at
a task that all others precede or follow add up. `solvers.bounds.segments` has what the work between i and j adds.
The start and the end of the schedule count as tasks without ticks: d(start, j) is a head, d(j, end) a tail, and
d(start, end) a bound on the makespan. One sweep in topological order is the fixed point of all of this.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints, rank_of
from solvers.bounds.segments import NEVER, NONE, DistanceTable, between, crowded, forced, packed, spread
from solvers.compiled.dag import topological_order
from solvers.compiled.kernels import routine
from solvers.problem import Problem

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
    """Distances of all pairs, for at most DENSE tasks. O(n^3) and the effort. Deterministic."""
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
    """Row by row, and within a row from the nearest ancestor: what a distance depends on is final by then."""
    last, effort = len(t.took) - 1, arguments.effort
    for j in range(1, last + 1):
        for i in range(j - 1, -1, -1):
            if t.near[j, i] < 0:
                continue
            _relate(t, i, j, arguments.transfers)
            # The effort is limited, and goes to pairs in the order in which their distances become final. The ends of
            # the schedule are looked at in any case: their distances are the windows of tasks and the bound itself.
            if effort > 0 or i == 0 or j == last:
                effort -= _raise(t, i, j, arguments)
            if i > 0:
                _pass_on(t, i, j)
        if t.least[j, 0] >= NEVER:
            t.least[last, 0] = NEVER
            return


@routine
def _relate(t: DistanceTable, i: int, j: int, transfers: bool) -> None:
    """Take account of who must share a location and who cannot."""
    if not transfers:
        t.near[j, i] = t.far[j, i] = min(t.near[j, i], t.far[j, i])
    elif i > 0 and j < len(t.took) - 1:
        if t.unit[i] == t.unit[j]:
            t.far[j, i] = NEVER
        if t.apart[j, i]:
            t.near[j, i] = NEVER
    t.least[j, i] = min(t.near[j, i], t.far[j, i])


@routine
def _raise(t: DistanceTable, i: int, j: int, arguments: DistanceArguments) -> int:
    """Raise the distances of i and j by what is between the two; return the number of tasks looked at."""
    inside = between(t, i, j)
    if len(inside) > 0:
        ticks = packed(t, i, j, inside) if arguments.work else 0
        if arguments.spread:
            ticks = max(ticks, spread(t, i, j, inside))
        t.near[j, i], t.far[j, i] = max(t.near[j, i], ticks), max(t.far[j, i], ticks)
        if arguments.memory and i > 0 and j < len(t.took) - 1:
            t.near[j, i] = max(t.near[j, i], crowded(t, i, j, inside))
        t.least[j, i] = min(t.near[j, i], t.far[j, i])
    if arguments.forced and len(inside) > 0:
        t.near[j, i], t.far[j, i] = forced(t, i, j, inside)
        t.least[j, i] = min(t.near[j, i], t.far[j, i])
    return len(inside) * (len(inside) + 8)


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
