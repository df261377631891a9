"""The times of a step's ops one by one, longest first, and their sums by type or by scope."""

from dataclasses import dataclass

import numpy as np

from pesto.core.cluster import Cluster, Device
from pesto.core.costs import Costs
from pesto.core.costs.analytical import model_seconds, placeable, runnable
from pesto.core.costs.kernels.op_times import FORMS, gpu_op_times
from pesto.core.costs.presets import device_preset
from pesto.core.graph import Graph
from solvers.arrays import Floats, Ints

TYPE, SCOPE = BY = ("type", "scope")
"""What times are summed by."""
_DEPTH, _GRADIENTS = 2, ("gradients", "gradient_tape")
_SAME = 1e-9
_UNLAUNCHED, _ROOFLINE = 0, 1
"""Of FORMS, on a core."""


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
    """How many."""
    flops: float
    """Of all of them."""
    bytes: int
    """Moved by all of them."""
    seconds: float
    """One after the other."""


def list_costs(graph: Graph, cluster: Cluster, costs: Costs, device: int | None = None) -> CostListing:
    """The ops that can run on a device; without one, every op on the first device on which it may be placed."""
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
        at = where == d
        kernel[at] = _kernels(graph, cluster.devices[d], costs.compute_s[:, d])[op[at]]
    order = np.argsort(-seconds, kind="stable")
    return CostListing(op=op[order], device=where[order], seconds=seconds[order], kernel=kernel[order])


def sum_costs(graph: Graph, found: CostListing, by: str) -> list[CostSum]:
    """What is listed by type or by scope, the most seconds first."""
    own = graph.type_of[found.op] if by == TYPE else np.arange(len(found.op))
    names = list(graph.types) if by == TYPE else [scope(graph.names[i]) for i in found.op.tolist()]
    labels, which = np.unique(np.array([names[k] for k in own.tolist()], dtype=np.object_), return_inverse=True)
    count = np.bincount(which, minlength=len(labels))
    flops, moved, seconds = (
        np.bincount(which, weights=x, minlength=len(labels))
        for x in (graph.flops[found.op], graph.moved_bytes[found.op], found.seconds)
    )
    return [
        CostSum(
            label=labels[k], ops=int(count[k]), flops=float(flops[k]), bytes=int(moved[k]), seconds=float(seconds[k])
        )
        for k in np.argsort(-seconds, kind="stable").tolist()
    ]


def scope(name: str) -> str:
    """The first two parts of an op's name, of gradients three, but never its own last one."""
    parts = name.split("/")[:-1]
    below = bool(parts) and parts[0] in _GRADIENTS
    return "/".join(parts[: _DEPTH + below])


def _kernels(graph: Graph, device: Device, seconds: Floats) -> Ints:
    """[n] the form that each op's time on the device is modelled by, -1 where the model says another time."""
    able = device_preset(device)
    form = gpu_op_times(graph, able).form if able.sms else np.where(graph.launches, _ROOFLINE, _UNLAUNCHED)
    by_model = np.isclose(model_seconds(graph, device) / device.speed, seconds, rtol=_SAME, atol=0)
    return np.where(by_model, form, -1)


def form_name(kernel: int) -> str | None:
    """What a form is called; None where the time is not modelled."""
    return FORMS[kernel] if kernel >= 0 else None
