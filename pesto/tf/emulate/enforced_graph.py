"""The graph that one way of running enforces for a plan, as TensorFlow partitions it, and its functions to emulate.

Functions are ops, loops as one op, and transfers.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.core.graph import SESSION, Graph
from pesto.core.plans.execution_modes import GRAPHDEF
from pesto.core.plans.plan import Plan
from pesto.core.problem import payloads
from pesto.core.simulator import Timeline
from pesto.tf.apply_placement.placement import FED, StepPlacement, StepTrace, place_with_relays, trace_step
from pesto.tf.apply_placement.targets import ApplyOptions, device_targets
from pesto.tf.emulate.clocks import EmulatedWork
from pesto.tf.enforce.edits import compute_function_edits, write_edits
from pesto.tf.enforce.partitions import ExpectedPlacement
from pesto.tf.enforce.rewrite import partition_without_running, rewrite_with_report
from pesto.tf.enforce.sessions import place_graph
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.inline import flatten
from pesto.tf.nodes.needed_nodes import producer
from pesto.tf.nodes.shape_inference import copy_graph_def
from solvers.arrays import Ints

_SENDS, _RECEIVES = ("_Send", "_HostSend"), ("_Recv", "_HostRecv")
_Key = tuple[str, int | str, int]
"""An op ("op", its index, -1), a tensor on its way ("sent", its index, CPU), or what takes no time: a message ("told",
its name, CPU), a relay ("told", its name, -1)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedStep:
    """A training step and the program around it."""

    captured: CapturedStep
    program: Any
    """GraphDef of the whole program, with what other fetches than the step start from."""

    def meant(self, way: str) -> str:
        """Return `way`, unless that is a session and the program calls functions, whose ops no session can place."""
        return GRAPHDEF if way == SESSION and flatten(self.program) is not self.program else way


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EnforcedStep:
    """A step with a plan's devices and order in it."""

    trace: StepTrace
    placement: StepPlacement
    partitions: Sequence[Any]
    """GraphDef of each device, its nodes on logical CPUs by the number of the plan's device."""


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


def enforce_step(step: PlannedStep, plan: Plan, *, way: str, order: bool) -> EnforcedStep:
    """Apply `plan` to `step` as `way` does; without `order` the placement alone.

    Feeds and arguments are put where the plan has them. Raise what `rewrite_with_report`, `place_graph` and
    `place_with_relays` raise, and UsageError for a session that cannot place the step.
    """
    options = ApplyOptions(devices="cpu", order=order)
    if way == GRAPHDEF:
        done = rewrite_with_report(step.program, plan, options, step.captured.source)
        return partition_step(done.graph_def, done.trace, done.placement, done.renamed)
    if way == SESSION:
        # The program as a graph that a session opens on, edited as `pesto.apply` does.
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(step.program, name="")
        placed, _ = place_graph(graph, [plan], options)
        if not placed:
            raise UsageError.build(
                f"emulate: {shown(step.captured.source)} lacks ops of the plan, as those in functions that a graph "
                "calls, which no session can place",
                remedy="emulate it as graphdef",
            )
        return partition_step(graph.as_graph_def(), placed[0].trace, placed[0].expected.placement)
    traced = trace_step(step.captured, plan.provenance.graph_batch)
    placement = place_with_relays(plan, traced, device_targets(plan, options.devices), order=order)
    graph_def = copy_graph_def(step.captured.graph_def)
    write_edits(graph_def, compute_function_edits(placement, traced, graph_def.node))
    return partition_step(graph_def, traced, placement)


def partition_step(
    graph_def: Any, traced: StepTrace, placement: StepPlacement, renamed: Mapping[str, str] | None = None
) -> EnforcedStep:
    """Return TensorFlow's partitions of a GraphDef that `placement` was written into; feeds get their devices in place.

    renamed: what the graph calls some of the placement's ops.
    """
    index = {name: i for i, name in enumerate(placement.graph.names)}
    for node in graph_def.node:
        if node.op in FED and node.name in index:
            node.device = placement.device_of(index[node.name])
    partitions = partition_without_running(
        graph_def, ExpectedPlacement(placement=placement, loops=traced.loops, renamed=renamed or {})
    )
    return EnforcedStep(trace=traced, placement=placement, partitions=partitions)


def find_unreserved_ops(enforced: EnforcedStep, predicted: PredictedStep) -> frozenset[int]:
    """Return the ops that take their time beside their processor: out of the chains, and no kernel starts."""
    index = {name: i for i, name in enumerate(predicted.graph.names)}
    free = [index[enforced.placement.graph.names[i]] for i in np.flatnonzero(~enforced.placement.chained).tolist()]
    return frozenset(op for op in free if not predicted.graph.launches[op])


