"""What a user may ask of a solve."""

from dataclasses import dataclass, fields

from pesto.core.errors import SolverError, UsageError
from solvers.api import SOLVERS, availability, check_formulation

NEAR = 0.05
"""How much longer than the shortest candidate, as a share of it, one that `robust` chooses may be."""
_KINDS: dict[type, str] = {float: "a number", int: "a whole number", bool: "True or False", str: "a name"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One value holds every option of a solve, to check and to hand on; `pesto.solve` takes each by its name.

    UsageError when one is out of range.
    """

    time_limit_s: float = 60.0
    """Wall-clock seconds of the solve, once the graph is read and what the first plan needs is compiled."""
    gap: float = 0.0
    """Stop at this relative gap of the full graph (and the exact solver at that of the coarse one)."""
    search: bool = True
    """Whether to search op by op after the exact solver, which otherwise has all the time."""
    seed: int = 0
    """Of all random choices, 0 to 2**31 - 1."""
    coarsen_to: int = 200
    """Nodes of the coarse graph that the exact solver gets (Pesto, 3.3: about 200)."""
    merge_time: float = 2.0
    """Cap on a merged node's time, in mean times of a node at the target (3.3); it grows where merging is stuck."""
    merge_members: float = 4.0
    """Cap on a merged node's ops, in mean counts of a node at the target (3.3); it grows where merging is stuck."""
    solver: str = "cpsat"
    """The exact solver: a name of `pesto solvers`."""
    formulation: str = "tight"
    """The integer program that a MILP solver is given; the others have a model of their own."""
    workers: int = 8
    """Threads of the exact solver (CP-SAT needs 8 even on 2 cores), and walks of search at most, one a core."""
    deterministic: bool = False
    """Whether the same input, seed and version give the same plan, at some cost in speed."""
    per_edge: bool = False
    """One transfer an edge, as the paper counts them, in place of one a tensor and target device."""
    congestion: bool = True
    """Whether the exact solver knows that transfers share links; the paper's Fig 5 shows what it costs not to."""
    headroom: float = 0.1
    """Share of each memory that a repair spares at first (ParDNN, 5.1: 10 %), 0 to below 1."""
    placement_only: bool = False
    """Leave the order to the framework: the candidate whose placement is the shortest first in, first out."""
    robust: bool = False
    """Of the candidates within 5 % of the shortest, take the one of least p90 where times are wrong."""

    def __post_init__(self) -> None:
        """Validate."""
        for f in fields(self):
            value, kind = getattr(self, f.name), type(f.default)
            if type(value) is not kind and not (kind is float and type(value) is int):
                raise UsageError(f"{f.name} is {value!r} - give {_KINDS[kind]}")
        if not 0 <= self.time_limit_s < float("inf"):
            raise UsageError(f"the time limit is {self.time_limit_s} s - give 0 or more seconds")
        _check_numbers(self)
        if self.placement_only and self.robust:
            raise UsageError("robust chooses among orders, and placement_only has none - give one of them")
        if self.solver not in SOLVERS:
            raise UsageError(f"no solver is called {self.solver!r} - choose one of {', '.join(SOLVERS)}")
        try:
            check_formulation(self.solver, self.formulation)
        except ValueError as wrong:
            raise UsageError(str(wrong)) from wrong

    def check_installed(self) -> None:
        """SolverError where the exact solver's package is not installed, before any work is done for it."""
        if why_not := availability(self.solver).why_not:
            raise SolverError(why_not)


def _check_numbers(settings: Settings) -> None:
    """UsageError for a number out of range."""
    for name, such_as in (("gap", 0.05), ("headroom", 0.1)):
        if not 0 <= getattr(settings, name) < 1:
            found = getattr(settings, name)
            raise UsageError(f"the {name} is {found} - give a fraction from 0 to below 1, such as {such_as}")
    for name in ("merge_time", "merge_members"):
        if not 1e-3 <= getattr(settings, name) <= 1e6:
            raise UsageError(f"{name} is {getattr(settings, name)} - give a number from 0.001 to 10^6, in mean nodes")
    for name, least, most in (("coarsen_to", 1, 10**6), ("workers", 1, 1024), ("seed", 0, 2**31 - 1)):
        if not least <= getattr(settings, name) <= most:
            raise UsageError(f"{name} is {getattr(settings, name)} - give {least} to {most}")
