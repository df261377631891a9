"""A plan: a placement and order of every op, with where it comes from, and the one gate that verifies it."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.errors import MismatchError, UsageError, VerificationError
from pesto.core.files.json import short_fingerprints, shown
from pesto.core.graph import Graph
from pesto.core.memory import measure
from pesto.core.plans.graph_differences import differences, graph_remedy
from pesto.core.plans.notebook import LaneChart, draw_lanes, html_table, op_frame
from pesto.core.plans.shared_variables import OF_PINNED, CompanionPlan, StepVariables
from pesto.core.problem import TICK_S, lanes
from pesto.core.quantities import duration, percent, plural, size
from pesto.core.simulator import Timeline, simulate
from pesto.core.source import GraphOrigin, Origin
from solvers import Problem, Schedule, check, relative_gap
from solvers.arrays import Bools, Ints
from solvers.bounds import quick_bounds
from solvers.bounds.certificate import EvidenceError, follows
from solvers.bounds.evidence import ANCHORED, Evidence, FullBound
from solvers.timing.replay import fifo

FCFS = "first come, first served"
PER_DEVICE = "once per device, small constants never"
PER_EDGE = "per edge"
CONSTANTS_SENT = "once per device"
"""Transfers of older plans, which sent constants that are copied now (`pesto.core.problem.copied_constants`)."""
_SEARCH = "'s search of the graph itself"
"""Ends the name of a bound that an exact solver claims to have proven of the graph itself, without a certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoarseSolve:
    """Result of the exact solver on the coarse graph; its bound holds there, not for the full graph."""

    nodes: int
    """Nodes of the coarse graph."""
    reason: str
    """Why coarsening stopped."""
    solver: str
    """Name of the exact solver, as `pesto solvers` has it."""
    version: str
    """Version of the solver's package."""
    status: str
    """How the solver ended, as in `solvers.Status`."""
    limit: str
    """Limit that stopped it before its proof, as in `solvers.Limit`."""
    makespan_ticks: int | None
    """Ticks of the solver's own schedule of the coarse graph; None where it found none."""
    lower_bound_ticks: int
    """Ticks that no schedule of the coarse graph can beat."""
    detail: str
    """One line on what happened; empty where the status says all."""
    bound_by: str = ""
    """Argument that gives the bound; empty in files that do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a plan comes from and what it claims; nothing of the wall clock."""

    graph_fingerprint: str
    """`Graph.fingerprint()` of the graph that was planned."""
    graph_source: str
    """`Graph.source`, for people."""
    graph_origin: GraphOrigin = GraphOrigin()  # noqa: RUF009
    """`Graph.origin`: the same as fields."""
    graph_layout: str = ""
    """`Graph.layout()`; empty in files that do not say."""
    graph_listing: str = ""
    """`Graph.listing()`; empty in files that do not say."""
    graph_batch: int | None = None
    """Examples in a batch where the graph left that open, as `Graph.batch` says; None where it has every size."""
    cluster: str
    """Name of the cluster."""
    cluster_source: str
    """`Cluster.source`: preset NAME, or a file's name."""
    cluster_origin: Origin = Origin()  # noqa: RUF009
    """`Cluster.origin`: the same as fields."""
    costs: str
    """`Costs.source`: where op times come from, on one line."""
    costs_files: tuple[Origin, ...] | None = None
    """`Costs.files`: profiles and files of the user's own times; None in files that do not say."""
    costs_basis: str
    """measured, given, modelled, or how many ops of each."""
    chosen: str
    """Name of the candidate that the plan is."""
    rule: str
    """One line on how that candidate was made."""
    candidates_ticks: dict[str, int]
    """Ticks of the step by each candidate, by its name."""
    candidates_fit: dict[str, bool]
    """True for a candidate, by its name, whose peak bytes fit every device."""
    lower_bound_ticks: int
    """Lower bound on the ticks of any plan of the full graph."""
    lower_bound_name: str
    """The argument that gives the bound."""
    lower_bound_evidence: Evidence | None = None
    """Certificate of the bound, or of the sure part of one that a solver claims; None for `quick_bounds.best`."""
    links: str
    """Policy of the links that the prediction assumes: "first come, first served"."""
    transfers: str
    """Transfers are "once per device", as TensorFlow sends, or "per edge", as the paper counts."""
    coarse: CoarseSolve | None
    """Result of the exact solver; None where it was not run."""
    settings: dict[str, float | int | str | bool]
    """The options of the solve, by their names in `Settings`."""
    pesto_version: str
    """Version of this package that made the plan."""


