"""Windows of a plan, each searched exactly by one engine; what makes the plan shorter, first come, first served, stays.

An engine's answer for a window is a placement and an order of its tasks. They take the place of the plan's, the whole
plan is run again, and is kept where it takes no longer: what a window leaves out of account costs a try, never a tick.
"""

import importlib
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, rank_of
from solvers.base import AdaptiveKinds, Report, SolveMonitor
from solvers.bounds import quick_bounds
from solvers.bounds.strong import compile_ahead
from solvers.instances.plain import chain
from solvers.milp.polishing import STEP, RunSlice, attempt
from solvers.milp.solver import Milp
from solvers.milp.vendor import RunRequest
from solvers.problem import Problem
from solvers.result import SEEDS, Limit, Options, Result, Status
from solvers.schedule import Schedule
from solvers.windows.excerpt import Excerpt, Span, Standing, excerpt_of, standing_of, tables_of

_LEAST, _MOST = 6.0, 60.0
"""Free tasks of a window."""
_GROW, _SHRINK = 1.01, 0.9
"""Factors on the size of a kind after a window that was searched to its end, and after one that was not."""
_EVEN = 0.25
"""Share of the draws that all kinds divide evenly."""
_LEAST_S = 0.02
"""Seconds that are too few for a window."""
_FEW = 3
"""Locations up to which two of them are hardly fewer than all."""


def period(standing: Standing, size: int, rng: np.random.Generator) -> Ints:
    """Return places of tasks that start one after the other, a critical one among them."""
    n = len(standing.order)
    middle = int(rank_of(standing.order)[rng.choice(standing.critical)])
    first = min(max(middle - int(rng.integers(size)), 0), max(n - size, 0))
    return np.arange(first, min(first + size, n))


def stretch(standing: Standing, size: int, rng: np.random.Generator, wide: int) -> Ints:
    """Choose the tasks with the least slack in a longer period, critical ones first; the others keep their order."""
    places = period(standing, wide * size, rng)
    tasks = standing.order[places]
    spare = standing.makespan - standing.schedule.start[tasks] - standing.tail[tasks]
    return np.sort(places[np.argsort(spare + rng.integers(0, 2, len(tasks)), kind="stable")[:size]])


class WindowKind(NamedTuple):
    """One way to choose tasks."""

    draw: Callable[[Standing, int, np.random.Generator], Ints]
    pair: bool = False
    """True if only units at two of the locations may, and only between these."""


KINDS = {
    "period": WindowKind(period),
    "pair": WindowKind(period, pair=True),
    "stretch": WindowKind(partial(stretch, wide=3)),
    "long": WindowKind(partial(stretch, wide=6)),
}


class Choices:
    """Draws windows, more often of kinds that pay. The same seed and outcomes give the same draws."""

    def __init__(self, seed: int, size: int) -> None:
        self._rng, rates = np.random.default_rng(seed), (_GROW, _SHRINK)
        self.kinds = AdaptiveKinds(KINDS, self._rng, first=float(size), sizes=(_LEAST, _MOST), rates=rates, even=_EVEN)

    def draw(self, standing: Standing) -> tuple[str, Span]:
        """Draw a kind, and what it sets free; the plan has a task."""
        used = np.unique(standing.at).tolist()
        name, size = self.kinds.draw([name for name in KINDS if len(used) > _FEW or not KINDS[name].pair])
        kind = KINDS[name]
        free = kind.draw(standing, min(size, len(standing.order)), self._rng)
        places = frozenset(self._rng.choice(used, 2, replace=False).tolist()) if kind.pair else None
        return name, Span(free, places)


CPSAT = "cpsat"
_EFFORT = 0.05
"""Deterministic seconds of CP-SAT a window."""
_SLICE_S, _SETTLING = 1.0, 0.2
"""Seconds of a vendor a window, and the part of them in which time windows are looked for."""


class WindowResult(NamedTuple):
    """The outcome of the search of one window."""

    schedule: Schedule | None
    """A valid schedule of it that is shorter, None where none was found."""
    closed: bool
    """True if the window was searched to its end."""
    left: bool = False
    """True if the engine did not end in time, and may still be at work in this process."""


Search = Callable[[Problem, Schedule, float, int], WindowResult]
"""Looks for a schedule of a small problem that is shorter than a valid one, within so many seconds, with a seed."""


class Engine(NamedTuple):
    """An engine for windows."""

    search: Search
    size: int
    """Tasks of its first windows."""
    lanes: int
    """Number of windows that are searched at a time."""


