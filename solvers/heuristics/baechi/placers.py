"""Baechi's three placement methods (Jeon et al., "Baechi", SoCC 2020, and `placer/` of its code).

m-TOPO: operators in topological order fill devices. Each device is filled up to a load-balanced cap, the mean bytes a
device plus the largest unit; then the next one is, and none before it again. Groups, co-placement and fusion come
first; a unit is placed with its first operator.

Deviations: the largest unit is added, not the largest operator, as units are placed whole (the cap then always
suffices); no device is filled beyond its own capacity; a unit that neither the current device nor a later one can take
goes where most room is left, as not all devices can run it. What can only be at one location is there from the start,
and counts for its capacity but not for the cap.

m-ETF: earliest task first within memory. ETF (Hwang, Chow, Anger and Lee 1989) starts, of all pairs of a ready operator
and a device, one that can start earliest; m-ETF drops the pairs whose device lacks the memory. As in the released code,
ties go by topological order, then by device, and a unit's memory is taken as a whole when the first of it is placed.
The graph is co-placed and fused first.

Deviations: transfers wait for nothing, as in ETF, where the released code queues those of a device one after another;
memory is the static bytes of the problem, never given back; sources wait for their readers (`ordered`); what can only
be at one location has its memory there from the start.

The order in which m-ETF and m-SCT break ties keeps sources for their readers. Deviation: the source starts every
operator without inputs at once, one device after the other, and units follow their variables. Here a source waits, as
if it read what its guide reads, until its guide could start but for it (`solvers.heuristics.eft_pass`), and so is
offered to the devices at the ticks at which its guide would be.

m-SCT: small communication times. SCT (Hanen and Munier 1995): each operator has at most one favourite child, each child
one favourite parent (`favourites`). An idle device is *awake* for the favourite child of what it ran last, as in the
released code, while the child's predecessors have all finished, it has not started, and no other device could begin it
earlier; it then takes *urgent* operators, those whose inputs are wherever they can run, or else the child. Otherwise it
takes what comes first, as in ETF. m-SCT drops pairs of an operator and a device without the memory. The graph is
co-placed and fused first.

Deviations: those of m-ETF. To the released code an operator is urgent only when every device is idle, too.

The guarantee of SCT (`favourites`) is for other rules, which `waiting_rules` gives with `patient`: a device is awake
from the end of what it ran until the child's input from there could be anywhere, and what could start on several
devices goes to one that is not awake. With a device for each operator, none then starts later than its longest path
allows in which only edges to favourite children cost nothing: by induction its inputs are there by then where its
favourite parent ran, and either that device still waits for it, or it is urgent and another is idle. On models of
neural networks, whose communications are not small, this waits too long: steps were 6 %, 12 % and 23 % longer on an
RNNLM, a NASNet and a Transformer than with the rules of the released code.

Both use one compiled list scheduler, an event loop that starts an operator wherever one can start now. An operator is
offered to a device as soon as all its predecessors have finished, from the tick on at which all its inputs can be
there; transfers take their time and wait for nothing. Whenever a device is idle and operators can start on it, the one
that is first in a given order does; of several such devices the first. The first operator of a unit that starts decides
where the unit is, and takes the memory of all of it; pairs of an operator and a device whose location has no room for
the unit, or is not the unit's, are dropped.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Floats, Ints, ints, offsets, rank_of
from solvers.compiled.dag import adjacency, topological_order
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import inlined, routine, subkernel
from solvers.heuristics.baechi.graph import OperatorGraph, OperatorWeights, fused, weights_of
from solvers.heuristics.devices_of_location import devices_at, elements
from solvers.heuristics.eft_pass import guided
from solvers.heuristics.methods import NoRoomError, Placement
from solvers.problem import Problem
from solvers.result import Options
from solvers.structure.units import Units
from solvers.timing.loop import Prepared

NONE = -1


class ListRules(NamedTuple):
    """Priorities and waiting rules of a run."""

    place: Ints
    """[k] rank of each operator in the order; a permutation, topological."""
    child: Ints
    """[k] favourite child of each operator, NONE for none."""
    wait: Ints
    """[k] ticks that the favourite child's input takes to another location, at most."""
    patient: bool
    """True: a device is awake from the end of its last operator until `wait` later (Hanen and Munier). False:
    while the child's predecessors have all finished and no other device could begin it earlier (Baechi's code)."""


class ListResult(NamedTuple):
    """The result of a run."""

    device: Ints
    """[k] device of each operator, NONE for one that has not started."""
    start: Ints
    finish: Ints
    at: Ints
    """[u] location of each unit, NONE for none."""
    room: Ints
    """[l] bytes left; negative where what can only be there does not fit."""
    waiting: Ints
    """[k] predecessors of each operator that have not finished."""


