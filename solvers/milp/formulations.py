"""Formulations: the interface of their programs, and the table of formulations."""

import importlib
import math
import time
from dataclasses import dataclass
from typing import Protocol

from solvers.arrays import Floats
from solvers.milp.linear import Linear
from solvers.problem import Problem
from solvers.schedule import Schedule

FORMULATIONS: dict[str, str] = {
    "tight": "solvers.milp.tight.program",
    "paper": "solvers.milp.paper.program",
    "pulp": "solvers.milp.printed_form",
}
"""Name -> module whose `build(problem, limits)` gives the `IntegerProgram`. A formulation is one module and one row."""
HORIZON = 10_000.0
"""Units of time that a schedule takes at most. A vendor lets a binary be off by 1e-6, so that a disjunction with a
big M of the whole horizon gives way by a hundredth of a unit at most."""
TOLERANCE = 1e-6
"""By how much the vendors let rows and whole numbers be missed, as they are asked to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MakespanLimits:
    """Bounds of the optimum, in ticks, that are known when a formulation is built."""

    least: int
    """A lower bound on the makespan."""
    most: int
    """Some optimal schedule ends by then: the makespan of a known schedule, or of a serial one."""
    settle_by: float = math.inf
    """When, on `time.monotonic`, to stop looking for tighter windows: those found by then hold."""
    build_by: float = math.inf
    """When, on the same clock, a program that is not built yet is of no use any more."""

    def check(self) -> None:
        """Asked while a program is built; TimeoutError once it is of no use any more."""
        if time.monotonic() >= self.build_by:
            raise TimeoutError("the limit was over before the program was built")

    @property
    def unit(self) -> float:
        """Ticks in a unit of time that makes `most` at most HORIZON units; 1 where it is anyway."""
        return max(1.0, self.most / HORIZON)


class IntegerProgram(Protocol):
    """An integer program whose objective is the makespan, in units of `limits.unit` ticks."""

    @property
    def linear(self) -> Linear:
        """The program itself."""
        ...

    @property
    def activities(self) -> int:
        """Tasks and transfers that one path can be made of: how often a tolerance can add up in an optimum."""
        ...

    @property
    def binding(self) -> bool:
        """True if no schedule of the problem is shorter than the program's optimum."""
        ...

    @property
    def unsaid(self) -> str:
        """Describe in one line where the program differs from the problem; "" if both have the same optimum."""
        ...

    @property
    def names(self) -> list[str]:
        """[c] a name of its own for each column, of letters, digits and underscores."""
        ...

    def values(self, schedule: Schedule) -> Floats:
        """Return [c] a feasible point that describes a valid schedule of at most `limits.most` ticks, or one no longer.

        Where the program is not `binding`, the point's own makespan may be longer.
        """
        ...

    def schedule(self, values: Floats) -> Schedule:
        """Return the rough schedule that a point [c] describes, to be rebuilt; values may be off by TOLERANCE."""
        ...


class NoScheduleError(ValueError):
    """Raised while a formulation is built: no schedule takes at most `MakespanLimits.most` ticks."""


def formulate(problem: Problem, formulation: str, limits: MakespanLimits) -> IntegerProgram:
    """Return the program of a problem of one or more tasks.

    ValueError for an unknown formulation; NoScheduleError; TimeoutError at `limits.build_by`.
    """
    limits.check()
    if formulation not in FORMULATIONS:
        raise ValueError(f"no formulation is called {formulation!r} - choose one of {', '.join(FORMULATIONS)}")
    program: IntegerProgram = importlib.import_module(FORMULATIONS[formulation]).build(problem, limits)
    return program
