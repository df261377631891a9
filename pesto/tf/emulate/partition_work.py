"""Converts TensorFlow's partition graphs into functions to emulate: ops, loops as one op, and transfers."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.graph import Graph
from pesto.core.problem import payloads
from pesto.core.simulator import Timeline
from pesto.tf.emulate.enforced_graph import EnforcedStep
from pesto.tf.emulate.reservations import EmulatedWork
from pesto.tf.nodes.needed_nodes import producer
from solvers.arrays import Ints

_SENDS, _RECEIVES = ("_Send", "_HostSend"), ("_Recv", "_HostRecv")
_Key = tuple[str, int | str, int]
"""An op ("op", its index, -1), a tensor on its way ("sent", its index, CPU), or what takes no time: a message ("told",
its name, CPU), a relay ("told", its name, -1)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictedStep:
    """The step as it was simulated, in which the emulation finds its times."""

    graph: Graph
    timeline: Timeline
    rank: Ints
    """[n] place of each op in the plan's order."""
    location: tuple[int, ...]
    """Location of the problem that each logical CPU stands for, by its number."""
    per_edge: bool
    """True if the problem counts one transfer an edge."""


def unreserved_ops(enforced: EnforcedStep, predicted: PredictedStep) -> frozenset[int]:
    """Ops that take their time beside their processor: out of the chains, and no kernel starts."""
    index = {name: i for i, name in enumerate(predicted.graph.names)}
    free = [index[enforced.placement.graph.names[i]] for i in np.flatnonzero(~enforced.placement.chained).tolist()]
    return frozenset(op for op in free if not predicted.graph.launches[op])


def build_work(enforced: EnforcedStep, predicted: PredictedStep, free: frozenset[int] | None = None) -> EmulatedWork:
    """Build the functions to execute. TensorFlow's own copies of constants are free, and control messages take no time.

    free: ops that do not reserve their processor, by default those that are `unreserved_ops` it.
    """
    parts = _PartitionFunctions(enforced, predicted, unreserved_ops(enforced, predicted) if free is None else free)
    order = _ordered(parts)
    place = {key: k for k, key in enumerate(order)}
    timed = [_timed(key, parts, predicted) for key in order]
    return EmulatedWork(
        names=tuple(parts.name_of(key) for key in order),
        cpu=tuple(parts.cpu_of(key) for key in order),
        holds=tuple(holds for holds, _, _ in timed),
        ticks=tuple(ticks for _, ticks, _ in timed),
        data=tuple(tuple(sorted(place[p] for p in parts.reads[key])) for key in order),
        controls=tuple(tuple(sorted(place[p] for p in parts.waits[key] - parts.reads[key])) for key in order),
        op=tuple(int(key[1]) if key[0] == "op" else -1 for key in order),
        sent=tuple(sent for _, _, sent in timed),
        rank=tuple(parts.rank_of(key) for key in order),
    )


