"""The exact solver on the coarse graph, and the bound of the full graph: both in threads, beside all else.

Every schedule that the solver finds on the way is expanded to the full graph.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TypeVar

import numpy as np

from pesto.core.memory import add_lifetimes
from pesto.core.settings import Settings
from pesto.planning.coarsen import Coarsening
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.quick_candidates import Level
from pesto.planning.solving.tracker import SoFar, Stage, Tracker
from solvers import ANSWERED, FAILED, Limit, Options, Problem, Progress, Result, Schedule, Status, api
from solvers.arrays import ints
from solvers.bounds.full import full_bound
from solvers.memory.usage import fits
from solvers.timing.rebuild import rebuild

T = TypeVar("T")
LIVES = "memory is tight: the graph itself, with its tensors' lives"
_PESTO_LOG = logging.getLogger("pesto")
_SHARE, _MOST_S = 0.2, 20.0
"""Share of the time limit, and maximum seconds, after which no distance is raised any more."""


@contextmanager
def strengthen_bound(problem: Problem, tracker: Tracker, settings: Settings) -> Iterator[None]:
    """While the context is open, another thread looks for a better bound and tells the tracker; leaving waits for it.

    Nobody waits past the time limit, after an exception (Ctrl-C say), or for what the gap does not need; a bound that
    comes then is not taken. When deterministic it is not cut by the clock, and ends before anything else begins. What
    goes wrong in the thread is a warning: a weaker bound still holds.
    """
    seconds = float("inf") if settings.deterministic else min(_SHARE * settings.time_limit_s, _MOST_S)
    best, late, taking = tracker.best, threading.Event(), threading.Lock()

    def look() -> None:
        try:
            with tracker.ledger.bounding():
                found = full_bound(problem, upper=best.makespan if best is not None else None, seconds=seconds)
            with taking:
                if not late.is_set():
                    tracker.strengthen(found)
        except Exception as error:
            _PESTO_LOG.warning("the stronger lower bound failed: %r", error)

    if settings.time_limit_s == 0 or tracker.gap <= settings.gap:
        yield
        return
    running = run_in_thread(look, "bounds")
    if settings.deterministic:
        wait([running])
    try:
        yield
        while not running.done() and tracker.left_s > 0 and tracker.gap > settings.gap:
            wait([running], timeout=min(tracker.left_s, _LOOK_S))
    finally:
        with taking:
            late.set()


def run_in_thread(work: Callable[[], T], name: str | None = None) -> Future[T]:
    """Return a future of work in a daemon thread, which does not keep the process alive."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


