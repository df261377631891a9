"""The compiled pass of the list schedulers: tasks in a given order, each to the device where it costs least.

A guided order keeps variables beside their readers: a task without inputs is placed as if it were its first reader.
Earliest finish time alone puts such a task wherever a device is idle, and the reader then pays for the transfer or
follows; in a training step this scatters the weights. A list scheduler cannot look back, so the task is moved to just
before its reader in the order, and offered to the devices with the reader's other inputs in mind.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, offsets, rank_of
from solvers.compiled.kernels import inlined, kernel, routine
from solvers.problem import Problem
from solvers.structure.units import Units
from solvers.timing.loop import Prepared, free_from

_MOST_INPUTS = 64
"""Inputs of a guide at most, as each of its sources looks at all of them."""


class GuidedOrder(NamedTuple):
    """An order for a pass of `place`."""

    order: Ints
    """[n] tasks, a topological order."""
    guide: Ints
    """[n] the task in whose place each is offered to the devices: itself for most."""


def unguided(order: Ints) -> GuidedOrder:
    """`order` as it is."""
    return GuidedOrder(order, np.arange(len(order)))


def guided(g: Prepared, unit: Ints, order: Ints) -> GuidedOrder:
    """`order` with each source just before its guide: the first of its readers, by `order`, or of its readers' guides.

    A source has no predecessors, or only sources of its own unit (a variable, and the op that reads it out). Readers
    of many inputs guide nobody. O(e + n log n).
    """
    place = rank_of(order)
    guide = np.arange(len(order))
    _guide(g, unit, order, place, guide)
    return GuidedOrder(np.lexsort((place, place[guide])), guide)


@routine
def _guide(g: Prepared, unit: Ints, order: Ints, place: Ints, guide: Ints) -> None:
    source = np.ones(len(order), dtype=np.bool_)
    for task in order:
        for k in range(g.offset[task], g.offset[task + 1]):
            if not source[task] or unit[g.head[k]] != unit[task]:
                source[g.head[k]] = False
    for at in range(len(order) - 1, -1, -1):
        task = order[at]
        if not source[task]:
            continue
        first = -1
        for k in range(g.offset[task], g.offset[task + 1]):
            reader = guide[g.head[k]]
            if first < 0 or place[reader] < place[first]:
                first = reader
        if first >= 0 and g.indegree[first] <= _MOST_INPUTS:
            guide[task] = first


_MOST_SORTED = 48
"""Inputs of a task up to which their transfers are sorted by time: insertion is quadratic."""
UNPLACED = -1


class EftTables(NamedTuple):
    """Input of a pass: the incoming edges of each task, and the problem's tables."""

    offset: Ints
    """[n + 1] where the edges that enter each task start in `tail` and `carried`."""
    tail: Ints
    carried: Ints
    duration: Ints
    location: Ints
    transfer: Ints
    path_class: Ints
    path_links: Ints
    capacity: Ints
    links: int


class PassClusters(NamedTuple):
    """Tasks that a pass keeps together: the units, or unions of them."""

    unit: Ints
    allowed: Bools
    memory: Ints
    fixed: Ints
    """[u] location that is decided before the pass, UNPLACED for none."""


class _EftState(NamedTuple):
    """The work arrays of one pass."""

    device: Ints
    finish: Ints
    device_free: Ints
    link_free: Ints
    arrival: Ints
    """[p, l] arrival of each payload, -1 while not sent."""
    at: Ints
    """[u] location of each unit."""
    room: Ints
    """[l] bytes left at each location."""
    edge: Ints
    """Edges that enter the current task, by the finish of their tails."""
    ready: Ints
    """[l] when the current task's inputs can be at each location."""
    cost: Ints
    """[l] ticks of the new transfers that the current task takes at each location."""
    sends: Ints
    """[l] number of the new transfers that the current task takes at each location."""
    open: Bools
    """[l] whether the current task can be at each location."""
    undo: Ints
    """[k, 2] what a trial changed: index of a link, or -1 - index of an arrival; and the value before."""


