"""What lives where and when: peak bytes of each device during a simulated step."""

from dataclasses import dataclass

import numpy as np

from pesto.cluster import Cluster
from pesto.graph import Graph
from pesto.problem import payloads
from pesto.simulate import Timeline
from solvers.arrays import Ints
from solvers.problem import Problem
from solvers.schedule import Schedule

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


def measure(graph: Graph, timeline: Timeline, *, per_edge: bool = False) -> Memory:
    """Bytes alive over the step; `per_edge` as the timeline's problem was built.

    A tensor lives from its op's start until its last reader on that device, or its last send, has finished; a
    received copy from the start of its transfer until its last reader there. An op that launches nothing and whose
    output is as large as its largest input (identity, reshape, the read of a variable) passes that on without a
    copy. Kernels' scratch space is not known and not counted.
    """
    buffers = _Buffers.of(graph, timeline, per_edge=per_edge)
    locations = timeline.problem.locations
    op_location = timeline.problem.location[timeline.schedule.device]
    persistent = np.zeros(locations, dtype=np.int64)
    np.add.at(persistent, op_location, graph.param_bytes)
    peak, alive = persistent.copy(), graph.param_bytes.copy()
    for location in range(locations):
        mine = np.flatnonzero((buffers.location == location) & (buffers.size > 0))
        at, most = _peak(buffers.begin[mine], buffers.end[mine], buffers.size[mine])
        peak[location] += most
        held = mine[(buffers.begin[mine] <= at) & (at < buffers.end[mine])]
        np.add.at(alive, buffers.owner[held], buffers.size[held])
    return Memory(persistent=persistent, peak=peak, alive=alive)


def shortage(graph: Graph, problem: Problem, cluster: Cluster) -> str:
    """For people: which kind of memory the variables exceed and by how much, or which group no device can hold."""
    for kind in sorted({d.kind for d in cluster.devices}, reverse=True):
        need, given = (
            _confined(graph, problem, cluster, kind),
            [d.memory_bytes for d in cluster.devices if d.kind == kind],
        )
        if need > sum(given):
            return (
                f"{kind} memory: {need / GIB:.2f} GiB needed, {len(given)} devices give {sum(given) / GIB:.2f} GiB, "
                f"{(need - sum(given)) / GIB:.2f} GiB short; the largest group has {_largest(graph, problem)}"
            )
    most = max(d.memory_bytes for d in cluster.devices)
    return f"the largest group has {_largest(graph, problem)}, the largest device {most / GIB:.2f} GiB"


def _largest(graph: Graph, problem: Problem) -> str:
    unit = np.where(problem.group >= 0, problem.group, int(problem.group.max(initial=-1)) + 1 + np.arange(graph.ops))
    held = np.zeros(int(unit.max(initial=-1)) + 1, dtype=np.int64)
    np.add.at(held, unit, graph.param_bytes)
    largest = int(held.argmax())
    name = graph.names[int(np.argmax((unit == largest) * graph.param_bytes))]
    return f"{int(held[largest]) / GIB:.2f} GiB ({name})"


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
    def of(cls, graph: Graph, timeline: Timeline, *, per_edge: bool) -> "_Buffers":
        s, p = timeline.schedule, timeline.problem
        tensors = len(graph.tensor_op)
        op_location = p.location[s.device]
        payload, tensor_of = payloads(graph, per_edge=per_edge)
        sent_tensor = tensor_of[s.sent_payload]
        edge_row = _rows_read(graph, op_location, payload, s)
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


def _rows_read(graph: Graph, op_location: Ints, payload: Ints, s: Schedule) -> Ints:
    """[e] buffer row that each data edge reads: the tensor itself, or the copy that its payload made there."""
    tensors, width = len(graph.tensor_op), int(op_location.max(initial=0)) + 1
    row = graph.tensor.copy()
    remote = np.flatnonzero(op_location[graph.src] != op_location[graph.dst])
    if len(remote):
        keys = s.sent_payload * width + s.sent_to
        by_key = np.argsort(keys, kind="stable")
        wanted = payload[remote] * width + op_location[graph.dst[remote]]
        row[remote] = tensors + by_key[np.searchsorted(keys[by_key], wanted)]
    return row


def _roots(graph: Graph, edge_row: Ints, rows: int) -> Ints:
    """[rows] the row whose bytes each row really uses, following ops that only pass their input on."""
    parent = np.arange(rows)
    made, edge = _passed_on(graph)
    parent[made] = edge_row[edge]
    while True:
        further = parent[parent]
        if np.array_equal(further, parent):
            return parent
        parent = further


def _passed_on(graph: Graph) -> tuple[Ints, Ints]:
    """(tensors that are their op's largest input under another name, the data edge of that input)."""
    # A handle carries no bytes; what is read through it is the variable.
    carried = np.where(graph.tensor_bytes > 0, graph.tensor_bytes, graph.param_bytes[graph.tensor_op])[graph.tensor]
    largest = np.full(graph.ops, -1)
    by_size = np.argsort(carried, kind="stable")
    largest[graph.dst[by_size]] = by_size
    edge = largest[graph.tensor_op]
    same = graph.tensor_bytes == np.append(carried, -1)[edge]
    made = np.flatnonzero(~graph.launches[graph.tensor_op] & (edge >= 0) & same)
    return made, edge[made]


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
