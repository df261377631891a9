"""One annealing: a lane that cools while its budget is spent, in stretches between which it can be stopped."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints
from solvers.search.anneal import Cooling, anneal
from solvers.search.arena import Arena, Spot
from solvers.search.lane import BEST, COST, TRIED, begin_at, lane_for
from solvers.search.ordering import Orders
from solvers.search.simulation import NEVER

_KINDS = np.cumsum((0.35, 0.2, 0.05, 0.1, 0.15, 0.15))
"""Shares of the kinds of moves, in the order of `solvers.search.moves`."""
_STRETCH = 2_000_000
"""Tasks times changes of one stretch: some 10 to 30 ms."""
_PAUSE = 16
"""Stretches after which other orders of the current placement are tried, and the best point is weighed."""
_LESS = 1.02
"""Bytes that a placement may hold less, for each that it was over."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weighed:
    """What a point is worth, perhaps on another problem than the one that is walked on."""

    makespan: int
    device: Ints
    """[n] of that problem."""
    rank: Ints
    """[n]"""
    over: Ints
    """[l] bytes beyond each location's capacity at the worst moment, 0 where it fits."""
    rule: str = ""
    """How it was made, in a few words."""


Weigh = Callable[[Spot], Weighed]


class Heat(NamedTuple):
    """Shares of the makespan: what is worse by as much is accepted with probability 1/e."""

    hot: float
    """At first,"""
    cold: float
    """and at last."""

    def times(self, factor: float) -> "Heat":
        """Hotter by a factor."""
        return Heat(self.hot * factor, self.cold * factor)


class Walk:
    """Anneals from a point. `kept` is what was worth most of all that fit; None before anything did.

    Not for use by two threads at once. What fits is seen between stretches: a best point that does not is forgotten,
    and placements may hold less from then on.
    """

    def __init__(self, arena: Arena, start: Spot, heat: Heat, weigh: Weigh, seed: int) -> None:
        self.kept: Weighed | None = None
        self._arena, self._heat, self._weigh = arena, heat, weigh
        self._lane = lane_for(arena.network, start.at, start.order, arena.capacity, seed)
        self._orders, self._stretches, self._seen = Orders.of(arena), 0, NEVER
        self._home: Spot | None = None
        self._begin(start)
        self._steps = max(16, _STRETCH // max(arena.problem.tasks, 1))
        levels = len(arena.sets.sizes)
        self._levels = np.cumsum(np.full(levels, 1.0 / levels))

    def _begin(self, start: Spot) -> None:
        """What a start holds that fits is allowed, however much it was estimated to be; less of one that does not."""
        weighed, lane = self._weigh(start), self._lane
        if (weighed.over > 0).any():
            less = np.minimum(lane.capacity, lane.choice.held - np.int64(_LESS * weighed.over))
            lane.capacity[:] = np.where(weighed.over > 0, less, lane.capacity)
            lane.tally[BEST] = NEVER
        else:
            self.kept, self._home, self._seen = weighed, start, start.makespan
            lane.capacity[:] = np.maximum(lane.capacity, lane.choice.held)
        begin_at(self._arena.network, lane, np.int32(start.at), np.int32(start.order))

    @property
    def tried(self) -> int:
        """Changes that were tried."""
        return int(self._lane.tally[TRIED])

    @property
    def best(self) -> Spot:
        """The best point since the last that did not fit."""
        lane = self._lane
        return Spot(at=ints(lane.best_at), order=ints(lane.best_order), makespan=int(lane.tally[BEST]))

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
        self._reorder()
        return self.pause()

    def pause(self) -> bool:
        """Weigh the best point, if it is new; True where `kept` is better."""
        if self._lane.tally[BEST] >= self._seen:
            return False
        best = self.best
        weighed = self._weigh(best)
        if (weighed.over > 0).any():
            self._forget(weighed.over)
            return False
        self._seen, self._home = best.makespan, best
        if self.kept is not None and self.kept.makespan <= weighed.makespan:
            return False
        self.kept = weighed
        return True

    def _forget(self, over: Ints) -> None:
        """Placements may hold less; go on from the last point that fit, if any did."""
        lane = self._lane
        lane.capacity[:] -= np.int64(_LESS * over) + (over > 0)
        lane.tally[BEST] = NEVER
        if self._home is not None:
            begin_at(self._arena.network, lane, np.int32(self._home.at), np.int32(self._home.order))
        else:
            self._sorted()

    def _sorted(self) -> None:
        """Number the tasks by when they run: the same run, but moved tasks find their place by time."""
        lane = self._lane
        order = np.lexsort((lane.choice.place, lane.base.end, lane.base.start))
        begin_at(self._arena.network, lane, lane.choice.at.copy(), order.astype(np.int32))

    def _reorder(self) -> None:
        """Try other orders of the current placement."""
        lane = self._lane
        now = Spot(at=ints(lane.choice.at), order=ints(lane.choice.order), makespan=int(lane.tally[COST]))
        found = self._orders.improved(now)
        if found.makespan < now.makespan:
            begin_at(self._arena.network, lane, np.int32(found.at), np.int32(found.order))
