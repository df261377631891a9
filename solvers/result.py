"""Options and result of a solver. A failure is a result of its own status, never a number."""

import reprlib
from dataclasses import dataclass, fields
from enum import StrEnum
from numbers import Integral, Real
from types import NoneType, UnionType

from solvers.arguments import expect
from solvers.schedule import Schedule


class Status(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    """A schedule whose makespan is the lower bound."""
    FEASIBLE = "feasible"
    """A schedule, not proven to be the best."""
    INFEASIBLE = "infeasible"
    """Proven: there is no schedule."""
    UNKNOWN = "unknown"
    """Neither a schedule nor a proof within the limits."""
    CRASHED = "crashed"
    """The solver ended by an error."""
    HUNG = "hung"
    """The solver did not stop in time, and was killed."""
    INVALID = "invalid"
    """The solver's answer failed the checker."""
    MISSING = "missing"
    """The solver, or something that it needs, is not installed."""


class Limit(StrEnum):
    """Reason why a solve stopped before its proof."""

    NONE = "none"
    """Nothing: the solve ended by itself."""
    TIME = "time"
    """Its time limit."""
    GAP = "gap"
    """A relative gap that was asked for."""
    INTERRUPT = "interrupt"
    """Ctrl-C, SIGTERM or the caller."""
    UNCONFIRMED = "unconfirmed"
    """The solver says that no schedule exists, which nothing confirms."""
    OTHER = "other"
    """A limit of the solver's own."""


ANSWERED = frozenset({Status.OPTIMAL, Status.FEASIBLE})
"""Statuses of an answer with a schedule."""
FAILED = frozenset({Status.CRASHED, Status.HUNG, Status.INVALID, Status.MISSING})
"""Statuses that say that something is wrong with the solver or its answer."""


NOT_BEGUN = "its process had not begun to solve"
"""The detail of a run that was stopped before its solver was loaded, or how it begins."""
SEEDS = 2**31
"""Exclusive upper limit of the seeds that all solvers can be given."""
_KINDS: dict[type, tuple[type | UnionType, str]] = {
    float: (Real, "a number"), int: (Integral, "a whole number"), bool: (bool, "True or False"), str: (str, "a name"),
    NoneType: (Schedule | None, "a solvers.Schedule"),
}  # fmt: skip
"""By the type of a default: what a value must be, and how to say it."""


_PATIENCE, _PATIENCE_S = 10.0, 300.0
"""Times the limit, and seconds beyond that, after which the clock ends a run whose limit is one of work."""


def wall_limit_s(seconds: float, *, deterministic: bool) -> float:
    """Return the seconds after which the clock ends a run: the limit, or far more where the limit is one of work."""
    return _PATIENCE * seconds + _PATIENCE_S if deterministic else seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings that every solver understands."""

    seconds: float = 60.0
    """Wall-clock limit in seconds; when deterministic, a measure of work."""
    gap: float = 0.0
    """Stop at a relative gap (makespan - bound) / makespan of at most this."""
    seed: int = 0
    """Seed of the solver's random choices, 0 to 2**31 - 1."""
    workers: int = 8
    """Threads; CP-SAT's portfolio needs 8 even on 2 cores (it proves far less with fewer)."""
    deterministic: bool = False
    """The same input, seed and version give the same answer, at some cost in speed."""
    start: Schedule | None = None
    """A valid schedule to start from; the answer is never worse."""
    lower_bound: int = 0
    """Ticks: a lower bound on the makespan that was proven elsewhere, and is believed."""
    formulation: str = "tight"
    """Which integer program a MILP solver is given, "tight", "paper" or "pulp"; others take "tight" alone."""

    def __post_init__(self) -> None:
        """Raise TypeError for a value of another type; ValueError on a negative limit or gap, or no worker."""
        for f in fields(self):
            expect(f.name, getattr(self, f.name), *_KINDS[type(f.default)])
        if not 0 <= self.seed < SEEDS:
            raise ValueError(f"seed is {self.seed} - give 0 to {SEEDS - 1}")
        if not self.seconds >= 0 or not self.gap >= 0 or self.workers < 1 or self.lower_bound < 0:
            raise ValueError(f"seconds, gap and lower_bound must be >= 0 and workers >= 1: {self}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """The outcome of one solve; raise ValueError when the status contradicts the rest.

    A failed solver (crashed, hung, invalid, missing) may still carry the best schedule that it streamed before and
    a bound that holds; `detail` says in one line what happened.
    """

    status: Status
    """How the solve ended."""
    limit: Limit = Limit.NONE
    """Limit that stopped the solve before its proof."""
    schedule: Schedule | None
    """The best that was found, checked."""
    lower_bound: int
    """Ticks; valid in every status (0 when nothing better is known)."""
    seconds: float
    """Measured wall-clock seconds of the solve."""
    solver: str
    """Name in the table of solvers."""
    version: str
    """Version of the solver's package; "" where it has none."""
    detail: str = ""
    """One line on what happened; "" where the status says all."""
    bound_by: str = ""
    """Source of the lower bound: an argument of `quick_bounds`, a solver, or "given"; "" where it is 0."""

    def __post_init__(self) -> None:
        """Raise ValueError for a result that cannot be."""
        if self.status in ANSWERED and self.schedule is None:
            raise ValueError(f"status {self.status} without a schedule")
        if self.status in (Status.INFEASIBLE, Status.UNKNOWN) and self.schedule is not None:
            raise ValueError(f"status {self.status} with a schedule")
        if self.lower_bound < 0 or (self.schedule is not None and self.lower_bound > self.schedule.makespan):
            raise ValueError(f"lower bound {self.lower_bound} is negative or above the makespan")
        if self.status is Status.OPTIMAL and self.schedule and self.lower_bound != self.schedule.makespan:
            raise ValueError("an optimal schedule's makespan is its lower bound")

    def __repr__(self) -> str:
        """Return one line, without arrays."""
        by = f"{self.status} by {self.solver:.20} {self.version:.12}".strip()
        if self.status in FAILED:
            return f"Result({by}: {reprlib.repr(self.detail)})"
        best = "no schedule" if self.schedule is None else f"makespan {self.schedule.makespan}"
        return f"Result({by}, {best}, lower bound {self.lower_bound}, {self.seconds:.2f} s)"

    @property
    def gap(self) -> float | None:
        """`relative_gap` of schedule and bound; None without a schedule."""
        return None if self.schedule is None else relative_gap(self.schedule.makespan, self.lower_bound)


def relative_gap(makespan: float, bound: float) -> float:
    """Return (makespan - bound) / makespan, the share that may still be saved; 0 for a makespan of 0."""
    return (makespan - bound) / makespan if makespan else 0.0
