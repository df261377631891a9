"""Requests that are under way longer than the service waits for them when it ends: answered, not merely cut off."""

import asyncio
from typing import Any

import msgspec
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from pesto.core.errors import Exit
from pesto.service.protocol.replies import Problem
from pesto.service.serve.error_codes import code_of
from pesto.service.serve.http.tracing import record_of
from pesto.service.serve.watchers import Watchers

AGAIN_S = 5
"""Seconds after which such a request may be sent again."""


def answering_at_the_end(app: ASGIApp, watchers: Watchers) -> ASGIApp:
    """The application, in which a request that is cancelled since the service ends is answered 503.

    watchers: closed once the service ends. An answer that has begun is cut.
    """

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def told(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await app(scope, receive, told)
        except asyncio.CancelledError:
            if not watchers.closed:
                raise
            if not begun:
                await _refuse(scope, send)

    return answering


async def _refuse(scope: Any, send: Send) -> None:
    record = record_of(scope)
    record.code = code_of(503)
    problem = Problem(
        error="the service ends", remedy="send it again in a moment", exit_code=int(Exit.IO), code=record.code,
        request_id=record.id,
    )  # fmt: skip
    body = msgspec.json.encode(problem)
    headers = [
        (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)),
        (b"retry-after", b"%d" % AGAIN_S), (b"connection", b"close"),
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
