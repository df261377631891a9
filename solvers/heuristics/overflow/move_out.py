"""Passes that move units off the locations that hold too much: ParDNN's heaps (4.1.2), on times that stay fixed.

Bytes over time are segment trees, one a location: adding to an interval and its maximum take O(log). A unit is tried at
another location by what this changes over time.
"""

import heapq
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints
from solvers.compiled.dag import adjacency
from solvers.compiled.kernels import inlined, kernel, routine, spliced, subkernel, subroutine
from solvers.deadlines import Late, never
from solvers.footprint import Footprint
from solvers.heuristics.overflow.buffers import (
    BufferLives,
    FamilyRows,
    Potentials,
    Scratch,
    axis,
    bytes_at,
    credit,
    held_for,
    hold,
    lives_of,
    scratch_for,
    shift,
    take_back,
)
from solvers.problem import Problem, mean_transfers
from solvers.schedule import Schedule
from solvers.structure.units import Units, fastest_at


class ByteTrees(NamedTuple):
    """One tree a location over the positions 0 .. width - 1; width is a power of two. Nothing is pushed down."""

    top: Ints
    """[l, 2 width] maximum below each node, what was added to the node itself included, to its ancestors not."""
    added: Ints
    """[l, width] what was added to all that is below each inner node."""


def levels_of(values: Ints) -> ByteTrees:
    """Return the trees of `values`, [l, k], padded with what no maximum can be: -1. O(l k)."""
    locations, positions = values.shape
    width = 1 << max(positions - 1, 0).bit_length()
    top = np.full((locations, 2 * width), -1, dtype=np.int64)
    top[:, width : width + positions] = values
    below = width
    while below > 1:
        half = below >> 1
        top[:, half:below] = np.maximum(top[:, below : 2 * below : 2], top[:, below + 1 : 2 * below : 2])
        below = half
    return ByteTrees(top, np.zeros((locations, width), dtype=np.int64))


@kernel
def add(t: ByteTrees, location: int, interval: tuple[int, int], change: int) -> None:
    """Add to the positions low <= k < high of `interval`."""
    low, high = interval
    if low >= high or change == 0:
        return
    top, added, width = t.top[location], t.added[location], t.added.shape[1]
    a, b = low + width, high + width
    while a < b:
        if a & 1:
            top[a] += change
            if a < width:
                added[a] += change
            a += 1
        if b & 1:
            b -= 1
            top[b] += change
            if b < width:
                added[b] += change
        a >>= 1
        b >>= 1
    _rebuild(top, added, (low + width) >> 1)
    _rebuild(top, added, (high - 1 + width) >> 1)


@subkernel
def _rebuild(top: Ints, added: Ints, node: int) -> None:
    while node >= 1:
        top[node] = max(top[2 * node], top[2 * node + 1]) + added[node]
        node >>= 1


@kernel
def highest(t: ByteTrees, location: int, interval: tuple[int, int]) -> int:
    """Return the maximum over low <= k < high of `interval`; -1 when that is empty."""
    low, high = interval
    if low >= high:
        return -1
    top, added, width = t.top[location], t.added[location], t.added.shape[1]
    a, b = low + width, high - 1 + width
    left, right = top[a], top[b]
    while (a >> 1) != (b >> 1) and a != b:
        if not a & 1:
            left = max(left, top[a ^ 1])
        if b & 1:
            right = max(right, top[b ^ 1])
        a >>= 1
        b >>= 1
        left += added[a]
        right += added[b]
    found = max(left, right)
    a >>= 1
    while a >= 1:
        found += added[a]
        a >>= 1
    return found


@kernel
def peak_at(t: ByteTrees, location: int) -> int:
    """Return the first position of the maximum over all positions."""
    top, width = t.top[location], t.added.shape[1]
    node = 1
    while node < width:
        node = 2 * node if top[2 * node] >= top[2 * node + 1] else 2 * node + 1
    return node - width


