"""What the service refuses, each with its HTTP status, one line and a remedy."""

from pesto.core.errors import UsageError
from pesto.service.serve.error_codes import code_of


class RefusedError(UsageError):
    """A request that is refused."""

    def __init__(
        self, status: int, message: str, retry_after_s: int | None = None, *, remedy: str = "", code: str = ""
    ) -> None:
        """`status`: of HTTP; `retry_after_s`: seconds after which it may be asked again.

        code: one of `pesto.service.serve.error_codes.CODES`; by default the usual one of the status.
        """
        super().__init__(message)
        self._remedy = remedy
        self.status, self.retry_after_s, self.code = status, retry_after_s, code or code_of(status)


def no_job(name: str) -> RefusedError:
    """404: there is no such job, or it is another's."""
    return RefusedError(404, f"there is no job {name!r} - see GET /v1/jobs")


def full(text: str, retry_after_s: int, *, code: str = "full") -> RefusedError:
    """429: too much waits already."""
    return RefusedError(429, text, retry_after_s, code=code)
