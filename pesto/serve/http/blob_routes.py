"""Uploads: graph files, GraphDefs, profiles, cluster files and plans, by the SHA-256 of their bytes."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from litestar import Response, Router, get, put
from litestar.openapi.spec import OpenAPIType, Schema
from litestar.params import PathParameter, QueryParameter

from pesto.serve.blobs import taken_in
from pesto.serve.http.caller import Asking, Who
from pesto.serve.http.refused import refusals
from pesto.serve.http.replies import BlobReply
from pesto.serve.store.ledger import Ledger
from pesto.serve.store.readings import Readings

SHA = "^[0-9a-f]{64}$"
"""Said by the document; what is none is refused in this service's own words."""


@put(
    "/blobs/{sha256:str}",
    status_code=201,
    request_max_body_size=None,  # blobs have a limit of their own
    responses=refusals(413, 422, 429, 507),
    summary="Upload a file",
)
async def upload(
    sha256: Annotated[str, PathParameter(schema_extra={"pattern": SHA})], caller: Who, request: Asking
) -> Response[BlobReply]:
    """The body is the file as it is. 201 once it is on the disk, 200 when it was there already."""
    service = caller.service
    service.blobs.path(sha256)
    known = await service.store.reader.asked(lambda store: store.blob(sha256))
    if known is not None and await service.store.writer.asked(_touch(sha256)):
        return Response(BlobReply(sha256=sha256, bytes=known), status_code=200)
    held = await service.store.reader.asked(lambda store: store.blob_bytes(caller.name))
    length = request.headers.get("content-length")
    told = int(length) if length is not None and length.isdecimal() else None
    async with service.blobs.coming(sha256, request.stream(), told, caller.quota.bytes - held) as part:
        await service.store.writer.asked(
            lambda ledger: taken_in(ledger, service.blobs, part, caller.name, caller.quota.bytes)
        )
    return Response(BlobReply(sha256=sha256, bytes=part.size), status_code=201)


@get("/blobs", responses=refusals(400), summary="Which files are there")
async def known(
    caller: Who,
    sha256: Annotated[
        list[str], QueryParameter(max_items=100, schema_extra={"items": Schema(type=OpenAPIType.STRING, pattern=SHA)})
    ],
) -> list[str]:
    """Those of the named files that need not be uploaded; they are kept as if they were sent now."""
    service, found = caller.service, list[str]()
    for digest in sha256:
        service.blobs.path(digest)
        there = await service.store.reader.asked(partial(_size, digest=digest))
        if there is not None and await service.store.writer.asked(_touch(digest)):
            found.append(digest)
    return found


def _size(store: Readings, digest: str) -> int | None:
    return store.blob(digest)


def _touch(digest: str) -> Callable[[Ledger], bool]:
    return lambda ledger: ledger.touch_blob(digest)


def blob_routes() -> Router:
    """Under /v1."""
    return Router("/", route_handlers=[upload, known], tags=["files"])
