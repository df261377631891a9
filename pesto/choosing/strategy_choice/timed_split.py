"""Splits of a step on a cluster, each timed by the simulator that times all plans.

A board is the accelerators that are near each other, as a cluster of their own with all hosts.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from pesto.core.costs.analytical import model_costs
from pesto.core.costs.presets import device_preset
from pesto.core.errors import InfeasibleError, NothingFoundError, PestoError, UsageError
from pesto.core.graph import Graph
from pesto.core.problem import TICK_S, build_problem
from pesto.core.quantities import size
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, formulate
from pesto.split.geometry import Shape
from pesto.split.program import Prices, Rules
from pesto.split.split_search import Split, divide, first_cuts, parse_factors
from pesto.split.typed_graph import TypedGraph
from pesto.split.worker_parts import build_split_step, build_worker_parts
from solvers.heuristics.devices_of_location import devices_at

NEAR = 2.01
"""Multiple of the fastest path's seconds per byte beyond which a device is on another board."""


def accelerators_of(cluster: Cluster) -> tuple[str, ...]:
    """Return the names of the devices that workers are put on."""
    return tuple(cluster.devices[at].name for at in cluster.accelerators)


def board_size(cluster: Cluster) -> int:
    """Return how many accelerators the first sends to at half of its best speed or faster, rounded to divide all."""
    first, *others = cluster.accelerators
    speeds = [s_per_byte(cluster, first, other) for other in others]
    near = 1 + sum(speed <= NEAR * min(speeds) for speed in speeds)
    return max(k for k in range(1, near + 1) if (1 + len(others)) % k == 0)


def first_board(cluster: Cluster, costs: Costs) -> tuple[Cluster, Costs] | None:
    """Return the first accelerator and, one by one, the nearest to all in it, with op times; None where all are near.

    Devices keep their names.
    """
    count, fast = board_size(cluster), cluster.accelerators
    if count in (1, len(fast)):
        return None
    near, left = fast[:1], fast[1:]
    while len(near) < count:
        near.append(min(left, key=lambda other: sum(s_per_byte(cluster, a, other) for a in near)))
        left.remove(near[-1])
    kept = [at for at in range(len(cluster.devices)) if at in near or at not in fast]
    smaller = replace(
        cluster,
        name=f"{cluster.name}, one board",
        devices=tuple(cluster.devices[at] for at in kept),
        paths=tuple(tuple(cluster.paths[a][b] for b in kept) for a in kept),
    )
    launch_s = None if costs.launch_s is None else costs.launch_s[:, kept]
    return smaller, replace(costs, compute_s=costs.compute_s[:, kept], launch_s=launch_s)


def s_per_byte(cluster: Cluster, a: int, b: int) -> float:
    """Return seconds of each byte from device to device; 0 where there is no path."""
    path = cluster.paths[a][b]
    return 0.0 if path is None else path.s_per_byte


SECONDS = "seconds"
"""The objective that weighs messages and ops beside bytes."""
_AGAIN = 2.0
"""Maximum time of a cut for seconds, as a multiple of that of the cut for bytes."""
QUICK_S = 1.0
"""Seconds that a quick split may take once the time is over."""
_LEAST_S_PER_BYTE = 1e-15
"""Seconds per byte where links send at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimedSplit:
    """A split, with its step as a graph of its own, and that graph's run."""

    split: Split
    bench: CandidateEvaluator
    """Evaluator of the step: each part an op, pinned to its worker's device (`pesto.split.worker_parts`)."""
    costs: Costs
    """Modelled, whatever the whole step's costs are: nobody has measured the parts."""
    candidate: Candidate
    """In list order; where that needs more memory than there is and first in, first out does not, the latter."""
    proof: str
    """Reason why no order of it can fit the memory; empty where one may."""
    devices: tuple[str, ...]
    """[l] names of the cluster's devices."""
    sent_bytes: int
    """Bytes that all accelerators receive in a step; of a partial split also for what is placed whole."""

    @property
    def makespan_s(self) -> float:
        """Predicted seconds of the step."""
        return self.candidate.makespan * TICK_S

    @property
    def peak_bytes(self) -> dict[str, int]:
        """Most bytes alive on each device, by its name."""
        return dict(zip(self.devices, self.candidate.peak.tolist(), strict=True))


def factorings(workers: int) -> tuple[Shape, ...]:
    """Return the cuts that are tried for so many accelerators: one for all, one a prime factor, one for some of them.

    UsageError for fewer than two.
    """
    if workers < 2:
        raise UsageError.build("a split needs two accelerators", remedy="give a cluster with more")
    primes, left, k = list[int](), workers, 2
    while left > 1:
        while left % k == 0:
            primes.append(k)
            left //= k
        k += 1
    fewer = [(k,) for k in range(workers - 1, 1, -1) if workers % k == 0 and (k,) != tuple(primes[:1])]
    return tuple(dict.fromkeys([(workers,), tuple(primes), *fewer]))


