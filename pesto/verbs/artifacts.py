"""Plans, splits and patterns as one noun, an artifact: read, saved, verified and described by the same functions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from pesto.choosing.whatif.rerun import Simulation, rerun
from pesto.core.cluster import Cluster
from pesto.core.costs.measured import Profile
from pesto.core.errors import InputError
from pesto.core.files.disk import gzipped, read_bytes, write_atomic
from pesto.core.files.json import format_of
from pesto.core.files.solver_files import read_pattern, save_pattern
from pesto.core.graph import Graph
from pesto.core.plans import plan_file
from pesto.core.plans.execution_modes import ModePrediction, order_worth, predict_intended_mode
from pesto.core.plans.plan import PER_EDGE, Plan, claimant, recompute_bound
from pesto.core.plans.plan import verify as verify_plan
from pesto.core.plans.statements import NOT_CHECKED, missing_costs, unconfirmed_statements
from pesto.core.quantities import duration, percent, plural, size
from pesto.core.settings import Settings
from pesto.core.simulator import Timeline
from pesto.core.source import Source
from pesto.inputs.load import load_graph, load_shapes, plan_cluster, plan_inputs, plan_source, split_source
from pesto.pipelining import pattern_certificate
from pesto.pipelining.pipeline import AT_ONCE
from pesto.planning.solving.candidates import formulate
from pesto.reporting.explaining import explanation
from pesto.reporting.show.facts import PATTERN, PLAN, SPLIT, artifact_keys, enforced_keys, enforced_line, plan_keys
from pesto.reporting.show.html_report import ReportedPlan, html_report
from pesto.reporting.show.lines import paragraph
from pesto.reporting.show.pipeline_page import bound_object, bound_text, period_object, ticks_text
from pesto.reporting.show.split_page import least_known
from pesto.split.files import split_check
from pesto.split.files.split_file import KIND as SPLIT_KIND
from pesto.split.files.split_file import SplitFile, dumps_split_file, loads_split
from pesto.split.typed_graph import TypedGraph
from solvers import Problem, relative_gap
from solvers.pipelining.pattern_json import KIND as PATTERN_KIND
from solvers.pipelining.pattern_json import PatternInstance

Artifact = Plan | SplitFile | PatternInstance
"""A result that `pesto solve`, `pesto split` or `pesto pipeline` writes."""
BOUND_SECONDS = 600.0
"""Seconds for finding all bounds of a split once more."""
UNUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    PLAN: ("", ()),
    SPLIT: ("a split is of no cluster and of no costs", ("cluster", "costs")),
    PATTERN: ("a pattern has its chain and devices within it", ("source", "cluster", "costs")),
}
"""Kind -> fields of `GivenStep` that say nothing of such an artifact, after the reason."""
_FOR_PATTERNS = "pesto pipeline writes what each rank does as it makes the pattern"
_INSTEAD = {
    SPLIT: {
        "simulate": "pesto split predicts its step as it makes the split, where a cluster is named",
        "report": "pesto check describes a split",
        "explain": "pesto split explains one op as it makes the split",
        "diff": "give two plans, or see pesto check of both splits",
        "trace": "pesto run times the step of a split",
        "draw": "pesto split draws its variables as it makes the split",
    },
    PATTERN: {
        "simulate": "pesto check says its period",
        "report": "pesto pipeline draws it as it makes the pattern",
        "explain": "pesto check says its period and what bounds it",
        "diff": "give two plans, or see pesto check of both patterns",
        "trace": _FOR_PATTERNS,
        "draw": "pesto pipeline draws it as it makes the pattern",
        "apply": _FOR_PATTERNS,
        "run": _FOR_PATTERNS,
    },
}
"""Kind -> verb that does not take it -> what does the like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenStep:
    """Inputs that a user names beside an artifact, each by default the one that the artifact names."""

    source: Source = Source()  # noqa: RUF009 - frozen
    cluster: str | None = None
    """Preset or file."""
    costs: Path | None = None
    """File of measured times or of one's own."""
    read_graph: Callable[[Source], Graph] = load_graph
    """Reads the graph of a plan."""
    read_shapes: Callable[[Source], TypedGraph] = load_shapes
    """Reads the step of a split."""

    def graph_of(self, plan: Plan) -> Graph:
        """Return the graph of a plan; UsageError where neither the user nor the plan names it."""
        return self.read_graph(plan_source(plan, self.source))


