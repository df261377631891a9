"""Modelled op times: the roofline (Williams et al. 2009) plus a constant per kernel."""

import numpy as np

from pesto.cluster import Cluster, Device
from pesto.costs import GIVEN, MODELLED, Costs
from pesto.costs.presets import PRESETS, Preset, preset
from pesto.errors import InputError
from pesto.files.json import shown
from pesto.files.toml import closest
from pesto.graph import Graph
from solvers.arrays import Bools, Floats


def modelled(graph: Graph, cluster: Cluster) -> Costs:
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
    for d, device in enumerate(cluster.devices):
        given = _given(graph, device)
        known[:, d] = ~np.isnan(given)
        compute_s[:, d] = np.where(known[:, d], given, roofline_s(graph, preset(device.preset))) / device.speed
    compute_s[~can] = np.nan
    given_ops = everywhere(known, graph, cluster)
    names = ", ".join(dict.fromkeys(d.preset for d in cluster.devices))
    source = f"roofline of {names}"
    if given_ops.any():
        source += f"; times of {int(given_ops.sum())} of {graph.ops} ops given by the graph"
    return Costs(compute_s=compute_s, origin=np.where(given_ops, GIVEN, MODELLED), source=source)


def roofline_s(graph: Graph, device: Preset) -> Floats:
    """[n] seconds: launch + max(flops / reachable flops, bytes / reachable bandwidth), or the bookkeeping constant.

    The launch is added rather than a floor because a kernel fills and drains the device before and after it runs at
    full rate; it is Hockney and Jesshope's r_inf, n_1/2 form, in which a matmul of launch_s * peak * efficiency
    operations reaches half of the efficiency of a large one.
    """
    arithmetic = graph.flops / (device.peak_flops * device.flop_efficiency)
    traffic = graph.moved_bytes / (device.bandwidth * device.bandwidth_efficiency)
    return np.where(graph.launches, device.launch_s + np.maximum(arithmetic, traffic), device.bookkeeping_s)


def runnable(graph: Graph, cluster: Cluster) -> Bools:
    """[n, d] whether an op has a kernel for a device's kind."""
    column = {kind: k for k, kind in enumerate(graph.kinds)}
    can = np.zeros((graph.ops, len(cluster.devices)), dtype=np.bool_)
    for d, device in enumerate(cluster.devices):
        if device.kind in column:
            can[:, d] = graph.runs_on[:, column[device.kind]]
    return can


def everywhere(known: Bools, graph: Graph, cluster: Cluster) -> Bools:
    """[n] whether an op's time is known on every device where it may be placed, one at least.

    That is the accelerators when its whole group runs on them, and the CPUs otherwise (Pesto, section 3.2.1).
    """
    can = runnable(graph, cluster)
    fast = np.array([device.kind != "cpu" for device in cluster.devices])
    on_fast: Bools = np.logical_or.reduce(can[:, fast], axis=1)
    member = graph.group >= 0
    whole = np.ones(int(graph.group.max(initial=-1)) + 1, dtype=np.bool_)
    np.logical_and.at(whole, graph.group[member], on_fast[member])
    on_fast[member] = whole[graph.group[member]]
    placed = can & np.where(fast, on_fast[:, None], ~on_fast[:, None])
    return np.logical_and((known | ~placed).all(axis=1), placed.any(axis=1))


def _check_given(graph: Graph, cluster: Cluster) -> None:
    known = dict.fromkeys([*graph.kinds, *(device.kind for device in cluster.devices), *PRESETS])
    for label in graph.given_kinds:
        if label not in known:
            raise InputError(
                f"{shown(graph.source)}: time_s names {shown(label)!r}, which is no kind of device and no preset - "
                f"{closest(label, known)}"
            )


def _given(graph: Graph, device: Device) -> Floats:
    """[n] seconds that the graph itself gives for a device, by preset before kind; NaN where it gives none."""
    found = np.full(graph.ops, np.nan)
    for label in (device.kind, device.preset):
        if label in graph.given_kinds:
            column = graph.given_s[:, graph.given_kinds.index(label)]
            found = np.where(np.isnan(column), found, column)
    return found
