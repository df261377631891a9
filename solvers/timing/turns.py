"""Turns: who is served first where devices ask for one link in the same tick, which no order of theirs decides.

A replay serves them by rank. A merge of the devices' sequences with other ranks keeps each device's sequence and the
precedence, and may serve them otherwise. Whatever happens in a tick is what some merge says: the order in which the
tasks ended.
"""

from collections.abc import Iterator

import numpy as np

from solvers.arrays import Ints, ints, rank_of
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.loop import Prepared, order_of, reset, state_for, turned_makespan


def contenders(problem: Problem, schedule: Schedule) -> Ints:
    """Tasks that ask for a link in the tick in which another device does; without any, all merges are this schedule."""
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


def drawn(prepared: Prepared, device: Ints, rank: Ints, *, count: int, seed: int = 0) -> Iterator[tuple[int, Ints]]:
    """(makespan, rank) of `count` random merges of the devices' sequences: each draws every turn by itself.

    device, rank: [n] as `replay` takes them, without a deadlock; the rank that is given says the sequences alone.
    """
    device, order, chance = ints(device), order_of(ints(rank)), np.random.default_rng(seed)
    state = state_for(prepared, device)
    for _ in range(count):
        reset(prepared, state, device)
        ticks = turned_makespan(prepared, state, device, order, ints(chance.permutation(len(order))))
        yield int(ticks), rank_of(state.ended)
