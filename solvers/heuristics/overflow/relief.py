"""Placements repaired until every location's peak fits (ParDNN, Qararyah et al. 2020, section 4.1.2, step 2).

As there: memory over time from a schedule (equation 4.3); the overflow as a min-knapsack over the memory potentials
M_pot (Table 4.2), whose constraint (4.4) must read >= O, not <= O as printed (nothing moved would be optimal); the
least ratio of move_cost (4.5) to M_pot, or the cheapest unit that covers the overflow alone if that is cheaper; only
to where there is room; no unit twice; 10 % of the memory spared (section 5.1).

Deviations. Units (colocation groups: there only variables and what refers to them) move whole, and only to where they
may be. Static and scratch bytes, received copies and bytes under several names count. The worst instant is relieved
first, not the last one, and room is asked for over a unit's whole life, in O(log) by a segment tree a location; the
source recalculates everything after each move, O(V^2), for want of one. Among the locations with room, which the
source leaves open, a unit goes to where it communicates least. The spared share is for planning: peaks that fit the
capacity itself are accepted, and the share shrinks where it stands in the way. A new placement is timed anew, which
moves its peaks, so passes repeat. Where that fails, it is tried with an order that frees early (`frugal`), from what is
static packed anew, and from all spread out by bytes; in small problems then with one or two moves, each judged.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints, rank_of
from solvers.compiled.dag import adjacency, topological_order
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import routine, subroutine
from solvers.deadlines import Late, after, never
from solvers.footprint import Footprint
from solvers.heuristics.clusters.linear_clustering import glb
from solvers.heuristics.devices_of_location import devices_at
from solvers.heuristics.list_solver import packings
from solvers.heuristics.overflow.move_out import location_of, relieved
from solvers.memory.usage import fits, roots, usage
from solvers.problem import Problem
from solvers.result import ANSWERED, FAILED, Limit, Options, Result, Status
from solvers.schedule import Schedule
from solvers.structure.units import units_of
from solvers.timing.replay import bottom_levels, prepare, replay

# An order that frees early: what releases more bytes than it makes runs as soon as it can.


class _PileReads(NamedTuple):
    """Reads by task of piles: the bytes of a buffer (under all its names) at one location."""

    task: tuple[Ints, Ints]
    """(offset [n + 1], pile of each read)"""
    size: Ints
    """[piles] bytes of each pile."""


class _OrderingQueue(NamedTuple):
    """The state of one ordering; tasks are queued by their place, those that do not free behind all that do."""

    place: Ints
    """[n] place of each task by falling bottom level."""
    made: Ints
    """[n] bytes that each task makes."""
    waiting: Ints
    """[n] edges that enter each task from tasks that are not done."""
    left: Ints
    """[piles] reads of each pile that are not done."""
    rest: Ints
    """[piles] sum of the tasks of these reads: the task itself where one is left."""
    freed: Ints
    """[n] bytes of the piles of which each task's read is the last one left."""
    early: Bools
    """[n] whether a task is queued as one that frees."""
    done: Bools
    key: Ints
    """[2 n] a heap: each task enters when it is ready, and perhaps again when it begins to free."""
    item: Ints
    length: Ints
    """[1] number of entries of the heap."""


