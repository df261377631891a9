"""Requests to the service as steps that both clients perform: addresses, retries, calls and event streams."""

import hashlib
import os
import re
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from pesto.core import errors
from pesto.core.errors import Exit, FileError, PestoError, UsageError
from pesto.core.files.json import quoted, shown
from pesto.service.protocol import FINAL, Cancelled, JobReply, JobsReply, ProblemReply, Submitted
from pesto.verbs.jobs.request import JobRequest

T = TypeVar("T")
TOKEN = "PESTO_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable that has the token."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_FIRST_S, _LONGEST_S = 0.1, 5.0
"""Seconds between two tries: at first, and at most."""


def checked_url(url: str) -> str:
    """The address of a service without a path's last slash. UsageError for what is none."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        whole = False
    if not whole or parts.query or parts.fragment or not url.isprintable():
        raise UsageError.build(
            f"{shown(url)} is no address of a service", remedy="give one such as http://127.0.0.1:8780"
        )
    if parts.username is not None or parts.password is not None:
        raise UsageError.build(
            "the address of a service has no name and no password", remedy=f"give the token, or set {TOKEN}"
        )
    return url.rstrip("/")


def own_machine(url: str) -> bool:
    """Return True for a service on this machine, which no proxy reaches."""
    return urlsplit(url).hostname in _LOOPBACK


def headers(token: str | None) -> dict[str, str]:
    """Return the Authorization header of the token, by default the environment's. UsageError for an invalid one."""
    given = os.environ.get(TOKEN, "") if token is None else token
    if not given:
        return {}
    if not (given.isascii() and given.isprintable()) or " " in given:
        raise UsageError.build(
            "the token has characters that no token has", remedy="give it as pesto serve token add printed it"
        )
    return {"Authorization": f"Bearer {given}"}


