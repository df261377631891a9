"""Requests answered on one socket, in one event loop, until a signal ends it."""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn

from pesto.core.errors import PestoError
from pesto.service.serve.http.app import application
from pesto.service.serve.http.connections import IDLE_S, Gate
from pesto.service.serve.http.limited_protocol import LimitedProtocol, is_logged
from pesto.service.serve.service import Service
from pesto.service.serve.tls import Certificate

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
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGHUP, _read_again, server, service)
    serving = loop.create_task(server.serve([bound]))
    telling = loop.create_task(_tell(server, ready))
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
    service.doors.refresh(at_once=True)
    if server.certificate is not None:
        try:
            server.certificate.reload()
        except PestoError as error:
            _LOG.error("the certificate stays as it was: %s", error)


async def _tell(server: Server, ready: Callable[[], None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    gc.freeze()  # what is loaded stays: looking through it for garbage would stop all requests for 0.1 s each time
    ready()
