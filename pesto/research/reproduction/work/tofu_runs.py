"""Tofu's own experiments: its models cut among eight workers, and what that is held to."""

import heapq
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from pesto.choosing.strategy_choice.timed_split import time_split
from pesto.core.cluster import Cluster
from pesto.core.errors import InfeasibleError
from pesto.core.graph import Graph
from pesto.core.problem import TICK_S, StepOnCluster, build_problem
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.load import load_costs, load_shaped
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator, formulate
from pesto.planning.solving.quick_candidates import (
    accelerators,
    fill_from_neighbours,
    framework_default,
    layers_of,
    unify_groups,
)
from pesto.research.reproduction.cached_cells import CellSettings, Found, Key, machine
from pesto.split.program import Rules
from pesto.split.split_search import Split, divide
from pesto.split.typed_graph import TypedGraph
from solvers import Problem
from solvers.arrays import Ints, rank_of
from solvers.heuristics.devices_of_location import devices_at

# An order of a step's ops that holds little memory: as they were built, but what frees memory at once.


def lean_order(graph: Graph) -> Ints:
    """[n] position of each op: of those that are ready, what leaves less memory than before, else the first built.

    What an op makes is alive until the last that reads it, wherever that is. O(e log n).
    """
    reads, readers, after, waiting = _edges(graph)
    made = np.bincount(graph.tensor_op, weights=graph.tensor_bytes, minlength=graph.ops).astype(np.int64).tolist()
    size, left, order = graph.tensor_bytes.tolist(), readers.copy(), list[int]()

    def growth(op: int) -> int:
        return int(made[op]) - sum(size[tensor] for tensor in reads[op] if left[tensor] == 1)

    built, freeing = [op for op in range(graph.ops) if not waiting[op]], list[tuple[int, int]]()
    done = [False] * graph.ops
    while built or freeing:
        op = heapq.heappop(freeing)[1] if freeing else heapq.heappop(built)
        if done[op]:
            continue
        done[op] = True
        order.append(op)
        for tensor in reads[op]:
            left[tensor] -= 1
        for other in after[op]:
            waiting[other] -= 1
            if not waiting[other]:
                grown = growth(other)
                heapq.heappush(built, other)
                if grown < 0:
                    heapq.heappush(freeing, (grown, other))
    return rank_of(np.array(order))


def _edges(graph: Graph) -> tuple[list[set[int]], list[int], list[list[int]], list[int]]:
    """(tensors that each op reads, ops that read each tensor, ops that wait for each op, for how many each waits)."""
    reads = [set[int]() for _ in range(graph.ops)]
    after = [list[int]() for _ in range(graph.ops)]
    waiting = [0] * graph.ops
    for tensor, dst in zip(graph.tensor.tolist(), graph.dst.tolist(), strict=True):
        reads[dst].add(tensor)
    for tails, heads in ((graph.src, graph.dst), (graph.control_src, graph.control_dst)):
        for a, b in zip(tails.tolist(), heads.tolist(), strict=True):
            after[a].append(b)
            waiting[b] += 1
    readers = [0] * len(graph.tensor_op)
    for tensors in reads:
        for tensor in tensors:
            readers[tensor] += 1
    return reads, readers, after, waiting


Of = TypeVar("Of")
FACTORS = (2, 2, 2)
WORKERS = 8
MOST = 512
"""The largest batch: that of Fig 11. The text names no other."""
TINY_BATCH = 8
SWITCHED = "k80x8-switched"
FREE_LINKS = 1e6
"""Times the speed of links where transfers are to take no time."""
SECONDS = 120.0
"""For the cuts of one split."""

Place = Callable[[Graph, Problem, Cluster], Ints]
"""[n] device of each op."""


def counted(key: Key, settings: CellSettings) -> Found:
    """Bytes of the weights that are trained, of a model: family and variant."""
    graph, _ = _built(key, 1, settings)
    return {"weight_bytes": int(weights(graph).sum()), "ops": graph.ops}


def weights(graph: Graph) -> Ints:
    """[n] bytes of each variable that has a slot of momentum; 0 of all else."""
    names = set(graph.names)
    return graph.param_bytes * np.array([f"{name}/Momentum" in names for name in graph.names], dtype=np.int64)


def divided(key: Key, settings: CellSettings) -> Found:
    """A model by Tofu's cuts, with the largest batch that they make fit, by exact cuts, and on one GPU without limit.

    Of family, variant and cluster; with links as that has them and as SWITCHED has them. Steps in seconds.
    """
    alone = machine(f"{key[2]}:1")

    def attempt(batch: int) -> BatchRun[tuple[Graph, TypedGraph, Split]]:
        graph, shaped = _built(key, batch, settings)
        split = _cut(shaped, "tofu")
        return BatchRun(_split_run(graph, shaped, split, machine(key[2])), (graph, shaped, split))

    batch, (_, (graph, shaped, tofu)) = _largest(attempt, settings)
    splits = (tofu, _cut(shaped, "exact"))
    return {
        "batch": batch,
        "ops": graph.ops,
        "single_s": _whole_run(_step(graph, alone), _on_one).makespan * TICK_S,
        "bytes": {split.method: split.moved_bytes for split in splits},
        "seconds": {split.method: split.seconds for split in splits},
        "runs": {
            cluster: {s.method: _told(_split_run(graph, shaped, s, machine(cluster))) for s in splits}
            for cluster in (key[2], SWITCHED)
        },
    }