def board_of(problem: Problem) -> EftTables:
    """Return the tables of a problem, for any number of passes. O(e log e)."""
    by = np.lexsort((problem.payload, problem.dst))
    dst, payload = problem.dst[by], problem.payload[by]
    # An edge may be given twice; its transfer must not count twice.
    new = np.append(True, (dst[1:] != dst[:-1]) | (payload[1:] != payload[:-1]))[: len(by)] | (payload < 0)
    by = by[new]
    offset = offsets(np.bincount(problem.dst[by], minlength=problem.tasks))
    return EftTables(
        offset=offset, tail=problem.src[by], carried=problem.payload[by], duration=problem.duration,
        location=problem.location, transfer=problem.transfer, path_class=problem.path_class, path_links=problem.holds,
        capacity=problem.capacity, links=problem.links,
    )  # fmt: skip


def clusters_of(units: Units, fixed: Ints | None = None) -> PassClusters:
    """Return the units as a pass takes them."""
    nowhere = np.full(len(units.memory), UNPLACED, dtype=np.int64)
    return PassClusters(units.unit, units.allowed, units.memory, nowhere if fixed is None else np.array(fixed))


def earliest_finish(b: EftTables, c: PassClusters, guided: GuidedOrder, bias: float) -> tuple[Ints, int]:
    """Earliest finish time first (HEFT, Topcuoglu 2002, without insertion), with links, payloads, units and memory.

    Each task of `order` (a topological order) goes to the device where its finish plus `bias` times the ticks of the
    transfers that this choice causes is least; ties: least transfers, then the device that is free last. Transfers
    are appended to their links in order of their producers' finish. The first task of a unit that is placed decides
    the unit's location, which must have room for all of the unit. Return the devices, and the first task that
    found no room (-1: none), at which the pass stops. O(e l k + n m), k links a path.
    """
    n, l_ = len(b.offset) - 1, len(b.capacity)
    most = int(np.diff(b.offset).max(initial=1))
    room = np.array(b.capacity)
    decided = c.fixed >= 0
    np.subtract.at(room, c.fixed[decided], c.memory[decided])
    r = _EftState(
        device=np.full(n, UNPLACED, dtype=np.int64), finish=np.zeros(n, dtype=np.int64),
        device_free=np.zeros(b.duration.shape[1], dtype=np.int64), link_free=np.zeros(b.links, dtype=np.int64),
        arrival=np.full((b.transfer.shape[0], l_), -1, dtype=np.int64), at=c.fixed.copy(), room=room,
        edge=np.empty(most, dtype=np.int64), ready=np.empty(l_, dtype=np.int64), cost=np.empty(l_, dtype=np.int64),
        sends=np.empty(l_, dtype=np.int64), open=np.empty(l_, dtype=np.bool_),
        undo=np.empty((most * (1 + b.path_links.shape[2]), 2), dtype=np.int64),
    )  # fmt: skip
    stuck = _place(b, c, guided, bias, r)
    return r.device, stuck


@kernel
def _place(b: EftTables, c: PassClusters, guided: GuidedOrder, bias: float, r: _EftState) -> int:
    for task in guided.order:
        unit = c.unit[task]
        guide = guided.guide[task]
        inputs = _sort_inputs(b, r, guide)
        # For each location, when at the earliest all that the task reads can be there, and the ticks of new transfers.
        for there in range(len(r.ready)):
            r.ready[there], r.cost[there], r.sends[there] = 0, 0, 0
        for k in range(inputs):
            edge = r.edge[k]
            tail, payload = b.tail[edge], b.carried[edge]
            here, finish = b.location[r.device[tail]], r.finish[tail]
            for there in range(len(r.ready)):
                known = finish
                if payload >= 0 and there != here:
                    known = r.arrival[payload, there]
                    if known < 0:
                        ticks = b.transfer[payload, b.path_class[here, there]]
                        known = finish + ticks
                        r.cost[there] += ticks
                        r.sends[there] += 1
                r.ready[there] = max(r.ready[there], known)
        for there in range(len(b.capacity)):
            decided = r.at[unit]
            if decided >= 0:
                r.open[there] = decided == there
            else:
                r.open[there] = c.allowed[unit, there] and c.memory[unit] <= r.room[there]
        device = _best_device(b, r, (task, inputs), bias)
        if device < 0:
            return task
        there = b.location[device]
        ready, _ = _receive(b, r, _sort_inputs(b, r, task), there)
        if r.at[unit] < 0:
            r.at[unit] = there
            r.room[there] -= c.memory[unit]
        r.device[task] = device
        r.finish[task] = max(ready, r.device_free[device]) + b.duration[task, device]
        r.device_free[device] = r.finish[task]
    return -1


