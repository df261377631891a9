"""The compiled kernels of `solvers.replay`: one event loop for fixed order, one for fixed placement alone."""

from typing import NamedTuple

import numba
import numpy as np

from solvers.arrays import Bools, Ints, ints
from solvers.heap import drop, push

FREED, SENT, EVENTS, ARRIVALS = range(4)


class Prepared(NamedTuple):
    """A problem's adjacency and tables, as read-only arrays; a tuple because compiled code takes no dataclass."""

    offset: Ints
    """[n + 1] where the edges of each task start in `head` and `carried`."""
    head: Ints
    """[e] successors, by task and then by payload, so that the consumers of a payload are consecutive."""
    carried: Ints
    """[e] payload of each such edge, -1 for none."""
    indegree: Ints
    """[n] edges that enter each task."""
    duration: Ints
    location: Ints
    transfer: Ints
    path_class: Ints
    path_links: Ints
    links: int
    carries: int
    """Edges that carry a payload."""


class State(NamedTuple):
    """The work arrays of one run."""

    at: Ints
    """[n] location of each task."""
    took: Ints
    """[n] ticks of each task on its device."""
    waiting: Ints
    """[n] finish events that a task still waits for."""
    ready: Ints
    """[n] the latest finish or arrival that a task waits for, as far as known."""
    start: Ints
    finish: Ints
    freed: Ints
    """[n] tasks that wait for nothing more since the last event."""
    length: Ints
    """[4] lengths: freed tasks, transfers, events, arrivals."""
    link_free: Ints
    arrival: Ints
    """[l] arrival of the current payload, -1 where nobody reads it."""
    event_time: Ints
    event_place: Ints
    sent: Ints
    """[payload edges, 4] payload, target, start and finish of each transfer."""


class _Queues(NamedTuple):
    """The devices' queues of ready tasks, and the tasks whose inputs are on the way; tasks by place in the order."""

    first: Ints
    """[m + 1] where each device's heap starts in `ready`."""
    ready: Ints
    length: Ints
    busy: Bools
    arrival_time: Ints
    arrival_place: Ints


def state_for(g: Prepared, device: Ints) -> State:
    """Fresh work arrays for one run."""
    n = len(g.indegree)
    return State(
        at=g.location[device],
        took=np.take_along_axis(g.duration, device[:, None], axis=1)[:, 0],
        waiting=g.indegree.copy(),
        ready=np.zeros(n, dtype=np.int64),
        start=np.full(n, -1, dtype=np.int64),
        finish=np.zeros(n, dtype=np.int64),
        freed=np.empty(n, dtype=np.int64),
        length=np.zeros(4, dtype=np.int64),
        link_free=np.zeros(g.links, dtype=np.int64),
        arrival=np.full(g.path_class.shape[0], -1, dtype=np.int64),
        event_time=np.empty(n, dtype=np.int64),
        event_place=np.empty(n, dtype=np.int64),
        sent=np.empty((g.carries, 4), dtype=np.int64),
    )


def order_of(rank: Ints) -> Ints:
    """Tasks by (rank, index)."""
    n = len(rank)
    if n and rank.min() >= 0 and rank.max() < n:
        # A rank that is a permutation, the usual case, needs no sort.
        order = np.full(n, -1, dtype=np.int64)
        order[rank] = np.arange(n)
        if (order >= 0).all():
            return ints(order)
    return ints(np.argsort(rank, kind="stable"))


@numba.njit(cache=True, forceinline=True)
def _grant(g: Prepared, s: State, payload: int, path: tuple[int, int], now: int) -> None:
    """Send a payload along a path (from, to) as soon as its links are free."""
    a, b = path
    begin = now
    for k in range(g.path_links.shape[2]):
        link = g.path_links[a, b, k]
        if link >= 0 and s.link_free[link] > begin:
            begin = s.link_free[link]
    end = begin + g.transfer[payload, g.path_class[a, b]]
    for k in range(g.path_links.shape[2]):
        link = g.path_links[a, b, k]
        if link >= 0:
            s.link_free[link] = end
    at = s.length[SENT]
    s.sent[at, 0], s.sent[at, 1], s.sent[at, 2], s.sent[at, 3] = payload, b, begin, end
    s.length[SENT] = at + 1
    s.arrival[b] = end


@numba.njit(cache=True, forceinline=True)
def _release(s: State, task: int, time: int) -> None:
    """One thing less that the task waits for, known to hold from `time` on."""
    s.ready[task] = max(s.ready[task], time)
    s.waiting[task] -= 1
    if s.waiting[task] == 0:
        s.freed[s.length[FREED]] = task
        s.length[FREED] += 1


@numba.njit(cache=True, forceinline=True)
def finish_task(g: Prepared, s: State, task: int, now: int) -> None:
    """Request the task's transfers and release its successors."""
    here = s.at[task]
    k, last = g.offset[task], g.offset[task + 1]
    while k < last:
        payload = g.carried[k]
        if payload < 0:
            _release(s, g.head[k], now)
            k += 1
            continue
        low, high, end = len(s.arrival), -1, k
        while end < last and g.carried[end] == payload:
            there = s.at[g.head[end]]
            if there != here:
                s.arrival[there] = now
                low, high = min(low, there), max(high, there)
            end += 1
        for there in range(low, high + 1):
            if s.arrival[there] >= 0:
                _grant(g, s, payload, (here, there), now)
        for edge in range(k, end):
            there = s.at[g.head[edge]]
            _release(s, g.head[edge], now if there == here else s.arrival[there])
        for there in range(low, high + 1):
            s.arrival[there] = -1
        k = end


