"""State of one heuristic run: it turns placements into schedules, keeps the best and makes the result."""

import time

import numpy as np

from solvers.arrays import Ints, rank_of
from solvers.base import Progress, Report
from solvers.bounds import quick_bounds
from solvers.compiled.dag import topological_order
from solvers.heuristics.eft_pass import PassClusters, board_of, earliest_finish
from solvers.heuristics.lists.guides import GuidedOrder
from solvers.problem import Problem
from solvers.result import Limit, Options, Result, Status
from solvers.schedule import Schedule
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
        """Since the run began."""
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

    def offer(self, schedule: Schedule) -> bool:
        """Keep a valid schedule if it is the best, and tell; return whether it is."""
        if self.schedule is not None and schedule.makespan >= self.schedule.makespan:
            return False
        self.schedule = schedule
        self._report(Progress(schedule=schedule, lower_bound=self.lower_bound, seconds=self.seconds))
        return True

    def attempt(self, clusters: PassClusters, guide: GuidedOrder, bias: float = 0.0) -> None:
        """Run one pass of `place` and offer what comes of it; nothing when memory stops the pass."""
        device, stuck = earliest_finish(self.board, clusters, guide, bias)
        if stuck < 0:
            self.offer(self.complete(device, guide.order))
            self.bound()

    def bound(self) -> None:
        """Compute the lower bound, once, and tell."""
        if self._bounded:
            return
        self._bounded = True
        self.lower_bound = quick_bounds.best(self.problem)[0]
        self._report(Progress(schedule=self.schedule, lower_bound=self.lower_bound, seconds=self.seconds))

    def by_level(self, communication: float) -> Ints:
        """[n] tasks by falling bottom level, a topological order."""
        return np.lexsort((self._place_in_topology, -bottom_levels(self.problem, communication=communication)))

    def by_start(self, schedule: Schedule) -> Ints:
        """[n] tasks by start, a topological order."""
        return np.lexsort((self._place_in_topology, schedule.finish, schedule.start))

    def complete(self, device: Ints, order: Ints) -> Schedule:
        """The better schedule of a placement: strictly in `order`, or listed by the bottom levels that it implies."""
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
        """The outcome: optimal where the bound is met, otherwise feasible, or unknown without a schedule."""
        status = Status.FEASIBLE
        if self.schedule is None:
            status = Status.UNKNOWN
        elif self.schedule.makespan == self.lower_bound:
            status, limit = Status.OPTIMAL, Limit.NONE
        return Result(
            status=status,
            limit=limit,
            schedule=self.schedule,
            lower_bound=self.lower_bound,
            seconds=self.seconds,
            solver=solver,
            version=VERSION,
            detail=detail,
        )


def infeasible(solver: str, began: float, proof: str) -> Result:
    """The outcome of a proof that no schedule exists."""
    return Result(
        status=Status.INFEASIBLE,
        schedule=None,
        lower_bound=0,
        seconds=time.perf_counter() - began,
        solver=solver,
        version=VERSION,
        detail=proof,
    )
