"""pesto report: a plan, and others against it, as one page for a browser."""

from collections.abc import Sequence
from pathlib import Path

import click

from pesto.cli.options import Existing, cluster_option, costs_option, source_options
from pesto.cli.outputs import check_outputs
from pesto.core.files.disk import write_atomic
from pesto.core.quantities import plural, size
from pesto.core.source import Source
from pesto.reporting.show.lines import paragraph
from pesto.verbs.artifacts import GivenStep, load_plan, report


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
