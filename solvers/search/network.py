"""Input of local search: a problem as compact arrays, devices by location, and clusterings of the tasks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solvers.arrays import Ints
from solvers.compiled.dag import adjacency, connected
from solvers.heuristics.devices_of_location import devices_at
from solvers.problem import FORBIDDEN, Problem
from solvers.structure.units import Units
from solvers.timing.replay import bottom_levels

Shorts = npt.NDArray[np.int32]


class SearchNetwork(NamedTuple):
    """A problem for compiled search: where a task is, is its location; which device there, is settled beforehand."""

    offset: Shorts
    """[n + 1] where the edges of each task start in `head` and `carried`."""
    head: Shorts
    carried: Shorts
    """[e] payload of each such edge, -1 for none; the consumers of a payload are consecutive."""
    behind: Shorts
    """[n + 1] where the edges into each task start in `tail_of`."""
    tail_of: Shorts
    """[e] tasks that the edges come from: those that send a payload as `task`, others as `-1 - task`."""
    indegree: Shorts
    device_at: Shorts
    """[n, l] the device that a task gets at a location, -1 where it cannot be; numbered among those in use."""
    took_at: Ints
    """[n, l] ticks of a task at a location."""
    transfer: Ints
    path_class: Ints
    path_links: Ints
    rest: Ints
    """[n] least ticks from the end of a task to the end of the schedule."""
    memory: Ints
    """[n] bytes that each task holds."""
    unit: Shorts
    """[n] unit of each task: what moves together whatever moves."""
    choice: Shorts
    """[u'] units that can be at several locations."""
    used: Ints
    """[devices in use] numbers of these devices in the problem."""
    links: int


class MoveClusters(NamedTuple):
    """Several partitions of the tasks, coarse to fine; each keeps units whole. The last is the units themselves."""

    label: Shorts
    """[k, n] cluster of each task."""
    first: Shorts
    """[k, n + 1] where each cluster starts in `member`."""
    member: Shorts
    """[k, n] the tasks, by cluster."""
    sizes: Shorts
    """[k] number of clusters of each partition."""


def network_of(problem: Problem, units: Units) -> SearchNetwork:
    """Everything that search reads. O(e log e + n (m + l))."""
    p, n = problem, problem.tasks
    # [n, l] the device of a task at each location, -1 where its unit cannot be.
    device = np.full((p.tasks, p.locations), -1, dtype=np.int64)
    for place in range(p.locations):
        there = devices_at(p, np.full(p.tasks, place))
        able = units.allowed[units.unit, place] & (p.location[there] == place)
        device[able, place] = there[able]
    used = np.unique(device[device >= 0])
    number = np.full(p.devices + 1, -1, dtype=np.int64)
    number[used] = np.arange(len(used))
    took = np.where(device >= 0, np.take_along_axis(p.duration, np.maximum(device, 0), axis=1), FORBIDDEN)
    by = np.lexsort((p.payload, p.src))
    offset, _ = adjacency(n, p.src)
    behind, into = adjacency(n, p.dst)
    tails = np.where(p.payload[into] >= 0, p.src[into], -1 - p.src[into])
    return SearchNetwork(
        offset=_short(offset),
        head=_short(p.dst[by]),
        carried=_short(p.payload[by]),
        behind=_short(behind),
        tail_of=_short(tails),
        indegree=_short(np.bincount(p.dst, minlength=n)),
        device_at=_short(number[device]),
        took_at=took,
        transfer=p.transfer,
        path_class=p.path_class,
        path_links=p.holds,
        rest=bottom_levels(p, mean=False, communication=0.0) - _least(p),
        memory=p.memory,
        unit=_short(units.unit),
        choice=_short(np.flatnonzero(np.count_nonzero(units.allowed, axis=1) > 1)),
        used=used,
        links=max(p.links, 1),
    )


def clusters_of(units: Units, partitions: Sequence[Ints]) -> MoveClusters:
    """The partitions, [n] labels each, with what shares a unit joined; then the units. O(k n log n)."""
    labels = [_joined(units.unit, partition) for partition in partitions] + [units.unit]
    n = len(units.unit)
    first = np.zeros((len(labels), n + 1), dtype=np.int32)
    for k, label in enumerate(labels):
        np.cumsum(np.bincount(label, minlength=n), out=first[k, 1:])
    return MoveClusters(
        label=_short(np.stack(labels)),
        first=first,
        member=_short(np.stack([np.argsort(label, kind="stable") for label in labels])),
        sizes=_short(np.array([int(label.max(initial=-1)) + 1 for label in labels])),
    )


def _joined(unit: Ints, partition: Ints) -> Ints:
    """[n] labels of the connected components of tasks that share a label or a unit."""
    n = len(unit)
    root = connected(2 * n, unit, n + partition)
    return np.unique(root[unit], return_inverse=True)[1]


def _least(p: Problem) -> Ints:
    return np.where(p.allowed, p.duration, np.iinfo(np.int64).max).min(axis=1)


def _short(values: Ints) -> Shorts:
    found = np.ascontiguousarray(values, dtype=np.int32)
    found.setflags(write=False)
    return found
