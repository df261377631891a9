"""Quick schedulers: `list` (the start of the exact solvers), `single`, and each placement method as a solver.

A `HeuristicRun` turns placements into schedules, keeps the best one and makes the result.
"""

import time
from collections.abc import Iterator
from itertools import islice

import numpy as np

from solvers.arrays import Bools, Ints, rank_of
from solvers.base import Progress, Report, UnavailableError
from solvers.bounds import quick_bounds
from solvers.bounds.quick_bounds import memory_proof
from solvers.compiled.dag import topological_order
from solvers.compiled.kernels import routine
from solvers.heuristics.eft_pass import (
    GuidedOrder,
    PassClusters,
    board_of,
    clusters_of,
    earliest_finish,
    guided,
    unguided,
)
from solvers.heuristics.methods import PLACERS, NoRoomError
from solvers.problem import Problem
from solvers.result import Limit, Options, Result, Status
from solvers.schedule import Schedule
from solvers.structure.units import Units, every_packing, fastest_at, units_of
from solvers.timing.replay import bottom_levels, makespan, prepare, replay

VERSION = "1"
"""Changes when an answer of these heuristics may."""


class HeuristicRun:
    """The best schedule of one run of a heuristic, with the tables that all its passes read."""

    def __init__(self, problem: Problem, options: Options, report: Report) -> None:
        self.problem, self.options, self._report = problem, options, report
        self._began = time.perf_counter()
        self.prepared, self.board = prepare(problem), board_of(problem)
        self.schedule: Schedule | None = None
        self.lower_bound, self._bounded = 0, False
        self._place_in_topology = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
        if options.start is not None:
            self.offer(options.start)

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._began

    @property
    def limit(self) -> Limit:
        """Return the limit that stops the run now: the clock (never if deterministic), the gap, or none."""
        if self.schedule is not None:
            open_ticks = self.schedule.makespan - self.lower_bound
            if open_ticks <= self.options.gap * self.schedule.makespan:
                return Limit.GAP
            if self.seconds >= self.options.seconds and not self.options.deterministic:
                return Limit.TIME
        return Limit.NONE

    def offer(self, schedule: Schedule) -> None:
        """Keep and report a valid schedule if it is the best."""
        if self.schedule is None or schedule.makespan < self.schedule.makespan:
            self.schedule = schedule
            self._report(Progress(schedule=schedule, lower_bound=self.lower_bound, seconds=self.seconds))

    def attempt(self, clusters: PassClusters, guide: GuidedOrder, bias: float = 0.0) -> None:
        """Run one pass of `earliest_finish` and offer its schedule, unless memory stops the pass."""
        device, stuck = earliest_finish(self.board, clusters, guide, bias)
        if stuck < 0:
            self.offer(self.complete(device, guide.order))
            self.bound()

    def bound(self) -> None:
        """Compute and report the lower bound, once."""
        if not self._bounded:
            self._bounded = True
            self.lower_bound = quick_bounds.best(self.problem)[0]
            self._report(Progress(schedule=self.schedule, lower_bound=self.lower_bound, seconds=self.seconds))

    def by_level(self, communication: float) -> Ints:
        """Return the [n] tasks by falling bottom level, a topological order."""
        return np.lexsort((self._place_in_topology, -bottom_levels(self.problem, communication=communication)))

    def by_start(self, schedule: Schedule) -> Ints:
        """Return the [n] tasks by start, a topological order."""
        return np.lexsort((self._place_in_topology, schedule.finish, schedule.start))

    def complete(self, device: Ints, order: Ints) -> Schedule:
        """Return the better schedule of a placement: strictly in `order`, or listed by its own bottom levels."""
        level = bottom_levels(self.problem, device=device)
        priority = rank_of(np.lexsort((self._place_in_topology, -level)))
        listed = replay(self.problem, device, priority, strict=False, prepared=self.prepared)
        if makespan(self.prepared, device, order) >= listed.makespan:
            return listed
        return replay(self.problem, device, rank_of(order), prepared=self.prepared)

    def settle(self) -> None:
        """Replay the best schedule strictly in its order of starts, and keep that unless it is worse."""
        if self.schedule is not None:
            rank = rank_of(self.by_start(self.schedule))
            again = replay(self.problem, self.schedule.device, rank, prepared=self.prepared)
            if again.makespan < self.schedule.makespan:
                self.offer(again)
            elif again.makespan == self.schedule.makespan:
                self.schedule = again

    def result(self, solver: str, limit: Limit, detail: str = "") -> Result:
        """Return the result: optimal where the bound is met, otherwise feasible, or unknown without a schedule."""
        status = Status.FEASIBLE
        if self.schedule is None:
            status = Status.UNKNOWN
        elif self.schedule.makespan == self.lower_bound:
            status, limit = Status.OPTIMAL, Limit.NONE
        return Result(
            status=status, limit=limit, schedule=self.schedule, lower_bound=self.lower_bound, seconds=self.seconds,
            solver=solver, version=VERSION, detail=detail,
        )  # fmt: skip


