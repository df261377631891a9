"""pesto trace: a planned step for the trace viewers of other projects."""

from pathlib import Path

import click

from pesto.cli.options import Existing, cluster_option, costs_option, source_options
from pesto.cli.outputs import check_outputs
from pesto.core.files.disk import check_folder, write_atomic
from pesto.core.quantities import plural, size
from pesto.core.source import Source
from pesto.reporting.show.lines import paragraph
from pesto.reporting.show.trace import gzip_bytes, trace
from pesto.verbs.artifacts import GivenStep, load_plan, simulate


@click.command("trace")
@click.argument("plan", type=Existing())
@source_options
@cluster_option(default=None)
@costs_option()
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    default="plan.trace.json.gz",
    show_default=True,
    help="Trace for Perfetto; gzipped where the name ends in .gz.",
)
@click.option(
    "--events",
    type=click.Path(path_type=Path),
    help="Also write the graph with devices and times into this folder, for TensorBoard.",
)
def trace_command(
    *, plan: Path, source: Source, cluster: str | None, costs: Path | None, out: Path, events: Path | None
) -> None:
    """Write the step of PLAN, as predicted, for Perfetto.

    \b
    pesto trace plan.json -o plan.trace.json.gz
    pesto trace plan.json --events logs

    A track is a processor or a link, an arrow a tensor that is sent, a counter the bytes alive on a device. The graph
    is named as for pesto check; on another cluster the step is predicted anew.
    """
    check_outputs([out], [file for file in (plan, source.file) if file], as_json=False)
    if events is not None:
        check_folder(events)
    found = load_plan(plan, "trace")
    graph, run = simulate(found, GivenStep(source=source, cluster=cluster or None, costs=costs))
    text = trace(found, run)
    text = gzip_bytes(text) if out.suffix == ".gz" else text
    write_atomic(out, text)
    click.echo(
        paragraph(f"{out}: {plural(graph.ops, 'op')}, {plural(run.transfers, 'transfer')}, {size(len(text))}", 2)
    )
    if events is not None:
        from pesto.tf.events import write_events

        write_events(events, found, graph, run.run.timeline)
        click.echo(paragraph(f"{events}: the graph with devices and times, for TensorBoard", 2))
