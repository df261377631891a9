"""Plans explained from Python: what a program or a notebook names, and what a plan itself knows of its step."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pesto.core.cluster import Cluster
from pesto.core.costs.measured import Profile
from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.option import expect
from pesto.core.plans.plan import PER_EDGE, Plan
from pesto.core.plans.statements import needed_costs
from pesto.core.problem import TICK_S
from pesto.core.settings import Settings
from pesto.core.simulator import Timeline
from pesto.inputs.load import as_cluster_and_costs, as_costs, as_plan, load_graph, plan_cluster
from pesto.planning.solving.flow import formulate
from pesto.reporting.explaining import explanation
from pesto.reporting.explaining.explanation import Explanation
from pesto.reporting.explaining.path_sums import CAUSES
from pesto.reporting.explaining.waits import explain_waits


def explain(
    plan: Plan | str | Path,
    graph: Graph,
    *,
    cluster: str | Path | Cluster | None = None,
    costs: str | Path | Profile | None = None,
    op: str | None = None,
) -> Explanation:
    """Why a plan's step takes as long as it does: its path, what holds everybody up, what would help, what is tied.

    The plan is verified first; cluster and costs as in `check`. op: the name of an op, of which it is told as well why
    it is where it is, and what moving it would cost (docs/guides/explain.md).

    UsageError when the plan has no such op, with the nearest names; what `check` raises.
    """
    result = as_plan(plan)
    expect("op", op, str | None, "the name of an op")
    machine, _ = as_cluster_and_costs(graph, plan_cluster(result) if cluster is None else cluster, costs)
    if costs is None and (wanted := needed_costs(result)):
        raise UsageError(f"the plan rests on {wanted} as costs")
    return explanation.explain(result, graph, machine, lambda at: as_costs(graph, at, costs), op=op)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExplainContext:
    """Graph, cluster and costs of a plan, for its methods; None where unknown."""

    graph: Graph | None = None
    cluster: Cluster | None = None
    costs: str | Path | Profile | None = None

    def explain(self, plan: Plan, op: str | None) -> Explanation:
        """`explain`; a plan of a built-in model finds its graph by name. UsageError where the graph is not known."""
        graph = self.graph
        if graph is None:
            named = plan.provenance.graph_origin.model
            if named is None:
                made = shown(plan.provenance.graph_source)
                raise UsageError.build(
                    f"the plan does not hold its graph, {made}", remedy="call pesto.explain(plan, graph)"
                )
            graph = load_graph(named)
        return explain(plan, graph, cluster=self.cluster, costs=self.costs, op=op)

    def columns(self, plan: Plan) -> dict[str, list[Any]]:
        """[n] type, slack in seconds and cause of each op; nothing where the graph is not known."""
        if self.graph is None:
            return {}
        graph = self.graph
        machine, costs = as_cluster_and_costs(
            graph, plan_cluster(plan) if self.cluster is None else self.cluster, self.costs
        )
        settings = Settings(per_edge=plan.provenance.transfers == PER_EDGE)
        timeline = Timeline(problem=formulate(graph, costs, machine, settings), schedule=plan.schedule)
        result = explain_waits(timeline, plan.rank)
        return {
            "type": [graph.types[k] for k in graph.type_of.tolist()],
            "slack_s": (result.slack * TICK_S).tolist(),
            "waited_for": [CAUSES[k] for k in result.cause.tolist()],
        }
