"""The exact solver in threads beside all else: on the coarse graph or a small one itself, and on windows of a plan.

Every schedule that the solver finds on the way is expanded to the full graph. The bound of the full graph is looked for
in a thread, too.
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
from pesto.core.plans.plan import CoarseSolve, best_bound
from pesto.core.settings import Settings
from pesto.planning.coarsen import Coarsening, coarsen
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.quick_candidates import Level
from pesto.planning.solving.tracker import QUICK_SHARE, Stage, Tracker
from solvers import ANSWERED, FAILED, Limit, Options, Problem, Progress, Result, Schedule, Status, api
from solvers.arrays import ints
from solvers.bounds.full import full_bound
from solvers.memory.usage import fits
from solvers.timing.rebuild import rebuild

T = TypeVar("T")
LIVES = "memory is tight: the graph itself, with its tensors' lives"
_PESTO_LOG = logging.getLogger("pesto")
_BOUND_SHARE, _BOUND_S = 0.2, 20.0
"""Share of the time limit, and maximum seconds, after which no distance is raised any more."""


@contextmanager
def strengthen_bound(tracker: Tracker) -> Iterator[None]:
    """While the context is open, another thread looks for a better bound and tells the tracker; leaving waits for it.

    Nobody waits past the time limit, after an exception (Ctrl-C say), or for what the gap does not need; a bound that
    comes then is not taken. When deterministic it is not cut by the clock, and ends before anything else begins. What
    goes wrong in the thread is a warning: a weaker bound still holds.
    """
    settings, problem, deadlines = tracker.settings, tracker.evaluator.problem, tracker.deadlines
    seconds = math.inf if settings.deterministic else min(_BOUND_SHARE * settings.time_limit_s, _BOUND_S)
    best, late, taking = tracker.best, threading.Event(), threading.Lock()

    def look() -> None:
        try:
            with tracker.ledger.bounding():
                bound = full_bound(problem, upper=best.makespan if best is not None else None, seconds=seconds)
            with taking:
                if not late.is_set():
                    tracker.strengthen(bound)
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
        while not running.done() and deadlines.left_s > 0 and tracker.gap > settings.gap:
            wait([running], timeout=min(deadlines.left_s, _LOOK_S))
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
    """Outcome of the exact solver on the coarse graph, or on a small graph itself."""

    coarsening: Coarsening
    result: Result
    """Its result; without congestion that of the problem without links."""
    last: Candidate | None
    """Expansion of its last schedule, which an earlier one may beat; None if it has none better than its start."""
    start: QuickStart | None
    """Schedule that it started from; None if memory defeats the list scheduler."""
    struck: bool
    """True if Ctrl-C came while it ran, or while its last answers were taken in."""

    @property
    def useless(self) -> bool:
        """True if the engine failed or never began, so that this solve does not start it again."""
        return self.result.status in FAILED or not api.has_begun(self.result)

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C ended it, here or in its process: it keeps what it had, and nothing further is begun."""
        return self.struck or self.result.limit is Limit.INTERRUPT

    def provenance(self) -> CoarseSolve:
        """Return the result as a plan records it, without a schedule after a failure: that is what it was given."""
        coarsening, result = self.coarsening, self.result
        own = result.schedule if result.status in ANSWERED else None
        return CoarseSolve(
            nodes=coarsening.nodes, reason=coarsening.reason, solver=result.solver, version=result.version,
            status=str(result.status), limit=str(result.limit), makespan_ticks=own.makespan if own else None,
            lower_bound_ticks=result.lower_bound, detail=result.detail, bound_by=result.bound_by,
        )  # fmt: skip


