"""Data parallelism, as people do it today: a replica of the step on each device, and gradients summed in a ring."""

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from pesto.choosing.strategy_choice.timed_split import accelerators_of, run_pinned
from pesto.core.cluster import Cluster
from pesto.core.costs.network import transfer_s
from pesto.core.graph import Graph
from pesto.core.problem import TICK_S
from pesto.core.settings import Settings
from pesto.planning.solving.candidates import Candidate
from pesto.split.division import parameter_bytes
from pesto.split.geometry import PARTIAL
from pesto.split.program import Rules
from pesto.split.split_search import divide
from pesto.split.split_step import build_split_step
from pesto.split.typed_graph import TypedGraph
from pesto.split.worker_parts import CLONE, WorkerParts, build_worker_parts
from solvers.arrays import bools, ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataParallel:
    """A replica of the step on each accelerator of a cluster; modelled, and no plan."""

    replica: Candidate
    """One device's step on its share of the batch, with whole variables."""
    ring_s: float
    """Seconds of the ring all-reduce of all gradients (Patarasuk and Yuan 2009)."""
    sent_bytes: int
    """Bytes that all devices send in that ring."""
    devices: tuple[str, ...]
    """The devices that have a replica."""

    @property
    def makespan_s(self) -> float:
        """Seconds of a step that sends gradients beside its work: no less than either takes, so this flatters it."""
        return max(self.replica.makespan * TICK_S, self.ring_s)

    @property
    def peak_bytes(self) -> int:
        """Most bytes alive on the device, without room for what is received."""
        return int(self.replica.peak.max())


def data_parallel(
    step: tuple[Graph, TypedGraph], cluster: Cluster, settings: Settings, *, seconds: float
) -> DataParallel:
    """Cut a step's work along its batch; UsageError where that divides nothing, NothingFoundError without time."""
    graph, shaped = step
    devices = accelerators_of(cluster)
    split = divide(
        shaped, (len(devices),), "data-parallel", Rules(), seconds=seconds, deterministic=settings.deterministic
    )
    alone = replica_of(build_worker_parts(shaped, split.division))
    result = run_pinned(
        build_split_step(graph, alone, devices), cluster, settings, ("data-parallel", "one replica, in list order")
    )
    # Bytes of one gradient for each variable with its slots: the largest of what lies alike.
    held = parameter_bytes(shaped, split.division).tolist()
    most: dict[int, int] = defaultdict(int)
    for tie, size in zip(shaped.tie.tolist(), held, strict=True):
        most[tie] = max(most[tie], size)
    gradients = sum(most.values())
    return DataParallel(
        replica=result.candidate,
        ring_s=ring_s(cluster, devices, gradients),
        sent_bytes=2 * (len(devices) - 1) * gradients,
        devices=devices,
    )


def replica_of(parts: WorkerParts) -> WorkerParts:
    """Return the first worker's parts, made of what it has itself; its partial sums stay as they are, for the ring."""
    first = np.array([part.worker == 0 for part in parts.parts])
    # [p] parts that sum the workers' partial results, or bring the sums: the ring does that.
    ways = parts.division.ways
    summing_parts = bools([part.kind != CLONE and PARTIAL in ways[part.op].gives[part.output] for part in parts.parts])
    mine = np.flatnonzero(first & ~summing_parts)
    number = np.full(len(parts.parts), -1)
    number[mine] = np.arange(len(mine))
    # ([e] tail, [e] its output) of each edge, where what the first worker leaves out hands on what it is made from.
    kept = number >= 0
    src, output, dst = parts.src.copy(), parts.output.copy(), parts.dst
    made_from: dict[int, int] = {}
    for e in np.argsort(dst, kind="stable").tolist():
        before = made_from.get(int(src[e]), -1)
        if before >= 0:
            src[e], output[e] = src[before], output[before]
        if first[dst[e]] and not kept[dst[e]] and kept[src[e]]:
            made_from.setdefault(int(dst[e]), e)
    data = (number[src] >= 0) & (number[parts.dst] >= 0)
    control = (number[parts.control_src] >= 0) & (number[parts.control_dst] >= 0)
    return replace(
        parts, parts=tuple(parts.parts[k] for k in mine.tolist()), src=ints(number[src[data]]), output=output[data],
        dst=ints(number[parts.dst[data]]), input=parts.input[data],
        control_src=ints(number[parts.control_src[control]]), control_dst=ints(number[parts.control_dst[control]]),
        clone=ints(np.where(parts.clone >= 0, number[parts.clone], -1)), results=(), for_results=int(data.sum()),
        place=parts.place[mine],
    )  # fmt: skip


def ring_s(cluster: Cluster, devices: tuple[str, ...], size: int) -> float:
    """Return seconds of 2 (k - 1) rounds, each of k devices sending a k-th to the next, at the slowest path's pace."""
    place = {device.name: d for d, device in enumerate(cluster.devices)}
    around = [place[name] for name in (*devices, devices[0])]
    paths = [cluster.paths[a][b] for a, b in pairwise(around)]
    slowest = max(float(transfer_s(path, size / len(devices))) for path in paths if path is not None)
    return 2 * (len(devices) - 1) * slowest
