"""pesto split: a step cut into parts for several workers, and the op types that can be cut."""

from dataclasses import replace
from pathlib import Path

import click

from pesto.cli.options import json_option, source_options
from pesto.cli.outputs import check_outputs
from pesto.cli.printed import answer
from pesto.cluster import Cluster
from pesto.errors import InfeasibleError, NothingFoundError, UsageError
from pesto.files.disk import check_there
from pesto.inputs.load import load_cluster, load_shaped, load_shapes
from pesto.settings import Settings
from pesto.show.split_page import coverage_object, coverage_page, split_object, split_page
from pesto.source import Source
from pesto.split.dividing import METHODS, divide, factors_of, uncovered
from pesto.split.files.split_file import save_split
from pesto.split.ops.op_types import coverage, described
from pesto.split.program import Rules
from pesto.weighing.timed_split import TimedSplit, shortfall, timed


@click.command("split")
@click.argument("what", metavar="[ops|FILE]", required=False)
@source_options
@click.option("--workers", help="How many: 8 for one cut of all tensors, 2x2x2 for cuts in two, one after the other.")
@click.option("--method", type=click.Choice(list(METHODS)), default="exact", show_default=True)
@click.option("--replicate", is_flag=True, help="Variables may lie whole on every worker.")
@click.option("--time-limit", type=click.FloatRange(0.1), default=60.0, show_default=True, help="Seconds for all cuts.")
@click.option("--cluster", metavar="NAME|FILE", help="Also time its step there: a preset (pesto clusters) or a file.")
@click.option("--uncovered", "missing", is_flag=True, help="With ops: those without a description alone.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write the split here (.json, .json.gz).")
@json_option()
def split_command(
    *, what: str | None, source: Source, workers: str | None, method: str, replicate: bool, time_limit: float,
    cluster: str | None, missing: bool, out: Path | None, as_json: bool,
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
    class; of a step, where one is named. docs/split.md says the rest.
    """
    if what == "ops":
        _ops(source, named=source != Source(), missing=missing, as_json=as_json)
        return
    if missing:
        raise UsageError("--uncovered goes with ops: pesto split ops --uncovered")
    if workers is None:
        raise UsageError("how many workers? - give --workers, such as 8 or 2x2x2")
    source = _named(what, source).checked()
    factors, rules = factors_of(workers), Rules(replicate=replicate)
    check_outputs([out] if out else [], [source.file] if source.file else [], as_json=as_json)
    machine = load_cluster(cluster) if cluster is not None else None
    graph, shaped = (None, load_shapes(source)) if machine is None else load_shaped(source, quiet=True)
    found = divide(shaped, factors, method, rules, seconds=time_limit)
    clocked = timed(graph, shaped, found, machine, Settings()) if graph is not None and machine is not None else None
    if out is not None:
        save_split(shaped, found, rules, out, time_limit_s=time_limit)
    left = uncovered(shaped)
    if as_json:
        answer(split_object(shaped, found, left, out, clocked))
    else:
        click.echo(split_page(shaped, found, left, out, clocked))
    if clocked is not None and machine is not None and not clocked.candidate.fits:
        _short(clocked, machine)


def _short(clocked: TimedSplit, machine: Cluster) -> None:
    """InfeasibleError, or NothingFoundError, for a split that does not fit, with the bytes that lack."""
    remedy = "give more workers, larger devices or a smaller batch"
    if clocked.proof:
        raise InfeasibleError(f"{clocked.proof}, cut as it is - {remedy}")
    raise NothingFoundError(f"the split does not fit: {shortfall(clocked.candidate, machine)} - {remedy}")


def _named(file: str | None, source: Source) -> Source:
    """The step that the argument or the options name."""
    if file is None:
        return source
    check_there(file)
    if source.file is not None:
        raise UsageError(f"{file} and --graph {source.file} are two steps - name one of them")
    return replace(source, file=Path(file))


def _ops(source: Source, *, named: bool, missing: bool, as_json: bool) -> None:
    """The table of op types: all that are described, or those of a step."""
    types = described()
    if named:
        source.checked()
        types = sorted({signature.type for signature in load_shapes(source).signatures})
    rows = [row for row in coverage(types) if not (missing and row.kind)]
    if as_json:
        answer(coverage_object(rows))
    else:
        click.echo(coverage_page(rows))
