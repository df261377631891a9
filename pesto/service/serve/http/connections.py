"""HTTP/1.1 connections on uvicorn, limited in number, time and size, so that a slow client holds no place for long."""

import asyncio
import ipaddress
import logging
import math
import secrets
import time
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pesto.core.errors import Exit
from pesto.service.protocol import ProblemReply
from pesto.service.serve.refusals import code_of
from pesto.service.serve.serve_config import Certificate, ServeConfig

HEAD_S = 10.0
"""Seconds within which the head of a request must be there, of a connection's first one since its begin."""
BODY_S, BODY_RATE, BODY_MOST_S = 20.0, 1024, 60.0
"""Seconds that a body has at first, bytes for which it is given one more, and the most that it may have left."""
IDLE_S = 75
"""Seconds for which a connection may wait for its next request."""
UNREAD_S = 60.0
"""Seconds for which an answer may wait for its reader."""
RESERVE, RESERVE_EACH, RESERVE_S = 32, 4, 3.0
"""Connections beyond the most, in all and of one address, for health alone, and the seconds of their heads."""
SPARE_FILES = 128
"""Open files that are not connections: of the database, of workers, and of uploads."""
LOG_S = 10.0
"""Seconds between two lines of the log about connections."""
_LOG = logging.getLogger(__name__)


class Gate:
    """Counts the connections of a server, by address, and ends those that take too long."""

    def __init__(self, limit: int, address_limit: int, *, body_s: float = 3600.0) -> None:
        """`limit`: connections in all; `address_limit`: of one address; `body_s`: seconds that any body may take."""
        self._most, self._each, self.body_s = limit, address_limit, body_s
        self._open: dict[Any, str] = {}
        self._reserved: dict[Any, str] = {}
        self._by_address: Counter[str] = Counter()
        self.idle: dict[Any, None] = {}
        """Connections that wait for a next request, the longest first."""
        self._noted: Counter[str] = Counter()
        self._logged = -LOG_S

    @property
    def count(self) -> int:
        """Number of open connections."""
        return len(self._open) + len(self._reserved)

    def enter(self, connection: Any, peer: object) -> bool:
        """Count one more: True for any request, False for one of health alone.

        The reserve for health is never full: the one of the same address, or else of any, that has been there longest
        is dropped. A request that comes whole is answered before others of its address can take its place.
        """
        address = address_of(peer)
        if self._by_address[address] < self._each and (len(self._open) < self._most or self._made_room()):
            self._open[connection] = address
            self._by_address[address] += 1
            return True
        self.note(f"beyond {self._most} connections, or {self._each} of one address")
        same = [other for other, at in self._reserved.items() if at == address]
        reserved = same if len(same) >= RESERVE_EACH else list(self._reserved)
        if len(reserved) >= (RESERVE_EACH if reserved is same else RESERVE):
            self.leave(reserved[0])
            reserved[0].drop()
        self._reserved[connection] = address
        return False

    def leave(self, connection: Any) -> None:
        """Count one less, once."""
        self.idle.pop(connection, None)
        self._reserved.pop(connection, None)
        address = self._open.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def note(self, what: str) -> None:
        """Remember for the log that a connection was ended or refused."""
        self._noted[what] += 1

    def sweep(self) -> None:
        """End what takes too long, and log what was ended since the last line; about once a second."""
        now = time.monotonic()
        for connection in [*self._open, *self._reserved]:
            why = connection.late(now)
            if why:
                self.note(why)
                connection.cut()
        if self._noted and now >= self._logged + LOG_S:
            counts = ", ".join(f"{count} {what}" for what, count in self._noted.most_common())
            _LOG.warning("ended or refused connections: %s; %d are open", counts, self.count)
            self._noted.clear()
            self._logged = now

    def _made_room(self) -> bool:
        """End the connection that has waited longest for a next request; False where none waits."""
        for connection in self.idle:
            self.leave(connection)
            connection.transport.close()
            return True
        return False


def gate_for(config: ServeConfig, files: int) -> Gate:
    """Return the gate of a server that may have `files` open files."""
    room = max(1, files - SPARE_FILES - RESERVE)
    if room < config.connections:
        _LOG.warning("at most %d connections, since %d files may be open - raise it: ulimit -n", room, files)
    return Gate(min(config.connections, room), config.connections_per_address, body_s=config.upload_seconds)