def build_work(enforced: EnforcedStep, predicted: PredictedStep, free: frozenset[int] | None = None) -> EmulatedWork:
    """Build the functions to execute. TensorFlow's own copies of constants are free, and control messages take no time.

    free: ops that do not reserve their processor, by default `find_unreserved_ops`.
    """
    parts = _PartitionFunctions(enforced, predicted, find_unreserved_ops(enforced, predicted) if free is None else free)
    order = _order_functions(parts)
    place = {key: k for k, key in enumerate(order)}
    problem, device = predicted.timeline.problem, predicted.timeline.schedule.device
    holds: list[tuple[int, ...]] = [()] * len(order)
    ticks, sent = [0] * len(order), [(-1, -1)] * len(order)
    for index, key in enumerate(order):
        if key[0] == "op":
            op, lane = int(key[1]), int(device[int(key[1])])
            holds[index], ticks[index] = () if op in parts.free else (lane,), int(problem.duration[op, lane])
        # TensorFlow may send tensors that the planned graph does not have, for example shapes; they count as free.
        elif key[0] == "sent" and int(key[1]) in parts.payload:
            src, dst = predicted.location[parts.source[key][0]], predicted.location[key[2]]
            payload = parts.payload[int(key[1])]
            # Processors are numbered first and links behind them, so one table of reservations serves both.
            holds[index] = tuple(problem.devices + k for k in problem.holds[src, dst].tolist() if k >= 0)
            ticks[index], sent[index] = (int(problem.transfer[payload, problem.path_class[src, dst]]), (payload, dst))
    return EmulatedWork(
        names=tuple(parts.source[key][1] for key in order),
        cpu=tuple(parts.source[key][0] for key in order),
        holds=tuple(holds),
        ticks=tuple(ticks),
        data=tuple(tuple(sorted(place[p] for p in parts.reads[key])) for key in order),
        controls=tuple(tuple(sorted(place[p] for p in parts.waits[key] - parts.reads[key])) for key in order),
        op=tuple(int(key[1]) if key[0] == "op" else -1 for key in order),
        sent=tuple(sent),
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
    source: dict[_Key, tuple[int, str]] = field(default_factory=dict)
    """Function -> its logical CPU, and the op that it is or whose tensor it sends."""
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
                # One transfer a tensor and target, however many sends TensorFlow makes.
                name, _, output = self._relayed.get(node.input[0], node.input[0]).partition(":")
                tensor_name, to = node.attr["tensor_name"].s, _key_of_send(node)
                tensor_key: _Key = ("told", f"{cpu} {tensor_name!r}", to)
                if name in self._op:
                    tensor_key = "sent", self._tensor[name, int(output or 0)], to
                self._arrives[tensor_name, to] = tensor_key
        for (cpu, name), node in self._nodes.items():
            if name in self._op:
                self._add(("op", self._op[name], -1), cpu, node)
            elif name in self._relayed:
                self._add(("told", name, -1), cpu, node)
            elif node.op in _SENDS:
                self._add(self._arrives[node.attr["tensor_name"].s, _key_of_send(node)], cpu, node)
        # A control edge across devices is a message: constant, send, receive, Identity. Messages from feeds and
        # variables, which are outside of the emulation, are satisfied from the start.
        sent = [key for key in self.reads if key[0] == "told" and not (self.reads[key] or self.waits[key])]
        for key in sent:
            del self.reads[key], self.waits[key]
        for before in (*self.reads.values(), *self.waits.values()):
            before.difference_update(sent)

    def rank_of(self, key: _Key) -> int:
        """Return the tie rank among simultaneous ends: transfers first, then unchained ops, on which no plan may rely.

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

    def _add(self, key: _Key, cpu: int, node: Any) -> None:
        """Add the inputs of `node` to those of the function `key`."""
        self.source.setdefault(key, (cpu, producer(node.input[0]) if key[0] == "sent" else node.name))
        reads, waits = self.reads.setdefault(key, set()), self.waits.setdefault(key, set())
        for text in node.input:
            before = set(self._find_predecessors(cpu, producer(text))) - {key}
            # A message's input is a constant of TensorFlow's own: what is behind that is an order, no data.
            (waits if text[0] == "^" or key[0] == "told" else reads).update(before)

    def _find_predecessors(self, cpu: int, name: str) -> Iterator[_Key]:
        """Yield the functions that a node is, or waits for where it is TensorFlow's own."""
        node = self._nodes[cpu, name]
        if name in self._op:
            yield "op", self._op[name], -1
        elif name in self._relayed:
            yield "told", name, -1
        elif node.op in _RECEIVES:
            yield self._arrives[node.attr["tensor_name"].s, cpu]
        else:
            for text in node.input:
                yield from self._find_predecessors(cpu, producer(text))


def _number(device: str) -> int:
    return int(tf.DeviceSpec.from_string(device).device_index)


def _key_of_send(send: Any) -> int:
    return _number(send.attr["recv_device"].s.decode())


def _order_functions(parts: _PartitionFunctions) -> list[_Key]:
    """Return all functions, each behind what it waits for, in the plan's order where that says anything."""
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