class ReadyLanes(NamedTuple):
    """For each device, two heaps: who can start later, by time, and who can start now, by place in the order.

    With favourite children, each device has a second lane for what is urgent: can start now wherever it can be.
    """

    later: Ints
    """[lanes, k] tick at which each operator of `later_item` can start."""
    later_item: Ints
    """[lanes, k] operators that can start later."""
    now: Ints
    """[lanes, k] operators that can start now, as places in the order."""
    size: Ints
    """[lanes, 2] entries of both heaps."""


class DeviceClock(NamedTuple):
    """The devices, and the ticks at which something happens on one."""

    time: Ints
    device: Ints
    size: Ints
    """[1] number of events in the heap."""
    busy: Ints
    """[m] the operator that each device runs, NONE when idle."""
    last: Ints
    """[m] the operator that each device ran last."""
    ready: Ints
    """[k, l] with favourite children, else [0, 0]: when the inputs of what has been offered can be at each location."""


class EdgeRows(NamedTuple):
    """Edges by head (in) and by tail (out), as compressed rows."""

    into: Ints
    tail: Ints
    comm: Ints
    out: Ints
    head: Ints


def schedule(g: OperatorGraph, rules: ListRules) -> ListResult:
    """Run until nothing more can start; operators without a device have found no room.

    Units with one location are there from the start. O((k m + e l) log k).
    """
    k, m = g.duration.shape
    favourites = bool((rules.child >= 0).any())
    task = np.empty(k, dtype=np.int64)
    task[rules.place] = np.arange(k)
    pinned, room = np.count_nonzero(g.allowed, axis=1) == 1, np.array(g.capacity)
    at = np.where(pinned, g.allowed.argmax(axis=1), NONE)
    np.subtract.at(room, at[pinned], g.memory[pinned])
    waiting = np.bincount(g.dst, minlength=k).astype(np.int64)
    r = ListResult(np.full(k, NONE, np.int64), np.zeros(k, np.int64), np.zeros(k, np.int64), at, room, waiting)
    lanes = 2 * m if favourites else m
    heaps = [np.empty((lanes, k), dtype=np.int64) for _ in range(3)]
    queue = ReadyLanes(heaps[0], heaps[1], heaps[2], np.zeros((lanes, 2), dtype=np.int64))
    none, events = np.full(m, NONE, dtype=np.int64), np.empty(2 * k + 1, dtype=np.int64)
    ready = np.zeros((k, len(g.capacity)) if favourites else (0, 0), dtype=np.int64)
    clock = DeviceClock(events, events.copy(), np.zeros(1, dtype=np.int64), none, none.copy(), ready)
    by_head, by_tail = np.argsort(g.dst, kind="stable"), np.argsort(g.src, kind="stable")
    into, out = offsets(waiting), offsets(np.bincount(g.src, minlength=k))
    rows = EdgeRows(into, g.src[by_head], g.comm[by_head], out, g.dst[by_tail])
    _run(g, rules, rows, (r, queue, clock), task)
    return r


@routine
def _run(
    g: OperatorGraph, rules: ListRules, rows: EdgeRows, work: tuple[ListResult, ReadyLanes, DeviceClock], task: Ints
) -> None:
    r, queue, clock = work
    busy, size, later = clock.busy, queue.size, queue.later  # each look into a tuple counts a reference
    ready = np.zeros(len(g.capacity), dtype=np.int64)
    for i in task:
        if r.waiting[i] == 0:
            _offer(g, rows, work, (i, ready))
    now = int(np.int64(0))
    while True:
        while clock.size[0] > 0 and clock.time[0] == now:
            d = clock.device[0]
            clock.size[0] = drop(clock.time, clock.device, clock.size[0])
            i = clock.busy[d]
            if i < 0 or r.finish[i] > now:
                continue  # the end of a wait
            clock.busy[d], clock.last[d] = NONE, i
            for edge in range(rows.out[i], rows.out[i + 1]):
                j = rows.head[edge]
                r.waiting[j] -= 1
                if r.waiting[j] == 0:
                    _offer(g, rows, work, (j, ready))
        _admit(queue, clock, rules.place, now)
        while _start(g, rules, work, task, now):
            pass
        # The next tick at which a device may be free or an idle device have more to start.
        now = clock.time[0] if clock.size[0] > 0 else -1
        for lane in range(len(size)):
            if busy[lane % len(busy)] < 0 and size[lane, 0] > 0 and (now < 0 or later[lane, 0] < now):
                now = later[lane, 0]
        if now < 0:
            return