def solve_coarse(
    evaluator: CandidateEvaluator,
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
        device, rank, rule = evaluator.expand(level.coarsening, real)
        return evaluator.ordered("coarse", f"{by} on {level.coarsening.nodes} nodes, {rule}", device, rank)

    problem, start = build_exact_input(level, settings)
    run = run or ExactRun(engine=api.solve, seconds=exact_seconds(settings), lower_bound=0)
    options = Options(
        seconds=run.seconds, lower_bound=run.lower_bound, gap=settings.gap, seed=settings.seed,
        workers=settings.workers, deterministic=settings.deterministic, formulation=settings.formulation, start=start,
    )  # fmt: skip
    began = last = None
    if start is not None:
        began = QuickStart(makespan=start.makespan, expanded=expanded(start, f"{level.by}, the start,"))
        if settings.congestion:
            yield began.expanded
    with SolverThread(problem, settings.solver, options, by=run.engine, enough=enough) as running:
        for schedule in running.schedules():
            yield expanded(schedule, settings.solver)
    result = running.result()
    if result.schedule is not None and result.schedule is not start:  # nothing of its own otherwise
        last = expanded(result.schedule, settings.solver)
        yield last
    answered = last if result.status in ANSWERED else None
    return ExactOutcome(
        coarsening=level.coarsening, result=result, last=answered, start=began, struck=running.interrupted
    )


def build_exact_input(level: Level, settings: Settings) -> tuple[Problem, Schedule | None]:
    """The exact solver's problem, without links if there is no congestion, and a schedule of it to start from."""
    if settings.congestion:
        return level.problem, level.schedule
    free = replace(level.problem, path_links=np.full_like(level.problem.path_links, -1))
    early = None if level.schedule is None else rebuild(free, level.schedule)
    return free, early if early is not None and fits(free, early) else level.schedule


_EXACT, _EXACT_LEAST_S = 0.15, 5.0
"""Share of the time limit for the exact solver if search follows; at least these seconds, or half of the limit."""


def exact_seconds(settings: Settings) -> float:
    """Return the exact solver's seconds of the time limit: all of them, or what search leaves."""
    limit = settings.time_limit_s
    return max(_EXACT * limit, min(_EXACT_LEAST_S, limit / 2)) if settings.search else limit


_TARGETS = 2
"""A graph of fewer than this multiple of the coarsening target is not coarsened for the exact solver: 400 ops by
default."""
_SHARE = 0.8
"""Share of the time limit for the exact solver on a graph itself, if search follows."""
_ALONE = 120
"""Ops up to which CP-SAT proves more without windows: in a minute (1 to 3 CPU seconds on a busy machine) a grid of
32 ops keeps a gap of 0 %, with windows 0.97 %, a series-parallel graph of 100 ops 0.10 %, with windows 0.54 %."""


def is_small(problem: Problem, settings: Settings) -> bool:
    """Return True if the exact solver gets the graph itself: that is small."""
    return 0 < problem.tasks < _TARGETS * settings.coarsen_to


def full_graph_run(problem: Problem, settings: Settings, lower_bound: int) -> ExactRun:
    """Return how the exact solver is run on a graph itself: for most of the time, from a known bound in ticks.

    Without congestion it gets a problem without links, for which a bound of the graph need not hold.
    """
    seconds = _SHARE * settings.time_limit_s if settings.search else settings.time_limit_s
    engine = api.solve_whole if problem.tasks <= _ALONE else api.solve
    return ExactRun(engine=engine, seconds=seconds, lower_bound=lower_bound if settings.congestion else 0)


def full_graph_level(evaluator: CandidateEvaluator, best: Candidate | None) -> Level:
    """Return the full graph as a coarse graph of itself, to start from the best plan so far."""
    problem, every_op = evaluator.problem, np.arange(evaluator.problem.tasks)
    itself = replace(
        coarsen(problem, problem.tasks), node_of=every_op, rank=evaluator.topological, reason="the graph itself",
        rounds=(),
    )  # fmt: skip
    schedule, by = (None, "") if best is None else (best.timeline.schedule, best.name)
    return Level(coarsening=itself, problem=problem, schedule=schedule, by=by)


def exact_with_memory(evaluator: CandidateEvaluator, level: Level, tracker: Tracker) -> Level:
    """Return the graph with its tensors' lives if `level` has all ops and the shortest candidate does not fit.

    Return `level` itself otherwise: a coarse graph's nodes have no lives of their own. The schedule is the best plan's.
    """
    tasks, best = evaluator.problem.tasks, tracker.best
    shorter = [c for c in tracker.candidates.values() if best is None or c.makespan < best.makespan]
    if level.coarsening.nodes < tasks or all(c.fits for c in shorter):
        return level
    coarsening = replace(
        level.coarsening, node_of=ints(np.arange(tasks)), rank=evaluator.topological, reason=LIVES, rounds=()
    )
    problem = add_lifetimes(evaluator.problem, evaluator.graph, per_edge=evaluator.per_edge)
    schedule = None if best is None else best.timeline.schedule
    return Level(coarsening=coarsening, problem=problem, schedule=schedule, by="" if best is None else best.name)


_STARTS = 2
"""An exact solver's process takes about this multiple of the time to start annealing."""


def reserved_seconds(tracker: Tracker) -> float:
    """Return the seconds that the first round of search leaves the exact solver, which comes after it."""
    problem, settings = tracker.evaluator.problem, _remaining(tracker, followed=True)
    if _too_short(tracker, settings.time_limit_s):
        return 0.0
    return full_graph_run(problem, settings, 0).seconds if is_small(problem, settings) else exact_seconds(settings)


def solve_exactly(tracker: Tracker, level: Level, *, followed: bool) -> ExactOutcome | None:
    """Solve the graph itself exactly if that is small, which bounds it, else the coarse one.

    By the clock, it is not started once the gap is met, or if it would hardly begin in what is left of the time; then
    return None. If none of its plans of a small graph itself fits the memory, the coarse one, which estimates peaks,
    comes after it. followed: True if search comes after it. Raise KeyboardInterrupt if Ctrl-C ended the coarse one.
    """
    evaluator = tracker.evaluator
    problem, settings = evaluator.problem, _remaining(tracker, followed=followed)

    def enough() -> bool:
        return tracker.gap <= settings.gap

    if (enough() and (settings.gap > 0 or not settings.deterministic)) or _too_short(tracker, settings.time_limit_s):
        return None
    if not is_small(problem, settings):
        posed = exact_with_memory(evaluator, level, tracker)
        return tracker.run("solve", solve_coarse(evaluator, posed, settings, enough=enough))
    run = full_graph_run(problem, settings, tracker.bound.ticks if tracker.best is not None else 0)
    posed = exact_with_memory(evaluator, full_graph_level(evaluator, tracker.best), tracker)
    outcome = tracker.run("solve", solve_coarse(evaluator, posed, settings, run, enough))
    if outcome.result.status in ANSWERED:
        bound = best_bound(outcome.result.lower_bound, outcome.result.solver, tracker.bound)
        tracker.strengthen(bound, by="exact")
    if tracker.best is None and not outcome.interrupted:
        settings = _remaining(tracker, followed=followed)
        if tracker.run("solve", solve_coarse(evaluator, level, settings, enough=enough)).interrupted:
            raise KeyboardInterrupt
    return outcome


def _remaining(tracker: Tracker, *, followed: bool) -> Settings:
    """Return the settings with the time that is left; a little less if nothing follows that could end late instead."""
    settings, left_s = tracker.settings, tracker.deadlines.left_s
    if settings.deterministic:
        return settings
    return replace(settings, time_limit_s=left_s if followed else left_s - min(LATE_S, left_s / 4))


def engine_start_s(tracker: Tracker) -> float:
    """Return the seconds that an engine takes to begin: as coarse graphs did; 0 unless half the time is over."""
    return tracker.ledger.stages_s["coarsen"] if tracker.deadlines.past(QUICK_SHARE) else 0.0


def _too_short(tracker: Tracker, seconds: float) -> bool:
    """Return True if a plan fits, and a process would take these seconds to start."""
    has_process = tracker.settings.solver in api.WINDOWS
    return tracker.best is not None and has_process and seconds <= _STARTS * engine_start_s(tracker)


WINDOW_SHARE = 0.1
"""Weight of the first turn of windows, beside about 1 of all rounds of annealing together; 0 for no windows."""
_MORE, _LESS, _LEAST = 2.0, 0.5, 0.05
"""Factors of the weight after a turn that gained more a second than annealing before it, and after one that gained
less; and its minimum."""
_MOST_TASKS = 40_000
"""Ops beyond which there are no windows: to try one takes as long as to run the plan."""
_OTHERWISE = "cpsat"
"""Engine of windows if the solver has none."""


def engine_of(settings: Settings) -> str:
    """Return the name of the engine that searches windows."""
    return settings.solver if settings.solver in api.WINDOWS else _OTHERWISE


class WindowTurns:
    """Turns of windows in one solve, with their weight beside annealing."""

    def __init__(
        self,
        evaluator: CandidateEvaluator,
        planning: Problem,
        settings: Settings,
        enough: Callable[[], bool] | None = None,
    ) -> None:
        self.evaluator, self._planning, self._settings = evaluator, planning, settings
        self._enough, self._turns = enough, 0
        many = settings.deterministic or planning.tasks > _MOST_TASKS
        self.weight = 0.0 if many else WINDOW_SHARE
        """Weight of the next turn; 0 if there are no windows, or an engine has failed."""

    def turn(self, start: Schedule, seconds: float, rate: float) -> Iterator[Candidate]:
        """Yield better plans as they are found, then set the weight by the gain against annealing's ticks a second.

        A failure is a warning, and the end of windows. Raise KeyboardInterrupt after Ctrl-C, once all plans are
        yielded.
        """
        p, settings, engine = self._planning, self._settings, engine_of(self._settings)
        held = np.zeros_like(p.capacity)
        np.add.at(held, p.location[start.device], p.memory)
        roomy = p.holding(capacity=np.maximum(p.capacity, held))
        self._turns += 1
        options = Options(
            seconds=seconds, seed=(settings.seed + self._turns * 7919) % 2**31, workers=settings.workers,
            formulation=settings.formulation, start=start,
        )  # fmt: skip
        began, best = time.monotonic(), start.makespan
        with SolverThread(roomy, engine, options, by=api.improve, enough=self._enough) as running:
            for schedule in running.schedules():
                candidate = self.evaluator.scheduled("windows", f"windows searched by {engine}", schedule)
                candidate = self.evaluator.priced(candidate)
                if candidate.fits:
                    best = min(best, candidate.makespan)
                yield candidate
        result = running.result()
        if result.status in FAILED or not api.has_begun(result):
            self.weight = 0.0
            _PESTO_LOG.warning("windows by %s failed: %s", engine, result.detail)
        if running.interrupted or result.limit is Limit.INTERRUPT:
            raise KeyboardInterrupt
        gained = (start.makespan - best) / max(time.monotonic() - began, 1e-3)
        self.weight = max(self.weight * (_MORE if gained > max(rate, 0.0) else _LESS), min(_LEAST, self.weight))
