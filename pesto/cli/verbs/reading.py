"""pesto import, inspect, costs and optimize: read a step and show or convert it, without planning."""

from dataclasses import replace
from pathlib import Path

import click

from pesto.cli.options import Existing, cluster_option, costs_option, json_option, out_option, refuse, source_options
from pesto.cli.printed import answer, check_outputs
from pesto.core.costs.analytical import BY, list_costs
from pesto.core.errors import UsageError
from pesto.core.files import graph_file
from pesto.core.files.disk import check_writable, write_atomic
from pesto.core.files.json import shown
from pesto.core.files.toml import suggest
from pesto.core.quantities import plural
from pesto.core.source import EVERYTHING, GRAPH_DEF, Source
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.foreign_graph import load_foreign
from pesto.inputs.from_networkx import Reading
from pesto.inputs.load import inspect_source, load_costs, load_graph, load_shapes, precheck
from pesto.reporting.show.input_pages import (
    OpTimes,
    costs_csv,
    costs_object,
    costs_page,
    inspection_object,
    inspection_page,
)
from pesto.reporting.show.lines import command, paragraph
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
        _import_shapes(file_, source, out, quiet=quiet)
        return
    named = {key: value for key, value in attributes.items() if value is not None}
    if file_ is not None:
        if source != Source():
            raise UsageError.build(f"{file_} and the options name two graphs", remedy="give one of them")
        if file_.suffix in GRAPH_DEF:
            raise UsageError.build("a GraphDef is named by an option", where=file_, remedy=f"give --graph {file_}")
        check_outputs([out], [file_], as_json=False)
        # --bytes names an attribute, or is the number for edges without one.
        sizes = named.get("sizes", "")
        bytes_each = int(named.pop("sizes")) if sizes.isdecimal() else None
        if order_only and sizes:
            raise UsageError.build("--order-only leaves nothing for --bytes to say", remedy="leave out one of them")
        reading = Reading(
            **named, unit_s=_UNITS[unit or "s"], default_duration=duration, default_bytes=bytes_each,
            order_only=order_only,
        )  # fmt: skip
        graph = load_foreign(file_, reading)
    else:
        source.checked()
        if named or unit or duration is not None or order_only:
            given = [f"--{key.replace('sizes', 'bytes')}" for key in named] + (["--unit"] if unit else [])
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


def _import_shapes(file: Path | None, source: Source, out: Path, *, quiet: bool) -> None:
    """Write the step's shapes in place of its graph."""
    refuse(
        "shapes have no times and no bytes of their own", "durations", "sizes", "memory", "kinds", "groups", "unit",
        "duration", "order_only",
    )  # fmt: skip
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


@click.command("inspect")
@click.argument("callable_", metavar="[MODULE:CALLABLE]", required=False)
@source_options
@json_option()
def inspect_command(*, callable_: str | None, source: Source, as_json: bool) -> None:
    """Show what a step is found to be, without planning it.

    Its inputs with types and shapes, the batch, the optimizer and what it updates, variables, what ties ops to one
    device (groups of ops around variables; loops and branches that hold several), and why a plan would be refused:
    then the exit code is that of the refusal.

    \b
    pesto inspect mypackage.train:step
    pesto inspect --model nmt --variant tiny --json
    pesto inspect --graph program.pb
    """
    if callable_ is not None:
        if source.function is not None:
            raise UsageError.build(
                f"{callable_} and --function {source.function} are two steps", remedy="name one of them"
            )
        source = replace(source, function=callable_)
    facts = inspect_source(source)
    if as_json:
        answer(inspection_object(facts))
    else:
        click.echo(inspection_page(facts))
    if facts.refused:
        raise click.exceptions.Exit(facts.refused[0].exit_code)