def kind_of(artifact: Artifact) -> str:
    """Return "plan", "split" or "pattern"."""
    match artifact:
        case Plan():
            return PLAN
        case SplitFile():
            return SPLIT
    return PATTERN


def load_artifact(path: Path, called: str | None = None) -> Artifact:
    """Read a plan, a split or a pattern; `called` names it in errors, by default its path.

    FileError when the file cannot be read, InputError when its content is none of them. Nothing is verified.
    """
    data, called = read_bytes(path), called or str(path)
    found = format_of(data, called)
    if found == SPLIT_KIND.format:
        return loads_split(data, called)
    if found == PATTERN_KIND.format:
        return read_pattern(data, called)
    return plan_file.loads(data, called)


def load_plan(path: Path, verb: str, called: str | None = None) -> Plan:
    """Read a plan for a verb that takes no other artifact; InputError for one, with what to do instead."""
    artifact = load_artifact(path, called)
    if isinstance(artifact, Plan):
        return artifact
    raise refusal(artifact, verb, called or str(path), "a plan")


def refusal(artifact: Artifact, verb: str, called: str, takes: str) -> InputError:
    """Return the error of a verb that takes no artifact of this kind."""
    kind = kind_of(artifact)
    return InputError.build(
        f"it is a {kind}, and pesto {verb} takes {takes}", where=called, remedy=_INSTEAD[kind][verb]
    )


def save(artifact: Artifact, path: Path) -> None:
    """Write an artifact whole or not at all; gzipped where it is no plan and the name ends in .gz."""
    match artifact:
        case Plan():
            plan_file.save(artifact, path)
        case SplitFile():
            data = dumps_split_file(artifact)
            write_atomic(path, gzipped(data) if path.suffix == ".gz" else data)
        case _:
            save_pattern(artifact, path)


def as_object(artifact: Artifact) -> dict[str, Any]:
    """Return the keys that the JSON of all artifacts begins with."""
    match artifact:
        case Plan():
            return plan_keys(artifact)
        case SplitFile():
            return artifact_keys(SPLIT)
    peaks = {str(device): peak for device, peak in enumerate(artifact.peaks.tolist())}
    return artifact_keys(PATTERN, fits=True, peak_bytes=peaks)


def verify(artifact: Artifact, given: GivenStep, called: str, *, certificate: bool = False) -> "Checked":
    """Verify an artifact on its step, and with `certificate` its bounds; return what is confirmed.

    MismatchError when it is of another step, VerificationError when it is invalid, UsageError when step, cluster or
    costs have to be given.
    """
    match artifact:
        case Plan():
            checked = check_plan(artifact, given.graph_of(artifact), cluster=given.cluster, costs=given.costs)
            return replace(checked, called=called, certificate=certificate)
        case SplitFile():
            shaped = given.read_shapes(split_source(artifact, given.source))
            split_check.verify_split(artifact, shaped)
            bounds = split_check.certify_bounds(artifact, shaped, seconds=BOUND_SECONDS) if certificate else None
            return CheckedSplit(split=artifact, shaped=shaped, certificate=certificate, bounds=bounds)
    pattern_certificate.verify_pattern(artifact, called)
    known = pattern_certificate.certify_pattern(artifact) if certificate else None
    return CheckedPattern(pattern=artifact, called=called, known=known)


