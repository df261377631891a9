"""Jobs of a service on this terminal: watch any job, and `pesto solve` there with the same options and files."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from pesto.cli.options import refuse, token_option
from pesto.cli.printed import Beside, answer, aside
from pesto.core.errors import Exit, PestoError, UsageError
from pesto.core.files.disk import read_bytes, write_atomic
from pesto.core.plans.plan_file import cdep_json, load, part_json
from pesto.core.source import Source
from pesto.inputs.cluster_file import cluster_names
from pesto.inputs.load import load_graph
from pesto.planning.solving.interrupt import received
from pesto.reporting.show.screen import one_line
from pesto.reporting.show.solve_report import VERIFIED, InputNames, closing_lines
from pesto.reporting.show.split_page import split_closing
from pesto.service.client.calls import DONE, failed
from pesto.service.client.clients import Client
from pesto.service.client.solve_request import RemoteLine, Solve, solve_request
from pesto.verbs.jobs.request import ANSWER, PAGE, PLAN, REPORT, SPLIT
from pesto.verbs.requests import SolveRequest

ADDRESS = "http://127.0.0.1:8780"
"""Address of a service on this machine."""
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
    """SIGTERM or SIGHUP ended the watching; the job goes on."""

    exit_code = Exit.TERMINATED


def server_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """--server and --token of verbs that do nothing without one."""
    server = click.option(
        "--server", default=ADDRESS, show_default=True, envvar="PESTO_SERVER", show_envvar=True, metavar="URL",
        help="Address of the service.",
    )  # fmt: skip
    return server(token_option()(verb))


def connected(server: str, token: str | None) -> Client:
    """Return a client; UsageError for a token in place of its file, which everybody on the machine could read."""
    if token is not None and token.startswith("pesto_") and not Path(token).exists():
        raise UsageError.build(
            "a token on the command line can be seen by others", remedy="set PESTO_TOKEN, or name a file with it"
        )
    secret = None if token is None else read_bytes(Path(token), _MOST).decode(errors="replace").strip()
    return Client(server, secret, patience_s=PATIENCE_S)


def watch(client: Client, name: str, *, quiet: bool) -> dict[str, Any]:
    """Show a job until it ends: the data of its last event.

    Ctrl-C asks: once leaves the job to itself, DetachedError; twice cancels it, and its end is waited for.
    """
    seen = _EventReader(client, name)
    with RemoteLine(quiet=quiet) as live:
        try:
            return seen.rest(live)
        except KeyboardInterrupt as once:
            if received() != Exit.INTERRUPTED:
                raise _detached(name) from once
            try:
                aside(f"pesto: job {name} goes on without you; Ctrl-C again within {ASKS_S:.0f} s cancels it")
                time.sleep(ASKS_S)
            except KeyboardInterrupt:
                aside(f"pesto: job {name} is cancelled; its best plan is kept")
                client.cancel(name)
            else:
                raise _detached(name) from once
        try:
            return seen.rest(live)
        except KeyboardInterrupt as again:
            raise _detached(name) from again


class _EventReader:
    """Reader of a job's events that remembers the last one it has shown."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name, self._last = client, name, 0

    def rest(self, live: RemoteLine) -> dict[str, Any]:
        """Show the events that are new, and return the data of the last of the job."""
        for event in self._client.events(self._name, self._last):
            self._last = event.number
            if event.kind == DONE:
                return event.data
            level = str(event.data.get("level", ""))
            if event.kind != "log":
                live.take(event.kind, event.data)
            elif level in ("warning", "error"):
                aside(f"pesto: {level.upper()}: {one_line(event.data.get('text', ''))}")
        return dict[str, Any]()


def _detached(name: str) -> DetachedError:
    """Return the error of a job that goes on and that nobody here watches."""
    kind = DetachedError if received() == Exit.INTERRUPTED else SentAwayError
    return kind.build(f"job {name} goes on without you", remedy=f"pesto jobs watch {name}")


def solve_there(
    server: tuple[str, str | None], request: SolveRequest, files: tuple[Path, Beside], *, as_json: bool, quiet: bool
) -> None:
    """Have a step solved by a service, and write the files; `server`: its address, and the file of the token."""
    (out, beside), source = files, request.source
    if not isinstance(source, Source):
        raise TypeError("a service is given a step by its source")
    solve = Solve(request=request, source=source, out=out)
    refuse("the solver's log stays with the service", "verbose")
    with connected(*server) as client:
        name = client.submit(solve_request(client, solve, quiet=quiet))
        if not quiet:
            aside(f"job {name} at {server[0]}")
        ended = watch(client, name, quiet=quiet)
        # The plan and what goes with it, or the split; the job's own error where there is neither.
        result = next((file for file in (PLAN, SPLIT) if file in ended.get("files", ())), None)
        if result is None:
            code, error = ended.get("exit_code", Exit.BUG), ended.get("error") or f"job {name} left no plan"
            raise failed(code, error, ended.get("remedy"), ended.get("where"))
        write_atomic(solve.out, client.file(name, result))
        if beside.report is not None:
            write_atomic(beside.report, client.file(name, REPORT))
        if beside.part is not None:
            write_atomic(beside.part, part_json(load(solve.out)))
        if beside.cdep is not None:
            write_atomic(beside.cdep, cdep_json(load(solve.out), load_graph(solve.source, quiet=True)))
        if as_json:
            keys = msgspec.json.decode(client.file(name, ANSWER), type=dict[str, Any])
            report = None if beside.report is None else str(beside.report)
            written = {"split": str(out)} if "split" in keys else {"plan": str(out), "report": report}
            answer({**keys, **written, "job": name})
        else:
            _print_page(client.file(name, PAGE).decode(), solve, beside.report)
    if ended["exit_code"]:
        if ended.get("error") and not as_json:  # an earlier attempt found what is written
            raise failed(ended["exit_code"], ended["error"], ended.get("remedy"), ended.get("where"))
        raise click.exceptions.Exit(ended["exit_code"])


def _print_page(page: str, solve: Solve, report: Path | None) -> None:
    """Print the page of a job with the files as they are called here."""
    names = InputNames(source=solve.source, cluster=solve.cluster, costs=solve.costs)
    if solve.request.split is None:
        lines = page.splitlines()
        last = max(k for k, line in enumerate(lines) if line.startswith(VERIFIED))
        click.echo("\n".join([*lines[:last], *closing_lines(solve.out, names, report)]))
        return
    # A page of all kinds of plans: its last lines are those of a plan or of a split, by the names that were sent.
    file, cluster = solve.source.file, solve.cluster
    sent = InputNames(
        source=solve.source if file is None else replace(solve.source, file=Path(file.name)),
        cluster=cluster if cluster in cluster_names() else Path(cluster).name,
    )
    there, here = (
        [split_closing(out, inputs.source), closing_lines(out, inputs)]
        for out, inputs in ((Path(solve.out.name), sent), (solve.out, replace(names, costs=None)))
    )
    for theirs, ours in zip(there, here, strict=True):
        page = page.replace("\n".join(["", *theirs, ""]), "\n".join(["", *ours, ""]))
    click.echo(page, nl=False)