class UnitTies(NamedTuple):
    """Families, bytes and costs that a move of a unit changes."""

    task: tuple[Ints, Ints]
    """(offset [u + 1], tasks)"""
    family: tuple[Ints, Ints]
    """(offset [u + 1], families of which it makes or reads something)"""
    neighbour: tuple[Ints, Ints, Ints]
    """(offset [u + 1], units that it exchanges payloads with, ticks): one entry an edge and direction."""
    allowed: Bools
    """[u, l] whether a unit can be at a location."""
    ticks: Ints
    """[u, l] ticks of its tasks at each location."""
    static: Ints
    """[u] bytes that a unit holds throughout."""
    work: Ints
    """[u] number of steps, about, that one `try_at` takes."""


class Trial(NamedTuple):
    """Work arrays of `try_at`."""

    old: FamilyRows
    new: FamilyRows
    segment: Ints
    """[s, 4] location, first position, first one after, and bytes of each change."""
    work: Scratch


def trial_for(v: BufferLives, ties: UnitTies, at: Ints, locations: int) -> Trial:
    """Return room for the largest unit; each is `at` its location, [u]."""
    # The rows that the families of one unit have at most.
    total = np.concatenate([[0], np.cumsum(np.minimum(np.diff(v.read), locations))])[v.bundle]
    of_family, (offset, families) = np.diff(total[v.family] + v.family), ties.family
    total = np.concatenate([[0], np.cumsum(of_family[families])])
    rows, tasks = int(np.diff(total[offset]).max(initial=0)), int(np.diff(ties.task[0]).max(initial=0))
    segment = np.empty((4 * rows + 2 * tasks + 2, 4), dtype=np.int64)
    return Trial(held_for(rows), held_for(rows), segment, scratch_for(v, at, locations))


@subkernel
def try_at(
    v: BufferLives, ties: UnitTies, now: tuple[Ints, Ints], t: ByteTrees, trial: Trial, what: tuple[int, int]
) -> bool:
    """Move a unit, `what` = (unit, location), in `now` = (location of each unit, limits), and in the levels.

    Where that would raise the level of another location than its own above its limit, at any position at which it
    raises it at all, nothing is moved, and False returned.
    """
    at, limit = now
    unit, there = what
    place = at[unit]
    old = _held(v, ties, at, trial.work, (trial.old, unit))
    shift(v, at, trial.work.fronts, unit, there)
    new = _held(v, ties, at, trial.work, (trial.new, unit))
    count = _differences(trial, old, new)
    s, whole, (offset, tasks) = trial.segment, (0, len(v.ticks)), ties.task
    count = _note(s, count, place, whole, -ties.static[unit])
    count = _note(s, count, there, whole, ties.static[unit])
    for k in range(offset[unit], offset[unit + 1]):
        task = tasks[k]
        interval = (v.begin[task], v.gone[task])
        count = _note(s, count, place, interval, -v.scratch[task])
        count = _note(s, count, there, interval, v.scratch[task])
    # All changes before any look: where a unit's bytes only shift, rise and fall cancel.
    for k in range(count):
        add(t, s[k, 0], (s[k, 1], s[k, 2]), s[k, 3])
    fits = True
    for k in range(count):
        # Its own location may stay above the limit: to be lower is all that a move off it has to achieve.
        if fits and s[k, 3] > 0 and s[k, 0] != place:
            fits = highest(t, s[k, 0], (s[k, 1], s[k, 2])) <= limit[s[k, 0]]
    if not fits:
        take_back(v, at, trial.work.fronts, unit, place)
        for k in range(count):
            add(t, s[k, 0], (s[k, 1], s[k, 2]), -s[k, 3])
    return fits


@subkernel
def _held(v: BufferLives, ties: UnitTies, at: Ints, w: Scratch, of: tuple[FamilyRows, int]) -> int:
    """List the rows of the families that a unit touches; of = (rows to fill, unit); return how many."""
    rows, unit = of
    offset, family = ties.family
    count = int(np.int64(0))
    for k in range(offset[unit], offset[unit + 1]):
        count = hold(v, at, family[k], w, (rows, count))
    return count


