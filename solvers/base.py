"""The one-method interface of a solver."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from solvers.problem import Problem
from solvers.result import Options, Result
from solvers.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Progress:
    """One step of a running solve: a better schedule, a better bound, lines of its log, or several of these."""

    schedule: Schedule | None
    """A better one; None where only something else is new."""
    lower_bound: int
    """Ticks that no schedule can beat."""
    seconds: float
    """Since the solve began."""
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
        """The same solver, which ends once `stop` is set."""
        ...


@runtime_checkable
class Compiling(Protocol):
    """A solver whose first use on a machine compiles for long, which is not counted as its time."""

    def compile_ahead(self) -> None:
        """Compile what a solve will run."""
        ...
