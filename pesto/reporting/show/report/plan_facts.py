"""Facts of a plan that a page shows beside its columns: the step, devices, candidates, provenance."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.plans.orders import OrderWorth
from pesto.core.plans.plan import Plan
from pesto.core.quantities import duration
from pesto.core.simulator import Timeline
from pesto.planning.solving.flow import SolveOutcome
from pesto.reporting.explaining.waits import KINDS, Waits, critical_path
from pesto.reporting.show.facts.enforced_step import enforced_line
from pesto.reporting.show.facts.idle_devices import idle_devices
from pesto.reporting.show.facts.open_batch import open_batch
from pesto.reporting.show.facts.trust_lines import trust_line
from pesto.reporting.show.lines import LABEL
from pesto.reporting.show.solve_glossary import WORDS
from solvers import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportedPlan:
    """A verified plan, with what its page shows beside it."""

    label: str
    """Label of the plan on the page: its file's name."""
    plan: Plan
    cluster: Cluster
    """Where it runs."""
    problem: Problem
    """The step in ticks, which it was verified on."""
    order: OrderWorth
    """Gain of enforcing the plan's order."""
    stages_s: dict[str, float] = field(default_factory=dict)
    """Seconds of each stage of its solve, by its name; empty where nothing says."""
    cpu_s: float | None = None
    """CPU seconds of its solve with all its processes; None where nothing says."""
    notes: Sequence[tuple[str, str]] = ()
    """Further facts, each with its label."""

    @property
    def timeline(self) -> Timeline:
        """The step as it was planned."""
        return Timeline(problem=self.problem, schedule=self.plan.schedule)


def describe_plan(shown: ReportedPlan, waits: Waits) -> dict[str, Any]:
    """The JSON object of one plan; times in ticks, bytes of bytes."""
    plan, timeline = shown.plan, shown.timeline
    made = plan.provenance
    legs = critical_path(timeline, waits)
    return {
        "label": shown.label,
        "cluster": made.cluster,
        "basis": made.costs_basis.partition(":")[0],
        "tick_s": plan.tick_s,
        "step": plan.schedule.makespan,
        "batch": made.graph_batch,
        "idle": idle_devices(plan),
        "status": plan.status,
        "chosen": made.chosen,
        "rule": made.rule,
        "bound": made.lower_bound_ticks,
        "bound_by": made.lower_bound_name,
        "bound_rests_on": _evidence(plan),
        "order_enforced": not plan.placement_only,
        "orders": {"fifo": shown.order.fifo, "listed": shown.order.listed, "scheduled": shown.order.scheduled},
        "candidates": _candidates(plan),
        **_machine(shown, timeline),
        "path": {kind: sum(leg.end - leg.begin for leg in legs if leg.kind == kind) for kind in KINDS},
        "path_ends": legs[-1].op if legs else -1,
        "made": _made(shown),
        "settings": sorted([name, str(value)] for name, value in made.settings.items()),
        "stages_s": list(shown.stages_s.items()),
        "cpu_s": shown.cpu_s,
    }


def _machine(shown: ReportedPlan, timeline: Timeline) -> dict[str, Any]:
    """Processors, devices and links, with the ticks that each is busy."""
    p, s, cluster = timeline.problem, timeline.schedule, shown.cluster
    busy = np.bincount(s.device, weights=s.finish - s.start, minlength=p.devices)
    routes = [[[k for k in p.holds[a, b].tolist() if k >= 0] for b in range(p.locations)] for a in range(p.locations)]
    used = np.unique(p.path_links[p.path_links >= 0]).tolist()
    return {
        "lanes": [
            {"name": name, "device": int(d), "busy": ticks}
            for name, d, ticks in zip(shown.plan.lanes, p.location, busy.tolist(), strict=True)
        ],
        "devices": [
            {
                "name": device.name,
                "kind": device.kind,
                "preset": device.preset,
                "capacity": int(most),
                "peak": shown.plan.peak_bytes[device.name],
            }
            for device, most in zip(cluster.devices, p.capacity, strict=True)
        ],
        "links": [cluster.links[k] for k in used],
        "routes": routes,
    }


def _candidates(plan: Plan) -> list[dict[str, Any]]:
    """Every candidate with what its name means."""
    made = plan.provenance
    words = {name: text for names, text in WORDS for name in names}
    return [
        {"name": name, "ticks": ticks, "fits": made.candidates_fit.get(name, False), "words": words.get(name, "")}
        for name, ticks in made.candidates_ticks.items()
    ]


def _evidence(plan: Plan) -> str:
    evidence = plan.provenance.lower_bound_evidence
    return "" if evidence is None else f"{len(evidence.claims)} claims on {len(evidence.anchors)} anchors, checked"


def _made(shown: ReportedPlan) -> list[tuple[str, str]]:
    """Where the plan comes from, as label and text."""
    made = shown.plan.provenance
    rows = [
        ("graph", made.graph_source),
        ("fingerprint", made.graph_fingerprint),
        ("batch", open_batch(shown.plan)),
        ("cluster", f"{made.cluster} ({made.cluster_source})"),
        ("costs", f"{made.costs_basis}: {made.costs}"),
        ("chosen", f"{made.chosen}: {made.rule}"),
        ("links", made.links),
        ("transfers", made.transfers),
        ("coarse graph", _coarse(shown.plan)),
        ("written by", f"pesto {made.pesto_version}"),
        *shown.notes,
    ]
    return [(label, text) for label, text in rows if text]


def _coarse(plan: Plan) -> str:
    c = plan.provenance.coarse
    if c is None:
        return ""
    step = "no schedule" if c.makespan_ticks is None else duration(c.makespan_ticks * plan.tick_s)
    bound = duration(c.lower_bound_ticks * plan.tick_s)
    return f"{c.nodes} nodes; {c.solver} {c.version}: {c.status}, {step}, bound {bound} of the coarse graph alone"


def report_solve(outcome: SolveOutcome, cluster: Cluster, label: str, stages_s: dict[str, float]) -> ReportedPlan:
    """The plan of a solve, with what its file does not keep: seconds, trust, ties."""
    notes = [trust_line(outcome.trust)] if outcome.trust else []
    notes += [enforced_line(outcome.enforced, outcome.remedy)] if outcome.enforced else []
    return ReportedPlan(
        label=label,
        plan=outcome.plan,
        cluster=cluster,
        problem=outcome.problem,
        order=outcome.order,
        stages_s=stages_s,
        cpu_s=sum(os.times()[:4]),
        notes=[*map(_unbroken, notes), *(("tie", str(tie)) for tie in outcome.ties)],
    )


def _unbroken(fact: str) -> tuple[str, str]:
    """Label and text of a line of a page for terminals."""
    label, text = fact[:LABEL], fact[LABEL:]
    return label.strip(), " ".join(text.split())
