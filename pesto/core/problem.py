"""Graph, costs and cluster as a `solvers.Problem` in ticks. Rounding happens here alone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pesto.core.cluster import Cluster, Path
from pesto.core.costs import Costs, LaunchTimes
from pesto.core.costs.network import transfer_s
from pesto.core.errors import InputError
from pesto.core.graph import FREE, SESSION, SHARED, Graph
from solvers import FORBIDDEN, Problem
from solvers.arrays import Bools, Floats, Ints, bools, ints, rank_of
from solvers.compiled.dag import connected

TICK_S = 1e-9
"""Seconds of one tick."""
LONGEST = 2**53
"""Most ticks of one op: 104 days, and every tick below it is a float of its own."""
COPIED = 128
"""Most bytes of a constant that is copied: 16 elements of eight bytes."""


def lanes(cluster: Cluster) -> tuple[tuple[str, int], ...]:
    """Return the processors of a cluster as (name, device index): one a GPU, one a CPU core; device = location."""
    return tuple(
        (device.name if device.cores == 1 else f"{device.name}/{core}", index)
        for index, device in enumerate(cluster.devices)
        for core in range(device.cores)
    )


class StepOnCluster(NamedTuple):
    """A training step on a cluster, and the modelled costs of one on the other."""

    graph: Graph
    cluster: Cluster
    costs: Costs

    def problem(self) -> Problem:
        """Return the full graph in ticks; variables alone are memory, as in `pesto.planning.solving.flow`."""
        return build_problem(self.graph, self.costs, self.cluster, memory=self.graph.param_bytes)


def build_problem(
    graph: Graph,
    costs: Costs,
    cluster: Cluster,
    *,
    memory: Ints,
    per_edge: bool = False,
    pins: Mapping[str, str] | None = None,
) -> Problem:
    """Build the full-graph problem: one task an op, devices as in `lanes`, locations = the cluster's devices.

    memory: [n] bytes an op holds at its location for the whole step (see `pesto.core.memory`). per_edge: one
    transfer an edge, as Pesto's paper counts them (3.2.1), in place of TensorFlow's one a tensor and target device;
    small constants, which are `copied_constants`, are sent then, too. pins: device of variables, by name
    (`Graph.variables`), at which the ops that stand for them are pinned, with their groups.
    Durations and transfers are rounded up to ticks of 1 ns. Control edges cost nothing but order. Nothing waits for a
    constant that is copied, and ops that run beside the order take no time.

    Raise InputError when an op or a group can run on no device, or has no cost where it can.
    """
    processors = lanes(cluster)
    location = np.array([device for _, device in processors])
    allowed = _allowed(graph, cluster, pins or {})
    missing = allowed & np.isnan(costs.compute_s)
    if missing.any():
        op, device = np.argwhere(missing)[0]
        raise InputError.build(
            f"costs: op {graph.names[op]} has no time on {cluster.devices[device].name}", remedy="profile it"
        )
    over = np.argwhere(costs.compute_s > LONGEST * TICK_S)
    if len(over):
        op, device = over[0]
        raise InputError.build(
            f"op {graph.names[op]} takes {costs.compute_s[op, device]:.3g} s on {cluster.devices[device].name}, more "
            f"than {LONGEST * TICK_S:.0e}",
            remedy="check its time or flops",
        )
    ticks = np.where(allowed, np.where(_runs_unordered(graph)[:, None], 0, _round_up(costs.compute_s)), FORBIDDEN)
    payload, tensor = payloads(graph, per_edge=per_edge)
    sizes = graph.tensor_bytes[tensor]
    path_class, paths, path_links = _path_columns(cluster)
    try:
        return Problem(
            duration=ticks[:, location],
            location=location,
            memory=memory,
            capacity=np.array([d.memory_bytes for d in cluster.devices]),
            src=np.concatenate([graph.src[payload >= 0], graph.control_src]),
            dst=np.concatenate([graph.dst[payload >= 0], graph.control_dst]),
            payload=np.concatenate([payload[payload >= 0], np.full(len(graph.control_src), -1)]),
            producer=graph.tensor_op[tensor],
            transfer=np.array([_round_up(transfer_s(path, sizes)) for path in paths])
            .reshape(len(paths), len(tensor))
            .T,
            path_class=path_class,
            path_links=path_links,
            group=_colocation_groups(graph, payload),
        )
    except ValueError as error:  # the graph's own invariants hold, so only sums can be at fault
        raise InputError.build(
            f"{error}", where=graph.source, remedy="check the units of its times and bytes"
        ) from error


def add_launches(problem: Problem, graph: Graph, cluster: Cluster, apart: LaunchTimes) -> tuple[Problem, Ints]:
    """Return (the full-graph `problem` with a task for each launch behind its ops, [k] the op of each such task).

    Each accelerator gets a device at its own location, behind all others, that runs the launches of its ops: Pesto's
    kernel device (3.2.1). A launch shares its op's location, comes before it, after the launches of what the op reads
    or waits for, and after what reaches it from a host.
    """
    fast = np.flatnonzero([device.kind != "cpu" for device in cluster.devices])
    on_fast = bools(np.isin(problem.location, fast))
    op = np.flatnonzero((problem.allowed & on_fast).any(axis=1) & graph.launches & ~_runs_unordered(graph))
    launch = np.full(problem.tasks, -1)
    launch[op] = problem.tasks + np.arange(len(op))
    kernel = np.where(problem.allowed, _round_up(apart.kernel_s)[:, problem.location], FORBIDDEN)
    able = np.stack([problem.allowed[op][:, problem.location == at].any(axis=1) for at in fast], axis=1)
    own = np.full((problem.tasks + len(op), problem.devices + len(fast)), FORBIDDEN)
    own[: problem.tasks, : problem.devices] = problem.duration
    own[op, : problem.devices] = kernel[op]
    own[problem.tasks :, problem.devices :] = np.where(able, _round_up(apart.launch_s[op][:, fast]), FORBIDDEN)
    # An op waits for its launch, which comes after launches of what the op reads and what a host sends it.
    src, dst = problem.src, problem.dst
    hosted = bools(~(problem.allowed & on_fast).any(axis=1))
    chained = (launch[src] >= 0) & (launch[dst] >= 0)
    reached = hosted[src] & (launch[dst] >= 0)
    alone = np.full(len(op) + int(chained.sum()), -1)
    payload = np.concatenate([problem.payload, alone, problem.payload[reached]])
    src, dst = (
        np.concatenate([src, launch[op], launch[src[chained]], src[reached]]),
        np.concatenate([dst, op, launch[dst[chained]], launch[dst[reached]]]),
    )
    group = problem.group.copy()
    alone = op[group[op] < 0]
    group[alone] = group.max(initial=-1) + 1 + np.arange(len(alone))
    found = replace(
        problem, duration=own, location=np.concatenate([problem.location, fast]), src=src, dst=dst, payload=payload,
        memory=np.concatenate([problem.memory, np.zeros(len(op), dtype=np.int64)]),
        group=np.concatenate([group, group[op]]),
    )  # fmt: skip
    return found, ints(op)


def _round_up(seconds: Floats) -> Ints:
    # A thousandth of a tick is floating point noise, not time.
    with np.errstate(over="ignore"):
        ticks = np.ceil(np.round(np.nan_to_num(seconds) / TICK_S, 3))
    if (ticks > LONGEST).any():
        raise InputError.build(
            f"a transfer takes {ticks.max() * TICK_S:.3g} s", remedy="check the tensors' bytes and the links"
        )
    return ticks.astype(np.int64)


def _allowed(graph: Graph, cluster: Cluster, pins: Mapping[str, str]) -> Bools:
    """[n, d] where each op may run: on an accelerator when its whole group can, on a CPU otherwise (Pesto, 3.2.1).

    One that is pinned runs where it is pinned to, if it can.
    """
    can = _group_kinds(graph)
    present = {d.kind for d in cluster.devices}
    column = {kind: k for k, kind in enumerate(graph.kinds) if kind in present}
    fast = [k for kind, k in column.items() if kind != "cpu"]
    on_fast = can[:, fast].any(axis=1)
    allowed = np.zeros((graph.ops, len(cluster.devices)), dtype=bool)
    for d, device in enumerate(cluster.devices):
        if device.kind in column:
            allowed[:, d] = can[:, column[device.kind]] & (on_fast if device.kind != "cpu" else ~on_fast)
    pin = _pinned_device(graph, cluster, pins)
    for d, device in enumerate(cluster.devices):
        here = pin == d
        allowed[here] = False
        if device.kind in column:
            allowed[here, d] = can[here, column[device.kind]]
    nowhere = np.flatnonzero(~allowed.any(axis=1))
    if len(nowhere):
        op = nowhere[0]
        kernels = [kind for k, kind in enumerate(graph.kinds) if can[op, k]]
        raise InputError.build(
            f"op {graph.names[op]} runs on no device: its kernels {kernels} match none of the cluster's "
            f"{sorted(present)}",
            remedy="add such a device to the cluster",
        )
    return allowed


def _pinned_device(graph: Graph, cluster: Cluster, pins: Mapping[str, str]) -> Ints:
    """[n] the one device that each op, its variable or an op of its group is pinned to; -1 for none."""
    names = [device.name for device in cluster.devices]
    missing = [name for name in (*graph.devices, *pins.values()) if name not in names]
    if missing:
        raise InputError.build(
            f"graph: ops are pinned to {missing[0]}, the cluster has {', '.join(names)}", remedy="rename one"
        )
    pin = np.append(np.array([names.index(name) for name in graph.devices], dtype=np.int64), -1)[graph.device_of]
    at = [names.index(pins[variable.name]) if variable.name in pins else -1 for variable in graph.variables]
    held = np.array([*at, -1], dtype=np.int64)[graph.variable_of]
    apart = np.flatnonzero((held >= 0) & (pin >= 0) & (held != pin))
    if len(apart):
        op = apart[0]
        raise InputError.build(
            f"op {graph.names[op]} is pinned to {names[pin[op]]} by the graph and to {names[held[op]]} by its variable",
            remedy="take one of the pins out",
        )
    pin = np.where(held >= 0, held, pin)
    group = np.full(int(graph.group.max(initial=-1)) + 2, -1)
    np.maximum.at(group, graph.group, np.where(graph.group >= 0, pin, -1))
    torn = np.flatnonzero((graph.group >= 0) & (pin >= 0) & (pin != group[graph.group]))
    if len(torn):
        raise InputError.build(
            f"op {graph.names[torn[0]]}: its group is pinned to two devices", remedy="split it, or unpin one"
        )
    return ints(np.where(pin >= 0, pin, group[graph.group]))


def _runs_unordered(graph: Graph) -> Bools:
    """[n] ops that run beside the order in the way in which the step is meant to be run: they hold no processor.

    Handles and feeds, constants of which there are copies, and in a session what other programs share and no kernel
    starts for: all of it is light, and done when the step begins.
    """
    found = (graph.loose == FREE) | ((graph.loose == SHARED) & (graph.way == SESSION) & ~graph.launches)
    found[graph.tensor_op[copied_constants(graph)]] = True
    return bools(found)


def _colocation_groups(graph: Graph, payload: Ints) -> Ints:
    """[n] the graph's groups; with what has no place in the order goes what else has none and reads nothing but that.

    Nothing could order such a transfer: it would start with the step, ahead of what a plan sends then.
    """
    src, dst, can = graph.src, graph.dst, _group_kinds(graph)
    free = (graph.loose == SHARED) | (graph.loose == FREE)
    alone = (graph.group < 0) & (np.bincount(dst, minlength=graph.ops) == 1)
    joined = free[src] & free[dst] & alone[dst] & (payload >= 0) & (can[src] == can[dst]).all(axis=1)
    held, groups = np.flatnonzero(graph.group >= 0), int(graph.group.max(initial=-1)) + 1
    one = np.concatenate([src[joined], held])
    other = np.concatenate([dst[joined], graph.ops + graph.group[held]])
    root = connected(graph.ops + groups, ints(one), ints(other))[: graph.ops]
    member = np.zeros(graph.ops, dtype=np.bool_)
    member[one] = True
    member[dst[joined]] = True
    found = np.full(graph.ops, -1)
    found[member] = np.unique(root[member], return_inverse=True)[1]
    return ints(found)


def _group_kinds(graph: Graph) -> Bools:
    """[n, k] `runs_on`, narrowed to what all members of an op's group share."""
    member = np.flatnonzero(graph.group >= 0)
    can = graph.runs_on.copy()
    if len(member) == 0:
        return can
    shared = np.ones((int(graph.group.max()) + 1, len(graph.kinds)), dtype=bool)
    np.logical_and.at(shared, graph.group[member], can[member])
    can[member] = shared[graph.group[member]]
    empty = member[~can[member].any(axis=1)]
    if len(empty):
        others = [graph.names[i] for i in np.flatnonzero(graph.group == graph.group[empty[0]])[:4]]
        raise InputError.build(
            f"the ops {others} must share a device but no kind of device runs them all", remedy="split the group"
        )
    return can


