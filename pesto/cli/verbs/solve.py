"""pesto solve: find a checked placement and schedule."""

import logging
import time
from pathlib import Path
from typing import Any

import click

from pesto.cli.options import (
    Duration,
    Existing,
    cluster_option,
    costs_option,
    json_option,
    out_option,
    quiet_option,
    solver_option,
    source_options,
    token_option,
)
from pesto.cli.outputs import check_outputs, present
from pesto.cli.printed import aside, to_json
from pesto.cli.read_step import read_step
from pesto.cli.startup import counted_s, startup_s
from pesto.core.errors import Exit, UsageError
from pesto.core.files.disk import write_atomic
from pesto.core.graph import Graph
from pesto.core.plans.plan_file import cdep_json, load, part_json, save
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.load import load_cluster, load_costs
from pesto.planning.solving.flow import Earlier, Outcome, solve
from pesto.planning.solving.interrupt import received
from pesto.reporting.show.report.html_report import html_report
from pesto.reporting.show.report.plan_facts import report_solve
from pesto.reporting.show.solve_glossary import glossary_text
from pesto.reporting.show.solve_report import as_object, following_command, page
from pesto.reporting.show.status_line import LiveLine
from solvers import FAILED


def _explained(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    del param
    if asked:
        click.echo(glossary_text())
        ctx.exit()


@click.command("solve")
@source_options
@cluster_option()
@costs_option()
@click.option(
    "--time-limit",
    type=Duration(),
    default="60",
    show_default=True,
    help="Of the solve, once the graph is read: 60, 90s, 10m.",
)
@click.option("--gap", type=float, default=0.0, show_default=True, help="Stop at this relative gap of the full graph.")
@click.option("--search/--no-search", default=True, show_default=True, help="Search op by op after the exact solver.")
@click.option("--coarsen-to", type=int, default=200, show_default=True, help="Nodes of the coarse graph.")
@click.option("--merge-time", type=float, default=2.0, show_default=True, help="Most time of a merged node, in means.")
@click.option("--merge-members", type=float, default=4.0, show_default=True, help="Most ops of it, in means.")
@solver_option()
@click.option("--formulation", default="tight", show_default=True, help="Of a MILP solver: tight, paper or pulp.")
@click.option(
    "--workers",
    type=int,
    default=8,
    show_default=True,
    help="Threads of the exact solver; most walks.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--deterministic", is_flag=True, help="Same input, seed and version: same plan.")
@click.option("--per-edge", is_flag=True, help="One transfer an edge, as the paper counts them.")
@click.option(
    "--congestion/--no-congestion",
    default=True,
    show_default=True,
    help="Whether the exact solver knows that transfers share links.",
)
@click.option("--headroom", type=float, default=0.1, show_default=True, help="Memory that repairs spare at first.")
@click.option("--placement-only", is_flag=True, help="Leave the order to the framework: first in, first out.")
@click.option("--robust", is_flag=True, help="Of nearly equal candidates, that of least p90 where times are wrong.")
@click.option("--split", metavar="auto|2x2,4", help="Also cut tensors so; the shortest step is chosen.")
@click.option(
    "--start", type=Existing(), metavar="PLAN", help="Begin from this plan: another cluster, a changed graph."
)
@click.option(
    "--beside",
    "other",
    type=Existing(),
    metavar="PLAN",
    help="Keep shared variables where this plan of another step has them.",
)
@click.option("--server", metavar="URL", help="Have it solved by the placement service there (pesto serve).")
@token_option()
@out_option("plan.json", "Plan file.")
@click.option("--report", type=click.Path(path_type=Path), help="Also write the plan as a page (pesto report) here.")
@click.option("--part", type=click.Path(path_type=Path), help="Also write the authors' part.json here.")
@click.option("--cdep", type=click.Path(path_type=Path), help="Also write the authors' cdep.json here.")
@json_option()
@quiet_option()
@click.option(
    "--explain-output",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_explained,
    help="Say what the names and lines of its output mean.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the exact solver's own log.")
def solve_command(
    *, source: Source, cluster: str, costs: Path | None, split: str | None, start: Path | None, other: Path | None,
    out: Path, report: Path | None, part: Path | None, cdep: Path | None, as_json: bool, quiet: bool, verbose: bool,
    server: str | None, token: str | None, **settings: Any,
) -> None:  # fmt: skip
    """Find a placement and schedule, verify it, write it.

    \b
    pesto solve --model nmt
    pesto solve --graph step.json --cluster v100x4 --time-limit 10m -o step.plan
    pesto solve --model nmt --cluster v100x4 --start plan.json -o plan4.json
    pesto solve --model transformer --cluster v100x4 --split auto -o split.json
    pesto solve --function gan:generator_step --beside critic.json -o gen.json
    pesto solve --model nmt --server http://127.0.0.1:8780
    """
    source.checked()
    chosen = _chosen(cdep, **settings)
    machine = load_cluster(cluster)
    before = Earlier(start=None if start is None else load(start), beside=None if other is None else load(other))
    check_outputs(present(out, report, part, cdep), present(source.file, start, other), as_json=as_json)
    if split is not None:
        from pesto.cli.cutting import Asked, cut, refuse_beside  # late, as those below: they take long to load

        apart = {"costs": costs, "start": start, "beside": other, "report": report, "part": part, "cdep": cdep}
        refuse_beside(source, apart)
    if server is not None:
        from pesto.cli.remote_solve import Beside, solve_there
        from pesto.service.client.solve_request import Solve

        there = Solve(
            source=source, cluster=cluster, costs=costs, start=start, beside=other, settings=chosen, cuts=split, out=out
        )  # fmt: skip
        return solve_there((server, token), there, Beside(report, part, cdep), as_json=as_json, quiet=quiet)
    if verbose:
        logging.getLogger("pesto").setLevel(logging.INFO)
    chosen.check_installed()
    if split is not None:
        return cut(Asked(split, source, machine, cluster, chosen, out), as_json=as_json, quiet=quiet)
    started_s, began = startup_s(), time.perf_counter()
    graph = read_step(source, quiet=quiet)
    loaded = time.perf_counter()
    op_costs = load_costs(graph, machine, costs)
    costed = time.perf_counter()
    before = before._replace(
        spent_s=counted_s(started_s + costed - loaded, chosen.time_limit_s, deterministic=chosen.deterministic)
    )
    with LiveLine(quiet=quiet) as live:
        outcome = solve(graph, machine, op_costs, chosen, live, before)
    writes = time.perf_counter()
    save(outcome.plan, out)
    _write_as_authors(outcome, graph, part, cdep)
    stages_s = {"start": started_s, "graph": loaded - began, "costs": costed - loaded, **outcome.stages_s}
    stages_s["write"] = time.perf_counter() - writes
    if report is not None:
        write_atomic(report, html_report(graph, [report_solve(outcome, machine, out.name, stages_s)]))
    if as_json:
        click.echo(to_json(as_object(outcome, stages_s, out, report)))
    else:
        click.echo(page(outcome, stages_s, out, following_command(source, cluster, costs, out, report), report))
    return _end(outcome)


def _write_as_authors(outcome: Outcome, graph: Graph, part: Path | None, cdep: Path | None) -> None:
    if part is not None:
        write_atomic(part, part_json(outcome.plan))
    if cdep is not None:
        write_atomic(cdep, cdep_json(outcome.plan, graph))


def _chosen(cdep: Path | None, *, time_limit: float, **settings: Any) -> Settings:
    """The settings; UsageError where an order is to be written that is left open."""
    chosen = Settings(time_limit_s=time_limit, **settings)
    if chosen.placement_only and cdep is not None:
        raise UsageError("--cdep is for the order, which --placement-only leaves open - leave one of them out")
    return chosen


def _end(outcome: Outcome) -> None:
    """Warn of a solver that failed, and end with the code of an interruption if there was one."""
    coarse = outcome.plan.provenance.coarse
    if coarse is not None and coarse.status in FAILED:
        aside(f"pesto: WARNING: {coarse.solver} {coarse.status}: {coarse.detail} - see pesto doctor")
    if outcome.interrupted or received():
        raise click.exceptions.Exit(received() or Exit.INTERRUPTED)
