"""A plan run elsewhere: its placement and order on another cluster, on other costs, or with launches as ops.

Launches as ops are Pesto's kernel ops (section 3.2.1), in the plan's placement and order.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.costs.analytical import LaunchCost, split_launches
from pesto.core.errors import InputError, UsageError, VerificationError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.memory import footprint
from pesto.core.plans.execution_modes import ModePrediction, predict_intended_mode, predict_mode
from pesto.core.plans.plan import PER_EDGE, Plan, check_ranks, refuse_another_graph
from pesto.core.problem import TICK_S, add_launches, lanes
from pesto.core.quantities import duration, percent, plural
from pesto.core.settings import Settings
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, formulate
from pesto.planning.solving.trust import ErrorModel, Trust, measure_trust, remake_candidates
from solvers import Problem, Schedule
from solvers.arrays import Floats, Ints, floats
from solvers.memory.usage import over_time
from solvers.timing.replay import replay


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchedStep:
    """A step whose launches run on the host, one at a time for each accelerator, ahead of the kernels; modelled."""

    problem: Problem
    """Inside: the step with a task for each launch, behind its ops."""
    schedule: Schedule
    """Inside: when each op and launch runs, in ticks."""
    busiest_s: float
    """Seconds of all launches for the accelerator that takes the most."""
    inside_s: float
    """Seconds of the step with launches inside the ops' own times."""
    count: int
    """Ops that are launched."""
    source: str
    """Source of the launch times, for people."""

    @property
    def makespan_s(self) -> float:
        """Seconds of the step."""
        return self.schedule.makespan * TICK_S

    def __str__(self) -> str:
        """Describe the predicted step time and its cause in one line."""
        change = self.makespan_s / self.inside_s - 1.0 if self.inside_s else 0.0
        busy = percent(self.busiest_s / self.makespan_s) if self.makespan_s else "0%"
        return (
            f"{duration(self.makespan_s)} ({change:+.2%}), modelled: {plural(self.count, 'op')} launched "
            f"({self.source}), which takes the host up to {duration(self.busiest_s)} for one device, {busy} of the step"
        )


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation:
    """A predicted step: when everything runs, on modelled or measured costs; links are first come, first served."""

    cluster: Cluster
    """Where the step runs."""
    bench: CandidateEvaluator
    """Inside: the problem in ticks, with what it is measured with."""
    run: Candidate
    """Placement, order and timeline; `run.timeline.schedule` has the ticks of each op and transfer."""
    costs_note: str = ""
    """Omissions of the op times, as `Costs.said` has them."""
    order: bool = True
    """True if the order is to be enforced; otherwise the framework's first in, first out is predicted."""
    costs: Costs | None = None
    """Inside: what the problem in ticks was made of; None where launches cannot be told from it."""
    trust: Trust | None = None
    """The step and its best rivals where times are wrong; None where that was not asked for."""

    def __repr__(self) -> str:
        """One line, without arrays."""
        where = f"{plural(self.bench.graph.ops, 'op')} on {shown(self.cluster.name, 24)}"
        fits = "fits" if self.fits else "does not fit"
        return f"Simulation({where}, {duration(self.makespan_s)} predicted, {fits} the memory)"

    @property
    def makespan_s(self) -> float:
        """Predicted seconds of the step."""
        return self.run.timeline.makespan_s

    @property
    def fits(self) -> bool:
        """True if the bytes alive on every device are always within its memory."""
        return self.run.fits

    @property
    def busy_s(self) -> dict[str, float]:
        """Seconds that each device computes; a host's are summed over its cores."""
        problem = self.bench.problem
        busy = np.bincount(problem.location, weights=self.run.timeline.busy_s, minlength=problem.locations)
        return self._by_device(busy.tolist())

    @property
    def peak_bytes(self) -> dict[str, int]:
        """Most bytes alive on each device."""
        return self._by_device(self.run.peak.tolist())

    @property
    def transfers(self) -> int:
        """Number of transfers."""
        return len(self.run.timeline.schedule.sent_payload)

    @property
    def sent_s(self) -> float:
        """Seconds of all transfers, summed."""
        sent = self.run.timeline.schedule
        return float((sent.sent_finish - sent.sent_start).sum() * TICK_S)

    def bytes_alive(self) -> dict[str, tuple[Floats, Ints]]:
        """Return by device [k] seconds, ascending, and [k] bytes held from then on (docs/concepts/memory.md)."""
        held = footprint(self.bench.graph, per_edge=self.bench.per_edge)
        curves = over_time(self.bench.problem, held, self.run.timeline.schedule)
        return self._by_device([(floats(ticks * TICK_S), level) for ticks, level in curves])

    def enforced(self, way: str) -> ModePrediction:
        """Return the step with what of the order a way of running enforces: session, function, graphdef or placement.

        UsageError for another way, and where the graph does not say which ops have no place in the order.
        """
        return predict_mode(self.bench.graph, self.run.timeline, self.run.rank, way=way)

    def as_meant(self) -> ModePrediction | None:
        """`enforced` in the way in which the step is meant to be run; None where the graph does not say which."""
        return predict_intended_mode(self.bench.graph, self.run.timeline, self.run.rank, order=self.order)

    def launched(self, each_s: float | None = None) -> LaunchedStep:
        """Return the step with launches as ops of their own, which a host runs ahead of the kernels (Pesto, 3.2.1).

        each_s: seconds of one launch; where left out what a profile measured, else the devices' own time of a launch.
        UsageError for seconds out of range.
        """
        if self.costs is None:
            raise UsageError.build("the simulation has no costs to part launches from", remedy="give it some")
        bench, run = self.bench, self.run
        apart = split_launches(bench.graph, self.cluster, self.costs, LaunchCost(each_s=each_s))
        problem, op = add_launches(bench.problem, bench.graph, self.cluster, apart)
        # [n + k] device of the ops, then of their launches: the last one at the location of each. For each accelerator
        # they run in the order of its ops.
        device = run.timeline.schedule.device
        last = np.zeros(problem.locations, dtype=np.int64)
        last[problem.location] = np.arange(problem.devices)
        device = np.concatenate([device, last[problem.location[device[op]]]])
        schedule = replay(problem, device, np.concatenate([2 * run.rank + 1, 2 * run.rank[op]]))
        took = (schedule.finish - schedule.start)[bench.problem.tasks :]
        busy = np.bincount(device[bench.problem.tasks :], weights=took, minlength=problem.devices)
        return LaunchedStep(
            problem=problem, schedule=schedule, busiest_s=float(busy.max()) * TICK_S,
            inside_s=run.timeline.makespan_s, count=len(op), source=apart.source,
        )  # fmt: skip

    def _by_device(self, values: list[T]) -> dict[str, T]:
        return {device.name: value for device, value in zip(self.cluster.devices, values, strict=True)}


