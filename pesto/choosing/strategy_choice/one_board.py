"""One board of a cluster: the accelerators that are near each other, as a cluster of their own with all hosts."""

from dataclasses import dataclass, replace

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import Costs
from solvers.arrays import Ints

NEAR = 2.01
"""Times the seconds per byte of the fastest path: what is beyond is another board."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoardCluster:
    """A part of a cluster, whose devices keep their names, and what ops cost there."""

    cluster: Cluster
    costs: Costs


def accelerators_of(cluster: Cluster) -> tuple[str, ...]:
    """The devices that workers are put on: those that are no hosts, or hosts where there are no others."""
    fast = tuple(device.name for device in cluster.devices if device.kind != "cpu")
    return fast or tuple(device.name for device in cluster.devices)


def board_size(cluster: Cluster) -> int:
    """Accelerators that the first sends to at half of its best speed, or faster; of these so many that divide all."""
    fast = _fast(cluster).tolist()
    speeds = [s_per_byte(cluster, fast[0], other) for other in fast[1:]]
    near = 1 + sum(speed <= NEAR * min(speeds) for speed in speeds)
    return max(k for k in range(1, near + 1) if len(fast) % k == 0)


def first_board(cluster: Cluster, costs: Costs) -> BoardCluster | None:
    """The first accelerator and, one by one, the nearest to all in it; None where all are near, or it is alone."""
    fast, many = _fast(cluster), board_size(cluster) if len(accelerators_of(cluster)) > 1 else 1
    if many in (1, len(fast)):
        return None
    near, left = [int(fast[0])], fast[1:].tolist()
    while len(near) < many:
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
    return BoardCluster(cluster=smaller, costs=replace(costs, compute_s=costs.compute_s[:, kept], launch_s=launch_s))


def s_per_byte(cluster: Cluster, a: int, b: int) -> float:
    """Seconds of each byte from device to device; 0 where there is no path."""
    path = cluster.paths[a][b]
    return 0.0 if path is None else path.s_per_byte


def _fast(cluster: Cluster) -> Ints:
    names = set(accelerators_of(cluster))
    return np.flatnonzero([device.name in names for device in cluster.devices]).astype(np.int64)
