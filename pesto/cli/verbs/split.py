"""pesto split: a step cut into parts for several workers, and the op types that can be cut."""

from dataclasses import replace
from math import isfinite, prod
from pathlib import Path

import click

from pesto.choosing.strategy_choice.timed_split import (
    TimedSplit,
    accelerators_for,
    check_objective,
    refuse_short,
    rules_for,
    time_split,
)
from pesto.cli.options import json_option, refuse, source_options
from pesto.cli.outputs import check_outputs, picture_format
from pesto.cli.printed import answer
from pesto.core.errors import UsageError
from pesto.core.files.disk import check_exists, write_atomic
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.load import load_cluster, load_shaped, load_shapes
from pesto.reporting.show.split_page import (
    coverage_object,
    coverage_page,
    draw_split,
    op_object,
    op_page,
    split_object,
    split_page,
)
from pesto.split.exports import EXPORTS
from pesto.split.files.split_file import save_split
from pesto.split.methods.cut_methods import METHODS
from pesto.split.op_explanation import ExplainedOp, explain_op, find_op
from pesto.split.ops.op_types import coverage, described_types
from pesto.split.program import Rules
from pesto.split.split_search import Split, divide_with_or_without_halo, parse_factors, undescribed_types
from pesto.split.typed_graph import TypedGraph
from pesto.split.undescribed_ops import refuse_undescribed

_OF_SPLITS = (
    "workers",
    "method",
    "objective",
    "replicate",
    "halo",
    "memory",
    "time_limit",
    "cluster",
    "explain",
    "picture",
    "export",
    "whole",
    "out",
)


@click.command("split")
@click.argument("what", metavar="[ops|FILE]", required=False)
@source_options
@click.option("--workers", help="How many: 8 for one cut of all tensors, 2x2x2 for cuts in two, one after the other.")
@click.option("--method", type=click.Choice(list(METHODS)), metavar="NAME", default="exact", show_default=True,
              help="exact, joint, tofu, rows, spartan, ...: docs/guides/split.md has all.")  # fmt: skip
@click.option("--objective", type=click.Choice(["bytes", "seconds"]), default="bytes", show_default=True,
              help="What is made least: bytes sent, or modelled seconds of ops and messages on --cluster.")  # fmt: skip
@click.option("--replicate", is_flag=True, help="Variables may lie whole on every worker.")
@click.option(
    "--halo", is_flag=True, help="Windows may be cut, where that saves bytes: parts fetch the rim from neighbours."
)
@click.option("--memory", type=click.FloatRange(0, min_open=True), metavar="GIB",
              help="Most that one worker may hold of variables, with slots.")  # fmt: skip