def evaluator_of(graph: Graph, cluster: Cluster, costs: Costs, *, per_edge: bool) -> CandidateEvaluator:
    """Return an evaluator of placements and orders of the graph on the cluster."""
    return CandidateEvaluator.of(
        graph, formulate(graph, costs, cluster, Settings(per_edge=per_edge)), per_edge=per_edge
    )


def add_trust(simulation: Simulation, errors: ErrorModel | None) -> Simulation:
    """Add `trust`, against the quick candidates of a solve, which are made anew; nothing without errors.

    Where the plan leaves the order to the framework, so do they.
    """
    if errors is None:
        return simulation
    bench, cluster = simulation.bench, simulation.cluster
    rivals = (each if simulation.order else bench.unordered(each) for each in remake_candidates(bench, cluster))
    return replace(
        simulation, trust=measure_trust(bench, cluster, simulation.run, rivals, errors, order=simulation.order)
    )


def rerun(plan: Plan, graph: Graph, cluster: Cluster, costs: Costs) -> Simulation:
    """Return a plan's placement and order, run on a cluster that has the devices which it uses.

    MismatchError when the plan is of another graph, InputError when the cluster lacks a device, InfeasibleError when
    the variables cannot fit it, VerificationError when an op cannot run where it is, or before what it needs.
    """
    bench = evaluator_of(graph, cluster, costs, per_edge=plan.provenance.transfers == PER_EDGE)
    refuse_another_graph(plan, graph)
    index = {name: k for k, (name, _) in enumerate(lanes(cluster))}
    used = [plan.lanes[d] for d in np.unique(plan.schedule.device)]
    missing = sorted(set(used) - set(index))
    if missing:
        raise InputError.build(f"the cluster has no {missing[0]}, which the plan uses", remedy="give one that has")
    device = np.array([index.get(name, -1) for name in plan.lanes])[plan.schedule.device]
    # What no cluster and no costs would make right: ops that cannot run where they are, split groups, ranks.
    problem, names = bench.problem, bench.graph.names
    unable = np.flatnonzero(~problem.allowed[np.arange(problem.tasks), device])
    member = np.flatnonzero(problem.group >= 0)
    home = np.full(int(problem.group.max(initial=-1)) + 1, -1)
    home[problem.group[member]] = problem.location[device[member]]
    split = member[home[problem.group[member]] != problem.location[device[member]]]
    wrong = [f"device: op {shown(names[op])} cannot run there" for op in unable[:1]]
    wrong += [f"group: op {shown(names[op])} is not where its group is" for op in split[:1]]
    wrong = wrong or check_ranks(plan, problem)
    if wrong:
        raise VerificationError.build(f"the plan is invalid: {wrong[0]}", remedy="solve again")
    run = bench.ordered("plan", "as planned", device, plan.rank)
    run = bench.unordered(run) if plan.placement_only else run
    return Simulation(
        cluster=cluster, bench=bench, run=run, order=not plan.placement_only, costs_note=costs.said, costs=costs
    )
