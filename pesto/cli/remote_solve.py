"""pesto solve on a service: the same options, files, pages and exit codes as at home."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from pesto.cli.afar import connected, watch
from pesto.cli.options import refuse
from pesto.cli.outputs import Beside
from pesto.cli.printed import answer, aside
from pesto.core.errors import Exit
from pesto.core.files.disk import write_atomic
from pesto.core.plans.plan_file import cdep_json, load, part_json
from pesto.core.source import Source
from pesto.inputs.cluster_file import cluster_names
from pesto.inputs.load import load_graph
from pesto.reporting.show.solve_report import VERIFIED, closing_lines, following_command
from pesto.reporting.show.split_page import split_closing
from pesto.service.client.calls import failed
from pesto.service.client.clients import Client
from pesto.service.client.solve_request import Solve, solve_request
from pesto.verbs.jobs.request import ANSWER, PAGE, PLAN, REPORT, SPLIT
from pesto.verbs.requests import SolveRequest


def solve_there(
    server: tuple[str, str | None], request: SolveRequest, files: tuple[Path, Beside], *, as_json: bool, quiet: bool
) -> None:
    """Have it solved by a service, and write what it gives; `server`: its address, and the file of the token."""
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
        found = next((file for file in (PLAN, SPLIT) if file in ended.get("files", ())), None)
        if found is None:
            code, error = ended.get("exit_code", Exit.BUG), ended.get("error") or f"job {name} left no plan"
            raise failed(code, error, ended.get("remedy"), ended.get("where"))
        write_atomic(solve.out, client.file(name, found))
        if beside.report is not None:
            write_atomic(beside.report, client.file(name, REPORT))
        if beside.part is not None:
            write_atomic(beside.part, part_json(load(solve.out)))
        if beside.cdep is not None:
            write_atomic(beside.cdep, cdep_json(load(solve.out), load_graph(solve.source, quiet=True)))
        _say(client, name, solve, beside, as_json=as_json)
    if ended["exit_code"]:
        if ended.get("error") and not as_json:  # an earlier attempt found what is written
            raise failed(ended["exit_code"], ended["error"], ended.get("remedy"), ended.get("where"))
        raise click.exceptions.Exit(ended["exit_code"])


def _say(client: Client, name: str, solve: Solve, beside: Beside, *, as_json: bool) -> None:
    """What the verb prints, with the files as they are called here."""
    if as_json:
        said = msgspec.json.decode(client.file(name, ANSWER), type=dict[str, Any])
        report = None if beside.report is None else str(beside.report)
        file = "split" if "split" in said else "plan"
        answer({**said, file: str(solve.out), **({"report": report} if file == "plan" else {}), "job": name})
        return
    said_page = client.file(name, PAGE).decode()
    if solve.request.split is not None:
        click.echo(_with_paths(said_page, solve), nl=False)
        return
    lines = said_page.splitlines()
    last = max(k for k, line in enumerate(lines) if line.startswith(VERIFIED))
    after = following_command(solve.source, solve.cluster, solve.costs, solve.out, beside.report)
    click.echo("\n".join([*lines[:last], *closing_lines(solve.out, after, beside.report)]))


def _with_paths(page: str, solve: Solve) -> str:
    """A page of all kinds of plans, with the files as they are called here."""
    source, cluster = solve.source, solve.cluster
    sent = source if source.file is None else replace(source, file=Path(source.file.name))
    there, here = (
        [split_closing(out, step), closing_lines(out, following_command(step, preset, None, out))]
        for out, step, preset in (
            (Path(solve.out.name), sent, cluster if cluster in cluster_names() else Path(cluster).name),
            (solve.out, source, cluster),
        )
    )
    for said, meant in zip(there, here, strict=True):
        page = page.replace("\n".join(["", *said, ""]), "\n".join(["", *meant, ""]))
    return page
