"""A lower bound that an exact solver claims to have proven of the graph itself, for which it has no certificate."""

from pesto.core.plans.shared_variables import OF_PINNED
from solvers.api import SOLVERS
from solvers.bounds.evidence import FullBound

_SEARCH = "'s search of the graph itself"


def best_bound(ticks: int, solver: str, known: FullBound) -> FullBound:
    """The higher of what is known and what a solver says to have proven; of the former the evidence is kept."""
    return FullBound(ticks, solver + _SEARCH, known.evidence) if ticks > known.ticks else known


def claimant(name: str) -> str:
    """The solver that claims the bound of this name; empty for a bound that follows by arithmetic."""
    argument = name.partition(OF_PINNED)[0]
    solver = argument.removesuffix(_SEARCH)
    return solver if solver != argument and solver in SOLVERS else ""
