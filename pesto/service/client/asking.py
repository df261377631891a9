"""One request and its answer, whoever carries it: asked again while the service is away, its errors the project's."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from pesto.core import errors
from pesto.core.errors import Exit, FileError, PestoError, UsageError
from pesto.service.client.link import Patience, retry_after
from pesto.service.protocol.replies import Problem

T = TypeVar("T")
_AWAY = (502, 503, 504)
"""What is said by who stands before a server that is not there."""
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
    """What came: an answer, or why none did."""

    status: int = 0
    """0 where the service could not be reached."""
    retry_after: str | None = None
    body: bytes = b""
    why: str = ""
    """Why it could not be reached."""


class Pause(NamedTuple):
    """Wait so long."""

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
    """How long to wait before a request is sent again; None for a good answer, else the error that it is."""
    away = reply.status in (0, *_AWAY)
    if not away:
        patience.answered()
    if 200 <= reply.status < 300:
        return None
    wait = patience.pause(retry_after(reply.retry_after)) if away or reply.status == _FULL else None
    if wait is not None:
        return Pause(wait)
    raise _away(url, reply) if reply.status == 0 else _refused(url, reply)


def failed(code: int, error: str, remedy: str | None, where: str | None = None) -> PestoError:
    """Return the error of an exit code; `error` begins with `where`."""
    kinds: dict[int, type[PestoError]] = {
        **_BY_CODE,
        Exit.INTERRUPTED: CancelledError,
        Exit.TERMINATED: TerminatedError,
    }
    message = error.removeprefix(f"{where}: ") if where else error
    return kinds.get(code, PestoError).build(message, where=where or "", remedy=remedy or "")


def _away(url: str, reply: Reply) -> FileError:
    return FileError.build(f"cannot reach {url}: {reply.why}", remedy="is pesto serve running there?")


def _refused(url: str, reply: Reply) -> PestoError:
    """The service's own words, or those for what else answered."""
    if reply.status == _UNAUTHORIZED:
        return UsageError.build("no token that is known there", where=url, remedy="set PESTO_TOKEN, or give the token")
    try:
        said = msgspec.json.decode(reply.body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return FileError.build(
            f"{url} answered {reply.status}, which is no word of pesto serve", remedy="correct the address"
        )
    return failed(said.exit_code or Exit.BUG, said.error, said.remedy, said.where)
