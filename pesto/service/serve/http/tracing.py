"""Request ids, entries of the access log and times by route; answers to HEAD and OPTIONS, which no route handles."""

import random
import re
import time
from typing import Any

from litestar.types import ASGIApp, Message, Receive, ReceiveMessage, Scope, Send

from pesto.service.serve.telemetry import AccessLog, RequestTimes, iso_time

RECORD = "pesto.record"
"""Key of the record in the scope of a request."""
TEMPLATE = "path_template"
"""Key of the route's template, which the framework writes into the scope."""
_ID = re.compile(rb"[\w.:-]{1,100}", re.ASCII)
_RANDOM = random.Random()  # noqa: S311 - ids are no secrets, and the system's numbers give the interpreter's lock away
_MOST = 1000
"""Characters of a path and of a query in the log."""


class Record:
    """Facts about a request for the access log, collected while it is answered."""

    __slots__ = ("code", "id", "job", "role", "sent_bytes", "status", "token")

    def __init__(self, name: str) -> None:
        """`name`: its id. `code` is of the error that is answered, `job` the id of one that was submitted."""
        self.id = name
        self.token = self.role = self.code = self.job = ""
        self.status = self.sent_bytes = 0


def record_of(scope: Any) -> Record:
    """Return the record of a request; one that nobody reads where nothing traces."""
    record: Record = scope.get(RECORD) or Record("")
    return record


def traced(app: ASGIApp, log: AccessLog, times: RequestTimes) -> ASGIApp:
    """The application, with an X-Request-Id in each answer: that of the request where it has one that is good."""

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        if "method" not in scope:
            await app(scope, receive, send)
            return
        request: Any = scope
        ids = [value.decode() for name, value in scope["headers"] if name == b"x-request-id" and _ID.fullmatch(value)]
        record = Record(ids[0] if ids else f"{_RANDOM.getrandbits(64):016x}")
        began, moment = time.perf_counter(), time.time()
        request[RECORD] = record

        async def send_traced(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                if record.status == 202:
                    location = dict(message["headers"]).get(b"location", b"")
                    record.job = location.decode().rpartition("/")[2]
                message["headers"] = [*message["headers"], (b"x-request-id", record.id.encode())]
            elif message["type"] == "http.response.body":
                record.sent_bytes += len(message["body"])
            await send(message)

        try:
            await app(scope, receive, send_traced)
        finally:
            seconds = time.perf_counter() - began
            times.add(request["method"], request.get(TEMPLATE, ""), record.status, seconds)
            if log.on:
                log.add(_entry(request, record, moment, seconds))

    return answering


def _entry(scope: Any, record: Record, moment: float, seconds: float) -> dict[str, Any]:
    """Return the entry of the log: never with a token, never with a body."""
    client = scope.get("client")
    entry = {
        "time": iso_time(moment),
        "id": record.id,
        "token": record.token,
        "role": record.role,
        "address": client[0] if client else "",
        "method": scope["method"],
        "path": scope["path"][:_MOST],
        "query": scope.get("query_string", b"").decode("latin-1")[:_MOST],
        "status": record.status,
        "seconds": round(seconds, 6),
        "sent_bytes": record.sent_bytes,
    }
    more = {"code": record.code, "job": record.job}
    return entry | {name: value for name, value in more.items() if value}


def with_head(app: ASGIApp) -> ASGIApp:
    """Return the application, which is asked with GET where HEAD comes; OPTIONS names both."""

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        method = scope.get("method")
        if method == "HEAD":
            await _bare(app, scope, receive, send)
        elif method == "OPTIONS":
            await app(scope, receive, _naming(send))
        else:
            await app(scope, receive, send)

    return answering


def beside_get(allowed: str) -> str:
    """Return the methods of an `Allow`, with HEAD among them where there is GET."""
    named = set(allowed.split(", "))
    return ", ".join(sorted(named | {"HEAD"} if "GET" in named else named))


async def _bare(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """An answer that ends with its headers; a stream hears then that nobody listens."""
    begun = False

    async def receive_until_begun() -> ReceiveMessage:
        return {"type": "http.disconnect"} if begun else await receive()

    async def send_head(message: Message) -> None:
        nonlocal begun
        if message["type"] == "http.response.start":
            begun = True
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    request: Any = {**scope, "method": "GET"}
    await app(request, receive_until_begun, send_head)
    scope[TEMPLATE] = request.get(TEMPLATE, "")  # type: ignore[literal-required]


def _naming(send: Send) -> Send:
    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (name, beside_get(value.decode()).encode() if name.lower() == b"allow" else value)
                for name, value in message["headers"]
            ]
            message = {**message, "headers": headers}
        await send(message)

    return named
