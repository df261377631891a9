"""One lane of search: its decision and how that runs, changes that can be taken back, and the best decision so far."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.compiled.kernels import inlined, kernel, routine, spliced, subkernel
from solvers.search.simulation import (
    BEGUN,
    NEVER,
    RunBounds,
    RunTrace,
    SavedStates,
    SearchDecision,
    SimulationState,
    arrays_for,
    copy_to,
    simulate,
)  # fmt: skip
from solvers.search.workspace import SearchNetwork, Shorts

MOVED, SLID, CRITICAL, STAMP, COST, BEST, OVER, TRIED, TAKEN = range(9)
STATES = 12
"""States of the current run that are kept to resume from."""


class Lane(NamedTuple):
    """Everything that one thread of search writes."""

    choice: SearchDecision
    base: RunTrace
    """Trace of the current decision."""
    trial: RunTrace
    work: SimulationState
    saved: SavedStates
    moved: Shorts
    """Tasks that the pending change moves, and in `origin` where they were."""
    origin: Shorts
    slid: Shorts
    """Tasks to which it gives another place, and in `place` where they were."""
    place: Shorts
    departs: Ints
    """[1] the first tick at which the pending change can make a difference."""
    critical: Shorts
    """A longest chain of tasks that wait for each other, from the last that ends."""
    stamp: Ints
    """[n] number of the last visit of each task."""
    queue: Shorts
    best_at: Shorts
    best_order: Shorts
    capacity: Ints
    """[l] bytes that a decision may hold: what is kept as the best does not exceed it."""
    tally: Ints
    """[9] counts, the makespans of the current and the best decision, and bytes that the current one holds too much."""
    random: Ints
    """[1] state of the generator."""


def lane_for(net: SearchNetwork, at: Ints, order: Ints, capacity: Ints, seed: int) -> Lane:
    """Return a lane that starts at [n] locations and a topological order, which are simulated."""
    n = len(net.indegree)
    choice, base, trial, work, saved = arrays_for(net, STATES)
    shorts = ("moved", "origin", "slid", "place", "critical", "queue", "best_at", "best_order")
    lane = Lane(
        choice=choice, base=base, trial=trial, work=work, saved=saved,
        **{name: np.zeros(n, dtype=np.int32) for name in shorts},
        departs=np.zeros(1, dtype=np.int64),
        stamp=np.zeros(n, dtype=np.int64),
        capacity=np.array(capacity, dtype=np.int64),
        tally=np.zeros(9, dtype=np.int64),
        random=np.array([((2 * seed + 1) * 0x9E3779B97F4A7C1) % 2**62], dtype=np.int64),
    )  # fmt: skip
    lane.tally[BEST] = NEVER
    begin_at(net, lane, np.asarray(at, dtype=np.int32), np.asarray(order, dtype=np.int32))
    return lane


@routine
def begin_at(net: SearchNetwork, lane: Lane, at: Shorts, order: Shorts) -> None:
    """Make this the current decision: simulate it from the beginning, and keep it if it is the best so far."""
    c = lane.choice
    c.first[:] = -1
    c.load[:] = 0
    c.held[:] = 0
    last = np.full(len(c.first), -1, dtype=np.int32)
    for k in range(len(order)):
        task = order[k]
        d = net.device_at[task, at[task]]
        c.order[k], c.place[task], c.at[task], c.device[task] = task, k, at[task], d
        c.took[task] = net.took_at[task, at[task]]
        c.before[task], c.after[task] = last[d], -1
        if last[d] < 0:
            c.first[d] = task
        else:
            c.after[last[d]] = task
        last[d] = task
        c.load[d] += c.took[task]
        c.held[at[task]] += net.memory[task]
    lane.saved.states[0] = 0
    lane.tally[MOVED] = lane.tally[SLID] = 0
    run = RunBounds(NEVER, -1, NEVER)
    lane.tally[COST] = simulate(net, c, lane.base, lane.work, lane.saved, run)
    trace_critical(net, lane)
    _keep_best(lane)


@subkernel
def _keep_best(lane: Lane) -> None:
    lane.tally[OVER] = overload(lane)
    if lane.tally[COST] < lane.tally[BEST] and lane.tally[OVER] == 0:
        lane.tally[BEST] = lane.tally[COST]
        copy_to(lane.best_at, lane.choice.at)
        copy_to(lane.best_order, lane.choice.order)


@inlined
def overload(lane: Lane) -> int:
    """Return the bytes beyond the capacities."""
    over = np.int64(0)
    for place in range(len(lane.capacity)):
        over += max(lane.choice.held[place] - lane.capacity[place], 0)
    return int(over)


@inlined
def uniform(lane: Lane) -> float:
    """Return a random number in [0, 1): xorshift64* (Vigna 2016)."""
    x = np.uint64(lane.random[0])
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    lane.random[0] = np.int64(x)
    return np.float64((x * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0


@inlined
def draw(lane: Lane, below: int) -> int:
    """Return a random number of 0 .. below - 1, for below up to 2^31."""
    return int(np.int64(uniform(lane) * below))


@spliced
def accept(lane: Lane, cost: int) -> None:
    """Make the pending change, whose run is the trial's, current."""
    lane.tally[MOVED] = lane.tally[SLID] = 0
    base, trial = lane.base, lane.trial
    # Only tasks that this run has begun: those before the resumed state have the same times in both runs.
    for k in range(lane.work.tally[BEGUN]):
        task = trial.begun[k]
        base.start[task], base.end[task], base.ready[task] = trial.start[task], trial.end[task], trial.ready[task]
    states = lane.saved.states
    # States after the departure belong to the run that has just been replaced.
    while states[0] > 0 and lane.saved.when[states[0] - 1] > lane.departs[0]:
        states[0] -= 1
    lane.tally[COST] = cost
    _keep_best(lane)