@spliced
def _differences(trial: Trial, olds: int, news: int) -> int:
    """Segments that turn the old rows into the new ones. Both come family by family, each by rising key."""
    old, new, count = trial.old, trial.new, 0
    i, j = 0, 0
    while i < olds or j < news:
        if j == news or (i < olds and old.key[i] < new.key[j]):
            count = _note(trial.segment, count, old.location[i], (old.low[i], old.high[i]), -old.size[i])
            i += 1
        elif i == olds or new.key[j] < old.key[i]:
            count = _note(trial.segment, count, new.location[j], (new.low[j], new.high[j]), new.size[j])
            j += 1
        else:
            here, size = old.location[i], old.size[i]
            count = _shifted(trial.segment, count, here, (old.low[i], new.low[j]), -size)
            count = _shifted(trial.segment, count, here, (old.high[i], new.high[j]), size)
            i, j = i + 1, j + 1
    return count


@inlined
def _note(segment: Ints, count: int, location: int, interval: tuple[int, int], size: int) -> int:
    low, high = interval
    if low >= high or size == 0:
        return count
    segment[count, 0], segment[count, 1], segment[count, 2], segment[count, 3] = location, low, high, size
    return count + 1


@inlined
def _shifted(segment: Ints, count: int, location: int, ends: tuple[int, int], size: int) -> int:
    """An end that moves from `ends[0]` to `ends[1]`: `size` more bytes in between where that is later."""
    was, now = ends
    if now > was:
        return _note(segment, count, location, (was, now), size)
    return _note(segment, count, location, (now, was), -size)


class RepairPass(NamedTuple):
    """State that changes while units move."""

    at: Ints
    """[u] location of each unit."""
    cost: Ints
    """[u] move_cost of each unit, equation (4.5)."""
    load: Ints
    """[l] ticks of the units at each location."""
    open: Bools
    """[u] whether a unit may be moved: not in this pass yet, nor refused by all locations since this one is in turn."""
    moved: Bools
    """[u] whether a unit was moved in this pass and so is not moved again."""
    potential: Potentials
    attraction: Ints
    """[l] ticks of a unit's exchange with each location; work array."""
    limit: Ints
    """[l] bytes that each location may hold."""
    left: Ints
    """[1] steps left until it is time to look at the clock."""
    paused: Bools
    """[1] whether an instant was left because the steps had run out."""


class _Heaps(NamedTuple):
    """Entries are never removed but when they come up: those that no longer hold are skipped."""

    ratio: list[tuple[float, int]]
    """(cost / potential, unit)"""
    cost: list[tuple[int, int]]
    """(cost, unit) of those whose potential alone covers the overflow."""
    waiting: list[tuple[int, int]]
    """(-potential, unit) of those that may cover what is left of it later."""


@routine
def relieve_location(v: BufferLives, ties: UnitTies, p: RepairPass, t: ByteTrees, trial: Trial, place: int) -> bool:
    """Move units off a location until its peak is within its limit, or nothing helps; True: not done yet, call again.

    Position by position, the one of the highest level first. The steps of a call are limited to those `left`, so that
    its caller can look at the clock, and Python at its signals.
    """
    while p.left[0] > 0:
        now = peak_at(t, place)
        over = highest(t, place, (now, now + 1)) - p.limit[place]
        if over > 0:
            # First units that free bytes there by themselves; then those that are the last of several to keep some.
            for last in (False, True):
                p.potential.last[0] = last
                over = _relieve_by(v, ties, p, t, trial, (place, now))
                if over <= 0 or p.paused[0]:
                    break
            if over <= 0:
                continue
            return bool(p.paused[0])
        return False
    return True