class PlanContext(Protocol):
    """Graph, cluster and costs of a plan's step."""

    def explain(self, plan: "Plan", op: str | None) -> Any:
        """Explain why the step takes as long as it does."""

    def columns(self, plan: "Plan") -> dict[str, list[Any]]:
        """Return [n] further columns of the ops' table, by name."""


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
    """Seconds of one tick."""
    peak_bytes: dict[str, int]
    """Most bytes alive on each device of the cluster."""
    provenance: Provenance
    """Where the plan comes from, and what it claims."""
    held: StepVariables = field(default_factory=StepVariables)
    """Inside: variables of the step, as far as their names are known."""
    beside: CompanionPlan | None = None
    """Inside: the other step's plan whose variables it leaves in place; None where it was made alone."""
    feed_shapes: tuple[str, ...] = ()
    """Shapes given for feeds and ops whose sizes the step's program leaves open, as `Graph.feed_shapes`."""
    reader: PlanContext | None = None
    """Inside: graph, cluster and costs of the step; given for a plan of `pesto.solve` and `pesto.load_plan`."""

    def __repr__(self) -> str:
        """Return one line, without arrays."""
        provenance = self.provenance
        basis = provenance.costs_basis.partition(":")[0]
        where, how, by = shown(provenance.cluster, 24), shown(basis, 9), shown(provenance.chosen, 20)
        step, gap = duration(self.makespan_s), percent(self.gap)
        kept = "" if self.beside is None else f" with {self.beside.pinned}"
        return f"Plan({plural(len(self.names), 'op')} on {where}, {step} {how}, gap {gap}{kept}, by {by})"

    def _repr_html_(self) -> str:
        """Return a table of each device's work in the step, for notebooks."""
        s, devices = self.schedule, list(dict.fromkeys(self.lane_device))
        device = np.array([devices.index(name) for name in self.lane_device], dtype=np.int64)[s.device]
        ops = np.bincount(device, minlength=len(devices)).tolist()
        busy_s = np.bincount(device, weights=(s.finish - s.start) * self.tick_s, minlength=len(devices)).tolist()
        rows = [
            (name, str(ops[d]), duration(busy_s[d]), size(self.peak_bytes.get(name, 0)))
            for d, name in enumerate(devices)
        ]
        return html_table(f"{self!r} of {self.provenance.graph_source}", ("device", "ops", "busy", "peak"), rows)

    def timeline(self) -> LaneChart:
        """Return the activity of each processor over the step, which a notebook draws."""
        s, provenance = self.schedule, self.provenance
        caption = f"{shown(provenance.graph_source, 80)} on {shown(provenance.cluster, 24)}"
        return draw_lanes(caption, self.names, self.lanes, (s.device, s.start, s.finish), self.tick_s)

    def explain(self, op: str | None = None) -> Any:
        """Return what `pesto.explain` does: why the step takes as long as it does, and of `op` why it is there.

        Raise UsageError where the plan does not know its graph; that of `pesto.solve` does, as one of a built-in model.
        """
        if self.reader is None:
            raise UsageError.build("the plan does not hold its graph", remedy="call pesto.explain(plan, graph)")
        return self.reader.explain(self, op)

    def to_frame(self) -> Any:
        """Return a DataFrame of pandas, or else of polars, a row an op: name, scope, device, lane, start_s, finish_s.

        Where the plan holds its graph, as that of `pesto.solve` does, further type, slack_s and waited_for. Raise
        UsageError where neither library is installed.
        """
        s = self.schedule
        columns: dict[str, list[Any]] = {
            "name": list(self.names),
            "scope": [name.rpartition("/")[0] for name in self.names],
            "device": self.device_names(),
            "lane": [self.lanes[d] for d in s.device.tolist()],
            "rank": self.rank.tolist(),
            "start_s": (s.start * self.tick_s).tolist(),
            "finish_s": (s.finish * self.tick_s).tolist(),
        }
        return op_frame(columns | (self.reader.columns(self) if self.reader is not None else {}))

    @property
    def makespan_s(self) -> float:
        """Predicted seconds of the step."""
        return self.schedule.makespan * self.tick_s

    @property
    def pins(self) -> dict[str, str]:
        """Devices of the variables that were pinned beside another plan, by name."""
        return {} if self.beside is None else self.beside.variables

    def variable_devices(self) -> dict[str, str]:
        """Return the cluster's device at which each variable lies, by the variable's name."""
        device = self.schedule.device
        pairs = zip(self.held.variables, self.held.op, strict=True)
        return {variable.name: self.lane_device[device[op]] for variable, op in pairs}

    @property
    def placement_only(self) -> bool:
        """True if the order is left to the framework: `rank` is then what first in, first out is predicted to make."""
        return self.provenance.settings.get("placement_only") is True

    @property
    def gap(self) -> float:
        """(makespan - lower bound of the full graph, with its pins) / makespan."""
        return relative_gap(self.schedule.makespan, self.provenance.lower_bound_ticks)

    @property
    def status(self) -> str:
        """'optimal' when the bound of the full graph, with its pins, is reached, else 'feasible'."""
        return "optimal" if self.schedule.makespan == self.provenance.lower_bound_ticks else "feasible"

    def device_names(self) -> list[str]:
        """Return [n] the name of the cluster's device of each op."""
        return [self.lane_device[d] for d in self.schedule.device.tolist()]


