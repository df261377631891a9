"""Routes of jobs: submit, list, show, cancel, delete, and the stream of a job's events (Server-Sent Events)."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from litestar import Response, Router, delete, get, post, route
from litestar.di import NamedDependency, Provide
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter
from litestar.response import Stream

from pesto.core.errors import PestoError, UsageError
from pesto.core.files.disk import file_sha256
from pesto.service.protocol import FINAL, Cancelled, JobReply, JobsReply, State, Submitted
from pesto.service.serve.blobs import Uploader, chunks_of
from pesto.service.serve.http.caller import Caller, Who
from pesto.service.serve.http.refused import refusals
from pesto.service.serve.refusals import RefusedError, full
from pesto.service.serve.store.database import AGAIN_S, LaterError
from pesto.service.serve.store.job_records import Job, StoredEvent, Submission
from pesto.service.serve.store.ledger import SubmitLimits
from pesto.service.serve.store.readings import CURSOR, JobFilter, Readings
from pesto.service.serve.store.waiting import Waiting
from pesto.service.serve.tokens import MACHINE
from pesto.service.serve.webhooks import check_url, origin_of
from pesto.verbs.jobs.checks import checked
from pesto.verbs.jobs.request import BlobFile, JobRequest, Kind, blobs_of, digests_of, kept_request, plans_of, resolved


def job_reply(job: Job, place: int | None, *, whole: bool = False) -> JobReply:
    """Return the answer that describes a job, with its place in the queue; `whole`: and with its request."""
    request = kept_request(job.request) if job.request else None
    about = cluster = variant = shown = None
    if request is not None:
        about, cluster = request.source or request.plan, request.cluster
        variant = None if request.source is None else request.source.variant
        if whole:  # without the part of an address that only its receiver should know
            notify = request.notify and origin_of(request.notify)
            shown = msgspec.to_builtins(msgspec.structs.replace(request, notify=notify))
    ended = job.outcome if job.state in FINAL else None
    stored = None if job.expired else job.outcome
    return JobReply(
        id=job.id,
        number=job.number,
        kind=job.kind,
        label=job.label,
        source=job.model or (about and (about.name or about.blob)) or "",
        variant=variant or "",
        cluster=(cluster.name or cluster.blob) if isinstance(cluster, BlobFile) else cluster or "",
        settings={} if request is None else request.settings.given(),
        reads={} if request is None else digests_of(request),
        request=shown,
        priority=job.priority,
        state=job.state,
        place=place,
        stage=job.stage,
        best_s=job.best_s,
        bound_s=job.bound_s,
        gap=job.gap,
        attempt=job.attempt,
        deaths=job.deaths,
        events=job.events,
        who=job.token,
        created=job.created,
        started=job.started,
        finished=job.finished,
        seconds=job.seconds,
        exit_code=None if ended is None else ended.exit_code,
        error=None if ended is None else ended.error,
        where=None if ended is None else ended.where,
        remedy=None if ended is None else ended.remedy,
        result={} if ended is None else ended.result,
        files=() if stored is None else stored.files,
        digests={} if stored is None else stored.digests,
        expired=job.expired,
    )


PAGE = 50
"""Jobs of a page, where no other number is asked for."""
MOST_TURNS = 1_000
"""Turns of acts that may wait for the disk; beyond, submissions are refused."""
PLANS = ("plan.json", "split.json")
"""Files with a job's result; a check takes either."""
MOST_FINE = 1024
_FINE: dict[bytes, None] = {}
"""Digests of the last requests that could be done, the oldest first: requests themselves have up to 1 MiB each."""
Key = Annotated[
    str,
    HeaderParameter(name="Idempotency-Key", max_length=200, description="The same key and body again is the same job."),
]


@post("/jobs", status_code=202, responses=refusals(404, 409, 413, 422, 429, 507), summary="Submit a job")
async def submit(data: JSONBody[JobRequest], caller: Who, key: Key = "") -> Response[Submitted]:
    """Queue a job; answered when it is on the disk, so that it will be run whatever happens."""
    body = msgspec.json.encode(data)
    digest = hashlib.sha256(body).digest()
    try:
        name = await _taken(data, body, caller, (key, digest))
    except PestoError:  # a key that is known has its job, whatever has filled up or changed since
        known = await caller.service.store.reader.ask(lambda store: store.job_of_key(caller.name, key, digest))
        if known is None:
            raise
        name = known
    caller.service.scheduler.wake()
    url = f"/v1/jobs/{name}"
    return Response(Submitted(id=name, url=url), status_code=202, headers={"Location": url})


class _MoreFilters(NamedTuple):
    """Filters of a list beside those of columns."""

    since: float | None
    until: float | None
    text: str | None


