"""Shared tables of all walks over one problem: compact arrays, clusters that move together, and solutions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solvers.arrays import Ints, ints, rank_of
from solvers.compiled.dag import adjacency, connected, topological_order
from solvers.heuristics.devices_of_location import devices_at
from solvers.problem import FORBIDDEN, Problem, least_ticks
from solvers.schedule import Schedule
from solvers.structure.units import Units, placeable_units
from solvers.timing.loop import Prepared
from solvers.timing.replay import bottom_levels, prepare, replay

Shorts = npt.NDArray[np.int32]


class SearchNetwork(NamedTuple):
    """A problem for compiled search, which places tasks at locations; the device at each is settled beforehand."""

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
    """[n] unit of each task; a unit always moves as a whole."""
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
    """Return the tables that compiled search reads. O(e log e + n (m + l))."""
    p, n = problem, problem.tasks
    device = np.full((p.tasks, p.locations), -1, dtype=np.int64)
    for place in range(p.locations):
        there = devices_at(p, np.full(p.tasks, place))
        able = units.allowed[units.unit, place] & (p.location[there] == place)
        device[able, place] = there[able]
    used = np.unique(device[device >= 0])
    number = np.full(p.devices + 1, -1, dtype=np.int64)
    number[used] = np.arange(len(used))
    by = np.lexsort((p.payload, p.src))
    behind, into = adjacency(n, p.dst)
    return SearchNetwork(
        offset=_short(adjacency(n, p.src)[0]),
        head=_short(p.dst[by]),
        carried=_short(p.payload[by]),
        behind=_short(behind),
        tail_of=_short(np.where(p.payload[into] >= 0, p.src[into], -1 - p.src[into])),
        indegree=_short(np.bincount(p.dst, minlength=n)),
        device_at=_short(number[device]),
        took_at=np.where(device >= 0, np.take_along_axis(p.duration, np.maximum(device, 0), axis=1), FORBIDDEN),
        transfer=p.transfer,
        path_class=p.path_class,
        path_links=p.holds,
        rest=bottom_levels(p, mean=False, communication=0.0) - least_ticks(p),
        memory=p.memory,
        unit=_short(units.unit),
        choice=_short(np.flatnonzero(np.count_nonzero(units.allowed, axis=1) > 1)),
        used=used,
        links=max(p.links, 1),
    )


def clusters_of(units: Units, partitions: Sequence[Ints]) -> MoveClusters:
    """Return the partitions, [n] labels 0 .. n - 1 each, what shares a unit joined; then the units. O(k n log n)."""
    n = len(units.unit)
    labels = []
    for partition in partitions:
        # A graph of units and labels with an edge for each task; its components keep both together.
        root = connected(2 * n, units.unit, n + partition)
        labels.append(np.unique(root[units.unit], return_inverse=True)[1])
    labels.append(units.unit)
    first = np.zeros((len(labels), n + 1), dtype=np.int32)
    for k, label in enumerate(labels):
        np.cumsum(np.bincount(label, minlength=n), out=first[k, 1:])
    return MoveClusters(
        label=_short(np.stack(labels)),
        first=first,
        member=_short(np.stack([np.argsort(label, kind="stable") for label in labels])),
        sizes=_short(np.array([int(label.max(initial=-1)) + 1 for label in labels])),
    )


def _short(values: Ints) -> Shorts:
    short = np.ascontiguousarray(values, dtype=np.int32)
    short.setflags(write=False)
    return short


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """A placement and an order: one point of the search."""

    at: Ints
    """[n] location of each task."""
    order: Ints
    """[n] all tasks, each after what it depends on; each device runs its own in this order."""
    makespan: int
    """Ticks, links first come, first served."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workspace:
    """A problem, made ready for any number of walks."""

    problem: Problem
    network: SearchNetwork
    clusters: MoveClusters
    prepared: Prepared
    topological: Ints
    """[n] position of each task in a topological order; breaks ties."""
    capacity: Ints
    """[l] bytes that placements may hold."""

    @classmethod
    def of(cls, problem: Problem, partitions: Sequence[Ints], capacity: Ints | None = None) -> "Workspace":
        """Prepare a problem; `partitions` are [n] labels 0 .. n - 1 each, coarse to fine: what may move together.

        Raise ValueError when a unit can be nowhere.
        """
        units = placeable_units(problem)
        return cls(
            problem=problem,
            prepared=prepare(problem),
            network=network_of(problem, units),
            clusters=clusters_of(units, partitions),
            topological=rank_of(topological_order(problem.tasks, problem.src, problem.dst)),
            capacity=problem.capacity if capacity is None else capacity,
        )

    def devices(self, at: Ints) -> Ints:
        """Return [n] the device of each task at its location."""
        return ints(self.network.used[np.take_along_axis(self.network.device_at, at[:, None], axis=1)[:, 0]])

    def order_of(self, schedule: Schedule) -> Ints:
        """Return [n] the tasks by start, then finish, then topological position."""
        return ints(np.lexsort((self.topological, schedule.finish, schedule.start)))

    def solution(self, at: Ints, order: Ints) -> Solution:
        """Simulate a placement in an order."""
        return Solution(at=ints(at), order=ints(order), makespan=self.run(self.devices(at), rank_of(order)).makespan)

    def solution_of(self, schedule: Schedule) -> Solution:
        """Return the solution that a schedule stands for; its cores of a host may differ."""
        return self.solution(self.problem.location[schedule.device], self.order_of(schedule))

    def schedule(self, solution: Solution) -> Schedule:
        """Return the schedule of a solution."""
        return self.run(self.devices(solution.at), rank_of(solution.order))

    def run(self, device: Ints, rank: Ints, *, strict: bool = True) -> Schedule:
        """Return `solvers.timing.replay.replay` on this problem."""
        return replay(self.problem, device, rank, strict=strict, prepared=self.prepared)