@subkernel
def _offer(
    g: OperatorGraph, rows: EdgeRows, work: tuple[ListResult, ReadyLanes, DeviceClock], what: tuple[int, Ints]
) -> None:
    """Queue an operator whose predecessors have finished at the devices where it may be."""
    r, queue, clock = work
    i, ready = what
    ready[:] = 0
    for edge in range(rows.into[i], rows.into[i + 1]):
        tail = rows.tail[edge]
        here = g.location[r.device[tail]]
        for there in range(len(ready)):
            ticks = r.finish[tail]
            if here != there:
                ticks += rows.comm[edge, g.path_class[here, there]]
            ready[there] = max(ready[there], ticks)
    m, decided, latest = len(g.location), r.at[g.unit[i]], np.int64(0)
    for d in range(m):
        there = g.location[d]
        if _possible(g, r, i, d) and (decided < 0 or decided == there):
            latest = max(latest, ready[there])
    for d in range(m):
        there = g.location[d]
        if not _possible(g, r, i, d):
            continue
        queue.size[d, 0] = push(queue.later[d], queue.later_item[d], queue.size[d, 0], (ready[there], i))
        if len(queue.size) > m:
            lane = m + d
            queue.size[lane, 0] = push(queue.later[lane], queue.later_item[lane], queue.size[lane, 0], (latest, i))
    for there in range(clock.ready.shape[1]):
        clock.ready[i, there] = ready[there]


@inlined
def _possible(g: OperatorGraph, r: ListResult, i: int, d: int) -> bool:
    """Return True if an operator that has not started can run on a device: kind, unit, room."""
    unit, there = g.unit[i], g.location[d]
    if r.device[i] >= 0 or g.duration[i, d] < 0 or not g.allowed[unit, there]:
        return False
    return r.at[unit] == there or (r.at[unit] < 0 and g.memory[unit] <= r.room[there])


@subkernel
def _admit(queue: ReadyLanes, clock: DeviceClock, place: Ints, now: int) -> None:
    m = len(clock.busy)
    for lane in range(len(queue.size)):
        if clock.busy[lane % m] >= 0:
            continue
        while queue.size[lane, 0] > 0 and queue.later[lane, 0] <= now:
            first = place[queue.later_item[lane, 0]]
            queue.size[lane, 0] = drop(queue.later[lane], queue.later_item[lane], queue.size[lane, 0])
            queue.size[lane, 1] = push(queue.now[lane], queue.now[lane], queue.size[lane, 1], (first, first))


@subkernel
def _start(
    g: OperatorGraph, rules: ListRules, work: tuple[ListResult, ReadyLanes, DeviceClock], task: Ints, now: int
) -> bool:
    """Start one operator now; False when none can."""
    r, _, clock = work
    best, at, kept = int(np.int64(-1)), int(np.int64(-1)), False
    for d in range(len(clock.busy)):
        if clock.busy[d] >= 0:
            continue
        first, awake = _candidate(g, rules, work, (task, d), now)
        if first < 0:
            continue
        if best < 0 or first < best or (first == best and rules.patient and kept and not awake):
            best, at, kept = first, d, awake
    if best < 0:
        return False
    i = task[best]
    unit, there = g.unit[i], g.location[at]
    if r.at[unit] < 0:
        r.at[unit] = there
        r.room[there] -= g.memory[unit]
    r.device[i], r.start[i], r.finish[i] = at, now, now + g.duration[i, at]
    clock.busy[at] = i
    clock.size[0] = push(clock.time, clock.device, clock.size[0], (r.finish[i], at))
    if rules.patient and rules.child[i] >= 0:
        clock.size[0] = push(clock.time, clock.device, clock.size[0], (r.finish[i] + rules.wait[i], at))
    return True


@subkernel
def _candidate(
    g: OperatorGraph,
    rules: ListRules,
    work: tuple[ListResult, ReadyLanes, DeviceClock],
    where: tuple[Ints, int],
    now: int,
) -> tuple[int, bool]:
    """The place in the order of what an idle device would start now (-1: nothing), and whether it is awake.

    An awake device takes urgent operators, or else the favourite child of the operator that it ran last.
    """
    r, queue, clock = work
    task, d = where
    last = clock.last[d]
    child = rules.child[last] if last >= 0 else NONE
    awake = child >= 0 and _possible(g, r, child, d)
    if awake and rules.patient:
        awake = now < r.finish[last] + rules.wait[last]
    elif awake:
        awake = r.waiting[child] == 0
        here = max(now, clock.ready[child, g.location[d]])
        other = 0
        while awake and other < len(clock.busy):
            free = r.finish[clock.busy[other]] if clock.busy[other] >= 0 else now
            earlier = max(free, clock.ready[child, g.location[other]]) < here
            awake = not (earlier and _possible(g, r, child, other))
            other += 1
    if not awake:
        return _top(g, queue, r, (task, d, d)), False
    urgent = _top(g, queue, r, (task, len(clock.busy) + d, d))
    if urgent < 0 and r.waiting[child] == 0 and clock.ready[child, g.location[d]] <= now:
        return rules.place[child], True
    return urgent, True


