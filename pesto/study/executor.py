"""Where cells run: the interface of local processes and of a Ray cluster."""

from dataclasses import dataclass
from typing import Protocol

from pesto.study.answers import Answer
from pesto.study.cells import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A cell whose process ended before it could answer."""

    cell: Cell
    detail: str


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
