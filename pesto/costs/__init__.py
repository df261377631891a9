"""What each op costs on each device, and how we know. Add a cost model: one file here and one row in `flow`."""

from dataclasses import dataclass

import numpy as np

from pesto.errors import InputError
from solvers.arrays import Bools, Floats, bools, floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costs:
    """Seconds of every op on every device of a cluster, each labelled measured or modelled.

    InputError when a time is negative or infinite.
    """

    compute_s: Floats
    """[n, d] seconds; NaN where the op cannot run."""
    measured: Bools
    """[n] whether the op's times were measured (or given by the graph's own source)."""
    source: str
    """One line: model and presets, or the profile's file and date-free description."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        object.__setattr__(self, "compute_s", floats(self.compute_s))
        object.__setattr__(self, "measured", bools(self.measured))
        if self.compute_s.ndim != 2 or len(self.measured) != len(self.compute_s):
            raise InputError(f"costs: compute_s {self.compute_s.shape} and measured {self.measured.shape} do not fit")
        if (np.isinf(self.compute_s) | (self.compute_s < 0)).any():
            raise InputError("costs: a time is negative or infinite")

    @property
    def basis(self) -> str:
        """'measured', 'modelled', or 'mixed' with the share of ops that were measured."""
        share = float(self.measured.mean()) if len(self.measured) else 0.0
        if share in (0.0, 1.0):
            return "measured" if share else "modelled"
        return f"mixed ({share:.0%} of ops measured)"
