"""Uploads: graph files, GraphDefs, profiles, cluster files and plans, by the SHA-256 of their bytes."""

from typing import Annotated

from litestar import Response, Router, get, put
from litestar.openapi.spec import OpenAPIType, Schema
from litestar.params import PathParameter, QueryParameter

from pesto.service.protocol.replies import BlobReply
from pesto.service.serve.blobs import Uploader
from pesto.service.serve.http.caller import Asking, Who
from pesto.service.serve.http.refused import refusals
from pesto.service.serve.service import Service

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
    """The body is the file as it is. 201 once it is on the disk, 200 when it was there already, unchanged."""
    service = caller.service
    service.blobs.path(sha256)
    if await _is_there(service, sha256):
        return Response(BlobReply(sha256=sha256, bytes=service.blobs.path(sha256).stat().st_size), status_code=200)
    length = request.headers.get("content-length")
    announced = int(length) if length is not None and length.isdecimal() else None
    uploader = Uploader(caller.name, caller.quota.bytes)
    count = await service.blobs.take_in(sha256, request.stream(), announced, service.store.writer, uploader)
    return Response(BlobReply(sha256=sha256, bytes=count), status_code=201)


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
        if await _is_there(service, digest):
            found.append(digest)
    return found


async def _is_there(service: Service, digest: str) -> bool:
    """Return True if a file is remembered and on the disk as it was sent; it counts as wanted now."""
    if await service.store.reader.asked(lambda store: store.blob(digest)) is None:
        return False
    return await service.blobs.intact(digest) and await service.store.writer.asked(
        lambda ledger: ledger.touch_blob(digest)
    )


def blob_routes() -> Router:
    """Under /v1."""
    return Router("/", route_handlers=[upload, known], tags=["files"])
