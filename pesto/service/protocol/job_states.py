"""The states of a job."""

from enum import StrEnum


class State(StrEnum):
    """Where a job is; `queued` and `running` go on after a crash, the last three never change."""

    QUEUED = "queued"
    """It waits for a worker."""
    RUNNING = "running"
    """A worker is at it."""
    CANCELLING = "cancelling"
    """A worker saves its best plan."""
    DONE = "done"
    """It has ended well."""
    FAILED = "failed"
    """It has ended with an error."""
    CANCELLED = "cancelled"
    """It was ended; its best plan is kept if there was one."""


FINAL = (State.DONE, State.FAILED, State.CANCELLED)
"""States that a job does not leave."""