def engine(name: str, options: Options, cores: int) -> Engine:
    """Return CP-SAT, or the vendor of that name; raise UnavailableError or ImportError where it is not here."""
    if name == CPSAT:
        shorter = importlib.import_module("solvers.cpsat.exact").shorter

        def by_cpsat(problem: Problem, start: Schedule, seconds: float, seed: int) -> WindowResult:
            return WindowResult(*shorter(problem, start, effort=_EFFORT, seconds=seconds, seed=seed))

        return Engine(by_cpsat, 14, min(options.workers, cores))
    vendor: Milp = importlib.import_module(f"solvers.milp.vendors.{name}").solver()

    def by_program(problem: Problem, start: Schedule, seconds: float, seed: int) -> WindowResult:
        now = time.monotonic()
        request = RunRequest(seconds=min(seconds, _SLICE_S), gap=0.0, seed=seed, threads=1, start=None)
        settle_by = now + _SETTLING * request.seconds
        part = RunSlice(settle_by=lambda: settle_by, ends=now + request.seconds, ask=lambda: request)
        limit = start.makespan - max(1, start.makespan // STEP)
        if limit < 0:
            return WindowResult(None, closed=True)
        schedule, outcome = attempt(problem, limit, 0, (vendor.run, options.formulation), part)
        closed = outcome is None or outcome.status in (Status.OPTIMAL, Status.INFEASIBLE)
        better = schedule if schedule is not None and schedule.makespan < start.makespan else None
        return WindowResult(better, closed, outcome is not None and outcome.left)

    # Of two runs of HiGHS in one process the second waits.
    return Engine(by_program, 10, 1)


class _OpenWindow(NamedTuple):
    """A window that is being searched."""

    kind: str
    excerpt: Excerpt
    result: Future[WindowResult]
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
        """Improve on `options.start`, as it runs first come, first served; raise ValueError without one."""
        if options.start is None:
            raise ValueError("windows improve a schedule - give one as the start")
        monitor = SolveMonitor(problem, options, report, solver=self.engine, version=metadata.version(self.package))
        monitor.better_bound(*quick_bounds.best(problem))
        if problem.tasks and not monitor.within_gap and options.seconds > 0:
            chosen = engine(self.engine, options, os.cpu_count() or 1)
            _Descent(monitor, chosen, options.start, self.size or chosen.size).run(self.most)
        return monitor.result(Limit.GAP if monitor.within_gap else Limit.TIME, "")


class _Descent:
    """A plan, and the windows of it that are being searched."""

    def __init__(self, monitor: SolveMonitor, chosen: Engine, start: Schedule, size: int) -> None:
        self._monitor, self._engine, self._tables = monitor, chosen, tables_of(monitor.problem)
        self._choices, self._seed, self._over = Choices(monitor.options.seed, size), monitor.options.seed, False
        order = np.lexsort((self._tables.topological, start.finish, start.start))
        self._best = standing_of(self._tables, start.device, order)
        monitor.better_schedule(self._best.schedule)

    def run(self, most: int | None) -> None:
        """Search windows until the time or the gap is closed, so many were searched, or one of all holds nothing."""
        open_windows, opened, monitor = deque[_OpenWindow](), 0, self._monitor
        with ThreadPoolExecutor(self._engine.lanes) as lanes:
            while True:
                while len(open_windows) < self._engine.lanes and opened != most:
                    if monitor.remaining <= _LEAST_S or monitor.within_gap or self._over:
                        break
                    kind, span = self._choices.draw(self._best)
                    excerpt = excerpt_of(self._best, span)
                    self._seed = (self._seed + 1) % SEEDS
                    seconds = max(monitor.remaining, _LEAST_S)
                    result = lanes.submit(self._engine.search, excerpt.problem, excerpt.start, seconds, self._seed)
                    open_windows.append(_OpenWindow(kind, excerpt, result, time.monotonic()))
                    opened += 1
                if not open_windows:
                    return
                window = open_windows.popleft()
                searched, better = window.result.result(), False
                nothing = searched.closed and searched.schedule is None
                self._over = searched.left or (nothing and window.excerpt.whole)
                if searched.schedule is not None:
                    better = self._keep(*window.excerpt.back(searched.schedule, self._best))
                seconds = time.monotonic() - window.began
                self._choices.kinds.learn(window.kind, closed=searched.closed, better=better, effort=seconds)

    def _keep(self, device: Ints, order: Ints) -> bool:
        """Keep the plan with that placement and order where it takes no longer; return True if it is shorter."""
        try:
            plan = standing_of(self._tables, device, order)
        except ValueError:  # another window has changed what this one rests on
            return False
        better = plan.makespan < self._best.makespan
        # Nothing may hold more than it may, or than it does already.
        fits = (plan.held <= np.maximum(self._monitor.problem.capacity, self._best.held)).all()
        if plan.makespan <= self._best.makespan and fits:
            self._best = plan
        if better:
            self._monitor.better_schedule(self._best.schedule)
        return better