class Patience:
    """The pauses between tries while a service that has answered once is silent, and their limit."""

    def __init__(self, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`most_s`: seconds of silence; before its first answer none are borne."""
        self._most_s, self._clock = most_s, clock
        self._reached, self._since, self._pause_s = False, 0.0, 0.0

    def answered(self) -> None:
        """Record an answer: pauses begin anew."""
        self._reached, self._pause_s = True, 0.0

    def pause(self, wished_s: float | None = None) -> float | None:
        """Seconds to wait before it is asked again, `wished_s` where it said so; None once that is too long."""
        now = self._clock()
        if not self._pause_s:
            self._since = now
        self._pause_s = min(_LONGEST_S, 2 * self._pause_s or _FIRST_S)
        pause = self._pause_s if wished_s is None else wished_s
        return pause if self._reached and now + pause - self._since <= self._most_s else None


def retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, a number or a date; None where it says nothing."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


_AWAY = (502, 503, 504)
"""Statuses of a proxy whose server does not answer."""
_UNAUTHORIZED, _FULL = 401, 429
_BY_CODE = {
    int(kind.exit_code): kind
    for kind in (
        errors.UsageError, errors.InputError, errors.InfeasibleError, errors.NothingFoundError,
        errors.VerificationError, errors.SolverError, errors.FileError, errors.MismatchError,
    )
}  # fmt: skip


class Ask(NamedTuple):
    """A request; sending it twice does no harm."""

    method: str
    path: str
    params: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes | Path | None = None
    """A file is read as it is sent."""


class Reply(NamedTuple):
    """An answer, or the reason why there is none."""

    status: int = 0
    """0 where the service could not be reached."""
    retry_after: str | None = None
    body: bytes = b""
    why: str = ""
    """Why it could not be reached."""


class Pause(NamedTuple):
    """A wait before the next request."""

    seconds: float


Steps = Generator[Ask | Pause, Reply, T]
"""A conversation with the service: what it yields is done for it, and it is sent what came of a request."""


class CancelledError(PestoError):
    """A job that was interrupted before there was a plan."""

    exit_code = Exit.INTERRUPTED


class TerminatedError(PestoError):
    """A job that was ended before there was a plan."""

    exit_code = Exit.TERMINATED


def answered(url: str, patience: Patience, ask: Ask) -> Steps[bytes]:
    """The body of a good answer; PestoError as the service says, FileError when it cannot be reached."""
    while True:
        reply = yield ask
        pause = judged(url, patience, reply)
        if pause is None:
            return reply.body
        yield pause


def judged(url: str, patience: Patience, reply: Reply) -> Pause | None:
    """Return the pause before a request is sent again, None for a good answer; raise the error of any other."""
    away = reply.status in (0, *_AWAY)
    if not away:
        patience.answered()
    if 200 <= reply.status < 300:
        return None
    wait = patience.pause(retry_after(reply.retry_after)) if away or reply.status == _FULL else None
    if wait is not None:
        return Pause(wait)
    if reply.status == 0:
        raise FileError.build(f"cannot reach {url}: {reply.why}", remedy="is pesto serve running there?")
    if reply.status == _UNAUTHORIZED:
        raise UsageError.build("the service does not know the token", where=url, remedy="set PESTO_TOKEN or token")
    try:
        problem = msgspec.json.decode(reply.body, type=ProblemReply)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileError.build(
            f"{url} answered {reply.status}, which is no word of pesto serve", remedy="correct the address"
        ) from error
    raise failed(problem.exit_code or Exit.BUG, problem.error, problem.remedy, problem.where)


def failed(code: int, error: str, remedy: str | None, where: str | None = None) -> PestoError:
    """Return the error of an exit code; `error` begins with `where`."""
    kinds: dict[int, type[PestoError]] = {
        **_BY_CODE,
        Exit.INTERRUPTED: CancelledError,
        Exit.TERMINATED: TerminatedError,
    }
    message = error.removeprefix(f"{where}: ") if where else error
    return kinds.get(code, PestoError).build(message, where=where or "", remedy=remedy or "")


_ID = re.compile(r"[\w-]{1,100}", re.ASCII)
_PAGE = 500
_GONE = 404
_CHUNK = 1 << 20


class Blob(NamedTuple):
    """A file with the name by which the service knows it."""

    sha256: str
    body: bytes | Path


def blob_of(file: bytes | Path | str) -> Blob:
    """The bytes themselves, or a file; FileError for one that cannot be read."""
    if isinstance(file, bytes):
        return Blob(hashlib.sha256(file).hexdigest(), file)
    hashed, path = hashlib.sha256(), Path(file)
    try:
        with path.open("rb") as source:
            while chunk := source.read(_CHUNK):
                hashed.update(chunk)
    except OSError as error:
        raise FileError.build(
            f"cannot read {shown(path)}: {error.strerror or error}", remedy="name another file"
        ) from error
    return Blob(hashed.hexdigest(), path)


class JobWishes(TypedDict, total=False):
    """Filters of a list of jobs, beside state and label."""

    kind: str
    model: str
    search: str
    """A part of label, model or kind, or the beginning of the id."""
    since: float
    """Submitted then or later, in seconds since 1970."""
    until: float
    """Submitted earlier."""


class Calls:
    """The requests of one service, each as steps."""

    def __init__(self, url: str, patience_s: float) -> None:
        """`patience_s`: seconds for which a service that has answered once may be silent."""
        self.url, self.patience = checked_url(url), Patience(patience_s)

    def upload(self, blob: Blob) -> Steps[str]:
        """Send a file, unless it is there; its SHA-256."""
        path = f"/v1/blobs/{blob.sha256}"
        there = yield from self._body(Ask("GET", "/v1/blobs", {"sha256": blob.sha256}))
        if not self._as(there, list[str]):
            yield from self._body(Ask("PUT", path, body=blob.body))
        return blob.sha256

    def submit(self, request: JobRequest | Mapping[str, Any], key: str | None) -> Steps[str]:
        """Queue a job; its id."""
        body = msgspec.json.encode(request)
        headers = {"Content-Type": "application/json", "Idempotency-Key": key or uuid.uuid4().hex}
        answer = yield from self._body(Ask("POST", "/v1/jobs", headers=headers, body=body))
        return self._as(answer, Submitted).id

    def jobs(self, most: int, filters: Mapping[str, object]) -> Steps[list[JobReply]]:
        """The newest, page by page; `wanted`: what the route is asked with, None for nothing."""
        if most < 1:
            raise UsageError.build(f"{most} jobs are asked for", remedy="ask for 1 or more")
        given = {name: str(value) for name, value in filters.items() if value is not None}
        jobs, after = list[JobReply](), None
        while len(jobs) < most:
            page = {"most": str(min(_PAGE, most - len(jobs)))} | ({"after": after} if after else {})
            reply = yield from self._body(Ask("GET", "/v1/jobs", given | page))
            page_reply = self._as(reply, JobsReply)
            jobs, after = jobs + page_reply.jobs, page_reply.after
            if after is None:
                break
        return jobs

    def job(self, name: str) -> Steps[JobReply]:
        """One job as it is now."""
        body = yield from self._body(Ask("GET", job_path(name)))
        return self._as(body, JobReply)

    def cancel(self, name: str) -> Steps[str]:
        """Cancel it; its state then."""
        body = yield from self._body(Ask("DELETE", job_path(name)))
        return self._as(body, Cancelled).state.value

    def delete(self, name: str, *, purge: bool) -> Steps[str]:
        """Cancel it, or with `purge` delete one that has ended; its last state."""
        if not purge:
            return (yield from self.cancel(name))
        state = (yield from self.job(name)).state
        ask = Ask("DELETE", job_path(name), {"purge": "true"})
        reply = yield ask
        while (pause := judged(self.url, self.patience, reply)) is not None:
            yield pause
            reply = yield ask
            if reply.status == _GONE:  # the answer was lost, and not the request
                break
        return state.value

    def file(self, name: str, route: str) -> Steps[bytes]:
        """Fetch a file of a job."""
        return (yield from self._body(Ask("GET", f"{job_path(name)}/{quote(route)}")))

    def told(self, name: str, route: str) -> Steps[dict[str, Any]]:
        """Fetch a file of a job that is a JSON object, decoded."""
        return self._as((yield from self.file(name, route)), dict[str, Any])

    def diff(self, first: str, second: str) -> Steps[dict[str, Any]]:
        """Compare the plans of two jobs."""
        body = yield from self._body(Ask("GET", "/v1/diff", {"a": first, "b": second}))
        return self._as(body, dict[str, Any])

    def _body(self, ask: Ask) -> Steps[bytes]:
        return answered(self.url, self.patience, ask)

    def _as(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            remedy = "correct the address, or bring both to one version"
            raise FileError.build(
                f"{self.url} answered what is no word of pesto serve: {error}", remedy=remedy
            ) from error


def job_path(name: str) -> str:
    """The path of a job; UsageError for what no job is called."""
    if not _ID.fullmatch(name):
        raise UsageError.build(f"no job is called {quoted(name)}", remedy="see pesto jobs list")
    return f"/v1/jobs/{name}"


DONE = "done"
CUT_S = 0.2
"""Seconds before a stream that was cut is opened again."""
_MOST = 1 << 24
"""Bytes of one event."""


class JobEvent(NamedTuple):
    """One thing that a job told."""

    number: int
    """From 1, without a gap."""
    kind: str
    """stage, incumbent, bound, log or done."""
    data: dict[str, Any]
    """`name` of a stage; `best_s`, `bound_s`, `gap` and `by` of an incumbent; `level` and `text` of a log line;
    `exit_code`, `state`, `error`, `remedy`, `result` and `files` of the end."""


class Followed:
    """A job that is watched, and how far."""

    def __init__(self, name: str, after: int) -> None:
        """`after`: the number of the last event that is known."""
        self.name, self.path, self.last, self.over = name, f"{job_path(name)}/events", after, False
        self._left = b""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the request for the next stream."""
        return {"Last-Event-ID": str(self.last), "Accept": "text/event-stream"}

    def begin(self) -> None:
        """A stream begins anew; half an event of the last one is forgotten."""
        self._left = b""

    def take(self, chunk: bytes) -> Iterator[JobEvent]:
        """The new events of the bytes that came."""
        *blocks, self._left = (self._left + chunk.replace(b"\r", b"")).split(b"\n\n")
        if len(self._left) > _MOST:
            raise FileError.build(
                "the service sends an event that does not end", remedy="look whether the address is right"
            )
        for block in blocks:
            lines = [line for line in block.split(b"\n") if b": " in line and not line.startswith(b":")]
            fields = dict(line.split(b": ", 1) for line in lines)
            if not {b"id", b"event", b"data"} <= fields.keys():
                continue  # a comment
            try:
                data: dict[str, Any] = msgspec.json.decode(fields[b"data"], type=dict[str, Any])
                event = JobEvent(int(fields[b"id"]), fields[b"event"].decode(), data)
            except ValueError as error:
                raise FileError.build(
                    "the service sends what is no event", remedy="look whether the address is right"
                ) from error
            if event.number > self.last:
                self.last, self.over = event.number, self.over or event.kind == DONE
                yield event

    def ended(self, job: JobReply) -> None:
        """A stream came to its end: over, where the job has no more to tell."""
        self.over = self.over or (job.state in FINAL and job.events <= self.last)