@click.option("--time-limit", type=click.FloatRange(0.1), default=60.0, show_default=True, help="Seconds for all cuts.")
@click.option("--cluster", metavar="NAME|FILE", help="Also time its step there: a preset (pesto clusters) or a file.")
@click.option("--explain", metavar="OP", help="Of one op: strategies, refusals, its tensors, who has which part.")
@click.option("--draw", "picture", type=click.Path(path_type=Path), help="Draw the largest variables (.png or .svg).")
@click.option("--export", type=click.Choice(list(EXPORTS)), help="Print where variables lie, as a program for these.")
@click.option("--whole", is_flag=True, help="Accept op types without a description: every worker does them whole.")
@click.option("--uncovered", "missing", is_flag=True, help="With ops: those without a description alone.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but warnings and errors.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write the split here (.json, .json.gz).")
@json_option()
def split_command(
    *, what: str | None, source: Source, workers: str | None, method: str, objective: str, replicate: bool,
    halo: bool, memory: float | None, time_limit: float, cluster: str | None, explain: str | None, picture: Path | None,
    export: str | None, whole: bool, missing: bool, quiet: bool, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Cut every tensor of a step into parts for several workers, so that they send each other least (Tofu).

    \b
    pesto split --model rnnlm --workers 2x2x2
    pesto split --model nmt --workers 8 -o split.json
    pesto split --model rnnlm --workers 2x2 --cluster v100x4
    pesto split step.shaped.json.gz --workers 8 --json
    pesto split ops
    pesto split ops --model e3d --uncovered

    FILE is a step's shapes, as pesto import --shapes writes them, or a GraphDef. Each op runs as it is on parts of its
    tensors; "b 12, ci 3" are 12 ops cut along b and 3 along ci. With ops: which op types have a description, of which
    class; of a step, where one is named. docs/guides/split.md says the rest.
    """
    if what == "ops":
        refuse("op types are listed, nothing is split", *_OF_SPLITS)
        _ops(source, named=source != Source(), missing=missing, as_json=as_json)
        return
    if export and (as_json or explain is not None):
        raise UsageError.build("--export prints a program alone", remedy="leave out --explain and --json")
    if missing:
        raise UsageError("--uncovered goes with ops: pesto split ops --uncovered")
    if workers is None:
        raise UsageError.build("how many workers?", remedy="give --workers, such as 8 or 2x2x2")
    source = _named(what, source).checked()
    factors, form = parse_factors(workers), picture_format(picture)
    rules = Rules(replicate=replicate, memory_bytes=_bytes(memory), halo=halo)
    outputs = [path for path in (out, picture) if path is not None]
    check_outputs(outputs, [source.file] if source.file else [], as_json=as_json)
    machine = None if cluster is None else accelerators_for(prod(factors), load_cluster(cluster), source)
    check_objective(objective, rules, machine)
    graph, shaped = (None, load_shapes(source)) if machine is None else load_shaped(source, quiet=True)
    _check(shaped, explain, whole=whole)
    rules = rules_for(rules, objective, (graph, machine), prod(factors))
    found = divide_with_or_without_halo(shaped, factors, method, rules, seconds=time_limit)
    clocked = (
        time_split(graph, shaped, found, machine, Settings()) if graph is not None and machine is not None else None
    )
    _write(shaped, found, (out, time_limit), (picture, form))
    if export:
        click.echo(EXPORTS[export](shaped, found.division), nl=False)
    elif as_json or not quiet:
        op = explain_op(shaped, found.division, explain, halo=halo) if explain is not None else None
        _say(shaped, found, out, clocked, op, as_json=as_json)
    if clocked is not None and machine is not None and not clocked.candidate.fits:
        refuse_short(clocked, machine)


def _write(shaped: TypedGraph, found: Split, file: tuple[Path | None, float], drawing: tuple[Path | None, str]) -> None:
    """The split, and the largest variables as a picture, where they are asked for."""
    (out, time_limit_s), (picture, form) = file, drawing
    if out is not None:
        save_split(shaped, found, out, time_limit_s=time_limit_s)
    if picture is not None:
        write_atomic(picture, draw_split(shaped, found.division, form))


def _bytes(gib: float | None) -> int | None:
    """Whole bytes of what --memory allows."""
    if gib is not None and not isfinite(gib):
        raise UsageError.build(f"--memory {gib}", remedy="give a number of GiB, such as 4")
    return None if gib is None else int(min(gib, 2**23) * 2**30)


def _check(shaped: TypedGraph, explain: str | None, *, whole: bool) -> None:
    """UsageError, before the cuts, for ops that nobody described and for an op that is not there."""
    if not whole:
        refuse_undescribed(shaped, "accept that with --whole")
    if explain is not None:
        find_op(shaped.names, explain)


def _say(
    shaped: TypedGraph,
    found: Split,
    out: Path | None,
    clocked: TimedSplit | None,
    op: ExplainedOp | None,
    *,
    as_json: bool,
) -> None:
    """The split, or one op of it."""
    left = undescribed_types(shaped)
    if as_json:
        answer(split_object(shaped, found, left, out, clocked) | ({"op": op_object(op)} if op else {}))
    else:
        click.echo(op_page(op, found.division.factors) if op else split_page(shaped, found, left, out, clocked))


def _named(file: str | None, source: Source) -> Source:
    """The step that the argument or the options name."""
    if file is None:
        return source
    check_exists(file)
    if source.file is not None:
        raise UsageError.build(f"{file} and --graph {source.file} are two steps", remedy="name one of them")
    return replace(source, file=Path(file))


def _ops(source: Source, *, named: bool, missing: bool, as_json: bool) -> None:
    """The table of op types: all that are described, or those of a step."""
    types = described_types()
    if named:
        source.checked()
        types = sorted({signature.type for signature in load_shapes(source).signatures})
    rows = [row for row in coverage(types) if not (missing and row.kind)]
    if as_json:
        answer(coverage_object(rows))
    else:
        click.echo(coverage_page(rows))
