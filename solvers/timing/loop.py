"""The compiled event loops of `replay`: links, first come first served or by priority, and devices with their queues.

One loop runs a fixed order, one a fixed order with links that serve by priority, and one lists tasks on a placement.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints, rank_of
from solvers.compiled.heap import Bitsets, bitsets, drop, insert, push, remove_least
from solvers.compiled.kernels import inlined, kernel, routine, spliced, subkernel

FREED, SENT, EVENTS, ARRIVALS = range(4)
WAITING, READY, AT, TOOK = range(4)
NEVER = 2**62
DeviceRule = Literal["strict", "listed", "fifo"]
"""Which of its tasks a device runs next."""


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


class Queues(NamedTuple):
    """The ready tasks of each device by number: the place in the order or, first in, first out, as they came."""

    low: Ints
    mid: Ints
    high: Ints
    top: Ints
    """[m] 0: nothing is ready; with the others as in `solvers.compiled.heap`."""
    task: Ints
    """[n] task of each number."""
    came: Ints
    """[1] tasks that got a number as they came; -1: the numbers are the places."""
    busy: Bools
    arrival_time: Ints
    arrival_place: Ints


def state_for(g: Prepared, device: Ints) -> LinkState:
    """Allocate work arrays for a run with tasks on `device`, [n]; `reset` makes them ready for another one."""
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


def outbox_for(g: Prepared, s: LinkState, send_rank: Ints | None) -> Outbox:
    """Allocate room for all transfers of a run whose `state_for` is `s`; for none where `send_rank` is None: FCFS."""
    places = len(s.arrival)
    waits = np.zeros(places * places + 1, dtype=np.int64)
    turn = np.zeros(0, dtype=np.int64)
    if send_rank is not None:
        turn = rank_of(np.argsort(send_rank, kind="stable"))
        _count_transfers(g, s, waits[1:])
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


@routine
def _count_transfers(g: Prepared, s: LinkState, waits: Ints) -> None:
    """Add to `waits`, [l * l], the transfers of each path in a whole run."""
    sent_last = np.full(len(s.arrival), -1, dtype=np.int64)
    for task in range(len(g.indegree)):
        here = s.row[task, AT]
        for edge in range(g.offset[task], g.offset[task + 1]):
            payload, there = g.carried[edge], s.row[g.head[edge], AT]
            if payload >= 0 and there != here and sent_last[there] != payload:
                sent_last[there] = payload
                waits[here * len(s.arrival) + there] += 1


def queues_for(g: Prepared, order: Ints, *, fifo: bool) -> Queues:
    """Allocate empty queues for one run."""
    n, devices = len(order), g.duration.shape[1]
    return Queues(
        *bitsets(devices, n),
        task=np.array(order),
        came=np.array([0 if fifo else -1]),
        busy=np.zeros(devices, dtype=np.bool_),
        arrival_time=np.empty(n, dtype=np.int64),
        arrival_place=np.empty(n, dtype=np.int64),
    )


def order_of(rank: Ints) -> Ints:
    """Return the tasks by (rank, index)."""
    n = len(rank)
    if n and rank.min() >= 0 and rank.max() < n:
        # A rank that is a permutation, the usual case, needs no sort.
        order = np.full(n, -1, dtype=np.int64)
        order[rank] = np.arange(n)
        if (order >= 0).all():
            return ints(order)
    return ints(np.argsort(rank, kind="stable"))


@inlined
def release(s: LinkState, task: int, time: int | np.int64) -> None:
    """Note that one thing that the task waited for holds from `time` on."""
    # Without a branch, as nothing predicts it: the next one overwrites a task that is not free yet.
    s.row[task, READY] = max(s.row[task, READY], time)
    s.row[task, WAITING] -= 1
    s.freed[s.length[FREED]] = task
    s.length[FREED] += s.row[task, WAITING] == 0


@inlined
def free_from(path_links: Ints, link_free: Ints, path: tuple[int, int], now: int | np.int64) -> int | np.int64:
    """Return the tick, not before now, from which no link of a path (from, to) is busy."""
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
    k = s.length[SENT]
    s.sent[k, 0], s.sent[k, 1], s.sent[k, 2], s.sent[k, 3] = payload, b, begin, end
    s.length[SENT] = k + 1
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


@inlined
def request_sends(g: Prepared, s: LinkState, o: Outbox, task: int, now: int) -> None:
    """Queue the task's transfers for `start_waiting`, and release its successors that need none."""
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
            _push_transfer(o, here * len(s.arrival) + there, o.turn[payload], k)


