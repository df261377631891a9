"""A service from its start to its end: the folder's lock, the store, workers, and HTTP on one socket."""

import asyncio
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from pesto.core.distribution import install_command
from pesto.core.errors import FileError, SolverError, UsageError
from pesto.core.executing.executor import Executor
from pesto.core.executing.pool import Pool
from pesto.core.executing.ray_reconnecting import ReconnectingRayCluster
from pesto.core.files.disk import make_folder
from pesto.core.files.json import shown
from pesto.service.serve.blobs import Blobs
from pesto.service.serve.scheduler import Scheduler
from pesto.service.serve.serve_config import LOOPBACK, ServeConfig
from pesto.service.serve.service import Service, Watchers
from pesto.service.serve.store.ledger import BLOBS
from pesto.service.serve.store.opening import opened_store
from pesto.service.serve.telemetry import AccessLog, RequestTimes
from pesto.service.serve.tokens import TokenAuthenticator, listed
from pesto.service.serve.webhooks import Webhooks
from pesto.verbs.jobs.request import READY

# How many files a server may have open, connections among them.

MOST_FILES = 1 << 16
"""Above which the limit is not raised."""


def raised_file_limit() -> int:
    """Raise the limit of open files as far as this process may; what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return MOST_FILES if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):  # a system may refuse what it has said that it allows
        return soft
    return target


NICENESS = 5
"""Niceness of workers, so that requests are answered while all cores solve."""
KEEP_BYTES = 4 << 30
"""A worker that holds more after a job is not used again."""
SEND_BYTES = 1 << 18
"""Bytes of an answer that the system buffers for a slow reader."""


@contextmanager
def opened(folder: Path, config: ServeConfig, executor: Callable[[], Executor]) -> Iterator[Service]:
    """A service over a folder, whose jobs run; at the end they are interrupted, kept and queued again.

    UsageError when the folder is another server's, or of a newer version; FileError when it cannot be written to.
    """
    make_folder(folder, private=True)
    with ExitStack() as stack:
        access_log = stack.enter_context(closing(AccessLog(config.access_log)))
        watchers = Watchers()
        store = stack.enter_context(opened_store(folder, config.database, watchers.announce))
        loopback = config.host in LOOPBACK
        had_tokens = store.readings.had_tokens()
        authenticator = TokenAuthenticator(
            folder, loopback=loopback, had_tokens=had_tokens, changed=watchers.announce_all
        )
        blobs = Blobs(folder / BLOBS, int(config.upload_gib * 2**30))
        scheduler = Scheduler(store.writer, executor(), folder, authenticator, config)
        scheduler.start()
        stack.callback(scheduler.end)
        stack.enter_context(store.background(scheduler, watchers))
        if config.webhooks.enabled:
            hooks = config.webhooks
            stack.enter_context(closing(Webhooks(store.writer, folder, private=hooks.private, tries=hooks.tries)))
        yield Service(
            config=config, folder=folder, store=store, blobs=blobs, authenticator=authenticator, scheduler=scheduler,
            watchers=watchers, diffs=asyncio.Semaphore(2), access_log=access_log, request_times=RequestTimes(),
        )  # fmt: skip


def listening(config: ServeConfig, folder: Path) -> socket.socket:
    """Return the socket, bound. UsageError without tokens beyond loopback; FileError when the port is taken."""
    if config.host not in LOOPBACK and not listed(folder):
        raise UsageError.build(
            f"{shown(config.host)} can be reached by others, and there is no token",
            remedy=f"add one: pesto serve token add NAME --data {shown(folder)}",
        )
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        listener.bind((config.host, config.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        where = f"{shown(config.host)}:{config.port}"
        raise FileError.build(
            f"cannot listen on {where}: {error.strerror or shown(error)}", remedy="give another --port"
        ) from error
    return listener


def serve(folder: Path, config: ServeConfig, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `ready` hears the address once requests are answered.

    SolverError where the extra `serve` is not installed; otherwise as `Certificate`, `opened` and `listening`.
    """
    try:
        from pesto.service.serve.http.app import Server, answer
        from pesto.service.serve.http.connections import gate_for
    except ImportError as error:
        raise SolverError.build(f"pesto serve needs {error.name}", remedy=f"{install_command('serve')}") from error
    make_folder(folder, private=True)
    certificate = config.certificate()
    gate = gate_for(config, raised_file_limit())

    def executor() -> Executor:  # its solvers give way to the threads that answer requests
        if config.executor == "local":
            return Pool(config.workers, niceness=NICENESS, keep_bytes=KEEP_BYTES, ready=READY)
        return ReconnectingRayCluster(config.workers)

    with listening(config, folder) as bound, opened(folder, config, executor) as service:
        scheme, host = "https" if certificate else "http", f"[{config.host}]" if ":" in config.host else config.host
        server = Server(service, gate, certificate)
        answer(service, bound, server, lambda: ready(f"{scheme}://{host}:{bound.getsockname()[1]}"))
    if service.scheduler.fault is not None:
        raise service.scheduler.fault