def address_of(peer: object) -> str:
    """Return what is counted as one address: one of IPv4, or the network of 64 bits of one of IPv6."""
    if not isinstance(peer, tuple) or not peer:
        return ""
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except ValueError:
        return str(peer[0])
    if address.version == 4:
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped) if mapped else str(ipaddress.ip_network((address, 64), strict=False))


HEAD_BYTES = 1 << 15
"""Bytes of a request's line and headers together."""
HEALTH = (b"/healthz", b"/readyz", b"/metrics")
"""Paths that are answered when there are too many connections."""
_HEAD, _BODY, _ANSWER, _IDLE = range(4)
"""Phases of a connection: it reads a request's head, its body, sends the answer, or has no request."""
_SLOW = {_HEAD: "with heads of requests that came too slowly", _BODY: "with bodies that came too slowly"}
_INVALID = "Invalid HTTP request received."
"""Message of uvicorn's log for each request that it cannot read, which strangers could fill a disk with."""


class LimitedProtocol(HttpToolsProtocol):
    """One connection. `late` and `cut` are for the `Gate`, which looks at all about once a second."""

    def __init__(self, gate: Gate, certificate: Certificate | None, **given: Any) -> None:
        """`certificate`: for TLS; None for none."""
        super().__init__(**given)
        self._gate, self._certificate = gate, certificate
        self._place = False
        self._served = self.app
        self._phase, self._due_s, self._count = _HEAD, math.inf, 0
        self._end_s = math.inf
        """Deadline of the whole body; `_due_s` is the one at its rate."""
        self._unread_since: float | None = None
        self._accepted: asyncio.Transport | None = None
        self._made = False
        """True from the end of the handshake on, where there is one."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place; with TLS this is called twice: at first, and once the handshake is done."""
        given = cast(asyncio.Transport, transport)  # uvloop's own is none by its class
        if self._accepted is None:
            self._accepted = given
            self._place = self._gate.enter(self, given.get_extra_info("peername"))
            if self._certificate is not None:
                # Agree on TLS with the client. Not by `start_tls`, before which uvloop may read the client's first
                # bytes.
                tls = cast(Any, SSLProtocol)(
                    self.loop,
                    self,
                    self._certificate.context,
                    None,
                    server_side=True,
                    ssl_handshake_timeout=self._head_s,
                )
                given.set_protocol(tls)
                tls.connection_made(given)
                return
        self._made, self._due_s = True, time.monotonic() + self._head_s
        super().connection_made(given)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._gate.leave(self)
        if self._made:
            super().connection_lost(exc)

    @property
    def _head_s(self) -> float:
        return HEAD_S if self._place else RESERVE_S

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request. 431 for a head that goes on and on."""
        super().data_received(data)
        if self._phase == _HEAD:
            self._count += len(data)
            if self._count > HEAD_BYTES and not self.transport.is_closing():
                self._gate.note("with heads of requests that are too large")
                self._end(431)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse what is no HTTP: however much of it comes, it is counted in a line of the log."""
        self._gate.note("with what is no HTTP")
        self._end(400)

    def _unsupported_upgrade_warning(self) -> None:
        """Count a request for another protocol; it is answered as any other."""
        self._gate.note("that asked for another protocol")

    def on_message_begin(self) -> None:
        """Begin a request's head."""
        super().on_message_begin()
        self._gate.idle.pop(self, None)
        if self._phase != _HEAD:
            self._due_s = time.monotonic() + self._head_s
        self._phase, self._count = _HEAD, 0

    def on_headers_complete(self) -> None:
        """Have the request answered: by the service, or with a refusal."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        refusal = 431 if size > HEAD_BYTES else 0
        if not self._place and self.url.partition(b"?")[0] not in HEALTH:
            refusal = 503
        self.app = cast(Any, partial(_refuse, refusal)) if refusal else self._served
        super().on_headers_complete()
        self.cycle.keep_alive = self.cycle.keep_alive and bool(self._place)
        now = time.monotonic()
        self._phase, self._due_s, self._end_s = _BODY, now + BODY_S, now + self._gate.body_s

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        super().on_body(body)
        self._due_s = min(self._due_s + len(body) / BODY_RATE, time.monotonic() + BODY_MOST_S)

    def on_message_complete(self) -> None:
        """End a request."""
        super().on_message_complete()
        self._phase, self._due_s = _ANSWER, math.inf
        if self.cycle.response_complete:
            self._rest()

    def on_response_complete(self) -> None:
        """End an answer."""
        super().on_response_complete()
        if self._phase == _ANSWER and not self.pipeline:
            self._rest()

    def _rest(self) -> None:
        if not self.transport.is_closing():
            self._phase, self._due_s = _IDLE, time.monotonic() + IDLE_S
            self._gate.idle[self] = None

    def pause_writing(self) -> None:
        """Record that more is to be sent than the client takes."""
        super().pause_writing()
        self._unread_since = time.monotonic()

    def resume_writing(self) -> None:
        """Record that the client has taken most of the answer."""
        super().resume_writing()
        self._unread_since = None

    def late(self, now: float) -> str:
        """Return why the connection is to be ended now; empty for no reason."""
        if not self._made:
            return "without a TLS handshake" if self._accepted is None or self._accepted.is_closing() else ""
        closing = self.transport.is_closing()
        if closing and self._unread_since is None:
            self._unread_since = now
        if self._unread_since is not None and now >= self._unread_since + UNREAD_S:
            return "with answers that were not read"
        if closing:
            return ""  # it was ended, and what is left is being sent
        if self.flow.read_paused:
            self._due_s = max(self._due_s, now + BODY_S)  # it is this side that does not read
        if now < (min(self._due_s, self._end_s) if self._phase == _BODY else self._due_s):
            return ""
        return _SLOW.get(self._phase, "that were idle")

    def cut(self) -> None:
        """End the connection, which is late: with 408 where that can be said."""
        if not self._made:
            self._gate.leave(self)  # nobody else tells of its end
        elif self._unread_since is not None:
            self.transport.abort()
        elif self._phase == _IDLE:
            self.transport.close()
        else:
            self._end(408)

    def drop(self) -> None:
        """End the connection at once, whatever it is at."""
        (self.transport or cast(asyncio.Transport, self._accepted)).abort()

    def _end(self, status: int) -> None:
        """End it with an answer, unless another one is under way."""
        cycle = cast(Any, self.cycle)
        waits = cycle is not None and not cycle.response_complete
        if self.pipeline or (waits and (self._phase == _HEAD or cycle.response_started)):
            self.transport.abort()
            return
        name = secrets.token_hex(8)
        headers, body = _REFUSALS[status].encode(name)
        lines = b"".join(b"%s: %s\r\n" % pair for pair in (*headers, (b"x-request-id", name.encode())))
        phrase = HTTPStatus(status).phrase.encode()
        self.transport.write(b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (status, phrase, lines, body))
        self.transport.close()


def is_logged(record: logging.LogRecord) -> bool:
    """Return False for the message of uvicorn's log that the `Gate` counts."""
    return record.msg != _INVALID