@spliced
def _relieve_by(
    v: BufferLives, ties: UnitTies, p: RepairPass, t: ByteTrees, trial: Trial, where: tuple[int, int]
) -> int:
    """Move units until a location fits at one position, with one way to count potentials; the bytes it still lacks."""
    place, now = where
    potentials(v, ties, p.at, trial.work, (place, now), p.potential)
    p.left[0] -= len(v.reader) + len(v.unit) + len(p.at)
    p.paused[0] = False
    # Lists of nothing, for numba to see what will be in them.
    heaps = _Heaps([(0.0, 0) for _ in range(0)], [(0, 0) for _ in range(0)], [(0, 0) for _ in range(0)])
    for unit in range(len(p.at)):
        if p.potential.bytes[unit] > 0:
            _enter(p, heaps, unit, place)
    while True:
        over = highest(t, place, (now, now + 1)) - p.limit[place]
        if over <= 0:
            return over
        unit = _select(p, heaps, place, over)
        if unit < 0:
            return over
        if _move(v, ties, p, t, trial, (unit, now)):
            for k in range(p.potential.length[0]):
                p.potential.known[p.potential.changed[k]] = False
                _enter(p, heaps, p.potential.changed[k], place)
            p.potential.length[0] = 0
        else:
            p.open[unit] = False
        p.paused[0] = p.left[0] <= 0
        if p.paused[0]:
            return over


@kernel
def potentials(v: BufferLives, ties: UnitTies, at: Ints, w: Scratch, where: tuple[int, int], into: Potentials) -> None:
    """M_pot of every unit at a location and position, `where`: with what is static and what tasks need as they run."""
    place, now = where
    into.bytes[:] = 0
    more = int(np.int64(1))
    for family in range(len(v.family) - 1):
        root = v.family[family + 1] - 1
        if v.begin[v.maker[root]] <= now < v.over[family]:
            credit(v, at, (family, place, now), w, into, more)
    for task in range(len(v.unit)):
        unit = v.unit[task]
        if at[unit] == place and v.begin[task] <= now < v.gone[task]:
            into.bytes[unit] += v.scratch[task]
    for unit in range(len(at)):
        if at[unit] == place:
            into.bytes[unit] += ties.static[unit]
    into.known[:] = False
    into.length[0] = 0


@subroutine
def _enter(p: RepairPass, heaps: _Heaps, unit: int, place: int) -> None:
    if p.open[unit] and p.at[unit] == place and p.potential.bytes[unit] > 0:
        heapq.heappush(heaps.ratio, (p.cost[unit] / p.potential.bytes[unit], unit))
        heapq.heappush(heaps.waiting, (-p.potential.bytes[unit], unit))


@subroutine
def _select(p: RepairPass, heaps: _Heaps, place: int, over: int) -> int:
    """The cheaper of the unit of least ratio and of the cheapest that covers the overflow alone; -1 when none is left.

    The other stays in its heap, and so does the one chosen: it is not open when it comes up again.
    """
    while heaps.waiting and -heaps.waiting[0][0] >= over:
        _, unit = heapq.heappop(heaps.waiting)
        heapq.heappush(heaps.cost, (p.cost[unit], unit))
    while heaps.ratio:
        ratio, unit = heaps.ratio[0]
        if _movable(p, unit, place) and ratio == p.cost[unit] / p.potential.bytes[unit]:
            break
        heapq.heappop(heaps.ratio)
    while heaps.cost:
        cost, unit = heaps.cost[0]
        if _movable(p, unit, place) and cost == p.cost[unit] and p.potential.bytes[unit] >= over:
            break
        heapq.heappop(heaps.cost)
    chosen = heaps.ratio[0][1] if heaps.ratio else -1
    if heaps.cost and heaps.cost[0][0] < p.cost[chosen]:
        chosen = heaps.cost[0][1]
    return chosen


@inlined
def _movable(p: RepairPass, unit: int, place: int) -> bool:
    return p.open[unit] and p.at[unit] == place and p.potential.bytes[unit] > 0


@spliced
def _move(v: BufferLives, ties: UnitTies, p: RepairPass, t: ByteTrees, trial: Trial, what: tuple[int, int]) -> bool:
    """Move a unit, `what` = (unit, position), to where it costs least of where it fits; False where it fits nowhere.

    A location's cost: the unit's ticks there and those of its exchange with all others; ties: the least loaded.
    """
    unit, now = what
    place = p.at[unit]
    offset, neighbour, ticks = ties.neighbour
    p.attraction[:] = 0
    for k in range(offset[unit], offset[unit + 1]):
        p.attraction[p.at[neighbour[k]]] += ticks[k]
    load, refused = p.load, ~ties.allowed[unit]
    refused[place] = True
    while True:
        cost, there = ties.ticks[unit] - p.attraction, int(np.int64(-1))
        for k in range(len(cost)):
            if not refused[k] and (there < 0 or (cost[k], load[k]) < (cost[there], load[there])):
                there = k
        if there < 0:
            return False
        p.left[0] -= ties.work[unit]
        if try_at(v, ties, (p.at, p.limit), t, trial, (unit, there)):
            break
        refused[there] = True
    _account(v, ties, p, trial.work, (unit, place, now))
    return True