def infeasible(solver: str, began: float, proof: str) -> Result:
    """Return the result of a proof that no schedule exists; `began` is when the solver did, on `time.perf_counter`."""
    return Result(
        status=Status.INFEASIBLE, schedule=None, lower_bound=0, seconds=time.perf_counter() - began,
        solver=solver, version=VERSION, detail=proof,
    )  # fmt: skip


class ListScheduler:
    """HEFT with link contention, payloads, units and memory, for several weights of communication; the best is kept.

    Every placement is replayed in several orders (`HeuristicRun.complete`), and never loses to one location for all.
    """

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Return a schedule unless memory defeats every pass; then unknown, with the bytes that found no room.

        Infeasible only with the proof of `bounds.memory_proof`. At least one pass runs whatever the limit.
        """
        began, proof = time.perf_counter(), memory_proof(problem)
        if proof is not None:
            return infeasible("list", began, proof)
        run, units = HeuristicRun(problem, options, report), units_of(problem)
        limit, short = Limit.NONE, -1
        offers = problem.edges * problem.locations + problem.tasks * (problem.devices + _OVERHEAD) + 1
        for clusters, guide, bias in islice(_passes(run, units), max(_FEWEST_PASSES, _MOST_OFFERS // offers)):
            run.attempt(clusters, guide, bias)
            limit = run.limit
            if limit is not Limit.NONE:
                break
        if run.schedule is None:
            # No pass found room for all: the locations are decided first, by bytes alone.
            limit, order = Limit.NONE, unguided(run.by_level(1.0))
            for at, lacking in packings(problem, units):
                short = lacking if short < 0 else min(short, lacking)
                if lacking == 0:
                    run.attempt(clusters_of(units, at), order)
                limit = run.limit
                if limit is not Limit.NONE:
                    break
        run.settle()
        run.bound()
        detail = "" if run.schedule else f"memory: {short} bytes found no room in the best packing"
        return run.result("list", limit, detail)


_BIASES = (0.5, 1.0, 0.25, 2.0, 0.0, 4.0)
"""Weights of a tick of transfers against a tick of finish: 0 is HEFT, more keeps tasks where their inputs are."""
_COMMUNICATION = (1.0, 0.0)
"""Weights of a tick of transfers in the bottom levels that order the tasks."""
_ROUNDS = 3
"""Sweeps in the order of the best schedule's starts, at most."""
_MOST_OFFERS, _OVERHEAD, _FEWEST_PASSES = 160_000_000, 60, 4
"""Offers of a device in all passes (some seconds); offers that equal a task's other work; and passes at least."""


def _passes(run: HeuristicRun, units: Units) -> Iterator[tuple[PassClusters, GuidedOrder, float]]:
    """Clusters, order and bias of each pass; the later ones depend on what the earlier found."""
    free, at = clusters_of(units), least_loaded(run.problem, units)
    if at is not None:
        yield clusters_of(units, at), unguided(run.by_level(1.0)), 0.0

    def sweep(order: Ints) -> Iterator[tuple[PassClusters, GuidedOrder, float]]:
        guides = (unguided(order), guided(run.prepared, units.unit, order))
        for bias in _BIASES:
            for guide in guides:
                yield free, guide, bias

    for communication in _COMMUNICATION:
        yield from sweep(run.by_level(communication))
    for _ in range(_ROUNDS):
        best = run.schedule
        if best is None:
            return
        yield from sweep(run.by_start(best))
        if run.schedule is best:
            return


