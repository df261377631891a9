"""Errors for refused requests: HTTP status, stable error code, message and remedy."""

from typing import NamedTuple

from pesto.core.errors import Exit, UsageError


class ErrorCode(NamedTuple):
    """One kind of error."""

    status: int
    """HTTP status."""
    meaning: str


CODES = {
    "invalid_request": ErrorCode(400, "a parameter, a header or the JSON body is not as the OpenAPI document says"),
    "unauthorized": ErrorCode(401, "the request has no token, or one that the service does not know"),
    "token_expired": ErrorCode(401, "the token was removed or has expired"),
    "forbidden": ErrorCode(403, "without tokens the service refuses other host names and other origins"),
    "forbidden_role": ErrorCode(403, "the role of the token does not permit this route"),
    "not_found": ErrorCode(404, "the route, job or file does not exist, or belongs to another token"),
    "method_not_allowed": ErrorCode(405, "the route exists, but not with this HTTP method"),
    "request_timeout": ErrorCode(408, "the request took too long to arrive"),
    "conflict": ErrorCode(409, "the state of the job does not permit the request"),
    "not_yet": ErrorCode(409, "the job has not written the file yet"),
    "key_reused": ErrorCode(409, "the Idempotency-Key was sent before with a different request"),
    "files_removed": ErrorCode(410, "the job's files were deleted to free disk space, or changed on the disk"),
    "too_large": ErrorCode(413, "the request body or file exceeds the size limit"),
    "quota_bytes": ErrorCode(413, "the upload exceeds the bytes that the token may store"),
    "invalid_job": ErrorCode(422, "the settings of the job are invalid or exclude each other"),
    "beyond_limit": ErrorCode(422, "a limit or priority in the request exceeds the maximum of the service or token"),
    "no_plan": ErrorCode(422, "the job that the request names has no plan"),
    "blob_missing": ErrorCode(422, "a file that the request names by its SHA-256 is not on the service"),
    "digest_differs": ErrorCode(422, "the SHA-256 of the uploaded bytes differs from the one in the path"),
    "invalid_input": ErrorCode(422, "the graph, plan, cluster or profile is invalid"),
    "webhooks_off": ErrorCode(422, "the request has `notify`, but webhooks are disabled on the service"),
    "unprocessable": ErrorCode(422, "the request is well formed, but cannot be carried out"),
    "full": ErrorCode(429, "too many jobs, writes or notifications are pending; repeat after `Retry-After` seconds"),
    "quota_queued": ErrorCode(429, "the token has its maximum number of queued jobs"),
    "quota_hours": ErrorCode(429, "the token has used or reserved its worker hours of the last 24 hours"),
    "headers_too_large": ErrorCode(431, "the request headers exceed the size limit"),
    "bug": ErrorCode(500, "an internal error; the log of the service has the traceback"),
    "unavailable": ErrorCode(503, "the service is starting, stopping or overloaded; repeat the request"),
    "no_database": ErrorCode(503, "the database does not answer; repeat after `Retry-After` seconds"),
    "no_disk": ErrorCode(507, "the disk of the service is full or not writable"),
}
"""Error code -> its HTTP status and meaning."""
_DEFAULT_CODES = {
    400: "invalid_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    408: "request_timeout", 409: "conflict", 410: "files_removed", 413: "too_large", 422: "unprocessable",
    429: "full", 431: "headers_too_large", 503: "unavailable", 507: "no_disk",
}  # fmt: skip
_CODE_OF_EXIT = {Exit.USAGE: "invalid_job", Exit.INPUT: "invalid_input"}


def code_of(status: int, exit_code: int = -1) -> str:
    """Return the default error code of an HTTP status; of 422, that of the exit code where it has one."""
    if status == 422 and exit_code in _CODE_OF_EXIT:
        return _CODE_OF_EXIT[Exit(exit_code)]
    default = "bug" if status >= 500 else "invalid_request"
    return _DEFAULT_CODES.get(status, default)


class RefusedError(UsageError):
    """A request that is refused."""

    def __init__(
        self, status: int, message: str, retry_after_s: int | None = None, *, remedy: str, code: str = ""
    ) -> None:
        """`status`: HTTP status; `retry_after_s`: seconds after which the client may repeat the request.

        code: one of `CODES`; by default that of the status.
        """
        super().__init__(message)
        self.remedy = remedy
        self.status, self.retry_after_s, self.code = status, retry_after_s, code or code_of(status)


def no_job(name: str) -> RefusedError:
    """Return the 404 error for a job that does not exist or belongs to another token."""
    return RefusedError(404, f"there is no job {name!r}", remedy="list the jobs of this token: GET /v1/jobs")


def full(message: str, retry_after_s: int, *, remedy: str, code: str = "full") -> RefusedError:
    """Return a 429 error, after which the client waits `retry_after_s` seconds."""
    return RefusedError(429, message, retry_after_s, remedy=remedy, code=code)
