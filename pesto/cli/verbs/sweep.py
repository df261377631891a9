"""pesto sweep: one training step on a grid of changed clusters."""

from collections.abc import Callable
from pathlib import Path

import click

from pesto.choosing.whatif.grid import AXES, ClusterPoint, SweepGrid, accelerators, parse_values
from pesto.choosing.whatif.points import Sweep, SweepTask, no_plan_error, sweep
from pesto.cli.options import (
    Duration,
    chart_option,
    cluster_option,
    costs_option,
    json_option,
    quiet_option,
    source_options,
)
from pesto.cli.outputs import check_outputs, picture_format
from pesto.cli.printed import answer, aside, to_json
from pesto.cli.terminal import read_step
from pesto.core.errors import Exit
from pesto.core.files.disk import write_atomic
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.load import load_cluster, load_costs
from pesto.planning.solving.interrupt import hold, received
from pesto.reporting.show.sweep_page import draw_sweep, progress_line, sweep_object, sweep_page


@click.command("sweep")
@source_options
@cluster_option()
@costs_option()
@click.option("--compute", metavar="X,...", help="Speed of every device, times the cluster's: 0.5,1,2.")
@click.option("--links", metavar="X,...", help="Speed of every link, times the cluster's: 0.1,1.")
@click.option("--devices", metavar="N,...", help="Number of accelerators: 2,4,8.")
@click.option("--memory", metavar="X,...", help="Memory of every accelerator, times the cluster's: 0.5,1.")
@click.option("--cross", is_flag=True, help="All combinations, in place of one axis at a time.")
@click.option("--time-limit", type=Duration(), default="20", show_default=True, help="Of each point's search.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Keep the results here (JSON), after each point.")
@chart_option("Also draw them here")
@json_option()
@quiet_option()
def sweep_command(
    *,
    source: Source,
    cluster: str,
    costs: Path | None,
    cross: bool,
    time_limit: float,
    seed: int,
    out: Path | None,
    picture: Path | None,
    as_json: bool,
    quiet: bool,
    **axes: str | None,
) -> None:
    """Solve a step on a grid of changed clusters (Pesto's Fig 8): what if devices or links were faster?

    \b
    pesto sweep --model nmt --compute 0.5,1,2 --links 0.1,1 --chart sweep.png
    pesto sweep --model rnnlm --devices 2,4,8 --memory 0.5,1 --cross --json

    Each point starts from its neighbour's plan. A point without a plan is a row that says why; ends with 4, 5 or 3 when
    no point has one. Ctrl-C keeps the rows that are done.
    """
    source.checked()
    settings = Settings(time_limit_s=time_limit, seed=seed)
    values = {axis: parse_values(axis, text) for axis in AXES if (text := axes[axis]) is not None}
    machine = load_cluster(cluster)
    grid = SweepGrid(base=ClusterPoint(devices=len(accelerators(machine))), values=values, cross=cross)
    form = picture_format(picture)
    outputs = [path for path in (out, picture) if path is not None]
    check_outputs(outputs, [source.file] if source.file else [], as_json=as_json)
    graph = read_step(source, quiet=quiet)
    load_costs(graph, machine, costs)  # a profile that is refused ends it here, not in every row
    task = SweepTask(
        graph=graph, cluster=machine, costs=lambda at: load_costs(graph, at, costs), settings=settings, grid=grid
    )
    found = sweep(task, _hearing(out, quiet=quiet))
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
