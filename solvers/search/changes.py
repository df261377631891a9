"""Changes of a lane's choice that can be taken back: tasks moved, and tasks given another place in the order."""

import numpy as np

from solvers.compiled.kernels import inlined, kernel, spliced, subkernel
from solvers.search.network import SearchNetwork
from solvers.search.state import SearchDecision
from solvers.search.walk_state import MOVED, SLID, Lane


@spliced
def put(net: SearchNetwork, lane: Lane, task: int, to: int) -> None:
    """Move a task to one of its locations; it keeps its place in the order."""
    k = lane.tally[MOVED]
    lane.moved[k], lane.origin[k] = task, lane.choice.at[task]
    lane.tally[MOVED] = k + 1
    _inputs_differ(net, lane, task)
    _neighbours_differ(lane, task)
    _locate(net, lane.choice, task, to)
    _neighbours_differ(lane, task)


@subkernel
def slide(lane: Lane, task: int, place: int) -> None:
    """Give a task another place in the order; the others between move by one. No input may be passed, nor reader."""
    k = lane.tally[SLID]
    lane.slid[k], lane.place[k] = task, lane.choice.place[task]
    lane.tally[SLID] = k + 1
    _neighbours_differ(lane, task)
    _shift(lane.choice, int(np.int64(task)), int(np.int64(place)))
    _neighbours_differ(lane, task)


@inlined
def _neighbours_differ(lane: Lane, task: int) -> None:
    """Note that the run may differ from the end of the task before this one on its device."""
    # Called before and after a change of the lists: the old neighbours and the new ones may both act differently.
    before = lane.choice.before[task]
    lane.departs[0] = min(lane.departs[0], lane.base.end[before] if before >= 0 else 0)


@spliced
def _inputs_differ(net: SearchNetwork, lane: Lane, task: int) -> None:
    """Inputs of a moved task are sent elsewhere as soon as they are made."""
    first = lane.departs[0]
    for edge in range(net.behind[task], net.behind[task + 1]):
        if net.tail_of[edge] >= 0:
            first = min(first, lane.base.end[net.tail_of[edge]])
    lane.departs[0] = first


@subkernel
def _locate(net: SearchNetwork, c: SearchDecision, task: int, to: int) -> None:
    _unlink(c, task)
    c.load[c.device[task]] -= c.took[task]
    c.held[c.at[task]] -= net.memory[task]
    c.at[task], c.device[task], c.took[task] = to, net.device_at[task, to], net.took_at[task, to]
    c.load[c.device[task]] += c.took[task]
    c.held[to] += net.memory[task]
    _link(c, task)


@subkernel
def _shift(c: SearchDecision, task: int, place: int) -> None:
    _unlink(c, task)
    at = c.place[task]
    step = 1 if place > at else -1
    while at != place:
        other = c.order[at + step]
        c.order[at], c.place[other] = other, at
        at += step
    c.order[place], c.place[task] = task, place
    _link(c, task)


@inlined
def _unlink(c: SearchDecision, task: int) -> None:
    before, after = c.before[task], c.after[task]
    if before >= 0:
        c.after[before] = after
    else:
        c.first[c.device[task]] = after
    if after >= 0:
        c.before[after] = before


@inlined
def _link(c: SearchDecision, task: int) -> None:
    """Find a task's place among those of its device, from both sides at once."""
    # The tasks of a device are a linked list, so that a change and its undoing take constant time once a neighbour is
    # known. One is mostly a few places away in the common order, so a scan in both directions finds it quickly.
    d, low, high, n = c.device[task], c.place[task] - 1, c.place[task] + 1, len(c.order)
    before, after = np.int32(-1), c.first[d]
    if after >= 0:
        while True:
            if low < 0:
                break
            if c.device[c.order[low]] == d:
                before = c.order[low]
                after = c.after[before]
                break
            if high < n and c.device[c.order[high]] == d:
                after = c.order[high]
                before = c.before[after]
                break
            low -= 1
            high += 1
    c.before[task], c.after[task] = before, after
    if before >= 0:
        c.after[before] = task
    else:
        c.first[d] = task
    if after >= 0:
        c.before[after] = task


@kernel
def undo(net: SearchNetwork, lane: Lane) -> None:
    """Take the pending change back."""
    # In reverse order: a task may have been changed twice, and each entry is its state before that change alone.
    for k in range(lane.tally[SLID] - 1, -1, -1):
        _shift(lane.choice, int(np.int64(lane.slid[k])), int(np.int64(lane.place[k])))
    for k in range(lane.tally[MOVED] - 1, -1, -1):
        _locate(net, lane.choice, lane.moved[k], int(np.int64(lane.origin[k])))
    lane.tally[MOVED] = lane.tally[SLID] = 0