@subkernel
def _account(v: BufferLives, ties: UnitTies, p: RepairPass, w: Scratch, what: tuple[int, int, int]) -> None:
    """Bring potentials, costs and loads up to date after a move, `what` = (unit, where it was, position)."""
    unit, place, now = what
    there = p.at[unit]
    less, more = int(np.int64(-1)), int(np.int64(1))
    offset, family = ties.family
    take_back(v, p.at, w.fronts, unit, place)
    for k in range(offset[unit], offset[unit + 1]):
        credit(v, p.at, (family[k], place, now), w, p.potential, less)
    shift(v, p.at, w.fronts, unit, there)
    for k in range(offset[unit], offset[unit + 1]):
        credit(v, p.at, (family[k], place, now), w, p.potential, more)
    p.moved[unit], p.open[unit] = True, False
    p.load[place] -= ties.ticks[unit, place]
    p.load[there] += ties.ticks[unit, there]
    offset, neighbour, ticks = ties.neighbour
    for k in range(offset[unit], offset[unit + 1]):
        other = neighbour[k]
        if p.at[other] == there:
            p.cost[other] += ticks[k]
        elif p.at[other] == place:
            p.cost[other] -= ticks[k]
            if not p.potential.known[other]:
                p.potential.known[other] = True
                p.potential.changed[p.potential.length[0]] = other
                p.potential.length[0] += 1


_CHUNK = 3_000_000
"""Steps between two looks at the clock, about: a fraction of a second."""
_LISTS = 4
"""But at least those in which potentials can be listed so many times, as they are anew after each look."""
_NEGLIGIBLE = 0.001
"""A share of what has to leave, and of the largest capacity: the smallest buffers that make up no more than this do not
count for moves. In a training step these are half of all buffers, and the ones with the most readers."""
_STEPS = 20
"""Cost of adding to an interval of a tree, in steps of a walk."""


def relieved(
    problem: Problem, footprint: Footprint, schedule: Schedule, units: Units, limit: Ints, *, late: Late = never
) -> tuple[Ints, int]:
    """Return [u] location of each unit after a pass, and the number of units that moved.

    What exceeds its capacity is brought down to its `limit`, [l], by moves that bring nothing else above its own, the
    fullest location first; or as far as that goes, or as it is once it is `late`.
    """
    levels = bytes_at(problem, footprint, schedule, axis(schedule))
    over = levels.max(axis=1) - problem.capacity
    lacking = (levels.max(axis=1) - limit)[over > 0].min(initial=problem.capacity.max(initial=0))
    lives = lives_of(problem, footprint, schedule, units.unit, int(lacking * _NEGLIGIBLE))
    ties = ties_of(problem, footprint, units, lives)
    state = _pass_of(problem, units, ties, schedule)
    state.limit[:] = limit
    trees, trial = levels_of(levels), trial_for(lives, ties, state.at, problem.locations)
    for place in np.argsort(-over, kind="stable")[: np.count_nonzero(over > 0)].tolist():
        state.open[:] = ~state.moved
        more = True
        while more and not late():
            state.left[0] = max(_CHUNK, _LISTS * (len(lives.reader) + len(lives.unit) + len(state.at)))
            more = relieve_location(lives, ties, state, trees, trial, place)
    return ints(state.at), int(np.count_nonzero(state.moved))


