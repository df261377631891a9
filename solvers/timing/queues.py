"""The devices' queues of ready tasks in list mode, and the tasks whose inputs are on the way."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.bitset import Bitsets, bitsets, insert, remove_least
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import inlined, subkernel
from solvers.timing.links import ARRIVALS, FREED, READY, WAITING, Prepared, State


class Queues(NamedTuple):
    """The ready tasks of each device by number: the place in the order or, first in, first out, as they came."""

    low: Ints
    mid: Ints
    high: Ints
    top: Ints
    """[m] 0: nothing is ready; with the others as in `solvers.compiled.bitset`."""
    task: Ints
    """[n] task of each number."""
    came: Ints
    """[1] tasks that got a number as they came; -1: the numbers are the places."""
    busy: Bools
    arrival_time: Ints
    arrival_place: Ints


def queues_for(g: Prepared, order: Ints, *, fifo: bool) -> Queues:
    """Empty queues for one run."""
    n, devices = len(order), g.duration.shape[1]
    b = bitsets(devices, n)
    return Queues(
        *b,
        task=np.array(order),
        came=np.array([0 if fifo else -1]),
        busy=np.zeros(devices, dtype=np.bool_),
        arrival_time=np.empty(n, dtype=np.int64),
        arrival_place=np.empty(n, dtype=np.int64),
    )


@subkernel
def line_up(s: State, order: Ints) -> None:
    """Note the places, and free the tasks that wait for nothing."""
    for place in range(len(order)):
        task = order[place]
        s.place[task] = place
        if s.row[task, WAITING] == 0:
            s.freed[s.length[FREED]] = task
            s.length[FREED] += 1


@inlined
def admit(s: State, q: Queues, device: Ints, order: Ints, now: int) -> None:
    """Hand the tasks whose inputs have arrived to their devices; the others wait for the time of arrival."""
    for at in range(s.length[FREED]):
        task = s.freed[at]
        ready, place = s.row[task, READY], s.place[task]
        # Who comes together is numbered by place: through the heap.
        if ready > now or q.came[0] >= 0:
            s.length[ARRIVALS] = push(q.arrival_time, q.arrival_place, s.length[ARRIVALS], (ready, place))
        else:
            insert(Bitsets(q.low, q.mid, q.high, q.top), device[task], place)
    s.length[FREED] = 0
    while s.length[ARRIVALS] > 0 and q.arrival_time[0] <= now:
        number = q.arrival_place[0]
        task = order[number]
        s.length[ARRIVALS] = drop(q.arrival_time, q.arrival_place, s.length[ARRIVALS])
        if q.came[0] >= 0:
            number = q.came[0]
            q.task[number] = task
            q.came[0] += 1
        insert(Bitsets(q.low, q.mid, q.high, q.top), device[task], number)


@inlined
def leave(q: Queues, d: int) -> int:
    """Take the first task out of a queue that is not empty."""
    return q.task[remove_least(Bitsets(q.low, q.mid, q.high, q.top), d)]
