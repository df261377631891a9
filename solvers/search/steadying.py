"""An order whose step hardly depends on turns: devices' orders changed a little where two ask for a link at once."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints, rank_of
from solvers.problem import Problem
from solvers.timing.loop import Prepared, order_of, reset, state_for, turned_makespan
from solvers.timing.replay import replay
from solvers.timing.turns import contenders

_REACH = 6
"""Places on its device that a task is moved by, at most."""
NEVER = 2**62


class SteadyingEffort(NamedTuple):
    """Effort of the search for an order that hardly depends on link tie-breaking."""

    merges: int
    """Random merges of the devices' sequences that every try is held against."""
    runs: int
    """Runs of all tasks after which it ends, about."""
    enough: float
    """It also ends where the shortest merge is below the longest by no more than this share."""


def steadied(problem: Problem, prepared: Prepared, device: Ints, rank: Ints, effort: SteadyingEffort) -> Ints:
    """[n] a rank of which random merges of the devices' sequences differ less; the given one if none was found.

    device, rank: [n] as `replay` takes them, without a deadlock.

    A try takes a task that, in the longest merge, asks for a link when another device does, and moves it within its
    device's sequence. It is kept where the longest, and what the shortest is below it, come to less.
    """
    trial, chance = _MergeTrial(prepared, ints(device), len(rank), effort.merges), np.random.default_rng(0)
    order, given = order_of(ints(rank)), ints(rank)
    best = trial.spread(order, NEVER)
    while best is not None and trial.ran < effort.runs and best.least < (1.0 - effort.enough) * best.longest:
        asking = contenders(problem, replay(problem, device, best.rank, prepared=prepared))
        if not len(asking):
            break
        trial.ran += 1
        # The order with a task elsewhere in its device's sequence; nothing else of an order counts.
        task = int(chance.choice(asking))
        by = int(chance.integers(-_REACH, _REACH + 1))
        places = np.flatnonzero(device[order] == device[task])
        sequence: list[int] = order[places].tolist()
        at = sequence.index(task)
        sequence.insert(min(max(at + by, 0), len(sequence) - 1), sequence.pop(at))
        moved = order.copy()
        moved[places] = sequence
        other = ints(moved)
        found = trial.spread(other, best.price)
        if found is not None:
            best, order, given = found, other, found.rank
    return given


class _MergeSpread(NamedTuple):
    """Makespans of random merges of one order."""

    longest: int
    least: int
    rank: Ints
    """[n] of the longest."""

    @property
    def price(self) -> int:
        """Ticks of the longest, and what the shortest is below it."""
        return 2 * self.longest - self.least


class _MergeTrial:
    """Runs orders of one placement, each by the same merges."""

    def __init__(self, prepared: Prepared, device: Ints, tasks: int, merges: int) -> None:
        self.ran = 0
        self._prepared, self._device, self._state = prepared, device, state_for(prepared, device)
        chance = np.random.default_rng(1)
        self._turns = [ints(chance.permutation(tasks)) for _ in range(merges)]

    def spread(self, order: Ints, below: int) -> _MergeSpread | None:
        """Return the spread over the merges; None for a deadlock, and if the price is not below `below`."""
        longest, least, rank = -1, NEVER, order
        for at, turn in enumerate(self._turns):
            reset(self._prepared, self._state, self._device)
            ticks = int(turned_makespan(self._prepared, self._state, self._device, order, turn))
            self.ran += 1
            if ticks > longest:
                longest, rank = ticks, rank_of(self._state.ended) if ticks >= 0 else order
                # What is longest now is likely to be so again, and shows at once that a try is no better.
                self._turns.insert(0, self._turns.pop(at))
            least = min(least, ticks)
            if ticks < 0 or 2 * longest - least >= below:
                return None
        return _MergeSpread(longest, least, rank)
