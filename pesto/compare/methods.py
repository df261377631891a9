"""The table of methods that are compared: this project's own, the literature's, and what people do by hand."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pesto.baselines.default import framework_default
from pesto.baselines.expert import expert
from pesto.baselines.layers import layer_balanced
from pesto.baselines.places import accelerators
from pesto.baselines.scopes import Placement
from pesto.candidates import Bench
from pesto.cluster import Cluster
from pesto.costs import Costs
from pesto.flow import solve
from pesto.settings import Settings
from solvers import api
from solvers.arrays import Ints
from solvers.heuristics.lanes import devices_at
from solvers.heuristics.placement import PLACERS
from solvers.problem import Problem
from solvers.result import Limit, Options


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """What a method may look at."""

    bench: Bench
    cluster: Cluster
    costs: Costs
    planning: Problem
    """The full graph with what is alive at one device's peak charged to the ops that made it: memory-aware planning."""
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposal:
    """A method's answer."""

    device: Ints
    """[n]"""
    rank: Ints | None
    """[n] its own order; None leaves the order to list scheduling by bottom level."""
    rule: str


class NoProposalError(Exception):
    """The method has no answer: one line, why."""


Propose = Callable[[Case], Proposal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One row of the table."""

    source: str
    """Where the method is described."""
    propose: Propose
    memory: bool = False
    """Whether its source respects a device's memory: then its plans are repaired where they do not fit."""


def _by_scope(rule: Callable[..., Placement]) -> Propose:
    """A placement that reads the graph."""

    def propose(case: Case) -> Proposal:
        found = rule(case.bench.graph, case.bench.problem, case.cluster)
        return Proposal(device=found.device, rank=None, rule=found.rule)

    return propose


def _solver(name: str, *, memory: bool) -> Propose:
    """A solver of the full problem, which knows memory as far as its source does."""

    def propose(case: Case) -> Proposal:
        problem = case.planning if memory else replace(case.planning, memory=np.zeros_like(case.planning.memory))
        result = api.solve(problem, name, Options(seconds=case.settings.time_limit_s, seed=case.settings.seed))
        if result.limit is Limit.INTERRUPT:
            raise KeyboardInterrupt
        if result.schedule is None:
            raise NoProposalError(f"{result.status}: {result.detail}")
        rank = case.bench.order_of(result.schedule)
        return Proposal(device=result.schedule.device, rank=rank, rule=f"{result.solver} on the full graph")

    return propose


def _single(case: Case) -> Proposal:
    """The one device on which everything ends first."""
    problem, found = case.bench.problem, []
    for location in accelerators(problem, case.cluster):
        device = devices_at(problem, np.full(problem.tasks, location))
        found.append((int(problem.duration[np.arange(problem.tasks), device].sum()), location, device))
    _, location, device = min(found, key=lambda each: each[:2])
    return Proposal(device=device, rank=None, rule=f"everything on {case.cluster.devices[location].name}")


def _pesto(case: Case) -> Proposal:
    """Everything that this project does for a plan."""
    outcome = solve(case.bench.graph, case.cluster, case.costs, case.settings, lambda _: None)
    if outcome.interrupted:
        raise KeyboardInterrupt
    plan = outcome.plan
    return Proposal(device=plan.schedule.device, rank=plan.rank, rule=plan.provenance.rule)


METHODS: dict[str, Method] = {
    "single": Method(source="one device, the lower end of every comparison", propose=_single),
    "framework-default": Method(source="TensorFlow's own placement", propose=_by_scope(framework_default)),
    "layer-balanced": Method(source="contiguous layers of balanced times", propose=_by_scope(layer_balanced)),
    "expert": Method(source="Pesto (Middleware 2021), section 5.2", propose=_by_scope(expert)),
    **{
        name: Method(source=row.source, propose=_solver(name, memory=row.memory), memory=row.memory or row.repair)
        for name, row in PLACERS.items()
    },
    "list": Method(source="this project's list scheduler", propose=_solver("list", memory=True), memory=True),
    "pesto": Method(source="pesto solve: the best of all its candidates", propose=_pesto, memory=True),
}
"""A method of the literature has its row in `solvers.heuristics.placement`; one that reads the graph has it here."""
