"""The event loop of `solvers.timing.replay` for millions of runs: it stops early, and resumes where a run departs."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.compiled.kernels import inlined, spliced, subkernel
from solvers.search.workspace import SearchNetwork, Shorts

NEVER = 2**62
STOPPED = -1
"""Instead of a makespan: the run was given up, as it cannot end by its limit."""
_PAUSED = -2
BEGUN, _HOPELESS, _FREED, _NOW = range(4)


class SearchDecision(NamedTuple):
    """A location for each task and one order of all tasks, with the tables derived from these."""

    at: Shorts
    """[n] location of each task."""
    order: Shorts
    """[n] the tasks, each after all that it depends on."""
    place: Shorts
    """[n] where each task is in `order`."""
    device: Shorts
    """[n] device of each task, numbered among those in use."""
    took: Ints
    """[n] ticks of each task on its device."""
    after: Shorts
    """[n] the next task of the same device, -1 for none."""
    before: Shorts
    """[n] the previous task of the same device, -1 for none."""
    first: Shorts
    """[m] the first task of each device, -1 for none."""
    load: Ints
    """[m] ticks of all tasks of each device."""
    held: Ints
    """[l] bytes at each location."""


class RunTrace(NamedTuple):
    """Starts, ends and ready times of the tasks of a run."""

    start: Ints
    """[n] tick at which each task starts."""
    end: Ints
    """[n] tick at which each task ends."""
    ready: Ints
    """[n] when the last input of each task was there."""
    begun: Shorts
    """[n] the tasks in the order in which they were begun."""


class SimulationState(NamedTuple):
    """The state of a running simulation."""

    waiting: Shorts
    """[n] inputs that each task still waits for."""
    last: Shorts
    """[m] the last task that each device began, -1 for none."""
    busy: Shorts
    """[m] whether the last task of each device has not ended yet: 1 or 0."""
    until: Ints
    """[m] tick at which the last task of each device ends."""
    idle: Ints
    """[m] ticks without work of each device so far."""
    free: Ints
    """[links] tick from which each link is free."""
    arrival: Ints
    """[l] arrival of the current payload at each location, -1 where nobody reads it."""
    freed: Shorts
    """[n + m] devices that may go on."""
    tally: Ints
    """[4] tasks begun by this run; whether the limit can no longer be met; entries of `freed`; the tick."""


class SavedStates(NamedTuple):
    """States of the current decision's run at some ticks, each as in `SimulationState`."""

    states: Ints
    """[1] how many states hold."""
    when: Ints
    """[c] all events before this tick have been processed, none of it."""
    waiting: Shorts
    ready: Ints
    last: Shorts
    busy: Shorts
    until: Ints
    idle: Ints
    free: Ints


class RunBounds(NamedTuple):
    """How far a run must be followed."""

    limit: int
    """Give up once it is certain to end after this tick."""
    departs: int
    """Before this tick it is the same as the current decision's run: `saved` may be used, and filled."""
    every: int
    """Ticks between the states that are saved."""


def shorts(*shape: int) -> Shorts:
    """Return zeros of 32 bits."""
    return np.zeros(shape, dtype=np.int32)


def longs(*shape: int) -> Ints:
    """Return zeros of 64 bits."""
    return np.zeros(shape, dtype=np.int64)


@inlined
def copy_to(to: Ints | Shorts, values: Ints | Shorts) -> None:
    """Copy an array to one of the same length."""
    # numba's own `to[:] = values` looks for an overlap, and takes long to compile.
    for k in range(len(to)):
        to[k] = values[k]


@subkernel
def simulate(
    net: SearchNetwork, c: SearchDecision, t: RunTrace, w: SimulationState, saved: SavedStates, run: RunBounds
) -> int:
    """Return the makespan of a decision, or STOPPED; the trace holds for the tasks that were begun by this run.

    Equal to the strict `solvers.timing.replay.replay` with the places as ranks. A run that resumes leaves the trace of
    what was begun before alone: it is the current decision's.
    """
    # Most changes leave the beginning of a run as it was, so a run resumes from the last saved state before the change
    # departs from the current run. States are saved only up to that tick: later ones would describe a run that is
    # likely to be rejected, and saving copies arrays of n tasks.
    pause = _resume(net, t, w, saved, run)
    makespan = _run_events(net, c, t, w, (run.limit, pause))
    while makespan == _PAUSED:
        now = w.tally[_NOW]
        pause = NEVER
        if now <= run.departs:
            pause = now + run.every
            k = saved.states[0]
            if k < len(saved.when):
                saved.when[k] = now
                copy_to(saved.waiting[k], w.waiting)
                copy_to(saved.ready[k], t.ready)
                copy_to(saved.last[k], w.last)
                copy_to(saved.busy[k], w.busy)
                copy_to(saved.until[k], w.until)
                copy_to(saved.idle[k], w.idle)
                copy_to(saved.free[k], w.free)
                saved.states[0] = k + 1
        makespan = _run_events(net, c, t, w, (run.limit, pause))
    return makespan


