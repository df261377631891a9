"""Turns: who is served first where devices ask for one link in the same tick, and orders that hardly depend on it.

No order of the devices decides it. A replay serves them by rank. A merge of the devices' sequences with other ranks
keeps each device's sequence and the precedence, and may serve them otherwise. Whatever happens in a tick is what some
merge says: the order in which the tasks ended.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints, rank_of
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.loop import Prepared, order_of, reset, state_for, turned_makespan, turned_runs
from solvers.timing.replay import replay

_NEVER = 2**62
_REACH = 6
"""Greatest number of places on its device that a task is moved by."""


def contenders(problem: Problem, schedule: Schedule) -> Ints:
    """Return the tasks that ask for a link in the tick in which another device does.

    Without any, all merges are this schedule.
    """
    producer = problem.producer[schedule.sent_payload]
    device, asked = schedule.device[producer], schedule.finish[producer]
    held = problem.holds[problem.location[device], schedule.sent_to]
    row, column = np.nonzero(held >= 0)
    asks = np.stack([held[row, column], asked[row], device[row]])
    by = np.lexsort(asks[::-1])
    asks, task = asks[:, by], producer[row][by]
    # Sorted by link, tick and device: what begins a tick of a link, and which of them more than one device shares.
    begins = np.ones(len(task), dtype=np.bool_)
    begins[1:] = (asks[:2, 1:] != asks[:2, :-1]).any(axis=0)
    tick = np.cumsum(begins) - 1
    other = np.flatnonzero((asks[2, 1:] != asks[2, :-1]) & ~begins[1:])
    shared = np.zeros(len(task), dtype=np.bool_)
    shared[tick[other]] = True
    return ints(np.unique(task[shared[tick]]))


def draw_merges(
    prepared: Prepared, device: Ints, rank: Ints, *, count: int, seed: int = 0
) -> Iterator[tuple[int, Ints]]:
    """Yield (makespan, rank) of `count` random merges of the devices' sequences: each draws every turn by itself.

    device, rank: [n] as `replay` takes them, without a deadlock; the rank gives the sequences alone.
    """
    order, chance = order_of(ints(rank)), np.random.default_rng(seed)
    turns = (ints(chance.permutation(len(order))) for _ in range(count))
    return turned_runs(prepared, ints(device), order, turns)


class SteadyingEffort(NamedTuple):
    """Effort of the search for an order that hardly depends on link tie-breaking."""

    merges: int
    """Random merges of the devices' sequences in which every try is run."""
    runs: int
    """Number of simulated runs after which the search ends, about."""
    enough: float
    """The search also ends where the shortest merge is below the longest by no more than this share."""


def steady_order(problem: Problem, prepared: Prepared, device: Ints, rank: Ints, effort: SteadyingEffort) -> Ints:
    """Return [n] a rank of which random merges of the devices' sequences differ less; the given one if none was found.

    device, rank: [n] as `replay` takes them, without a deadlock.

    A try takes a task that, in the longest merge, asks for a link when another device does, and moves it within its
    device's sequence. It is kept where the longest, and what the shortest is below it, come to less.
    """
    trial, chance = _MergeTrial(prepared, ints(device), len(rank), effort.merges), np.random.default_rng(0)
    order, given = order_of(ints(rank)), ints(rank)
    best = trial.spread(order, _NEVER)
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
        longest, least, rank = -1, _NEVER, order
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
