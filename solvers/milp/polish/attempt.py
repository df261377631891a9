"""One small program: a shorter schedule than is known, if the vendor finds one in its slice of the time."""

from collections.abc import Callable
from dataclasses import dataclass

from solvers.arrays import Floats
from solvers.milp.formulations import MakespanLimits, NoScheduleError, formulate
from solvers.milp.separate import run_program
from solvers.milp.tight.time_windows import windows_of
from solvers.milp.vendor import RunRequest, Vendor, VendorOutcome
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild

STEP = 5_000
"""A better schedule is asked for that is shorter by a tick, or by this part of the makespan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSlice:
    """Time that one small program may take, on `time.monotonic`."""

    settle_by: Callable[[], float]
    """When to stop looking for tighter windows, from now."""
    ends: float
    """When a program that is not built yet is of no use any more."""
    ask: Callable[[], RunRequest]
    """Function that returns the limits of the run, from now on."""


def attempt(
    problem: Problem, most: int, least: int, program_of: tuple[Vendor, str], part: RunSlice
) -> tuple[Schedule | None, VendorOutcome | None]:
    """A schedule of a problem that takes `most` ticks or less, if one was found, by a vendor on a formulation.

    No outcome where windows say that there is none, or the time was up first. Whatever the vendor raises is raised.
    """
    run, formulation = program_of
    windows = windows_of(problem, most, part.settle_by())
    if windows is None:
        return None, None
    limits = MakespanLimits(least=min(least, most), most=most, settle_by=part.settle_by(), build_by=part.ends)
    try:
        program = formulate(windows.problem, formulation, limits)
    except (NoScheduleError, TimeoutError):
        return None, None
    heard = _LastIncumbent()
    outcome = run_program(run, program, part.ask(), heard)
    values = heard.values if outcome.values is None else outcome.values
    return None if values is None else rebuild(problem, program.schedule(values)), outcome


class _LastIncumbent:
    """Hears what the vendor finds in a small program, and keeps the latest, in case the outcome is without it."""

    def __init__(self) -> None:
        self.values: Floats | None = None

    @property
    def enough(self) -> bool:
        """Never."""
        return False

    def incumbent(self, values: Floats) -> None:
        """Keep it."""
        self.values = values

    def bound(self, objective: float) -> None:
        """Nothing."""

    def line(self, text: str) -> None:
        """Nothing."""
