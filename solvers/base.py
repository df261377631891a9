"""The one-method interface of a solver, the monitor of its run, and where it lives: vendors are imported late."""

import importlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Protocol, runtime_checkable

import numpy as np

from solvers.problem import Problem
from solvers.result import Limit, Options, Result, Status, wall_limit_s
from solvers.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Progress:
    """One step of a running solve: a better schedule, a better bound, lines of its log, or several of these."""

    schedule: Schedule | None
    """A better schedule; None where only something else is new."""
    lower_bound: int
    """Ticks that no schedule can beat."""
    seconds: float
    """Seconds since the solve began."""
    bound_by: str = ""
    """Source of the lower bound, as in `Result`."""
    log: tuple[str, ...] = ()
    """Lines that the solver itself wrote, in its own words."""


Report = Callable[[Progress], None]
"""Callback that receives the progress of a running solve."""


class UnavailableError(Exception):
    """A solver's program, package or licence is missing: one line, with the remedy."""


class Solver(Protocol):
    """Solves a problem within `options`, telling `report` of every better schedule or bound on the way.

    A lower bound that is told without the name of what it comes from has the solver's.
    """

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """Return the outcome; anything a solver cannot do is a status, not an exception, but for UnavailableError."""
        ...


@runtime_checkable
class Stoppable(Protocol):
    """A solver that runs here, for long, and ends when asked: its engines have processes of their own."""

    def until(self, stop: threading.Event) -> Solver:
        """Return the same solver, which ends once `stop` is set."""
        ...


@runtime_checkable
class Compiling(Protocol):
    """A solver whose first use on a machine compiles for long, which is not counted as its time."""

    def compile_ahead(self) -> None:
        """Compile what a solve will run."""
        ...


_MEMORY = 0.95
"""Weight of a kind's past after its next search (decay factor)."""


class AdaptiveKinds:
    """Draws kinds of neighbourhoods, more often those that pay; the size of a kind follows how its searches end.

    The same random numbers and outcomes give the same draws.
    """

    def __init__(
        self,
        names: Iterable[str],
        rng: np.random.Generator,
        *,
        first: float,
        sizes: tuple[float, float],
        rates: tuple[float, float],
        even: float,
    ) -> None:
        """Begin every kind at the size `first`.

        sizes: least and greatest size. rates: factors on it after a search to the end, and after another. even: share
        of the draws that all kinds divide evenly.
        """
        self._rng, self._sizes, self._rates, self._even = rng, sizes, rates, even
        self._size = dict.fromkeys(names, first)
        self._gain, self._effort = dict.fromkeys(self._size, 1.0), dict.fromkeys(self._size, 1.0)

    def draw(self, names: Sequence[str]) -> tuple[str, int]:
        """Return one of some kinds, and its size."""
        paid = np.array([self._gain[name] / self._effort[name] for name in names])
        share = self._even / len(names) + (1 - self._even) * paid / paid.sum()
        name = names[int(self._rng.choice(len(names), p=share / share.sum()))]
        return name, int(self._size[name])

    def learn(self, name: str, *, closed: bool, better: bool, effort: float) -> None:
        """Take in how a search of a kind went: to its end, with something better found, at which effort."""
        (least, most), (grow, shrink) = self._sizes, self._rates
        self._size[name] = min(max(self._size[name] * (grow if closed else shrink), least), most)
        self._gain[name] = _MEMORY * self._gain[name] + better
        self._effort[name] = _MEMORY * self._effort[name] + effort


OWN = "pesto-placement"
"""The distribution whose version a solver without a vendor has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverEntry:
    """One row of the table of solvers."""

    module: str
    attribute: str
    """Attribute of the module that returns a `Solver` when called with `arguments`."""
    isolated: bool
    """True if it must run in a process of its own: everything with native code that can crash or ignore its limit."""
    package: str | None = None
    """The distribution it needs; None when it needs none beyond the project's own."""
    optional: bool = False
    """True if the package comes with an extra of this project, so that nothing is wrong where it is not installed."""
    confirms: bool = False
    """True if its word that no schedule exists is that of two solvers, and believed without a proof."""
    versions: str | None = None
    """A module whose `version()` is the solver's own, None where it is not here; None: the package's is."""
    polishes: bool = False
    """True if a quick start helps it: it improves on `Options.start`, and makes none by itself."""
    lives: bool = False
    """True if it weighs `Problem.lives`, what comes and goes; what does not is given the problem without them."""
    formulations: tuple[str, ...] = ()
    """The integer programs that it can be given by name; none where it has a model of its own."""
    arguments: tuple[str, ...] = ()

    def load(self) -> Solver:
        """Return the solver; raise ImportError for a missing package, AttributeError when the module lacks it."""
        solver: Solver = getattr(importlib.import_module(self.module), self.attribute)(*self.arguments)
        return solver

    def version(self) -> str | None:
        """Return the version of the solver or its package, else the project's; None where it is not here, or ""."""
        if self.versions is not None:
            version: str | None = importlib.import_module(self.versions).version()
            return version
        try:
            return metadata.version(self.package or OWN)
        except metadata.PackageNotFoundError:
            return None if self.package else ""