def check_plan(
    plan: Plan, graph: Graph, *, cluster: str | Path | Cluster | None, costs: str | Path | Profile | None
) -> "CheckedPlan":
    """Verify a plan on its graph; errors as of `pesto.check`."""
    machine, op_costs = plan_inputs(plan, graph, cluster, costs)
    if costs is None and (missing := missing_costs(plan)) is not None:
        raise missing
    settings = Settings(per_edge=plan.provenance.transfers == PER_EDGE)
    problem = formulate(graph, op_costs, machine, settings, plan.pins)
    verify_plan(plan, graph, problem, machine)
    left = unconfirmed_statements(plan, graph, machine, op_costs)
    return CheckedPlan(plan=plan, graph=graph, cluster=machine, problem=problem, left=left)


def simulate(plan: Plan, given: GivenStep) -> tuple[Graph, Simulation]:
    """Return the graph of a plan and its step as the simulator predicts it, on another cluster where one is given."""
    graph = given.graph_of(plan)
    return graph, simulate_plan(plan, graph, cluster=given.cluster, costs=given.costs)


def simulate_plan(
    plan: Plan, graph: Graph, *, cluster: str | Path | Cluster | None, costs: str | Path | Profile | None
) -> Simulation:
    """Return the step of a plan on its graph as the simulator predicts it; errors as of `pesto.simulate`."""
    # Check a plan on the cluster and the costs that it was made for, whatever it is to be run on, where it can be.
    provenance = plan.provenance
    own = plan_cluster(plan) if cluster is None or provenance.cluster_origin.kind == "preset" else None
    priced = None if missing_costs(plan) is None else costs
    if own is not None and (priced is None or plan_inputs(plan, graph, own, priced)[1].source == provenance.costs):
        check_plan(plan, graph, cluster=own, costs=priced)
    return rerun(plan, graph, *plan_inputs(plan, graph, cluster, costs))


def explain(plan: Plan, given: GivenStep, op: str | None) -> explanation.Explanation:
    """Return why the step of a plan takes as long as it does."""
    return explanation.explain(plan, given.graph_of(plan), cluster=given.cluster, costs=given.costs, op=op)


