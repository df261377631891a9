"""Options of a solve. Each is declared here and nowhere else: the command line, jobs, Python and the docs follow."""

from dataclasses import dataclass
from typing import Annotated, TypedDict

from pesto.core.errors import SolverError, UsageError
from pesto.core.option import check_options, option

NEAR = 0.05
"""How much longer than the shortest candidate, as a share of it, one that `robust` chooses may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One value holds every option of a solve, to check and to hand on; `pesto.solve` takes each by its name.

    UsageError when one is out of range.
    """

    time_limit_s: Annotated[
        float,
        option(
            "Time limit of solver and search together, in wall-clock seconds, once the graph is read and what the "
            "first plan needs is compiled.",
            "Search", ge=0, called="the time limit", unit="s", give="0 or more seconds",
        ),
    ] = 60.0  # fmt: skip
    gap: Annotated[
        float,
        option(
            "Stop at this relative gap of the full graph (and the exact solver at that of the coarse one).",
            "Search", ge=0, lt=1, called="the gap", give="a fraction from 0 to below 1, such as 0.05",
        ),
    ] = 0.0  # fmt: skip
    search: Annotated[
        bool, option("Search op by op after the exact solver, which otherwise has all the time.", "Search")
    ] = True
    seed: Annotated[int, option("Seed of all random choices, 0 to 2**31 - 1.", "Search", ge=0, le=2**31 - 1)] = 0
    coarsen_to: Annotated[
        int,
        option(
            "Nodes of the coarse graph that the exact solver gets (Pesto, 3.3: about 200).",
            "Expert", ge=1, le=10**6,
        ),
    ] = 200  # fmt: skip
    merge_time: Annotated[
        float,
        option(
            "Cap on a coarse node's compute time, as a multiple of the mean node at the target (3.3); it grows where "
            "merging is stuck.",
            "Expert", ge=1e-3, le=1e6, give="a number from 0.001 to 10^6, in mean nodes",
        ),
    ] = 2.0  # fmt: skip
    merge_members: Annotated[
        float,
        option(
            "Cap on the number of ops in a coarse node, as a multiple of the mean at the target (3.3); it grows where "
            "merging is stuck.",
            "Expert", ge=1e-3, le=1e6, give="a number from 0.001 to 10^6, in mean nodes",
        ),
    ] = 4.0  # fmt: skip
    solver: Annotated[
        str, option("Exact solver: a name of `pesto solvers`.", "Search", metavar="NAME", completes="solvers")
    ] = "cpsat"
    formulation: Annotated[
        str,
        option(
            "Integer program of a MILP solver: tight, paper or pulp; the other solvers have a model of their own.",
            "Expert",
        ),
    ] = "tight"  # fmt: skip
    workers: Annotated[
        int,
        option(
            "Threads for the exact solver (CP-SAT needs 8 even on 2 cores), and maximum number of parallel search "
            "walks, one a core.",
            "Search", ge=1, le=1024,
        ),
    ] = 8  # fmt: skip
    deterministic: Annotated[
        bool, option("Give the same plan for the same input, seed and version, at some cost in speed.", "Search")
    ] = False
    per_edge: Annotated[
        bool,
        option(
            "Charge one transfer per edge (as in the paper) instead of one per tensor and destination device.", "Expert"
        ),
    ] = False
    congestion: Annotated[
        bool,
        option(
            "Let the exact solver model that transfers share links; the paper's Fig 5 shows what it costs not to.",
            "Expert",
        ),
    ] = True  # fmt: skip
    headroom: Annotated[
        float,
        option(
            "Fraction of each device's memory kept free by the first repair attempt (ParDNN, 5.1: 10 %), 0 to below 1.",
            "Expert", ge=0, lt=1, called="the headroom", give="a fraction from 0 to below 1, such as 0.1",
        ),
    ] = 0.1  # fmt: skip
    placement_only: Annotated[
        bool,
        option(
            "Leave the order to the framework: choose the placement that is the shortest when ops run first in, first "
            "out.",
            "Search",
        ),
    ] = False  # fmt: skip
    robust: Annotated[
        bool,
        option(
            "Choose the candidate with the lowest p90 makespan under cost noise, of those within 5 % of the shortest.",
            "Search",
        ),
    ] = False  # fmt: skip

    def __post_init__(self) -> None:
        """Validate."""
        check_options(self)
        if self.placement_only and self.robust:
            raise UsageError.build(
                "robust chooses among orders, and placement_only has none", remedy="give one of them"
            )
        from solvers.api import SOLVERS, check_formulation  # who reads a request alone loads no solver

        if self.solver not in SOLVERS:
            raise UsageError.build(f"no solver is called {self.solver!r}", remedy=f"choose one of {', '.join(SOLVERS)}")
        try:
            check_formulation(self.solver, self.formulation)
        except ValueError as wrong:
            raise UsageError.of(wrong) from wrong

    def check_installed(self) -> None:
        """SolverError where the exact solver's package is not installed, before any work is done for it."""
        from solvers.api import availability

        if why_not := availability(self.solver).why_not:
            raise SolverError.of(why_not)


class SettingsOptions(TypedDict, total=False):
    """The fields of `Settings` as keyword arguments, for type checkers; a test holds the two together."""

    time_limit_s: float
    gap: float
    search: bool
    seed: int
    coarsen_to: int
    merge_time: float
    merge_members: float
    solver: str
    formulation: str
    workers: int
    deterministic: bool
    per_edge: bool
    congestion: bool
    headroom: float
    placement_only: bool
    robust: bool
