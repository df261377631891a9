"""The result of a method for labelling problems."""

from dataclasses import dataclass

from solvers.arrays import Ints, ints
from solvers.result import ANSWERED, Limit, Status, relative_gap


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelResult:
    """The outcome of one method on one problem. ValueError when the status contradicts the rest."""

    status: Status
    """OPTIMAL: the value is the bound. FEASIBLE: labels, without that proof. INFEASIBLE: proven that all labels are
    forbidden. UNKNOWN: neither labels nor a proof."""
    method: str
    """Name in the table of methods."""
    labels: Ints | None
    """[n] the best labels that were found; they have passed `judge`."""
    value: int | None
    """Cost of the labels, as `judge` computes it."""
    bound: int
    """No labels cost less; 0 where nothing is known."""
    limit: Limit = Limit.NONE
    """Limit that stopped the method before its proof; NONE if it ended by itself."""
    seconds: tuple[tuple[str, float], ...] = ()
    """Wall-clock seconds of each phase."""
    eliminated: int = 0
    """Variables that elimination alone has dealt with, before any other phase."""
    remained: int = 0
    """Variables that were left after it."""
    detail: str = ""
    """One line on what happened; empty where the status says all."""

    def __post_init__(self) -> None:
        """Copy, freeze, and refuse what cannot be."""
        if self.labels is not None:
            object.__setattr__(self, "labels", ints(self.labels))
        if (self.status in ANSWERED) != (self.labels is not None) or (self.labels is None) != (self.value is None):
            raise ValueError(f"status {self.status} contradicts the labels")
        if self.value is not None and not 0 <= self.bound <= self.value:
            raise ValueError(f"bound {self.bound} is negative or above the value {self.value}")
        if self.status is Status.OPTIMAL and self.bound != self.value:
            raise ValueError("an optimal value is its bound")

    def __repr__(self) -> str:
        """One line, without arrays."""
        found = "no labels" if self.value is None else f"value {self.value}"
        return f"Answer({self.status} by {self.method}, {found}, bound {self.bound}, {self.total_seconds:.2f} s)"

    @property
    def gap(self) -> float | None:
        """(value - bound) / value; None without labels."""
        return None if self.value is None else relative_gap(self.value, self.bound)

    @property
    def total_seconds(self) -> float:
        """Total seconds of all phases."""
        return sum(took for _, took in self.seconds)
