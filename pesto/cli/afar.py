"""A job of a service on this terminal: who is asked, what is shown meanwhile, and what Ctrl-C does."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pesto.cli.options import token_option
from pesto.cli.printed import aside
from pesto.core.errors import Exit, PestoError, UsageError
from pesto.core.files.disk import read_bytes
from pesto.planning.solving.interrupt import received
from pesto.reporting.show.screen import one_line
from pesto.service.client.calls import DONE, JobEvent
from pesto.service.client.clients import Client
from pesto.service.client.remote_line import RemoteLine

ADDRESS = "http://127.0.0.1:8780"
"""Of a service on this machine."""
PATIENCE_S = 3600.0
"""Seconds for which a service that was reached may be away before a watcher gives up; its jobs stay."""
ASKS_S = 5.0
"""Seconds after one Ctrl-C in which another one cancels the job."""
_MOST = 4096
"""Bytes of a token's file."""


class DetachedError(PestoError):
    """The job goes on, and nobody here watches it."""

    exit_code = Exit.INTERRUPTED


class SentAwayError(DetachedError):
    """As after Ctrl-C, by SIGTERM or SIGHUP."""

    exit_code = Exit.TERMINATED


def server_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """--server and --token of verbs that do nothing without one."""
    server = click.option(
        "--server", default=ADDRESS, show_default=True, envvar="PESTO_SERVER", show_envvar=True, metavar="URL",
        help="Address of the service.",
    )  # fmt: skip
    return server(token_option()(verb))


def connected(server: str, token: str | None) -> Client:
    """A client; UsageError for a token in place of its file, which everybody on the machine could read."""
    if token is not None and token.startswith("pesto_") and not Path(token).exists():
        raise UsageError.build(
            "a token on the command line can be seen by others", remedy="set PESTO_TOKEN, or name a file with it"
        )
    said = None if token is None else read_bytes(Path(token), _MOST).decode(errors="replace").strip()
    return Client(server, said, patience_s=PATIENCE_S)


def watch(client: Client, name: str, *, quiet: bool) -> dict[str, Any]:
    """Show a job until it ends: the data of its last event.

    Ctrl-C asks: once leaves the job to itself, DetachedError; twice cancels it, and its end is waited for.
    """
    seen = _Seen(client, name)
    with RemoteLine(quiet=quiet) as live:
        try:
            return seen.rest(live)
        except KeyboardInterrupt:
            _ask(client, name)
        try:
            return seen.rest(live)
        except KeyboardInterrupt as again:
            raise _detached(name) from again


class _Seen:
    """What was seen of a job so far."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name, self._last = client, name, 0

    def rest(self, live: RemoteLine) -> dict[str, Any]:
        """Show what is new, to the end."""
        for event in self._client.events(self._name, self._last):
            self._last = event.number
            if event.kind == DONE:
                return event.data
            _show(event, live)
        return dict[str, Any]()


def _show(event: JobEvent, live: RemoteLine) -> None:
    level = str(event.data.get("level", ""))
    if event.kind != "log":
        live.take(event.kind, event.data)
    elif level in ("warning", "error"):
        aside(f"pesto: {level.upper()}: {one_line(event.data.get('text', ''))}")


def _ask(client: Client, name: str) -> None:
    """After one Ctrl-C: DetachedError unless another one comes, which cancels the job."""
    if received() != Exit.INTERRUPTED:
        raise _detached(name)
    try:
        aside(f"pesto: job {name} goes on without you; Ctrl-C again within {ASKS_S:.0f} s cancels it")
        time.sleep(ASKS_S)
    except KeyboardInterrupt:
        aside(f"pesto: job {name} is cancelled; its best plan is kept")
        client.cancel(name)
        return
    raise _detached(name)


def _detached(name: str) -> DetachedError:
    kind = DetachedError if received() == Exit.INTERRUPTED else SentAwayError
    return kind(f"job {name} goes on without you - pesto jobs watch {name}")
