"""pesto solve: find a checked placement and schedule."""

import logging
import time
from pathlib import Path

import click

from pesto.choosing.strategy_choice.timed_split import RUNS_ALONE
from pesto.cli.options import (
    GroupedCommand,
    cluster_option,
    costs_option,
    json_option,
    out_option,
    quiet_option,
    request_options,
    source_options,
    token_option,
)
from pesto.cli.printed import Beside, answer, aside, check_outputs, present, to_json
from pesto.cli.terminal import Terminal, checked_step
from pesto.core.errors import Exit, UsageError
from pesto.core.files.disk import write_atomic
from pesto.core.plans.plan_file import cdep_json, part_json
from pesto.planning.solving.interrupt import received
from pesto.reporting.show.solve_report import InputNames, glossary_text
from pesto.verbs.plan_step import choose_kind, plan_step
from pesto.verbs.requests import OpenedRequest, SolveRequest


def _explain(ctx: click.Context, param: click.Parameter, given: bool) -> None:
    """Print the glossary of a solve's output and end."""
    del param
    if given:
        click.echo(glossary_text())
        ctx.exit()


@click.command("solve", cls=GroupedCommand)
@source_options
@cluster_option()
@costs_option()
@request_options(SolveRequest)
@click.option("--server", metavar="URL", help="Have it solved by the placement service there (pesto serve).")
@token_option()
@out_option("plan.json", "Plan file.")
@click.option("--report", type=click.Path(path_type=Path), help="Also write the plan as a page (pesto report) here.")
@click.option("--part", type=click.Path(path_type=Path), help="Also write the authors' part.json here.")
@click.option("--cdep", type=click.Path(path_type=Path), help="Also write the authors' cdep.json here.")
@json_option()
@quiet_option()
@click.option(
    "--explain-output",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Say what the names and lines of its output mean.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the exact solver's own log.")
def solve_command(
    *, request: SolveRequest, out: Path, report: Path | None, part: Path | None, cdep: Path | None, as_json: bool,
    quiet: bool, verbose: bool, server: str | None, token: str | None,
) -> None:  # fmt: skip
    """Find a placement and schedule, verify it, write it.

    \b
    pesto solve --model nmt
    pesto solve --graph step.json --cluster v100x4 --time-limit 10m -o step.plan
    pesto solve --model nmt --cluster v100x4 --start plan.json -o plan4.json
    pesto solve --model transformer --cluster v100x4 --split auto -o split.json
    pesto solve --function gan:generator_step --beside critic.json -o gen.json
    pesto solve --model nmt --server http://127.0.0.1:8780
    """
    source = checked_step(request.source)
    beside = Beside(report, part, cdep)
    if cdep is not None and request.settings.placement_only:
        raise UsageError.build(
            "--cdep is for the order, which --placement-only leaves open", remedy="leave one of them out"
        )
    opened = request.opened()
    read = [path for path in (source.file, request.start, request.beside) if isinstance(path, Path)]
    check_outputs(present(out, *beside), read, as_json=as_json)
    if request.split is not None:
        # Cuts need shapes, and take no option that is for placements alone.
        apart = {"costs": request.costs, "start": request.start, "beside": request.beside, **beside._asdict()}
        given = [f"--{name}" for name, value in apart.items() if value]
        if given == ["--beside"]:
            raise UsageError.build(
                f"--beside keeps variables whole where a plan has them, and {RUNS_ALONE}",
                remedy=("leave out --split; or plan both steps as one, a function that calls both, to cut that"),
            )
        if given:
            raise UsageError.build(f"{given[0]} is for placements alone", remedy="leave it out, or --split")
        if not source.has_shapes:
            raise UsageError.build(
                "it has no shapes to split by", where=source.file, remedy="name the step, or leave out --split"
            )
    if server is not None:
        from pesto.cli.remote_solve import solve_there  # late: it takes long to load

        solve_there((server, token), request, (out, beside), as_json=as_json, quiet=quiet)
        return
    if verbose:
        logging.getLogger("pesto").setLevel(logging.INFO)
    request.settings.check_installed()
    costs = request.costs if isinstance(request.costs, Path) else None
    names = InputNames(source=source, cluster=str(request.cluster), costs=costs)
    if request.split is not None:
        chosen = choose_kind(opened, Terminal(quiet=quiet))
        chosen.save(out)
        if as_json:
            answer(chosen.as_object(out))
        else:
            click.echo(chosen.page(names, out))
        interrupted = chosen.interrupted
    else:
        interrupted = _solve(opened, names, (out, beside), as_json=as_json, quiet=quiet)
    if interrupted or received():
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)


def _solve(
    request: OpenedRequest, names: InputNames, files: tuple[Path, Beside], *, as_json: bool, quiet: bool
) -> bool:  # fmt: skip
    """Find a plan, write it and what goes with it, and print it; return True where Ctrl-C ended the search."""
    solved, (out, beside) = plan_step(request, Terminal(quiet=quiet)), files
    began = time.perf_counter()
    solved.save(out)
    if beside.part is not None:
        write_atomic(beside.part, part_json(solved.outcome.plan))
    if beside.cdep is not None:
        write_atomic(beside.cdep, cdep_json(solved.outcome.plan, solved.graph))
    solved.stages_s["write"] = time.perf_counter() - began
    if beside.report is not None:
        write_atomic(beside.report, solved.html(out.name))
    click.echo(to_json(solved.as_object(out, beside.report)) if as_json else solved.page(names, out, beside.report))
    if solved.failure is not None:
        aside(f"pesto: WARNING: {solved.failure}")
    return solved.interrupted
