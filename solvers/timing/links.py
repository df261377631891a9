"""How payloads cross in the event loop: links first come, first served, or transfers by priority."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, rank_of
from solvers.compiled.kernels import inlined, kernel, routine, spliced, subkernel

FREED, SENT, EVENTS, ARRIVALS = range(4)
WAITING, READY, AT, TOOK = range(4)


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
    """Number of edges that carry a payload."""


class LinkState(NamedTuple):
    """The work arrays of one run; for one thread at a time."""

    row: Ints
    """[n, 4] the four columns that follow, side by side, as each edge reads most of them."""
    waiting: Ints
    """[n] finish events that a task still waits for."""
    ready: Ints
    """[n] the latest finish or arrival that a task waits for, as far as known."""
    at: Ints
    """[n] location of each task."""
    took: Ints
    """[n] ticks of each task on its device."""
    start: Ints
    """[n] tick at which each task starts, -1 where it has not started."""
    finish: Ints
    freed: Ints
    """[n + 1] tasks that wait for nothing more since the last event."""
    ended: Ints
    """[n] tasks in the order in which their ends were served, but of a strict run with links that serve by priority."""
    place: Ints
    """[n] place of each task in the order."""
    follower: Ints
    """[n] by place: the task that comes next on the same device, -1 for none."""
    last: Ints
    """[m] place in the order of the last task of each device so far, -1 for none."""
    length: Ints
    """[4] lengths: freed tasks, transfers, events, arrivals."""
    link_free: Ints
    arrival: Ints
    """[l] arrival of the current payload, -1 where nobody reads it."""
    event_time: Ints
    event_place: Ints
    sent: Ints
    """[payload edges, 4] payload, target, start and finish of each transfer."""


def state_for(g: Prepared, device: Ints) -> LinkState:
    """Work arrays for a run with tasks on `device`, [n]; `reset` makes them ready for another one."""
    n = len(g.indegree)
    row = np.empty((n, 4), dtype=np.int64)
    state = LinkState(
        row=row,
        waiting=row[:, WAITING],
        ready=row[:, READY],
        at=row[:, AT],
        took=row[:, TOOK],
        start=np.full(n, -1, dtype=np.int64),
        finish=np.zeros(n, dtype=np.int64),
        freed=np.empty(n + 1, dtype=np.int64),
        ended=np.empty(n, dtype=np.int64),
        place=np.empty(n, dtype=np.int64),
        follower=np.empty(n, dtype=np.int64),
        last=np.empty(g.duration.shape[1], dtype=np.int64),
        length=np.zeros(4, dtype=np.int64),
        link_free=np.zeros(g.links, dtype=np.int64),
        arrival=np.full(g.path_class.shape[0], -1, dtype=np.int64),
        event_time=np.empty(n, dtype=np.int64),
        event_place=np.empty(n, dtype=np.int64),
        sent=np.empty((g.carries, 4), dtype=np.int64),
    )
    reset(g, state, device)
    return state


@kernel
def reset(g: Prepared, s: LinkState, device: Ints) -> None:
    """Make the work arrays ready for a run with tasks on `device`, [n], whatever they were used for."""
    for task in range(len(device)):
        d = device[task]
        s.row[task, WAITING] = g.indegree[task]
        s.row[task, READY] = 0
        s.row[task, AT] = g.location[d]
        s.row[task, TOOK] = g.duration[task, d]
        s.start[task] = -1
    s.length[:] = 0
    s.link_free[:] = 0


@inlined
def release(s: LinkState, task: int, time: int | np.int64) -> None:
    """One thing less that the task waits for, known to hold from `time` on."""
    # Without a branch, as nothing predicts it: the next one overwrites a task that is not free yet.
    s.row[task, READY] = max(s.row[task, READY], time)
    s.row[task, WAITING] -= 1
    s.freed[s.length[FREED]] = task
    s.length[FREED] += s.row[task, WAITING] == 0


@inlined
def free_from(path_links: Ints, link_free: Ints, path: tuple[int, int], now: int | np.int64) -> int | np.int64:
    """From when on, not before now, no link of a path (from, to) is busy."""
    for k in range(path_links.shape[2]):
        link = path_links[path[0], path[1], k]
        if link >= 0:
            now = max(now, link_free[link])
    return now


@inlined
def grant(g: Prepared, s: LinkState, payload: int, path: tuple[int, int], now: int | np.int64) -> None:
    """Send a payload along a path (from, to) as soon as its links are free."""
    a, b = path
    begin = free_from(g.path_links, s.link_free, path, now)
    end = begin + g.transfer[payload, g.path_class[a, b]]
    for k in range(g.path_links.shape[2]):
        link = g.path_links[a, b, k]
        if link >= 0:
            s.link_free[link] = end
    at = s.length[SENT]
    s.sent[at, 0], s.sent[at, 1], s.sent[at, 2], s.sent[at, 3] = payload, b, begin, end
    s.length[SENT] = at + 1
    s.arrival[b] = end


@inlined
def finish_task(g: Prepared, s: LinkState, task: int, now: int | np.int64) -> None:
    """Request the task's transfers, which are granted at once, and release its successors."""
    here = s.row[task, AT]
    k, last = g.offset[task], g.offset[task + 1]
    while k < last:
        payload = g.carried[k]
        if payload < 0:
            release(s, g.head[k], now)
            k += 1
            continue
        low, high, end = len(s.arrival), -1, k
        while end < last and g.carried[end] == payload:
            there = s.row[g.head[end], AT]
            if there != here:
                s.arrival[there] = now
                low, high = min(low, there), max(high, there)
            end += 1
        for there in range(low, high + 1):
            if s.arrival[there] >= 0:
                grant(g, s, payload, (here, there), now)
        for edge in range(k, end):
            # Where nothing is sent no arrival is known: what is read at `here` is there now.
            release(s, g.head[edge], max(now, s.arrival[s.row[g.head[edge], AT]]))
        for there in range(low, high + 1):
            s.arrival[there] = -1
        k = end