def move_cost(problem: Problem, units: Units, location: Ints) -> Ints:
    """Return [u] equation (4.5): the ticks of a unit where it is, and of its edges to other units at the same location.

    location: [u]. An edge counts with its payload's mean ticks over all pairs of locations.
    """
    offset, neighbour, ticks = _neighbours(problem, units)
    unit = np.repeat(np.arange(len(location)), np.diff(offset))
    cost = _ticks(problem, units)[np.arange(len(location)), location]
    near = location[unit] == location[neighbour]
    np.add.at(cost, unit[near], ticks[near])
    return ints(cost)


def ties_of(problem: Problem, footprint: Footprint, units: Units, lives: BufferLives) -> UnitTies:
    """Return the families of `lives`, static bytes and costs that each unit touches."""
    count = len(units.memory)
    static = np.zeros(count, dtype=np.int64)
    np.add.at(static, units.unit, footprint.static)
    families = len(lives.family) - 1
    of_buffer = np.repeat(np.arange(families), np.diff(lives.family))
    of_bundle = np.repeat(of_buffer, np.diff(lives.bundle))
    of_read = np.repeat(of_bundle, np.diff(lives.read))
    task = np.concatenate([lives.maker, lives.reader])
    pair = np.unique(lives.unit[task] * max(families, 1) + np.concatenate([of_buffer, of_read]))
    offset = np.searchsorted(pair, np.arange(count + 1) * max(families, 1)).astype(np.int64)
    family = pair % max(families, 1)
    # [u] steps of a trial: what is walked of a unit's families, each row changed in trees.
    steps = _STEPS + lives.walk - lives.read[:-1] + problem.locations * (lives.wide >= 0)
    steps = np.append(0, np.cumsum(steps))[lives.bundle]
    steps = np.diff((steps + _STEPS * np.arange(len(steps)))[lives.family])
    return UnitTies(
        task=adjacency(count, units.unit), family=(offset, family), neighbour=_neighbours(problem, units),
        allowed=units.allowed, ticks=_ticks(problem, units), static=static,
        work=ints(_STEPS + np.diff(np.append(0, np.cumsum(steps[family]))[offset])),
    )  # fmt: skip


def _neighbours(problem: Problem, units: Units) -> tuple[Ints, Ints, Ints]:
    edge = np.flatnonzero((problem.payload >= 0) & (units.unit[problem.src] != units.unit[problem.dst]))
    tail, head = units.unit[problem.src[edge]], units.unit[problem.dst[edge]]
    ticks = mean_transfers(problem)[problem.payload[edge]]
    offset, by = adjacency(len(units.memory), np.concatenate([tail, head]))
    return offset, np.concatenate([head, tail])[by], np.concatenate([ticks, ticks])[by]


def _ticks(problem: Problem, units: Units) -> Ints:
    """[u, l] ticks of a unit's tasks at each location where it is allowed, 0 elsewhere."""
    ticks = np.zeros((len(units.memory), problem.locations), dtype=np.int64)
    np.add.at(ticks, units.unit, fastest_at(problem))
    return np.where(units.allowed, ticks, 0)


def location_of(problem: Problem, units: Units, device: Ints) -> Ints:
    """Return [u] where a placement has each unit."""
    at = np.zeros(len(units.memory), dtype=np.int64)
    at[units.unit] = problem.location[device]
    return at


def _pass_of(problem: Problem, units: Units, ties: UnitTies, schedule: Schedule) -> RepairPass:
    at, count = location_of(problem, units, schedule.device), len(units.memory)
    load = np.zeros(problem.locations, dtype=np.int64)
    np.add.at(load, at, ties.ticks[np.arange(count), at])
    return RepairPass(
        at=at,
        cost=np.array(move_cost(problem, units, at)),
        load=load,
        open=np.zeros(count, dtype=np.bool_),
        moved=np.zeros(count, dtype=np.bool_),
        potential=Potentials(
            np.zeros(count, dtype=np.int64),
            np.empty(count, dtype=np.int64),
            np.zeros(count, dtype=np.bool_),
            np.zeros(1, dtype=np.int64),
            np.zeros(1, dtype=np.bool_),
        ),
        attraction=np.zeros(problem.locations, dtype=np.int64),
        limit=np.array(problem.capacity),
        left=np.zeros(1, dtype=np.int64),
        paused=np.zeros(1, dtype=np.bool_),
    )
