"""Modelled op times: kernels where the graph says their form, else launch and roofline (Williams et al. 2009).

Also what follows from the model: notes on missing peaks, launches apart from kernels, and a step's times one by one.
"""

from dataclasses import dataclass, replace

import numpy as np

from pesto.core.cluster import PRECISIONS, Cluster, Device, Rates
from pesto.core.costs import GIVEN, MODELLED, Costs, LaunchTimes
from pesto.core.costs.kernel_rates import engine, missing_precision
from pesto.core.costs.kernel_times import FORMS, gpu_op_times
from pesto.core.costs.presets import PRESETS, Preset, device_preset
from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import quoted, shown
from pesto.core.files.toml import suggest
from pesto.core.graph import Graph, kernel_counts
from pesto.core.option import expect
from pesto.core.quantities import duration, percent, plural
from solvers.arrays import Bools, Floats, Ints, floats


def model_costs(graph: Graph, cluster: Cluster) -> Costs:
    """Cost every op on every device of the cluster, from its presets and from the times the graph gives.

    Where the graph gives a time for the device's preset, or else for its kind, that time holds. An op counts
    as GIVEN once its time is given for every device of the cluster where it may be placed. Times scale with
    `Device.speed`. Raise InputError when a device has an unknown preset, or the graph gives times for what is no kind
    and no preset.
    """
    labels = dict.fromkeys([*graph.kinds, *(device.kind for device in cluster.devices), *PRESETS])
    for label in graph.given_kinds:
        if label not in labels:
            raise InputError.build(
                f"time_s names {quoted(label)}, which is no kind of device and no preset",
                where=shown(graph.source),
                remedy=suggest(label, labels),
            )
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
    names = [d.preset if d.rates is None else f"{shown(d.preset)} with rates of its own" for d in cluster.devices]
    kernels = "kernels and " if any(device_preset(d).sms for d in cluster.devices) else ""
    source = f"{kernels}roofline of {', '.join(dict.fromkeys(names))}"
    if given_ops.any():
        source += f"; times of {int(given_ops.sum())} of {graph.ops} ops given by the graph"
    return Costs(compute_s=compute_s, origin=np.where(given_ops, GIVEN, MODELLED), source=source)


def model_seconds(graph: Graph, device: Device) -> Floats:
    """Return [n] seconds of every op on a device at speed 1: by its kernels on GPUs, by the roofline on cores.

    Raise InputError when its preset is unknown, or when a file describes it and gives no peak for what the graph
    computes in.
    """
    able = device_preset(device)
    if not able.sms:
        return roofline_s(graph, able)
    # A device that a file describes alone needs a peak for each type in which ops here compute.
    if able.complete and device.kind in graph.kinds:
        here = graph.runs_on[:, graph.kinds.index(device.kind)] & graph.launches & (graph.flops > 0)
        for k in np.unique(graph.dtype_of[here]).tolist():
            dtype = graph.dtypes[k] if k >= 0 else ""
            if missing := missing_precision(dtype, able):
                known = missing in PRECISIONS
                what = f"no peak for {shown(dtype or 'float32')}" if known else f"nothing has a peak for {shown(dtype)}"
                remedy = f"add {shown(missing)} to its peak_tflops"
                raise InputError.build(
                    f"device {device.name}: {what}, in which the graph computes",
                    remedy=remedy if known else "name a preset beside the rates, which costs such ops as float32",
                )
    return gpu_op_times(graph, able).seconds


def roofline_s(graph: Graph, device: Preset) -> Floats:
    """Return [n] seconds: launch + max(flops / reachable flops, bytes / reachable bandwidth), or bookkeeping.

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
    """Return [n, d], true where an op has a kernel for a device's kind."""
    column = {kind: k for k, kind in enumerate(graph.kinds)}
    can = np.zeros((graph.ops, len(cluster.devices)), dtype=np.bool_)
    for d, device in enumerate(cluster.devices):
        if device.kind in column:
            can[:, d] = graph.runs_on[:, column[device.kind]]
    return can