@inlined
def _sort_inputs(b: EftTables, r: _EftState, task: int) -> int:
    """Put the edges that enter a task from tasks that are placed into `r.edge`, by finish of these; return how many."""
    count = 0
    for edge in range(b.offset[task], b.offset[task + 1]):
        if r.device[b.tail[edge]] < 0:
            continue
        at = count
        if count < _MOST_SORTED:
            while at > 0 and r.finish[b.tail[r.edge[at - 1]]] > r.finish[b.tail[edge]]:
                r.edge[at] = r.edge[at - 1]
                at -= 1
        r.edge[at] = edge
        count += 1
    return count


@inlined
def _receive(b: EftTables, r: _EftState, inputs: int, there: int) -> tuple[int, int]:
    """Send what a task at a location reads; return when all is there, and the number of changes to revert."""
    ready, changes = 0, int(np.int64(0))
    for k in range(inputs):
        edge = r.edge[k]
        tail, payload = b.tail[edge], b.carried[edge]
        here, known = b.location[r.device[tail]], r.finish[tail]
        if payload >= 0 and here != there:
            known = r.arrival[payload, there]
            if known < 0:
                # Append the transfer to its links, and log what that changes.
                known = free_from(b.path_links, r.link_free, (here, there), r.finish[tail])
                known += b.transfer[payload, b.path_class[here, there]]
                for j in range(b.path_links.shape[2]):
                    link = b.path_links[here, there, j]
                    if link >= 0:
                        r.undo[changes, 0], r.undo[changes, 1] = link, r.link_free[link]
                        changes += 1
                        r.link_free[link] = known
                r.undo[changes, 0], r.undo[changes, 1] = -1 - payload, there
                r.arrival[payload, there] = known
                changes += 1
        ready = max(ready, known)
    return ready, changes


@inlined
def _best_device(b: EftTables, r: _EftState, reader: tuple[int, int], bias: float) -> int:
    """The device of the best offer among open locations, -1 for none; reader = (task, its inputs in `r.edge`)."""
    task, inputs = reader
    best, best_score = -1, 0.0
    for d in range(len(b.location)):
        there, ticks = b.location[d], b.duration[task, d]
        if ticks < 0 or not r.open[there]:
            continue
        finish = max(r.ready[there], r.device_free[d]) + ticks
        score = finish + bias * r.cost[there]
        if best >= 0 and score > best_score:
            continue
        if r.sends[there] > 0:
            # Links make it later: looked at only now, as most offers have lost already.
            ready, changes = _receive(b, r, inputs, there)
            for k in range(changes - 1, -1, -1):
                if r.undo[k, 0] < 0:
                    r.arrival[-1 - r.undo[k, 0], r.undo[k, 1]] = -1
                else:
                    r.link_free[r.undo[k, 0]] = r.undo[k, 1]
            r.ready[there] = ready
            finish = max(ready, r.device_free[d]) + ticks
            score = finish + bias * r.cost[there]
        tie = best >= 0 and score == best_score
        closer = tie and r.cost[there] < r.cost[b.location[best]]
        fuller = tie and r.cost[there] == r.cost[b.location[best]] and r.device_free[d] > r.device_free[best]
        if best < 0 or score < best_score or closer or fuller:
            best, best_score = d, score
    return best
