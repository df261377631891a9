"""The one-method interface of a solver, and where each lives: vendors are imported late, by nothing else."""

import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Protocol, runtime_checkable

from solvers.problem import Problem
from solvers.result import Options, Result
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
