"""Routes of files: what a job wrote, the difference of two plans, and uploads by the SHA-256 of their bytes."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import msgspec
from litestar import Response, Router, get, put
from litestar.datastructures import ETag
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import OpenAPIType, Schema
from litestar.params import FromPath, HeaderParameter, PathParameter, QueryParameter
from litestar.response import File

from pesto.core.files.disk import file_sha256
from pesto.service.protocol import FINAL, BlobReply
from pesto.service.serve.blobs import Uploader
from pesto.service.serve.http.caller import Asking, Caller, Who
from pesto.service.serve.http.refused import refusals
from pesto.service.serve.refusals import RefusedError, full
from pesto.service.serve.service import Service
from pesto.service.serve.store.job_records import Job
from pesto.verbs.jobs.request import JobRequest, blobs_of, kept_request
from pesto.verbs.jobs.run_job import linked_files

FILES = {"plan": "plan.json", "report": "report.html", "trace": "trace.json.gz", "explain": "explain.json"}
"""Routes of single files, and the file of each."""
TYPES = {".json": "application/json", ".html": "text/html", ".gz": "application/gzip", ".svg": "image/svg+xml"}
OTHER = "text/plain"
_ALONE = {
    "Content-Security-Policy": "sandbox allow-scripts allow-downloads",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-cache",
}
"""A page made of a stranger's names must not act as this site."""
_DIFF_S = 60.0
_ANSWERS = {304: ResponseSpec(None, description="as its ETag says"), **refusals(404, 409, 410)}
Match = Annotated[str, HeaderParameter(name="If-None-Match", max_length=500)]


def _single_file(route: str, summary: str) -> HTTPRouteHandler:
    """Return the route of one of a job's `FILES`: 409 as long as it is not there, 410 once it is removed."""
    file, title = FILES[route], route.title()

    @get(
        f"/jobs/{{name:str}}/{route}", responses=_ANSWERS, summary=summary, media_type=TYPES[Path(file).suffix],
        operation_id=f"V1JobsName{title}{title}",
    )  # fmt: skip
    async def single_file(name: FromPath[str], caller: Who, match: Match = "") -> Response[Any]:
        return await _file(await caller.job(name), file, caller, match)

    return single_file


@get("/jobs/{name:str}/files/{file:str}", responses=_ANSWERS, summary="Any file")
async def any_file(name: FromPath[str], file: FromPath[str], caller: Who, match: Match = "") -> Response[Any]:
    """One of the names that the job has in `files`."""
    return await _file(await caller.job(name), file, caller, match)


@get("/diff", responses=_ANSWERS | refusals(422, 429), summary="Wherein two plans differ")
async def diff(
    caller: Who,
    a: Annotated[str, QueryParameter(max_length=100)],
    b: Annotated[str, QueryParameter(max_length=100)],
    match: Match = "",
) -> Response[Any]:
    """The object of pesto diff --json, of the plans of two jobs, which it names by their ids."""
    first, second = await caller.job(a), await caller.job(b)
    files = [_path(job, FILES["plan"], caller) for job in (first, second)]
    for job, path in zip((first, second), files, strict=True):
        await _digest(job, path)
    tag = f"{a}-{first.kept}-{b}-{second.kept}"
    if _same(tag, match):
        return _unchanged(tag)
    if caller.service.diffs.locked():
        raise full("two plans are being compared already", 2, remedy="try again")
    async with caller.service.diffs:
        job_request = kept_request(first.request)
        for sha in blobs_of(job_request) if job_request is not None else ():
            await caller.service.blobs.intact(sha)  # hashed here in a thread, for `linked_files` to find it done
        with _graph_options(job_request, caller) as options:
            result = await _told("diff", *map(str, files), *options, "--json")
    headers = {"ETag": f'"{tag}"', "Cache-Control": _ALONE["Cache-Control"]}
    return Response(result | {"plans": [a, b]}, headers=headers)


def file_routes() -> Router:
    """Under /v1."""
    single = (
        _single_file("plan", "A job's plan"),
        _single_file("report", "A plan as a page"),
        _single_file("trace", "A plan for Perfetto"),
        _single_file("explain", "Why it takes so long"),
    )
    return Router("/", route_handlers=[*single, any_file, diff], tags=["results"])


