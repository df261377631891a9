"""Requests answered on one socket, in one event loop, until a signal ends it."""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from pesto.serve.http.app import application
from pesto.serve.service import Service
from pesto.serve.short_turns import take_short_turns

_LOG = logging.getLogger(__name__)
_CLOSE_S = 2
"""Seconds for which requests that are under way may go on when the service ends."""


def answer(service: Service, bound: socket.socket, ready: Callable[[], None]) -> None:
    """Answer until SIGTERM or SIGINT; `ready` is called once requests are answered."""
    settings = uvicorn.Config(
        application(service), log_config=None, access_log=False, server_header=False, lifespan="on",
        timeout_graceful_shutdown=_CLOSE_S, timeout_keep_alive=75,
    )  # fmt: skip
    with asyncio.Runner(loop_factory=settings.get_loop_factory()) as loop:
        loop.run(_until_told(_Server(settings), service, bound, ready))


class _Server(uvicorn.Server):
    """Leaves signals to this module."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield


async def _until_told(server: _Server, service: Service, bound: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until a signal; then streams end, and requests under way have a moment."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
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


async def _tell(server: _Server, ready: Callable[[], None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    take_short_turns()
    gc.freeze()  # what is loaded stays: looking through it for garbage would stop all requests for 0.1 s each time
    ready()