class SolveMonitor:
    """The best valid schedule and the best lower bound of one run, at full resolution; safe to call from any thread."""

    def __init__(self, problem: Problem, options: Options, report: Report, *, solver: str, version: str) -> None:
        self.problem, self.options = problem, options
        self.lower_bound, self.bound_by = 0, ""
        self.best: Schedule | None = None
        self._solver, self._version, self._report = solver, version, report
        self._lock, self._began = threading.Lock(), time.monotonic()
        self.better_bound(options.lower_bound, "given")
        if options.start is not None:
            self.better_schedule(options.start)
        if not problem.tasks:
            empty = np.zeros(0, dtype=np.int64)
            names = ("device", "start", "finish", "sent_payload", "sent_to", "sent_start", "sent_finish")
            nothing = Schedule(**dict.fromkeys(names, empty))
            self.better_schedule(nothing)

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def remaining(self) -> float:
        """Seconds that are left of the limit."""
        return self.options.seconds - self.elapsed

    @property
    def clock_s(self) -> float:
        """Seconds until the clock ends the run: what is left of the limit, or far more where that is one of work."""
        return wall_limit_s(self.options.seconds, deterministic=self.options.deterministic) - self.elapsed

    @property
    def open_ticks(self) -> int:
        """Ticks between the bound and the best schedule, 0 without one."""
        return self.best.makespan - self.lower_bound if self.best else 0

    @property
    def closed(self) -> bool:
        """True if the best schedule is proven to be optimal."""
        return self.best is not None and not self.open_ticks

    @property
    def within_gap(self) -> bool:
        """True if the gap is closed as far as was asked for."""
        return self.within(self.options.gap)

    def within(self, gap: float) -> bool:
        """Return True if the best schedule is proven to be so near the optimum."""
        with self._lock:
            return self.best is not None and self.open_ticks <= gap * self.best.makespan

    @property
    def known(self) -> tuple[Schedule | None, int]:
        """The best schedule and the best bound, of one moment."""
        with self._lock:
            return self.best, self.lower_bound

    def better_bound(self, bound: int, by: str = "") -> None:
        """Keep a better lower bound in ticks and its source, "" for the solver, and report it."""
        with self._lock:
            if bound > self.lower_bound:
                self.lower_bound, self.bound_by = bound, by or self._solver
                self._tell(None)

    def better_schedule(self, schedule: Schedule) -> None:
        """Keep a valid schedule that is shorter, and report it."""
        with self._lock:
            if self.best is None or schedule.makespan < self.best.makespan:
                self.best = schedule
                self._tell(schedule)

    def log(self, *lines: str) -> None:
        """Pass on lines of the solver's own log."""
        with self._lock:
            self._tell(None, lines)

    def _tell(self, schedule: Schedule | None, log: tuple[str, ...] = ()) -> None:
        bound, by = self.lower_bound, self.bound_by
        self._report(Progress(schedule=schedule, lower_bound=bound, seconds=self.elapsed, bound_by=by, log=log))

    def result(self, limit: Limit, detail: str) -> Result:
        """Return the outcome: optimal where the bound is met, otherwise feasible, or unknown without a schedule."""
        status = Status.FEASIBLE if self.best else Status.UNKNOWN
        if self.closed:
            status, limit, detail = Status.OPTIMAL, Limit.NONE, ""
        return self._result(status, limit, self.best, detail)

    def infeasible(self, detail: str) -> Result:
        """Return the outcome where the solver finds no schedule possible; whatever it knows otherwise is dropped."""
        return self._result(Status.INFEASIBLE, Limit.NONE, None, detail)

    def _result(self, status: Status, limit: Limit, schedule: Schedule | None, detail: str) -> Result:
        return Result(
            status=status,
            limit=limit,
            schedule=schedule,
            lower_bound=self.lower_bound,
            seconds=self.elapsed,
            solver=self._solver,
            version=self._version,
            detail=detail,
            bound_by=self.bound_by,
        )
