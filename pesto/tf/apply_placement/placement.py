"""A plan applied to one trace of its step: the device of each op, its chain and place there, and the nodes to add.

Added are Identities through which tensors leave at their place in the order, and copies of constants. Tensors of an op
outside of the chains would fill the links from the start on, ahead of the planned transfers; and nothing orders the
tensors that one op sends over one link. Initialisers, savers and reports read the op itself.
"""

import hashlib
import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pesto.core.errors import MismatchError, VerificationError
from pesto.core.files.json import short_fingerprints
from pesto.core.graph import Graph
from pesto.core.plans.graph_differences import differences
from pesto.core.plans.plan import PER_EDGE, Plan, chain, neighbours
from pesto.core.problem import constants_first, copied_constants, payloads
from pesto.tf.importer.importer import build_graph
from pesto.tf.nodes.captured import BranchDivision, CapturedStep
from pesto.tf.nodes.needed_nodes import COPY, RELAY, RESOURCE, VARIANT, StepNodes, parse_nodes
from pesto.tf.nodes.unordered_ops import CARRIED, HANDLES, UNCHAINED, find_shared_ops
from pesto.tf.nodes.v1_loops import Conditions, Loop, find_loops, find_node_conditions
from solvers.arrays import Bools, Ints, bools, ints, rank_of

FED = frozenset(("Placeholder", "PlaceholderV2"))
"""Feeds and arguments are where the caller's data are, whatever a plan says."""
_Read = tuple[int, int, int]
"""A tensor that is read on another device: node, output, device of the readers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTrace:
    """A captured step for placement: its graph, and the nodes behind the graph's ops."""

    graph: Graph
    nodes: StepNodes
    loops: dict[str, Loop]
    """Loops by the name of the op that stands for each."""
    passed: Mapping[str, tuple[str, ...]]
    """Barriers that the step goes around, and the tensors that each passes."""
    divisions: Mapping[str, BranchDivision]
    """Branch ops of the program that have several in their places, by name."""

    @property
    def op_of_node(self) -> list[int]:
        """[nodes] Index of the op of the graph that each node is, or is a part of."""
        leader = {node: name for name, loop in self.loops.items() for node in loop.nodes}
        index = {name: i for i, name in enumerate(self.graph.names)}
        return [index[leader.get(node.name, node.name)] for node in self.nodes.defs]

    def tensors(self) -> dict[tuple[int, int], int]:
        """Return {(node, output): index of the tensor in the graph}."""
        outputs = [len(types) for types in self.nodes.dtypes]
        # As loops are folded (`pesto.tf.nodes.v1_loops`).
        place = rank_of(np.argsort(np.repeat(self.op_of_node, outputs), kind="stable")).tolist()
        keys = [(node, k) for node, count in enumerate(outputs) for k in range(count)]
        return dict(zip(keys, place, strict=True))


