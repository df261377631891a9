"""A plan that is verified: what of it is confirmed, for people and as JSON, and as one plan of a report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pesto.core.graph import Graph
from pesto.core.plans.order_worth import order_worth
from pesto.core.plans.plan import PER_EDGE, Plan, recomputed
from pesto.core.plans.solver_claim import claimant
from pesto.core.plans.statements import NOT_CHECKED
from pesto.core.plans.ways import Enforced, as_meant
from pesto.core.quantities import counted, duration, percent
from pesto.core.settings import Settings
from pesto.core.simulator import Timeline
from pesto.inputs.given import on_cluster
from pesto.inputs.load import load_cluster, load_costs, plan_cluster
from pesto.planning.solving.flow import formulate
from pesto.reporting.show.facts.enforced_step import enforced_keys, enforced_line
from pesto.reporting.show.lines import paragraph
from pesto.reporting.show.report.plan_facts import ReportedPlan
from pesto.verbs.api import check
from solvers import Problem, relative_gap


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckedPlan:
    """A plan that `pesto.check` has verified on its graph."""

    plan: Plan
    graph: Graph
    problem: Problem
    """The step that it was checked against."""
    left: dict[str, Any]
    """What it states and nothing at hand confirms."""

    @classmethod
    def of(
        cls, plan: Plan, graph: Graph, left: dict[str, Any], cluster: str | None, costs: Path | None
    ) -> "CheckedPlan":
        """The plan with its step; `left` is what `pesto.check` returned."""
        return cls(plan=plan, graph=graph, problem=_problem(plan, graph, cluster, costs), left=left)

    def as_object(self, called: Path, *, certificate: bool) -> dict[str, Any]:
        """The keys of `pesto check --json`; with a certificate those of the bound, too."""
        plan = self.plan
        said = {"valid": True, "makespan_s": plan.makespan_s, "ops": self.graph.ops, "plan": str(called)}
        said |= enforced_keys(self._meant())
        return {**said, **_certificate(plan, self.problem), "not_checked": self.left} if certificate else said

    def page(self, called: Path, *, certificate: bool) -> str:
        """What `pesto check` prints."""
        ops, meant = counted(self.graph.ops, "op"), self._meant()
        lines = [paragraph(f"{called}: valid; {ops}, {duration(self.plan.makespan_s)} predicted", 2)]
        lines += [enforced_line(meant)] if meant is not None else []
        if certificate:
            lines.append(paragraph(f"{called}: {_bound_line(self.plan, self.problem)}", 2))
            lines.append(paragraph(f"{called}: {NOT_CHECKED}: {', '.join(self.left)}", 2))
        return "\n".join(lines)

    def _meant(self) -> Enforced | None:
        """What the step takes in the way in which it is meant to be run."""
        return _as_meant(self.plan, self.graph, self.problem)


def _problem(plan: Plan, graph: Graph, cluster: str | None, costs: Path | None) -> Problem:
    """The full-graph problem that the plan is checked against."""
    machine = load_cluster(cluster or plan_cluster(plan))
    settings = Settings(per_edge=plan.provenance.transfers == PER_EDGE)
    return formulate(graph, load_costs(graph, machine, costs), machine, settings, plan.pins)


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


def reported(label: str, plan: Plan, graph: Graph, cluster: str | None, costs: Path | None) -> ReportedPlan:
    """A plan of a file, verified, with its step in ticks."""
    check(plan, graph, cluster=cluster, costs=costs)
    machine, _ = on_cluster(graph, cluster or plan_cluster(plan), costs)
    problem = _problem(plan, graph, cluster, costs)
    worth = order_worth(problem, plan.schedule.device, plan.rank)
    return ReportedPlan(label=label, plan=plan, cluster=machine, problem=problem, order=worth)
