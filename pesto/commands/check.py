"""pesto check: verify a plan against its graph."""

from pathlib import Path

import click

from pesto.commands.options import Existing, cluster_option, costs_option, json_option, source_options
from pesto.errors import UsageError
from pesto.flow import formulate
from pesto.inputs import load_cluster, load_costs, load_graph
from pesto.plan import PER_EDGE, Plan, verify
from pesto.planfile import load
from pesto.report import to_json
from pesto.settings import Settings
from pesto.source import Source, named_by


@click.command("check")
@click.argument("plan", type=Existing())
@source_options
@cluster_option(default=None)
@costs_option()
@json_option()
def check_command(*, plan: Path, source: Source, cluster: str | None, costs: Path | None, as_json: bool) -> None:
    """Verify PLAN on its original graph: placement, order, times, transfers, memory.

    A plan of a built-in model names its graph itself; for others give --graph, --saved-model or --function as for
    the solve. The cluster is the plan's unless it was a file: then give --cluster. A plan on measured costs needs
    its --costs.
    """
    found = load(plan)
    graph = load_graph(plan_source(found, source))
    machine = load_cluster(cluster or plan_cluster(found))
    if costs is None and "measured" in found.provenance.costs_basis:
        raise UsageError("the plan rests on measured costs - give the profile with --costs")
    per_edge = found.provenance.transfers == PER_EDGE
    problem = formulate(graph, load_costs(graph, machine, costs), machine, Settings(per_edge=per_edge))
    verify(found, graph, problem, machine)
    if as_json:
        click.echo(to_json({"valid": True, "makespan_s": found.makespan_s, "ops": graph.ops, "plan": str(plan)}))
    else:
        click.echo(f"{plan}: valid; {graph.ops} ops, {found.makespan_s * 1e3:.2f} ms predicted")


def plan_source(plan: Plan, source: Source) -> Source:
    """The graph that the options name, or else the built-in model that the plan names."""
    if source == Source():
        named = named_by(plan.provenance.graph_source)
        if named is None:
            raise UsageError(
                f"the plan's graph was {plan.provenance.graph_source!r} - give it with --graph or the like"
            )
        return named
    return source.checked()


def plan_cluster(plan: Plan) -> str:
    """The preset that the plan names; UsageError when its cluster came from a file."""
    if not plan.provenance.cluster_source.startswith("preset "):
        raise UsageError(f"the plan's cluster was {plan.provenance.cluster_source!r} - give it with --cluster")
    return plan.provenance.cluster