class SingleDevice:
    """One device alone: all units that one location allows run there, the rest at their first location."""

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Return the best of all locations, or unknown with the bytes missing when no location has the room."""
        began, proof = time.perf_counter(), memory_proof(problem)
        if proof is not None:
            return infeasible("single", began, proof)
        run, units = HeuristicRun(problem, options, report), units_of(problem)
        order, limit, short = unguided(run.by_level(1.0)), Limit.NONE, []
        for at, missing in placements(problem, units):
            short.append(missing)
            if missing == 0:
                run.attempt(clusters_of(units, at), order)
            limit = run.limit
            if limit is not Limit.NONE:
                break
        run.settle()
        run.bound()
        detail = "" if run.schedule else f"memory: {min(short)} bytes missing at the location that lacks least"
        return run.result("single", limit, detail)


def placements(problem: Problem, units: Units) -> Iterator[tuple[Ints, int]]:
    """Yield, for each location, ([u] locations when all units that can are there, bytes that do not fit)."""
    first = np.argmax(units.allowed, axis=1)
    for there in range(problem.locations):
        at = np.where(units.allowed[:, there], there, first)
        used = np.zeros(problem.locations, dtype=np.int64)
        np.add.at(used, at, units.memory)
        yield at, int(np.maximum(used - problem.capacity, 0).sum())


def least_loaded(problem: Problem, units: Units) -> Ints | None:
    """Return the one of `placements` with the least work that fits, tasks at their fastest device; None without one."""
    task, fastest = np.arange(problem.tasks), fastest_at(problem)
    loads = [(int(fastest[task, at[units.unit]].sum()), at) for at, short in placements(problem, units) if not short]
    return min(loads, key=lambda load: load[0])[1] if loads else None


class PlacerSolver:
    """The placement method called `name` in `PLACERS`, its tasks put in order, timed and bounded."""

    def __init__(self, name: str) -> None:
        self._name, self._place = name, PLACERS[name].load()

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Return the method's schedule; unknown, with the bytes, where it needs more memory than there is."""
        began, proof = time.perf_counter(), memory_proof(problem)
        if proof is not None:
            return infeasible(self._name, began, proof)
        run = HeuristicRun(problem, options, report)
        try:
            placement = self._place(problem, options)
            used = np.zeros(problem.locations, dtype=np.int64)
            np.add.at(used, problem.location[placement.device], problem.memory)
            over = used - problem.capacity
            at = int(over.argmax()) if problem.locations else 0
            detail = f"memory: {over[at]} bytes too many at location {at}" if problem.locations and over[at] > 0 else ""
        except NoRoomError as short:
            placement, detail = None, f"memory: {short}"
        except ImportError as missing:
            raise UnavailableError(str(missing)) from missing
        if placement is not None and not detail:
            if placement.rank is None:
                run.offer(run.complete(placement.device, run.by_level(1.0)))
            else:
                run.offer(replay(problem, placement.device, placement.rank, prepared=run.prepared))
        run.bound()
        return run.result(self._name, Limit.NONE, detail)


_FIRST, _ROOMIEST, _TIGHTEST = range(3)


def packings(problem: Problem, units: Units) -> Iterator[tuple[Ints, int]]:
    """Yield packings of all units: ([u] locations, -1 where no room was left; bytes of those units).

    The units largest first, or those with fewest locations first, or in the given order of their first task, each
    to the first, the roomiest or the tightest location that can take it (first and best fit decreasing, Johnson 1974).
    Where none of these holds every unit, the packing that looking at all finds, with -1 for units without bytes.
    """
    choices = np.count_nonzero(units.allowed, axis=1)
    first = np.full(len(units.memory), problem.tasks, dtype=np.int64)
    np.minimum.at(first, units.unit, np.arange(problem.tasks))
    orders = (
        np.argsort(-units.memory, kind="stable"),
        np.lexsort((-units.memory, choices)),
        np.lexsort((first, choices)),
    )
    lacks = True
    for order in orders:
        for policy in (_ROOMIEST, _TIGHTEST, _FIRST):
            at = _pack(order, units.allowed, units.memory, problem.capacity, policy)
            short = int(units.memory[at < 0].sum())
            lacks = lacks and short > 0
            yield at, short
    if lacks:
        whole, _ = every_packing(units, problem.capacity)
        if whole is not None:
            yield whole, 0


@routine
def _pack(order: Ints, allowed: Bools, memory: Ints, capacity: Ints, policy: int) -> Ints:
    at, room = np.full(len(memory), -1, dtype=np.int64), capacity.copy()
    for unit in order:
        best = -1
        for there in range(len(room)):
            if not allowed[unit, there] or room[there] < memory[unit]:
                continue
            roomier = best >= 0 and room[there] > room[best]
            tighter = best >= 0 and room[there] < room[best]
            if best < 0 or (policy == _ROOMIEST and roomier) or (policy == _TIGHTEST and tighter):
                best = there
        if best >= 0:
            at[unit] = best
            room[best] -= memory[unit]
    return at