async def _file(job: Job, name: str, caller: Caller, match: str) -> Response[Any]:
    path = _path(job, name, caller)
    tag = await _digest(job, path) or f"{job.id}-{job.kept}-{name}"
    if _same(tag, match):
        return _unchanged(tag)
    kind = TYPES.get(path.suffix, OTHER)
    return File(
        path, etag=ETag(value=tag), media_type=kind, headers=_ALONE, filename=name, content_disposition_type="inline"
    )


async def _digest(job: Job, path: Path) -> str | None:
    """Return a file's SHA-256; None where its job left none. RefusedError (410) if it is another than the job wrote."""
    written = None if job.outcome is None else job.outcome.digests.get(path.name)
    if written is not None and await asyncio.to_thread(file_sha256, path) != written:
        raise RefusedError(410, f"{path.name} of job {job.id} was changed on the disk", remedy="submit the job again")
    return written


def _same(tag: str, match: str) -> bool:
    """Return True if the caller has this version already."""
    return f'"{tag}"' in match or match == "*"


def _unchanged(tag: str) -> Response[Any]:
    """304: bytes, since nothing has no form in the media types of some routes."""
    return Response(b"", status_code=304, headers={"ETag": f'"{tag}"'})


def _path(job: Job, name: str, caller: Caller) -> Path:
    """Return the path of a job's file. RefusedError 404 for none, 409 for not yet, 410 for removed."""
    if job.expired:
        raise RefusedError(410, f"the files of job {job.id} were deleted to free space", remedy="submit the job again")
    if not job.kept:
        if job.state in FINAL:
            raise RefusedError(
                404, f"the job {job.id} is {job.state} and left no file", remedy=f"see GET /v1/jobs/{job.id}"
            )
        remedy = f"wait for it: GET /v1/jobs/{job.id}/events"
        what = f"the job {job.id} is {job.state} and has not written {name} yet"
        raise RefusedError(409, what, remedy=remedy, code="not_yet")
    folder = caller.service.scheduler.results(job.id, job.kept)
    names = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    if name not in names or (job.outcome is not None and name not in job.outcome.files):
        raise RefusedError(
            404, f"the job {job.id} of kind {job.kind} has no such file", remedy="use a name from its `files`"
        )
    return folder / name


@contextmanager
def _graph_options(request: JobRequest | None, caller: Caller) -> Iterator[list[str]]:
    """The options that name a request's graph where its plan does not."""
    if request is None or request.source is None or request.source.blob is None:
        yield []
        return
    with TemporaryDirectory() as folder, linked_files(request, caller.service.blobs.folder, Path(folder)) as files:
        source = files.source
        yield [f"--graph={source.file}", *(f"--fetch={op}" for op in source.fetch)]


async def _told(*words: str) -> dict[str, Any]:
    """Run a verb with --json in a process of its own, and return its object; RefusedError (422) where it fails."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "pesto", *words, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _DIFF_S)
        result: dict[str, Any] = msgspec.json.decode(output)
    except (TimeoutError, msgspec.DecodeError) as error:
        raise RefusedError(422, f"no comparison within {_DIFF_S:g} s", remedy="use pesto diff on files") from error
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()  # its end is heard of while the event loop still runs
    if process.returncode:
        raise RefusedError(422, f"{result.get('error')}", remedy=f"{result.get('remedy')}")
    return result


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
    service, present = caller.service, list[str]()
    for digest in sha256:
        service.blobs.path(digest)
        if await _is_there(service, digest):
            present.append(digest)
    return present


async def _is_there(service: Service, digest: str) -> bool:
    """Return True if a file is remembered and on the disk as it was sent; it counts as wanted now."""
    if await service.store.reader.ask(lambda store: store.blob(digest)) is None:
        return False
    return await service.blobs.intact(digest) and await service.store.writer.ask(
        lambda ledger: ledger.touch_blob(digest)
    )


def blob_routes() -> Router:
    """Under /v1."""
    return Router("/", route_handlers=[upload, known], tags=["files"])
