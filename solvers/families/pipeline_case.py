"""A chain with what it is to be laid on, and what is known of the least period by construction."""

from dataclasses import dataclass
from fractions import Fraction

from solvers.pipelining.chain import Allocation, Chain


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineCase:
    """A chain to be pipelined. None where nothing is known."""

    chain: Chain
    devices: int
    memory: int | None = None
    """Bytes of each device; None: as many as are asked for."""
    given: Allocation | None = None
    """Where each layer runs, where that is not to be chosen."""
    least: Fraction | None = None
    """The least period of all allocations (or of the given one), with any periodic schedule."""
    reached_on: Allocation | None = None
    """An allocation with a schedule of that period."""
    least_contiguous: Fraction | None = None
    """The least period of contiguous allocations, with any periodic schedule."""
    fits_contiguous: bool = True
    """False where it is known that no contiguous allocation fits the memory."""
