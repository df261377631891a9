"""Statements of a plan's file beside its schedule: compared with the inputs at hand, or passed on as unconfirmed."""

from dataclasses import asdict
from typing import Any

from pesto.core.cluster import Cluster
from pesto.core.costs import MEASURED, Costs
from pesto.core.errors import UsageError, VerificationError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.plan import PER_EDGE, Plan, claimant
from pesto.core.quantities import percent
from pesto.core.settings import NEAR
from pesto.core.source import PROFILE, TIMES

NOT_CHECKED = "stated by the file, not checked"
"""Words of a page for a statement that nothing at hand confirms."""


def unconfirmed_statements(plan: Plan, graph: Graph, cluster: Cluster, costs: Costs) -> dict[str, Any]:
    """Return the statements of a verified plan that nothing confirms, by key (docs/reference/plan-file.md).

    Raise VerificationError for what the graph, the cluster, the costs or the plan itself contradict.
    """
    provenance = plan.provenance
    if wrong := _find_contradictions(plan, graph, cluster, costs):
        raise VerificationError.build(f"the plan is invalid: claims: {'; '.join(wrong)}", remedy="solve again")
    at_hand = {
        "graph_source": graph.source, "graph_batch": graph.batch, "cluster": cluster.name,
        "cluster_source": cluster.source, "costs": costs.source,
    }  # fmt: skip
    left: dict[str, Any] = {
        key: getattr(provenance, key) for key, own in at_hand.items() if getattr(provenance, key) != own
    }
    if provenance.graph_origin != graph.origin:
        left["graph_origin"] = asdict(provenance.graph_origin)
    if provenance.cluster_origin != cluster.origin:
        left["cluster_origin"] = asdict(provenance.cluster_origin)
    if provenance.costs_files != costs.files:
        left["costs_files"] = [asdict(file) for file in provenance.costs_files or ()]
    if plan.feed_shapes != graph.feed_shapes:
        left["feed_shapes"] = list(plan.feed_shapes)
    others = [name for name in provenance.candidates_ticks if name != provenance.chosen]
    if others:
        left["candidates_ticks"] = {name: provenance.candidates_ticks[name] for name in others}
        left["candidates_fit"] = {name: provenance.candidates_fit[name] for name in others}
    if claimant(provenance.lower_bound_name):
        left["lower_bound_ticks"] = provenance.lower_bound_ticks
    if provenance.coarse is not None:
        left["coarse"] = asdict(provenance.coarse)
    return {**left, "rule": provenance.rule, "settings": provenance.settings, "pesto_version": provenance.pesto_version}


def missing_costs(plan: Plan) -> UsageError | None:
    """Return the error of a plan that is checked without the costs that have to be given; None where none have."""
    for file in plan.provenance.costs_files or ():
        if file.kind == TIMES:
            times = f"times of {shown(file.name)} (sha256 {shown(file.digest)})"
            return UsageError.build(f"the plan rests on {times}", remedy="give that file as costs")
        if file.kind == PROFILE:
            return UsageError.build("the plan rests on measured costs", remedy="give the profile as costs")
    return None


def _find_contradictions(plan: Plan, graph: Graph, cluster: Cluster, costs: Costs) -> list[str]:
    provenance, wrong = plan.provenance, []
    if provenance.costs_basis != costs.basis:
        wrong.append(f"the costs are {costs.basis}, the plan says {shown(provenance.costs_basis)}")
    # A profile's file, or that of the user's times, may have another name by now; `verify` has checked the times.
    both = {file.kind for file in provenance.costs_files or ()} & {file.kind for file in costs.files}
    renamed = (costs.origin == MEASURED).any() or TIMES in both
    if provenance.costs != costs.source and not renamed:
        wrong.append(f"the costs are the {costs.source}, the plan says {shown(provenance.costs)}")
    planned, own = (provenance.cluster, provenance.cluster_source), (cluster.name, cluster.source)
    presets = provenance.cluster_origin.kind == cluster.origin.kind == "preset"
    if presets and (planned != own or provenance.cluster_origin != cluster.origin):
        wrong.append(f"the cluster is {own[0]} ({own[1]}), the plan says {shown(planned[0])} ({shown(planned[1])})")
    if provenance.graph_batch != graph.batch and None not in (provenance.graph_batch, graph.batch):
        wrong.append(f"the batch is {graph.batch}, the plan says {provenance.graph_batch}")
    if provenance.candidates_ticks.keys() != provenance.candidates_fit.keys():
        wrong.append("the candidates that have times are not those that fit or do not")
    else:
        near = NEAR if provenance.settings.get("robust") is True else 0
        fitting = [
            (name, ticks) for name, ticks in provenance.candidates_ticks.items() if provenance.candidates_fit[name]
        ]
        better = [name for name, ticks in fitting if (1 + near) * ticks < plan.schedule.makespan]
        far = f" by more than {percent(near)}" if near else ""
        wrong += [f"candidate {shown(name)} fits and is shorter than the chosen one{far}" for name in better[:1]]
    if provenance.settings.get("per_edge", provenance.transfers == PER_EDGE) != (provenance.transfers == PER_EDGE):
        wrong.append(f"transfers are {provenance.transfers}, the settings say otherwise")
    if (coarse := provenance.coarse) is not None:
        if not 0 <= coarse.nodes <= len(plan.names):
            wrong.append(f"a coarse graph of {len(plan.names)} ops has no {coarse.nodes} nodes")
        if not 0 <= coarse.lower_bound_ticks <= (coarse.makespan_ticks or coarse.lower_bound_ticks):
            wrong.append("the bound of the coarse graph is above its schedule")
    return wrong
