"""Every error as one JSON object with its status."""

import logging
import sqlite3
from traceback import walk_tb
from typing import Any

import msgspec
from litestar import MediaType, Response
from litestar.exceptions import HTTPException
from litestar.openapi.datastructures import ResponseSpec

from pesto.core.errors import ErrorReport, Exit, FileError, PestoError, describe_error
from pesto.core.files.json import shown
from pesto.reporting.show.screen import one_line
from pesto.service.protocol import ProblemReply
from pesto.service.serve.http.caller import Asking
from pesto.service.serve.http.tracing import beside_get, record_of
from pesto.service.serve.refusals import RefusedError, code_of
from pesto.service.serve.store.database import AGAIN_S, LaterError

_LOG = logging.getLogger(__name__)
_SAYS = {
    400: "what is wrong",
    401: "no known token",
    403: "a host that may not ask",
    404: "there is none",
    405: "another method",
    409: "not as things are",
    410: "it was removed",
    413: "too large",
    422: "what is asked cannot be done",
    429: "too much waits",
    500: "a fault of the service",
    503: "the database does not answer",
    507: "the disk is full",
}
_USUAL = (400, 401, 403, 500, 503)
_UNPROCESSABLE = 422
_CALLED = {"last": "Last-Event-ID", "key": "Idempotency-Key", "match": "If-None-Match", "in_state": "state"}
"""Parameters as requests call them, where routes call them otherwise."""


def refusals(*statuses: int) -> dict[int, ResponseSpec]:
    """Return the documentation of a route's errors, beside those that any route may answer."""
    return {
        status: ResponseSpec(ProblemReply, description=_SAYS[status], generate_examples=False)
        for status in sorted({*statuses, *_USUAL})
    }


def refused(request: Asking, error: PestoError) -> Response[ProblemReply]:
    """An error of this project: a refusal has its status, no database is 503, a bad disk 507, else the request's."""
    status, headers, code = _UNPROCESSABLE, {}, ""
    if isinstance(error, RefusedError):
        status, code = error.status, error.code
        if error.retry_after_s is not None:
            headers["Retry-After"] = str(error.retry_after_s)
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(error, LaterError):
        status, headers["Retry-After"], code = 503, str(AGAIN_S), "no_database"
    elif isinstance(error, FileError):
        status = 507
    code = code or code_of(status, error.exit_code)
    return _reply(request, status, describe_error(error, None), headers, code=code)


def unreadable(request: Asking, error: sqlite3.Error) -> Response[ProblemReply]:
    """Answer that the database's file cannot be read, which has become damaged or lies on a bad disk."""
    what = f"cannot read the service's database: {shown(error)}"
    return refused(
        request, FileError.build(f"{what}", remedy="check the disk, or restore a backup (pesto serve restore)")
    )


def of_http(request: Asking, error: HTTPException) -> Response[ProblemReply]:
    """Answer a refusal of the framework."""
    allowed = {name: beside_get(value) for name, value in (error.headers or {}).items() if name.lower() == "allow"}
    report = ErrorReport(_detail(error), Exit.USAGE, _remedy(error.status_code))
    return _reply(request, error.status_code, report, allowed)


def too_deep(request: Asking, error: RecursionError) -> Response[ProblemReply]:
    """JSON that goes deeper than the reader does; any other of these errors is a bug."""
    if "deserializing" not in str(error):
        return of_bug(request, error)
    return _reply(request, 400, ErrorReport("the body goes too deep", Exit.USAGE, _remedy(400)), {})


def undecodable(request: Asking, error: UnicodeDecodeError) -> Response[ProblemReply]:
    """JSON with a text that is no UTF-8; any other of these errors is a bug."""
    *_, (frame, _line) = walk_tb(error.__traceback__)
    if frame.f_code.co_name != "decode_json":
        return of_bug(request, error)
    return _reply(request, 400, ErrorReport("the body is no UTF-8", Exit.USAGE, "send JSON as UTF-8"), {})


def of_bug(request: Asking, error: Exception) -> Response[ProblemReply]:
    """Answer 500 for any other exception, which the log has whole."""
    _LOG.error("a request failed", exc_info=error)
    report = ErrorReport(f"bug: {type(error).__name__}", Exit.BUG, "report what the service's log says")
    return _reply(request, 500, report, {})


def _reply(
    request: Asking, status: int, report: ErrorReport, headers: dict[str, str], *, code: str = ""
) -> Response[ProblemReply]:
    error, where, remedy = map(one_line, (report.error, report.where, report.remedy))
    record = record_of(request.scope)
    record.code = code or code_of(status)
    problem = ProblemReply(
        error=error, where=where or None, remedy=remedy or None, exit_code=int(report.exit_code),
        code=record.code, request_id=record.id,
    )  # fmt: skip
    return Response(problem, status_code=status, media_type=MediaType.JSON, headers=headers)


def _detail(error: HTTPException) -> str:
    extra: Any = error.extra
    if isinstance(extra, list) and extra and isinstance(extra[0], dict):
        first = extra[0]
        key = str(first.get("key", "the request"))
        if key == "data" and first.get("message") == repr(key):  # the framework's lookup, which found none
            return "there is no body"
        return f"{_CALLED.get(key, key)}: {first.get('message', error.detail)}"
    cause = error.__cause__
    return str(cause) if isinstance(cause, msgspec.DecodeError) else str(error.detail)


def _remedy(status: int) -> str:
    return {404: "see /v1/openapi.json", 405: "see /v1/openapi.json", 413: "send less"}.get(
        status, "correct the request, see /v1/openapi.json"
    )
