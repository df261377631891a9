"""Why a step takes as long as it does: path, bottlenecks, improvements, ties and one op, from Python or for pages."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs.measured import Profile
from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.option import expect
from pesto.core.plans.notebook import html_table
from pesto.core.plans.plan import PER_EDGE, Plan
from pesto.core.plans.statements import missing_costs
from pesto.core.problem import TICK_S
from pesto.core.quantities import duration, percent, shorten, size
from pesto.core.settings import Settings
from pesto.core.simulator import Timeline
from pesto.inputs.load import as_plan, load_costs, load_graph, plan_inputs
from pesto.planning.solving.candidates import formulate
from pesto.reporting.explaining.bottlenecks import (
    Bottleneck,
    ExplainedStep,
    Improvement,
    Price,
    TiedGroup,
    find_bottlenecks,
    find_improvements,
    find_tied_groups,
    split_saves,
)
from pesto.reporting.explaining.name_scopes import NO_SCOPE
from pesto.reporting.explaining.waits import KINDS, explain_waits
from solvers.arrays import Ints, ints
from solvers.bounds import quick_bounds
from solvers.heuristics.devices_of_location import devices_at
from solvers.timing.replay import replay

CAUSES = ("begin", "data", "transfer", "device")
"""Causes of waits in words, by the values of `pesto.reporting.explaining.waits.Waits.cause`."""
_NEAREST = 5
"""Names that are offered in place of an unknown one."""
_LONGEST, _LOOKED_AT = 200, 50_000
"""Characters of a name, and names, up to which near ones are sought by their letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSums:
    """Sums over the critical path; all ticks are of 1 ns."""

    ticks: dict[str, int]
    """Ticks by kind: compute, transfer, link wait and begin; they sum to the step."""
    legs: dict[str, int]
    """How many ops compute, and how many transfers are on their way, or hold a link that the path waits for."""
    waited: dict[str, tuple[int, int]]
    """(ops, ticks that these compute) by what the path's ops waited for: begin, data, transfer or device."""
    scopes: dict[str, int]
    """Ticks of compute by scope, the most first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """An op with its group on another device; all ticks are of 1 ns."""

    device: str
    """The other device of the cluster."""
    forbidden: str
    """Why it cannot be there; empty where it can."""
    same_order_ticks: int | None
    """The step with the plan's order as it is; None where it cannot be there."""
    listed_ticks: int | None
    """The step with all ops re-listed: those that are ready served in the plan's order, or by bottom level."""
    short_bytes: int
    """Bytes that some device then lacks, in the shorter of the two; 0 where all fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFacts:
    """One op of a plan; all ticks are of 1 ns."""

    op: str
    """Its name."""
    device: str
    """The device of the cluster that it is on."""
    lane: str
    """The processor."""
    start: int
    """When it starts."""
    finish: int
    """When it ends."""
    slack: int
    """How much later it may end, with all placed and in order as it is, without a longer step."""
    cause: str
    """Cause of the op's start time: begin, data, transfer or device."""
    after: str
    """The op that it waited for; empty at the begin of the step."""
    waited_ticks: int
    """Ticks for which a tensor that the op waited for queued for a link."""
    held_by: str
    """Who sent what held that link; empty where nothing did."""
    followers: tuple[str, ...]
    """Ops that began when it ended, or when what it sent arrived."""
    readers: int
    """Ops that follow it at all."""
    kinds: tuple[str, ...]
    """Kinds of device that have a kernel for it."""
    group: tuple[str, ...]
    """All ops that share its device, itself too; empty where it is in no group."""
    group_bytes: int
    """Bytes of the variables of these ops, or of its own."""
    moves: tuple[Move, ...]
    """To each other device."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation:
    """Why a plan's step takes as long as it does (docs/guides/explain.md); ticks are of 1 ns."""

    step: ExplainedStep
    """Inside: the plan with its waits and its critical path."""
    path: PathSums
    """The critical path by kind, by what its ops waited for, and by scope."""
    blockers: tuple[Bottleneck, ...]
    """The long ops of the path under which other accelerators idle, most idle time first."""
    split_all_ticks: int
    """How much shorter the step is at most when all of these are split."""
    quick_bound_ticks: int
    """Quick lower bound of the step in ticks, to compare the quick bounds of improvements and ties with."""
    helps: tuple[Improvement, ...]
    """The same plan, and its bound, with one thing changed."""
    ties: tuple[TiedGroup, ...]
    """Groups that hold several variables and much of their bytes, or much work, on one device."""
    op: OpFacts | None
    """Facts of one op; None unless requested."""

    @property
    def step_ticks(self) -> int:
        """Ticks of the step."""
        return self.step.makespan

    @property
    def bound_ticks(self) -> int:
        """Lower bound of the plan on the step in ticks."""
        return max(self.step.plan.provenance.lower_bound_ticks, self.quick_bound_ticks)

    @property
    def step_s(self) -> float:
        """Seconds of the step."""
        return self.step.makespan * TICK_S

    def __repr__(self) -> str:
        """One line, without arrays."""
        compute = percent(self.path.ticks["compute"] / max(1, self.step_ticks))
        first = f", {shown(shorten(self.blockers[0].op), 80)} holds up most" if self.blockers else ""
        return f"Explanation(step {duration(self.step_s)}, {compute} of its path compute{first})"

    def _repr_html_(self) -> str:
        """All numbers as a table for notebooks."""
        rows: list[tuple[str, int | None]] = [(f"path: {kind}", t) for kind, t in self.path.ticks.items()]
        rows += [(f"others idle under {blocker.op}", blocker.idle_ticks) for blocker in self.blockers]
        rows += [(f"splitting {blocker.op} saves at most", blocker.split_saves_ticks) for blocker in self.blockers]
        for row in self.helps:
            rows += [(f"{row.change}: the same plan", row.step_ticks), (f"{row.change}: bound", row.bound_ticks)]
        rows += [(f"freeing the group of {tie.op} saves at most", tie.gain_ticks) for tie in self.ties]
        if self.op:
            rows += [(f"{self.op.op} on {move.device}", move.listed_ticks) for move in self.op.moves]
        cells = [
            (what, "-", "-") if t is None else (what, duration(t * TICK_S), percent(t / max(1, self.step_ticks)))
            for what, t in rows
        ]
        return html_table(f"{self!r} of {self.step.bench.graph.source}", ("", "time", "of the step"), cells)


