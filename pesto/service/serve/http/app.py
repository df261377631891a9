"""The HTTP application: its routes, errors and OpenAPI document, answered on one socket until a signal ends it."""

import asyncio
import gc
import logging
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import uvicorn
from litestar import Litestar, Request, Router
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from pesto.core.distribution import VERSION
from pesto.core.errors import Exit, PestoError
from pesto.service.serve.http.caller import SERVICE, caller, refuse_doubled_headers
from pesto.service.serve.http.connections import IDLE_S, BareRefusal, Gate, LimitedProtocol, is_logged
from pesto.service.serve.http.file_routes import OTHER, TYPES, blob_routes, file_routes
from pesto.service.serve.http.job_routes import event_routes, job_routes
from pesto.service.serve.http.other_routes import catalogue_routes, health_routes, page_routes
from pesto.service.serve.http.refused import of_bug, of_http, refused, too_deep, undecodable, unreadable
from pesto.service.serve.http.tracing import record_of, traced, with_head
from pesto.service.serve.refusals import CODES, code_of
from pesto.service.serve.serve_config import Certificate
from pesto.service.serve.service import Service, Watchers
from pesto.verbs.jobs.checks import request_schema

AGAIN_S = 5
"""Seconds after which such a request may be sent again."""


def answering_at_the_end(app: ASGIApp, watchers: Watchers) -> ASGIApp:
    """Return the application, in which a request that is cancelled since the service ends is answered 503.

    watchers: closed once the service ends. An answer that has begun is cut.
    """

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await app(scope, receive, send_and_note)
        except asyncio.CancelledError:
            if not watchers.closed:
                raise
            if not begun:
                record = record_of(scope)
                record.code = code_of(503)
                refusal = BareRefusal(503, "the service is stopping", "send it again in a moment", Exit.IO, AGAIN_S)
                await refusal.send(send, record.id)

    return answering


class Document(JsonRenderPlugin):
    """The document as JSON."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """Return the framework's own, but for the body of a submission, and for a file that may be of any type."""
        body, parts = _request_schema("#/components/schemas/{name}")
        paths, components = openapi_schema["paths"], openapi_schema["components"]
        submit = paths["/v1/jobs"]["post"]
        submit["requestBody"]["content"]["application/json"]["schema"] = body
        kinds: dict[str, Any] = {kind: {} for kind in (*sorted(TYPES.values()), OTHER)}
        paths["/v1/jobs/{name}/files/{file}"]["get"]["responses"]["200"]["content"] = kinds
        schemas = {name: part for name, part in components["schemas"].items() if name not in _WHOLE} | parts
        schemas["ProblemReply"]["properties"]["code"] |= {"enum": list(CODES)}
        document = self.render_json(request, openapi_schema | {"components": components | {"schemas": schemas}})
        return document.replace(b"ProblemReply", b"Problem")  # its published name, which another class here has


_WHOLE = ("JobRequest", "JobSettings")
"""Schemas of a request of any kind."""


_request_schema = cache(request_schema)
BODY = 1 << 20
"""Bytes of a request's JSON."""


def application(service: Service) -> ASGIApp:
    """Return the routes of a service."""
    v1 = Router(
        "/v1",
        route_handlers=[job_routes(), event_routes(), file_routes(), blob_routes(), catalogue_routes()],
        dependencies={"caller": Provide(caller, sync_to_thread=False)},
        security=[{}, {"token": []}],
    )
    document = OpenAPIConfig(
        title="Pesto's placement service",
        version=VERSION,
        path="/v1/openapi.json",
        render_plugins=[Document(path="/")],
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
    )
    app = Litestar(
        [v1, health_routes(), page_routes()],
        openapi_config=document,
        exception_handlers={
            PestoError: refused,
            HTTPException: of_http,
            RecursionError: too_deep,
            UnicodeDecodeError: undecodable,
            sqlite3.Error: unreadable,
            Exception: of_bug,
        },
        before_request=refuse_doubled_headers,
        request_max_body_size=BODY,
        logging_config=None,
        on_startup=[service.watchers.attach],
    )
    app.state[SERVICE] = service
    whole = answering_at_the_end(with_head(app), service.watchers)
    return traced(whole, service.access_log, service.request_times)


_LOG = logging.getLogger(__name__)
_CLOSE_S = 2
"""Seconds for which requests that are under way may go on when the service ends."""


def answer(service: Service, bound: socket.socket, server: "Server", ready: Callable[[], None]) -> None:
    """Answer until SIGTERM or SIGINT; `ready` is called once requests are answered."""
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as loop:
        loop.run(_until_told(server, service, bound, ready))


class Server(uvicorn.Server):
    """Answers requests within limits of time, size and number; leaves signals to this module."""

    def __init__(self, service: Service, gate: Gate, certificate: Certificate | None = None) -> None:
        """`certificate`: for TLS; None for none."""
        self._gate, self.certificate = gate, certificate
        logging.getLogger("uvicorn.error").addFilter(is_logged)
        protocol: Any = partial(LimitedProtocol, gate, certificate)
        super().__init__(
            uvicorn.Config(
                application(service),
                http=protocol,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # anybody could name an address for the log of requests
                lifespan="on",
                timeout_graceful_shutdown=_CLOSE_S,
                timeout_keep_alive=IDLE_S,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Look at all connections once a second; ten ticks are one."""
        if counter % 10 == 0:
            self._gate.sweep()
        return await super().on_tick(counter)


async def _until_told(server: Server, service: Service, bound: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until a signal; then streams end, and requests under way have a moment."""

    async def tell_ready() -> None:
        while not server.started:
            await asyncio.sleep(0.01)
        gc.freeze()  # what is loaded stays: looking through it for garbage would stop all requests for 0.1 s each time
        ready()

    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGHUP, _read_again, server, service)
    serving = loop.create_task(server.serve([bound]))
    telling = loop.create_task(tell_ready())
    waiting = loop.create_task(ended.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    _LOG.info("ending: running jobs are interrupted, what they found is kept, and they are queued again")
    service.watchers.close()
    server.should_exit = True
    await asyncio.gather(serving, asyncio.to_thread(service.scheduler.end))
    waiting.cancel()
    telling.cancel()


def _read_again(server: Server, service: Service) -> None:
    """Read tokens and the certificate again; those that cannot be read stay as they are."""
    _LOG.info("SIGHUP: tokens and certificate are read again")
    service.authenticator.refresh(at_once=True)
    if server.certificate is not None:
        try:
            server.certificate.reload()
        except PestoError as error:
            _LOG.error("the certificate stays as it was: %s", error)
