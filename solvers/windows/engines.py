"""Engines that search a window: CP-SAT, or any MILP vendor on any formulation, loaded on demand."""

import importlib
import time
from collections.abc import Callable
from typing import NamedTuple

from solvers.milp.polish.attempt import STEP, RunSlice, attempt
from solvers.milp.solver import Milp
from solvers.milp.vendor import RunRequest
from solvers.problem import Problem
from solvers.result import Options, Status
from solvers.schedule import Schedule

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
    """Windows at a time."""


def engine(name: str, options: Options, cores: int) -> Engine:
    """CP-SAT, or the vendor of that name; UnavailableError or ImportError where it is not here."""
    if name == CPSAT:
        shorter = importlib.import_module("solvers.cpsat.one_window").shorter

        def by_cpsat(problem: Problem, start: Schedule, seconds: float, seed: int) -> WindowResult:
            return WindowResult(*shorter(problem, start, effort=_EFFORT, seconds=seconds, seed=seed))

        return Engine(by_cpsat, 14, min(options.workers, cores))
    vendor: Milp = importlib.import_module(f"solvers.milp.vendors.{name}").solver()

    def by_program(problem: Problem, start: Schedule, seconds: float, seed: int) -> WindowResult:
        return _attempted(vendor, options.formulation, problem, start, seconds, seed)

    # Of two runs of HiGHS in one process the second waits.
    return Engine(by_program, 10, 1)


def _attempted(
    vendor: Milp, formulation: str, problem: Problem, start: Schedule, seconds: float, seed: int
) -> WindowResult:
    now = time.monotonic()
    ask = RunRequest(seconds=min(seconds, _SLICE_S), gap=0.0, seed=seed, threads=1, start=None)
    settle_by = now + _SETTLING * ask.seconds
    part = RunSlice(settle_by=lambda: settle_by, ends=now + ask.seconds, ask=lambda: ask)
    most = start.makespan - max(1, start.makespan // STEP)
    if most < 0:
        return WindowResult(None, closed=True)
    found, outcome = attempt(problem, most, 0, (vendor.run, formulation), part)
    closed = outcome is None or outcome.status in (Status.OPTIMAL, Status.INFEASIBLE)
    better = found if found is not None and found.makespan < start.makespan else None
    return WindowResult(better, closed, outcome is not None and outcome.left)