@numba.njit(cache=True, forceinline=True)
def begin_task(s: State, entry: tuple[int, int], now: int) -> None:
    """Start a task, `entry` = (task, its place in the order), and queue its finish."""
    task, place = entry
    s.start[task] = now
    s.finish[task] = now + s.took[task]
    s.length[EVENTS] = push(s.event_time, s.event_place, s.length[EVENTS], (s.finish[task], place))


@numba.njit(cache=True)
def _places(order: Ints) -> Ints:
    place = np.empty(len(order), dtype=np.int64)
    for at in range(len(order)):
        place[order[at]] = at
    return place


@numba.njit(cache=True)
def run_strict(g: Prepared, s: State, device: Ints, order: Ints) -> int:
    """Run each device's tasks in `order`; return how many ran, fewer than all when the order deadlocks."""
    n = len(order)
    place = _places(order)
    follower = np.full(n, -1, dtype=np.int64)
    last = np.full(g.duration.shape[1], -1, dtype=np.int64)
    for task in order:
        before = last[device[task]]
        if before >= 0:
            follower[before] = task
            s.waiting[task] += 1
        last[device[task]] = task
    for task in order:
        if s.waiting[task] == 0:
            begin_task(s, (task, place[task]), np.int64(0))
    done = 0
    while s.length[EVENTS] > 0:
        now, task = s.event_time[0], order[s.event_place[0]]
        s.length[EVENTS] = drop(s.event_time, s.event_place, s.length[EVENTS])
        done += 1
        if follower[task] >= 0:
            _release(s, follower[task], now)
        finish_task(g, s, task, now)
        for at in range(s.length[FREED]):
            freed = s.freed[at]
            begin_task(s, (freed, place[freed]), s.ready[freed])
        s.length[FREED] = 0
    return done


@numba.njit(cache=True)
def run_listed(g: Prepared, s: State, device: Ints, order: Ints) -> int:
    """Start, whenever a device is idle, its ready task that is first in `order`; return how many ran: all."""
    place, q = _places(order), _queues(device, g.duration.shape[1])
    for task in order:
        if s.waiting[task] == 0:
            s.freed[s.length[FREED]] = task
            s.length[FREED] += 1
    now, done = np.int64(0), 0
    while True:
        while s.length[EVENTS] > 0 and s.event_time[0] == now:
            task = order[s.event_place[0]]
            s.length[EVENTS] = drop(s.event_time, s.event_place, s.length[EVENTS])
            done += 1
            q.busy[device[task]] = False
            finish_task(g, s, task, now)
        _arrive(s, q, place)
        _admit(s, q, device, order, now)
        _dispatch(s, q, order, now)
        events, arrivals = s.length[EVENTS] > 0, s.length[ARRIVALS] > 0
        if events and arrivals:
            now = min(s.event_time[0], q.arrival_time[0])
        elif events or arrivals:
            now = s.event_time[0] if events else q.arrival_time[0]
        else:
            return done


@numba.njit(cache=True)
def _queues(device: Ints, devices: int) -> _Queues:
    n = len(device)
    first = np.zeros(devices + 1, dtype=np.int64)
    for task in range(n):
        first[device[task] + 1] += 1
    for d in range(devices):
        first[d + 1] += first[d]
    return _Queues(
        first,
        np.empty(n, dtype=np.int64),
        np.zeros(devices, dtype=np.int64),
        np.zeros(devices, dtype=np.bool_),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
    )


@numba.njit(cache=True, forceinline=True)
def _arrive(s: State, q: _Queues, place: Ints) -> None:
    """Queue the freed tasks by the time at which their inputs have arrived."""
    for at in range(s.length[FREED]):
        entry = (s.ready[s.freed[at]], place[s.freed[at]])
        s.length[ARRIVALS] = push(q.arrival_time, q.arrival_place, s.length[ARRIVALS], entry)
    s.length[FREED] = 0


@numba.njit(cache=True, forceinline=True)
def _admit(s: State, q: _Queues, device: Ints, order: Ints, now: int) -> None:
    """Hand the tasks whose inputs have arrived to their devices."""
    while s.length[ARRIVALS] > 0 and q.arrival_time[0] <= now:
        place = q.arrival_place[0]
        s.length[ARRIVALS] = drop(q.arrival_time, q.arrival_place, s.length[ARRIVALS])
        d = device[order[place]]
        lane = q.ready[q.first[d] : q.first[d + 1]]
        q.length[d] = push(lane, lane, q.length[d], (place, place))


@numba.njit(cache=True, forceinline=True)
def _dispatch(s: State, q: _Queues, order: Ints, now: int) -> None:
    """Start a task on each idle device that has a ready one."""
    for d in range(len(q.length)):
        if q.length[d] > 0 and not q.busy[d]:
            lane = q.ready[q.first[d] : q.first[d + 1]]
            begin_task(s, (order[lane[0]], lane[0]), now)
            q.length[d] = drop(lane, lane, q.length[d])
            q.busy[d] = True