@dataclass(frozen=True, slots=True)
class _PartitionFunctions:
    """The partition graphs, with what each function reads and waits for."""

    enforced: EnforcedStep
    predicted: PredictedStep
    free: frozenset[int]
    """Ops that do not reserve their processor."""
    reads: dict[_Key, set[_Key]] = field(default_factory=dict)
    """Function -> those whose output it reads."""
    waits: dict[_Key, set[_Key]] = field(default_factory=dict)
    """Function -> those that it waits for."""
    payload: dict[int, int] = field(default_factory=dict)
    """Tensor of the graph -> the problem's payload, the first where each edge has one."""
    _nodes: dict[tuple[int, str], Any] = field(default_factory=dict)
    _own: dict[int, int] = field(default_factory=dict)
    """Op of the planned graph -> its index in the trace."""
    _op: dict[str, int] = field(default_factory=dict)
    _tensor: dict[tuple[str, int], int] = field(default_factory=dict)
    _relayed: dict[str, str] = field(default_factory=dict)
    """Relay -> the tensor that it passes."""
    _arrives: dict[tuple[bytes, int], _Key] = field(default_factory=dict)
    _source: dict[_Key, tuple[int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        index = {name: i for i, name in enumerate(self.predicted.graph.names)}
        trace = self.enforced.trace
        self._own.update({index[name]: i for i, name in enumerate(trace.graph.names)})
        for node, op in zip(trace.nodes.defs, trace.op_of_node, strict=True):
            self._op[node.name] = index[trace.graph.names[op]]
        names = [node.name for node in trace.nodes.defs]
        self._tensor.update({(names[node], k): tensor for (node, k), tensor in trace.tensors().items()})
        self._relayed.update((relay.name, relay.tensor) for relay in self.enforced.placement.relays)
        _, tensor = payloads(self.predicted.graph, per_edge=self.predicted.per_edge)
        self.payload.update(reversed(list(zip(tensor.tolist(), range(len(tensor)), strict=True))))
        # TensorFlow may have optimised partitions further; they are read as they are, since this is what its executor
        # would run.
        for part in self.enforced.partitions:
            for node in part.node:
                self._nodes[_number(node.device), node.name] = node
        for (cpu, _), node in self._nodes.items():
            if node.op in _SENDS:
                self._arrives[node.attr["tensor_name"].s, _to(node)] = self._sending(cpu, node)
        self._connect()

    def _connect(self) -> None:
        """Fill `reads` and `waits`, without messages that wait for nothing of the step."""
        for (cpu, name), node in self._nodes.items():
            if name in self._op:
                self._add(("op", self._op[name], -1), cpu, node)
            elif name in self._relayed:
                self._add(("told", name, -1), cpu, node)
            elif node.op in _SENDS:
                self._add(self._arrives[node.attr["tensor_name"].s, _to(node)], cpu, node)
        # A control edge across devices is a message: constant, send, receive, Identity. Messages from feeds and
        # variables, which are outside of the emulation, are satisfied from the start.
        told = [key for key in self.reads if key[0] == "told" and not (self.reads[key] or self.waits[key])]
        for key in told:
            del self.reads[key], self.waits[key]
        for before in (*self.reads.values(), *self.waits.values()):
            before.difference_update(told)

    def cpu_of(self, key: _Key) -> int:
        return self._source[key][0]

    def name_of(self, key: _Key) -> str:
        return self._source[key][1]

    def rank_of(self, key: _Key) -> int:
        """Tie rank among simultaneous ends: transfers first, then unchained ops, on which no plan may rely.

        Then what is in the chains, in the plan's order; a relay has its op's place.
        """
        if key[0] == "told" and key[2] < 0:
            return self._place(self._op[producer(self._relayed[str(key[1])])])
        if key[0] != "op":
            return -1
        op = int(key[1])
        return self._place(op) if self.enforced.placement.chained[self._own[op]] else op

    def _place(self, op: int) -> int:
        return self.predicted.graph.ops + int(self.predicted.rank[op])

    def _sending(self, cpu: int, node: Any) -> _Key:
        """The transfer that a send is: one a tensor and target, however many sends TensorFlow makes."""
        name, _, output = self._relayed.get(node.input[0], node.input[0]).partition(":")
        if name in self._op:
            return "sent", self._tensor[name, int(output or 0)], _to(node)
        return "told", f"{cpu} {node.attr['tensor_name'].s!r}", _to(node)

    def _add(self, key: _Key, cpu: int, node: Any) -> None:
        """Add the inputs of `node` to those of the function `key`."""
        self._source.setdefault(key, (cpu, producer(node.input[0]) if key[0] == "sent" else node.name))
        reads, waits = self.reads.setdefault(key, set()), self.waits.setdefault(key, set())
        for text in node.input:
            before = set(self._before(cpu, producer(text))) - {key}
            # A message's input is a constant of TensorFlow's own: what is behind that is an order, no data.
            (waits if text[0] == "^" or key[0] == "told" else reads).update(before)

    def _before(self, cpu: int, name: str) -> Iterator[_Key]:
        """The functions that a node is, or waits for where it is TensorFlow's own."""
        node = self._nodes[cpu, name]
        if name in self._op:
            yield "op", self._op[name], -1
        elif name in self._relayed:
            yield "told", name, -1
        elif node.op in _RECEIVES:
            yield self._arrives[node.attr["tensor_name"].s, cpu]
        else:
            for text in node.input:
                yield from self._before(cpu, producer(text))


def _number(device: str) -> int:
    return int(tf.DeviceSpec.from_string(device).device_index)


def _to(send: Any) -> int:
    return _number(send.attr["recv_device"].s.decode())


def _timed(
    key: _Key, parts: _PartitionFunctions, predicted: PredictedStep
) -> tuple[tuple[int, ...], int, tuple[int, int]]:
    """Return (resources held, ticks, transfer of the problem) of a function."""
    problem, device = predicted.timeline.problem, predicted.timeline.schedule.device
    if key[0] == "op":
        lane = int(device[int(key[1])])
        return () if int(key[1]) in parts.free else (lane,), int(problem.duration[int(key[1]), lane]), (-1, -1)
    if key[0] == "told":
        return (), 0, (-1, -1)
    here, there = predicted.location[parts.cpu_of(key)], predicted.location[key[2]]
    payload = parts.payload.get(int(key[1]))
    # TensorFlow may send tensors that the planned graph does not have, for example shapes; they count as free.
    if payload is None:  # what nothing of the planned graph reads
        return (), 0, (-1, -1)
    # Processors are numbered first and links behind them, so one table of reservations serves both.
    links = tuple(problem.devices + k for k in problem.holds[here, there].tolist() if k >= 0)
    return links, int(problem.transfer[payload, problem.path_class[here, there]]), (payload, there)


def _ordered(parts: _PartitionFunctions) -> list[_Key]:
    """All functions, each behind what it waits for, in the plan's order where that says anything."""
    before = {key: parts.reads[key] | parts.waits[key] for key in parts.reads}
    after: dict[_Key, list[_Key]] = {key: [] for key in before}
    for key, earlier in before.items():
        for p in earlier:
            after[p].append(key)
    left = {key: len(earlier) for key, earlier in before.items()}
    ready = [(parts.rank_of(key), str(key), key) for key, count in left.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, _, key = heapq.heappop(ready)
        order.append(key)
        for other in after[key]:
            left[other] -= 1
            if left[other] == 0:
                heapq.heappush(ready, (parts.rank_of(other), str(other), other))
    return order
