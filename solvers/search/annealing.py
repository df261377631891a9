"""One annealing: a lane that cools while its budget is spent, in stretches between which it can be stopped."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.arrays import Floats, Ints, ints, rank_of
from solvers.compiled.kernels import inlined, kernel, spliced
from solvers.problem import Problem
from solvers.search.changes import undo
from solvers.search.moves import propose
from solvers.search.network import MoveClusters, SearchNetwork
from solvers.search.simulation import NEVER, STOPPED, simulate
from solvers.search.state import RunBounds
from solvers.search.walk_state import (
    BEST,
    COST,
    OVER,
    STATES,
    TAKEN,
    TRIED,
    Lane,
    accept,
    begin_at,
    lane_for,
    overload,
    trace_critical,
    uniform,
)
from solvers.search.workspace import Solution, Workspace
from solvers.timing.loop import Prepared
from solvers.timing.replay import bottom_levels, prepare, replay

# Simulated annealing over placements and priorities, compiled (Kirkpatrick, Gelatt & Vecchi 1983).

_FRESH = 64
"""Accepted changes after which the critical chain is traced again."""


class Cooling(NamedTuple):
    """One stretch of an annealing."""

    steps: int
    hot: float
    """Ticks by which what is worse is accepted with probability 1/e as the stretch begins."""
    cold: float
    """Ticks by which what is worse is accepted with probability 1/e as the stretch ends."""
    kinds: Floats
    """[KINDS] cumulated shares of the kinds of moves."""
    levels: Floats
    """[k] cumulated shares of the partitions."""


@kernel
def anneal(net: SearchNetwork, sets: MoveClusters, lane: Lane, cooling: Cooling) -> None:
    """Try so many changes. One that takes bytes off where there are too many is accepted whatever it costs."""
    stale, heat = 0, cooling.hot
    factor = (cooling.cold / cooling.hot) ** (1.0 / max(cooling.steps, 1))
    for _ in range(cooling.steps):
        heat *= factor
        lane.tally[TRIED] += 1
        kind = _share(cooling.kinds, uniform(lane))
        level = _share(cooling.levels, uniform(lane))
        changed = propose(net, sets, lane, kind, level)
        # The Metropolis test, turned around: the random number is drawn first and gives a limit on the makespan, so
        # that the simulation can stop as soon as the change is sure to be rejected.
        limit = lane.tally[COST] + np.int64(-np.log(1.0 - uniform(lane)) * heat)
        over = overload(lane)
        if over < lane.tally[OVER]:
            limit = NEVER
        # The greatest load of a device is a lower bound on the makespan: above the limit, no simulation is needed.
        if not changed or over > lane.tally[OVER] or _most(lane.choice.load) > limit:
            undo(net, lane)
            continue
        run = RunBounds(limit, lane.departs[0], max(lane.tally[COST] // (STATES + 1), 1))
        cost = simulate(net, lane.choice, lane.trial, lane.work, lane.saved, run)
        if cost == STOPPED or cost > limit:
            undo(net, lane)
            continue
        lane.tally[TAKEN] += 1
        better = cost < lane.tally[BEST]
        accept(lane, cost)
        stale += 1
        # Tracing the critical chain walks the whole chain; a chain that is some changes old still points at good moves.
        if better or stale >= _FRESH:
            trace_critical(net, lane)
            stale = 0


@inlined
def _share(cumulated: Floats, at: float) -> int:
    """Whose share a number in [0, 1) is in."""
    k = 0
    while k < len(cumulated) - 1 and cumulated[k] <= at:
        k += 1
    return k


@spliced
def _most(load: Ints) -> int:
    most = load[0]
    for d in range(1, len(load)):
        most = max(most, load[d])
    return int(most)


# Better orders for a placement: list scheduling forwards and backwards, and compaction.


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
        # Time runs backwards; a payload is sent back by each of its readers, whatever the others do.
        p = arena.problem
        carried = np.flatnonzero(p.payload >= 0)
        payload = np.full(p.edges, -1, dtype=np.int64)
        payload[carried] = np.arange(len(carried))
        mirror = Problem(
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


_KINDS = np.cumsum((0.35, 0.2, 0.05, 0.1, 0.15, 0.15))
"""Shares of the kinds of moves, in the order of `solvers.search.moves`."""
_STRETCH, _CHANGES = 2_000_000, 2_000
"""Tasks times changes of one stretch, and changes at most: some 30 ms or less."""
_PAUSE = 16
"""Stretches after which other orders of the current placement are tried, and the best point is weighed."""
_LESS = 1.02
"""Bytes that a placement may hold less, for each that it was over."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointValue:
    """Evaluation of a solution, possibly on another problem than the one that is annealed."""

    makespan: int
    device: Ints
    """[n] device of each task of the problem that the point is worth it on."""
    rank: Ints
    """[n] place of each task of that problem in its order."""
    over: Ints
    """[l] bytes beyond each location's capacity at the worst moment, 0 where it fits."""
    rule: str = ""
    """How the schedule was made, in a few words."""


Weigh = Callable[[Solution], PointValue]


