"""Records of the service's store: jobs, outcomes and events, and the peers that must hear of them."""

from typing import Any, Protocol

import msgspec

from pesto.service.protocol import State

DEATHS = 3
"""Workers that a job may lose before it has failed."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is asked for."""

    token: str
    """The name of the token that asks; empty for the machine itself."""
    kind: str
    model: str = ""
    """The built-in model that it is about; empty for any other."""
    label: str = ""
    priority: int = 0
    """Larger ones run first; among equals tokens take turns."""
    request: bytes
    """The request, as JSON."""
    blobs: tuple[str, ...] = ()
    """SHA-256 of each uploaded file that it reads, as hexadecimal digits."""
    limit_s: float | None = None
    """The job's own limit of wall-clock seconds, which it reserves of its token's hours until it has ended."""
    key: str = ""
    """Its Idempotency-Key; empty for none."""
    digest: bytes = b""
    """SHA-256 of the request, by which a repeated key is compared."""
    notify: str = ""
    """The address that is told of its end; empty for none."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a job's last attempt, as the verb of its kind would have ended."""

    exit_code: int = 0
    error: str | None = None
    """The error and its place, on one line."""
    where: str | None = None
    """File or name that the error is about, with which `error` begins."""
    remedy: str | None = None
    """Remedy for the error."""
    result: dict[str, Any] = {}
    """A summary, by kind."""
    files: tuple[str, ...] = ()
    """Names of the files that it left in its folder."""
    digests: dict[str, str] = {}
    """SHA-256 of those files by name; empty for jobs of earlier versions."""
    seconds: float = 0.0
    """That a worker was at it."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is kept."""

    number: int
    """Grows with each submission; what is older and newer is told by it, never by clocks."""
    id: str
    token: str
    kind: str
    model: str
    """The built-in model that it is about; empty for any other."""
    label: str
    priority: int
    request: bytes
    """Empty in a list where it is long."""
    state: State
    attempt: int
    """Number of attempts begun; events and answers of earlier ones are refused."""
    deaths: int
    """Workers that it lost."""
    events: int
    """The number of its last event; they are numbered from 1 without a gap."""
    stage: str
    best_s: float | None
    bound_s: float | None
    created: float
    started: float | None
    finished: float | None
    seconds: float
    """That workers were at it, of all its attempts."""
    kept: int
    """The attempt whose folder has its files; 0 for none."""
    outcome: Outcome | None
    """Outcome of the job; before its end that of the attempt that is kept, None for none."""
    expired: bool
    """True once retention has removed its files."""

    @property
    def gap(self) -> float | None:
        """Distance from bound to best, as a share of the best; None while either is unknown."""
        if not self.best_s or self.bound_s is None:
            return None
        return max(0.0, 1.0 - self.bound_s / self.best_s)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a job told."""

    kind: str
    """stage, incumbent, bound, log or done."""
    data: dict[str, Any]
    """`name` of a stage, `best_s` and `bound_s` of what is found; whatever else is told."""


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is kept."""

    number: int
    kind: str
    data: bytes
    """One JSON object."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker is to run now."""

    number: int
    id: str
    token: str
    attempt: int
    kept: int
    """The earlier attempt whose files are kept; 0 for none."""
    request: bytes
    waited_s: float = 0.0
    """Seconds since its submission."""

    @property
    def key(self) -> str:
        """Tells this attempt from all others."""
        return f"{self.id}.{self.attempt}"


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of all jobs of one kind and model that have ended in one state."""

    kind: str
    model: str
    state: str
    jobs: int
    seconds: float
    """Total wall-clock seconds of workers."""
    gap: float
    """Sum of the gaps of the jobs that have one."""
    gaps: int
    """Number of jobs with a gap."""


class RunningJobs(Protocol):
    """The scheduler, as the leases see it."""

    def running(self) -> list[Attempt]:
        """Return the attempts that are its own."""

    def cancel(self, name: str, attempt: int | None = None, *, again: bool = True) -> None:
        """Interrupt one; `again`: end one that was interrupted before."""


class WatchedJobs(Protocol):
    """The watchers, as the leases see them."""

    def watched(self) -> list[int]:
        """Return the numbers of the jobs."""

    def announce(self, jobs: set[int]) -> None:
        """These have new events."""
