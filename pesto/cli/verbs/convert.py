"""pesto import: any supported graph as the project's own graph file."""

from pathlib import Path

import click

from pesto.cli.options import Existing, out_option, refuse, source_options
from pesto.cli.outputs import check_outputs
from pesto.core.errors import UsageError
from pesto.core.files import graph_file
from pesto.core.quantities import plural
from pesto.core.source import GRAPH_DEF, Source
from pesto.inputs.foreign_graph import load_foreign
from pesto.inputs.from_networkx import Reading
from pesto.inputs.load import load_graph, load_shapes
from pesto.reporting.show.lines import paragraph
from pesto.split.files.typed_graph_file import save_typed_graph

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@click.command("import")
@click.argument("file_", metavar="[FILE]", type=Existing(), required=False)
@source_options
@click.option("--durations", metavar="ATTR", help="Of a node of FILE: its time; also ATTR_gpu, ….  [default: seconds]")
@click.option("--duration", type=click.FloatRange(0), metavar="TIME", help="Time of nodes of FILE that give none.")
@click.option("--bytes", "sizes", metavar="ATTR|N", help="Of an edge: its bytes; N where none.  [default: bytes]")
@click.option("--memory", metavar="ATTR", help="Of a node: bytes that stay on its device.  [default: param_bytes]")
@click.option("--kinds", metavar="ATTR", help="Of a node: where it may run, such as cpu,gpu.  [default: runs_on]")
@click.option("--groups", metavar="ATTR", help="Of a node: equal ones share a device.  [default: group]")
@click.option("--unit", type=click.Choice(list(_UNITS)), help="Of the times in FILE.  [default: s]")
@click.option("--order-only", is_flag=True, help="Edges of FILE carry nothing: they are an order alone.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but warnings and errors.")
@click.option("--shapes", is_flag=True, help="Write what pesto split reads: shapes, attributes, small constants.")
@out_option("graph.json", "Graph file to write (.json, .json.gz).")
def import_command(
    *,
    file_: Path | None,
    source: Source,
    unit: str | None,
    duration: float | None,
    order_only: bool,
    quiet: bool,
    shapes: bool,
    out: Path,
    **attributes: str | None,
) -> None:
    """Write a graph as the project's own graph file, so that it can be solved without TensorFlow.

    \b
    pesto import dag.graphml --durations weight --bytes size -o dag.json
    pesto import order.json --durations workload --unit ms --order-only -o o.json
    pesto import rand0000.stg --unit ms -o rand.json
    pesto import --model nmt --variant tiny -o nmt.json
    pesto import --graph step.pb --fetch train --batch 32 -o step.json.gz
    pesto import --model nmt --shapes -o nmt.shaped.json.gz

    FILE is a graph of another program: GraphML, GML, DOT (.dot, .gv), node-link JSON or a Standard Task Graph (.stg),
    each also packed with gzip.
    docs/guides/other-graphs.md says which attributes of its nodes and edges are read, and how.
    """
    if shapes:
        _shapes(file_, source, out, quiet=quiet)
        return
    said = {key: value for key, value in attributes.items() if value is not None}
    if file_ is not None:
        if source != Source():
            raise UsageError.build(f"{file_} and the options name two graphs", remedy="give one of them")
        if file_.suffix in GRAPH_DEF:
            raise UsageError.build("a GraphDef is named by an option", where=file_, remedy=f"give --graph {file_}")
        check_outputs([out], [file_], as_json=False)
        graph = load_foreign(file_, _reading(said, unit, duration, order_only=order_only))
    else:
        source.checked()
        if said or unit or duration is not None or order_only:
            given = [f"--{key.replace('sizes', 'bytes')}" for key in said] + (["--unit"] if unit else [])
            what = [*given, "--order-only" if order_only else "--duration"][0]
            raise UsageError.build(
                f"{what} goes with the FILE of another program", remedy="name it, or leave the option out"
            )
        check_outputs([out], [source.file] if source.file else [], as_json=False)
        graph = load_graph(source)
    graph_file.save(graph, out)
    if not quiet:
        edges = f"{plural(len(graph.src), 'data edge')}, {plural(len(graph.control_src), 'control edge')}"
        line = paragraph(f"{graph.source}: {plural(graph.ops, 'op')}, {edges} -> {out}", 2)
        click.echo(line)


def _reading(attributes: dict[str, str], unit: str | None, duration: float | None, *, order_only: bool) -> Reading:
    """Return where a file has its numbers; --bytes names an attribute, or is the number for edges without one."""
    sizes = attributes.get("sizes", "")
    bytes_each = int(sizes) if sizes.isdecimal() else None
    if order_only and sizes:
        raise UsageError.build("--order-only leaves nothing for --bytes to say", remedy="leave out one of them")
    named = attributes if bytes_each is None else {key: said for key, said in attributes.items() if key != "sizes"}
    return Reading(
        **named, unit_s=_UNITS[unit or "s"], default_duration=duration, default_bytes=bytes_each, order_only=order_only
    )


def _shapes(file: Path | None, source: Source, out: Path, *, quiet: bool) -> None:
    """The step's shapes in place of its graph."""
    refuse(
        "shapes have no times and no bytes of their own",
        "durations",
        "sizes",
        "memory",
        "kinds",
        "groups",
        "unit",
        "duration",
        "order_only",
    )
    if file is not None:
        raise UsageError.build(
            "a graph of another program has no shapes", where=file, remedy="name the step by an option"
        )
    check_outputs([out], [source.file] if source.file else [], as_json=False)
    shaped = load_shapes(source)
    save_typed_graph(shaped, out)
    kinds = plural(len(shaped.signatures), "kind")
    if not quiet:
        click.echo(paragraph(f"{shaped.source}: {plural(shaped.ops, 'op')} of {kinds} -> {out}", 2))
