"""What lives where and when: peak bytes of each device during a simulated step."""

from dataclasses import dataclass

import numpy as np

from pesto.cluster import Cluster
from pesto.graph import Graph
from pesto.simulate import Timeline
from solvers.arrays import Bools, Ints
from solvers.problem import Problem

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory:
    """Bytes of one simulated step by location."""

    persistent: Ints
    """[l] bytes of variables and optimizer slots."""
    peak: Ints
    """[l] most bytes alive at any tick, the persistent ones included."""
    alive: Ints
    """[n] bytes of each op, persistent ones included, that are alive when its location is at its peak."""


def measure(graph: Graph, timeline: Timeline) -> Memory:
    """Bytes alive over the step.

    A tensor lives from its op's start until its last reader on that device, or its last send, has finished; a
    received copy from the start of its transfer until its last reader there. Ops that launch nothing (identity,
    reshape, variable read) pass their largest input on without a copy. Kernels' scratch space is not known and not
    counted.
    """
    buffers = _Buffers.of(graph, timeline)
    locations = timeline.problem.locations
    op_location = timeline.problem.location[timeline.schedule.device]
    persistent = np.bincount(op_location, weights=graph.param_bytes, minlength=locations).astype(np.int64)
    peak, alive = persistent.copy(), graph.param_bytes.copy()
    for location in range(locations):
        mine = np.flatnonzero((buffers.location == location) & (buffers.size > 0))
        at, most = _peak(buffers.begin[mine], buffers.end[mine], buffers.size[mine])
        peak[location] += most
        held = mine[(buffers.begin[mine] <= at) & (at < buffers.end[mine])]
        np.add.at(alive, buffers.owner[held], buffers.size[held])
    return Memory(persistent=persistent, peak=peak, alive=alive)


def shortage(graph: Graph, problem: Problem, cluster: Cluster) -> str:
    """For people: what the variables need, what the devices that may hold them give, and the largest group."""
    kinds = sorted({d.kind for d in cluster.devices}, key=lambda kind: -_confined(graph, problem, cluster, kind))
    kind, need = kinds[0], _confined(graph, problem, cluster, kinds[0])
    given = [d.memory_bytes for d in cluster.devices if d.kind == kind]
    unit = np.where(problem.group >= 0, problem.group, int(problem.group.max(initial=-1)) + 1 + np.arange(graph.ops))
    held = np.bincount(unit, weights=graph.param_bytes)
    largest = int(held.argmax())
    name = graph.names[int(np.argmax((unit == largest) * graph.param_bytes))]
    most = int(held[largest])
    short = max(need - sum(given), most - max(given))
    return (
        f"{kind} memory: {need / GIB:.2f} GiB needed, {len(given)} x {max(given) / GIB:.2f} GiB given, "
        f"{short / GIB:.2f} GiB short; largest group {most / GIB:.2f} GiB ({name})"
    )


def _confined(graph: Graph, problem: Problem, cluster: Cluster, kind: str) -> int:
    """Bytes of the variables that only devices of `kind` may hold."""
    other = [d for d, at in enumerate(problem.location.tolist()) if cluster.devices[at].kind != kind]
    return int(graph.param_bytes[~problem.allowed[:, other].any(axis=1)].sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Buffers:
    """One row for each tensor where it was made, then one for each received copy."""

    location: Ints
    size: Ints
    owner: Ints
    begin: Ints
    end: Ints

    @classmethod
    def of(cls, graph: Graph, timeline: Timeline) -> "_Buffers":
        s, p = timeline.schedule, timeline.problem
        tensors = len(graph.tensor_op)
        op_location = p.location[s.device]
        sent_tensor = _tensor_of_payload(graph, p.payloads)[s.sent_payload]
        edge_row = _rows_read(graph, op_location, sent_tensor, s.sent_to)
        root = _roots(graph, edge_row, tensors + len(sent_tensor))
        begin = np.concatenate([s.start[graph.tensor_op], s.sent_start])
        end = np.concatenate([s.finish[graph.tensor_op], s.sent_finish])
        np.maximum.at(end, sent_tensor, s.sent_finish)
        np.maximum.at(end, edge_row, s.finish[graph.dst])
        np.maximum.at(end, root, end.copy())
        size = np.concatenate([graph.tensor_bytes, graph.tensor_bytes[sent_tensor]])
        return cls(
            location=np.concatenate([op_location[graph.tensor_op], s.sent_to]),
            size=np.where(root == np.arange(len(root)), size, 0),
            owner=np.concatenate([graph.tensor_op, graph.tensor_op[sent_tensor]]),
            begin=begin,
            end=end,
        )


def _tensor_of_payload(graph: Graph, payloads: int) -> Ints:
    used = np.unique(graph.tensor)
    return used if len(used) == payloads else graph.tensor  # the latter: one payload an edge


def _rows_read(graph: Graph, op_location: Ints, sent_tensor: Ints, sent_to: Ints) -> Ints:
    """[e] buffer row that each data edge reads: the tensor itself, or its copy at the reader's location."""
    tensors, width = len(graph.tensor_op), int(op_location.max(initial=0)) + 1
    row = graph.tensor.copy()
    remote = np.flatnonzero(op_location[graph.src] != op_location[graph.dst])
    if len(remote):
        keys = sent_tensor * width + sent_to
        by_key = np.argsort(keys, kind="stable")
        wanted = graph.tensor[remote] * width + op_location[graph.dst[remote]]
        row[remote] = tensors + by_key[np.searchsorted(keys[by_key], wanted)]
    return row


def _roots(graph: Graph, edge_row: Ints, rows: int) -> Ints:
    """[rows] the row whose bytes each row really uses, following ops that only pass their input on."""
    parent = np.arange(rows)
    passes = _passes_on(graph)
    largest = np.full(graph.ops, -1)
    by_size = np.argsort(graph.tensor_bytes[graph.tensor], kind="stable")
    largest[graph.dst[by_size]] = by_size
    made = np.flatnonzero(passes[graph.tensor_op] & (largest[graph.tensor_op] >= 0))
    parent[made] = edge_row[largest[graph.tensor_op[made]]]
    while True:
        further = parent[parent]
        if np.array_equal(further, parent):
            return parent
        parent = further


def _passes_on(graph: Graph) -> Bools:
    return ~graph.launches


def _peak(begin: Ints, end: Ints, size: Ints) -> tuple[int, int]:
    """(tick, bytes) of the highest sum; what ends at a tick is gone before what begins there."""
    if len(size) == 0:
        return 0, 0
    when = np.concatenate([end, begin])
    change = np.concatenate([-size, size])
    order = np.argsort(when, kind="stable")
    level = np.cumsum(change[order])
    top = int(np.argmax(level))
    return int(when[order[top]]), int(level[top])
