"""What every vendor of MILP solvers is asked and answers: the seam that an adapter fills with one function."""

from dataclasses import dataclass
from typing import Protocol

from solvers.arrays import Floats
from solvers.milp.linear import Linear
from solvers.result import Limit, Status


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ask:
    """The settings of one run."""

    seconds: float
    gap: float
    """Stop at a relative gap (objective - bound) / objective of at most this."""
    seed: int
    threads: int
    start: Floats | None
    """[c] a feasible point; the vendor's first incumbent."""


class Hear(Protocol):
    """Who is told what a running vendor finds; may be called from any thread."""

    def incumbent(self, values: Floats) -> None:
        """A feasible point [c] that the vendor has found."""
        ...

    def bound(self, objective: float) -> None:
        """A lower bound on the objective that the vendor has proven; infinite values are ignored."""
        ...

    def line(self, text: str) -> None:
        """A line of the vendor's own log."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What the vendor itself says at the end of a run."""

    status: Status
    """OPTIMAL, FEASIBLE, INFEASIBLE or UNKNOWN."""
    limit: Limit
    values: Floats | None
    """[c] its best feasible point, None when it has none."""
    bound: float
    """Its lower bound on the objective, -inf when it has none."""
    detail: str = ""


class Vendor(Protocol):
    """Runs one vendor's solver on a program, within the limit of `ask`."""

    def __call__(self, linear: Linear, ask: Ask, hear: Hear) -> Outcome:
        """The outcome, in the vendor's own words; RuntimeError when the vendor refuses the program."""
        ...
