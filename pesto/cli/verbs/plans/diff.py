"""pesto diff: wherein two plans differ."""

from pathlib import Path

import click

from pesto.cli.options import Existing, json_option, source_options
from pesto.cli.printed import to_json
from pesto.core.errors import Exit, MismatchError
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.source import Source
from pesto.inputs.load import load_graph, plan_source
from pesto.reporting.explaining.plan_diff import compare_plans, diff_object, diff_sentences
from pesto.reporting.show.lines import fact
from pesto.verbs.artifacts import load_plan


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
    found = compare_plans(*plans, _graphs(plans, given))
    if as_json:
        click.echo(to_json({"plans": [str(first), str(second)], **diff_object(found)}))
    else:
        click.echo("\n".join(fact(word, sentence) for word, sentence in diff_sentences(found)))
    if exit_code and found.differ:
        raise click.exceptions.Exit(Exit.DIFFERENT)


def _graphs(plans: tuple[Plan, Plan], given: Graph | None) -> tuple[Graph | None, Graph | None]:
    """The graph of each plan: the one that is given, or that of the built-in model that the plan names; else None."""
    found: dict[str, Graph | None] = {} if given is None else {given.fingerprint(): given}
    if given is not None and not any(plan.provenance.graph_fingerprint in found for plan in plans):
        raise MismatchError.build(
            f"both plans are for other graphs than {given.source}", remedy="give that of one of them"
        )
    for plan in plans:
        made = plan.provenance
        if made.graph_fingerprint not in found:
            named = None if given is not None else made.graph_origin.model
            found[made.graph_fingerprint] = None if named is None else load_graph(named)
    one, other = (found[plan.provenance.graph_fingerprint] for plan in plans)
    return one, other
