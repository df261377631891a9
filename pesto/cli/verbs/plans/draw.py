"""pesto draw: a plan as a picture, or as a graph for other programs."""

from pathlib import Path

import click

from pesto.cli.options import Existing, out_option, source_options
from pesto.cli.outputs import check_outputs
from pesto.core.distribution import install_command
from pesto.core.errors import SolverError, UsageError
from pesto.core.files.disk import write_atomic
from pesto.core.quantities import plural
from pesto.core.source import Source
from pesto.inputs.load import load_graph, plan_source
from pesto.reporting.show import drawing
from pesto.reporting.show.lines import paragraph
from pesto.reporting.show.plan_graph import BY, FORMATS, MOST_BOXES, NODE, draw_plan, export_plan, plan_boxes
from pesto.verbs.artifacts import load_plan

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
