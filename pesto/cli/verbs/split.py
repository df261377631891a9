"""pesto split: a step cut into parts for several workers, and the op types that can be cut."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from pesto.cli.options import GroupedCommand, json_option, refuse, request_options, source_options
from pesto.cli.printed import answer, check_outputs, picture_format
from pesto.core.errors import UsageError
from pesto.core.files.disk import check_exists, write_atomic
from pesto.core.option import options_of
from pesto.core.source import Source
from pesto.inputs.load import load_shapes
from pesto.reporting.show.split_page import (
    coverage_object,
    coverage_page,
    draw_split,
    op_object,
    op_page,
)
from pesto.split.ops.op_types import coverage, described_types
from pesto.split.split_views import EXPORTS, explain_op, find_op
from pesto.verbs.plan_step import split_step
from pesto.verbs.requests import Context, SplitRequest, Step
from pesto.verbs.verb_options import SplitOptions

_OF_SPLITS = (*(each.name for each in options_of(SplitOptions)), "cluster", "explain", "picture", "export", "out")


@click.command("split", cls=GroupedCommand)
@click.argument("what", metavar="[ops|FILE]", required=False)
@source_options
@request_options(SplitRequest, late=True)
@click.option("--explain", metavar="OP", help="Of one op: strategies, refusals, its tensors, who has which part.")
@click.option("--draw", "picture", type=click.Path(path_type=Path), help="Draw the largest variables (.png or .svg).")
@click.option("--export", type=click.Choice(list(EXPORTS)), help="Print where variables lie, as a program for these.")
@click.option("--uncovered", "missing", is_flag=True, help="With ops: those without a description alone.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but warnings and errors.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write the split here (.json, .json.gz).")
@json_option()
def split_command(
    *, what: str | None, make_request: Callable[..., SplitRequest], source: Source, explain: str | None,
    picture: Path | None, export: str | None, missing: bool, quiet: bool, out: Path | None, as_json: bool,
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
        named = source != Source()
        types = described_types()
        if named:
            source.checked()
            types = sorted({signature.type for signature in load_shapes(source).signatures})
        rows = [row for row in coverage(types) if not (missing and row.kind)]
        if as_json:
            answer(coverage_object(rows))
        else:
            click.echo(coverage_page(rows))
        return
    if export and (as_json or explain is not None):
        raise UsageError.build("--export prints a program alone", remedy="leave out --explain and --json")
    if missing:
        raise UsageError.build("--uncovered goes with ops", remedy="pesto split ops --uncovered")
    if what is not None:
        check_exists(what)
        if source.file is not None:
            raise UsageError.build(f"{what} and --graph {source.file} are two steps", remedy="name one of them")
        source = replace(source, file=Path(what))
    source, form = source.checked(), picture_format(picture)
    if click.get_current_context().params["workers"] is None:
        raise UsageError.build("how many workers?", remedy="give --workers, such as 8 or 2x2x2")
    request = make_request(source=source)
    outputs = [path for path in (out, picture) if path is not None]
    check_outputs(outputs, [source.file] if source.file else [], as_json=as_json)
    cut = split_step(request, _Explaining(explain))
    if out is not None:
        cut.save(out)
    if picture is not None:
        write_atomic(picture, draw_split(cut.shaped, cut.split.division, form))
    op = None if explain is None else explain_op(cut.shaped, cut.split.division, explain, halo=request.options.halo)
    if export:
        click.echo(EXPORTS[export](cut.shaped, cut.split.division), nl=False)
    elif as_json:
        answer(cut.as_object(out) | ({"op": op_object(op)} if op else {}))
    elif not quiet:
        click.echo(op_page(op, cut.split.division.factors) if op else cut.page(out))
    cut.check_fits()


class _Explaining(Context):
    """Refuses, before anything is cut, an op to be explained that the step does not have."""

    def __init__(self, op: str | None) -> None:
        self._op = op

    def spell(self, option: str) -> str:
        """Return an option as the command line has it."""
        return f"--{option}"

    def accept(self, step: Step) -> Step:
        """UsageError where the step does not have the op."""
        if self._op is not None:
            find_op(step.names, self._op)
        return step
