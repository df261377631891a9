"""What Python callers give as a value or as a file: plans, costs, and costs on a cluster."""

from pathlib import Path

from pesto.core.arguments import expect, expect_path
from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.costs.measured import Profile
from pesto.core.graph import Graph
from pesto.core.plans import plan_file
from pesto.core.plans.plan import Plan
from pesto.inputs.cluster_file import load_cluster
from pesto.inputs.load import load_costs

GRAPH = "what pesto.load_graph returns"


def as_plan(plan: Plan | str | Path, name: str = "plan") -> Plan:
    """The plan, or that of a file; errors as of `pesto.load_plan`."""
    expect(name, plan, Plan | str | Path, "the file of a plan, or what pesto.solve returns")
    return plan if isinstance(plan, Plan) else plan_file.load(expect_path(name, plan))


def as_cluster(cluster: str | Path | Cluster) -> Cluster:
    """The cluster, or that of a name or file; errors as of `pesto.load_cluster`."""
    expect("cluster", cluster, str | Path | Cluster, "a preset's name, a file, or a Cluster")
    return cluster if isinstance(cluster, Cluster) else load_cluster(str(cluster))


def as_costs(graph: Graph, cluster: Cluster, costs: str | Path | Profile | None) -> Costs:
    """Seconds of each op on each device, modelled where no profile and no file of one's own times is given."""
    expect("costs", costs, str | Path | Profile | None, "a file of times, or what pesto.profile returns")
    return load_costs(graph, cluster, Path(costs) if isinstance(costs, str) else costs)


def as_cluster_and_costs(
    graph: Graph, cluster: str | Path | Cluster, costs: str | Path | Profile | None
) -> tuple[Cluster, Costs]:
    """The cluster, and the seconds of each op on its devices."""
    expect("graph", graph, Graph, GRAPH)
    machine = as_cluster(cluster)
    return machine, as_costs(graph, machine, costs)