@subkernel
def start_waiting(g: Prepared, s: LinkState, o: Outbox, now: int) -> int:
    """Start, in order of (turn, target), each waiting transfer whose links are free; return when to look again."""
    while True:
        best, wake = -1, NEVER
        for line in range(o.lines[0]):
            path = o.active[line]
            free = int(free_from(g.path_links, s.link_free, divmod(path, len(s.arrival)), 0))
            if free > now:
                wake = min(wake, free)
            elif best < 0 or (o.key[o.first[path]], path) < (o.key[o.first[o.active[best]]], o.active[best]):
                best = line
        if best < 0:
            return wake
        path = o.active[best]
        edge = _pop_transfer(o, path)
        payload, (here, there) = g.carried[edge], divmod(path, len(s.arrival))
        grant(g, s, payload, (here, there), now)
        while edge < len(g.head) and g.carried[edge] == payload:
            if s.row[g.head[edge], AT] == there:
                release(s, g.head[edge], s.arrival[there])
            edge += 1
        s.arrival[there] = -1
        if o.length[path] == 0:
            o.lines[0] -= 1
            o.active[best] = o.active[o.lines[0]]


@spliced
def _push_transfer(o: Outbox, path: int, turn: int, edge: int) -> None:
    """Push a transfer, (path, turn, first edge), on the heap of its path."""
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
def _pop_transfer(o: Outbox, path: int) -> int:
    """Pop the heap of a path; return the first edge of the payload."""
    first, size, at = o.first[path], o.length[path] - 1, 0
    popped, turn, edge = o.edge[first], o.key[first + size], o.edge[first + size]
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
    return popped


@inlined
def begin_task(s: LinkState, entry: tuple[int, int], now: int) -> None:
    """Start a task, `entry` = (task, its place in the order), and queue its finish."""
    task, place = entry
    s.start[task] = now
    s.finish[task] = now + s.row[task, TOOK]
    s.length[EVENTS] = push(s.event_time, s.event_place, s.length[EVENTS], (s.finish[task], place))


@kernel
def turned_makespan(g: Prepared, s: LinkState, device: Ints, order: Ints, turn: Ints) -> int:
    """Run each device's tasks in `order`, links first come, first served; return the makespan, -1 for a deadlock.

    turn: all tasks in any order, `order` itself or another: of tasks that end in one tick the first there is served
    first. `s` as `reset` left it. The starts are the ready times, and are not written: `run_strict` does.
    """
    _follow(s, device, order, turn)
    done, now = 0, int(np.int64(0))
    _begin_freed(s)
    while s.length[EVENTS] > 0:
        now, place = s.event_time[0], s.event_place[0]
        s.length[EVENTS] = drop(s.event_time, s.event_place, s.length[EVENTS])
        s.ended[done] = turn[place]
        done += 1
        if s.follower[place] >= 0:
            release(s, s.follower[place], now)
        finish_task(g, s, turn[place], now)
        _begin_freed(s)
    return now if done == len(order) else -1


def turned_runs(g: Prepared, device: Ints, order: Ints, turns: Iterable[Ints]) -> Iterator[tuple[int, Ints]]:
    """Yield `turned_makespan` for each of some turns, and [n] the place of each task in the order of the ends."""
    state = state_for(g, device)
    for turn in turns:
        reset(g, state, device)
        yield int(turned_makespan(g, state, device, order, turn)), rank_of(state.ended)


@kernel
def run_strict(g: Prepared, s: LinkState, device: Ints, order: Ints) -> int:
    """Run each device's tasks in `order`, and write starts and finishes; return how many ran: all but in a deadlock."""
    turned_makespan(g, s, device, order, order)
    return _read_off(s)


@kernel
def run_waiting(g: Prepared, s: LinkState, o: Outbox, device: Ints, order: Ints) -> int:
    """Run as `run_strict` does, with links that serve by priority."""
    _follow(s, device, order, order)
    now, wake = int(np.int64(0)), NEVER
    _begin_freed(s)
    while s.length[EVENTS] > 0 or wake < NEVER:
        now = min(wake, s.event_time[0]) if s.length[EVENTS] > 0 else wake
        while s.length[EVENTS] > 0 and s.event_time[0] == now:
            place = s.event_place[0]
            s.length[EVENTS] = drop(s.event_time, s.event_place, s.length[EVENTS])
            if s.follower[place] >= 0:
                release(s, s.follower[place], now)
            request_sends(g, s, o, order[place], now)
            _begin_freed(s)
        wake = start_waiting(g, s, o, now)
        _begin_freed(s)
    return _read_off(s)


@subkernel
def _follow(s: LinkState, device: Ints, order: Ints, turn: Ints) -> None:
    """Let each task wait for the one before it on its device, and free those that wait for nothing.

    Places are those in `turn`, all tasks in any order.
    """
    s.last[:] = -1
    for place in range(len(turn)):
        s.place[turn[place]] = place
    for task in order:
        d, place = device[task], s.place[task]
        s.follower[place] = -1
        if s.last[d] >= 0:
            s.follower[s.last[d]] = task
            s.row[task, WAITING] += 1
        s.last[d] = place
        if s.row[task, WAITING] == 0:
            s.freed[s.length[FREED]] = task
            s.length[FREED] += 1