class Temperature(NamedTuple):
    """Shares of the makespan: what is worse by as much is accepted with probability 1/e."""

    hot: float
    """Share of the makespan at the start of a run."""
    cold: float
    """Share of the makespan at the end of a run."""

    def times(self, factor: float) -> "Temperature":
        """Hotter by a factor."""
        return Temperature(self.hot * factor, self.cold * factor)


class Walk:
    """Anneals from a point. `kept` is what was worth most of all that fit; None before anything did.

    Not for use by two threads at once. What fits is seen between stretches: a best point that does not is forgotten,
    and placements may hold less from then on.
    """

    def __init__(self, arena: Workspace, start: Solution, heat: Temperature, weigh: Weigh, seed: int) -> None:
        self.kept: PointValue | None = None
        self._arena, self._heat, self._weigh = arena, heat, weigh
        self._lane = lane_for(arena.network, start.at, start.order, arena.capacity, seed)
        self._orders, self._stretches, self._seen = Orders.of(arena), 0, NEVER
        self._home: Solution | None = None
        self._begin(start)
        self._steps = min(max(16, _STRETCH // max(arena.problem.tasks, 1)), _CHANGES)
        levels = len(arena.sets.sizes)
        self._levels = np.cumsum(np.full(levels, 1.0 / levels))

    def _begin(self, start: Solution) -> None:
        """Set the capacities from the start: at least its bytes if it fits, less than these where it does not."""
        weighed, lane = self._weigh(start), self._lane
        if (weighed.over > 0).any():
            self._shrink(
                np.where(weighed.over > 0, np.minimum(lane.capacity, lane.choice.held), lane.capacity), weighed.over
            )
        else:
            self.kept, self._home, self._seen = weighed, start, start.makespan
            lane.capacity[:] = np.maximum(lane.capacity, lane.choice.held)
        begin_at(self._arena.network, lane, start.at.astype(np.int32), start.order.astype(np.int32))

    @property
    def home(self) -> Solution | None:
        """The shortest point that was weighed and fits."""
        return self._home

    @property
    def best(self) -> Solution:
        """The best point since the last that did not fit; the current one where none held little enough since."""
        lane = self._lane
        if lane.tally[BEST] == NEVER:
            return self._now()
        return Solution(at=ints(lane.best_at), order=ints(lane.best_order), makespan=int(lane.tally[BEST]))

    def _go(self, spot: Solution) -> None:
        """Make a point the current one."""
        begin_at(self._arena.network, self._lane, spot.at.astype(np.int32), spot.order.astype(np.int32))

    def _now(self) -> Solution:
        lane = self._lane
        return Solution(at=ints(lane.choice.at), order=ints(lane.choice.order), makespan=int(lane.tally[COST]))

    def stretch(self, progress: float, rarer: int = 1) -> bool:
        """Try changes for a moment, as hot as it is after this share of the budget; True where `kept` is better.

        rarer: pauses come after so many times as many stretches.
        """
        if not len(self._arena.network.choice):
            return self.pause()
        heat = self._heat.hot * (self._heat.cold / self._heat.hot) ** min(progress, 1.0)
        ticks = heat * float(self._lane.tally[COST]) + 1e-9
        self._sorted()
        cooling = Cooling(self._steps, ticks, ticks, _KINDS, self._levels)
        anneal(self._arena.network, self._arena.sets, self._lane, cooling)
        self._stretches += 1
        if self._stretches % (_PAUSE * rarer):
            return False
        # Try other orders of the current placement.
        now = self._now()
        found = self._orders.improved(now)
        if found.makespan < now.makespan:
            begin_at(self._arena.network, self._lane, found.at.astype(np.int32), found.order.astype(np.int32))
        return self.pause()

    def pause(self) -> bool:
        """Weigh the best point, if it is new; True where `kept` is better."""
        best = self.best
        if best.makespan >= self._seen:
            return False
        weighed = self._weigh(best)
        if (weighed.over > 0).any():
            # What holds more than is allowed says nothing of what should be.
            if self._lane.tally[BEST] < NEVER:
                # Placements may hold less; go on from the last point that fit, if any did.
                over = weighed.over
                lane = self._lane
                self._shrink(lane.capacity, over)
                if self._home is not None:
                    home = self._home
                    begin_at(self._arena.network, lane, home.at.astype(np.int32), home.order.astype(np.int32))
                else:
                    self._sorted()
            return False
        self._seen, self._home = best.makespan, best
        if self.kept is not None and self.kept.makespan <= weighed.makespan:
            return False
        self.kept = weighed
        return True

    def _shrink(self, capacity: Ints, over: Ints) -> None:
        """Allow less where there was too much, but not so little that it could not hold all: estimates may be high."""
        lane = self._lane
        less = capacity - np.int64(_LESS * over) - (over > 0)
        if less.min(initial=0) >= 0 and less.sum() >= _LESS * lane.choice.held.sum():
            lane.capacity[:] = less
        lane.tally[BEST] = NEVER

    def _sorted(self) -> None:
        """Number the tasks by when they run, so that moved tasks find their place by time.

        The same run, but for ties among what ends at once: where these make it longer, the order stays.
        """
        lane, now = self._lane, self._now()
        order = np.lexsort((lane.choice.place, lane.base.end, lane.base.start))
        self._go(Solution(at=now.at, order=order, makespan=0))
        if lane.tally[COST] > now.makespan:
            self._go(now)