@click.command("costs")
@source_options
@cluster_option()
@click.option("--device", metavar="NAME", help="Such as gpu:0; default: the first on which each op may be placed.")
@costs_option()
@click.option("--by", type=click.Choice(BY), help="Sums, in place of op by op.")
@click.option("--csv", "csv_", is_flag=True, help="All rows as CSV; op by op it is a file for --costs.")
@json_option()
def costs_command(
    *, source: Source, cluster: str, device: str | None, costs: Path | None, by: str | None, csv_: bool, as_json: bool
) -> None:
    """List what each op of a step costs, the longest first, and why.

    \b
    pesto costs --model nmt --cluster v100x2-nvlink
    pesto costs --model nmt --by type
    pesto costs --model nmt --csv > own.csv
    pesto solve --model nmt --costs own.csv

    Of each op: type, data type, operations, bytes, seconds, where these come from (modelled, given, measured), and
    the form of kernel that the model found quickest. In own.csv change seconds (per execution), or leave them empty and
    give a scale; rows that you leave out or leave as they are change nothing. A row with a type and no name is of all
    ops of that type. docs/guides/costs.md, "Times of your own", says the rest.
    """
    source.checked()
    if csv_ and as_json:
        raise UsageError.build("--csv and --json both write to stdout", remedy="give one of them")
    machine = load_cluster(cluster)
    names = [each.name for each in machine.devices]
    if device is not None and device not in names:
        raise UsageError.build(f"--device {shown(device, 80)}: not in {machine.name}", remedy=suggest(device, names))
    index = None if device is None else names.index(device)
    graph = load_graph(source, quiet=True)
    times = load_costs(graph, machine, costs)
    found = OpTimes(graph=graph, cluster=machine, costs=times, found=list_costs(graph, machine, times, index), by=by)
    if as_json:
        answer(costs_object(found))
    elif csv_:
        # What is printed has line feeds alone: a carriage return would be shown, not sent.
        click.echo(costs_csv(found).decode().replace("\r\n", "\n"), nl=False)
    else:
        click.echo(costs_page(found, "; --csv and --json have them all"))


MOST_NAMED = 4
"""Ops that the next command fetches by name where nothing but the step is in the file."""


@click.command("optimize")
@source_options
@click.option("--keep", multiple=True, metavar="OP", help="Op beside the step that must survive; repeatable.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="GraphDef to write (.pb).")
def optimize_command(*, source: Source, keep: tuple[str, ...], out: Path) -> None:
    """Run TensorFlow's graph optimizer once, so that the step that is planned is the step that runs.

    The result computes the same, bit for bit. It holds the step, a built-in model's initializer and what --keep
    names; of a GraphDef without --fetch, everything. Plan it, and run it with Grappler off.

    \b
    pesto optimize --model nmt --variant tiny -o nmt.pb
    pesto optimize --graph program.pb --fetch train --keep init -o step.pb
    """
    source.checked()
    if out.suffix != ".pb":
        raise UsageError.build("the result is a GraphDef", where=out, remedy="give a name that ends in .pb")
    if source.file is not None and out.resolve() == source.file.resolve():
        raise UsageError.build(f"{out} is the graph itself", remedy="give the result a file of its own")
    check_writable(out)
    precheck(source)
    from pesto.tf.tensorflow_start import load_tensorflow

    load_tensorflow()
    from pesto.tf.grappler import optimize_source

    found = optimize_source(source, keep)
    write_atomic(out, found.graph_def.SerializeToString(deterministic=True))
    (nodes, fewer), (ops, left) = found.nodes, found.step
    click.echo(paragraph(f"{found.source}: {nodes} -> {fewer} nodes, the step {ops} -> {left} -> {out}", 2))
    whole = source.file is not None and not source.fetch and len(found.fetches) > 1
    named = EVERYTHING if left == fewer and len(found.fetches) > MOST_NAMED else found.fetches
    fetch = () if whole or (left == fewer and len(named) == 1 and named != EVERYTHING) else named
    verb = "inspect" if whole else "solve"  # initializers are no part of a step: the user has to say what is
    words = ["pesto", verb, "--graph", str(out), *(word for op in fetch for word in ("--fetch", op))]
    words += ["--batch", str(source.batch)] if source.batch and source.model is None else []
    click.echo(command("next", words))
