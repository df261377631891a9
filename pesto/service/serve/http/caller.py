"""The caller of a request, by its token or as the machine itself, and which role may use which route."""

import re
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from litestar import Request
from litestar.di import NamedDependency

from pesto.service.serve.http.tracing import record_of
from pesto.service.serve.refusals import RefusedError, no_job
from pesto.service.serve.serve_config import LOOPBACK
from pesto.service.serve.service import Service
from pesto.service.serve.store.job_records import Job
from pesto.service.serve.tokens import MACHINE, MOST_PRIORITY, Quota, Role

ALL, OWN, YES, NO = "all", "own", "yes", ""
"""Jobs of everybody; jobs of the token alone; a route that is about no job; refused with 403."""


class Access(NamedTuple):
    """The access of each role to a route."""

    admin: str
    user: str
    reader: str


_SEE = Access(ALL, OWN, ALL)
_CHANGE = Access(ALL, OWN, NO)
_ANYBODY = Access(YES, YES, YES)
_UPLOAD = Access(YES, YES, NO)
PERMISSIONS = {
    ("POST", "/v1/jobs"): _CHANGE,
    ("GET", "/v1/jobs"): _SEE,
    ("GET", "/v1/jobs/{name}"): _SEE,
    ("DELETE", "/v1/jobs/{name}"): _CHANGE,
    ("GET", "/v1/jobs/{name}/events"): _SEE,
    ("GET", "/v1/jobs/{name}/plan"): _SEE,
    ("GET", "/v1/jobs/{name}/report"): _SEE,
    ("GET", "/v1/jobs/{name}/trace"): _SEE,
    ("GET", "/v1/jobs/{name}/explain"): _SEE,
    ("GET", "/v1/jobs/{name}/files/{file}"): _SEE,
    ("GET", "/v1/diff"): _SEE,
    ("PUT", "/v1/blobs/{sha256}"): _UPLOAD,
    ("GET", "/v1/blobs"): _UPLOAD,
    ("GET", "/v1/models"): _ANYBODY,
    ("GET", "/v1/clusters"): _ANYBODY,
    ("GET", "/v1/solvers"): _ANYBODY,
}
"""By method and path. A submission may name the plans of jobs that its role sees; the job itself is the token's own."""
FOR_EVERYBODY = ("/", "/frame", "/healthz", "/readyz", "/metrics", "/v1/openapi.json")
"""Paths that ask nobody for a token."""
_NOBODY = Access(NO, NO, NO)


def access_of(method: str, path: str, role: Role) -> str:
    """Return what a role has of a route; nothing of one that has no row."""
    access: str = getattr(PERMISSIONS.get((method, path), _NOBODY), role.value)
    return access


Asking = Request[Any, Any, Any]
SERVICE = "service"
"""Key of the service in the application's state."""
_ONCE = (b"host", b"authorization", b"origin", b"idempotency-key")
"""Headers of which a proxy may read another one than the service, where a request has several."""
_PORT = re.compile(r":[0-9]*$")
"""Port of a host, which has brackets where it is an address with colons."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The token or machine that sends a request, with its role and quota."""

    name: str
    quota: Quota
    service: Service
    role: Role = Role.USER
    token_id: str = ""
    """Empty for the machine itself."""
    access: str = ""
    """The role's access to the route, of PERMISSIONS."""

    @property
    def owner(self) -> str | None:
        """The token whose jobs alone the route is about; None for the jobs of all."""
        return None if self.access == ALL else self.name

    @property
    def most_priority(self) -> int:
        """The highest priority of a job that it may submit."""
        return MOST_PRIORITY if self.role == Role.ADMIN else self.quota.priority

    async def job(self, name: str) -> Job:
        """Return a job that the route may be about; RefusedError (404) for another's as for none."""
        job = await self.service.store.reader.ask(lambda store: store.job(name))
        if job is None or self.owner not in (None, job.token):
            raise no_job(name)
        return job


def caller(request: Asking) -> Caller:
    """Return who asks. RefusedError (401) without a known token, (403) where its role may not ask this.

    Where the service needs no token the machine itself may ask; a page of another site may not, neither under its own
    host's name, by which a browser has been led here, nor under this one's: then the page's origin is another.
    """
    service: Service = request.app.state[SERVICE]
    token = service.authenticator.authenticate(request.headers.get("authorization", ""))
    route = (request.method, request.scope["path_template"])
    if token is None:
        named, origin = request.headers.get("host", "").lower(), request.headers.get("origin")
        remedy = "add a token: pesto serve token add"
        if _PORT.sub("", named).strip("[]") not in LOOPBACK:
            raise RefusedError(403, "without tokens the service answers its own machine only", remedy=remedy)
        if origin is not None and origin.lower().partition("://")[2] != named:
            raise RefusedError(403, "without tokens the service refuses pages of another site", remedy=remedy)
        return Caller("", MACHINE, service, access=access_of(*route, Role.USER))
    record = record_of(request.scope)
    record.token, record.role = token.name, token.role.value
    if not token.valid(time.time()):
        raise RefusedError(
            401, "this token was removed or has expired", remedy="ask for a new one", code="token_expired"
        )
    access = access_of(*route, token.role)
    if not access:
        what = f"the token {token.name} has the role {token.role}, which does not permit {route[0]} {route[1]}"
        raise RefusedError(403, what, remedy="use a token with another role", code="forbidden_role")
    return Caller(token.name, token.quota, service, token.role, token.id, access)


async def refuse_doubled_headers(request: Asking) -> None:
    """RefusedError (400) where a header that says who asks, or for what, is there twice; before any route.

    A coroutine, since the framework has any other function called by another thread.
    """
    names = [name for name, _ in request.scope["headers"]]
    for name in _ONCE:
        if names.count(name) > 1:
            raise RefusedError(400, f"the request has several headers {name.decode().title()}", remedy="send one")


Who = NamedDependency[Caller]
"""Parameter of a route: its caller."""
