"""Requests that the service refuses: HTTP status, stable error code, message and remedy."""

from typing import NamedTuple

from pesto.core.errors import Exit, UsageError


class ErrorCode(NamedTuple):
    """One kind of error."""

    status: int
    """HTTP status."""
    meaning: str


CODES = {
    "invalid_request": ErrorCode(400, "the request is not as the document says"),
    "unauthorized": ErrorCode(401, "no token that is known"),
    "token_expired": ErrorCode(401, "the token was removed or has expired"),
    "forbidden": ErrorCode(403, "a host or an origin that may not ask"),
    "forbidden_role": ErrorCode(403, "the token's role may not ask this"),
    "not_found": ErrorCode(404, "there is no such route, job or file, or it is another's"),
    "method_not_allowed": ErrorCode(405, "the route has other methods"),
    "request_timeout": ErrorCode(408, "the request took too long to arrive"),
    "conflict": ErrorCode(409, "not as things are"),
    "not_yet": ErrorCode(409, "the job has not got so far"),
    "key_reused": ErrorCode(409, "the Idempotency-Key came with another request"),
    "files_removed": ErrorCode(410, "the job's files were removed to make room"),
    "too_large": ErrorCode(413, "the body is larger than it may be"),
    "quota_bytes": ErrorCode(413, "the token may upload no more"),
    "invalid_job": ErrorCode(422, "what is asked of the job cannot be done"),
    "beyond_limit": ErrorCode(422, "a limit is above what the service gives"),
    "no_plan": ErrorCode(422, "a job that is named has no plan"),
    "blob_missing": ErrorCode(422, "a file that is named was not uploaded"),
    "digest_differs": ErrorCode(422, "the bytes have another SHA-256 than the one they were sent under"),
    "invalid_input": ErrorCode(422, "a graph, plan, cluster or profile is refused"),
    "webhooks_off": ErrorCode(422, "the service tells no address of a job's end"),
    "unprocessable": ErrorCode(422, "what is asked cannot be done"),
    "full": ErrorCode(429, "too much waits or runs already"),
    "quota_queued": ErrorCode(429, "as many jobs of the token wait as may"),
    "quota_hours": ErrorCode(429, "the token has had its hours"),
    "headers_too_large": ErrorCode(431, "the headers are larger than they may be"),
    "bug": ErrorCode(500, "a fault of the service, which its log has"),
    "unavailable": ErrorCode(503, "the service cannot answer now"),
    "no_database": ErrorCode(503, "the database does not answer"),
    "no_disk": ErrorCode(507, "the disk is full or cannot be written"),
}
"""By what `code` is in an answer."""
_USUAL = {
    400: "invalid_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    408: "request_timeout", 409: "conflict", 410: "files_removed", 413: "too_large", 422: "unprocessable",
    429: "full", 431: "headers_too_large", 503: "unavailable", 507: "no_disk",
}  # fmt: skip
_OF_EXIT = {Exit.USAGE: "invalid_job", Exit.INPUT: "invalid_input"}


def code_of(status: int, exit_code: int = -1) -> str:
    """Return the code of an error that names none: of its status, or of what the command line would end with."""
    if status == 422 and exit_code in _OF_EXIT:
        return _OF_EXIT[Exit(exit_code)]
    usual = "bug" if status >= 500 else "invalid_request"
    return _USUAL.get(status, usual)


class RefusedError(UsageError):
    """A request that is refused."""

    def __init__(
        self, status: int, message: str, retry_after_s: int | None = None, *, remedy: str, code: str = ""
    ) -> None:
        """`status`: of HTTP; `retry_after_s`: seconds after which it may be asked again.

        code: one of `CODES`; by default the usual one of the status.
        """
        super().__init__(message)
        self.remedy = remedy
        self.status, self.retry_after_s, self.code = status, retry_after_s, code or code_of(status)


def no_job(name: str) -> RefusedError:
    """404: there is no such job, or it is another's."""
    return RefusedError(404, f"there is no job {name!r}", remedy="see GET /v1/jobs")


def full(message: str, retry_after_s: int, *, remedy: str, code: str = "full") -> RefusedError:
    """429: too much waits already."""
    return RefusedError(429, message, retry_after_s, remedy=remedy, code=code)