@get("/jobs", responses=refusals(), summary="List jobs")
async def jobs(
    caller: Who,
    wanted: NamedDependency[JobFilter],
    among: NamedDependency[_MoreFilters],
    after: Annotated[
        str | None, QueryParameter(pattern=f"^{CURSOR}$", description="What the page before has as its `after`.")
    ] = None,
    most: Annotated[int, QueryParameter(ge=1, le=500)] = PAGE,
    counts: Annotated[bool, QueryParameter(description="Whether `counts` is asked for, too.")] = False,
) -> JobsReply:
    """The newest first, a page at a time; with several filters a page may be short and not be the last."""

    def listed(store: Readings, waiting: Waiting) -> JobsReply:
        page = store.jobs(msgspec.structs.replace(wanted, **among._asdict()), after, most)
        replies = [job_reply(job, store.place(job, waiting)) for job in page.jobs]
        return JobsReply(jobs=replies, after=page.after, counts=store.counts(caller.owner) if counts else {})

    return await caller.service.store.reader.ask_slow(listed)


Name = Annotated[str | None, QueryParameter(max_length=200)]
Moment = Annotated[
    float | None, QueryParameter(ge=0, le=1e11, description="Seconds since 1970 of the submission; the order is by it.")
]


def job_filter(
    caller: Who,
    kind: Annotated[Kind | None, QueryParameter()] = None,
    model: Name = None,
    in_state: Annotated[State | None, QueryParameter(name="state")] = None,
    label: Name = None,
) -> JobFilter:
    """Return which jobs a request lists; of the caller's alone, unless its role sees those of all."""
    return JobFilter(owner=caller.owner, kind=kind, model=model, state=in_state, label=label)


def among(
    since: Moment = None,
    until: Moment = None,
    search: Annotated[
        str | None, QueryParameter(max_length=200, description="A part of label, model, kind, or the id's beginning.")
    ] = None,
) -> _MoreFilters:
    """Return the rest of which jobs a request lists."""
    return _MoreFilters(since, until, search or None)


@get("/jobs/{name:str}", responses=refusals(404), summary="Show a job")
async def job(name: FromPath[str], caller: Who) -> JobReply:
    """State, place in the queue, stage, best, bound and gap, and what was asked for."""
    stored = await caller.job(name)
    return job_reply(stored, await caller.service.store.reader.place(stored), whole=True)


@delete("/jobs/{name:str}", status_code=200, responses=refusals(404, 409, 507), summary="Cancel or delete a job")
async def cancel(
    name: FromPath[str],
    caller: Who,
    purge: Annotated[Literal["", "true", "false"], QueryParameter(description="Delete it; empty or true.")] = "false",
) -> Cancelled:
    """Cancel it as Ctrl-C does: the best verified plan is kept. One that has ended stays as it is.

    With `purge` a job that has ended is deleted with its events and files; one that has not is 409.
    """
    service = caller.service
    await caller.job(name)
    if purge != "false":
        state = await service.store.writer.ask(lambda ledger: ledger.purge(name))
        await asyncio.to_thread(service.scheduler.remove_files)
        return Cancelled(id=name, state=state)
    state = await service.store.writer.ask(lambda ledger: ledger.cancel(name))
    if state == State.CANCELLING:
        service.scheduler.cancel(name)
    return Cancelled(id=name, state=state)


async def _taken(data: JobRequest, body: bytes, caller: Caller, key: tuple[str, bytes]) -> str:
    """Return the id of the job, once it is on the disk; `key`: the Idempotency-Key and the request's digest."""
    service = caller.service
    check_once(data, key[1])
    bounds = service.scheduler.bounds
    requested = data.limits
    for name, value, limit in (
        ("seconds", requested.seconds, bounds.seconds),
        ("threads", requested.threads, bounds.threads),
        ("rss_bytes", requested.rss_bytes, int(bounds.rss_gib * 2**30)),
        ("nodes", requested.nodes, bounds.nodes),
        ("settings.time_limit_s", data.settings.time_limit_s, bounds.seconds),
    ):
        if value is not None and value > limit:
            what = f"{name} is {value:.12g}, above the maximum of {limit:.12g} for a job"
            raise RefusedError(422, what, remedy=f"give {limit:.12g} or less", code="beyond_limit")
    if data.notify is not None:
        check_url(data.notify, enabled=service.config.webhooks.enabled)
    if data.priority > caller.most_priority:
        raise RefusedError(
            422,
            f"the priority {data.priority} exceeds the maximum of this token, {caller.most_priority}",
            remedy=f"give {caller.most_priority} or less",
            code="beyond_limit",
        )
    if service.store.writer.waiting > MOST_TURNS:
        raise full("too many requests wait for the disk of the service", 1, remedy="repeat the request in a second")
    service.blobs.require_space()
    files = PLANS if data.kind == "check" else PLANS[:1]
    jobs = dict.fromkeys(plan.job for plan in plans_of(data) if plan.job is not None)
    plans = {name: await _adopted(name, caller, files) for name in jobs}
    needed = resolved(data, plans) if plans else data
    for sha in blobs_of(needed):
        if not await service.blobs.intact(sha):
            what = f"the file {sha} is not on the service: not uploaded, deleted, or changed on its disk"
            raise RefusedError(422, what, remedy=f"upload it: PUT /v1/blobs/{sha}", code="blob_missing")
    submission = Submission(
        token=caller.name,
        kind=data.kind,
        model=(data.source.model if data.source is not None else None) or "",
        label=data.label,
        priority=data.priority,
        request=body if needed is data else msgspec.json.encode(needed),
        blobs=blobs_of(needed),
        key=key[0],
        digest=key[1],
        notify=data.notify or "",
        limit_s=data.limits.seconds,
    )
    limits = SubmitLimits(caller.quota, service.config.queued)
    return await service.store.writer.ask(lambda ledger: ledger.submit(submission, limits))


