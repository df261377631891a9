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

import numpy as np

from solvers.arrays import Bools, Ints, ints, rank_of
from solvers.compiled.dag import topological_order
from solvers.deadlines import Late, after, never
from solvers.footprint import Footprint
from solvers.heuristics.clusters.linear_clustering import glb
from solvers.heuristics.devices_of_location import devices_at
from solvers.heuristics.list_solver import packings
from solvers.heuristics.overflow.frugal import frugal_order
from solvers.heuristics.overflow.move_out import location_of, relieved
from solvers.memory.usage import fits, usage
from solvers.problem import Problem
from solvers.result import ANSWERED, FAILED, Limit, Options, Result, Status
from solvers.schedule import Schedule
from solvers.structure.units import units_of
from solvers.timing.replay import bottom_levels, prepare, replay

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
