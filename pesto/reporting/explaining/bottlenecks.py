"""The parts of an explanation: a verified plan with waits and critical path, long ops, improvements, tied groups."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from pesto.choosing.whatif.grid import ClusterPoint, scale_cluster
from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.errors import InfeasibleError, InputError, describe_error
from pesto.core.graph import Graph
from pesto.core.plans.plan import PER_EDGE, Plan, verify
from pesto.core.quantities import duration
from pesto.core.settings import Settings
from pesto.core.simulator import Timeline
from pesto.planning.solving.candidates import CandidateEvaluator, formulate
from pesto.planning.solving.colocation_ties import LOOPS, find_ties, split_op
from pesto.reporting.explaining.name_scopes import name_scopes
from pesto.reporting.explaining.waits import COMPUTE_LEG, PathSegment, Waits, critical_path, explain_waits
from solvers import FORBIDDEN, Problem
from solvers.arrays import Ints, floats, ints
from solvers.bounds import quick_bounds
from solvers.timing.loop import Prepared, order_of
from solvers.timing.replay import idle_under, makespan, prepare

Price = Callable[[Cluster], Costs]
"""The costs of a graph on a cluster, also on one that is not the plan's."""
LONG = 0.005
"""Share of the step from which on an op of the path is long."""
MOST_BOTTLENECKS, MOST_TIES = 10, 5
"""Limits on the ops and the groups that are named."""
SCOPE, LINKS, DEVICES, MEMORY = ("scope", "links", "devices", "memory")
"""Kinds of changes: `Improvement.what`."""
MUCH = 0.05
"""Share of the work of all ops from which on a tied group is named."""


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
        """Verify a plan and return its step; raise the errors of `pesto.core.plans.plan.verify`."""
        per_edge = plan.provenance.transfers == PER_EDGE
        problem = formulate(graph, price(cluster), cluster, Settings(per_edge=per_edge), plan.pins)
        verify(plan, graph, problem, cluster)
        timeline = Timeline(problem=problem, schedule=plan.schedule)
        waits = explain_waits(timeline, plan.rank)
        scope_of, scopes = name_scopes(graph.names, plan.schedule.finish - plan.schedule.start)
        return cls(
            plan=plan, cluster=cluster, price=price, bench=CandidateEvaluator.of(graph, problem, per_edge=per_edge),
            timeline=timeline, waits=waits, path=critical_path(timeline, waits), scope_of=scope_of, scopes=scopes,
        )  # fmt: skip

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
        return ints(np.flatnonzero(np.isin(self.timeline.problem.location, self.cluster.accelerators)))

    def device_of(self, op: int) -> str:
        """Return the name of the cluster's device that an op is on."""
        return self.plan.lane_device[int(self.timeline.schedule.device[op])]

    def timed(self, prepared: Prepared) -> int:
        """Return the ticks of the same placement and order under other times."""
        return makespan(prepared, self.timeline.schedule.device, order_of(self.plan.rank))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """A long op of the critical path under which other accelerators idle; all ticks are of 1 ns."""

    op: str
    """Its name."""
    device: str
    """The device that it is on."""
    ticks: int
    """How long it takes."""
    idle_ticks: int
    """How long the other accelerators, all together, do nothing meanwhile."""
    parts: int
    """Over how many devices it could be split: accelerators that can run it, or processors of the host where none can.
    """
    split_saves_ticks: int
    """How much shorter the step is at most when it is split over these, everything else as it is (simulated)."""


def find_bottlenecks(step: ExplainedStep) -> tuple[Bottleneck, ...]:
    """Return the long ops of the path under which others idle, most idle time first; MOST_BOTTLENECKS at most."""
    ops = step.path_ops
    ops = ops[step.took[ops] >= max(1, LONG * step.makespan)]
    idle = idle_under(step.timeline.schedule, step.accelerator_lanes, ops)
    order = np.lexsort((ops, -step.took[ops], -idle))[:MOST_BOTTLENECKS]
    return tuple(
        Bottleneck(
            op=step.plan.names[op], device=step.device_of(op), ticks=int(step.took[op]), idle_ticks=idle_ticks,
            parts=len(_able(step, op)), split_saves_ticks=split_saves(step, [op]),
        )
        for op, idle_ticks in zip(ops[order].tolist(), idle[order].tolist(), strict=True)
        if idle_ticks > 0
    )  # fmt: skip


