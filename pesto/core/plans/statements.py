"""What a plan's file says beside its schedule: held against what is at hand, or passed on as the file's own word."""

from dataclasses import asdict
from typing import Any

from pesto.core.cluster import Cluster
from pesto.core.costs import MEASURED, Costs
from pesto.core.errors import VerificationError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.plan import PER_EDGE, Plan, claimant
from pesto.core.quantities import percent
from pesto.core.settings import NEAR
from pesto.core.source import PROFILE, TIMES

NOT_CHECKED = "stated by the file, not checked"
"""What a page says of a statement that nothing at hand confirms."""


def unconfirmed_statements(plan: Plan, graph: Graph, cluster: Cluster, costs: Costs) -> dict[str, Any]:
    """Statements of a verified plan that nothing confirms, by key of its provenance (docs/reference/plan-file.md).

    VerificationError for what the graph, the cluster, the costs or the plan itself contradict.
    """
    made = plan.provenance
    wrong = [*_of_inputs(plan, graph, cluster, costs), *_of_candidates(plan), *_of_solver(plan)]
    if wrong:
        raise VerificationError.build(f"the plan is invalid: claims: {'; '.join(wrong)}", remedy="solve again")
    at_hand = {
        "graph_source": graph.source, "graph_batch": graph.batch, "cluster": cluster.name,
        "cluster_source": cluster.source, "costs": costs.source,
    }  # fmt: skip
    left: dict[str, Any] = {key: getattr(made, key) for key, own in at_hand.items() if getattr(made, key) != own}
    if made.graph_origin != graph.origin:
        left["graph_origin"] = asdict(made.graph_origin)
    if made.cluster_origin != cluster.origin:
        left["cluster_origin"] = asdict(made.cluster_origin)
    if made.costs_files != costs.files:
        left["costs_files"] = [asdict(file) for file in made.costs_files or ()]
    if plan.feed_shapes != graph.feed_shapes:
        left["feed_shapes"] = list(plan.feed_shapes)
    others = [name for name in made.candidates_ticks if name != made.chosen]
    if others:
        left["candidates_ticks"] = {name: made.candidates_ticks[name] for name in others}
        left["candidates_fit"] = {name: made.candidates_fit[name] for name in others}
    if claimant(made.lower_bound_name):
        left["lower_bound_ticks"] = made.lower_bound_ticks
    if made.coarse is not None:
        left["coarse"] = asdict(made.coarse)
    return {**left, "rule": made.rule, "settings": made.settings, "pesto_version": made.pesto_version}


def needed_costs(plan: Plan) -> str:
    """The costs that a plan rests on and that have to be given to check it, with the remedy; empty where none have."""
    made = plan.provenance
    for file in made.costs_files or ():
        if file.kind == TIMES:
            return f"times of {shown(file.name)} (sha256 {shown(file.digest)}) - give that file"
        if file.kind == PROFILE:
            return "measured costs - give the profile"
    return ""


def _of_inputs(plan: Plan, graph: Graph, cluster: Cluster, costs: Costs) -> list[str]:
    made, wrong = plan.provenance, []
    if made.costs_basis != costs.basis:
        wrong.append(f"the costs are {costs.basis}, the plan says {shown(made.costs_basis)}")
    # A profile's file, or that of one's own times, may have another name by now; `verify` has held the times.
    both = {file.kind for file in made.costs_files or ()} & {file.kind for file in costs.files}
    renamed = (costs.origin == MEASURED).any() or TIMES in both
    if made.costs != costs.source and not renamed:
        wrong.append(f"the costs are the {costs.source}, the plan says {shown(made.costs)}")
    said, own = (made.cluster, made.cluster_source), (cluster.name, cluster.source)
    presets = made.cluster_origin.kind == cluster.origin.kind == "preset"
    if presets and (said != own or made.cluster_origin != cluster.origin):
        wrong.append(f"the cluster is {own[0]} ({own[1]}), the plan says {shown(said[0])} ({shown(said[1])})")
    if made.graph_batch != graph.batch and None not in (made.graph_batch, graph.batch):
        wrong.append(f"the batch is {graph.batch}, the plan says {made.graph_batch}")
    return wrong


def _of_candidates(plan: Plan) -> list[str]:
    made, makespan = plan.provenance, plan.schedule.makespan
    if made.candidates_ticks.keys() != made.candidates_fit.keys():
        return ["the candidates that have times are not those that fit or do not"]
    near = NEAR if made.settings.get("robust") is True else 0
    fitting = [(name, ticks) for name, ticks in made.candidates_ticks.items() if made.candidates_fit[name]]
    better = [name for name, ticks in fitting if (1 + near) * ticks < makespan]
    far = f" by more than {percent(near)}" if near else ""
    return [f"candidate {shown(name)} fits and is shorter than the chosen one{far}" for name in better[:1]]


def _of_solver(plan: Plan) -> list[str]:
    made, coarse = plan.provenance, plan.provenance.coarse
    wrong = []
    if made.settings.get("per_edge", made.transfers == PER_EDGE) != (made.transfers == PER_EDGE):
        wrong.append(f"transfers are {made.transfers}, the settings say otherwise")
    if coarse is not None and not 0 <= coarse.nodes <= len(plan.names):
        wrong.append(f"a coarse graph of {len(plan.names)} ops has no {coarse.nodes} nodes")
    if coarse is not None and not 0 <= coarse.lower_bound_ticks <= (coarse.makespan_ticks or coarse.lower_bound_ticks):
        wrong.append("the bound of the coarse graph is above its schedule")
    return wrong