def explain(
    plan: Plan | str | Path,
    graph: Graph,
    *,
    cluster: str | Path | Cluster | None = None,
    costs: str | Path | Profile | None = None,
    op: str | None = None,
) -> Explanation:
    """Why a plan's step takes as long as it does: its path, what holds everybody up, what would help, what is tied.

    The plan is verified first; cluster and costs as in `check`. op: the name of an op, of which it is told as well why
    it is where it is, and what moving it would cost (docs/guides/explain.md).

    UsageError when the plan has no such op, with the nearest names; what `check` raises.
    """
    loaded = as_plan(plan)
    expect("op", op, str | None, "the name of an op")
    machine, _ = plan_inputs(loaded, graph, cluster, costs)
    if costs is None and (missing := missing_costs(loaded)) is not None:
        raise missing
    return explain_plan(loaded, graph, machine, lambda at: load_costs(graph, at, costs), op=op)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExplainContext:
    """Graph, cluster and costs of a plan, for its methods; None where unknown."""

    graph: Graph | None = None
    cluster: Cluster | None = None
    costs: str | Path | Profile | None = None

    def explain(self, plan: Plan, op: str | None) -> Explanation:
        """`explain`; a plan of a built-in model finds its graph by name. UsageError where the graph is not known."""
        graph = self.graph
        if graph is None:
            named = plan.provenance.graph_origin.model
            if named is None:
                made = shown(plan.provenance.graph_source)
                raise UsageError.build(
                    f"the plan does not hold its graph, {made}", remedy="call pesto.explain(plan, graph)"
                )
            graph = load_graph(named)
        return explain(plan, graph, cluster=self.cluster, costs=self.costs, op=op)

    def columns(self, plan: Plan) -> dict[str, list[Any]]:
        """[n] type, slack in seconds and cause of each op; nothing where the graph is not known."""
        if self.graph is None:
            return {}
        graph = self.graph
        machine, costs = plan_inputs(plan, graph, self.cluster, self.costs)
        settings = Settings(per_edge=plan.provenance.transfers == PER_EDGE)
        timeline = Timeline(problem=formulate(graph, costs, machine, settings), schedule=plan.schedule)
        waits = explain_waits(timeline, plan.rank)
        return {
            "type": [graph.types[k] for k in graph.type_of.tolist()],
            "slack_s": (waits.slack * TICK_S).tolist(),
            "waited_for": [CAUSES[k] for k in waits.cause.tolist()],
        }


def explain_plan(plan: Plan, graph: Graph, cluster: Cluster, price: Price, *, op: str | None = None) -> Explanation:
    """Explain a plan's step, verified first. price: the costs of `graph` on a cluster. op: name of one to be told of.

    UsageError when there is no such op; MismatchError and VerificationError as of `pesto.core.plans.plan.verify`.
    """
    step = ExplainedStep.of(plan, graph, cluster, price)
    op_facts = None if op is None else describe_op(step, op)
    sums, blockers = sum_path(step), find_bottlenecks(step)
    return Explanation(
        step=step,
        path=sums,
        blockers=blockers,
        split_all_ticks=split_saves(step, [plan.names.index(each.op) for each in blockers]),
        quick_bound_ticks=quick_bounds.best(step.timeline.problem)[0],
        helps=find_improvements(step, next((name for name in sums.scopes if name != NO_SCOPE), None)),
        ties=find_tied_groups(step),
        op=op_facts,
    )


