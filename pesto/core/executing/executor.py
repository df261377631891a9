"""Where work runs: the interface of local processes and of a Ray cluster, time limits, and pauses after failures."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

FailureKind = Literal["death", "time", "memory", "place"]


class WorkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one piece of work; None is no limit."""

    interrupt_s: float | None = None
    """Seconds after which it is interrupted, as Ctrl-C does."""
    patience_s: float | None = None
    """Seconds after which its process is killed."""
    grace_s: float | None = None
    """Seconds from an interruption, by this limit or by `cancel`, after which its process is killed."""
    rss_bytes: int | None = None
    """Resident bytes of its process and of all below, added up; above them it is killed."""
    cores: int | None = None
    """Processors that it may use, of those that its worker has."""


NO_LIMITS = WorkLimits()


class WorkFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a work, as whoever began it has them: a worker elsewhere has copies (`WorkerChannel.here`)."""

    folder: str
    """Folder of what is read."""
    reads: tuple[str, ...] = ()
    """Names of files there."""
    out: str
    """Folder for what it writes: files without folders, which are there before its answer is."""
    early: tuple[str, ...] = ()
    """Names of those that are there soon after they were written, also where the work is lost then."""


NO_FILES = WorkFiles(folder="", out="")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """Something to be done in a process of its own, by a function that the process imports."""

    key: str
    """Name that tells it from all else that runs at the time."""
    entry: str
    """`module:function`; called with `data` and the `worker.WorkerChannel` to the caller."""
    data: bytes
    """Bytes that the function is called with."""
    live: bool = False
    """True if it sends messages while it runs, and minds SIGINT and SIGTERM (`WorkerChannel.interrupted`)."""
    limits: WorkLimits = NO_LIMITS
    """Limits of time, memory and cores."""
    files: WorkFiles = NO_FILES
    """Files that it reads and writes."""


class ProgressMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Message of work that runs, in the order in which they were sent."""

    key: str
    """Key of the work."""
    data: bytes


class WorkResult(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Value that the function of a work returned."""

    key: str
    data: bytes
    seconds: float
    """Seconds since its begin."""
    reused: bool = False
    """True if its process had done other work before, which may have left it broken."""


class WorkFailure(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A work whose process ended, or was ended, before it could answer."""

    key: str
    why: FailureKind
    """death: it ended by itself or by somebody else; time, memory: it went beyond a limit and was killed; place: all
    that ran there was lost, or it was cancelled before it had a process, which says nothing of this work."""
    detail: str
    """Description for people: how it ended, and the last line that it wrote."""
    seconds: float
    """Seconds from its begin to its loss."""


WorkEvent = ProgressMessage | WorkResult | WorkFailure


class Executor(Protocol):
    """Runs several works at once, each in a process of its own, never two in one; all but `poke` by one thread."""

    @property
    def slots(self) -> int:
        """Most works at a time; 0 while none can be begun."""

    def begin(self, work: WorkItem) -> None:
        """Start a work; at most `slots` at a time."""

    def collect(self, seconds: float | None = None) -> list[WorkEvent]:
        """Return the events of the works that were begun: wait for one, for a poke, or so many seconds.

        Without `seconds` it waits as long as something runs, or nothing can be begun.
        """

    def cancel(self, key: str, signum: signal.Signals = signal.SIGINT) -> bool:
        """Send a signal to a live work, kill another. Return False when none of that key runs.

        SIGKILL ends any work with all of its processes: it is lost by `death`.
        """

    def poke(self) -> None:
        """Have `collect` return; from any thread."""

    def close(self) -> None:
        """End every process at once, whatever it does."""


class Deadline:
    """The time limits of one work; all times are seconds since its begin."""

    def __init__(self, limits: WorkLimits) -> None:
        self._limits = limits
        self._interrupted: float | None = None

    def interrupted(self, now: float) -> None:
        """Note that it was sent a signal, by whomever; the first counts."""
        self._interrupted = now if self._interrupted is None else self._interrupted

    def interrupts(self, now: float) -> bool:
        """Return True if it is to be interrupted now, for the time that it has taken."""
        limit = self._limits.interrupt_s
        return self._interrupted is None and limit is not None and now >= limit

    def late(self, now: float) -> str | None:
        """Return why it is to be ended, or None."""
        patience, grace = self._limits.patience_s, self._limits.grace_s
        if patience is not None and now >= patience:
            return "no answer long after the time limit"
        if grace is not None and self._interrupted is not None and now >= self._interrupted + grace:
            return "no answer long after it was interrupted"
        return None


FIRST_S, MOST_S = 0.1, 30.0
"""Seconds of the first and the longest pause after a failure."""


class Backoff:
    """Pauses between attempts that fail each time: twice as long after each, up to a bound."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds that never go back."""
        self._clock, self._next_s, self._until = clock, 0.0, 0.0

    @property
    def failing(self) -> bool:
        """True if nothing has worked since an attempt failed."""
        return self._next_s > 0.0

    @property
    def left_s(self) -> float:
        """Seconds before the next attempt may begin."""
        return max(0.0, self._until - self._clock()) if self.failing else 0.0

    def failed(self) -> None:
        """Pause; attempts that fail within a pause were begun before it, and lengthen nothing."""
        if not self.left_s:
            pause = self._next_s or FIRST_S
            self._next_s, self._until = min(MOST_S, 2 * pause), self._clock() + pause

    def worked(self) -> None:
        """Note that an attempt has not failed: the next one may begin at once."""
        self._next_s = 0.0
