"""Peaks of memory that plans predict, held against TensorFlow's own allocator on two logical CPU devices.

    python benchmarks/allocator.py [model ...] [--variant tiny] [--steps 15] [--seed 1]

For each model's tiny variant and each of some plans: the peak of each device as the plan predicts it, the allocator's
(the median of the quickest third of the traced steps, which other programs disturbed least), and their ratio. Three
times over: free, with each device's order enforced as `pesto run` does; pinned, where moreover no op starts before
what the plan has ended by then on the other device; and at the free run's own times, where only the memory model can
be wrong. Rows with `tensors` leave the kernels' scratch out on both sides. Op times and the latency of a crossing are
those of traced runs of the same kind, since the plan is to predict these. A device that holds nothing in either is
listed and has no ratio. Errors are |predicted / allocated - 1|.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.costs.analytical import model_costs
from pesto.core.costs.measured import apply_profile
from pesto.core.graph import Graph
from pesto.core.memory import measure
from pesto.core.plans.plan import Plan
from pesto.core.problem import TICK_S
from pesto.core.settings import Settings
from pesto.core.simulator import Timeline
from pesto.core.source import Source
from pesto.inputs.cluster_file import load_cluster
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, formulate
from pesto.planning.solving.quick_candidates import baselines
from pesto.planning.solving.tracker import SolveRecord, make_plan
from solvers.arrays import Ints
from solvers.bounds.evidence import FullBound
from solvers.heuristics.methods import PLACERS
from solvers.result import Options
from solvers.schedule import Schedule

PLACED = ("round-robin", "random")
WAYS = ("free", "pinned", "own times")


@dataclass(frozen=True)
class PeakRow:
    """One device of one plan, measured in one way."""

    model: str
    plan: str
    device: str
    scratch: bool
    way: str
    predicted: int
    allocated: int

    @property
    def error(self) -> float | None:
        """Relative; None where neither holds anything."""
        if not self.allocated:
            return None if not self.predicted else float("inf")
        return abs(self.predicted / self.allocated - 1)


def main() -> None:
    """Print the table, then mean and worst error of each way."""
    from pesto.tf.tensorflow_start import load_tensorflow

    load_tensorflow()
    from pesto.tf.models import FAMILIES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--variant", default="tiny")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    every = [f.name for f in FAMILIES if asked.variant in f.variants]
    print(
        "| model | plan | device | what | way | predicted | allocated | ratio |\n|---|---|---|---|---|---:|---:|---:|"
    )
    rows = []
    for name in asked.models or every:
        for row in compared(name, asked):
            rows.append(row)
            ratio = "-" if row.error is None else f"{row.predicted / max(1, row.allocated):.3f}"
            what = "all" if row.scratch else "tensors"
            print(
                f"| {row.model} | {row.plan} | {row.device} | {what} | {row.way} | {row.predicted} | {row.allocated} "
                f"| {ratio} |",
                flush=True,
            )
    summary(rows)


def summary(rows: list[PeakRow]) -> None:
    """Mean and worst error by way and by what is counted."""
    for way in WAYS:
        for scratch in (True, False):
            errors = [row.error for row in rows if row.way == way and row.scratch == scratch and row.error is not None]
            if errors:
                what = "all" if scratch else "tensors"
                print(f"{way}, {what}: {len(errors)} peaks, mean error {mean(errors):.2%}, worst {max(errors):.2%}")


def compared(name: str, asked: Any) -> Iterator[PeakRow]:
    """The rows of one model."""
    from benchmarks.allocator.workspaces import workspaces
    from pesto.core.costs.disturbance import DisturbanceWatch
    from pesto.tf import named_sources
    from pesto.tf.importer.shapes import resolve_shapes
    from pesto.tf.run import profiler
    from pesto.tf.sources import sources

    graph, step = named_sources.load_runnable(Source(model=name, variant=asked.variant))
    cluster = load_cluster("cpux2")
    profile = profiler.profile(graph, step, iterations=20, watch=DisturbanceWatch(keep=True))
    scratch = workspaces(graph, resolve_shapes(sources.capture_v1(step.graph, step.fetches), None))
    costs = apply_profile(graph, cluster, profile, model_costs(graph, cluster))
    costs, cluster = as_traced(graph, step, costs, cluster, asked)
    for candidate, plan in plans(graph, costs, cluster, asked.seed):
        for way, devices in ways(graph, step, candidate.timeline, plan, asked.steps, scratch):
            for (device, counted), (predicted, allocated) in devices.items():
                yield PeakRow(name, candidate.name, device, counted, way, predicted, allocated)


def as_traced(graph: Graph, step: Any, costs: Costs, cluster: Cluster, asked: Any) -> tuple[Costs, Cluster]:
    """Op times and latency as traced runs have them here: a trace costs time, and a crossing wakes a thread up."""
    from benchmarks.allocator.allocations import trace
    from benchmarks.allocator.retimed import retimed

    made = {candidate.name: (candidate, plan) for candidate, plan in plans(graph, costs, cluster, asked.seed)}

    def runs(name: str) -> list[Schedule]:
        candidate, plan = made[name]
        traced = trace(step, plan, steps=asked.steps)
        return [retimed(traced, stats, graph, candidate.timeline).schedule for stats in quickest(traced)]

    took = np.median([s.finish - s.start for s in runs("single")], axis=0)
    maker = made["round-robin"][0].timeline.problem.producer
    latency = np.median([s.sent_finish - s.finish[maker[s.sent_payload]] for s in runs("round-robin")]) * TICK_S
    paths = tuple(tuple(p and replace(p, latency_s=float(latency)) for p in row) for row in cluster.paths)
    print(f"{graph.source}: median latency {latency * 1e6:.1f} us, ops {took.sum() * 1e-3:.0f} us", file=sys.stderr)
    return replace(costs, compute_s=np.repeat(took[:, None] * TICK_S, 2, axis=1)), replace(cluster, paths=paths)


def plans(graph: Graph, costs: Costs, cluster: Cluster, seed: int) -> Iterator[tuple[Candidate, Plan]]:
    """Single, expert and list, and the placements named in PLACED, in list order."""
    settings = Settings()
    problem = formulate(graph, costs, cluster, settings)
    bench, result = CandidateEvaluator.of(graph, problem), dict[str, Candidate]()
    for made in baselines(bench, cluster):
        known = result.get(made.name)
        if known is None or (not made.fits, made.makespan) < (not known.fits, known.makespan):
            result[made.name] = made
    for name in PLACED:
        placement = PLACERS[name].load()(problem, Options(seconds=10, seed=seed))
        result[name] = bench.placed(name, PLACERS[name].source, placement.device)
    record = SolveRecord(graph=graph, cluster=cluster, costs=costs, settings=settings, bound=FullBound(0, "none"))
    for candidate in result.values():
        yield candidate, make_plan(record, candidate, result)


Peaks = dict[tuple[str, bool], tuple[int, int]]
"""(device, whether scratch counts) -> (predicted, allocated)."""


def ways(
    graph: Graph, step: Any, timeline: Timeline, plan: Plan, steps: int, scratch: Ints
) -> Iterator[tuple[str, Peaks]]:
    """Each way, and the peaks that were predicted and found in it."""
    from benchmarks.allocator.allocations import trace
    from benchmarks.allocator.retimed import retimed

    free = trace(step, plan, steps=steps)
    yield "free", peaks(graph, free, quickest(free), timeline, scratch)
    pinned = trace(step, plan, steps=steps, pinned=True)
    yield "pinned", peaks(graph, pinned, quickest(pinned), timeline, scratch)
    one = quickest(free)[0]
    yield "own times", peaks(graph, free, (one,), retimed(free, one, graph, timeline), scratch)


def quickest(traced: Any) -> list[Any]:
    """The third of the traced steps that took least time."""
    return sorted(traced.steps, key=_nanoseconds)[: max(1, len(traced.steps) // 3)]


def _nanoseconds(stats: Any) -> int:
    entries = [e for device in stats.dev_stats for e in device.node_stats]
    first = min(e.all_start_nanos for e in entries)
    return max(e.all_start_nanos + e.all_end_rel_nanos for e in entries) - first


def peaks(graph: Graph, traced: Any, steps: list[Any], timeline: Timeline, scratch: Ints) -> Peaks:
    """Of each device, with and, where a kernel needs some, without scratch."""
    from benchmarks.allocator.allocations import held

    result = {}
    for counted in (True, False) if scratch.any() else (True,):
        peak = measure(graph, timeline, scratch=scratch if counted else None).peak.tolist()
        for device, predicted in zip(traced.targets, peak, strict=True):
            allocated = median(held(traced, stats, device, scratch=counted).peak for stats in steps)
            result[device, counted] = (predicted, int(allocated))
    return result


if __name__ == "__main__":
    sys.exit(main())