_LOG = logging.getLogger("pesto.solver")
"""The exact solver's own lines, which -v shows."""
_GRACE_S = 2.5
"""Seconds that a solver has to end after Ctrl-C, or after it was told that its time is over."""
LATE_S = 1.0
"""Seconds past its time after which a solver that has not ended by itself is told to."""
_LOOK_S = 0.1
"""Seconds between checks of whether a running solver is still needed."""
CLOCK: Callable[[], float] = time.monotonic
"""Clock for a solver's time, in seconds."""
_EXACT, _EXACT_LEAST_S = 0.15, 5.0
"""Share of the time limit for the exact solver if search follows; at least these seconds, or half of the limit."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuickStart:
    """The quick schedule that the exact solver starts from."""

    makespan: int
    """Ticks, on the problem that the solver got."""
    expanded: Candidate
    """Its expansion; a candidate only with congestion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactRun:
    """How an exact solver is run on other graphs than coarse ones."""

    engine: Callable[..., Result]
    """Function with the arguments of `solvers.api.solve`."""
    seconds: float
    lower_bound: int
    """Known lower bound in ticks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactOutcome:
    """Outcome of the exact solver on the coarse graph."""

    coarsening: Coarsening
    result: Result
    """Its result; without congestion that of the problem without links."""
    last: Candidate | None
    """Expansion of its last schedule, which an earlier one may beat; None if it has none better than its start."""
    start: QuickStart | None
    """Schedule that it started from; None if memory defeats the list scheduler."""
    interrupted: bool
    """True if Ctrl-C came while it ran, or while its last answers were taken in."""

    @property
    def useless(self) -> bool:
        """True if the engine failed or never began, so that this solve does not start it again."""
        return self.result.status in FAILED or not api.has_begun(self.result)


def solve_coarse(
    bench: CandidateEvaluator,
    level: Level,
    settings: Settings,
    run: ExactRun | None = None,
    enough: Callable[[], bool] | None = None,
) -> Stage[ExactOutcome]:
    """Yield `coarse`: the start, and every schedule that the solver finds on the way, expanded.

    `run` says how the solver is run, and for how long; None for `solvers.solve` and `exact_seconds`. The solver ends
    once `enough` returns True, which is asked from time to time, but not when deterministic.

    Without congestion the solver gets the problem without links, so that transfers never wait for each other (Pesto,
    3.2.2, Fig 5). Its placement and orders are then timed on the real links, and the start, which knows of them, is no
    candidate.
    """

    def expanded(schedule: Schedule, by: str) -> Candidate:
        real = schedule if settings.congestion else rebuild(level.problem, schedule)
        device, rank, rule = bench.expand(level.coarsening, real)
        return bench.ordered("coarse", f"{by} on {level.coarsening.nodes} nodes, {rule}", device, rank)

    problem, start = _exact_input(level, settings)
    options = Options(
        seconds=exact_seconds(settings) if run is None else run.seconds,
        lower_bound=0 if run is None else run.lower_bound, gap=settings.gap, seed=settings.seed,
        workers=settings.workers, deterministic=settings.deterministic, formulation=settings.formulation, start=start,
    )  # fmt: skip
    began = last = None
    if start is not None:
        began = QuickStart(makespan=start.makespan, expanded=expanded(start, f"{level.by}, the start,"))
        if settings.congestion:
            yield began.expanded
    engine = api.solve if run is None else run.engine
    with SolverThread(problem, settings.solver, options, by=engine, enough=enough) as running:
        for schedule in running.schedules():
            yield expanded(schedule, settings.solver)
    result = running.result()
    if result.schedule is not None and result.schedule is not start:  # nothing of its own otherwise
        last = expanded(result.schedule, settings.solver)
        yield last
    answered = last if result.status in ANSWERED else None
    return ExactOutcome(
        coarsening=level.coarsening, result=result, last=answered, start=began, interrupted=running.interrupted
    )


def _exact_input(level: Level, settings: Settings) -> tuple[Problem, Schedule | None]:
    """The exact solver's problem, without links if there is no congestion, and a schedule of it to start from."""
    if settings.congestion:
        return level.problem, level.schedule
    free = replace(level.problem, path_links=np.full_like(level.problem.path_links, -1))
    early = None if level.schedule is None else rebuild(free, level.schedule)
    return free, early if early is not None and fits(free, early) else level.schedule


