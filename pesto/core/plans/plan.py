"""The bridge out: a checked placement and order of every op, with where it comes from."""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.errors import MismatchError, UsageError, VerificationError
from pesto.core.files.html_table import html_table
from pesto.core.files.json import shown
from pesto.core.files.labels import short_fingerprints
from pesto.core.graph import Graph
from pesto.core.memory.peaks import measure
from pesto.core.plans.control_edges import chain
from pesto.core.plans.graph_differences import differences, graph_remedy
from pesto.core.plans.shared_variables import OF_PINNED, CompanionPlan, StepVariables
from pesto.core.plans.solver_claim import claimant
from pesto.core.problem import TICK_S, lanes
from pesto.core.quantities import duration, percent, plural, shorten, size
from pesto.core.simulator import Timeline, simulate
from pesto.core.source import GraphOrigin, Origin
from solvers import Problem, Schedule, check, relative_gap
from solvers.arrays import Floats, Ints, floats
from solvers.bounds import quick_bounds
from solvers.bounds.certificate import EvidenceError, follows
from solvers.bounds.evidence import ANCHORED, Evidence
from solvers.timing.replay import fifo

# A plan's processors over the step, drawn for a notebook: where each computes, and where it waits.

MOST_LANES = 32
"""Processors that are drawn: of a host with more cores, those that compute most."""
_COLUMNS, _WIDTH, _LEFT, _ROW = 600, 900, 120, 22
"""Columns of time; sizes in pixels: of the picture, of the names, of a processor."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneChart:
    """Activity of each processor over a step, in columns of time."""

    caption: str
    """Name of the step that the chart is of."""
    step_s: float
    """Seconds of the step."""
    lanes: tuple[str, ...]
    """[k] the processors that compute at all; of many, the 32 that compute most."""
    busy: Floats
    """[k, c] share of each column of time, each as long, in which a processor computes."""
    busy_s: Floats
    """[k] seconds that it computes in all."""
    longest: tuple[tuple[str, ...], ...]
    """[k, c] the op that computes longest in a column; empty where none does."""

    def __repr__(self) -> str:
        """One line, without arrays."""
        return f"Timeline of {self.caption}: {len(self.lanes)} processors, {duration(self.step_s)}"

    def _repr_html_(self) -> str:
        """A picture for notebooks: names are text, and nothing in it runs."""
        height = _ROW * len(self.lanes) + 30
        said = escape(shown(f"{self!r}"))
        head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{said}" width="{_WIDTH}" '
        rows = "".join(piece for k in range(len(self.lanes)) for piece in self._row(k))
        axis = f'<text x="{_LEFT}" y="{height - 8}">0</text><text x="{_WIDTH}" y="{height - 8}" text-anchor="end">'
        text = f"{axis}{duration(self.step_s)}</text>"
        style = "font:12px sans-serif;fill:currentColor;max-width:100%"
        return f'{head}height="{height}" viewBox="0 0 {_WIDTH} {height}" style="{style}">{rows}{text}</svg>'

    def _row(self, k: int) -> Iterator[str]:
        top = _ROW * k
        said = f"{shown(self.lanes[k], 40)}: {duration(float(self.busy_s[k]))}"
        yield f'<text x="0" y="{top + 15}">{escape(shown(self.lanes[k], 16))}<title>{escape(said)}</title></text>'
        width = (_WIDTH - _LEFT) / self.busy.shape[1]
        for first, last in self._runs(k):
            op, share = self.longest[k][first], float(self.busy[k, first])
            title = escape(f"{shown(shorten(op, 80), 80)}: {percent(min(1.0, share))} busy")
            left, wide = _LEFT + first * width, (last - first) * width
            place = f'x="{left:.1f}" width="{wide:.1f}" y="{top + 3}" height="{_ROW - 6}"'
            yield f'<rect {place} fill="#2b6cb0" fill-opacity="{max(0.1, share):.2f}"><title>{title}</title></rect>'

    def _runs(self, k: int) -> Iterator[tuple[int, int]]:
        """(first, one past the last) of columns in a row that are as busy, with the same op."""
        row = list(zip(np.round(self.busy[k], 1).tolist(), self.longest[k], strict=True))
        first = 0
        for at in range(1, len(row) + 1):
            if at == len(row) or row[at] != row[first]:
                if row[first][1]:
                    yield first, at
                first = at


def draw_lanes(
    caption: str, names: tuple[str, ...], lanes: tuple[str, ...], ops: tuple[Ints, Ints, Ints], tick_s: float
) -> LaneChart:
    """Draw ops, ([n] processor, [n] start, [n] finish in ticks), over the whole step."""
    device, start, finish = ops
    took = np.bincount(device, weights=finish - start, minlength=len(lanes))
    kept = np.flatnonzero(took > 0)
    kept = np.sort(kept[np.argsort(-took[kept], kind="stable")][:MOST_LANES])
    edges = np.linspace(0, max(1, int(finish.max(initial=0))), _COLUMNS + 1)
    busy, longest = np.zeros((len(kept), _COLUMNS)), []
    for k, lane in enumerate(kept.tolist()):
        mine = np.flatnonzero((device == lane) & (finish > start))
        share, op = _bin_columns(edges, start[mine], finish[mine])
        busy[k] = share
        longest.append(tuple(names[mine[i]] if i >= 0 else "" for i in op.tolist()))
    return LaneChart(
        caption=caption,
        step_s=float(finish.max(initial=0)) * tick_s,
        lanes=tuple(lanes[k] for k in kept.tolist()),
        busy=floats(busy),
        busy_s=floats(took[kept] * tick_s),
        longest=tuple(longest),
    )


def _bin_columns(edges: Floats, start: Ints, finish: Ints) -> tuple[Floats, Ints]:
    """([c] share of each column, [c] the op that has most of it, -1 for none)."""
    busy, most, which = (np.zeros(_COLUMNS), np.zeros(_COLUMNS), np.full(_COLUMNS, -1))
    wide = edges[1] - edges[0]
    for i, (begin, end) in enumerate(zip(start.tolist(), finish.tolist(), strict=True)):
        first, last = int(begin // wide), min(_COLUMNS - 1, int(end // wide))
        inside = np.minimum(end, edges[first + 1 : last + 2]) - np.maximum(begin, edges[first : last + 1])
        inside = np.maximum(inside, 0.0)
        busy[first : last + 1] += inside
        more = np.flatnonzero(inside > most[first : last + 1])
        most[first + more], which[first + more] = inside[more], i
    return floats(busy / wide), which


# A plan as a table of another library, one row an op, where one is installed.

LIBRARIES = ("pandas", "polars")
"""Packages that make data frames; the first that is installed is used."""


def op_frame(columns: Mapping[str, list[Any]]) -> Any:
    """A DataFrame of these columns; UsageError where neither library is installed."""
    for name in LIBRARIES:
        if find_spec(name) is not None:
            return importlib.import_module(name).DataFrame(dict(columns))
    raise UsageError.build("a frame needs pandas or polars", remedy="pip install pandas, or pip install polars")


FCFS = "first come, first served"
PER_DEVICE = "once per device, small constants never"
PER_EDGE = "per edge"
CONSTANTS_SENT = "once per device"
"""Of older plans, which had constants sent that are copied (`pesto.core.problem.copied_constants`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoarseSolve:
    """What the exact solver did on the coarse graph; its bound holds there, not for the full graph."""

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
    """What stopped it before its proof, as in `solvers.Limit`."""
    makespan_ticks: int | None
    """Ticks of the solver's own schedule of the coarse graph; None where it found none."""
    lower_bound_ticks: int
    """Ticks that no schedule of the coarse graph can beat."""
    detail: str
    """One line on what happened; empty where the status says all."""
    bound_by: str = ""
    """What the bound comes from; empty in files that do not say."""


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
    """Whether the candidate's peak bytes fit every device."""
    lower_bound_ticks: int
    """Lower bound on the ticks of any plan of the full graph."""
    lower_bound_name: str
    """The argument that gives the bound."""
    lower_bound_evidence: Evidence | None = None
    """What the bound rests on, or of one that a solver claims what is sure; None for `quick_bounds.best`."""
    links: str
    """Policy of the links that the prediction assumes: "first come, first served"."""
    transfers: str
    """Transfers are "once per device", as TensorFlow sends, or "per edge", as the paper counts."""
    coarse: CoarseSolve | None
    """What the exact solver did; None where it was not run."""
    settings: dict[str, float | int | str | bool]
    """The options of the solve, by their names in `Settings`."""
    pesto_version: str
    """Version of this package that made the plan."""


class PlanContext(Protocol):
    """What knows a plan's step: its graph, cluster and costs."""

    def explain(self, plan: "Plan", op: str | None) -> Any:
        """Why the step takes as long as it does."""

    def columns(self, plan: "Plan") -> dict[str, list[Any]]:
        """[n] further columns of the ops' table, by name."""


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
    """Inside: what knows the plan's step, as of a plan of `pesto.solve` and `pesto.load_plan`."""

    def __repr__(self) -> str:
        """One line, without arrays."""
        made = self.provenance
        basis = made.costs_basis.partition(":")[0]
        where, how, by = shown(made.cluster, 24), shown(basis, 9), shown(made.chosen, 20)
        step, gap = duration(self.makespan_s), percent(self.gap)
        kept = "" if self.beside is None else f" with {self.beside.pinned}"
        return f"Plan({plural(len(self.names), 'op')} on {where}, {step} {how}, gap {gap}{kept}, by {by})"

    def _repr_html_(self) -> str:
        """What each device of the cluster does in the step, as a table for notebooks."""
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
        """Activity of each processor over the step, which a notebook draws."""
        s, made = self.schedule, self.provenance
        caption = f"{shown(made.graph_source, 80)} on {shown(made.cluster, 24)}"
        return draw_lanes(caption, self.names, self.lanes, (s.device, s.start, s.finish), self.tick_s)

    def explain(self, op: str | None = None) -> Any:
        """What `pesto.explain` says of the plan: why its step takes as long as it does, and of `op` why it is there.

        UsageError where the plan does not know its graph: that of `pesto.solve` does, and one of a built-in model.
        """
        if self.reader is None:
            raise UsageError.build("the plan does not hold its graph", remedy="call pesto.explain(plan, graph)")
        return self.reader.explain(self, op)

    def to_frame(self) -> Any:
        """A DataFrame of pandas, or else of polars, with one row an op: name, scope, device, lane, start_s, finish_s.

        Where the plan holds its graph, as that of `pesto.solve` does, further type, slack_s and waited_for. UsageError
        where neither library is installed.
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
        """Name of the cluster's device at which each variable lies, by the variable's name."""
        device = self.schedule.device
        pairs = zip(self.held.variables, self.held.op, strict=True)
        return {variable.name: self.lane_device[device[op]] for variable, op in pairs}

    @property
    def placement_only(self) -> bool:
        """Whether the order is left to the framework: `rank` is then what first in, first out is predicted to make."""
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
        """[n] name of the cluster's device of each op."""
        return [self.lane_device[d] for d in self.schedule.device.tolist()]


def verify(plan: Plan, graph: Graph, problem: Problem, cluster: Cluster) -> None:
    """The one gate that every plan passes on its way out or in.

    MismatchError when the plan is for another graph; VerificationError when its processors are not the cluster's, the
    checker finds fault with its schedule, its order does not lead to that schedule in the simulator, its peaks are
    not those of the schedule or do not fit, or it claims what is not so.
    """
    refuse_another_graph(plan, graph)
    made = plan.provenance
    for what, said, own in (
        ("layout", made.graph_layout, graph.layout),
        ("listing", made.graph_listing, graph.listing),
    ):
        if said and said != own():
            planned, here = short_fingerprints(said, own())
            raise MismatchError.build(
                f"the plan is for {what} {planned}, {graph.source} has {here}: its ops stand in another order",
                remedy="solve this graph, or give the plan's own",
            )
    refuse_outdated(plan)
    problems = _processors(plan, cluster)
    problems = problems or [f"{v.kind}: {v.text}" for v in check(problem, plan.schedule)]
    problems = problems or _order(plan, problem) or _peaks(plan, graph, problem) + _claims(plan, problem)
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise VerificationError.build(f"the plan is invalid: {'; '.join(problems[:3])}{more}", remedy="solve again")


def refuse_another_graph(plan: Plan, graph: Graph) -> None:
    """MismatchError for a plan of another graph, or of this one with its ops named or listed otherwise."""
    made, found = plan.provenance, graph.fingerprint()
    if made.graph_fingerprint != found:
        planned, here = short_fingerprints(made.graph_fingerprint, found)
        raise MismatchError.build(
            f"the plan is for graph {planned} ({made.graph_source}), this is {here} "
            f"({graph.source}): {differences(plan.names, made.graph_batch, graph)}",
            remedy=graph_remedy(plan.names, made.graph_batch, graph),
        )
    if plan.names != graph.names:
        raise MismatchError.build(
            f"the plan is for {made.graph_source}; {graph.source} is of the same structure and sizes, but "
            "calls or "
            "lists its ops otherwise",
            remedy="solve this graph, or give the plan's own",
        )


def refuse_outdated(plan: Plan) -> None:
    """VerificationError for a plan of an older version, which promises what holds no more."""
    if plan.provenance.transfers == CONSTANTS_SENT:
        raise VerificationError.build(
            "the plan is invalid: transfers: an older version had small constants sent, of which each "
            "device now has a "
            "copy",
            remedy="solve again, starting from it",
        )


def _processors(plan: Plan, cluster: Cluster) -> list[str]:
    want = tuple((name, cluster.devices[d].name) for name, d in lanes(cluster))
    if tuple(zip(plan.lanes, plan.lane_device, strict=True)) != want or plan.tick_s != TICK_S:
        return [f"processors: its lanes or ticks are not those of cluster {cluster.name}"]
    return []


def _order(plan: Plan, problem: Problem) -> list[str]:
    """The ranks must be as `ranks_against` says, and must lead to the schedule that the plan promises.

    Where the order is left to the framework, that schedule is the one of first in, first out.
    """
    wrong = ranks_against(plan, problem)
    if wrong:
        return wrong
    again = simulate(problem, plan.schedule.device, plan.rank).schedule
    if any(not np.array_equal(a, b) for a, b in zip(_times(again), _times(plan.schedule), strict=True)):
        return ["order: run in its ranks, links first come first served, the plan does not give its own times"]
    if plan.placement_only:
        again = fifo(problem, plan.schedule.device)
        if any(not np.array_equal(a, b) for a, b in zip(_times(again), _times(plan.schedule), strict=True)):
            return ["order: left to the framework, first in first out, the plan does not give its own times"]
    return []


def ranks_against(plan: Plan, problem: Problem) -> list[str]:
    """What keeps the ranks from being a permutation along the precedence of a problem of the plan's graph."""
    if not np.array_equal(np.sort(plan.rank), np.arange(problem.tasks)):
        return ["order: the ranks are not 0..n-1, each once"]
    against = np.flatnonzero(plan.rank[problem.src] >= plan.rank[problem.dst])
    if len(against):
        before, after = (plan.names[ends[against[0]]] for ends in (problem.src, problem.dst))
        return [f"order: op {after} is ranked before {before}, which it needs"]
    return []


def _times(s: Schedule) -> tuple[Ints, ...]:
    """The times of a schedule, its transfers in a fixed order."""
    rows = np.lexsort((s.sent_to, s.sent_payload))
    return (s.start, s.finish, s.sent_payload[rows], s.sent_to[rows], s.sent_start[rows], s.sent_finish[rows])


def _peaks(plan: Plan, graph: Graph, problem: Problem) -> list[str]:
    """The bytes alive over the step must be what the plan says, and fit every location."""
    timeline = Timeline(problem=problem, schedule=plan.schedule)
    peak = measure(graph, timeline, per_edge=plan.provenance.transfers == PER_EDGE).peak.tolist()
    names = list(dict.fromkeys(plan.lane_device))
    if plan.peak_bytes != dict(zip(names, peak, strict=True)):
        return [f"memory: the peaks are {peak} bytes, the plan says {plan.peak_bytes}"]
    return [
        f"memory: {name} needs {has} of {most} bytes"
        for name, has, most in zip(names, peak, problem.capacity.tolist(), strict=True)
        if has > most
    ]


def _claims(plan: Plan, problem: Problem) -> list[str]:
    """The bound must be one that holds, and the plan the candidate that it says it is."""
    made, wrong = plan.provenance, []
    try:
        bound, name = _bound(made.lower_bound_evidence, problem)
    except EvidenceError as error:
        return [f"claims: nothing follows from the evidence of the lower bound: {error}"]
    pinned = "" if plan.beside is None else OF_PINNED + plan.beside.pinned
    if not made.lower_bound_name.endswith(pinned):
        wrong.append(f"claims: the lower bound is not said to be{pinned.replace(',', '')}")
    elif claimant(made.lower_bound_name):
        wrong += _check_claim(plan, problem, bound)
    elif (made.lower_bound_ticks, made.lower_bound_name) != (bound, name + pinned):
        wrong.append(f"claims: the lower bound is {bound} ({name}), the plan says {made.lower_bound_ticks}")
    if made.candidates_ticks.get(made.chosen) != plan.schedule.makespan or not made.candidates_fit.get(made.chosen):
        wrong.append(f"claims: the chosen candidate {made.chosen!r} is not this schedule")
    if made.links != FCFS or made.transfers not in (PER_EDGE, PER_DEVICE):
        wrong.append(f"claims: links {made.links!r} and transfers {made.transfers!r} are not known policies")
    return wrong


def recompute_bound(plan: Plan, problem: Problem) -> tuple[int, str]:
    """Ticks and name of the bound that follows by arithmetic, which of a solver's claim is the part that is sure.

    EvidenceError when nothing follows from the plan's evidence.
    """
    return _bound(plan.provenance.lower_bound_evidence, problem)


def _check_claim(plan: Plan, problem: Problem, sure: int) -> list[str]:
    """What speaks against the bound that a solver claims, beside the one that can be recomputed.

    Nothing here proves it; that solver must be said to have proven it of the whole graph.
    """
    made, coarse = plan.provenance, plan.provenance.coarse
    said, solver = made.lower_bound_ticks, claimant(made.lower_bound_name)
    ran = coarse is not None and coarse.nodes == len(plan.names)
    if coarse is None or not ran or (coarse.solver, coarse.lower_bound_ticks) != (solver, said):
        return [f"claims: the lower bound {said} is not what {solver} is said to have proven of the graph itself"]
    if made.lower_bound_evidence is not None and sure <= quick_bounds.best(problem)[0]:
        return [f"claims: the evidence of the lower bound is worth {sure}, no more than is known without it"]
    if sure < said <= plan.schedule.makespan:
        return []
    return [f"claims: the lower bound {said} of {solver} is not between {sure}, which is sure, and the makespan"]


def _bound(evidence: Evidence | None, problem: Problem) -> tuple[int, str]:
    """The bound that follows from the evidence, or without any the best fast one, computed afresh."""
    return quick_bounds.best(problem) if evidence is None else (follows(problem, evidence), ANCHORED)


def control_edges(plan: Plan, graph: Graph) -> list[tuple[int, int]]:
    """(before, after) pairs that chain each device's ops; pairs that an edge of the graph joins are left out."""
    before, after = chain(graph, plan.schedule.device, plan.rank, np.ones(graph.ops, dtype=np.bool_))
    return list(zip(before.tolist(), after.tolist(), strict=True))