def payloads(graph: Graph, *, per_edge: bool) -> tuple[Ints, Ints]:
    """Return (payload of each data edge, tensor of each payload): one a tensor with a reader, or one an edge.

    -1 where the tensor is copied and never sent (`copied_constants`); the paper counts such edges as all others.
    """
    if per_edge:
        return np.arange(len(graph.src)), graph.tensor
    sent = ~copied_constants(graph)[graph.tensor]
    payload = np.full(len(graph.tensor), -1)
    used, payload[sent] = np.unique(graph.tensor[sent], return_inverse=True)
    return payload, used


def constants_first(graph: Graph, rank: Ints) -> Ints:
    """Return [n] `rank`, but constants that are copied, for which nothing waits, come before all else."""
    first = np.zeros(graph.ops, dtype=np.bool_)
    first[graph.tensor_op[copied_constants(graph)]] = True
    return rank_of(np.lexsort((rank, ~first)))


def copied_constants(graph: Graph) -> Bools:
    """Return [t] the small constants of which every device that reads them has a copy: they are never sent.

    TensorFlow copies constants of up to 16 elements to each CPU that reads them; enforcement does so on every device
    (`pesto.tf.apply_placement`). One that waits for something, as in a branch, is sent: a copy would not wait.
    """
    constant = np.isin(graph.type_of, [k for k, name in enumerate(graph.types) if name == "Const"])
    constant &= graph.runs_on.all(axis=1) & (np.bincount(graph.edge_dst, minlength=graph.ops) == 0)
    return bools(constant[graph.tensor_op] & (graph.tensor_bytes <= COPIED) & (graph.tensor_bytes > 0))


def _path_columns(cluster: Cluster) -> tuple[Ints, list[Path], Ints]:
    """([device, device] class of each path, -1 for none; a path of each class; [device, device, k] its links or -1)."""
    size = len(cluster.devices)
    widest = max((len(p.links) for row in cluster.paths for p in row if p is not None), default=0)
    column, held = np.full((size, size), -1, dtype=np.int64), np.full((size, size, widest), -1, dtype=np.int64)
    classes: dict[tuple[float, ...], int] = {}
    paths: list[Path] = []
    for a, row in enumerate(cluster.paths):
        for b, path in enumerate(row):
            if path is not None:
                column[a, b] = classes.setdefault(path.cost, len(paths))
                paths += [path] if column[a, b] == len(paths) else []
                held[a, b, : len(path.links)] = path.links
    return column, paths, held
