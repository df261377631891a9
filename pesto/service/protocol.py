"""States of jobs and the JSON bodies that the service and its clients exchange."""

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta


class State(StrEnum):
    """State of a job; `queued` and `running` go on after a crash, the last three are final."""

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


class ProblemReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request is refused."""

    error: str
    """The error and its place, on one line."""
    where: str | None = None
    """File or name that the error is about, with which `error` begins."""
    remedy: str | None = None
    """The remedy."""
    exit_code: int | None = None
    """Exit code of the command line for this error."""
    code: str = ""
    """By which programs tell it from other errors; empty from a service without them."""
    request_id: str = ""
    """As in X-Request-Id, and in the service's log of requests."""


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """A job that will be run, whatever happens."""

    id: str
    url: str


class JobReply(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is now."""

    id: str
    """By which it is asked for."""
    number: int
    """Grows with each submission."""
    kind: str
    """solve, compare, sweep, split, check or report."""
    label: str
    """Label that the request gave."""
    source: str
    """The built-in model that it is about, or the name of an uploaded graph or plan; empty for none."""
    variant: str
    """Variant of the model, where one was given."""
    cluster: str
    """A preset, or the name of an uploaded file; empty for the verb's default, and for the cluster of a plan."""
    settings: dict[str, Any]
    """Options that were given."""
    reads: dict[str, str]
    """SHA-256 of each uploaded file that it reads, by what it is: source, cluster, costs, plan, start, beside,
    against 1."""
    request: dict[str, Any] | None
    """All that was asked for; null in lists, and where another version of the service took it in."""
    priority: int
    """Larger ones run first."""
    state: State
    """Where it is."""
    place: int | None
    """In the queue, from 1, in the order in which jobs would begin if none ended meanwhile; null once it runs."""
    stage: str
    """Current stage; empty before and after the run."""
    best_s: float | None
    """Seconds of a training step by the best plan."""
    bound_s: float | None
    """Seconds that no plan can be below."""
    gap: float | None
    """(best - bound) / best; null while either is unknown."""
    attempt: int
    """Number of attempts begun."""
    deaths: int
    """Workers that it lost."""
    events: int
    """The number of its last event."""
    who: str
    """The token's name; empty for the machine itself."""
    created: float
    """Seconds since 1970, as started and finished."""
    started: float | None
    """Its last attempt."""
    finished: float | None
    """Null before."""
    seconds: float
    """That workers were at it."""
    exit_code: int | None
    """Exit code of its verb (`pesto.core.errors.Exit`); null before its end."""
    error: str | None
    """The error and its place, on one line."""
    where: str | None
    """File or name that the error is about, with which `error` begins."""
    remedy: str | None
    """The remedy."""
    result: dict[str, Any]
    """A summary, which differs by kind."""
    files: tuple[str, ...]
    """At /v1/jobs/{id}/files/{name}; before its end those of an attempt that was interrupted."""
    digests: dict[str, str]
    """SHA-256 of those files by name; empty for jobs of earlier versions."""
    expired: bool
    """True once its files were removed to make room."""


class JobsReply(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs, the newest first."""

    jobs: list[JobReply]
    after: str | None
    """For the next page; null on the last one."""
    counts: dict[str, int] = {}
    """Jobs in each state, whatever filters say; 10000 stands for as many or more. Empty unless asked for."""


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a cancelled job, `cancelling` while a worker saves its best plan; the last one of a deleted job."""

    id: str
    state: State


class BlobReply(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded file."""

    sha256: str
    bytes: Annotated[int, Meta(ge=0)]


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of the service: it works, and it takes and runs jobs."""

    status: str
    why: str | None = None
    """Why it does not."""