def split_saves(step: ExplainedStep, ops: Iterable[int]) -> int:
    """Return the ticks that the step is shorter at most when all of these ops are split over devices that can run them.

    Each takes the time of its largest part when parts are as its devices are fast, and the other parts take nothing
    where they are: so no way to split them with everything else as it is saves more.
    """
    g, lanes = step.bench.prepared, step.timeline.schedule.device
    duration = step.timeline.problem.duration.copy()
    saved = 0
    for op in ops:
        whole, ticks = duration[op, lanes[op]], duration[op, _able(step, op)]
        # Parts that end together take as long as all devices take side by side.
        part = 0 if (ticks == 0).any() else int(np.ceil(1.0 / (1.0 / floats(ticks)).sum() - 1e-6))
        duration[op, lanes[op]] = part
        saved += int(whole - part)
    return max(0, min(saved, step.makespan - step.timed(g._replace(duration=ints(duration)))))


def _able(step: ExplainedStep, op: int) -> Ints:
    """The accelerators' processors that can run an op; where none can, all that can."""
    can = np.flatnonzero(step.timeline.problem.duration[op] != FORBIDDEN)
    fast = np.intersect1d(can, step.accelerator_lanes)
    return fast if len(fast) else can


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """One change of a step, and what it comes to; all ticks are of 1 ns."""

    what: str
    """scope, links, devices or memory."""
    change: str
    """For people, such as "links twice as fast"."""
    step_ticks: int | None
    """The step of the same placement and order, or without a limit of memory of the solve's shortest candidate; None
    where a new device has no ops yet."""
    bound_ticks: int | None
    """Lower bound of the changed step in ticks; None if there is no such cluster."""
    detail: str
    """Subject of the numbers, in words."""


