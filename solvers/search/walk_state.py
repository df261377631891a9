"""One lane of search: its decision and how that runs, changes that can be taken back, and the best decision so far.

Changes know the structure of a problem: clusters, balls, families of readers, swaps, and orders. Simulated annealing
(Kirkpatrick, Gelatt & Vecchi 1983) tries them in stretches.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Floats, Ints
from solvers.compiled.kernels import inlined, kernel, routine, spliced, subkernel
from solvers.search.simulation import (
    BEGUN,
    NEVER,
    STOPPED,
    RunBounds,
    RunTrace,
    SavedStates,
    SearchDecision,
    SimulationState,
    copy_to,
    longs,
    shorts,
    simulate,
)  # fmt: skip
from solvers.search.workspace import MoveClusters, SearchNetwork, Shorts

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
    n, m, places, links, states = len(net.indegree), len(net.used), net.device_at.shape[1], net.links, STATES
    choice = SearchDecision(
        **{name: shorts(n) for name in ("at", "order", "place", "device", "after", "before")},
        took=longs(n), first=shorts(m), load=longs(m), held=longs(places),
    )  # fmt: skip
    base, trial = (RunTrace(start=longs(n), end=longs(n), ready=longs(n), begun=shorts(n)) for _ in range(2))
    work = SimulationState(
        waiting=shorts(n), last=shorts(m), busy=shorts(m), until=longs(m), idle=longs(m), free=longs(links),
        arrival=np.full(places, -1, dtype=np.int64), freed=shorts(n + m), tally=longs(4),
    )  # fmt: skip
    saved = SavedStates(
        states=longs(1), when=longs(states), waiting=shorts(states, n), ready=longs(states, n),
        last=shorts(states, m), busy=shorts(states, m), until=longs(states, m), idle=longs(states, m),
        free=longs(states, links),
    )  # fmt: skip
    lane = Lane(
        choice=choice, base=base, trial=trial, work=work, saved=saved,
        moved=shorts(n), origin=shorts(n), slid=shorts(n), place=shorts(n), critical=shorts(n), queue=shorts(n),
        best_at=shorts(n), best_order=shorts(n), departs=longs(1), stamp=longs(n), tally=longs(9),
        capacity=np.array(capacity, dtype=np.int64),
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


NOTHING = -1
CLUSTER, BALL, FAMILY, SWAP, SOONER, SHIFTED = range(6)
KINDS = 6


@spliced
def propose(net: SearchNetwork, clusters: MoveClusters, lane: Lane, kind: int, level: int) -> bool:
    """Make a random change, and note when it first makes a difference; return False where it changes nothing."""
    lane.departs[0] = NEVER
    if kind == SOONER:
        _swap_waiting(net, lane)
    elif kind == SHIFTED:
        _shift_ball(net, clusters, lane)
    else:
        task = _draw_task(net, clusters, lane)
        to = _draw_location(net, lane, task)
        if to == NOTHING:
            return False
        last = len(clusters.sizes) - 1
        if kind == BALL:
            # The surroundings of the task.
            many = _gather(net, lane, task, _draw_size(lane))
            for k in range(many):
                one = lane.queue[k]
                if lane.choice.at[one] != to and net.device_at[one, to] >= 0:
                    _move_cluster(net, clusters, lane, (last, int(np.int64(net.unit[one]))), to)
        elif kind == FAMILY:
            # The task with all that read one of its payloads.
            start, stop = net.offset[task], net.offset[task + 1]
            if _move_cluster(net, clusters, lane, (last, int(np.int64(net.unit[task]))), to) and start < stop:
                payload = net.carried[start + draw(lane, stop - start)]
                for edge in range(start, stop):
                    if net.carried[edge] == payload:
                        _move_cluster(net, clusters, lane, (last, int(np.int64(net.unit[net.head[edge]]))), to)
        else:
            label = int(np.int64(clusters.label[level, task]))
            if _move_cluster(net, clusters, lane, (level, label), to) and kind != CLUSTER:
                # In exchange, move another cluster that is where the first now is to where that was.
                back = int(np.int64(lane.origin[0]))
                for _ in range(8):
                    other = draw(lane, clusters.sizes[level])
                    first = clusters.member[level, clusters.first[level, other]]
                    if other != label and lane.choice.at[first] == to and net.device_at[first, back] >= 0:
                        _move_cluster(net, clusters, lane, (level, other), back)
                        break
    return lane.tally[MOVED] + lane.tally[SLID] > 0


@subkernel
def _draw_task(net: SearchNetwork, clusters: MoveClusters, lane: Lane) -> int:
    """Return a task that has a choice: half the time one of the critical chain."""
    # Only tasks of the critical chain can shorten the run at once; the others are drawn too, since moving them makes
    # room for later moves.
    if uniform(lane) < 0.5:
        return lane.critical[draw(lane, lane.tally[CRITICAL])]
    last = len(clusters.sizes) - 1
    unit = net.choice[draw(lane, len(net.choice))]
    return clusters.member[last, clusters.first[last, unit]]


@spliced
def _draw_location(net: SearchNetwork, lane: Lane, task: int) -> int:
    """Return another location for a task: half the time that of a neighbour."""
    at = lane.choice.at
    edges = net.behind[task + 1] - net.behind[task] + net.offset[task + 1] - net.offset[task]
    if uniform(lane) < 0.5 and edges > 0:
        k = draw(lane, edges)
        into = net.behind[task + 1] - net.behind[task]
        if k < into:
            other = np.int64(net.tail_of[net.behind[task] + k])
            if other < 0:
                other = -1 - other
        else:
            other = np.int64(net.head[net.offset[task] + k - into])
        if at[other] != at[task] and net.device_at[task, at[other]] >= 0:
            return at[other]
    places = net.device_at.shape[1]
    # A few blind draws instead of a list of allowed locations: nearly all tasks are allowed nearly everywhere.
    for _ in range(8):
        to = draw(lane, places)
        if to != at[task] and net.device_at[task, to] >= 0:
            return to
    return NOTHING


@subkernel
def _move_cluster(net: SearchNetwork, clusters: MoveClusters, lane: Lane, which: tuple[int, int], to: int) -> bool:
    """Move all of a cluster, or nothing and False where a task of it cannot go."""
    level, cluster = which
    # A first pass looks whether all can go, so that a refused cluster leaves no half of itself to be taken back.
    for k in range(clusters.first[level, cluster], clusters.first[level, cluster + 1]):
        if net.device_at[clusters.member[level, k], to] < 0:
            return False
    for k in range(clusters.first[level, cluster], clusters.first[level, cluster + 1]):
        task = clusters.member[level, k]
        if lane.choice.at[task] != to:
            put(net, lane, task, to)
    return True


@subkernel
def _gather(net: SearchNetwork, lane: Lane, task: int, size: int) -> int:
    """Collect up to so many tasks around one, over edges, that are where it is; return how many, in `queue`."""
    # A new stamp marks visited tasks, so that no array of n marks has to be cleared for a ball of a few.
    lane.tally[STAMP] += 1
    stamp, at = lane.tally[STAMP], lane.choice.at
    lane.queue[0], lane.stamp[task] = task, stamp
    done, many = 0, 1
    both = uniform(lane)
    while done < many < size:
        here = lane.queue[done]
        done += 1
        if both < 0.8:
            for k in range(net.offset[here], net.offset[here + 1]):
                other = np.int64(net.head[k])
                if many < size and lane.stamp[other] != stamp and at[other] == at[task]:
                    lane.queue[many], lane.stamp[other] = other, stamp
                    many += 1
        if both > 0.2:
            for k in range(net.behind[here], net.behind[here + 1]):
                other = np.int64(net.tail_of[k])
                if other < 0:
                    other = -1 - other
                if many < size and lane.stamp[other] != stamp and at[other] == at[task]:
                    lane.queue[many], lane.stamp[other] = other, stamp
                    many += 1
    return many


@subkernel
def _draw_size(lane: Lane) -> int:
    """Return a size from 1 to a tenth of the tasks, each magnitude as often."""
    # Log-uniform: single tasks and large regions are both needed, at every size of graph.
    most = max(2.0, len(lane.stamp) * 0.1)
    return int(np.exp(uniform(lane) * np.log(most)))


@subkernel
def _earliest(net: SearchNetwork, lane: Lane, task: int) -> int:
    """Return the first place that a task can have: after all its inputs."""
    place = -1
    for edge in range(net.behind[task], net.behind[task + 1]):
        tail = net.tail_of[edge]
        place = max(place, lane.choice.place[tail if tail >= 0 else -1 - tail])
    return place + 1


@subkernel
def _latest(net: SearchNetwork, lane: Lane, task: int) -> int:
    """Return the last place that a task can have: before all that read it."""
    place = len(lane.choice.order)
    for edge in range(net.offset[task], net.offset[task + 1]):
        place = min(place, lane.choice.place[net.head[edge]])
    return place - 1


@spliced
def _swap_waiting(net: SearchNetwork, lane: Lane) -> None:
    """Run a critical task that waited for its device before one that ran there meanwhile, or that one after it."""
    base, c = lane.base, lane.choice
    task = int(lane.critical[draw(lane, lane.tally[CRITICAL])])
    other, back = int(c.before[task]), draw(lane, 8)
    if other < 0 or base.ready[task] >= base.start[task]:
        return
    while back > 0 and c.before[other] >= 0 and base.end[c.before[other]] > base.ready[task]:
        other = int(c.before[other])
        back -= 1
    if uniform(lane) < 0.5:
        place = max(c.place[other], _earliest(net, lane, task))
        if place < c.place[task]:
            slide(lane, task, place)
    else:
        place = min(c.place[task], _latest(net, lane, other))
        if place > c.place[other]:
            slide(lane, other, place)


@spliced
def _shift_ball(net: SearchNetwork, clusters: MoveClusters, lane: Lane) -> None:
    """Slide a few tasks around one by up to as many places forward, or back."""
    c = lane.choice
    task = _draw_task(net, clusters, lane)
    by = int(np.exp(uniform(lane) * np.log(len(c.order) / 4.0 + 2.0)))
    many = _gather(net, lane, task, min(_draw_size(lane), 1 + 4 * len(c.order) // by))
    places = lane.queue
    for k in range(many):
        places[k] = c.place[places[k]]
    # Sorted in place (Shell 1959, gaps shrunk by 4/9): compiled sorts allocate work arrays, which a kernel must not.
    gap = many
    while gap > 1:
        gap = max(1, gap * 4 // 9)
        for k in range(gap, many):
            value, at = places[k], k
            while at >= gap and places[at - gap] > value:
                places[at] = places[at - gap]
                at -= gap
            places[at] = value
    # Forward from the first place and back from the last: otherwise a task would be stopped by one of its own group
    # that has still to move.
    if uniform(lane) < 0.5:
        for k in range(many):
            one = c.order[places[k]]
            place = max(places[k] - by, _earliest(net, lane, one))
            if place < places[k]:
                slide(lane, one, place)
    else:
        for k in range(many - 1, -1, -1):
            one = c.order[places[k]]
            place = min(places[k] + by, _latest(net, lane, one))
            if place > places[k]:
                slide(lane, one, place)


_FRESH = 64
"""Accepted changes after which the critical chain is traced again."""


class Cooling(NamedTuple):
    """One stretch of an annealing."""

    steps: int
    hot: float
    """Ticks by which what is worse is accepted with probability 1/e as the stretch begins."""
    cold: float
    """Ticks by which what is worse is accepted with probability 1/e as the stretch ends."""
    kinds: Floats
    """[KINDS] cumulated shares of the kinds of moves."""
    levels: Floats
    """[k] cumulated shares of the partitions."""


@kernel
def anneal(net: SearchNetwork, clusters: MoveClusters, lane: Lane, cooling: Cooling) -> None:
    """Try so many changes. One that takes bytes off where there are too many is accepted whatever it costs."""
    stale, heat = 0, cooling.hot
    factor = (cooling.cold / cooling.hot) ** (1.0 / max(cooling.steps, 1))
    for _ in range(cooling.steps):
        heat *= factor
        lane.tally[TRIED] += 1
        kind = _share(cooling.kinds, uniform(lane))
        level = _share(cooling.levels, uniform(lane))
        changed = propose(net, clusters, lane, kind, level)
        # The Metropolis test, turned around: the random number is drawn first and gives a limit on the makespan, so
        # that the simulation can stop as soon as the change is sure to be rejected.
        limit = lane.tally[COST] + np.int64(-np.log(1.0 - uniform(lane)) * heat)
        over = overload(lane)
        if over < lane.tally[OVER]:
            limit = NEVER
        # The greatest load of a device is a lower bound on the makespan: above the limit, no simulation is needed.
        load = lane.choice.load[0]
        for d in range(1, len(lane.choice.load)):
            load = max(load, lane.choice.load[d])
        if not changed or over > lane.tally[OVER] or load > limit:
            undo(net, lane)
            continue
        run = RunBounds(limit, lane.departs[0], max(lane.tally[COST] // (STATES + 1), 1))
        cost = simulate(net, lane.choice, lane.trial, lane.work, lane.saved, run)
        if cost == STOPPED or cost > limit:
            undo(net, lane)
            continue
        lane.tally[TAKEN] += 1
        better = cost < lane.tally[BEST]
        accept(lane, cost)
        stale += 1
        # Tracing the critical chain walks the whole chain; a chain that is some changes old still points at good moves.
        if better or stale >= _FRESH:
            trace_critical(net, lane)
            stale = 0


@inlined
def _share(cumulated: Floats, at: float) -> int:
    """Return whose share a number in [0, 1) is in."""
    k = 0
    while k < len(cumulated) - 1 and cumulated[k] <= at:
        k += 1
    return k
