"""What launching an op's kernels takes of its host, apart from what the kernels take: Pesto's kernel ops (3.2.1)."""

from dataclasses import dataclass, replace

import numpy as np

from pesto.core.arguments import expect
from pesto.core.cluster import Cluster, Device
from pesto.core.costs import MODELLED, Costs
from pesto.core.costs.kernels.op_times import gpu_op_times
from pesto.core.costs.presets import device_preset
from pesto.core.errors import UsageError
from pesto.core.graph import Graph, kernel_counts
from pesto.core.quantities import duration
from solvers.arrays import Floats, floats

MOST_S = 1.0
"""Seconds of one launch at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCost:
    """What a launch is to take: so many seconds, or what the costs say; UsageError when they are out of range."""

    each_s: float | None = None
    """Seconds of one launch; None: as a profile measured the op's, else what its device takes on top of a kernel."""

    def __post_init__(self) -> None:
        """Validate."""
        give = f"0 to {MOST_S:g} s, such as 5e-6"
        expect("launch", self.each_s, float | int | None, give)
        if self.each_s is not None and not 0 <= self.each_s <= MOST_S:
            raise UsageError.build(f"launch is {self.each_s:g} s", remedy=f"give {give}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchTimes:
    """Each op of an accelerator in two: its launch on the host, and its kernels."""

    launch_s: Floats
    """[n, d] seconds of the host; 0 where nothing is launched, as on hosts themselves."""
    kernel_s: Floats
    """[n, d] seconds of the device; NaN where the op cannot run."""
    source: str
    """One line for people: where the launches' times come from."""


def split_launches(graph: Graph, cluster: Cluster, costs: Costs, asked: LaunchCost) -> LaunchTimes:
    """The ops of `costs` in two: a modelled time without the launches that are in it, any other as it is.

    Ops with several kernels are launched as often, unless a profile measured the op's launch.
    """
    launch_s, kernel_s = np.zeros_like(costs.compute_s), costs.compute_s.copy()
    count, model = kernel_counts(graph.kernels, graph.launches), costs.origin == MODELLED
    for d, device in enumerate(cluster.devices):
        if device.kind != "cpu":
            if model.any():
                kernel_s[model, d] = np.maximum(kernel_s[:, d] - _included_launch_s(graph, device), 0.0)[model]
            launch_s[:, d] = count * (device_preset(device).launch_s if asked.each_s is None else asked.each_s)
    how = "by the devices' own time of a launch" if asked.each_s is None else f"{duration(asked.each_s)} a kernel"
    if asked.each_s is None and costs.launch_s is not None:
        known = ~np.isnan(costs.launch_s) & graph.launches[:, None]
        launch_s[known] = costs.launch_s[known]
        how = f"{int(known.any(axis=1).sum())} as measured, others {how}"
    return LaunchTimes(launch_s=floats(launch_s), kernel_s=floats(kernel_s), source=how)


def _included_launch_s(graph: Graph, device: Device) -> Floats:
    """[n] seconds of launches within the modelled times of a device."""
    able = device_preset(device)
    if not able.sms:
        return floats(kernel_counts(graph.kernels, graph.launches) * able.launch_s / device.speed)
    with_them, without = (gpu_op_times(graph, each).seconds for each in (able, replace(able, launch_s=0.0)))
    return floats((with_them - without) / device.speed)
