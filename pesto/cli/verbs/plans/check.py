"""pesto check: verify a plan against its graph."""

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
from pesto.cli.printed import answer
from pesto.core.source import Source
from pesto.verbs.artifacts import UNUSED, GivenStep, kind_of, load_artifact, verify


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