def find_improvements(step: ExplainedStep, costly: str | None) -> tuple[Improvement, ...]:
    """Evaluate every change; `costly` is the scope to make faster, None if nothing computes."""
    problem, rows = step.timeline.problem, []
    if costly is not None:
        inside = step.scope_of == step.scopes.index(costly)
        ticks = np.where(inside[:, None] & (problem.duration != FORBIDDEN), -(-problem.duration // 2), problem.duration)
        detail = f"its {int(inside.sum())} ops take half their time, forward and backward"
        faster = replace(problem, duration=ints(ticks))
        rows.append(_rerun(step, SCOPE, f"scope {costly} twice as fast", faster, detail))
    faster = replace(problem, transfer=ints(-(-problem.transfer // 2)))
    rows.append(_rerun(step, LINKS, "links twice as fast", faster, "latency and bandwidth of all links"))
    rows.append(_one_more_device(step))
    # Without a limit of memory: the best candidate of the solve, whether it fits or not.
    made = step.plan.provenance
    larger = {name: ticks for name, ticks in made.candidates_ticks.items() if not made.candidates_fit.get(name, True)}
    best = min(larger, key=lambda name: larger[name], default=None)
    detail = "every candidate of the solve fits"
    if best is not None:
        detail = f"of {len(larger)} candidates that do not fit the shortest is {best}, {duration(larger[best] * 1e-9)}"
    shortest, bound = min([step.makespan, *larger.values()]), quick_bounds.best(problem)[0]
    change = "no limit of memory"
    rows.append(Improvement(what=MEMORY, change=change, step_ticks=shortest, bound_ticks=bound, detail=detail))
    return tuple(rows)


def _rerun(step: ExplainedStep, what: str, change: str, problem: Problem, detail: str) -> Improvement:
    ticks, bound = step.timed(prepare(problem)), quick_bounds.best(problem)[0]
    return Improvement(what=what, change=change, step_ticks=ticks, bound_ticks=bound, detail=detail)


def _one_more_device(step: ExplainedStep) -> Improvement:
    """One accelerator more: the plan has no op on it, so that only the bound says what it could be worth."""
    kind = step.cluster.devices[step.cluster.accelerators[0]].kind
    change = f"one more {kind}"
    try:
        larger = scale_cluster(step.cluster, ClusterPoint(devices=len(step.cluster.accelerators) + 1))
        settings = Settings(per_edge=step.bench.per_edge)
        bound = quick_bounds.best(formulate(step.bench.graph, step.price(larger), larger, settings))[0]
    except (InputError, InfeasibleError) as refused:
        why = describe_error(refused, None).error
        return Improvement(what=DEVICES, change=change, step_ticks=None, bound_ticks=None, detail=f"not known: {why}")
    return Improvement(what=DEVICES, change=change, step_ticks=None, bound_ticks=bound, detail="no op is on it yet")


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedGroup:
    """Ops that share a device, whatever a plan would gain otherwise; all ticks are of 1 ns."""

    op: str
    """Its op that takes longest; the branch or loop that ties it, where there is one."""
    device: str
    """Where the plan has it."""
    ops: int
    """How many ops."""
    variables: int
    """How many variables these hold."""
    bytes: int
    """Bytes of these variables."""
    ticks: int
    """Ticks that its ops compute on that device."""
    work_share: float
    """Share of the compute ticks of all ops."""
    free_bound_ticks: int
    """Lower bound in ticks if each op of the group were free; for a branch, if each variable had a piece of it."""
    gain_ticks: int
    """How much shorter than this plan the step could be then at most, by that bound."""
    remedy: str
    """Remedy; empty where no general one exists."""


def find_tied_groups(step: ExplainedStep) -> tuple[TiedGroup, ...]:
    """Return the groups that hold several variables and half the bytes of all, or much work.

    The group with most work comes first; there are MOST_TIES at most.
    """
    graph, problem = step.bench.graph, step.timeline.problem
    ties = {graph.names.index(tie.op): tie for tie in find_ties(graph, problem, step.makespan, timed=False)}
    inside = np.flatnonzero(problem.group >= 0)
    count = int(problem.group.max(initial=-1)) + 1
    held, work, variables = (np.zeros(count, dtype=np.int64) for _ in range(3))
    np.add.at(held, problem.group[inside], graph.param_bytes[inside])
    np.add.at(work, problem.group[inside], step.took[inside])
    np.add.at(variables, problem.group[inside], graph.param_bytes[inside] > 0)
    much = work >= max(1.0, MUCH * float(step.took.sum()))
    many = (variables > 1) & (2 * held >= max(1, int(graph.param_bytes.sum())))
    large = np.flatnonzero((np.bincount(problem.group[inside], minlength=count) > 1) & (much | many))
    result = []
    for k in large[np.lexsort((large, -held[large], -work[large]))][:MOST_TIES].tolist():
        member = np.flatnonzero(problem.group == k)
        op = next((op for op in ties if op in member), int(member[np.argmax(step.took[member])]))
        tie = ties.get(op)
        if tie and tie.type not in LOOPS:
            freed = split_op(graph, problem, op)
        else:
            group = problem.group.copy()
            group[member] = -1
            freed = replace(problem, group=ints(group))
        ticks, bound = int(work[k]), quick_bounds.best(freed)[0]
        result.append(
            TiedGroup(
                op=graph.names[op], device=step.device_of(op), ops=len(member), variables=int(variables[k]),
                bytes=int(held[k]), ticks=ticks, work_share=ticks / max(1, int(step.took.sum())),
                free_bound_ticks=bound, gain_ticks=max(0, step.makespan - bound), remedy=tie.remedy if tie else "",
            )
        )  # fmt: skip
    return tuple(result)
