"""The exact solver on the coarse graph: every schedule that it finds on the way is expanded to the full graph."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from types import TracebackType

import numpy as np

from pesto.core.settings import Settings
from pesto.planning.coarsen import Coarsening
from pesto.planning.solving.background_bound import run_in_thread
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.multilevel import Level
from pesto.planning.solving.tracker import Stage
from solvers import ANSWERED, FAILED, Limit, Options, Problem, Progress, Result, Schedule, Status, api
from solvers.memory.usage import fits
from solvers.timing.rebuild import rebuild

_LOG = logging.getLogger("pesto.solver")
"""The exact solver's own lines, which -v shows."""
_GRACE_S = 2.5
"""Seconds that a solver has to end after Ctrl-C, or after it was told that its time is over."""
LATE_S = 1.0
"""Seconds past its time after which a solver that has not ended by itself is told to."""
_LOOK_S = 0.1
"""Seconds between checks of whether a running solver is still needed."""
CLOCK: Callable[[], float] = time.monotonic
"""Tells the seconds that a solver's time is counted in."""
_EXACT, _EXACT_LEAST_S = 0.15, 5.0
"""Share of the time limit that the exact solver gets where search follows; these seconds, or half of the limit, at
least."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuickStart:
    """The quick schedule that the exact solver began with."""

    makespan: int
    """Ticks, on the problem that the solver got."""
    expanded: Candidate
    """A candidate only with congestion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactRun:
    """How an exact solver is run where it is not run as on coarse graphs."""

    engine: Callable[..., Result]
    """Takes what `solvers.api.solve` takes."""
    seconds: float
    lower_bound: int
    """Ticks that are known to be needed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactOutcome:
    """What the exact solver did on the coarse graph."""

    coarsening: Coarsening
    result: Result
    """Without congestion, of the problem without links."""
    last: Candidate | None
    """The expansion of its last schedule, which one of an earlier schedule may beat.

    None when it has no answer, or none better than its start.
    """
    start: QuickStart | None
    """None where memory defeats the list scheduler."""
    interrupted: bool
    """Whether Ctrl-C came while it ran, or while its last answers were taken in."""

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
    """`coarse`: the start, and every schedule that the solver finds on the way, expanded.

    run: how the solver is run, and for how long; None for `solvers.solve` and `exact_seconds`. enough: whether the
    solver need not go on; asked from time to time, but not when deterministic.

    Without congestion the solver gets the problem without links, so that transfers never wait for each other (Pesto,
    3.2.2, Fig 5). Its placement and orders are then timed on the real links, and the start, which knows of them, is no
    candidate.
    """

    def expanded(schedule: Schedule, by: str) -> Candidate:
        real = schedule if settings.congestion else rebuild(level.problem, schedule)
        device, rank, rule = bench.expand(level.coarsening, real)
        return bench.ordered("coarse", f"{by} on {level.coarsening.nodes} nodes, {rule}", device, rank)

    problem, start = _exact_input(level, settings)
    began = last = None
    if start is not None:
        began = QuickStart(makespan=start.makespan, expanded=expanded(start, f"{level.by}, the start,"))
        if settings.congestion:
            yield began.expanded
    engine = api.solve if run is None else run.engine
    with SolverThread(problem, settings.solver, _options(settings, start, run), by=engine, enough=enough) as running:
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


class SolverThread:
    """A solver that runs in a thread of its own while the caller takes what it finds, and can be interrupted.

    A context manager. Ctrl-C inside ends the solver, which keeps what it has; leaving it waits for that. So does
    `enough()`, which is asked from time to time, and the time limit, `LATE_S` after the solver should have ended by
    itself; both only where the limit is one of time.
    """

    interrupted = False
    """Whether Ctrl-C came inside, also when the solver had ended by itself."""

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
        """Better schedules as they come: of several that wait, the best, but all when deterministic."""
        going = True
        while going and not self._given_up():
            try:
                waiting = [self._news.get(timeout=None if self._all else _LOOK_S)]
            except Empty:
                continue
            while not self._all and not self._news.empty():
                waiting.append(self._news.get())
            going = None not in waiting
            told = [progress for progress in waiting if progress is not None]
            for line in (line for progress in told for line in progress.log):
                _LOG.info("%s", line)
            yield from [progress.schedule for progress in told if progress.schedule is not None][-1:]

    def _given_up(self) -> bool:
        """Tell the solver to end where it need not go on, or its time is over; whether it does not do so either."""
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

        `hung` for one without a process that goes on, which no one can end.
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


def _exact_input(level: Level, settings: Settings) -> tuple[Problem, Schedule | None]:
    """What the exact solver gets: a problem, and a schedule of it to start from."""
    if settings.congestion:
        return level.problem, level.schedule
    free = replace(level.problem, path_links=np.full_like(level.problem.path_links, -1))
    if level.schedule is None:
        return free, None
    early = rebuild(free, level.schedule)
    return free, early if fits(free, early) else level.schedule


def _options(settings: Settings, start: Schedule | None, run: ExactRun | None) -> Options:
    return Options(
        seconds=exact_seconds(settings) if run is None else run.seconds,
        lower_bound=0 if run is None else run.lower_bound,
        gap=settings.gap,
        seed=settings.seed,
        workers=settings.workers,
        deterministic=settings.deterministic,
        formulation=settings.formulation,
        start=start,
    )


def exact_seconds(settings: Settings) -> float:
    """The exact solver's part of the time: all of it, or what search leaves."""
    limit = settings.time_limit_s
    return max(_EXACT * limit, min(_EXACT_LEAST_S, limit / 2)) if settings.search else limit