class BareRefusal(NamedTuple):
    """An answer that refuses a request outside of any route, after which the connection ends."""

    status: int
    error: str
    remedy: str
    exit_code: Exit = Exit.USAGE
    retry_after_s: int | None = None

    def encode(self, request_id: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Return the headers and the body."""
        problem = ProblemReply(
            error=self.error, remedy=self.remedy, exit_code=int(self.exit_code), code=code_of(self.status),
            request_id=request_id,
        )  # fmt: skip
        body = msgspec.json.encode(problem)
        headers = [
            (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), (b"connection", b"close"),
        ]  # fmt: skip
        if self.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % self.retry_after_s))
        return headers, body

    async def send(self, send: Callable[..., Any], request_id: str, *, with_id: bool = False) -> None:
        """Send it as the answer of an application; `with_id`: where nothing else adds the header X-Request-Id."""
        headers, body = self.encode(request_id)
        more = [(b"x-request-id", request_id.encode())] if with_id else []
        await send({"type": "http.response.start", "status": self.status, "headers": headers + more})
        await send({"type": "http.response.body", "body": body, "more_body": False})


_REFUSALS = {
    400: BareRefusal(400, "the request is not valid HTTP/1.1", "send it as /v1/openapi.json describes"),
    408: BareRefusal(408, "the request took too long to arrive", "send it again without pauses"),
    431: BareRefusal(431, f"the request line and headers exceed {HEAD_BYTES} bytes", "send fewer or shorter headers"),
    503: BareRefusal(503, "there are too many connections", "repeat the request in 2 s", retry_after_s=2),
}


async def _refuse(status: int, _scope: object, _receive: object, send: Callable[..., Any]) -> None:
    """Refuse whatever is asked, as an application."""
    await _REFUSALS[status].send(send, secrets.token_hex(8), with_id=True)
