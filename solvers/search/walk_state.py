"""One lane of search: its choice, what its run looks like, and the best choice so far."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.compiled.kernels import inlined, routine, spliced, subkernel
from solvers.search.network import SearchNetwork, Shorts
from solvers.search.simulation import BEGUN, NEVER, simulate
from solvers.search.state import (
    RunBounds,
    RunTrace,
    SavedStates,
    SearchDecision,
    SimulationState,
    choice_for,
    copy_to,
    saved_for,
    trace_for,
    work_for,
)

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
    """[n] what was last visited when."""
    queue: Shorts
    best_at: Shorts
    best_order: Shorts
    capacity: Ints
    """[l] bytes that a choice may hold: what is kept as the best does not exceed it."""
    tally: Ints
    """[9] counts, the makespans of the current and the best choice, and bytes that the current one holds too much."""
    random: Ints
    """[1] state of the generator."""


def lane_for(net: SearchNetwork, at: Ints, order: Ints, capacity: Ints, seed: int) -> Lane:
    """A lane that starts at a choice, [n] locations and a topological order, which is simulated."""
    n = len(net.indegree)
    shorts = ("moved", "origin", "slid", "place", "critical", "queue", "best_at", "best_order")
    lane = Lane(
        choice=choice_for(net),
        base=trace_for(net),
        trial=trace_for(net),
        work=work_for(net),
        saved=saved_for(net, STATES),
        **{name: np.zeros(n, dtype=np.int32) for name in shorts},
        departs=np.zeros(1, dtype=np.int64),
        stamp=np.zeros(n, dtype=np.int64),
        capacity=np.array(capacity, dtype=np.int64),
        tally=np.zeros(9, dtype=np.int64),
        random=np.array([((2 * seed + 1) * 0x9E3779B97F4A7C1) % 2**62], dtype=np.int64),
    )
    lane.tally[BEST] = NEVER
    begin_at(net, lane, np.asarray(at, dtype=np.int32), np.asarray(order, dtype=np.int32))
    return lane


@routine
def begin_at(net: SearchNetwork, lane: Lane, at: Shorts, order: Shorts) -> None:
    """Make this the current choice: simulate it from the beginning, and keep it if it is the best so far."""
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
    _keep(lane)


@subkernel
def _keep(lane: Lane) -> None:
    lane.tally[OVER] = overload(lane)
    if lane.tally[COST] < lane.tally[BEST] and lane.tally[OVER] == 0:
        lane.tally[BEST] = lane.tally[COST]
        copy_to(lane.best_at, lane.choice.at)
        copy_to(lane.best_order, lane.choice.order)


@inlined
def overload(lane: Lane) -> int:
    """Bytes beyond the capacities."""
    over = np.int64(0)
    for place in range(len(lane.capacity)):
        over += max(lane.choice.held[place] - lane.capacity[place], 0)
    return int(over)


@inlined
def uniform(lane: Lane) -> float:
    """A random number in [0, 1): xorshift64* (Vigna 2016)."""
    x = np.uint64(lane.random[0])
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    lane.random[0] = np.int64(x)
    return np.float64((x * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0


@inlined
def draw(lane: Lane, below: int) -> int:
    """A random number of 0 .. below - 1, for below up to 2^31."""
    return int(np.int64(uniform(lane) * below))


@spliced
def accept(lane: Lane, cost: int) -> None:
    """The pending change, whose run is the trial's, becomes current."""
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
    _keep(lane)


@subkernel
def trace_critical(net: SearchNetwork, lane: Lane) -> None:
    """A chain of tasks, from the last that ends, each of which the one before it in time held up."""
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
    latest, found = np.int64(-1), np.int64(-1)
    for edge in range(net.behind[task], net.behind[task + 1]):
        tail = np.int64(net.tail_of[edge])
        if tail < 0:
            tail = -1 - tail
        # Arrival times of single inputs are not kept. Of inputs that end at once, one from another location arrives
        # later, so one tick is added to it. A long transfer that began earlier may be missed: the chain is only a
        # guide for moves.
        apart = 1 if lane.choice.at[tail] != lane.choice.at[task] else 0
        if base.end[tail] + apart > latest:
            latest, found = base.end[tail] + apart, tail
    return int(found)