def report(plans: Sequence[tuple[str, Plan]], given: GivenStep) -> tuple[Graph, bytes]:
    """Return the graph of plans, by label, and one HTML page of them; all are verified first."""
    graph, reported = given.graph_of(plans[0][1]), []
    for label, plan in plans:
        checked = check_plan(plan, graph, cluster=given.cluster, costs=given.costs)
        worth = order_worth(checked.problem, plan.schedule.device, plan.rank)
        reported.append(
            ReportedPlan(label=label, plan=plan, cluster=checked.cluster, problem=checked.problem, order=worth)
        )
    return graph, html_report(graph, reported)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckedPlan:
    """A plan that is verified on its graph."""

    plan: Plan
    graph: Graph
    cluster: Cluster
    problem: Problem
    """The step in ticks that the plan was verified on."""
    left: dict[str, Any]
    """Statements of the plan that nothing at hand confirms, by key of its provenance."""
    called: str = ""
    """Name of its file."""
    certificate: bool = False
    """True if its bound was asked for."""

    def as_object(self) -> dict[str, Any]:
        """Return the keys of `pesto check --json`; with a certificate those of the bound, too."""
        plan, provenance = self.plan, self.plan.provenance
        keys = {**plan_keys(plan), "valid": True, "ops": self.graph.ops, "plan": self.called}
        keys |= enforced_keys(self._intended_mode())
        if not self.certificate:
            return keys
        evidence = provenance.lower_bound_evidence
        keys |= {
            "lower_bound": provenance.lower_bound_name, "lower_bound_of": "full graph",
            "claims": 0 if evidence is None else len(evidence.claims),
        }  # fmt: skip
        if solver := claimant(provenance.lower_bound_name):
            ticks, name = recompute_bound(plan, self.problem)
            keys |= {"claimed_by": solver, "recomputed_bound_s": ticks * plan.tick_s, "recomputed_bound": name}
        return {**keys, "not_checked": self.left}

    def summary(self) -> dict[str, Any]:
        """Return the result of a job that checks it."""
        return {**plan_keys(self.plan), "valid": True, "ops": self.graph.ops}

    def page(self) -> str:
        """Return what `pesto check` prints."""
        plan, called, mode = self.plan, self.called, self._intended_mode()
        lines = [
            paragraph(f"{called}: valid; {plural(self.graph.ops, 'op')}, {duration(plan.makespan_s)} predicted", 2)
        ]
        lines += [enforced_line(mode)] if mode is not None else []
        if not self.certificate:
            return "\n".join(lines)
        name, evidence = plan.provenance.lower_bound_name, plan.provenance.lower_bound_evidence
        bound = f"lower bound {duration(plan.provenance.lower_bound_ticks * plan.tick_s)} on the full graph by {name}"
        how = ""
        if evidence is not None:
            how = f" ({len(evidence.claims)} claims on {len(evidence.anchors)} anchors, checked)"
        if solver := claimant(name):
            ticks, by = recompute_bound(plan, self.problem)
            gap = percent(relative_gap(plan.schedule.makespan, ticks))
            how = (
                f", which is the word of {solver}: it has no certificate, and nothing here proves it"
                f" - recomputed: {duration(ticks * plan.tick_s)} by {by}, gap {gap}"
            )
        lines.append(paragraph(f"{called}: {bound}{how}; gap {percent(plan.gap)}", 2))
        lines.append(paragraph(f"{called}: {NOT_CHECKED}: {', '.join(self.left)}", 2))
        return "\n".join(lines)

    def _intended_mode(self) -> ModePrediction | None:
        """Predict the step in the way in which it is meant to be run; None where that has the whole order."""
        plan, graph = self.plan, self.graph
        if not graph.way and not plan.placement_only:
            return None
        timeline = Timeline(problem=self.problem, schedule=plan.schedule)
        return predict_intended_mode(graph, timeline, plan.rank, order=not plan.placement_only)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckedSplit:
    """A split that is verified on its step."""

    split: SplitFile
    shaped: TypedGraph
    certificate: bool
    """True if its bounds were asked for."""
    bounds: split_check.SplitBounds | None
    """Its bounds, found once more; None where its method gives none, and where they were not asked for."""

    def as_object(self) -> dict[str, Any]:
        """Return the keys of `pesto check --json`; with a certificate those of the bounds, too."""
        split, bounds = self.split, self.bounds
        keys = {**as_object(split), "valid": True, "executed": False, "split": split.what, "ops": self.shaped.ops,
                "factors": list(split.factors), "bytes": split.bytes,
                "params_per_worker_bytes": split.params_per_worker_bytes}  # fmt: skip
        if not self.certificate:
            return keys
        again = bounds.recomputed if bounds else [None] * len(split.cuts)
        return keys | {
            "status": split.status,
            "bound_bytes": split.bound_bytes,
            "recomputed_bound_bytes": bounds.recomputed[-1] if bounds else None,
            "bound_confirmed": bounds is not None and bounds.confirmed,
            "cuts": [
                {**msgspec.to_builtins(cut), "recomputed_bound_bytes": bound}
                for cut, bound in zip(split.cuts, again, strict=True)
            ],
            "rests_on": list(bounds.rests_on) if bounds else [],
            "not_checked": split_check.unconfirmed_claims(split, bounds),
        }

    def summary(self) -> dict[str, Any]:
        """Return the result of a job that checks it."""
        return {**as_object(self.split), "valid": True, "ops": self.shaped.ops, "bytes": self.split.bytes}

    def page(self) -> str:
        """Return what `pesto check` prints."""
        split = self.split
        factors, for_cuts = "x".join(map(str, split.factors)), " for what is cut" if split.places else ""
        at_most = " at most" if split.places else ""
        lines = [
            f"valid; {plural(self.shaped.ops, 'op')} in {factors} parts, {size(split.bytes)} sent a step{for_cuts}, "
            f"{size(split.params_per_worker_bytes)} of parameters a worker{at_most}"
        ]
        lines += ["not executed: this is about ways, layouts and bytes; pesto run compares what the parts compute"]
        if self.certificate:
            unconfirmed = split_check.unconfirmed_claims(split, self.bounds)
            lines += [self._bound_text(), f"{NOT_CHECKED}: {', '.join(unconfirmed)}"]
        return "\n".join(paragraph(f"{split.what}: {line}", 2) for line in lines)

    def _bound_text(self) -> str:
        """Return in words what is known of the bound, and what that rests on."""
        split, bounds = self.split, self.bounds
        claim = f"lower bound {size(split.bound_bytes)}"
        if bounds is None and not split.bound_bytes:
            return f"no bound is known of a split by the method {split.method}"
        if bounds is None:
            return f"{claim}, which is the word of the method {split.method}: its cuts were not made one by one"
        after = " after the cuts before it, for each cut" if len(split.cuts) > 1 else ""
        known = (
            "confirmed" if bounds.confirmed else f"not confirmed, only {size(bounds.recomputed[-1])} of the last cut"
        )
        number, least, value = least_known([(cut.bound_bytes, cut.bytes) for cut in split.cuts])
        wide = f" (cut {number} has {size(least)}, of {size(value)})" if number < len(split.cuts) else ""
        return f"{claim}{after}{wide}: {known}, by solving again; that rests on {', '.join(bounds.rests_on)}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckedPattern:
    """A pattern that is verified on the chain and the devices within its file."""

    pattern: PatternInstance
    called: str
    """Name of its file."""
    known: pattern_certificate.PatternBounds | None
    """Its bounds, where they were asked for."""

    def as_object(self) -> dict[str, Any]:
        """Return the keys of `pesto check --json`; with a certificate those of the bounds, too."""
        instance, known, pattern = self.pattern, self.known, self.pattern.pattern
        keys = {**as_object(instance), "valid": True, "pattern": self.called, "schedule": instance.schedule,
                "layers": instance.of.chain.layers, "devices": instance.allocation.devices, "k": pattern.k,
                "T": pattern.T, **period_object("period", pattern.period), "memory_bytes": instance.memory,
                "memory_model": instance.model.value}  # fmt: skip
        if known is not None:
            keys |= {"bound": bound_object(known.bound), "stage_bound": bound_object(known.stage_bound)}
            keys |= {"period_gap": known.gap}
        return keys

    def summary(self) -> dict[str, Any]:
        """Return the result of a job that checks it."""
        return {**as_object(self.pattern), "valid": True, "layers": self.pattern.of.chain.layers}

    def page(self) -> str:
        """Return what `pesto check` prints."""
        instance, known, limits = self.pattern, self.known, self.pattern.machines.limits
        limit = "without a limit" if limits[0] is None else f"of {limits[0]}"
        lines = [
            f"valid; {plural(instance.of.chain.layers, 'layer')} on {plural(instance.allocation.devices, 'device')}, "
            f"{ticks_text(instance.pattern.period)} ticks a batch, at most {instance.peaks.max()} bytes "
            f"{'(each within its own)' if len(set(limits)) > 1 else limit} on a device"
        ]
        if known is not None:
            at_once = " that does each half at once" if known.stage_bound.name == AT_ONCE else ""
            lines += [
                f"no schedule of any stages is below {bound_text(known.bound)}, which leaves {percent(known.gap)}; "
                f"none of these stages{at_once} is below {bound_text(known.stage_bound)}"
            ]
        return "\n".join(paragraph(f"{self.called}: {line}", 2) for line in lines)


Checked = CheckedPlan | CheckedSplit | CheckedPattern
"""A verified artifact, with `as_object` and `page` of `pesto check` and the `summary` of its job."""