async def _adopted(name: str, caller: Caller, files: Sequence[str]) -> str:
    """Take in the first of these files of a job as an upload, and return its SHA-256. RefusedError for none."""
    service, job = caller.service, await caller.job(name)
    if job.expired or (job.state in FINAL and not job.kept):
        raise RefusedError(
            422, f"the job {name} has no plan", remedy="name another job, or upload a plan", code="no_plan"
        )
    if not job.kept:
        raise RefusedError(422, f"the job {name} has no plan yet", remedy="wait until it ends", code="no_plan")
    results = service.scheduler.results(name, job.kept)
    plan = next(filter(Path.is_file, map(results.joinpath, files)), None)
    if plan is None:
        raise UsageError.build(f"the job {name} has no plan", remedy="name another job, or upload a plan")
    digest = await asyncio.to_thread(file_sha256, plan)
    if digest != (job.outcome.digests if job.outcome else {}).get(plan.name, digest):
        raise RefusedError(
            422, f"the plan of the job {name} was changed on the service's disk", remedy="submit that job again"
        )
    uploader = Uploader(caller.name, MACHINE.bytes)
    await service.blobs.take_in(digest, chunks_of(plan), None, service.store.writer, uploader)
    return digest


def job_routes() -> Router:
    """Under /v1."""
    options = [_options("/jobs", "GET, OPTIONS, POST"), _options("/jobs/{name:str}", "DELETE, GET, OPTIONS")]
    handlers = [*options, submit, jobs, job, cancel]
    filters = {
        "wanted": Provide(job_filter, sync_to_thread=False), "among": Provide(among, sync_to_thread=False)
    }  # fmt: skip
    return Router("/", route_handlers=handlers, dependencies=filters, tags=["jobs"])


def _options(path: str, allowed: str) -> HTTPRouteHandler:
    """Answer OPTIONS for a path with several methods: the framework names the first of them alone."""

    @route(path, http_method="OPTIONS", status_code=204, include_in_schema=False, sync_to_thread=False)
    def options() -> Response[None]:
        return Response(None, status_code=204, headers={"Allow": allowed})

    return options


QUIET_S = 15.0
"""Seconds without an event after which a comment is sent, so that nobody between takes the stream for dead."""
_PAGE = 64
"""Events that are sent before others have their turn."""
Last = Annotated[
    int,  # the document has limits as fractions, which have 15 digits
    HeaderParameter(
        name="Last-Event-ID", ge=0, le=10**15, description="The number of the last event that has arrived."
    ),
]


@get(
    "/jobs/{name:str}/events",
    responses=refusals(404),
    media_type="text/event-stream",
    summary="Watch a job",
)
async def events(name: FromPath[str], caller: Who, last: Last = 0) -> Stream:
    """Each event has the number that follows on the one before; `Last-Event-ID` goes on where a stream was cut.

    A stream ends after `done`, and once the token is refused. stage, incumbent, bound and log come before it.
    """
    job = await caller.job(name)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Stream(_stream(caller, job.number, last), media_type="text/event-stream", headers=headers)


async def _stream(caller: Caller, job: int, last: int) -> AsyncIterator[bytes]:
    def news(store: Readings, last: int) -> tuple[bool, list[StoredEvent]]:
        ended = store.ended(job)  # first: whatever it told before is found then
        return ended, store.events(job, last, _PAGE)

    service = caller.service
    woken = service.watchers.join(job)
    try:
        yield b": pesto\n\n"
        while not service.watchers.closed and service.authenticator.admits(caller.token_id):
            woken.clear()
            try:
                async with service.watchers.turn:
                    ended, events = await service.store.reader.ask(partial(news, last=last))
            except LaterError:
                await asyncio.sleep(AGAIN_S)
                continue
            if events:
                yield b"".join(  # JSON has no line ends in it
                    b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, event.kind.encode(), event.data)
                    for event in events
                )
                last = events[-1].number
                await asyncio.sleep(0)
            if len(events) == _PAGE:
                continue
            if ended:
                return
            try:
                await asyncio.wait_for(woken.wait(), QUIET_S)
            except TimeoutError:
                yield b": still here\n\n"
    finally:
        service.watchers.leave(job, woken)


def event_routes() -> Router:
    """Under /v1."""
    return Router("/", route_handlers=[events], tags=["jobs"])


def check_once(data: JobRequest, digest: bytes) -> None:
    """Refuse what cannot be done (`checked`); a request that comes again and again is checked once."""
    if digest in _FINE:
        return
    checked(data)
    _FINE[digest] = None
    if len(_FINE) > MOST_FINE:
        del _FINE[next(iter(_FINE))]
