"""Shared tables of all walks over one problem, and conversions between schedules and solutions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solvers.arrays import Ints, ints, rank_of
from solvers.compiled.dag import topological_order
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.search.network import MoveClusters, SearchNetwork, clusters_of, network_of
from solvers.structure.units import placeable_units
from solvers.timing.loop import Prepared
from solvers.timing.replay import prepare, replay


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
    sets: MoveClusters
    prepared: Prepared
    topological: Ints
    """[n] position of each task in a topological order; breaks ties."""
    capacity: Ints
    """[l] bytes that placements may hold."""

    @classmethod
    def of(cls, problem: Problem, partitions: Sequence[Ints], capacity: Ints | None = None) -> "Workspace":
        """partitions: [n] labels each, coarse to fine: what may move together, beside units.

        ValueError when a unit can be nowhere.
        """
        units = placeable_units(problem)
        return cls(
            problem=problem,
            prepared=prepare(problem),
            network=network_of(problem, units),
            sets=clusters_of(units, partitions),
            topological=rank_of(topological_order(problem.tasks, problem.src, problem.dst)),
            capacity=problem.capacity if capacity is None else capacity,
        )

    def devices(self, at: Ints) -> Ints:
        """[n] device of each task at its location."""
        return ints(self.network.used[np.take_along_axis(self.network.device_at, at[:, None], axis=1)[:, 0]])

    def order_of(self, schedule: Schedule) -> Ints:
        """[n] the tasks by start, then finish, then topological position."""
        return ints(np.lexsort((self.topological, schedule.finish, schedule.start)))

    def spot(self, at: Ints, order: Ints) -> Solution:
        """A point, with the makespan of its run."""
        run = self.run(self.devices(at), rank_of(order))
        return Solution(at=ints(at), order=ints(order), makespan=run.makespan)

    def spot_of(self, schedule: Schedule) -> Solution:
        """The point that a schedule stands for; its cores of a host may differ."""
        return self.spot(self.problem.location[schedule.device], self.order_of(schedule))

    def schedule(self, spot: Solution) -> Schedule:
        """The run of a point."""
        return self.run(self.devices(spot.at), rank_of(spot.order))

    def run(self, device: Ints, rank: Ints, *, strict: bool = True) -> Schedule:
        """`solvers.timing.replay.replay` on this problem."""
        return replay(self.problem, device, rank, strict=strict, prepared=self.prepared)
