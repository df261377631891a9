"""How far merging may go at each stage: caps that start tight and grow geometrically, the last stage without any."""

import math
from dataclasses import dataclass

import numpy as np

from pesto.planning.coarsen.coarsening import Caps
from pesto.planning.coarsen.match import MergeLimits
from pesto.planning.coarsen.quotient import Quotient, places
from pesto.planning.coarsen.topological_levels import longest_paths
from solvers import Problem
from solvers.arrays import Ints

WHOLE = int(np.iinfo(np.int64).max)
"""No cap."""
_MOST = 0.75
"""Until the last stage a united group stays below this part of a fair share, so that the rest can balance it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scale:
    """What the caps are measured in."""

    caps: Caps
    target: int
    tasks: int
    total: int
    """Ticks of all tasks."""
    critical: int
    """Ticks of the critical path."""
    locations: Ints
    """[kinds] locations where nodes of a kind can run."""
    capacity: Ints
    """[kinds] bytes of the largest location of each kind."""
    fair: float
    """Total time over the locations of the kind with most time."""

    @property
    def stages(self) -> int:
        """Stages until the cap on time is the total, and the last one, without caps."""
        return 1 + max(1, math.ceil(math.log(max(1.0, self.target / self.caps.time), self.caps.growth)))

    def limits(self, stage: int) -> MergeLimits:
        """The caps of one stage, 0..stages-1."""
        mean = max(1.0, self.total / self.target)
        if stage == self.stages - 1:
            whole = np.full(len(self.locations), WHOLE)
            return MergeLimits(
                time=WHOLE,
                members=WHOLE,
                path=WHOLE,
                mean=mean,
                loss=WHOLE,
                unit_time=whole,
                unit_memory=self._unit_memory(1.0),
            )
        caps, grown = self.caps, self.caps.growth**stage
        group = caps.group * math.sqrt(grown)
        free = self.locations <= 1
        fair = self.total / np.maximum(1, self.locations)
        return MergeLimits(
            time=_ticks(caps.time * grown * self.total / self.target),
            members=_ticks(max(2.0, caps.members * grown * self.tasks / self.target)),
            path=_ticks(max(self.critical, caps.path * self.fair) * math.sqrt(grown)),
            mean=mean,
            loss=_ticks(caps.loss * (grown - 1) * self.total / self.target),
            unit_time=np.where(free, WHOLE, (min(group, _MOST) * fair).astype(np.int64)),
            unit_memory=self._unit_memory(min(group, 1.0)),
        )

    def _unit_memory(self, share: float) -> Ints:
        # What is scarce is room at a location, unless that is so ample that only balance matters.
        return np.where(self.locations <= 1, WHOLE, (self.capacity * share).astype(np.int64))


def scale(problem: Problem, q: Quotient, caps: Caps, target: int) -> Scale:
    """Measure the finest quotient of a problem."""
    kinds = int(q.nodes.kind.max(initial=-1)) + 1
    first = np.zeros(kinds, dtype=np.int64)
    first[q.nodes.kind] = np.arange(q.size)
    may = places(problem)[first]
    time = np.bincount(q.nodes.kind, weights=q.nodes.time, minlength=kinds)
    locations = may.sum(axis=1)
    total = int(q.nodes.time.sum())
    return Scale(
        caps=caps,
        target=target,
        tasks=q.size,
        total=total,
        critical=longest_paths(q).longest,
        locations=locations,
        capacity=np.where(may, problem.capacity, 0).max(axis=1, initial=0),
        fair=total / max(1, int(locations[np.argmax(time)])) if kinds else 0.0,
    )


def _ticks(value: float) -> int:
    return min(WHOLE, math.ceil(value))