def best_bound(ticks: int, solver: str, known: FullBound) -> FullBound:
    """Return the higher of a known bound and what a solver claims to have proven; the known one's evidence is kept."""
    return FullBound(ticks, solver + _SEARCH, known.evidence) if ticks > known.ticks else known


def claimant(name: str) -> str:
    """Return the solver that claims the bound of this name; empty for a bound that follows by arithmetic."""
    from solvers.api import SOLVERS  # who reads a plan alone loads no solver

    argument = name.partition(OF_PINNED)[0]
    solver = argument.removesuffix(_SEARCH)
    return solver if solver != argument and solver in SOLVERS else ""


def recompute_bound(plan: Plan, problem: Problem) -> tuple[int, str]:
    """Return ticks and name of the bound that follows by arithmetic: of a solver's claim the part that is sure.

    It follows from the plan's evidence, or without any is the best fast one, computed afresh. Raise EvidenceError when
    nothing follows.
    """
    evidence = plan.provenance.lower_bound_evidence
    return quick_bounds.best(problem) if evidence is None else (follows(problem, evidence), ANCHORED)


def control_edges(plan: Plan, graph: Graph) -> list[tuple[int, int]]:
    """Return (before, after) pairs that chain each device's ops, without pairs that an edge of the graph joins."""
    before, after = chain(graph, plan.schedule.device, plan.rank, np.ones(graph.ops, dtype=np.bool_))
    return list(zip(before.tolist(), after.tolist(), strict=True))


def neighbours(lane: Ints, rank: Ints, chained: Bools) -> tuple[Ints, Ints]:
    """(before, after) of the `chained` ops that follow each other on one processor (`lane`) in `rank` order."""
    member = np.flatnonzero(chained)
    sequence = member[np.lexsort((rank[member], lane[member]))]
    before, after = sequence[:-1], sequence[1:]
    same = lane[before] == lane[after]
    return before[same], after[same]


