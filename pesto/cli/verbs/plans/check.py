"""pesto check: verify a plan against its graph."""

from dataclasses import fields
from pathlib import Path

import click

from pesto.api import check
from pesto.cli.options import Existing, cluster_option, costs_option, json_option, refuse, source_options
from pesto.cli.printed import to_json
from pesto.cli.verbs.plans.check_pattern import check_pattern
from pesto.cli.verbs.plans.check_split import check_split
from pesto.errors import UsageError
from pesto.files.disk import read_bytes
from pesto.files.json import format_of, shown
from pesto.graph import Graph
from pesto.inputs.load import load_cluster, load_costs, load_graph, load_shapes, plan_cluster
from pesto.plans.plan import PER_EDGE, Plan, recomputed
from pesto.plans.plan_file import loads
from pesto.plans.solver_claim import claimant
from pesto.plans.statements import NOT_CHECKED
from pesto.plans.ways import Enforced, as_meant
from pesto.quantities import counted, duration, percent
from pesto.settings import Settings
from pesto.show.facts.enforced_step import enforced_keys, enforced_line
from pesto.show.lines import paragraph
from pesto.simulator import Timeline
from pesto.solving.flow import formulate
from pesto.source import Source, named_by
from pesto.split.files.split_file import KIND as SPLIT
from pesto.split.files.split_file import loads_split
from solvers import Problem, relative_gap
from solvers.pipelining.pattern_json import KIND as PATTERN

_OF_STEPS = tuple(f.name for f in fields(Source))


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
        check_pattern(data, str(plan), certificate=certificate, as_json=as_json)
        return
    if kind == SPLIT.format:
        refuse("a split is of no cluster and of no costs", "cluster", "costs")
        split = loads_split(data, str(plan))
        named = source_of(split.source, source, "the split's step", "when it was split")
        check_split(split, load_shapes(named), certificate=certificate, as_json=as_json)
        return
    found = loads(data, str(plan))
    graph = load_graph(plan_source(found, source))
    left = check(found, graph, cluster=cluster or None, costs=costs)
    problem = _problem(found, graph, cluster, costs)
    meant = _as_meant(found, graph, problem)
    if as_json:
        said = {"valid": True, "makespan_s": found.makespan_s, "ops": graph.ops, "plan": str(plan)}
        said |= enforced_keys(meant)
        click.echo(to_json({**said, **_certificate(found, problem), "not_checked": left} if certificate else said))
        return
    click.echo(paragraph(f"{plan}: valid; {counted(graph.ops, 'op')}, {duration(found.makespan_s)} predicted", 2))
    if meant is not None:
        click.echo(enforced_line(meant))
    if certificate:
        click.echo(paragraph(f"{plan}: {_bound_line(found, problem)}", 2))
        click.echo(paragraph(f"{plan}: {NOT_CHECKED}: {', '.join(left)}", 2))


def _problem(plan: Plan, graph: Graph, cluster: str | None, costs: Path | None) -> Problem:
    """The full-graph problem that the plan is checked against."""
    machine = load_cluster(cluster or plan_cluster(plan))
    settings = Settings(per_edge=plan.provenance.transfers == PER_EDGE)
    return formulate(graph, load_costs(graph, machine, costs), machine, settings)


def _as_meant(plan: Plan, graph: Graph, problem: Problem) -> Enforced | None:
    """What the step takes in the way in which it is meant to be run."""
    if not graph.way and not plan.placement_only:
        return None
    return as_meant(graph, Timeline(problem=problem, schedule=plan.schedule), plan.rank, order=not plan.placement_only)


def _certificate(plan: Plan, problem: Problem) -> dict[str, object]:
    """The bound, what of it `verify` has recomputed from the plan and the problem alone, and whose word the rest is."""
    made, claim = plan.provenance, {}
    if solver := claimant(made.lower_bound_name):
        sure, by = recomputed(plan, problem)
        claim = {"claimed_by": solver, "recomputed_bound_s": sure * plan.tick_s, "recomputed_bound": by}
    return {
        "lower_bound_s": made.lower_bound_ticks * plan.tick_s,
        "lower_bound": made.lower_bound_name,
        "lower_bound_of": "full graph",
        "claims": 0 if made.lower_bound_evidence is None else len(made.lower_bound_evidence.claims),
        **claim,
        "gap": plan.gap,
    }


def _bound_line(plan: Plan, problem: Problem) -> str:
    made = plan.provenance
    ticks, name, evidence = made.lower_bound_ticks, made.lower_bound_name, made.lower_bound_evidence
    bound = f"lower bound {duration(ticks * plan.tick_s)} on the full graph by {name}"
    how = "" if evidence is None else f" ({len(evidence.claims)} claims on {len(evidence.anchors)} anchors, checked)"
    if solver := claimant(name):
        sure, by = recomputed(plan, problem)
        gap = percent(relative_gap(plan.schedule.makespan, sure))
        how = f", which is the word of {solver}: it has no certificate, and nothing here proves it"
        how += f" - recomputed: {duration(sure * plan.tick_s)} by {by}, gap {gap}"
    return f"{bound}{how}; gap {percent(plan.gap)}"


def plan_source(plan: Plan, source: Source) -> Source:
    """The graph that the options name, or else the built-in model that the plan names."""
    return source_of(plan.provenance.graph_source, source, "the plan's graph", "when it was planned")


def source_of(made: str, source: Source, what: str, when: str) -> Source:
    """What the options name, or else the built-in model that a file says it was made of."""
    if source == Source():
        named = named_by(made)
        if named is None:
            called = made.startswith("function ") and ":" in made
            option = f"--{shown(made)}" if called else "--graph, --saved-model or --function"
            raise UsageError(f"{what} was {shown(made)!r} - give it with {option}, as {when}")
        return named
    return source.checked()
