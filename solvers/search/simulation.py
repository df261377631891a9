"""The event loop of `solvers.timing.replay` for millions of runs: it stops early, and resumes where a run departs."""

import numpy as np

from solvers.compiled.kernels import spliced, subkernel
from solvers.search.network import SearchNetwork
from solvers.search.state import RunBounds, RunTrace, SavedStates, SearchDecision, SimulationState, copy_to

NEVER = 2**62
BEGUN, _HOPELESS, _FREED, _NOW = range(4)
_PAUSED = -2
STOPPED = -1
"""Instead of a makespan: the run was given up, as it cannot end by its limit."""


@subkernel
def simulate(
    net: SearchNetwork, c: SearchDecision, t: RunTrace, w: SimulationState, saved: SavedStates, run: RunBounds
) -> int:
    """The makespan of a choice, or STOPPED; the trace holds for the tasks that were begun by this run.

    Equal to the strict `solvers.timing.replay.replay` with the places as ranks. A run that resumes leaves the trace of
    what was begun before alone: it is the current choice's.
    """
    # Most changes leave the beginning of a run as it was, so a run resumes from the last saved state before the change
    # departs from the current run. States are saved only up to that tick: later ones would describe a run that is
    # likely to be rejected, and saving copies arrays of n tasks.
    pause = _resume(net, t, w, saved, run)
    found = _events(net, c, t, w, (run.limit, pause))
    while found == _PAUSED:
        now = w.tally[_NOW]
        if now <= run.departs:
            _save(t, w, saved, now)
            pause = now + run.every
        else:
            pause = NEVER
        found = _events(net, c, t, w, (run.limit, pause))
    return found


@subkernel
def _events(net: SearchNetwork, c: SearchDecision, t: RunTrace, w: SimulationState, bounds: tuple[int, int]) -> int:
    """Process events: the makespan, STOPPED beyond a limit, or _PAUSED where the next event is not before a pause."""
    limit, pause = bounds
    while True:
        for k in range(w.tally[_FREED]):
            # A device may be listed twice, by its own end and by an input that came: the second finds it busy.
            if w.busy[w.freed[k]] == 0:
                _begin(net, c, t, w, w.freed[k], limit)
        w.tally[_FREED] = 0
        if w.tally[_HOPELESS] == 1:
            return STOPPED
        d = _next(c, w)
        if d < 0:
            return _end(w)
        now = w.until[d]
        if now >= pause:
            w.tally[_NOW] = now
            return _PAUSED
        w.busy[d] = 0
        w.freed[0] = d
        w.tally[_FREED] = 1
        # One end at a time: devices that end in the same tick are served by the order, as in the replay, because the
        # first to ask for a shared link delays the others.
        _send(net, c, t, w, w.last[d], now)


@spliced
def _end(w: SimulationState) -> int:
    """When the last task ended."""
    most = np.int64(0)
    for d in range(len(w.until)):
        most = max(most, w.until[d])
    return int(most)


@spliced
def _next(c: SearchDecision, w: SimulationState) -> int:
    """The device whose task ends next, of several the one whose task comes first in the order; -1 for none."""
    # A scan: devices are few, and a heap would have to be saved and restored with every state.
    found, now = -1, NEVER
    for d in range(len(w.until)):
        if w.busy[d] == 1:
            until = w.until[d]
            if until < now:
                found, now = d, until
            elif until == now and c.place[w.last[d]] < c.place[w.last[found]]:
                found = d
    return found


@spliced
def _begin(net: SearchNetwork, c: SearchDecision, t: RunTrace, w: SimulationState, d: int, limit: int) -> None:
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
def _send(net: SearchNetwork, c: SearchDecision, t: RunTrace, w: SimulationState, task: int, now: int) -> None:
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
                w.arrival[there] = _arrives(net, w, payload, (here, there), now)
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


@spliced
def _arrives(net: SearchNetwork, w: SimulationState, payload: int, path: tuple[int, int], now: int) -> int:
    """Send a payload along a path as soon as its links are free; return when it is there."""
    # All links of a path are held together for the whole transfer, so it begins when the last of them is free.
    begin = now
    for k in range(net.path_links.shape[2]):
        link = net.path_links[path[0], path[1], k]
        if link >= 0:
            begin = max(begin, w.free[link])
    end = begin + net.transfer[payload, net.path_class[path[0], path[1]]]
    for k in range(net.path_links.shape[2]):
        link = net.path_links[path[0], path[1], k]
        if link >= 0:
            w.free[link] = end
    return end


@spliced
def _resume(net: SearchNetwork, t: RunTrace, w: SimulationState, saved: SavedStates, run: RunBounds) -> int:
    """Begin at the last state that the run shares with the current choice's; return from when on to save states."""
    w.tally[:] = 0
    state = saved.states[0] - 1
    while state >= 0 and saved.when[state] > run.departs:
        state -= 1
    if state < 0:
        _fresh(net, t, w)
    else:
        _restore(t, w, saved, state)
    # Nothing is to be saved where later states are there already, or no room is left for one.
    full = state + 1 < saved.states[0] or state + 1 == len(saved.when)
    return NEVER if full else (0 if state < 0 else saved.when[state]) + run.every


@spliced
def _fresh(net: SearchNetwork, t: RunTrace, w: SimulationState) -> None:
    """The state in which every device may begin its first task."""
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


@spliced
def _save(t: RunTrace, w: SimulationState, saved: SavedStates, now: int) -> None:
    """Keep the state before the events of `now`."""
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


@spliced
def _restore(t: RunTrace, w: SimulationState, saved: SavedStates, k: int) -> None:
    """The inverse of `_save`."""
    copy_to(w.waiting, saved.waiting[k])
    copy_to(t.ready, saved.ready[k])
    copy_to(w.last, saved.last[k])
    copy_to(w.busy, saved.busy[k])
    copy_to(w.until, saved.until[k])
    copy_to(w.idle, saved.idle[k])
    copy_to(w.free, saved.free[k])
