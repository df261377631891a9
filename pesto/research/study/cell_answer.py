"""Answer of one cell, as sent from its process to the writer of the study's file."""

from typing import Any, Literal

import msgspec

from solvers import FAILED as FAILURES

SCHEMA = 1
"""Version of the study's file: its PRAGMA user_version."""
PLAN: Literal["plan"] = "plan"
"""The stage of a cell that plans a whole training step."""
REFUSED = "refused"
"""The status of a cell whose instance cannot be built; the others are those of `solvers.result.Status`."""
FAILED = (*sorted(str(status) for status in FAILURES), REFUSED)
"""Statuses of cells that have no answer, for a reason that is not the problem's."""


class ProgressPoint(msgspec.Struct, frozen=True, array_like=True):
    """A step of progress: better schedule, better bound, or both."""

    seconds: float
    makespan: int | None
    """Makespan in ticks; None where the schedule is no better."""
    lower_bound: int
    """Lower bound in ticks."""


class CellAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one cell: a row of `results` and the rows of `traces`. Times in ticks but for `seconds`."""

    key: str
    status: str
    limit_reason: str = ""
    makespan: int | None = None
    lower_bound: int = 0
    bound_by: str = ""
    start_makespan: int | None = None
    seconds: float = 0.0
    version: str = ""
    detail: str = ""
    tasks: int = 0
    devices: int = 0
    edges: int = 0
    measures: dict[str, Any] = {}
    trace: tuple[ProgressPoint, ...] = ()
