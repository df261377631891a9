"""Rules, result and work arrays of the list scheduler of m-ETF and m-SCT."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, offsets
from solvers.heuristics.baechi.graph import OperatorGraph

NONE = -1


class ListRules(NamedTuple):
    """Priorities and waiting rules of a run."""

    place: Ints
    """[k] rank of each operator in the order; a permutation, topological."""
    child: Ints
    """[k] favourite child of each operator, NONE for none."""
    wait: Ints
    """[k] ticks that the favourite child's input takes to another location, at most."""
    patient: bool
    """True: a device is awake from the end of its last operator until `wait` later (Hanen and Munier). False:
    while the child's predecessors have all finished and no other device could begin it earlier (Baechi's code)."""


class ListResult(NamedTuple):
    """The result of a run."""

    device: Ints
    """[k] device of each operator, NONE for one that has not started."""
    start: Ints
    finish: Ints
    at: Ints
    """[u] location of each unit, NONE for none."""
    room: Ints
    """[l] bytes left; negative where what can only be there does not fit."""
    waiting: Ints
    """[k] predecessors of each operator that have not finished."""


class ReadyLanes(NamedTuple):
    """For each device, two heaps: who can start later, by time, and who can start now, by place in the order.

    With favourite children, each device has a second lane for what is urgent: can start now wherever it can be.
    """

    later: Ints
    """[lanes, k] tick at which each operator of `later_item` can start."""
    later_item: Ints
    """[lanes, k] operators that can start later."""
    now: Ints
    """[lanes, k] operators that can start now, as places in the order."""
    size: Ints
    """[lanes, 2] entries of both heaps."""


class DeviceClock(NamedTuple):
    """The devices, and the ticks at which something happens on one."""

    time: Ints
    device: Ints
    size: Ints
    """[1] number of events in the heap."""
    busy: Ints
    """[m] the operator that each device runs, NONE when idle."""
    last: Ints
    """[m] the operator that each device ran last."""
    ready: Ints
    """[k, l] with favourite children, else [0, 0]: when the inputs of what has been offered can be at each location."""


class EdgeRows(NamedTuple):
    """Edges by head (in) and by tail (out), as compressed rows."""

    into: Ints
    tail: Ints
    comm: Ints
    out: Ints
    head: Ints


def lanes_of(lanes: int, k: int) -> ReadyLanes:
    """Empty heaps."""
    heaps = [np.empty((lanes, k), dtype=np.int64) for _ in range(3)]
    return ReadyLanes(heaps[0], heaps[1], heaps[2], np.zeros((lanes, 2), dtype=np.int64))


def clock_of(g: OperatorGraph, k: int, favourites: bool) -> DeviceClock:
    """All devices idle."""
    none, events = np.full(len(g.location), NONE, dtype=np.int64), np.empty(2 * k + 1, dtype=np.int64)
    ready = np.zeros((k, len(g.capacity)) if favourites else (0, 0), dtype=np.int64)
    return DeviceClock(events, events.copy(), np.zeros(1, dtype=np.int64), none, none.copy(), ready)


def fresh(g: OperatorGraph) -> ListResult:
    """Nothing started; units with one location are there."""
    k = len(g.duration)
    room = np.array(g.capacity)
    pinned = np.count_nonzero(g.allowed, axis=1) == 1
    at = np.where(pinned, g.allowed.argmax(axis=1), NONE)
    np.subtract.at(room, at[pinned], g.memory[pinned])
    waiting = np.bincount(g.dst, minlength=k).astype(np.int64)
    return ListResult(np.full(k, NONE, np.int64), np.zeros(k, np.int64), np.zeros(k, np.int64), at, room, waiting)


def rows_of(g: OperatorGraph, k: int) -> EdgeRows:
    """The edges of a graph of k operators."""
    by_head, by_tail = np.argsort(g.dst, kind="stable"), np.argsort(g.src, kind="stable")
    into, out = offsets(np.bincount(g.dst, minlength=k)), offsets(np.bincount(g.src, minlength=k))
    return EdgeRows(into, g.src[by_head], g.comm[by_head], out, g.dst[by_tail])
