"""Windows of a plan, each searched exactly by one engine; what makes the plan shorter, first come, first served, stays.

An engine's answer for a window is a placement and an order of its tasks. They take the place of the plan's, the whole
plan is run again, and is kept where it takes no longer: what a window leaves out of account costs a try, never a tick.
"""

import os
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata

import numpy as np

from solvers.arrays import Ints
from solvers.base import Report
from solvers.bounds import quick_bounds
from solvers.bounds.solver import compile_ahead
from solvers.instances.plain import chain
from solvers.problem import Problem
from solvers.progress import SolveMonitor
from solvers.result import SEEDS, Limit, Options, Result
from solvers.schedule import Schedule
from solvers.windows.engines import CPSAT, Engine, WindowResult, engine
from solvers.windows.excerpt import Excerpt, excerpt_of
from solvers.windows.standing import Standing, standing_of, tables_of
from solvers.windows.window_kinds import Choices

_LEAST_S = 0.02
"""Seconds that are too few for a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A window that is being searched."""

    kind: str
    excerpt: Excerpt
    found: Future[WindowResult]
    began: float


@dataclass(frozen=True, slots=True)
class WindowSearch:
    """One engine on windows of `Options.start`, whose links are first come, first served."""

    engine: str = CPSAT
    package: str = "ortools"
    most: int | None = None
    """Windows after which it ends; None for the time limit alone."""
    size: int | None = None
    """Tasks of the first windows; None for what suits the engine."""

    def compile_ahead(self) -> None:
        """Compile what looks at a plan."""
        compile_ahead()
        small = chain(4)
        standing_of(tables_of(small), np.zeros(4, dtype=np.int64), np.arange(4))

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Improve on `options.start`, as it runs first come, first served; ValueError without one."""
        if options.start is None:
            raise ValueError("windows improve a schedule - give one as the start")
        watch = SolveMonitor(problem, options, report, solver=self.engine, version=metadata.version(self.package))
        watch.better_bound(*quick_bounds.best(problem))
        if problem.tasks and not watch.within_gap and options.seconds > 0:
            chosen = engine(self.engine, options, os.cpu_count() or 1)
            _Descent(watch, chosen, options.start, self.size or chosen.size).run(self.most)
        return watch.result(Limit.GAP if watch.within_gap else Limit.TIME, "")


class _Descent:
    """A plan, and the windows of it that are being searched."""

    def __init__(self, watch: SolveMonitor, chosen: Engine, start: Schedule, size: int) -> None:
        self._watch, self._engine, self._tables = watch, chosen, tables_of(watch.problem)
        self._choices, self._seed, self._over = Choices(watch.options.seed, size), watch.options.seed, False
        order = np.lexsort((self._tables.topological, start.finish, start.start))
        self._best = standing_of(self._tables, start.device, order)
        watch.better_schedule(self._best.schedule)

    def run(self, most: int | None) -> None:
        """Search windows until the time or the gap is closed, so many were searched, or one of all holds nothing."""
        pending, opened = deque[Opened](), 0
        with ThreadPoolExecutor(self._engine.lanes) as lanes:
            while True:
                while len(pending) < self._engine.lanes and opened != most and self._goes_on:
                    pending.append(self._open(lanes))
                    opened += 1
                if not pending:
                    return
                self._close(pending.popleft())

    @property
    def _goes_on(self) -> bool:
        return self._watch.remaining > _LEAST_S and not self._watch.within_gap and not self._over

    def _open(self, lanes: ThreadPoolExecutor) -> Opened:
        kind, span = self._choices.draw(self._best)
        excerpt = excerpt_of(self._best, span)
        self._seed = (self._seed + 1) % SEEDS
        seconds = max(self._watch.remaining, _LEAST_S)
        found = lanes.submit(self._engine.search, excerpt.problem, excerpt.start, seconds, self._seed)
        return Opened(kind=kind, excerpt=excerpt, found=found, began=time.monotonic())

    def _close(self, window: Opened) -> None:
        """Put what was found in its place, and keep what takes no longer."""
        searched, better = window.found.result(), False
        nothing = searched.closed and searched.schedule is None
        self._over = searched.left or (nothing and window.excerpt.whole)
        if searched.schedule is not None:
            better = self._keep(*window.excerpt.back(searched.schedule, self._best))
        seconds = time.monotonic() - window.began
        self._choices.learn(window.kind, closed=searched.closed, better=better, seconds=seconds)

    def _keep(self, device: Ints, order: Ints) -> bool:
        """Return True if the plan is shorter with that placement and order."""
        try:
            found = standing_of(self._tables, device, order)
        except ValueError:  # another window has changed what this one rests on
            return False
        better = found.makespan < self._best.makespan
        if found.makespan <= self._best.makespan and self._fits(found):
            self._best = found
        if better:
            self._watch.better_schedule(self._best.schedule)
        return better

    def _fits(self, found: Standing) -> bool:
        """Return True if nothing holds more than it may, or than it does already."""
        return bool((found.held <= np.maximum(self._watch.problem.capacity, self._best.held)).all())
