"""Options of a planned run and of its reference; imported without TensorFlow."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pesto.core.errors import UsageError
from pesto.core.files.json import quoted

CPU, GPU = "cpu", "gpu"
UNPLACED, STOCK = "unplaced", "stock"
Batch = Mapping[str, Any] | Path
"""Arrays by the name of their feed, or a .npz file of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a planned run; UsageError for less than one step."""

    steps: int = 20
    """Timed steps, after a few traced ones to warm up."""
    devices: str | None = None
    """CPU for logical CPUs, GPU for the devices that the plan names; None takes GPU when the process has them."""
    order: bool = True
    """True enforces the plan's order as well as its placement."""
    reference: str = UNPLACED
    """Reference without a plan: UNPLACED, without graph rewrites, bit for bit, or STOCK, with all of them."""

    feeds: Batch | None = None
    """A batch of one's own; None for random values."""

    def __post_init__(self) -> None:
        """Validate."""
        if self.reference not in (UNPLACED, STOCK):
            raise UsageError.build(
                f"run: the reference {quoted(self.reference)} is not known", remedy="give unplaced or stock"
            )
        if self.steps < 1 or self.devices not in (None, CPU, GPU):
            raise UsageError.build(
                f"run: {self.steps} steps on {quoted(self.devices)}", remedy="give at least 1, on cpu or gpu"
            )