def placed(key: Key, settings: CellSettings) -> Found:
    """Layers on GPUs in turn, with the largest batch that fits: of family, variant and cluster, and over SWITCHED."""
    result = _fitted(key, machine(key[2]), in_turn, settings)
    graph, _ = _built(key, result["batch"], settings)
    return {"runs": {key[2]: result, SWITCHED: _told(_whole_run(_step(graph, machine(SWITCHED)), in_turn))}}


def small(key: Key, settings: CellSettings) -> Found:
    """One GPU with the largest batch that fits it, of family, variant and cluster."""
    return _fitted(key, machine(f"{key[2]}:1"), _on_one, settings)


def compared(key: Key, settings: CellSettings) -> Found:
    """A model divided by one method, with the batch of Fig 11: the step, and that with transfers that take no time."""
    graph, shaped = _built(key, TINY_BATCH if settings.tiny else MOST, settings)
    split = _cut(shaped, key[3])
    result = {cluster: _told(_split_run(graph, shaped, split, machine(cluster))) for cluster in (key[2], SWITCHED)}
    silent = _split_run(graph, shaped, split, machine(key[2], links=FREE_LINKS))
    return {"bytes": split.moved_bytes, "seconds": split.seconds, "silent_s": silent.makespan * TICK_S, "runs": result}


def in_turn(graph: Graph, problem: Problem, cluster: Cluster) -> Ints:
    """Layer k on the k-th GPU, round after round (Tofu, 6.1); what is of no layer follows what feeds it."""
    targets, layer = accelerators(problem, cluster), layers_of(graph)
    wish = unify_groups(problem, fill_from_neighbours(problem, np.where(layer < 0, -1, layer % len(targets))))
    return devices_at(problem, np.array(targets)[wish])


def _on_one(graph: Graph, problem: Problem, cluster: Cluster) -> Ints:
    return framework_default(graph, problem, cluster).device


class BatchRun(NamedTuple, Generic[Of]):
    """A run, and what it was of."""

    run: Candidate
    of: Of


def _largest(attempt: Callable[[int], BatchRun[Of]], settings: CellSettings) -> tuple[int, BatchRun[Of]]:
    """The largest batch that fits, a power of two up to MOST, and what was tried with it; of 1 where none does.

    What half a batch needs is no less than half of what the whole needs, so that batches are left out.
    """
    batch = TINY_BATCH if settings.tiny else MOST
    while True:
        tried = attempt(batch)
        if tried.run.fits or batch == 1:
            return batch, tried
        peak, room = tried.run.peak, tried.run.timeline.problem.capacity
        share = float((room / np.maximum(1, peak))[peak > room].min())
        batch = max(1, min(batch // 2, 1 << max(0, int(np.floor(np.log2(max(1.0, (batch * share))))))))


def _fitted(key: Key, cluster: Cluster, place: Place, settings: CellSettings) -> Found:
    """A placement with the largest batch that fits."""

    def attempt(batch: int) -> BatchRun[None]:
        return BatchRun(_whole_run(_step(_built(key, batch, settings)[0], cluster), place), None)

    batch, tried = _largest(attempt, settings)
    return {"batch": batch, **_told(tried.run)}


def _step(graph: Graph, cluster: Cluster) -> StepOnCluster:
    return StepOnCluster(graph, cluster, load_costs(graph, cluster, None))


def _built(key: Key, batch: int, settings: CellSettings) -> tuple[Graph, TypedGraph]:
    variant = "tiny" if settings.tiny else key[1]
    return load_shaped(Source(model=key[0], variant=variant, batch=batch), quiet=True)


def _cut(shaped: TypedGraph, method: str) -> Split:
    factors = (WORKERS,) if method == "chop" else FACTORS
    return divide(shaped, factors, method, Rules(), seconds=SECONDS)


def _split_run(graph: Graph, shaped: TypedGraph, split: Split, cluster: Cluster) -> Candidate:
    result = time_split(graph, shaped, split, cluster, Settings())
    return _ordered(result.bench, result.candidate)


def _whole_run(at: StepOnCluster, place: Place) -> Candidate:
    try:
        problem = formulate(at.graph, at.costs, at.cluster, Settings())
    except InfeasibleError:
        problem = build_problem(at.graph, at.costs, at.cluster, memory=at.graph.param_bytes)
    bench = CandidateEvaluator.of(at.graph, problem)
    return _ordered(bench, bench.placed("", "list order", place(at.graph, problem, at.cluster)))


def _ordered(bench: CandidateEvaluator, listed: Candidate) -> Candidate:
    """The same in the shortest of three orders that fits; in the leanest where none does."""
    device = listed.timeline.schedule.device
    others = (
        bench.first_come("", "first in, first out", device),
        bench.ordered("", "what frees memory first", device, lean_order(bench.graph)),
    )
    return min((listed, *others), key=lambda run: (False, run.makespan) if run.fits else (True, run.short))


def _told(run: Candidate) -> Found:
    return {"step_s": run.makespan * TICK_S, "fits": run.fits, "peak_bytes": int(run.peak.max()), "order": run.rule}