def chain(graph: Graph, lane: Ints, rank: Ints, chained: Bools) -> tuple[Ints, Ints]:
    """`neighbours`, without the pairs that an edge of the graph joins already.

    `rank` must be a topological order of the graph, so that the chains close no cycle with its edges.
    """
    before, after = neighbours(lane, rank, chained)
    known = np.unique(graph.edge_src * graph.ops + graph.edge_dst)
    fresh = ~np.isin(before * graph.ops + after, known)
    return before[fresh], after[fresh]


# Verification


def verify(plan: Plan, graph: Graph, problem: Problem, cluster: Cluster) -> None:
    """Verify a plan: the one gate that every plan passes on its way out or in.

    Raise MismatchError when the plan is for another graph; VerificationError when its processors are not the cluster's,
    the checker finds fault with its schedule, its order does not lead to that schedule in the simulator, its peaks are
    not those of the schedule or do not fit, or it claims what is not so.
    """
    own, provenance = graph.identity(), plan.provenance
    refuse_another_graph(plan, graph, own.fingerprint)
    for what, planned, here in (
        ("layout", provenance.graph_layout, own.layout),
        ("listing", provenance.graph_listing, own.listing),
    ):
        if planned and planned != here:
            one, other = short_fingerprints(planned, here)
            raise MismatchError.build(
                f"the plan is for {what} {one}, {graph.source} has {other}: its ops stand in another order",
                remedy="solve this graph, or give the plan's own",
            )
    refuse_outdated(plan)
    processors = tuple((name, cluster.devices[d].name) for name, d in lanes(cluster))
    problems = []
    if tuple(zip(plan.lanes, plan.lane_device, strict=True)) != processors or plan.tick_s != TICK_S:
        problems = [f"processors: its lanes or ticks are not those of cluster {cluster.name}"]
    problems = problems or [f"{v.kind}: {v.text}" for v in check(problem, plan.schedule)]
    problems = problems or check_order(plan, problem)
    if not problems:
        # The bytes alive over the step must be what the plan says, and fit every location.
        timeline = Timeline(problem=problem, schedule=plan.schedule)
        peak = measure(graph, timeline, per_edge=provenance.transfers == PER_EDGE).peak.tolist()
        names = list(dict.fromkeys(plan.lane_device))
        rows = zip(names, peak, problem.capacity.tolist(), strict=True)
        problems = [f"memory: {name} needs {has} of {most} bytes" for name, has, most in rows if has > most]
        if plan.peak_bytes != dict(zip(names, peak, strict=True)):
            problems = [f"memory: the peaks are {peak} bytes, the plan says {plan.peak_bytes}"]
        problems += _check_claims(plan, problem)
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise VerificationError.build(f"the plan is invalid: {'; '.join(problems[:3])}{more}", remedy="solve again")


def refuse_another_graph(plan: Plan, graph: Graph, fingerprint: str = "") -> None:
    """Raise MismatchError for a plan of another graph, or of this one with its ops named or listed otherwise.

    fingerprint: the graph's, if the caller has computed it.
    """
    provenance, own = plan.provenance, fingerprint or graph.fingerprint()
    if provenance.graph_fingerprint != own:
        planned, here = short_fingerprints(provenance.graph_fingerprint, own)
        raise MismatchError.build(
            f"the plan is for graph {planned} ({provenance.graph_source}), this is {here} "
            f"({graph.source}): {differences(plan.names, provenance.graph_batch, graph)}",
            remedy=graph_remedy(plan.names, provenance.graph_batch, graph),
        )
    if plan.names != graph.names:
        raise MismatchError.build(
            f"the plan is for {provenance.graph_source}; {graph.source} is of the same structure and sizes, but calls "
            "or lists its ops otherwise",
            remedy="solve this graph, or give the plan's own",
        )


def refuse_outdated(plan: Plan) -> None:
    """Raise VerificationError for a plan of an older version, which promises what holds no more."""
    if plan.provenance.transfers == CONSTANTS_SENT:
        raise VerificationError.build(
            "the plan is invalid: transfers: an older version had small constants sent, of which each device now has a "
            "copy",
            remedy="solve again, starting from it",
        )