def cut_and_time(
    step: tuple[Graph, TypedGraph], factors: Shape, cluster: Cluster, settings: Settings, *, seconds: float
) -> Iterator[tuple[TimedSplit, ...]]:
    """Yield a step cut to send least, then also cut to take least; with the first cuts alone, all timed.

    Of each number of cuts the shortest so far. seconds: for all cuts; those to take least have what is left of it, and
    no more than _AGAIN times what the others took; in deterministic settings as much again. Where that leaves no time
    for them, the quick cut along the batch (data parallelism) is timed in their place. Errors as of `divide`, of the
    cuts to send least.
    """
    began, fixed, (graph, shaped) = time.monotonic(), settings.deterministic, step
    split = divide(shaped, factors, "exact", Rules(), seconds=seconds, deterministic=fixed)
    result = list(time_with_first_cuts(step, split, cluster, settings))
    yield tuple(result)
    took = time.monotonic() - began
    left = seconds if fixed else min(seconds - took, _AGAIN * took)
    with suppress(PestoError):
        if left > 0:
            rules = priced_rules(graph, cluster, prod(factors))
            split = divide(shaped, factors, "exact", rules, seconds=left, deterministic=fixed)
        else:
            split = divide(shaped, factors, "data-parallel", Rules(), seconds=QUICK_S)
        result += time_with_first_cuts(step, split, cluster, settings)
    by_factors = defaultdict[Shape, list[TimedSplit]](list)
    for timed in result:
        by_factors[timed.split.division.factors].append(timed)
    yield tuple(map(quickest, by_factors.values()))


def time_with_first_cuts(
    step: tuple[Graph, TypedGraph], split: Split, cluster: Cluster, settings: Settings
) -> tuple[TimedSplit, ...]:
    """Return a split's step, and those of its first cuts alone, on as few accelerators as these are for."""
    graph, shaped = step
    count = len(split.division.factors)
    fewer = [first_cuts(shaped, split, cuts) for cuts in range(1, count)] if len(split.cuts) == count else []
    return tuple(time_split(graph, shaped, each, cluster, settings) for each in (split, *fewer))


def time_split(graph: Graph, shaped: TypedGraph, split: Split, cluster: Cluster, settings: Settings) -> TimedSplit:
    """Return a split's step on a cluster, worker w on its w-th accelerator.

    Accelerators are taken as the cluster lists them, so the outermost cut goes between boards where boards are listed
    one after the other. UsageError where there are fewer than workers.
    """
    step = build_split_step(graph, build_worker_parts(shaped, split.division), accelerators_of(cluster))
    costs = model_costs(step, cluster)
    bench, proof = formulate_any(step, costs, cluster, settings)
    name = f"split {'x'.join(map(str, split.division.factors))}"
    cuts = f"{split.method} cuts{' for seconds' if split.rules.prices else ''}"
    candidate = run_pinned(bench, name, f"{cuts}, in list order")
    if not candidate.fits and not proof:
        other = replace(bench.unordered(candidate), rule=f"{cuts}, first in, first out")
        candidate = other if other.fits else candidate
    return TimedSplit(
        split=split, bench=bench, costs=costs, candidate=candidate, proof=proof,
        devices=tuple(device.name for device in cluster.devices), sent_bytes=split.moved_bytes,
    )  # fmt: skip


def formulate_any(graph: Graph, costs: Costs, cluster: Cluster, settings: Settings) -> tuple[CandidateEvaluator, str]:
    """Return an evaluator of the graph's placements, and the proof that none fits the memory: empty where one may."""
    try:
        problem, proof = formulate(graph, costs, cluster, settings), ""
    except InfeasibleError as infeasible:
        problem, proof = build_problem(graph, costs, cluster, memory=graph.param_bytes), str(infeasible)
    return CandidateEvaluator.of(graph, problem), proof


def run_pinned(bench: CandidateEvaluator, name: str, rule: str) -> Candidate:
    """Return the run of a graph of pinned ops in list order."""
    return bench.placed(name, rule, devices_at(bench.problem, np.zeros(bench.problem.tasks, dtype=np.int64)))


def quickest(splits: Sequence[TimedSplit]) -> TimedSplit:
    """Return the shortest step among those that fit; among those that lack least memory where none does."""
    return min(splits, key=lambda timed: (max(0, timed.candidate.short), timed.candidate.makespan))


def priced_rules(graph: Graph, cluster: Cluster, workers: int) -> Rules:
    """Return rules by which a step is cut to take few seconds on a cluster's first accelerators, all modelled."""
    fast = cluster.accelerators[:workers]
    paths = [path for a in fast for b in fast if (path := cluster.paths[a][b]) is not None and a != b]
    per_byte = max([path.s_per_byte for path in paths], default=0.0) or _LEAST_S_PER_BYTE
    took = np.nan_to_num(model_costs(graph, cluster).compute_s[:, fast]).max(axis=1)
    some, at_once = took[took > 0], max(1, workers - 1)
    start = float(np.percentile(some, 25)) if len(some) else 0.0
    feed_s, copy_s = feed_s_per_byte(cluster, fast)
    prices = Prices(
        unit_s=per_byte / (workers * at_once),
        message=round(max((path.latency_s for path in paths), default=0.0) / per_byte),
        kernel=round(at_once * start / per_byte),
        ops=tuple(np.round(at_once * took / per_byte).astype(np.int64).tolist()),
        feed=workers * at_once * feed_s / per_byte,
        cut_out=workers * at_once * copy_s / per_byte,
    )
    return Rules(redundant=True, prices=prices)


