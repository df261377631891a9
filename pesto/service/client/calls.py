"""What can be asked of a service, each as the steps that a client takes."""

import hashlib
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar
from urllib.parse import quote

import msgspec

from pesto.core.errors import FileError, UsageError
from pesto.core.files.json import quoted, shown
from pesto.service.client.asking import Ask, Steps, answered, judged
from pesto.service.client.link import Patience, checked_url
from pesto.service.protocol.replies import Cancelled, JobReply, JobsReply, Submitted
from pesto.verbs.jobs.request import JobRequest

T = TypeVar("T")
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
    """Which jobs are listed, beside state and label."""

    kind: str
    model: str
    search: str
    """A part of label, model or kind, or the beginning of the id."""
    since: float
    """Submitted then or later, in seconds since 1970."""
    until: float
    """Submitted earlier."""


class Calls:
    """Of one service."""

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
        found = yield from self._body(Ask("POST", "/v1/jobs", headers=headers, body=body))
        return self._as(found, Submitted).id

    def jobs(self, most: int, wanted: Mapping[str, object]) -> Steps[list[JobReply]]:
        """The newest, page by page; `wanted`: what the route is asked with, None for nothing."""
        if most < 1:
            raise UsageError.build(f"{most} jobs are asked for", remedy="ask for 1 or more")
        given = {name: str(value) for name, value in wanted.items() if value is not None}
        found, after = list[JobReply](), None
        while len(found) < most:
            page = {"most": str(min(_PAGE, most - len(found)))} | ({"after": after} if after else {})
            reply = yield from self._body(Ask("GET", "/v1/jobs", given | page))
            said = self._as(reply, JobsReply)
            found, after = found + said.jobs, said.after
            if after is None:
                break
        return found

    def job(self, name: str) -> Steps[JobReply]:
        """One job as it is now."""
        found = yield from self._body(Ask("GET", job_path(name)))
        return self._as(found, JobReply)

    def cancel(self, name: str) -> Steps[str]:
        """Cancel it; its state then."""
        found = yield from self._body(Ask("DELETE", job_path(name)))
        return self._as(found, Cancelled).state.value

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
        """What a job wrote."""
        return (yield from self._body(Ask("GET", f"{job_path(name)}/{quote(route)}")))

    def told(self, name: str, route: str) -> Steps[dict[str, Any]]:
        """What a job wrote, as the JSON object that it is."""
        return self._as((yield from self.file(name, route)), dict[str, Any])

    def diff(self, first: str, second: str) -> Steps[dict[str, Any]]:
        """Wherein the plans of two jobs differ."""
        found = yield from self._body(Ask("GET", "/v1/diff", {"a": first, "b": second}))
        return self._as(found, dict[str, Any])

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