def sum_path(step: ExplainedStep) -> PathSums:
    """Add up the critical path of a step."""
    ticks, legs = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for leg in step.path:
        ticks[leg.kind] += leg.end - leg.begin
        legs[leg.kind] += 1
    ops, took = step.path_ops, step.took
    cause = step.waits.cause[ops]
    waited = {name: (int((cause == k).sum()), int(took[ops][cause == k].sum())) for k, name in enumerate(CAUSES)}
    by_scope = np.zeros(len(step.scopes), dtype=np.int64)
    np.add.at(by_scope, step.scope_of[ops], took[ops])
    scopes = {step.scopes[k]: int(by_scope[k]) for k in np.argsort(-by_scope, kind="stable").tolist() if by_scope[k]}
    return PathSums(ticks=ticks, legs=legs, waited=waited, scopes=scopes)


def describe_op(step: ExplainedStep, name: str) -> OpFacts:
    """Describe one op; UsageError, with the nearest names, if the plan has no op of this name."""
    names, waits = step.plan.names, step.waits
    if name not in names:
        near = [n for n in names if name and name in n][:_NEAREST]
        if not near and len(name) <= _LONGEST and len(names) <= _LOOKED_AT:
            last = f"/{name.rpartition('/')[2]}"
            near = get_close_matches(name, names, n=_NEAREST) or [n for n in names if n.endswith(last)][:_NEAREST]
        known = f"near it are {', '.join(shown(n, 80) for n in near)}"
        remedy = known if near else "pesto costs lists the names of a graph"
        raise UsageError.build(f"the plan has no op '{shown(name, 80)}'", remedy=remedy)
    op = names.index(name)
    s, problem, graph = step.timeline.schedule, step.timeline.problem, step.bench.graph
    group = np.flatnonzero(problem.group == problem.group[op]) if problem.group[op] >= 0 else np.array([op])
    sent, after = int(waits.transfer[op]), int(waits.after[op])
    held = int(waits.held_by[sent]) if sent >= 0 else -1
    return OpFacts(
        op=name,
        device=step.device_of(op),
        lane=step.plan.lanes[int(s.device[op])],
        start=int(s.start[op]),
        finish=int(s.finish[op]),
        slack=int(waits.slack[op]),
        cause=CAUSES[int(waits.cause[op])],
        after=names[after] if after >= 0 else "",
        waited_ticks=int(s.sent_start[sent] - s.finish[after]) if sent >= 0 else 0,
        held_by=names[int(problem.producer[s.sent_payload[held]])] if held >= 0 else "",
        followers=tuple(names[k] for k in np.flatnonzero(waits.after == op).tolist()),
        readers=len(np.unique(problem.dst[problem.src == op])),
        kinds=tuple(kind for k, kind in enumerate(graph.kinds) if graph.runs_on[op, k]),
        group=tuple(names[k] for k in group.tolist()) if len(group) > 1 else (),
        group_bytes=int(graph.param_bytes[group].sum()),
        moves=tuple(_moves(step, op, ints(group))),
    )


def _moves(step: ExplainedStep, op: int, group: Ints) -> Iterator[Move]:
    """The op with its group at every other device, or why that cannot be."""
    evaluator, problem, schedule = step.bench, step.timeline.problem, step.timeline.schedule
    here = int(problem.location[schedule.device[op]])
    for place, target in enumerate(step.cluster.devices):
        if place == here:
            continue
        why = _forbidden(step, op, group, place)
        if why:
            yield Move(device=target.name, forbidden=why, same_order_ticks=None, listed_ticks=None, short_bytes=0)
            continue
        # In the plan's order, and re-listed in the better of two ways.
        device, location = schedule.device.copy(), problem.location[schedule.device]
        location[group] = place
        device[group] = devices_at(problem, ints(location))[group]
        same = evaluator.ordered("moved", "in the plan's order", ints(device), step.plan.rank)
        moved = replay(problem, device, step.plan.rank, strict=False, prepared=evaluator.prepared)
        by_rank = evaluator.scheduled("listed", "ready ops in the plan's order", moved)
        by_level = evaluator.placed("listed", "ready ops by bottom level", ints(device))
        listed = min(by_rank, by_level, key=lambda each: (not each.fits, each.makespan))
        short = max(0, min((same, listed), key=lambda each: (not each.fits, each.makespan)).short)
        ticks = (same.makespan, listed.makespan)
        yield Move(
            device=target.name, forbidden="", same_order_ticks=ticks[0], listed_ticks=ticks[1], short_bytes=short
        )


def _forbidden(step: ExplainedStep, op: int, group: Ints, place: int) -> str:
    """Why an op cannot be at a location: kind, group or memory; empty where it can."""
    problem, graph, kind = step.timeline.problem, step.bench.graph, step.cluster.devices[place].kind
    can = problem.allowed[group][:, problem.location == place].any(axis=1)
    column = [k for k, name in enumerate(graph.kinds) if name == kind]
    unable = group[~graph.runs_on[group][:, column].any(axis=1)]
    if op in unable:
        return f"kind: it has no kernel for a {kind}"
    if len(unable):
        return f"group: {shown(graph.names[unable[0]], 80)}, which shares its device, has no kernel for a {kind}"
    if not can.all():
        return "kind: what can run on an accelerator is planned on one"
    held, most = int(graph.param_bytes[group].sum()), int(problem.capacity[place])
    if held > most:
        return f"memory: variables of {size(held)} are more than its {size(most)}"
    return ""
