"""pesto check, explain, diff and report: verify a plan, explain its step time, compare it with other plans."""

from collections.abc import Sequence
from pathlib import Path

import click

from pesto.cli.options import (
    SOURCE_NAMES,
    Existing,
    cluster_option,
    costs_option,
    json_option,
    refuse,
    source_options,
)
from pesto.cli.printed import answer, check_outputs, to_json
from pesto.core.errors import Exit, MismatchError
from pesto.core.files.disk import write_atomic
from pesto.core.graph import Graph
from pesto.core.quantities import plural, size
from pesto.core.source import Source
from pesto.inputs.load import load_graph, plan_source
from pesto.reporting.explaining.explanation_text import explanation_object, sentences
from pesto.reporting.explaining.plan_diff import compare_plans, diff_object, diff_sentences
from pesto.reporting.show.lines import fact, paragraph
from pesto.verbs.artifacts import UNUSED, GivenStep, explain, kind_of, load_artifact, load_plan, report, verify


@click.command("check")
@click.argument("plan", metavar="PLAN|SPLIT|PATTERN", type=Existing())
@source_options
@cluster_option(default=None)
@costs_option()
@click.option("--certificate", is_flag=True, help="Also say how far from optimal the plan is at most, and why.")
@json_option()
def check_command(
    *, plan: Path, source: Source, cluster: str | None, costs: Path | None, certificate: bool, as_json: bool
) -> None:
    """Verify PLAN on its original graph: placement, order, times, transfers, memory, and its lower bound.

    Or a split, as pesto split -o writes it: ways, layouts, bytes; with --certificate its bound, by solving it again.
    Or a pattern, as pesto pipeline -o writes it: order, overlaps, bytes; with --certificate its bounds.

    A plan of a built-in model names its graph itself; for others give --graph, --saved-model or --function as for
    the solve. The cluster is the plan's unless it was a file: then give --cluster. A plan on measured costs
    or on times of your own needs its --costs. What the step takes with the part of the order that TensorFlow is made to
    keep is predicted as well.
    """
    artifact = load_artifact(plan)
    why, fields = UNUSED[kind_of(artifact)]
    if options := [option for name in fields for option in (SOURCE_NAMES if name == "source" else (name,))]:
        refuse(why, *options)
    given = GivenStep(source=source, cluster=cluster or None, costs=costs)
    checked = verify(artifact, given, str(plan), certificate=certificate)
    if as_json:
        answer(checked.as_object())
    else:
        click.echo(checked.page())


@click.command("explain")
@click.argument("plan", type=Existing())
@source_options
@cluster_option(default=None)
@costs_option()
@click.option("--op", metavar="NAME", help="Also why this op is where it is, and what moving it would cost.")
@json_option()
def explain_command(
    *, plan: Path, source: Source, cluster: str | None, costs: Path | None, op: str | None, as_json: bool
) -> None:
    """Say why the step of PLAN takes as long as it does, in sentences with numbers (docs/guides/explain.md).

    \b
    pesto explain plan.json
    pesto explain plan.json --op softmax/MatMul
    pesto explain plan.json --graph dag.json --json

    The critical path by kind and by what its ops waited for, the ops that hold everybody up, what would help, and what
    ties ops together. The plan is verified first; graph, cluster and costs are named as for pesto check.
    """
    given = GivenStep(source=source, cluster=cluster or None, costs=costs)
    said = explain(load_plan(plan, "explain"), given, op)
    if as_json:
        click.echo(to_json(explanation_object(said)))
        return
    click.echo("\n".join(fact(word, sentence) for word, sentence in sentences(said)))


@click.command("diff")
@click.argument("first", type=Existing())
@click.argument("second", type=Existing())
@source_options
@click.option("--exit-code", is_flag=True, help=f"Exit with {int(Exit.DIFFERENT)} where the plans differ.")
@json_option()
def diff_command(*, first: Path, second: Path, source: Source, exit_code: bool, as_json: bool) -> None:
    """Say wherein the plans FIRST and SECOND differ: ops moved, bytes sent, order, devices, steps.

    \b
    pesto diff before.json after.json
    pesto diff before.json after.json --graph dag.json --json
    pesto diff --exit-code expected.json plan.json

    Of one graph, or of two: ops are then known again by their names, and devices as where a solve starts from a plan
    for another cluster. Neither plan is verified: pesto check does that. The bytes that are sent need the graph, which
    a plan of a built-in model names itself. Exit code 0, also where they differ, unless --exit-code is given.
    """
    plans = load_plan(first, "diff"), load_plan(second, "diff")
    given = load_graph(plan_source(plans[0], source)) if source != Source() else None
    # The graph of each plan: the one that is given, or that of the built-in model that the plan names; else None.
    graphs: dict[str, Graph | None] = {} if given is None else {given.fingerprint(): given}
    if given is not None and not any(plan.provenance.graph_fingerprint in graphs for plan in plans):
        raise MismatchError.build(
            f"both plans are for other graphs than {given.source}", remedy="give that of one of them"
        )
    for made in (plan.provenance for plan in plans):
        if made.graph_fingerprint not in graphs:
            named = None if given is not None else made.graph_origin.model
            graphs[made.graph_fingerprint] = None if named is None else load_graph(named)
    one, other = (graphs[plan.provenance.graph_fingerprint] for plan in plans)
    difference = compare_plans(*plans, (one, other))
    if as_json:
        click.echo(to_json({"plans": [str(first), str(second)], **diff_object(difference)}))
    else:
        click.echo("\n".join(fact(word, sentence) for word, sentence in diff_sentences(difference)))
    if exit_code and difference.differ:
        raise click.exceptions.Exit(Exit.DIFFERENT)


@click.command("report")
@click.argument("plan", type=Existing())
@source_options
@cluster_option(default=None)
@costs_option()
@click.option(
    "--against", type=Existing(), multiple=True, metavar="PLAN", help="Another plan of the same graph; repeatable."
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    default="report.html",
    show_default=True,
    help="Page to write.",
)
def report_command(
    *,
    plan: Path,
    source: Source,
    cluster: str | None,
    costs: Path | None,
    against: Sequence[Path],
    out: Path,
) -> None:
    """Write PLAN as one page: what runs where and when, what waits for what, and how far from optimal it is.

    \b
    pesto report plan.json
    pesto report plan.json --against older.json -o both.html

    The page is one file, and needs no network: open it in any browser of 2023 or later. The graph, the cluster and the
    costs are named as for pesto check, which verifies every plan first; they hold for all plans.
    """
    files = [plan, *against]
    check_outputs([out], [*files, *([source.file] if source.file else [])], as_json=False)
    plans = [(file.name, load_plan(file, "report")) for file in files]
    graph, page = report(plans, GivenStep(source=source, cluster=cluster or None, costs=costs))
    write_atomic(out, page)
    click.echo(paragraph(f"{out}: {plural(graph.ops, 'op')}, {size(len(page))}; open it in a browser", 2))
