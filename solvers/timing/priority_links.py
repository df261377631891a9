"""The scheduled policy of links: transfers wait, and start by priority as soon as all links of their path are free."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.compiled.kernels import inlined, routine, subkernel
from solvers.timing.links import AT, Prepared, State, grant, release

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
    """The first edge of its payload."""
    active: Ints
    """[l * l] the paths that something waits for."""
    lines: Ints
    """[1] how many these are."""
    asked: Ints
    """[l] the last payload that was requested for each location."""


def outbox_for(g: Prepared, s: State, send_rank: Ints | None) -> Outbox:
    """Room for all transfers of a run whose `state_for` is `s`, by priority; for FCFS where `send_rank` is None."""
    places = len(s.arrival)
    waits = np.zeros(places * places + 1, dtype=np.int64)
    turn = np.zeros(0, dtype=np.int64)
    if send_rank is not None:
        turn = np.empty(len(send_rank), dtype=np.int64)
        turn[np.argsort(send_rank, kind="stable")] = np.arange(len(send_rank))
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
def request_sends(g: Prepared, s: State, o: Outbox, task: int, now: int) -> None:
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
def start_waiting(g: Prepared, s: State, o: Outbox, now: int) -> int:
    """Start, in order of (turn, target), each waiting transfer whose links are free; return when to look again."""
    while True:
        best, wake = -1, NEVER
        for at in range(o.lines[0]):
            path = o.active[at]
            free = _free_at(g, s, path)
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


@subkernel
def _free_at(g: Prepared, s: State, path: int) -> int:
    a, b = divmod(path, len(s.arrival))
    free = 0
    for k in range(g.path_links.shape[2]):
        if g.path_links[a, b, k] >= 0:
            free = max(free, s.link_free[g.path_links[a, b, k]])
    return free


@subkernel
def _start(g: Prepared, s: State, waited: tuple[int, int], now: int) -> None:
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


@inlined
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


@subkernel
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
def _count(g: Prepared, s: State, waits: Ints) -> None:
    """[l * l] transfers of each path in a whole run."""
    asked = np.full(len(s.arrival), -1, dtype=np.int64)
    for task in range(len(g.indegree)):
        here = s.row[task, AT]
        for edge in range(g.offset[task], g.offset[task + 1]):
            payload, there = g.carried[edge], s.row[g.head[edge], AT]
            if payload >= 0 and there != here and asked[there] != payload:
                asked[there] = payload
                waits[here * len(s.arrival) + there] += 1