@subkernel
def trace_critical(net: SearchNetwork, lane: Lane) -> None:
    """Trace a chain of tasks, from the last that ends, each of which the one before it in time held up."""
    many, task = 0, int(np.argmax(lane.base.end))
    while task >= 0:
        lane.critical[many] = task
        many += 1
        task = holder(net, lane, task)
    lane.tally[CRITICAL] = many


@spliced
def holder(net: SearchNetwork, lane: Lane, task: int) -> int:
    """Return the task that held up a task: the one before it on its device or its (nearly) last input; -1 for none."""
    base, before = lane.base, np.int64(lane.choice.before[task])
    if before >= 0 and base.start[task] > base.ready[task]:
        return int(before)
    latest, last = np.int64(-1), np.int64(-1)
    for edge in range(net.behind[task], net.behind[task + 1]):
        tail = np.int64(net.tail_of[edge])
        if tail < 0:
            tail = -1 - tail
        # Arrival times of single inputs are not kept. Of inputs that end at once, one from another location arrives
        # later, so one tick is added to it. A long transfer that began earlier may be missed: the chain is only a
        # guide for moves.
        apart = 1 if lane.choice.at[tail] != lane.choice.at[task] else 0
        if base.end[tail] + apart > latest:
            latest, last = base.end[tail] + apart, tail
    return int(last)


@spliced
def put(net: SearchNetwork, lane: Lane, task: int, to: int) -> None:
    """Move a task to one of its locations; it keeps its place in the order."""
    k = lane.tally[MOVED]
    lane.moved[k], lane.origin[k] = task, lane.choice.at[task]
    lane.tally[MOVED] = k + 1
    # The run may differ from the first end of an input on, as inputs of a moved task are sent elsewhere once they are
    # made.
    first = lane.departs[0]
    for edge in range(net.behind[task], net.behind[task + 1]):
        if net.tail_of[edge] >= 0:
            first = min(first, lane.base.end[net.tail_of[edge]])
    lane.departs[0] = first
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


@kernel
def undo(net: SearchNetwork, lane: Lane) -> None:
    """Take the pending change back."""
    # In reverse order: a task may have been changed twice, and each entry is its state before that change alone.
    for k in range(lane.tally[SLID] - 1, -1, -1):
        _shift(lane.choice, int(np.int64(lane.slid[k])), int(np.int64(lane.place[k])))
    for k in range(lane.tally[MOVED] - 1, -1, -1):
        _locate(net, lane.choice, lane.moved[k], int(np.int64(lane.origin[k])))
    lane.tally[MOVED] = lane.tally[SLID] = 0


@inlined
def _neighbours_differ(lane: Lane, task: int) -> None:
    """Note that the run may differ from the end of the task before this one on its device."""
    # Called before and after a change of the lists: the old neighbours and the new ones may both act differently.
    before = lane.choice.before[task]
    lane.departs[0] = min(lane.departs[0], lane.base.end[before] if before >= 0 else 0)


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
    """Insert a task among those of its device, by its place in the order."""
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