def feed_s_per_byte(cluster: Cluster, fast: Sequence[int]) -> tuple[float, float]:
    """Return seconds a byte from the nearest host to the farthest accelerator, and for a copy on a host first.

    Zeros where no host is apart from the accelerators.
    """
    hosts = [at for at, device in enumerate(cluster.devices) if device.kind == "cpu" and at not in fast]
    paths = [[path.s_per_byte for host in hosts if (path := cluster.paths[host][at]) is not None] for at in fast]
    cores = [device_preset(cluster.devices[host]) for host in hosts]
    copied = [2 / (core.bandwidth * core.bandwidth_efficiency) for core in cores]  # read and written
    return max((min(each) for each in paths if each), default=0.0), max(copied, default=0.0)


def shortfall(candidate: Candidate, cluster: Cluster) -> str:
    """Return which device lacks how much."""
    over = [(int(peak) - d.memory_bytes, d.name) for peak, d in zip(candidate.peak, cluster.devices, strict=True)]
    most, name = max(over)
    return f"{name} lacks {size(most)}"


def cut_along_batch(
    step: tuple[Graph, TypedGraph], cluster: Cluster, settings: Settings, *, seconds: float
) -> TimedSplit:
    """Return data parallelism on all accelerators: a replica on each, with its share of the batch and whole variables.

    Each variable's gradients are added up on their replica first; then each replica sums its share of the gradient from
    all of them, and all shares are sent to all. UsageError or NothingFoundError where the batch does not divide.
    """
    graph, shaped = step
    factors = (len(accelerators_of(cluster)),)
    split = divide(shaped, factors, "data-parallel", Rules(), seconds=seconds, deterministic=settings.deterministic)
    return time_split(graph, shaped, split, cluster, settings)


def check_objective(objective: str, rules: Rules, cluster: Cluster | None) -> None:
    """Raise UsageError for seconds without a cluster, or with what counts bytes."""
    if objective == SECONDS and cluster is None:
        raise UsageError.build(
            "seconds: on which machine?", remedy="give a cluster too, or leave the objective at bytes"
        )
    if objective == SECONDS and (rules.halo or rules.memory_bytes is not None):
        raise UsageError.build(
            "a halo and a limit of memory count bytes", remedy="leave them out, or the objective at bytes"
        )


def rules_for(rules: Rules, objective: str, on: tuple[Graph | None, Cluster | None], workers: int) -> Rules:
    """Return the rules, with prices of a step on a cluster where seconds are the objective."""
    graph, cluster = on
    if objective != SECONDS or graph is None or cluster is None:
        return rules
    return replace(priced_rules(graph, cluster, workers), replicate=rules.replicate)


def accelerators_for(workers: int, cluster: Cluster, source: Source) -> Cluster:
    """Return the cluster to time a split on; UsageError for too few accelerators, or where there are only shapes."""
    if not source.has_shapes:
        raise UsageError.build(
            "shapes alone cannot be timed", where=source.file, remedy="name the step itself, or no cluster"
        )
    many = len(cluster.accelerators)
    if workers > many:
        raise UsageError.build(
            f"{workers} workers, {cluster.name} has {many} accelerators", remedy="give fewer, or another cluster"
        )
    return cluster


def refuse_short(clocked: TimedSplit, machine: Cluster) -> None:
    """Raise InfeasibleError, or NothingFoundError, for a split that does not fit, with the bytes that lack."""
    remedy = "give more workers, larger devices or a smaller batch"
    if clocked.proof:
        raise InfeasibleError.build(f"{clocked.proof}, cut as it is", remedy=remedy)
    raise NothingFoundError.build(f"the split does not fit: {shortfall(clocked.candidate, machine)}", remedy=remedy)


RUNS_ALONE = "a split cuts them into parts and runs as a program of its own, beside no plan"
"""Why no split is made beside the plan of another step."""
AUTO = "auto"
"""All cuts for all accelerators."""


def named_cuts(words: str) -> tuple[Shape, ...]:
    """Return the cuts of words such as 2x2,4, each once; none of `AUTO`; UsageError for what is no cut."""
    if words == AUTO:
        return ()
    return tuple(dict.fromkeys(parse_factors(word.strip()) for word in words.split(",")))


def cuts_of(words: str, cluster: Cluster) -> tuple[Shape, ...]:
    """Return the cuts for a cluster; UsageError for what is no cut, or needs more accelerators than there are."""
    many = len(cluster.accelerators)
    result = named_cuts(words) or factorings(many)
    for factors in result:
        if prod(factors) > many:
            cut = "x".join(map(str, factors))
            raise UsageError.build(
                f"the cut {cut} is for {prod(factors)} workers, {cluster.name} has {many} accelerators",
                remedy="give fewer, or another cluster",
            )
    return result
