"""Turns each error into a JSON answer with its HTTP status."""

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
_DESCRIPTIONS = {
    400: "the request is malformed",
    401: "no token, or an unknown or expired one",
    403: "the host, origin or role does not permit the request",
    404: "the job or file does not exist",
    405: "the route does not have this method",
    409: "the state of the job does not permit the request",
    410: "the files of the job were deleted or changed",
    413: "the body exceeds a size limit",
    422: "the request is well formed, but cannot be carried out",
    429: "too many jobs, writes or notifications are pending",
    500: "an internal error",
    503: "the database does not answer",
    507: "the disk is full",
}
_ANY_ROUTE = (400, 401, 403, 500, 503)
_UNPROCESSABLE = 422
_PUBLIC_NAMES = {"last": "Last-Event-ID", "key": "Idempotency-Key", "match": "If-None-Match", "in_state": "state"}
"""Parameters as requests call them, where routes call them otherwise."""


def refusals(*statuses: int) -> dict[int, ResponseSpec]:
    """Return the documentation of a route's errors, beside those that any route may answer."""
    return {
        status: ResponseSpec(ProblemReply, description=_DESCRIPTIONS[status], generate_examples=False)
        for status in sorted({*statuses, *_ANY_ROUTE})
    }


def refused(request: Asking, error: PestoError) -> Response[ProblemReply]:
    """Answer a PestoError: a RefusedError with its status, a LaterError 503, a FileError 507, any other 422."""
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
    """Answer 507 for a damaged or unreadable SQLite file of the service."""
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
    """Answer 400 for JSON that is nested too deeply to decode; any other RecursionError is a bug."""
    if "deserializing" not in str(error):
        return of_bug(request, error)
    return _reply(request, 400, ErrorReport("the JSON body is nested too deeply", Exit.USAGE, _remedy(400)), {})


def undecodable(request: Asking, error: UnicodeDecodeError) -> Response[ProblemReply]:
    """Answer 400 for JSON that is not UTF-8; any other UnicodeDecodeError is a bug."""
    *_, (frame, _line) = walk_tb(error.__traceback__)
    if frame.f_code.co_name != "decode_json":
        return of_bug(request, error)
    return _reply(request, 400, ErrorReport("the body is not UTF-8", Exit.USAGE, "send JSON as UTF-8"), {})


def of_bug(request: Asking, error: Exception) -> Response[ProblemReply]:
    """Answer 500 for any other exception; the log has its traceback."""
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
            return "the request has no body"
        return f"{_PUBLIC_NAMES.get(key, key)}: {first.get('message', error.detail)}"
    cause = error.__cause__
    return str(cause) if isinstance(cause, msgspec.DecodeError) else str(error.detail)


def _remedy(status: int) -> str:
    routes = "see the routes in /v1/openapi.json"
    remedies = {404: routes, 405: routes, 413: "send a smaller body"}
    return remedies.get(status, "correct the request, see /v1/openapi.json")