@inlined
def _begin_freed(s: LinkState) -> None:
    """Queue the finishes of the tasks that wait for nothing more; each starts as soon as it is ready."""
    for k in range(s.length[FREED]):
        task = s.freed[k]
        entry = (s.row[task, READY] + s.row[task, TOOK], s.place[task])
        s.length[EVENTS] = push(s.event_time, s.event_place, s.length[EVENTS], entry)
    s.length[FREED] = 0


@subkernel
def _read_off(s: LinkState) -> int:
    """Write starts and finishes after a strict run; return how many tasks ran."""
    ran = 0
    for task in range(len(s.start)):
        if s.row[task, WAITING] == 0:
            s.start[task] = s.row[task, READY]
            s.finish[task] = s.start[task] + s.row[task, TOOK]
            ran += 1
    return ran


@kernel
def run_queued(g: Prepared, s: LinkState, o: Outbox, q: Queues, device: Ints, order: Ints) -> int:
    """Schedule a list under either policy of links; of what is ready, the first in `order` or the first come starts."""
    now, done, wake = int(np.int64(0)), 0, NEVER
    for place in range(len(order)):
        task = order[place]
        s.place[task] = place
        if s.row[task, WAITING] == 0:
            s.freed[s.length[FREED]] = task
            s.length[FREED] += 1
    while now < NEVER:
        while s.length[EVENTS] > 0 and s.event_time[0] == now:
            task = order[s.event_place[0]]
            s.length[EVENTS] = drop(s.event_time, s.event_place, s.length[EVENTS])
            s.ended[done] = task
            done += 1
            q.busy[device[task]] = False
            if len(o.turn) > 0:
                request_sends(g, s, o, task, now)
            else:
                finish_task(g, s, task, now)
        if o.lines[0] > 0:
            wake = start_waiting(g, s, o, now)
        _admit(s, q, device, order, now)
        for d in range(len(q.top)):
            if q.top[d] != 0 and not q.busy[d]:
                task = q.task[remove_least(Bitsets(q.low, q.mid, q.high, q.top), d)]
                begin_task(s, (task, s.place[task]), now)
                q.busy[d] = True
        now = wake if o.lines[0] > 0 else NEVER
        if s.length[EVENTS] > 0:
            now = min(now, s.event_time[0])
        if s.length[ARRIVALS] > 0:
            now = min(now, q.arrival_time[0])
    return done


@spliced
def _admit(s: LinkState, q: Queues, device: Ints, order: Ints, now: int) -> None:
    """Hand the tasks whose inputs have arrived to their devices; the others wait for the time of arrival."""
    for k in range(s.length[FREED]):
        task = s.freed[k]
        ready, place = s.row[task, READY], s.place[task]
        # Who comes together is numbered by place: through the heap.
        if ready > now or q.came[0] >= 0:
            s.length[ARRIVALS] = push(q.arrival_time, q.arrival_place, s.length[ARRIVALS], (ready, place))
        else:
            insert(Bitsets(q.low, q.mid, q.high, q.top), device[task], place)
    s.length[FREED] = 0
    while s.length[ARRIVALS] > 0 and q.arrival_time[0] <= now:
        number = q.arrival_place[0]
        task = order[number]
        s.length[ARRIVALS] = drop(q.arrival_time, q.arrival_place, s.length[ARRIVALS])
        if q.came[0] >= 0:
            number = q.came[0]
            q.task[number] = task
            q.came[0] += 1
        insert(Bitsets(q.low, q.mid, q.high, q.top), device[task], number)


def run_tasks(
    g: Prepared,
    device: Ints,
    order: Ints,
    *,
    rule: DeviceRule = "strict",
    send_rank: Ints | None = None,
    state: LinkState | None = None,
) -> tuple[LinkState, int]:
    """Run tasks on their devices, [n]; return the work arrays, and how many tasks ran: all but in a deadlock.

    rule: each device runs its own in `order`, [n], strictly; or, whenever it is idle, of those that are ready the first
    there (listed), or the one that became so first (fifo). send_rank: [p] priorities of payloads; None: links are first
    come, first served. state: arrays as `reset` left them; new ones unless given.
    """
    state = state_for(g, device) if state is None else state
    if rule == "strict" and send_rank is None:
        return state, run_strict(g, state, device, order)
    outbox = outbox_for(g, state, send_rank)
    if rule == "strict":
        return state, run_waiting(g, state, outbox, device, order)
    return state, run_queued(g, state, outbox, queues_for(g, order, fifo=rule == "fifo"), device, order)
