"""Where cells run: the interface of local processes and of a Ray cluster."""

from dataclasses import dataclass
from typing import Protocol

from pesto.study.answers import Answer
from pesto.study.cells import Cell
from solvers import Status
from solvers.process.parent import STARTUP_S, patience

PREPARE_S = 1800.0
"""Seconds that a cell may take beside its solver: TensorFlow, a large model, its coarsening, its baselines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A cell whose process ended before it could answer."""

    cell: Cell
    detail: str
    seconds: float = 0.0
    """From its begin to its loss."""


def patience_s(cell: Cell) -> float:
    """Seconds after which a cell is given up: its limit may pass twice, where its solver was killed from outside."""
    return PREPARE_S + STARTUP_S + 2 * patience(cell.limit_s)


def hung(cell: Cell, seconds: float) -> Answer:
    """The answer of a cell that was given up."""
    return Answer(key=cell.key, status=Status.HUNG, detail="no answer long after the time limit", seconds=seconds)


class Executor(Protocol):
    """Runs several cells at once, each in a process of its own, never two in one."""

    @property
    def slots(self) -> int:
        """Most cells at a time."""
        ...

    def begin(self, cell: Cell) -> None:
        """Start a cell; at most `slots` at a time."""
        ...

    def collect(self) -> list[Answer | Lost]:
        """What has come of the cells that were begun, after waiting for at least one of them."""
        ...

    def close(self) -> None:
        """End every process at once, whatever it does."""
        ...