@spliced
def _resume(net: SearchNetwork, t: RunTrace, w: SimulationState, saved: SavedStates, run: RunBounds) -> int:
    """Set the last state that the run shares with the current decision's; return the tick from which to save states."""
    w.tally[:] = 0
    state = saved.states[0] - 1
    while state >= 0 and saved.when[state] > run.departs:
        state -= 1
    if state < 0:
        # No state is shared: every device may begin its first task.
        copy_to(w.waiting, net.indegree)
        t.ready[:] = 0
        w.last[:] = -1
        w.busy[:] = 0
        w.until[:] = 0
        w.idle[:] = 0
        w.free[:] = 0
        for d in range(len(w.last)):
            w.freed[d] = d
        w.tally[_FREED] = len(w.last)
    else:
        copy_to(w.waiting, saved.waiting[state])
        copy_to(t.ready, saved.ready[state])
        copy_to(w.last, saved.last[state])
        copy_to(w.busy, saved.busy[state])
        copy_to(w.until, saved.until[state])
        copy_to(w.idle, saved.idle[state])
        copy_to(w.free, saved.free[state])
    # Nothing is to be saved where later states are there already, or no room is left for one.
    full = state + 1 < saved.states[0] or state + 1 == len(saved.when)
    return NEVER if full else (0 if state < 0 else saved.when[state]) + run.every


@subkernel
def _run_events(net: SearchNetwork, c: SearchDecision, t: RunTrace, w: SimulationState, bounds: tuple[int, int]) -> int:
    """Process events; `bounds` are a limit of the makespan (beyond it return STOPPED) and the tick to pause before."""
    limit, pause = bounds
    while True:
        for k in range(w.tally[_FREED]):
            # A device may be listed twice, by its own end and by an input that came: the second finds it busy.
            if w.busy[w.freed[k]] == 0:
                _begin_next(net, c, t, w, w.freed[k], limit)
        w.tally[_FREED] = 0
        if w.tally[_HOPELESS] == 1:
            return STOPPED
        # The device whose task ends next; of several the one whose task comes first in the order. A scan: devices are
        # few, and a heap would have to be saved and restored with every state.
        ending, now = -1, NEVER
        for d in range(len(w.until)):
            if w.busy[d] == 1:
                until = w.until[d]
                if until < now:
                    ending, now = d, until
                elif until == now and c.place[w.last[d]] < c.place[w.last[ending]]:
                    ending = d
        if ending < 0:
            makespan = np.int64(0)
            for d in range(len(w.until)):
                makespan = max(makespan, w.until[d])
            return int(makespan)
        if now >= pause:
            w.tally[_NOW] = now
            return _PAUSED
        w.busy[ending] = 0
        w.freed[0] = ending
        w.tally[_FREED] = 1
        # One end at a time: devices that end in the same tick are served by the order, as in the replay, because the
        # first to ask for a shared link delays the others.
        _finish(net, c, t, w, w.last[ending], now)


@spliced
def _begin_next(net: SearchNetwork, c: SearchDecision, t: RunTrace, w: SimulationState, d: int, limit: int) -> None:
    """Begin a free device's next task if its inputs are known."""
    task = c.first[d] if w.last[d] < 0 else c.after[w.last[d]]
    if task >= 0 and w.waiting[task] == 0:
        start = max(w.until[d], t.ready[task])
        end = start + c.took[task]
        w.idle[d] += start - w.until[d]
        w.last[d], w.busy[d], w.until[d] = task, 1, end
        t.start[task], t.end[task] = start, end
        t.begun[w.tally[BEGUN]] = task
        w.tally[BEGUN] += 1
        # Either proves it: the work of the device with the time it has lost already, or what must follow the task.
        # Giving up here, and not at the end, is what makes rejected changes cheap; most changes are rejected.
        if w.idle[d] + c.load[d] > limit or end + net.rest[task] > limit:
            w.tally[_HOPELESS] = 1


@spliced
def _finish(net: SearchNetwork, c: SearchDecision, t: RunTrace, w: SimulationState, task: int, now: int) -> None:
    """Request the transfers of a task that has ended, and release its successors."""
    here = c.at[task]
    # Edges of a task are sorted by payload: a payload crosses once to each location, however many tasks read it there.
    k, last = net.offset[task], net.offset[task + 1]
    while k < last:
        payload, stop, low, high = net.carried[k], k, len(w.arrival), -1
        while stop < last and net.carried[stop] == payload:
            there = c.at[net.head[stop]]
            if payload >= 0 and there != here:
                w.arrival[there] = now
                low, high = min(low, there), max(high, there)
            stop += 1
        # By rising location, as in `solvers.timing.replay`: who is first at a shared link decides the times.
        for there in range(low, high + 1):
            if w.arrival[there] >= 0:
                # All links of a path are held together for the whole transfer, so it begins when the last is free.
                begin = now
                for hop in range(net.path_links.shape[2]):
                    link = net.path_links[here, there, hop]
                    if link >= 0:
                        begin = max(begin, w.free[link])
                end = begin + net.transfer[payload, net.path_class[here, there]]
                for hop in range(net.path_links.shape[2]):
                    link = net.path_links[here, there, hop]
                    if link >= 0:
                        w.free[link] = end
                w.arrival[there] = end
        for edge in range(k, stop):
            head = net.head[edge]
            there = c.at[head]
            t.ready[head] = max(t.ready[head], now if payload < 0 or there == here else w.arrival[there])
            w.waiting[head] -= 1
            if w.waiting[head] == 0 and w.busy[c.device[head]] == 0:
                w.freed[w.tally[_FREED]] = c.device[head]
                w.tally[_FREED] += 1
        # Cleared only where it was used, as this runs once for each payload.
        for there in range(low, high + 1):
            w.arrival[there] = -1
        k = stop
