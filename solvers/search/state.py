"""Arrays of a simulation: the decision, its trace, the simulation state, and saved states to resume from."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.compiled.kernels import inlined
from solvers.search.network import SearchNetwork, Shorts


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
    """The trace of a run: starts, ends and ready times of tasks."""

    start: Ints
    """[n] tick at which each task starts."""
    end: Ints
    """[n] tick at which each task ends."""
    ready: Ints
    """[n] when the last input of each task was there."""
    begun: Shorts
    """[n] the tasks in the order in which they were begun, and how many in the last place."""


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
    """States of the current choice's run at some ticks, each as in `SimulationState`."""

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
    """Before this tick it is the same as the current choice's run: `saved` may be used, and filled."""
    every: int
    """Ticks between the states that are saved."""


def choice_for(net: SearchNetwork) -> SearchDecision:
    """Arrays for one choice."""
    n, m = len(net.indegree), len(net.used)
    return SearchDecision(
        at=np.zeros(n, dtype=np.int32),
        order=np.zeros(n, dtype=np.int32),
        place=np.zeros(n, dtype=np.int32),
        device=np.zeros(n, dtype=np.int32),
        took=np.zeros(n, dtype=np.int64),
        after=np.zeros(n, dtype=np.int32),
        before=np.zeros(n, dtype=np.int32),
        first=np.zeros(m, dtype=np.int32),
        load=np.zeros(m, dtype=np.int64),
        held=np.zeros(net.device_at.shape[1], dtype=np.int64),
    )


def work_for(net: SearchNetwork) -> SimulationState:
    """Arrays for one lane of search."""
    n, m = len(net.indegree), len(net.used)
    return SimulationState(
        waiting=np.empty(n, dtype=np.int32),
        last=np.empty(m, dtype=np.int32),
        busy=np.empty(m, dtype=np.int32),
        until=np.empty(m, dtype=np.int64),
        idle=np.empty(m, dtype=np.int64),
        free=np.empty(net.links, dtype=np.int64),
        arrival=np.full(net.device_at.shape[1], -1, dtype=np.int64),
        freed=np.empty(n + m, dtype=np.int32),
        tally=np.zeros(4, dtype=np.int64),
    )


def trace_for(net: SearchNetwork) -> RunTrace:
    """Arrays for one trace."""
    n = len(net.indegree)
    return RunTrace(
        start=np.zeros(n, dtype=np.int64),
        end=np.zeros(n, dtype=np.int64),
        ready=np.zeros(n, dtype=np.int64),
        begun=np.zeros(n, dtype=np.int32),
    )


def saved_for(net: SearchNetwork, states: int) -> SavedStates:
    """Room for so many states."""
    n, m = len(net.indegree), len(net.used)
    return SavedStates(
        states=np.zeros(1, dtype=np.int64),
        when=np.zeros(states, dtype=np.int64),
        waiting=np.empty((states, n), dtype=np.int32),
        ready=np.empty((states, n), dtype=np.int64),
        last=np.empty((states, m), dtype=np.int32),
        busy=np.empty((states, m), dtype=np.int32),
        until=np.empty((states, m), dtype=np.int64),
        idle=np.empty((states, m), dtype=np.int64),
        free=np.empty((states, net.links), dtype=np.int64),
    )


@inlined
def copy_to(to: Ints | Shorts, values: Ints | Shorts) -> None:
    """`to[:] = values` of one length, which may not overlap: numba's own looks for that, and takes long to compile."""
    for k in range(len(to)):
        to[k] = values[k]