def check_order(plan: Plan, problem: Problem) -> list[str]:
    """The ranks must lead to the schedule that the plan promises.

    Where the order is left to the framework, that schedule is the one of first in, first out.
    """
    if wrong := check_ranks(plan, problem):
        return wrong
    again = simulate(problem, plan.schedule.device, plan.rank).schedule
    if not _same_times(again, plan.schedule):
        return ["order: run in its ranks, links first come first served, the plan does not give its own times"]
    if plan.placement_only and not _same_times(fifo(problem, plan.schedule.device), plan.schedule):
        return ["order: left to the framework, first in first out, the plan does not give its own times"]
    return []


def check_ranks(plan: Plan, problem: Problem) -> list[str]:
    """Return what keeps the ranks from being a permutation along the precedence of a problem of the plan's graph."""
    if not np.array_equal(np.sort(plan.rank), np.arange(problem.tasks)):
        return ["order: the ranks are not 0..n-1, each once"]
    against = np.flatnonzero(plan.rank[problem.src] >= plan.rank[problem.dst])
    if len(against):
        before, after = (plan.names[ends[against[0]]] for ends in (problem.src, problem.dst))
        return [f"order: op {after} is ranked before {before}, which it needs"]
    return []


def _same_times(one: Schedule, other: Schedule) -> bool:
    """Transfers are compared in a fixed order."""
    rows = [np.lexsort((s.sent_to, s.sent_payload)) for s in (one, other)]
    sent = ("sent_payload", "sent_to", "sent_start", "sent_finish")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("start", "finish")) and all(
        np.array_equal(getattr(one, name)[rows[0]], getattr(other, name)[rows[1]]) for name in sent
    )


def _check_claims(plan: Plan, problem: Problem) -> list[str]:
    """The bound must be one that holds, and the plan the candidate that it says it is."""
    provenance, wrong = plan.provenance, []
    try:
        bound, name = recompute_bound(plan, problem)
    except EvidenceError as error:
        return [f"claims: nothing follows from the evidence of the lower bound: {error}"]
    pinned = "" if plan.beside is None else OF_PINNED + plan.beside.pinned
    if not provenance.lower_bound_name.endswith(pinned):
        wrong.append(f"claims: the lower bound is not said to be{pinned.replace(',', '')}")
    elif claimant(provenance.lower_bound_name):
        # Nothing here proves the claim; that solver must be said to have proven it of the whole graph.
        coarse, ticks, solver = provenance.coarse, provenance.lower_bound_ticks, claimant(provenance.lower_bound_name)
        whole = coarse is not None and coarse.nodes == len(plan.names)
        if coarse is None or not whole or (coarse.solver, coarse.lower_bound_ticks) != (solver, ticks):
            wrong.append(
                f"claims: the lower bound {ticks} is not what {solver} is said to have proven of the graph itself"
            )
        elif provenance.lower_bound_evidence is not None and bound <= quick_bounds.best(problem)[0]:
            wrong.append(f"claims: the evidence of the lower bound is worth {bound}, no more than is known without it")
        elif not bound < ticks <= plan.schedule.makespan:
            wrong.append(
                f"claims: the lower bound {ticks} of {solver} is not between {bound}, which is sure, and the makespan"
            )
    elif (provenance.lower_bound_ticks, provenance.lower_bound_name) != (bound, name + pinned):
        wrong.append(f"claims: the lower bound is {bound} ({name}), the plan says {provenance.lower_bound_ticks}")
    chosen = provenance.chosen
    claimed_ticks, fits = provenance.candidates_ticks.get(chosen), provenance.candidates_fit.get(chosen)
    if claimed_ticks != plan.schedule.makespan or not fits:
        wrong.append(f"claims: the chosen candidate {chosen!r} is not this schedule")
    if provenance.links != FCFS or provenance.transfers not in (PER_EDGE, PER_DEVICE):
        wrong.append(
            f"claims: links {provenance.links!r} and transfers {provenance.transfers!r} are not known policies"
        )
    return wrong
