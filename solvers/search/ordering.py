"""Better orders for a placement: list scheduling forwards and backwards, and compaction."""

from dataclasses import dataclass

import numpy as np

from solvers.arrays import Ints, ints, rank_of
from solvers.problem import Problem
from solvers.search.workspace import Solution, Workspace
from solvers.timing.loop import Prepared
from solvers.timing.replay import bottom_levels, prepare, replay


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Orders:
    """Improves the order of a placement by list scheduling."""

    arena: Workspace
    mirror: Problem
    """The problem in reverse, without links: each edge carries a payload of its own."""
    backward: Prepared

    @classmethod
    def of(cls, arena: Workspace) -> "Orders":
        """Everything that does not depend on the placement."""
        mirror = _mirrored(arena.problem)
        return cls(arena=arena, mirror=mirror, backward=prepare(mirror))

    def improved(self, spot: Solution) -> Solution:
        """The best of a placement's own order and four others.

        Idle devices start, of their ready tasks, the first by the order as it is, by bottom level under the placement,
        or by a schedule made backwards from the end ("forward-backward improvement", Li and Willis 1992; Tormos and
        Lova 2001), the latter twice.
        """
        device = self.arena.devices(spot.at)
        place = rank_of(spot.order)
        level = bottom_levels(self.arena.problem, device=device)
        found = [spot, self._listed(spot.at, device, place)]
        found.append(self._listed(spot.at, device, rank_of(np.lexsort((self.arena.topological, -level)))))
        for _ in range(2):
            best = min(found, key=lambda each: each.makespan)
            found.append(self._listed(best.at, device, self._backwards(device, best)))
        return min(found, key=lambda each: each.makespan)

    def _listed(self, at: Ints, device: Ints, priority: Ints) -> Solution:
        order = self.arena.order_of(self.arena.run(device, priority, strict=False))
        return Solution(at=at, order=order, makespan=self.arena.run(device, rank_of(order)).makespan)

    def _backwards(self, device: Ints, spot: Solution) -> Ints:
        """[n] priorities: how late each task can start when all is listed from the end."""
        finish = self.arena.schedule(spot).finish
        place = rank_of(spot.order)
        late = replay(self.mirror, device, rank_of(np.lexsort((-place, -finish))), strict=False, prepared=self.backward)
        return ints(rank_of(np.lexsort((place, -late.finish))))


def _mirrored(p: Problem) -> Problem:
    """Time runs backwards; a payload is sent back by each of its readers, whatever the others do."""
    carried = np.flatnonzero(p.payload >= 0)
    payload = np.full(p.edges, -1, dtype=np.int64)
    payload[carried] = np.arange(len(carried))
    return Problem(
        duration=p.duration,
        location=p.location,
        memory=p.memory,
        capacity=p.capacity,
        src=p.dst,
        dst=p.src,
        payload=payload,
        producer=p.dst[carried],
        transfer=p.transfer[p.payload[carried]],
        path_class=p.path_class.T,
        path_links=np.full_like(p.path_links, -1),
        group=p.group,
    )