def known_everywhere(known: Bools, graph: Graph, cluster: Cluster) -> Bools:
    """Return [n], true where an op's time is known on every device where it may be placed, one at least."""
    placed = placeable(graph, cluster)
    return np.logical_and((known | ~placed).all(axis=1), placed.any(axis=1))


def placeable(graph: Graph, cluster: Cluster) -> Bools:
    """Return [n, d], true where an op may be placed on a device.

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


def note_missing_peaks(graph: Graph, cluster: Cluster, costs: Costs) -> Costs:
    """Return `costs` with a note on the ops whose modelled times are those of float32, though of another type.

    An op counts where its fastest device has no peak for its type. Only of ops that have work: what just moves data
    takes the time of its bytes.
    """
    seconds = np.nan_to_num(costs.compute_s, nan=np.inf)
    fastest = seconds.argmin(axis=1)
    # [types + 1, d] whether a device has no peak for a data type; the last row, of what is not known, never.
    devices = [device_preset(device) for device in cluster.devices]
    lacks_peak = np.array(
        [[bool(name) and bool(missing_precision(name, d)) for d in devices] for name in (*graph.dtypes, "")]
    )
    without = lacks_peak[graph.dtype_of, fastest]
    taken = without & (graph.flops > 0) & graph.launches & (costs.origin == MODELLED)
    if not taken.any():
        return costs
    count = np.bincount(graph.dtype_of[taken], minlength=len(graph.dtypes))
    most_first = np.argsort(-count, kind="stable")[: np.count_nonzero(count)].tolist()
    ops = ", ".join(f"{plural(count[k], 'op')} in {shown(graph.dtypes[k], 24)}" for k in most_first)
    least = seconds.min(axis=1)
    share = percent(float(least[taken].sum() / least[np.isfinite(least)].sum()))
    note = f"{ops} ({share} of the time) costed as float32"
    return replace(costs, note=f"{note}; {costs.note}" if costs.note else note)


# Launches apart from kernels: Pesto's kernel ops (3.2.1)

MOST_S = 1.0
"""Most seconds of one launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCost:
    """Seconds that a launch is to take, or that costs say. Raise UsageError when they are out of range."""

    each_s: float | None = None
    """Seconds of one launch; None: as a profile measured the op's, else what its device takes on top of a kernel."""

    def __post_init__(self) -> None:
        """Validate."""
        give = f"0 to {MOST_S:g} s, such as 5e-6"
        expect("launch", self.each_s, float | int | None, give)
        if self.each_s is not None and not 0 <= self.each_s <= MOST_S:
            raise UsageError.build(f"launch is {self.each_s:g} s", remedy=f"give {give}")


def split_launches(graph: Graph, cluster: Cluster, costs: Costs, cost: LaunchCost) -> LaunchTimes:
    """Split the ops of `costs` in two: a modelled time without the launches that are in it, any other as it is.

    Ops with several kernels are launched as often, unless a profile measured the op's launch.
    """
    launch_s, kernel_s = np.zeros_like(costs.compute_s), costs.compute_s.copy()
    count, model = kernel_counts(graph.kernels, graph.launches), costs.origin == MODELLED
    for d, device in enumerate(cluster.devices):
        if device.kind == "cpu":
            continue
        if model.any():
            able = device_preset(device)
            if able.sms:
                with_them, without = (gpu_op_times(graph, x).seconds for x in (able, replace(able, launch_s=0.0)))
                included = floats((with_them - without) / device.speed)
            else:
                included = floats(count * able.launch_s / device.speed)
            kernel_s[model, d] = np.maximum(kernel_s[:, d] - included, 0.0)[model]
        # A device of no preset may have times and launches that are all given.
        launch_s[:, d] = count * (device_preset(device).launch_s if cost.each_s is None else cost.each_s)
    how = "by the devices' own time of a launch" if cost.each_s is None else f"{duration(cost.each_s)} a kernel"
    if cost.each_s is None and costs.launch_s is not None:
        known = ~np.isnan(costs.launch_s) & graph.launches[:, None]
        launch_s[known] = costs.launch_s[known]
        how = f"{int(known.any(axis=1).sum())} as measured, others {how}"
    return LaunchTimes(launch_s=floats(launch_s), kernel_s=floats(kernel_s), source=how)


