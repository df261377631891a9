"""Modelled op times: kernels where the graph says their form, else launch and roofline (Williams et al. 2009)."""

import numpy as np

from pesto.core.cluster import PRECISIONS, Cluster, Device, Rates
from pesto.core.costs import GIVEN, MODELLED, Costs
from pesto.core.costs.kernels.engines import engine, missing_precision
from pesto.core.costs.kernels.op_times import gpu_op_times
from pesto.core.costs.presets import PRESETS, Preset, device_preset
from pesto.core.errors import InputError
from pesto.core.files.json import quoted, shown
from pesto.core.files.toml import suggest
from pesto.core.graph import Graph, kernel_counts
from solvers.arrays import Bools, Floats


def model_costs(graph: Graph, cluster: Cluster) -> Costs:
    """Seconds of every op on every device of the cluster, from its presets and from the times the graph gives.

    Where the graph gives a time for the device's preset, or else for its kind, that time holds. An op counts
    as GIVEN once its time is given for every device of the cluster where it may be placed. Times scale with
    `Device.speed`. InputError when a device has an unknown preset, or the graph gives times for what is no kind and no
    preset.
    """
    _check_given(graph, cluster)
    can = runnable(graph, cluster)
    known = np.zeros_like(can)
    compute_s = np.full(can.shape, np.nan)
    alike: dict[tuple[str, str, Rates | None], Floats] = {}
    for d, device in enumerate(cluster.devices):
        # [n] seconds that the graph itself gives for a device, by preset before kind; NaN where it gives none.
        given = np.full(graph.ops, np.nan)
        for label in (device.kind, device.preset):
            if label in graph.given_kinds:
                column = graph.given_s[:, graph.given_kinds.index(label)]
                given = np.where(np.isnan(column), given, column)
        known[:, d] = ~np.isnan(given)
        model = (device.kind, device.preset, device.rates)
        if model not in alike:
            alike[model] = model_seconds(graph, device)
        compute_s[:, d] = np.where(known[:, d], given, alike[model]) / device.speed
    compute_s[~can] = np.nan
    given_ops = known_everywhere(known, graph, cluster)
    names = ", ".join(dict.fromkeys(_preset_names(device) for device in cluster.devices))
    source = f"{'kernels and ' if any(device_preset(d).sms for d in cluster.devices) else ''}roofline of {names}"
    if given_ops.any():
        source += f"; times of {int(given_ops.sum())} of {graph.ops} ops given by the graph"
    return Costs(compute_s=compute_s, origin=np.where(given_ops, GIVEN, MODELLED), source=source)


def model_seconds(graph: Graph, device: Device) -> Floats:
    """[n] seconds of every op on a device at speed 1: by `pesto.core.costs.kernels` on GPUs, by the roofline on cores.

    InputError when its preset is unknown, or a file that describes it gives no peak for what the graph computes in.
    """
    able = device_preset(device)
    if not able.sms:
        return roofline_s(graph, able)
    _check_peaks(graph, device, able)
    return gpu_op_times(graph, able).seconds


def roofline_s(graph: Graph, device: Preset) -> Floats:
    """[n] seconds: launch + max(flops / reachable flops, bytes / reachable bandwidth), or the bookkeeping constant.

    The launch is added rather than a floor because a kernel fills and drains the device before and after it runs at
    full rate; it is Hockney and Jesshope's r_inf, n_1/2 form, in which a matmul of launch_s * peak * efficiency
    operations reaches half of the efficiency of a large one.
    """
    rates = np.array([engine(name, device).peak_flops / device.reach for name in (*graph.dtypes, "")])
    arithmetic = graph.flops / (rates[graph.dtype_of] * device.flop_efficiency)
    traffic = graph.moved_bytes / (device.bandwidth * device.bandwidth_efficiency)
    count = kernel_counts(graph.kernels, graph.launches)
    return np.where(graph.launches, count * device.launch_s + np.maximum(arithmetic, traffic), device.bookkeeping_s)


def runnable(graph: Graph, cluster: Cluster) -> Bools:
    """[n, d] whether an op has a kernel for a device's kind."""
    column = {kind: k for k, kind in enumerate(graph.kinds)}
    can = np.zeros((graph.ops, len(cluster.devices)), dtype=np.bool_)
    for d, device in enumerate(cluster.devices):
        if device.kind in column:
            can[:, d] = graph.runs_on[:, column[device.kind]]
    return can


def known_everywhere(known: Bools, graph: Graph, cluster: Cluster) -> Bools:
    """[n] whether an op's time is known on every device where it may be placed, one at least."""
    placed = placeable(graph, cluster)
    return np.logical_and((known | ~placed).all(axis=1), placed.any(axis=1))


def placeable(graph: Graph, cluster: Cluster) -> Bools:
    """[n, d] whether an op may be placed on a device.

    On the accelerators when its whole group runs on them, and on the CPUs otherwise (Pesto, section 3.2.1).
    """
    can = runnable(graph, cluster)
    fast = np.array([device.kind != "cpu" for device in cluster.devices])
    on_fast: Bools = np.logical_or.reduce(can[:, fast], axis=1)
    member = graph.group >= 0
    whole = np.ones(int(graph.group.max(initial=-1)) + 1, dtype=np.bool_)
    np.logical_and.at(whole, graph.group[member], on_fast[member])
    on_fast[member] = whole[graph.group[member]]
    return can & np.where(fast, on_fast[:, None], ~on_fast[:, None])


def _check_given(graph: Graph, cluster: Cluster) -> None:
    known = dict.fromkeys([*graph.kinds, *(device.kind for device in cluster.devices), *PRESETS])
    for label in graph.given_kinds:
        if label not in known:
            raise InputError.build(
                f"time_s names {quoted(label)}, which is no kind of device and no preset",
                where=shown(graph.source),
                remedy=suggest(label, known),
            )


def _check_peaks(graph: Graph, device: Device, able: Preset) -> None:
    """InputError for a device that a file describes alone, without a peak for a type in which ops here compute."""
    if not able.complete or device.kind not in graph.kinds:
        return
    here = graph.runs_on[:, graph.kinds.index(device.kind)] & graph.launches & (graph.flops > 0)
    for k in np.unique(graph.dtype_of[here]).tolist():
        dtype = graph.dtypes[k] if k >= 0 else ""
        if missing := missing_precision(dtype, able):
            raise InputError(
                f"device {device.name}: no peak for {shown(dtype or 'float32')}, in which the graph computes - add "
                f"{shown(missing)} to its peak_tflops"
                if missing in PRECISIONS
                else f"device {device.name}: nothing has a peak for {shown(dtype)}, in which the graph computes - "
                "name a preset beside the rates, which costs such ops as float32"
            )


def _preset_names(device: Device) -> str:
    return device.preset if device.rates is None else f"{shown(device.preset)} with rates of its own"
