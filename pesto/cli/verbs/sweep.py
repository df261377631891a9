"""pesto sweep: one training step on a grid of changed clusters."""

from collections.abc import Callable
from pathlib import Path

import click

from pesto.choosing.whatif.points import Sweep, no_plan_error
from pesto.cli.declared import GroupedCommand, request_options
from pesto.cli.options import (
    chart_option,
    cluster_option,
    costs_option,
    json_option,
    quiet_option,
    source_options,
)
from pesto.cli.outputs import check_outputs, picture_format
from pesto.cli.printed import answer, aside, to_json
from pesto.cli.terminal import Terminal, checked_step
from pesto.core.errors import Exit
from pesto.core.files.disk import write_atomic
from pesto.planning.solving.interrupt import hold, received
from pesto.reporting.show.sweep_page import draw_sweep, progress_line, sweep_object, sweep_page
from pesto.verbs.many_plans import sweep_step
from pesto.verbs.requests import SweepRequest


@click.command("sweep", cls=GroupedCommand)
@source_options
@cluster_option()
@costs_option()
@request_options(SweepRequest)
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Keep the results here (JSON), after each point.")
@chart_option("Also draw them here")
@json_option()
@quiet_option()
def sweep_command(
    *, request: SweepRequest, out: Path | None, picture: Path | None, as_json: bool, quiet: bool
) -> None:  # fmt: skip
    """Solve a step on a grid of changed clusters (Pesto's Fig 8): what if devices or links were faster?

    \b
    pesto sweep --model nmt --compute 0.5,1,2 --links 0.1,1 --chart sweep.png
    pesto sweep --model rnnlm --devices 2,4,8 --memory 0.5,1 --cross --json

    Each point starts from its neighbour's plan. A point without a plan is a row that says why; ends with 4, 5 or 3 when
    no point has one. Ctrl-C keeps the rows that are done.
    """
    source, form = checked_step(request.source), picture_format(picture)
    outputs = [path for path in (out, picture) if path is not None]
    check_outputs(outputs, [source.file] if source.file else [], as_json=as_json)
    found = sweep_step(request, Terminal(quiet=quiet), _hearing(out, quiet=quiet))
    hold()
    if out is not None:
        write_atomic(out, to_json(sweep_object(found)).encode())
    if picture is not None:
        write_atomic(picture, draw_sweep(found, form))
    if as_json:
        answer(sweep_object(found))
    else:
        click.echo(sweep_page(found))
    # End with the code of an interruption, or of what kept every point from a plan.
    if found.interrupted or received():
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)
    if all(row.plan is None for row in found.rows):
        raise no_plan_error(found)


def _hearing(out: Path | None, *, quiet: bool) -> Callable[[Sweep], None]:
    def hear(found: Sweep) -> None:
        if out is not None:
            write_atomic(out, to_json(sweep_object(found)).encode())
        if not quiet:
            aside(progress_line(found))

    return hear