class SolverThread:
    """A solver that runs in a thread of its own while the caller takes what it finds, and can be interrupted.

    A context manager. Ctrl-C inside ends the solver, which keeps what it has; leaving it waits for that. So does
    `enough()`, which is asked from time to time, and the time limit, `LATE_S` after the solver should have ended by
    itself; both only where the limit is one of time.
    """

    interrupted = False
    """True if Ctrl-C came inside, also if the solver had ended by itself."""

    def __init__(
        self,
        problem: Problem,
        solver: str,
        options: Options,
        by: Callable[..., Result] = api.solve,
        enough: Callable[[], bool] | None = None,
    ) -> None:
        self._news: SimpleQueue[Progress | None] = SimpleQueue()
        self._all, self._stop = options.deterministic, threading.Event()
        self._enough, self._cut = enough, Limit.NONE
        self._seconds, self._solver = options.seconds, solver
        self._ends = math.inf if options.deterministic else CLOCK() + options.seconds + LATE_S
        self._ended = run_in_thread(lambda: by(problem, solver, options, report=self._news.put, stop=self._stop))
        self._ended.add_done_callback(lambda _: self._news.put(None))

    def __enter__(self) -> "SolverThread":
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """End the solver. Ctrl-C goes on where it does not end: a method without a process looks at no clock."""
        self._stop.set()
        wait([self._ended], timeout=None if kind is None and self._cut is Limit.NONE else _GRACE_S)
        self.interrupted = kind is KeyboardInterrupt and self._ended.done()
        return self.interrupted

    def schedules(self) -> Iterator[Schedule]:
        """Yield better schedules as they come: of several that wait the best, but all when deterministic."""
        going = True
        while going and not self._given_up():
            try:
                waiting = [self._news.get(timeout=None if self._all else _LOOK_S)]
            except Empty:
                continue
            while not self._all and not self._news.empty():
                waiting.append(self._news.get())
            going = None not in waiting
            news = [progress for progress in waiting if progress is not None]
            for line in (line for progress in news for line in progress.log):
                _LOG.info("%s", line)
            yield from [progress.schedule for progress in news if progress.schedule is not None][-1:]

    def _given_up(self) -> bool:
        """Tell the solver to end if it need not go on, or its time is over; return True if it does not end either."""
        if self._all:
            return False
        now = CLOCK()
        if self._cut is Limit.NONE and now >= self._ends:
            self._cut = Limit.TIME
        elif self._cut is Limit.NONE and self._enough is not None and self._enough():
            self._cut, self._ends = Limit.GAP, now
        if self._cut is not Limit.NONE:
            self._stop.set()
        return now >= self._ends + _GRACE_S

    def result(self) -> Result:
        """Return the solver's result once it has ended; raise what the solver itself raised.

        The result is `hung` for a method without a process that goes on, which no one can end.
        """
        if not self._ended.done():
            detail = f"no answer within {self._seconds:g} s"
            return Result(
                status=Status.HUNG, schedule=None, lower_bound=0, seconds=self._seconds, solver=self._solver,
                version="", detail=detail,
            )  # fmt: skip
        result = self._ended.result()
        if self._cut is Limit.NONE or result.limit is not Limit.INTERRUPT:
            return result
        late = result.detail if api.has_begun(result) else f"{result.detail} within {self._seconds:.1f} s"
        return replace(result, limit=self._cut, detail=late if self._cut is Limit.TIME else "")


def exact_seconds(settings: Settings) -> float:
    """Return the exact solver's seconds of the time limit: all of them, or what search leaves."""
    limit = settings.time_limit_s
    return max(_EXACT * limit, min(_EXACT_LEAST_S, limit / 2)) if settings.search else limit


def exact_with_memory(bench: CandidateEvaluator, level: Level, so_far: SoFar) -> Level:
    """Return the graph with its tensors' lives if `level` has all ops and the shortest candidate does not fit.

    Return `level` itself otherwise: a coarse graph's nodes have no lives of their own. The schedule is the best plan's.
    """
    tasks, best = bench.problem.tasks, so_far.best
    shorter = [c for c in so_far.candidates.values() if best is None or c.makespan < best.makespan]
    if level.coarsening.nodes < tasks or all(c.fits for c in shorter):
        return level
    coarsening = Coarsening(
        node_of=ints(np.arange(tasks)),
        nodes=tasks,
        rank=bench.topological,
        target=level.coarsening.target,
        reason=LIVES,
        rounds=(),
        largest_group_share=level.coarsening.largest_group_share,
    )
    problem = add_lifetimes(bench.problem, bench.graph, per_edge=bench.per_edge)
    schedule = None if best is None else best.timeline.schedule
    return Level(coarsening=coarsening, problem=problem, schedule=schedule, by="" if best is None else best.name)
