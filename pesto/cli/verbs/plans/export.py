"""pesto draw and trace: a plan as a picture, as a graph, or for trace viewers."""

from pathlib import Path

import click

from pesto.cli.options import Existing, cluster_option, costs_option, out_option, source_options
from pesto.cli.printed import check_outputs
from pesto.core.distribution import install_command
from pesto.core.errors import SolverError, UsageError
from pesto.core.files.disk import check_folder, write_atomic
from pesto.core.quantities import plural, size
from pesto.core.source import Source
from pesto.inputs.load import load_graph, plan_source
from pesto.reporting.show import drawing
from pesto.reporting.show.lines import paragraph
from pesto.reporting.show.plan_graph import BY, FORMATS, MOST_BOXES, NODE, draw_plan, export_plan, plan_boxes
from pesto.reporting.show.trace import gzip_bytes, trace
from pesto.verbs.artifacts import GivenStep, load_plan, simulate

_NODES = 200


@click.command("draw")
@click.argument("plan", type=Existing())
@source_options
@click.option(
    "--by",
    type=click.Choice(BY),
    help="A box is an op, a scope on one device, or a node: a run of ops on one device.  [default: op for few, else "
    "scope where names have them, else node]",
)
@click.option("--nodes", type=click.IntRange(1), help=f"With --by node: how many at most.  [default: {_NODES}]")
@out_option("plan.svg", "Picture (.svg, .png), or graph (.graphml, .dot).")
def draw_command(*, plan: Path, source: Source, by: str | None, nodes: int | None, out: Path) -> None:
    """Draw PLAN: what runs where and when, and what is sent between devices.

    \b
    pesto draw plan.json -o plan.svg
    pesto draw plan.json --by node --nodes 100 -o coarse.png
    pesto draw plan.json --graph dag.json --by op -o plan.graphml

    A band is a device, time goes from left to right and down each column, the height of a box is its time, and arrows
    in colour are tensors that go to another device. Nodes are the plan's own coarse graph: ops that follow each other
    on one device, merged without a cycle. In .graphml and .dot placement, start and finish are attributes. The graph
    is named as for pesto check.
    """
    # The format that the name ends in; UsageError where there is none, or it cannot be drawn.
    form = out.suffix.lower().lstrip(".")
    if form not in (*drawing.FORMATS, *FORMATS):
        raise UsageError.build("no format to draw in", where=out, remedy="end the name in .svg, .png, .graphml or .dot")
    if form in drawing.FORMATS and not drawing.available():
        raise SolverError.build(
            "pictures need matplotlib", where=out, remedy=f"{install_command('study')}, or write .graphml or .dot"
        )
    if nodes is not None and by != NODE:
        raise UsageError.build(f"--nodes {nodes} goes with --by node", remedy="add it, or leave it out")
    check_outputs([out], [file for file in (plan, source.file) if file], as_json=False)
    found = load_plan(plan, "draw")
    graph = load_graph(plan_source(found, source))
    shown = plan_boxes(found, graph, by, nodes or _NODES)
    if form in FORMATS:
        write_atomic(out, export_plan(found, graph, shown, form))
    elif len(shown.labels) > MOST_BOXES:
        raise UsageError.build(
            f"{len(shown.labels)} boxes, a picture has {MOST_BOXES} at most", remedy="draw it --by scope, or --by node"
        )
    else:
        write_atomic(out, draw_plan(found, shown, form))
    edges = f"{plural(len(shown.src), 'edge')}, {int(shown.crosses.sum())} of them to another device"
    click.echo(paragraph(f"{out}: {plural(len(shown.labels), 'box', 'boxes')} by {shown.by}, {edges}", 2))


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
