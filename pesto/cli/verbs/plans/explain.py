"""pesto explain: why the step of a plan takes as long as it does."""

from pathlib import Path

import click

from pesto.cli.options import Existing, cluster_option, costs_option, json_option, source_options
from pesto.cli.printed import to_json
from pesto.core.source import Source
from pesto.reporting.explaining.explanation_text import explanation_object, sentences
from pesto.reporting.show.lines import fact
from pesto.verbs.artifacts import GivenStep, explain, load_plan


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
