"""The bridge out: a checked placement and order of every op, with where it comes from."""

from dataclasses import dataclass

import numpy as np

from pesto.errors import MismatchError, VerificationError
from pesto.graph import Graph
from pesto.memory import measure
from pesto.simulate import Timeline
from solvers.arrays import Ints
from solvers.check import check
from solvers.problem import Problem
from solvers.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Coarse:
    """What the exact solver did on the coarse graph; its bound holds there, not for the full graph."""

    nodes: int
    reason: str
    """Why coarsening stopped."""
    solver: str
    version: str
    status: str
    limit: str
    makespan_ticks: int | None
    lower_bound_ticks: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a plan comes from and what it claims; nothing of the wall clock."""

    graph_fingerprint: str
    graph_source: str
    cluster: str
    cluster_source: str
    costs: str
    costs_basis: str
    """measured, modelled or mixed."""
    chosen: str
    """Name of the candidate that the plan is."""
    rule: str
    """One line on how that candidate was made."""
    candidates_ticks: dict[str, int]
    candidates_fit: dict[str, bool]
    """Whether the candidate's peak bytes fit every device."""
    lower_bound_ticks: int
    """Of the full graph."""
    lower_bound_name: str
    links: str
    """Policy of the links that the prediction assumes."""
    transfers: str
    """'once per device' as TensorFlow sends, or 'per edge' as the paper counts."""
    coarse: Coarse | None
    settings: dict[str, float | int | str | bool]
    pesto_version: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Where and in which order every op of one graph runs, and the step that the simulator predicts (modelled)."""

    names: tuple[str, ...]
    """[n] op names of the graph that was planned."""
    lanes: tuple[str, ...]
    """[m] names of the processors that `schedule.device` counts."""
    lane_device: tuple[str, ...]
    """[m] device of the cluster that each processor belongs to."""
    rank: Ints
    """[n] position of each op in the one order that all devices follow."""
    schedule: Schedule
    """Predicted times in ticks."""
    tick_s: float
    peak_bytes: dict[str, int]
    """Most bytes alive on each device of the cluster."""
    provenance: Provenance

    @property
    def makespan_s(self) -> float:
        """Predicted seconds of the step."""
        return self.schedule.makespan * self.tick_s

    @property
    def gap(self) -> float:
        """(makespan - lower bound of the full graph) / makespan."""
        made = self.schedule.makespan
        return (made - self.provenance.lower_bound_ticks) / made if made else 0.0

    @property
    def status(self) -> str:
        """'optimal' when the bound of the full graph is reached, else 'feasible'."""
        return "optimal" if self.schedule.makespan == self.provenance.lower_bound_ticks else "feasible"

    def device_names(self) -> list[str]:
        """[n] name of the cluster's device of each op."""
        return [self.lane_device[d] for d in self.schedule.device.tolist()]


def verify(plan: Plan, graph: Graph, problem: Problem) -> None:
    """The one gate that every plan passes on its way out or in.

    MismatchError when the plan is for another graph, VerificationError with the checker's findings when the
    schedule is invalid for `problem` or contradicts the plan's own order, or claims less than its bound.
    """
    found = graph.fingerprint()
    if plan.provenance.graph_fingerprint != found:
        raise MismatchError(
            f"the plan is for graph {plan.provenance.graph_fingerprint[:12]} ({plan.provenance.graph_source}), this is "
            f"{found[:12]} ({graph.source}) - solve this graph, or give the plan's own"
        )
    problems = [f"{v.kind}: {v.text}" for v in check(problem, plan.schedule)]
    problems += [] if problems else _order(plan) + _peaks(plan, graph, problem)
    if plan.schedule.makespan < plan.provenance.lower_bound_ticks:
        problems.append("the makespan is below the claimed lower bound")
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise VerificationError(f"the plan is invalid: {'; '.join(problems[:3])}{more} - solve again")


def _peaks(plan: Plan, graph: Graph, problem: Problem) -> list[str]:
    """The bytes alive over the step must be what the plan says, and fit every location."""
    peak = measure(graph, Timeline(problem=problem, schedule=plan.schedule)).peak.tolist()
    names = list(dict.fromkeys(plan.lane_device))
    if plan.peak_bytes != dict(zip(names, peak, strict=True)):
        return [f"memory: the peaks are {peak} bytes, the plan says {plan.peak_bytes}"]
    return [
        f"memory: {name} needs {has} of {most} bytes"
        for name, has, most in zip(names, peak, problem.capacity.tolist(), strict=True)
        if has > most
    ]


def _order(plan: Plan) -> list[str]:
    """The ranks must be a permutation and each device must run its ops in their order."""
    s = plan.schedule
    if not np.array_equal(np.sort(plan.rank), np.arange(len(plan.rank))):
        return ["order: the ranks are not 0..n-1, each once"]
    sequence = np.lexsort((plan.rank, s.device))
    same = s.device[sequence][1:] == s.device[sequence][:-1]
    bad = np.flatnonzero(same & (s.start[sequence][1:] < s.finish[sequence][:-1]))
    if len(bad):
        a, b = sequence[bad[0]], sequence[bad[0] + 1]
        return [f"order: op {plan.names[b]} starts before {plan.names[a]}, which precedes it on its device, ends"]
    return []


def control_edges(plan: Plan, graph: Graph) -> list[tuple[int, int]]:
    """(before, after) pairs that chain each device's ops; pairs that an edge of the graph joins are left out."""
    device = plan.schedule.device
    sequence = np.lexsort((plan.rank, device))
    same = device[sequence][1:] == device[sequence][:-1]
    before, after = sequence[:-1][same], sequence[1:][same]
    known = np.unique(graph.edge_src * graph.ops + graph.edge_dst)
    fresh = ~np.isin(before * graph.ops + after, known)
    return list(zip(before[fresh].tolist(), after[fresh].tolist(), strict=True))