@inlined
def _top(g: OperatorGraph, queue: ReadyLanes, r: ListResult, which: tuple[Ints, int, int]) -> int:
    """The first place in a lane of what can still run on the device; the rest before it is dropped."""
    task, lane, d = which
    while queue.size[lane, 1] > 0:
        first = queue.now[lane, 0]
        if _possible(g, r, task[first], d):
            return first
        queue.size[lane, 1] = drop(queue.now[lane], queue.now[lane], queue.size[lane, 1])
    return -1


def ordered(g: OperatorGraph) -> tuple[OperatorGraph, Ints]:
    """Return (the graph with edges that hold sources back, [k] rank of each operator, sources just before guides).

    O(e + k log k), as a guide has few inputs.
    """
    k = len(g.duration)
    offset, edge = adjacency(k, g.src)
    # Read-only like a problem's arrays, so that `guided` is compiled once.
    prepared = Prepared(
        offset=ints(offset), head=ints(g.dst[edge]), carried=ints(np.full(len(edge), -1)),
        indegree=ints(np.bincount(g.dst, minlength=k)), duration=ints(g.duration), location=ints(g.location),
        transfer=ints(g.comm), path_class=ints(g.path_class), path_links=ints(np.zeros((1, 1, 0), dtype=np.int64)),
        links=0, carries=0,
    )  # fmt: skip
    order, guide = guided(prepared, ints(g.unit), topological_order(k, g.src, g.dst))
    held = guide != np.arange(k)
    source = np.flatnonzero(held)
    into, edge = adjacency(k, g.dst)
    first, count = into[guide[source]], np.diff(into)[guide[source]]
    reader = np.repeat(source, count)
    edge = edge[np.arange(len(reader)) + np.repeat(first - np.cumsum(count) + count, count)]
    real = ~held[g.src[edge]]
    edge, reader = edge[real], reader[real]
    graph = g._replace(
        src=np.concatenate([g.src, g.src[edge]]),
        dst=np.concatenate([g.dst, reader]),
        comm=np.concatenate([g.comm, g.comm[edge]]),
    )
    return graph, rank_of(order)


