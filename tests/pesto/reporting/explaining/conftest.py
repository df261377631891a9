"""Plans of small steps with each op where a test wants it."""

from dataclasses import replace

import numpy as np
import pytest

from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.settings import Settings
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.tracker import SolveRecord, make_plan
from pesto.reporting.explaining.explanation import Explanation, explain_plan
from solvers.arrays import ints
from solvers.bounds import quick_bounds
from solvers.bounds.evidence import FullBound


class Made:
    """A plan of a small step with each op where it is said to be, verified on its way into an explanation."""

    def __init__(self, graph: Graph, cluster, price, places: dict[str, str]) -> None:
        self.graph, self.cluster, self.price = graph, cluster, price
        self.problem = formulate(graph, price(cluster), cluster, Settings())
        self.bench = CandidateEvaluator.of(graph, self.problem)
        names = [d.name for d in cluster.devices]
        device = ints([names.index(places.get(name, "gpu:0")) for name in graph.names])
        run = self.bench.placed("list", "by hand", device)
        record = SolveRecord(
            graph=graph, cluster=cluster, costs=price(cluster), settings=Settings(),
            bound=FullBound(*quick_bounds.best(self.problem))
        )  # fmt: skip
        self.plan: Plan = make_plan(record, run, {"list": run})

    def explain(self, op: str | None = None) -> Explanation:
        return explain_plan(self.plan, self.graph, self.cluster, self.price, op=op)


@pytest.fixture
def made(make_graph, make_cluster, make_costs):
    """Ops, and places of those that are not on gpu:0, to a plan; `small` has 500 bytes, `branch` is an If."""

    def of(ops, *, places=None, small=None, branch=None, **cluster) -> Made:
        graph, machine = make_graph(ops), make_cluster(**cluster)
        if branch is not None:
            types = np.array([name == branch for name in graph.names])
            graph = replace(graph, types=("Op", "If"), type_of=types)
        ends = [link.split(">") for link in machine.links]
        named = tuple(f"{machine.devices[int(a)].name}>{machine.devices[int(b)].name}" for a, b in ends)
        devices = [replace(d, memory_bytes=500) if d.name == small else d for d in machine.devices]
        machine = replace(machine, links=named, devices=tuple(devices))
        return Made(graph, machine, lambda at: make_costs(graph, at), places or {})

    return of
