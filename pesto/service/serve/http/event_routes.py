"""The events of a job as a stream (Server-Sent Events): those that are kept, then new ones as they are kept."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from litestar import Router, get
from litestar.params import FromPath, HeaderParameter
from litestar.response import Stream

from pesto.service.serve.http.caller import Caller, Who
from pesto.service.serve.http.refused import refusals
from pesto.service.serve.store.database import AGAIN_S, LaterError
from pesto.service.serve.store.job_records import Numbered
from pesto.service.serve.store.readings import Readings

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
    service = caller.service
    woken = service.watchers.join(job)
    try:
        yield b": pesto\n\n"
        while not service.watchers.closed and service.doors.admits(caller.token_id):
            woken.clear()
            try:
                async with service.watchers.turn:
                    ended, found = await service.store.reader.asked(partial(_news, job=job, last=last))
            except LaterError:
                await asyncio.sleep(AGAIN_S)
                continue
            if found:
                yield b"".join(map(_lines, found))
                last = found[-1].number
                await asyncio.sleep(0)
            if len(found) == _PAGE:
                continue
            if ended:
                return
            try:
                await asyncio.wait_for(woken.wait(), QUIET_S)
            except TimeoutError:
                yield b": still here\n\n"
    finally:
        service.watchers.leave(job, woken)


def _news(store: Readings, job: int, last: int) -> tuple[bool, list[Numbered]]:
    """Return whether a job has ended, and its events after `last`."""
    ended = store.ended(job)  # first: whatever it told before is found then
    return ended, store.events(job, last, _PAGE)


def _lines(event: Numbered) -> bytes:
    """An event; JSON has no line ends in it."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, event.kind.encode(), event.data)


def event_routes() -> Router:
    """Under /v1."""
    return Router("/", route_handlers=[events], tags=["jobs"])
