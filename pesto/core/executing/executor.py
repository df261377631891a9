"""Where work runs: the interface of local processes and of a Ray cluster."""

import signal
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

FailureKind = Literal["death", "time", "memory", "place"]


class WorkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one piece of work may use; None is no limit."""

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
    """Files of a work, as whoever began it has them: a worker elsewhere has copies (`Line.here`)."""

    folder: str
    """Where what is read lies."""
    reads: tuple[str, ...] = ()
    """Names of files there."""
    out: str
    """The folder for what it writes: files without folders, which are there before its answer is."""
    early: tuple[str, ...] = ()
    """Names of those that are there soon after they were written, also where the work is lost then."""


NO_FILES = WorkFiles(folder="", out="")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """Something to be done in a process of its own, by a function that the process imports."""

    key: str
    """Tells it from all else that runs at the time."""
    entry: str
    """`module:function`; called with `data` and the `worker_channel.WorkerChannel` to the caller."""
    data: bytes
    live: bool = False
    """Whether it tells of itself while it runs, and minds SIGINT and SIGTERM (`Line.interrupted`), which end others."""
    limits: WorkLimits = NO_LIMITS
    files: WorkFiles = NO_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressMessage:
    """What work told while it runs, in the order in which it told it."""

    work: WorkItem
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkResult:
    """What the function of a work returned."""

    work: WorkItem
    data: bytes
    seconds: float
    """Since its begin."""
    reused: bool = False
    """True if its process had done other work before, which may have left it broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFailure:
    """A work whose process ended, or was ended, before it could answer."""

    work: WorkItem
    why: FailureKind
    """death: it ended by itself or by somebody else; time, memory: it went beyond a limit and was killed; place: all
    that ran there was lost, or it was cancelled before it had a process, which says nothing of this work."""
    detail: str
    """For people: how it ended, and the last line that it wrote."""
    seconds: float
    """From its begin to its loss."""


WorkEvent = ProgressMessage | WorkResult | WorkFailure


class Executor(Protocol):
    """Runs several works at once, each in a process of its own, never two in one; all but `poke` by one thread."""

    @property
    def slots(self) -> int:
        """Most works at a time; 0 while none can be begun."""
        ...

    def begin(self, work: WorkItem) -> None:
        """Start a work; at most `slots` at a time."""
        ...

    def collect(self, seconds: float | None = None) -> list[WorkEvent]:
        """What has come of the works that were begun: waits for something, for a poke, or so many seconds.

        Without `seconds` it waits as long as something runs, or nothing can be begun.
        """
        ...

    def cancel(self, key: str, signum: signal.Signals = signal.SIGINT) -> bool:
        """Send a signal to a live work, kill another; False when none of that key runs.

        SIGKILL ends any work with all of its processes: it is lost by `death`.
        """
        ...

    def poke(self) -> None:
        """Have `collect` return; from any thread."""
        ...

    def close(self) -> None:
        """End every process at once, whatever it does."""
        ...
