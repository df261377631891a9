"""Data parallelism, as people do it today: a replica of the step on each device, and gradients summed in a ring."""

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from pesto.cluster import Cluster
from pesto.costs.network import transfer_s
from pesto.graph import Graph
from pesto.problem import TICK_S
from pesto.settings import Settings
from pesto.solving.candidates import Candidate
from pesto.split.dividing import divide
from pesto.split.division import parameter_bytes
from pesto.split.program import Rules
from pesto.split.shaped import Shaped
from pesto.split.split_step import split_step
from pesto.split.worker_parts import Parts, parts_of
from pesto.weighing.timed_split import accelerators_of, run
from solvers.arrays import ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataParallel:
    """What it comes to on all accelerators of a cluster; modelled, and no plan."""

    replica: Candidate
    """One device's step on its share of the batch, with whole variables."""
    ring_s: float
    """Seconds of the ring all-reduce of all gradients (Patarasuk and Yuan 2009)."""

    @property
    def makespan_s(self) -> float:
        """Seconds of a step that sends gradients beside its work: no less than either takes, so this flatters it."""
        return max(self.replica.makespan * TICK_S, self.ring_s)

    @property
    def peak_bytes(self) -> int:
        """Most bytes alive on the device, without room for what is received."""
        return int(self.replica.peak.max())


def data_parallel(step: tuple[Graph, Shaped], cluster: Cluster, settings: Settings, *, seconds: float) -> DataParallel:
    """A step's work cut along its batch; UsageError where that divides nothing, NothingFoundError without time."""
    graph, shaped = step
    devices = accelerators_of(cluster)
    split = divide(shaped, (len(devices),), "data-parallel", Rules(), seconds=seconds)
    alone = replica_of(parts_of(shaped, split.division))
    found = run(split_step(graph, alone, devices), cluster, settings, ("data-parallel", "one replica, in list order"))
    gradients = _gradient_bytes(shaped, parameter_bytes(shaped, split.division).tolist())
    return DataParallel(replica=found.candidate, ring_s=ring_s(cluster, devices, gradients))


def replica_of(parts: Parts) -> Parts:
    """What the first worker does, of what it has itself."""
    mine = np.flatnonzero([part.worker == 0 for part in parts.parts])
    number = np.full(len(parts.parts), -1)
    number[mine] = np.arange(len(mine))
    data = (number[parts.src] >= 0) & (number[parts.dst] >= 0)
    control = (number[parts.control_src] >= 0) & (number[parts.control_dst] >= 0)
    return replace(
        parts,
        parts=tuple(parts.parts[k] for k in mine.tolist()),
        src=ints(number[parts.src[data]]),
        output=parts.output[data],
        dst=ints(number[parts.dst[data]]),
        input=parts.input[data],
        control_src=ints(number[parts.control_src[control]]),
        control_dst=ints(number[parts.control_dst[control]]),
        clone=ints(np.where(parts.clone >= 0, number[parts.clone], -1)),
        results=(),
        for_results=int(data.sum()),
        place=parts.place[mine],
    )


def _gradient_bytes(shaped: Shaped, held: list[int]) -> int:
    """Bytes of one gradient for each variable with its slots: the largest of what lies alike."""
    most: dict[int, int] = defaultdict(int)
    for tie, size in zip(shaped.tie.tolist(), held, strict=True):
        most[tie] = max(most[tie], size)
    return sum(most.values())


def ring_s(cluster: Cluster, devices: tuple[str, ...], size: int) -> float:
    """Seconds of 2 (k - 1) rounds, each of k devices sending a k-th to the next; the slowest path sets the pace."""
    place = {device.name: d for d, device in enumerate(cluster.devices)}
    around = [place[name] for name in (*devices, devices[0])]
    paths = [cluster.paths[a][b] for a, b in pairwise(around)]
    slowest = max(float(transfer_s(path, size / len(devices))) for path in paths if path is not None)
    return 2 * (len(devices) - 1) * slowest