def place_by_m_topo(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return the placement, without an order. O(n (m + l) + e log e)."""
    f = fused(problem)
    return Placement(device=devices_at(problem, filled(f.graph)[f.graph.unit][f.node]))


def filled(g: OperatorGraph) -> Ints:
    """Return [u] the location of each unit. Raise NoRoomError, with the bytes, where one finds no room."""
    free = np.count_nonzero(g.allowed, axis=1) > 1
    at, room = np.where(free, -1, g.allowed.argmax(axis=1)), g.capacity.copy()
    np.subtract.at(room, at[~free], g.memory[~free])
    if room.min(initial=0) < 0:
        raise NoRoomError(f"{-room.min()} bytes too many at location {room.argmin()} can only be there")
    turn = elements(Units(unit=g.unit, allowed=g.allowed, memory=g.memory))
    cap = int(g.memory[free].sum()) // max(1, len(turn)) + int(g.memory[free].max(initial=0))
    order = topological_order(len(g.unit), g.src, g.dst)
    stuck = _fill(g.unit[order], (g.allowed, g.memory), (turn, cap), at, room)
    if stuck >= 0:
        free_bytes, need = int(room[g.allowed[stuck]].max()), int(g.memory[stuck])
        raise NoRoomError(f"a unit of {need} bytes found {free_bytes} free at most: {need - free_bytes} short")
    return at


@routine
def _fill(order: Ints, units: tuple[Bools, Ints], fill: tuple[Ints, int], at: Ints, room: Ints) -> int:
    """Fill location after location; return the unit that finds no room, -1 for none."""
    (allowed, memory), (turn, cap) = units, fill
    used = np.zeros(len(room), dtype=np.int64)
    current = 0
    for unit in order:
        if at[unit] >= 0:
            continue
        chosen = -1
        for step in range(current, len(turn)):
            there = turn[step]
            if allowed[unit, there] and used[there] + memory[unit] <= cap and memory[unit] <= room[there]:
                chosen = there
                break
            if step == current and allowed[unit, there]:
                current = step + 1
        if chosen < 0:
            for there in turn:
                if allowed[unit, there] and (chosen < 0 or room[there] > room[chosen]):
                    chosen = there
            if memory[unit] > room[chosen]:
                return unit
        at[unit] = chosen
        used[chosen] += memory[unit]
        room[chosen] -= memory[unit]
    return -1


def place_by_m_etf(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return the placement; the source leaves the order to TensorFlow, so none is given. O((n m + e l) log n)."""
    f = fused(problem)
    graph, place = ordered(f.graph)
    none = np.full(len(place), NONE, dtype=np.int64)
    listed = schedule(graph, ListRules(place, none, np.zeros_like(none), patient=False))
    require_room(f.graph, listed)
    return Placement(device=listed.device[f.node])


def require_room(g: OperatorGraph, listed: ListResult) -> None:
    """Raise NoRoomError, with the bytes, unless everything has started in the room there is."""
    over = int(listed.room.min(initial=0))
    if over < 0:
        raise NoRoomError(f"{-over} bytes too many at location {int(listed.room.argmin())} can only be there")
    stuck = np.flatnonzero((listed.device < 0) & (listed.waiting == 0))
    if len(stuck):
        unit = int(g.unit[stuck[np.argmax(g.memory[g.unit[stuck]])]])
        most = int(listed.room[g.allowed[unit]].max(initial=0))
        raise NoRoomError(f"a unit of {g.memory[unit]} bytes found {most} free at most: {g.memory[unit] - most} short")


THRESHOLD = 0.1
"""x_ij below which j is the favourite child of i: `sct_threshold` of Baechi's released code."""
_SHARE = 0.5
"""Share of the given seconds that the linear program may take."""
_PER_SECOND = 400_000_000
"""Squared operators in a second of the quickest large program that was measured; most take much longer."""
_TOLERANCE = 1e-6


def favourites(g: OperatorGraph, options: Options, threshold: float = THRESHOLD) -> Ints:
    """[k] the favourite child of each operator, -1 for none: by the program, or greedily where that takes too long."""
    w, seconds = weights_of(g), _SHARE * options.seconds
    if len(g.duration) ** 2 <= _PER_SECOND * seconds:
        # Not before: it loads the solver.
        from solvers.heuristics.baechi.linear_program import shares

        solution = shares(g, w, seconds, deterministic=options.deterministic)
        if solution is not None:
            return rounded(g, solution[0], threshold)
    return greedy(g, w)


def rounded(g: OperatorGraph, share: Floats, threshold: float) -> Ints:
    """[k] the favourite child of each operator whose x = 1 - `share`, [e], is below a threshold of at most 1/2."""
    chosen = np.flatnonzero(share > 1 - threshold + _TOLERANCE)
    child = np.full(len(g.duration), -1, dtype=np.int64)
    child[g.src[chosen]] = g.dst[chosen]
    return child


def greedy(g: OperatorGraph, w: OperatorWeights) -> Ints:
    """Return [k] the favourite child of each operator when edges are taken by falling communication. O(e log e)."""
    edge = np.flatnonzero(w.open)
    edge = edge[np.argsort(-w.comm[edge], kind="stable")]
    return _greedy(len(w.took), g.src[edge], g.dst[edge])


@routine
def _greedy(count: int, src: Ints, dst: Ints) -> Ints:
    child = np.full(count, -1, dtype=np.int64)
    taken = np.zeros(count, dtype=np.bool_)
    for k in range(len(src)):
        if child[src[k]] < 0 and not taken[dst[k]]:
            child[src[k]] = dst[k]
            taken[dst[k]] = True
    return child


def place_by_m_sct(problem: Problem, options: Options) -> Placement:
    """Return the placement, without an order. The program, then O((n m + e l) log n)."""
    f = fused(problem)
    graph, place = ordered(f.graph)
    listed = schedule(graph, waiting_rules(f.graph, place, favourites(f.graph, options)))
    require_room(f.graph, listed)
    return Placement(device=listed.device[f.node])


def waiting_rules(g: OperatorGraph, place: Ints, child: Ints, *, patient: bool = False) -> ListRules:
    """Return rules with favourite children, [k] or -1; a device waits while the child's input would cross."""
    chosen = child[g.src] == g.dst
    wait = np.zeros(len(child), dtype=np.int64)
    wait[g.src[chosen]] = g.comm[chosen].max(axis=1, initial=0)
    return ListRules(place, child, wait, patient)