NEVER = 2**62


class Outbox(NamedTuple):
    """The transfers that wait for links under the scheduled policy: a heap a path (from * l + to)."""

    turn: Ints
    """[p] place of each payload by (send rank, payload); empty: links are first come, first served."""
    first: Ints
    """[l * l + 1] where the heap of each path starts in `key` and `edge`."""
    length: Ints
    """[l * l] transfers that wait for each path."""
    key: Ints
    """Turn of each waiting transfer."""
    edge: Ints
    """First edge of the payload of each waiting transfer."""
    active: Ints
    """[l * l] paths that something waits for."""
    lines: Ints
    """[1] number of entries of `active`."""
    asked: Ints
    """[l] the last payload that was requested for each location."""


def outbox_for(g: Prepared, s: LinkState, send_rank: Ints | None) -> Outbox:
    """Room for all transfers of a run whose `state_for` is `s`, by priority; for FCFS where `send_rank` is None."""
    places = len(s.arrival)
    waits = np.zeros(places * places + 1, dtype=np.int64)
    turn = np.zeros(0, dtype=np.int64)
    if send_rank is not None:
        turn = rank_of(np.argsort(send_rank, kind="stable"))
        _count(g, s, waits[1:])
    return Outbox(
        turn=turn,
        first=np.cumsum(waits),
        length=np.zeros(places * places, dtype=np.int64),
        key=np.empty(int(waits.sum()), dtype=np.int64),
        edge=np.empty(int(waits.sum()), dtype=np.int64),
        active=np.empty(places * places, dtype=np.int64),
        lines=np.zeros(1, dtype=np.int64),
        asked=np.full(places, -1, dtype=np.int64),
    )


@inlined
def request_sends(g: Prepared, s: LinkState, o: Outbox, task: int, now: int) -> None:
    """Let the task's transfers wait for `start_waiting`, and release its successors that need none."""
    here = s.row[task, AT]
    k = g.offset[task]
    for edge in range(k, g.offset[task + 1]):
        payload, there = g.carried[edge], s.row[g.head[edge], AT]
        if payload != g.carried[k]:
            k = edge
        if payload < 0 or there == here:
            release(s, g.head[edge], now)
        elif o.asked[there] != payload:
            o.asked[there] = payload
            _wait(o, here * len(s.arrival) + there, o.turn[payload], k)


@subkernel
def start_waiting(g: Prepared, s: LinkState, o: Outbox, now: int) -> int:
    """Start, in order of (turn, target), each waiting transfer whose links are free; return when to look again."""
    while True:
        best, wake = -1, NEVER
        for at in range(o.lines[0]):
            path = o.active[at]
            free = int(free_from(g.path_links, s.link_free, divmod(path, len(s.arrival)), 0))
            if free > now:
                wake = min(wake, free)
            elif best < 0 or (o.key[o.first[path]], path) < (o.key[o.first[o.active[best]]], o.active[best]):
                best = at
        if best < 0:
            return wake
        path = o.active[best]
        _start(g, s, (path, _take(o, path)), now)
        if o.length[path] == 0:
            o.lines[0] -= 1
            o.active[best] = o.active[o.lines[0]]


@spliced
def _start(g: Prepared, s: LinkState, waited: tuple[int, int], now: int) -> None:
    """Send what waited, (path, first edge), and release its readers there."""
    path, edge = waited
    a, b = divmod(path, len(s.arrival))
    payload = g.carried[edge]
    grant(g, s, payload, (a, b), now)
    while edge < len(g.head) and g.carried[edge] == payload:
        if s.row[g.head[edge], AT] == b:
            release(s, g.head[edge], s.arrival[b])
        edge += 1
    s.arrival[b] = -1


@spliced
def _wait(o: Outbox, path: int, turn: int, edge: int) -> None:
    """Push a transfer on the heap of its path."""
    if o.length[path] == 0:
        o.active[o.lines[0]] = path
        o.lines[0] += 1
    first, at = o.first[path], o.length[path]
    while at > 0 and o.key[first + ((at - 1) >> 1)] > turn:
        up = (at - 1) >> 1
        o.key[first + at], o.edge[first + at] = o.key[first + up], o.edge[first + up]
        at = up
    o.key[first + at], o.edge[first + at] = turn, edge
    o.length[path] += 1


@spliced
def _take(o: Outbox, path: int) -> int:
    """Pop the heap of a path; return the first edge of the payload."""
    first, size, at = o.first[path], o.length[path] - 1, 0
    found, turn, edge = o.edge[first], o.key[first + size], o.edge[first + size]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and o.key[first + child + 1] < o.key[first + child]:
            child += 1
        if turn <= o.key[first + child]:
            break
        o.key[first + at], o.edge[first + at] = o.key[first + child], o.edge[first + child]
        at = child
    o.key[first + at], o.edge[first + at] = turn, edge
    o.length[path] = size
    return found


@routine
def _count(g: Prepared, s: LinkState, waits: Ints) -> None:
    """[l * l] transfers of each path in a whole run."""
    asked = np.full(len(s.arrival), -1, dtype=np.int64)
    for task in range(len(g.indegree)):
        here = s.row[task, AT]
        for edge in range(g.offset[task], g.offset[task + 1]):
            payload, there = g.carried[edge], s.row[g.head[edge], AT]
            if payload >= 0 and there != here and asked[there] != payload:
                asked[there] = payload
                waits[here * len(s.arrival) + there] += 1