# A step's times one by one

TYPE, SCOPE = BY = ("type", "scope")
"""Keys by which times are summed."""
_DEPTH, _GRADIENTS = 2, ("gradients", "gradient_tape")
_SAME = 1e-9
_UNLAUNCHED, _ROOFLINE = 0, 1
"""Indices into FORMS, on a core."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostListing:
    """m ops, each on one device, longest first."""

    op: Ints
    """[m] index of the op."""
    device: Ints
    """[m] index of the device."""
    seconds: Floats
    """[m] seconds on that device."""
    kernel: Ints
    """[m] index into FORMS of the form that its time is modelled by; -1 where the time is not modelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSum:
    """Ops of one type or scope together."""

    label: str
    """The type, or the scope; empty for ops outside every scope."""
    ops: int
    """Number of ops."""
    flops: float
    """Operations of all of them."""
    bytes: int
    """Bytes moved by all of them."""
    seconds: float
    """Seconds of all of them, one after the other."""


def list_costs(graph: Graph, cluster: Cluster, costs: Costs, device: int | None = None) -> CostListing:
    """List the ops that can run on a device; without one, every op on the first device on which it may be placed."""
    if device is None:
        places = placeable(graph, cluster)
        op = np.flatnonzero(places.any(axis=1))
        where = places[op].argmax(axis=1)
    else:
        op = np.flatnonzero(runnable(graph, cluster)[:, device])
        where = np.full(len(op), device)
    seconds = costs.compute_s[op, where]
    kernel = np.full(len(op), -1, dtype=np.int64)
    for d in np.unique(where).tolist():
        here, able = where == d, device_preset(cluster.devices[d])
        form = gpu_op_times(graph, able).form if able.sms else np.where(graph.launches, _ROOFLINE, _UNLAUNCHED)
        modelled = model_seconds(graph, cluster.devices[d]) / cluster.devices[d].speed
        by_model = np.isclose(modelled, costs.compute_s[:, d], rtol=_SAME, atol=0)
        kernel[here] = np.where(by_model, form, -1)[op[here]]
    order = np.argsort(-seconds, kind="stable")
    return CostListing(op=op[order], device=where[order], seconds=seconds[order], kernel=kernel[order])


def sum_costs(graph: Graph, listing: CostListing, by: str) -> list[CostSum]:
    """Sum a listing by type or by scope, the most seconds first."""
    own = graph.type_of[listing.op] if by == TYPE else np.arange(len(listing.op))
    names = list(graph.types) if by == TYPE else [scope(graph.names[i]) for i in listing.op.tolist()]
    labels, which = np.unique(np.array([names[k] for k in own.tolist()], dtype=np.object_), return_inverse=True)
    columns = (np.ones(len(which)), graph.flops[listing.op], graph.moved_bytes[listing.op], listing.seconds)
    count, flops, moved, seconds = (np.bincount(which, weights=x, minlength=len(labels)).tolist() for x in columns)
    return [
        CostSum(label=labels[k], ops=int(count[k]), flops=flops[k], bytes=int(moved[k]), seconds=seconds[k])
        for k in np.argsort(-np.array(seconds), kind="stable").tolist()
    ]


def scope(name: str) -> str:
    """Return the first two parts of an op's name, of gradients three, but never its own last one."""
    parts = name.split("/")[:-1]
    below = bool(parts) and parts[0] in _GRADIENTS
    return "/".join(parts[: _DEPTH + below])


def form_name(kernel: int) -> str | None:
    """Return the name of a form; None where the time is not modelled."""
    return FORMS[kernel] if kernel >= 0 else None
