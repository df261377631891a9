"""A verified plan with all that explains its step: the problem, the waits, the critical path, the scopes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pesto.choosing.whatif.grid import accelerators
from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.graph import Graph
from pesto.core.plans.plan import PER_EDGE, Plan, verify
from pesto.core.settings import Settings
from pesto.core.simulator import Timeline
from pesto.planning.solving.candidates import CandidateEvaluator
from pesto.planning.solving.flow import formulate
from pesto.reporting.explaining.name_scopes import name_scopes
from pesto.reporting.explaining.waits import COMPUTE_LEG, PathSegment, Waits, critical_path, explain_waits
from solvers.arrays import Ints, ints
from solvers.timing.loop import Prepared, order_of
from solvers.timing.replay import makespan

Price = Callable[[Cluster], Costs]
"""The costs of a graph on a cluster, also on one that is not the plan's."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExplainedStep:
    """Plan, problem, waits and critical path that every part of an explanation reads."""

    plan: Plan
    cluster: Cluster
    price: Price
    bench: CandidateEvaluator
    """Graph, problem and what they are measured with."""
    timeline: Timeline
    waits: Waits
    path: tuple[PathSegment, ...]
    """The critical path."""
    scope_of: Ints
    """[n] scope of each op, an index into `scopes`."""
    scopes: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan, graph: Graph, cluster: Cluster, price: Price) -> "ExplainedStep":
        """The step of a plan, which is verified first: errors as of `pesto.core.plans.plan.verify`."""
        per_edge = plan.provenance.transfers == PER_EDGE
        problem = formulate(graph, price(cluster), cluster, Settings(per_edge=per_edge), plan.pins)
        verify(plan, graph, problem, cluster)
        timeline = Timeline(problem=problem, schedule=plan.schedule)
        result = explain_waits(timeline, plan.rank)
        scope_of, scopes = name_scopes(graph.names, plan.schedule.finish - plan.schedule.start)
        return cls(
            plan=plan,
            cluster=cluster,
            price=price,
            bench=CandidateEvaluator.of(graph, problem, per_edge=per_edge),
            timeline=timeline,
            waits=result,
            path=critical_path(timeline, result),
            scope_of=scope_of,
            scopes=scopes,
        )

    @property
    def makespan(self) -> int:
        """Ticks of the step."""
        return self.timeline.schedule.makespan

    @property
    def took(self) -> Ints:
        """[n] ticks of each op where it is."""
        return ints(self.timeline.schedule.finish - self.timeline.schedule.start)

    @property
    def path_ops(self) -> Ints:
        """The ops of the critical path, from its begin."""
        return np.array([leg.op for leg in self.path if leg.kind == COMPUTE_LEG], dtype=np.int64)

    @property
    def accelerator_lanes(self) -> Ints:
        """The processors of the accelerators, or all where a cluster has none."""
        return ints(np.flatnonzero(np.isin(self.timeline.problem.location, accelerators(self.cluster))))

    def device_of(self, op: int) -> str:
        """Name of the cluster's device that an op is on."""
        return self.plan.lane_device[int(self.timeline.schedule.device[op])]

    def timed(self, prepared: Prepared) -> int:
        """Ticks of the same placement and order under other times."""
        return makespan(prepared, self.timeline.schedule.device, order_of(self.plan.rank))
