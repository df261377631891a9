"""Which role may ask what: one row for each route under /v1 that wants to know who asks."""

from typing import NamedTuple

from pesto.service.serve.tokens import Role

ALL, OWN, YES, NO = "all", "own", "yes", ""
"""Jobs of everybody; jobs of the token alone; a route that is about no job; refused with 403."""


class Access(NamedTuple):
    """What each role may do at a route."""

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
