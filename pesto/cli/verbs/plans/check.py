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
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import format_of
from pesto.core.plans.plan_file import loads
from pesto.core.source import Source
from pesto.inputs.load import load_graph, load_shapes, plan_source, split_source
from pesto.split.files.split_file import KIND as SPLIT
from pesto.split.files.split_file import loads_split
from pesto.verbs.api import check
from pesto.verbs.jobs.checked_pattern import CheckedPattern
from pesto.verbs.jobs.checked_plan import CheckedPlan
from pesto.verbs.jobs.checked_split import CheckedSplit
from solvers.pipelining.pattern_json import KIND as PATTERN

_OF_STEPS = SOURCE_NAMES


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
    data = read_bytes(plan)
    kind = format_of(data, str(plan))
    if kind == PATTERN.format:
        refuse("a pattern has its chain and devices within it", *_OF_STEPS, "cluster", "costs")
        pattern = CheckedPattern.of(data, str(plan), certificate=certificate)
        _print(pattern, as_json=as_json)
        return
    if kind == SPLIT.format:
        refuse("a split is of no cluster and of no costs", "cluster", "costs")
        split = loads_split(data, str(plan))
        shaped = load_shapes(split_source(split, source))
        cut = CheckedSplit.of(split, shaped, certificate=certificate)
        _print(cut, as_json=as_json)
        return
    found = loads(data, str(plan))
    graph = load_graph(plan_source(found, source))
    left = check(found, graph, cluster=cluster or None, costs=costs)
    checked = CheckedPlan.of(found, graph, left, cluster, costs)
    if as_json:
        answer(checked.as_object(plan, certificate=certificate))
    else:
        click.echo(checked.page(plan, certificate=certificate))


def _print(checked: CheckedSplit | CheckedPattern, *, as_json: bool) -> None:
    if as_json:
        answer(checked.as_object())
    else:
        click.echo(checked.page())