def trace_step(captured: CapturedStep, batch: int | None) -> StepTrace:
    """Build the graph and nodes of a captured step for placement; raise InputError where it cannot be planned."""
    log, thread_id = logging.getLogger("pesto"), threading.get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread_id

    # The same graph was built when the step was planned, and its warnings about sizes and costs were given then.
    log.addFilter(is_of_another_thread)
    try:
        graph = build_graph(captured, batch=batch)
    finally:
        log.removeFilter(is_of_another_thread)
    nodes = parse_nodes(captured.graph_def, captured.fetches)
    return StepTrace(
        graph=graph, nodes=nodes, loops=find_loops(nodes), passed=captured.passed, divisions=captured.divisions
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRelay:
    """An Identity in the chain, on the device of the op whose tensor it passes to readers on other devices."""

    name: str
    """The node to be added."""
    tensor: str
    """Tensor that the relay passes on, named as an input of a NodeDef."""
    op: int
    """Index of the op that makes the tensor; the relay's place in the chain is behind the op, or in its stead."""
    readers: tuple[str, ...]
    """Nodes on other devices that read it in the tensor's place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantCopy:
    """A small constant once more, on the device of its readers; it has no place in a chain."""

    name: str
    """The node to be added."""
    constant: str
    """The node that it is a copy of."""
    device: int
    """Index of its device."""
    readers: tuple[str, ...]
    """Nodes on that device that read it in the constant's place."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepPlacement:
    """TensorFlow's devices and the chains for the n ops of a traced step."""

    graph: Graph
    """Graph of the trace; all indices of ops are its own."""
    devices: tuple[str, ...]
    """[m] Names of TensorFlow's devices."""
    device: Ints
    """[n] Index into `devices`."""
    lane: Ints
    """[n] Processor of the plan: a GPU is one, a host has one a core. Each has a chain of its own."""
    rank: Ints
    """[n] Place of each op in the plan's one order."""
    chained: Bools
    """[n] True if the op has a place in its processor's chain."""
    before: Ints
    """[k] Ops that others wait for, beyond the trace's own edges."""
    after: Ints
    """[k] Ops that wait for those of `before`."""
    planned: Ints
    """[n] Index of each op in the plan."""
    relays: tuple[SendRelay, ...] = ()
    """Nodes that have a place in the chains: those of one op follow each other, in this order."""
    copies: tuple[ConstantCopy, ...] = ()
    """Nodes to be added outside of the chains."""

    def __post_init__(self) -> None:
        """Copy and freeze the arrays."""
        for name in ("device", "lane", "rank", "before", "after", "planned"):
            object.__setattr__(self, name, ints(getattr(self, name)))
        object.__setattr__(self, "chained", bools(self.chained))

    def neighbours(self) -> tuple[Ints, Ints]:
        """Return (before, after) of neighbours in a chain, also where the trace's edges join them."""
        return neighbours(self.lane, self.rank, self.ordered)

    @property
    def ordered(self) -> Bools:
        """[n] True if the op, or a relay in its stead, has a place in its processor's chain."""
        in_chain = self.chained.copy()
        in_chain[[relay.op for relay in self.relays]] = True
        return in_chain

    def relays_of(self) -> dict[int, tuple[str, ...]]:
        """Return the names of the relays of each op, by its index."""
        relays: dict[int, tuple[str, ...]] = {}
        for relay in self.relays:
            relays[relay.op] = (*relays.get(relay.op, ()), relay.name)
        return relays

    def device_of(self, op: int) -> str:
        """Return TensorFlow's name of an op's device."""
        return self.devices[self.device[op]]


def place_with_relays(
    plan: Plan, trace: StepTrace, targets: Mapping[str, str], out: Bools | None = None, *, order: bool = True,
    keep: Collection[str] = (),
) -> StepPlacement:  # fmt: skip
    """Return `place_trace`'s result with a relay for each tensor that must wait for its turn, and copies of constants.

    Without an order, or where the plan leaves it to the framework, there are copies alone. Constants named in `keep`
    are not copied but sent, through a relay; they stay out of the chains, as feeds do.
    """
    # Sends are not nodes of the graph before partitioning: TensorFlow adds them, and each starts as soon as its tensor
    # exists. An Identity with a place in the chain is the only handle on when that is.
    order = order and not plan.placement_only
    if keep:
        is_kept = np.isin(trace.graph.names, list(keep))
        out = bools(is_kept if out is None else out | is_kept)
    placement = place_trace(plan, trace.graph, targets, out, order=order)
    # [n] ops between which an Identity can stand: none of a branch, where a chain would end when it is not taken, and
    # none that runs where its data are. References and handles have no relay either (`_find_remote_readers`).
    graph = trace.graph
    carried = np.isin(graph.type_of, [k for k, t in enumerate(graph.types) if t in CARRIED])
    free = bools(~(carried | find_conditional_ops(trace)))
    small, copies, read = find_small_constants(trace).difference(keep), [], {}
    for key, readers in _find_remote_readers(placement, trace).items():
        constant, device = str(trace.nodes.defs[key[0]].name), key[2]
        if constant in small:
            names = _make_names(trace, readers)
            name = f"{constant}{COPY}{_hash_name(constant, placement.devices[device], *names)}"
            copies.append(ConstantCopy(name=name, constant=constant, device=device, readers=names))
        else:
            read[key] = readers  # a copied constant is not sent at all
    if not order:
        return replace(placement, copies=tuple(copies))
    relays = tuple(_make_relays(placement, trace, free, read, number_send_turns(plan, placement)))
    sequence = placement.chained.copy()
    # The relay of an unchained op takes part in the chain in place of the op.
    sequence[[relay.op for relay in relays]] = True
    before, after = chain(placement.graph, placement.lane, placement.rank, sequence)
    return replace(placement, relays=relays, copies=tuple(copies), before=before, after=after)


def place_trace(
    plan: Plan, graph: Graph, targets: Mapping[str, str], apart: Bools | None = None, *, order: bool = True
) -> StepPlacement:
    """Apply `plan` to `graph`, a trace of the same step; ops in `apart` stay out of the chains.

    With `order` False there are no chains. Raise MismatchError when the trace is of another graph, VerificationError
    when the plan separates ops that share a variable or goes against the trace's edges.
    """
    where = _match_ops(plan, graph)
    names = list(dict.fromkeys(plan.lane_device))
    devices = tuple(dict.fromkeys(targets[n] for n in names))
    device_of_lane = np.array([devices.index(targets[d]) for d in plan.lane_device], dtype=np.int64)
    # A chain a processor, not a device: a host has one processor a core, and each executes its own sequence.
    lane, rank = plan.schedule.device[where], constants_first(graph, plan.rank[where])
    device = device_of_lane[lane]
    # TensorFlow would move the ops of a group on two devices silently, or fail. Assignment in reverse order leaves the
    # first member of each group as its representative.
    member = np.flatnonzero(graph.group >= 0)
    first = np.full(int(graph.group.max(initial=-1)) + 1, -1)
    first[graph.group[member[::-1]]] = member[::-1]
    torn = member[device[member] != device[first[graph.group[member]]]]
    if len(torn):
        a, b = torn[0], first[graph.group[torn[0]]]
        raise VerificationError.build(
            f"the plan splits a resource edge: op {graph.names[a]} is on {devices[device[a]]}, {graph.names[b]} with "
            f"the same variable or table on {devices[device[b]]}",
            remedy="keep groups whole, solve again",
        )
    # A rank against an edge would close a cycle of control edges, which TensorFlow reports without naming ops.
    against = np.flatnonzero(rank[graph.edge_src] >= rank[graph.edge_dst])
    if len(against):
        a, b = (graph.names[ends[against[0]]] for ends in (graph.edge_src, graph.edge_dst))
        raise VerificationError.build(f"the plan ranks op {b} before {a}, which it needs", remedy="solve again")
    chained = ~np.isin(
        graph.type_of, [k for k, t in enumerate(graph.types) if t in UNCHAINED | CARRIED or HANDLES.search(t)]
    )
    if apart is not None:
        chained &= ~apart
    if not order:
        chained[:] = False
    before, after = chain(graph, lane, rank, chained)
    return StepPlacement(
        graph=graph, devices=devices, device=device, lane=lane, rank=rank, chained=chained, before=before, after=after,
        planned=where,
    )  # fmt: skip


def _match_ops(plan: Plan, graph: Graph) -> Ints:
    """Return [n] the index in the plan of each op of the trace; raise MismatchError for another graph."""
    provenance = plan.provenance
    if provenance.graph_fingerprint != graph.fingerprint():
        planned, here = short_fingerprints(provenance.graph_fingerprint, graph.fingerprint())
        raise MismatchError.build(
            f"the plan is for {provenance.graph_source} ({planned}, {len(plan.names)} ops), this step is "
            f"{graph.source} ({here}, {graph.ops} ops): "
            f"{differences(plan.names, provenance.graph_batch, graph)}",
            remedy="plan this step",
        )
    if len(plan.names) != graph.ops:
        raise MismatchError.build(
            f"the plan places {len(plan.names)} ops, the graph that it names has {graph.ops}: its file was changed",
            remedy="solve again",
        )
    # A fingerprint does not count names, so structure and sizes are compared index by index as well. A program traced
    # twice may number its ops differently (Adam_1, Adam_2), so names help only where they and the structure agree;
    # elsewhere the listed order decides.
    listed = np.arange(graph.ops)
    index = {name: i for i, name in enumerate(graph.names)}
    if all(name in index for name in plan.names):
        by_name = np.array([index[name] for name in plan.names], dtype=np.int64)
        if _is_as_planned(plan, graph, by_name):
            listed[by_name] = np.arange(graph.ops)
            return listed
    if _is_as_planned(plan, graph, listed):
        return listed
    raise MismatchError.build(
        f"the plan is for an older trace of {provenance.graph_source}: its ops have other names now and are listed in "
        "another order, so none can be told from its twins",
        remedy="plan this trace",
    )


def _is_as_planned(plan: Plan, graph: Graph, order: Ints) -> bool:
    """Return True if the ops of `graph` in `order` equal the plan's ops, as far as the plan's file describes them."""
    if plan.provenance.graph_listing:
        return graph.listing(order) == plan.provenance.graph_listing
    return graph.layout(order) == plan.provenance.graph_layout


def find_small_constants(trace: StepTrace) -> frozenset[str]:
    """Return the names of constants that every reading device gets a copy of (`core.problem.copied_constants`)."""
    graph = trace.graph
    return frozenset(graph.names[op] for op in graph.tensor_op[copied_constants(graph)].tolist())


def _find_remote_readers(placement: StepPlacement, trace: StepTrace) -> dict[_Read, list[int]]:
    """Return the nodes that read a tensor on another device than its own."""
    op, device, nodes = trace.op_of_node, placement.device.tolist(), trace.nodes
    reads: dict[_Read, list[int]] = {}
    for reader, inputs in enumerate(nodes.inputs):
        for source, output in inputs:
            to = device[op[reader]]
            # Handles do not travel, and a reference has the value of the time at which it is read.
            if device[op[source]] != to and nodes.dtypes[source][output] not in (RESOURCE, VARIANT):
                refs = nodes.signatures.output_refs(nodes.defs[source])
                if not (refs and refs[output]):
                    reads.setdefault((source, output, to), []).append(reader)
    return reads


def count_sends(placement: StepPlacement, trace: StepTrace, names: Collection[str]) -> int:
    """Return the number of pairs of a tensor of these ops and another device on which it is read."""
    defs = trace.nodes.defs
    return sum(defs[source].name in names for source, _, _ in _find_remote_readers(placement, trace))


def number_send_turns(plan: Plan, placement: StepPlacement) -> dict[tuple[int, int], int]:
    """Return {(tensor, device): turn} among the transfers of an op, from 0; those of one turn share no link.

    Empty for a plan that counts a transfer an edge, which TensorFlow does not make.
    """
    sent, graph = plan.schedule, placement.graph
    if plan.provenance.transfers == PER_EDGE or not len(sent.sent_payload):
        return {}
    _, tensor = payloads(graph, per_edge=False)
    tensor = tensor[np.argsort(placement.planned[graph.tensor_op[tensor]], kind="stable")]
    # Index of TensorFlow's device for each device of the plan's cluster; -1 for one that the plan does not use.
    names = list(dict.fromkeys(plan.lane_device))
    targets = np.full(len(names), -1)
    location = np.array([names.index(name) for name in plan.lane_device])
    targets[location[sent.device[placement.planned]]] = placement.device
    # Transfers of one op, in the order in which the simulator requests them at its end: of tensors and, for each, of
    # the cluster's devices.
    by = np.lexsort((sent.sent_to, sent.sent_payload))
    payload = sent.sent_payload[by]
    target = targets[sent.sent_to[by]]
    columns = (graph.tensor_op[tensor[payload]], tensor[payload], target, sent.sent_start[by], sent.sent_finish[by])
    turns: dict[tuple[int, int], int] = {}
    last, turn, least = -1, 0, 0
    for op, what, to, start, finish in zip(*(column.tolist() for column in columns), strict=True):
        if op != last:
            last, turn, least = op, 0, finish
        # It starts after an earlier transfer of the op has ended, so it may have waited for it on a shared link, and
        # TensorFlow must be told the order. One that starts before shares no link with it.
        elif start >= least:
            turn, least = turn + 1, finish
        least = min(least, finish)
        turns[what, to] = max(turn, turns.get((what, to), 0))
    return turns


def _make_relays(
    placement: StepPlacement, trace: StepTrace, passable: Bools, read: Mapping[_Read, list[int]],
    turn: Mapping[tuple[int, int], int],
) -> Iterator[SendRelay]:  # fmt: skip
    """Yield the relays; those of one op come in their order in the chain."""
    op, chained, tensor = trace.op_of_node, placement.chained, trace.tensors()
    through: dict[tuple[int, int, int, int], list[int]] = {}
    for (source, output, device), readers in read.items():
        producer, mine = op[source], [reader for reader in readers if passable[op[reader]]]
        later = turn.get((tensor[source, output], device), 0)
        # An unchained producer, such as a variable read shared with other programs, is ready when the step starts.
        # Without a relay its tensor would occupy the link at once, ahead of the transfers planned first.
        if not chained[producer]:
            mine = [reader for reader in mine if chained[op[reader]]]
        # The first transfer of a chained op needs no relay: it starts when the op ends, as planned.
        elif later == 0 or len(mine) < len(readers):
            continue
        if mine and passable[producer]:
            through.setdefault((producer, later, source, output), []).extend(mine)
    for (producer, _, source, output), readers in sorted(through.items()):
        first, names = str(trace.nodes.defs[source].name), _make_names(trace, readers)
        passed = f"{first}:{output}" if output else first
        yield SendRelay(name=f"{first}{RELAY}{_hash_name(passed, *names)}", tensor=passed, op=producer, readers=names)


def _make_names(trace: StepTrace, nodes: list[int]) -> tuple[str, ...]:
    return tuple(str(trace.nodes.defs[node].name) for node in dict.fromkeys(nodes))


def _hash_name(*texts: str) -> str:
    # Nodes added to a live graph stay there after undo. A name by content lets the same plan find them again and keeps
    # another plan from reusing a node with other readers.
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]


def find_conditional_ops(trace: StepTrace) -> Bools:
    """Return [n] True for ops of the trace that run only under conditions; they have no place in a chain."""
    return np.array([bool(c) for c in find_op_conditions(trace)], dtype=np.bool_)


def find_op_conditions(trace: StepTrace) -> list[Conditions]:
    """Return [n] the conditions under which each op runs; none for an op that always runs."""
    op = trace.op_of_node
    return find_node_conditions(trace.nodes, op, {i for i, o in enumerate(op) if trace.graph.names[o] in trace.loops})


def find_unchained_ops(program: Any, trace: StepTrace) -> Bools:
    """Return [n] True for ops outside of the chains of a step in a v1 program, a tf.Graph or flat GraphDef.

    Other fetches need them without the step's rest (`pesto.tf.nodes.unordered_ops`), or they are in branches.
    """
    return bools(find_shared_ops(program, trace.graph) | find_conditional_ops(trace))