def frugal_order(problem: Problem, footprint: Footprint, device: Ints) -> Ints:
    """Return [n] tasks in a topological order that keeps little alive on this placement. O((n + e + r) log n).

    Of the tasks that are ready, those that free at least what they make come first; within each kind, by falling
    bottom level. A training step's weight gradients have low levels: listed by level alone they wait, and the
    activations that they read wait with them.
    """
    n = problem.tasks
    place = rank_of(np.argsort(-bottom_levels(problem, device=device), kind="stable"))
    made, own = np.zeros(n, dtype=np.int64), footprint.passes < 0
    np.add.at(made, footprint.maker[own], footprint.size[own])
    offset, edge = adjacency(n, problem.src)
    parent, passed = np.arange(len(footprint.size)), np.flatnonzero(footprint.passes >= 0)
    parent[passed] = footprint.read_buffer[footprint.passes[passed]]
    root = roots(parent)[footprint.read_buffer]
    piles, pile = np.unique(root * problem.locations + problem.location[device][footprint.read_by], return_inverse=True)
    by_task, reads = adjacency(problem.tasks, footprint.read_by)
    uses = _PileReads((by_task, pile[reads]), footprint.size[piles // problem.locations])
    left, rest = np.bincount(uses.task[1], minlength=len(uses.size)), np.zeros(len(uses.size), dtype=np.int64)
    np.add.at(rest, uses.task[1], np.repeat(np.arange(n), np.diff(uses.task[0])))
    freed, single = np.zeros(n, dtype=np.int64), left == 1
    np.add.at(freed, rest[single], uses.size[single])
    queue = _OrderingQueue(
        place=place, made=made, waiting=np.bincount(problem.dst, minlength=n).astype(np.int64), left=left, rest=rest,
        freed=freed, early=np.zeros(n, dtype=np.bool_), done=np.zeros(n, dtype=np.bool_),
        key=np.empty(2 * n, dtype=np.int64), item=np.empty(2 * n, dtype=np.int64), length=np.zeros(1, dtype=np.int64),
    )  # fmt: skip
    return _order(offset, problem.dst[edge], uses, queue)


@routine
def _order(offset: Ints, head: Ints, uses: _PileReads, q: _OrderingQueue) -> Ints:
    n = len(q.place)
    # Arrays are taken out of their tuples before the loop: each look into a tuple counts a reference.
    (first, piles), size, left, rest, freed = uses.task, uses.size, q.left, q.rest, q.freed
    place, waiting, done, early = q.place, q.waiting, q.done, q.early
    task_at = np.empty(n, dtype=np.int64)
    task_at[place] = np.arange(n)
    order = np.empty(n, dtype=np.int64)
    count = 0
    for task in range(n):
        if waiting[task] == 0:
            _enter(q, task)
    while q.length[0] > 0:
        task = task_at[q.item[0]]
        q.length[0] = drop(q.key, q.item, q.length[0])
        if done[task]:
            continue
        done[task] = True
        order[count] = task
        count += 1
        for k in range(first[task], first[task + 1]):
            # The last read that is left of a pile, if one is, then frees it.
            pile = piles[k]
            left[pile] -= 1
            rest[pile] -= task
            if left[pile] == 1:
                freed[rest[pile]] += size[pile]
        for k in range(offset[task], offset[task + 1]):
            waiting[head[k]] -= 1
            if waiting[head[k]] == 0:
                _enter(q, head[k])
        for k in range(first[task], first[task + 1]):
            # A task that is ready is queued again once it has become one that frees.
            last = rest[piles[k]]
            ready = left[piles[k]] == 1 and waiting[last] == 0 and not done[last]
            if ready and not early[last] and freed[last] >= q.made[last]:
                early[last] = True
                q.length[0] = push(q.key, q.item, q.length[0], (place[last], place[last]))
    return order


@subroutine
def _enter(q: _OrderingQueue, task: int) -> None:
    """Queue a task that is ready: as one that frees, if it is the last to read at least as many bytes as it makes."""
    q.early[task] = q.freed[task] >= q.made[task]
    key = q.place[task] if q.early[task] else q.place[task] + len(q.place)
    q.length[0] = push(q.key, q.item, q.length[0], (key, q.place[task]))


_PASSES = 12
"""Passes from one start at most; few are needed, or many do not help."""
_PATIENCE = 4
"""Passes in a row that may find nothing better: enough for the share to spare to come down to none."""
_WORK = 20_000
"""Tasks and edges of the schedules that judge one or two moves, in all."""
HEADROOM = 0.1
"""The share of each capacity that planning spares at first (section 5.1)."""
_SPARED = 0.03
"""A share to spare that is less than this counts as none."""

Timing = Callable[[Ints], Schedule]
"""A schedule of a placement, [n] device of each task."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relief:
    """A placement with its schedule, and whether it fits."""

    device: Ints
    """[n] device of each task."""
    rank: Ints | None
    """[n] the order in which each device runs its tasks strictly; None where it is left to what made the schedule."""
    schedule: Schedule
    peak: Ints
    """[l] bytes at most at any tick of the schedule."""
    short: Ints
    """[l] bytes by which the peak exceeds the capacity; 0 where it fits."""
    moved: int
    """Units that are elsewhere than they were."""

    @property
    def fits(self) -> bool:
        """True if every location can hold its peak."""
        return not self.short.any()

    @property
    def shortfall(self) -> str:
        """For people: the bytes that are lacking, worst location first; empty where it fits."""
        worst = [place for place in np.argsort(-self.short, kind="stable").tolist() if self.short[place] > 0]
        return ", ".join(f"{self.short[place]} bytes too many at location {place}" for place in worst)


def relieve(
    problem: Problem,
    footprint: Footprint,
    device: Ints,
    *,
    order: Ints | Timing | None = None,
    late: Late = never,
    headroom: float = HEADROOM,
) -> Relief:
    """Move units of a placement, [n] devices, until all peaks fit; the best found, which says what it lacks.

    The order is a rank, [n], which is followed strictly; what a function makes of a placement (a framework's); or, if
    None, a list by bottom level. Unless a function has the say, another may be found to need less, and is returned.
    A task holds at least `problem.memory`.
    `headroom` is the share of each capacity, 0 to below 1, that is spared at first.
    Judged by `footprint.usage` of the schedule that is returned; of those that fit, the one of least makespan. What
    fits as it is comes back as it is. A pass takes O(log) for each trial of a unit at a location and for each of its
    buffers, and O(n + e) for each instant that it relieves; there are a few dozen passes at most. `late` is asked
    between them and within; once it is, the best found so far comes back, after a schedule and a fraction of a second.
    """
    held = replace(footprint, static=np.maximum(footprint.static, problem.memory))
    search = _RepairSearch(problem, held, ints(device), late)
    orders = _orders(problem, held, order)
    if search.judge(search.device, orders[0]).fits:
        return search.best
    for start in _starts(problem, held, search):
        for each in orders:
            if search.late():
                return search.best
            if search.best.fits:
                search.judge(start, each)
            else:
                search.repair(start, each, headroom)
        if search.best.fits:
            return search.best
    for each in orders:
        search.nudge(each)
    return search.best


_Order = Callable[[Ints], tuple[Schedule, Ints | None]]
"""The schedule of a placement, and the rank that makes it, if one does."""


def _orders(problem: Problem, footprint: Footprint, order: Ints | Timing | None) -> list[_Order]:
    """The order asked for, and the frugal one unless the order is not ours to choose."""
    prepared = prepare(problem)

    def given(device: Ints) -> tuple[Schedule, Ints | None]:
        if callable(order):
            return order(device), None
        if order is not None:
            return replay(problem, device, order, prepared=prepared), order
        by_level = rank_of(np.argsort(-bottom_levels(problem, device=device), kind="stable"))
        return replay(problem, device, by_level, strict=False, prepared=prepared), None

    def frugal(device: Ints) -> tuple[Schedule, Ints | None]:
        early = rank_of(frugal_order(problem, footprint, device))
        return replay(problem, device, early, prepared=prepared), early

    return [given] if callable(order) else [given, frugal]


class _RepairSearch:
    """The best placement found so far."""

    def __init__(self, problem: Problem, footprint: Footprint, device: Ints, late: Late) -> None:
        self.problem, self.footprint, self.device = problem, footprint, device
        self.units, self.late = units_of(problem), late
        self.best: Relief

    def judge(self, device: Ints, order: _Order) -> Relief:
        """Return a placement as it is, which is kept if it is the best."""
        schedule, rank = order(device)
        peak = usage(self.problem, self.footprint, schedule).peak
        before, after = (location_of(self.problem, self.units, d) for d in (self.device, device))
        found = Relief(
            device=device, rank=rank, schedule=schedule, peak=peak,
            short=ints(np.maximum(peak - self.problem.capacity, 0)), moved=int(np.count_nonzero(before != after)),
        )  # fmt: skip
        if not hasattr(self, "best") or _merit(found) < _merit(self.best):
            self.best = found
        return found

    def repair(self, device: Ints, order: _Order, headroom: float) -> None:
        """Pass after pass until all fits, or nothing moves although nothing is spared."""
        found, capacity = self.judge(device, order), self.problem.capacity
        least, stale = _merit(found), 0
        for _ in range(_PASSES):
            if found.fits or stale == _PATIENCE or self.late():
                return
            limit = capacity - np.floor(capacity * headroom).astype(np.int64)
            at, moved = relieved(self.problem, self.footprint, found.schedule, self.units, limit, late=self.late)
            if moved:
                found = self.judge(_moved(self.problem, found.device, at[self.units.unit]), order)
            elif headroom == 0:
                return
            stale = stale + 1 if _merit(found) >= least else 0
            if stale:
                headroom = headroom / 2 if headroom / 2 >= _SPARED else 0.0
            least = min(least, _merit(found))

    def nudge(self, order: _Order) -> None:
        """Moves of one unit, then of two, the first of each round that helps, each judged by its own schedule.

        Passes judge moves by times that a move changes, and never fill a location to make room at another: in problems
        of a few dozen tasks both can matter.
        """

        def few_moves(elsewhere: Bools, leaves: Bools) -> Iterator[tuple[tuple[int, int], ...]]:
            # Moves (unit, location) that `elsewhere`, [u, l], allows: of units that should leave, then any two.
            single = [(unit, there) for unit, there in np.argwhere(elsewhere & leaves[:, None]).tolist()]
            yield from ((move,) for move in single)
            for move in single:
                for unit, there in np.argwhere(elsewhere).tolist():
                    if unit != move[0]:
                        yield move, (unit, there)

        left, helps = _WORK // (self.problem.tasks + self.problem.edges + 1), True
        while helps and not self.best.fits:
            base = self.best
            at = location_of(self.problem, self.units, base.device)
            elsewhere = self.units.allowed & (np.arange(self.problem.locations) != at[:, None])
            for moves in islice(few_moves(elsewhere, base.short[at] > 0), left):
                left -= 1
                tried = at.copy()
                tried[[unit for unit, _ in moves]] = [there for _, there in moves]
                self.judge(_moved(self.problem, base.device, tried[self.units.unit]), order)
                if self.best is not base or self.late():
                    break
            helps = self.best is not base and not self.late()


def _merit(found: Relief) -> tuple[int, int]:
    """Least is best: bytes that are lacking, then ticks."""
    return sum(found.short.tolist()), found.schedule.makespan


def _moved(problem: Problem, device: Ints, location: Ints) -> Ints:
    """[n] the devices at the locations wished, as before where that is where a task was."""
    return ints(np.where(problem.location[device] == location, device, devices_at(problem, location)))


def _starts(problem: Problem, footprint: Footprint, search: _RepairSearch) -> Iterator[Ints]:
    """The placement given; as moves did not do, what is static packed and the rest where it was; and all spread out.

    Spread out: units by falling bytes, static and made, each to where the most of the capacity is left.
    """
    yield search.device
    units, before = search.units, location_of(problem, search.units, search.device)
    static, made = (np.zeros(len(before), dtype=np.int64) for _ in range(2))
    np.add.at(static, units.unit, footprint.static)
    np.add.at(made, units.unit[footprint.maker], footprint.size)
    packed = next((at for at, short in packings(problem, replace(units, memory=ints(static))) if short == 0), before)
    if not np.array_equal(np.where(static > 0, packed, before), before):
        yield _moved(problem, search.device, np.where(static > 0, packed, before)[units.unit])
    spread = glb(static + made, units.allowed, busy=problem.capacity.max() - problem.capacity)
    yield _moved(problem, search.device, spread[units.unit])


SECONDS = 10.0
"""For a repair, about."""


def fitted(problem: Problem, found: Result, options: Options) -> Result:
    """Return a result for the problem without its lives, made one for the problem with them.

    A bound holds as it is: lives only exclude schedules. A schedule that fits stays, and is optimal if it was; another
    is repaired (`relieve`), and never proves more than the bound does. Nothing is worse than `options.start`.
    """
    bound = max(found.lower_bound, options.lower_bound)
    by = found.bound_by if bound == found.lower_bound else "given"
    schedule, detail = found.schedule, found.detail
    if schedule is not None and problem.lives is not None and not fits(problem, schedule):
        # [n] rank by start, then finish, then position in a topological order.
        position = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
        order = rank_of(np.lexsort((position, schedule.finish, schedule.start)))
        relief = relieve(problem, problem.lives, schedule.device, order=order, late=after(SECONDS))
        schedule = relief.schedule if relief.fits else None
        detail = "it knows of no bytes that come and go" + (
            f": {relief.moved} tasks or groups moved to fit"
            if relief.fits
            else f", and no repair was found: {relief.shortfall}"
        )
    best = min((s for s in (schedule, options.start) if s is not None), key=lambda s: s.makespan, default=None)
    status, limit = found.status, found.limit
    if status not in FAILED and (status in ANSWERED or best is not None):
        status = Status.FEASIBLE if best is not None else Status.UNKNOWN
        limit = Limit.OTHER if found.status is Status.OPTIMAL else limit
        if best is not None and best.makespan == bound:
            status, limit = Status.OPTIMAL, Limit.NONE
    return replace(found, status=status, limit=limit, schedule=best, lower_bound=bound, bound_by=by, detail=detail)
