"""A plan applied to one trace of the step that it is for: the device of each op, its chain, and its place there."""

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pesto.core.errors import InputError, MismatchError, VerificationError
from pesto.core.files.json import short_fingerprints, shown
from pesto.core.graph import Graph
from pesto.core.plans.graph_differences import differences
from pesto.core.plans.orders import chain, neighbours
from pesto.core.plans.plan import Plan, refuse_outdated
from pesto.core.problem import constants_first
from pesto.tf.importer.importer import build_graph
from pesto.tf.nodes.captured import BranchDivision, CapturedStep
from pesto.tf.nodes.needed_nodes import StepNodes, parse_nodes
from pesto.tf.nodes.unordered_ops import CARRIED, HANDLES, UNCHAINED
from pesto.tf.nodes.v1_loops import Conditions, closes_loop, node_conditions, outermost_loops
from solvers.arrays import Bools, Ints, bools, ints, rank_of

FED = frozenset(("Placeholder", "PlaceholderV2"))
"""Feeds and arguments are where the caller's data are, whatever a plan says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A v1 loop that the graph has as one op; names of its nodes."""

    nodes: tuple[str, ...]
    entries: tuple[str, ...]
    """Nodes that wait when the loop waits: everything enters through them."""
    exits: tuple[str, ...]
    """Nodes that are done when the loop is done."""


def find_loops(nodes: StepNodes) -> dict[str, Loop]:
    """Return the v1 loops by the name of the op that stands for each (see `pesto.tf.nodes.v1_loops`)."""
    label, names = outermost_loops(nodes), [str(node.name) for node in nodes.defs]
    loops = {}
    for first in np.unique(label[label >= 0]).tolist():
        inside = np.flatnonzero(label == first).tolist()
        members, leads, entries = set(inside), set[int](), []
        for i in inside:
            # The NextIteration edge leads back to the Merge; counted as an input it would leave the loop without an
            # entry.
            before = [p for p, _ in nodes.inputs[i] if not closes_loop(nodes, p, i)] + nodes.controls[i]
            leads.update(p for p in before if p in members)
            if not any(p in members for p in before):
                entries.append(names[i])
        exits = [names[i] for i in inside if i not in leads and nodes.defs[i].op in ("Exit", "RefExit")]
        loops[names[first]] = Loop(nodes=tuple(names[i] for i in inside), entries=tuple(entries), exits=tuple(exits))
    return loops


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
    log, here = logging.getLogger("pesto"), threading.get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != here

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

    def chains(self) -> list[list[int]]:
        """Return for each processor the ops in its chain, in order, by themselves or by their relays."""
        member = np.flatnonzero(self.ordered)
        member = member[np.lexsort((self.rank[member], self.lane[member]))]
        return [mine.tolist() for mine in np.split(member, np.flatnonzero(np.diff(self.lane[member])) + 1)]

    def relays_of(self) -> dict[int, tuple[str, ...]]:
        """Return the names of the relays of each op, by its index."""
        relays: dict[int, tuple[str, ...]] = {}
        for relay in self.relays:
            relays[relay.op] = (*relays.get(relay.op, ()), relay.name)
        return relays

    def device_of(self, op: int) -> str:
        """Return TensorFlow's name of an op's device."""
        return self.devices[self.device[op]]


def place_trace(
    plan: Plan, graph: Graph, targets: Mapping[str, str], apart: Bools | None = None, *, order: bool = True
) -> StepPlacement:
    """Apply `plan` to `graph`, a trace of the same step; ops in `apart` stay out of the chains.

    With `order` False there are no chains. Raise MismatchError when the trace is of another graph, VerificationError
    when the plan separates ops that share a variable or goes against the trace's edges.
    """
    where = _correspondence(plan, graph)
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


def _correspondence(plan: Plan, graph: Graph) -> Ints:
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


def refuse_older(plan: Plan) -> None:
    """Raise InputError for a plan too old to identify its ops, and what `refuse_outdated` raises."""
    if not plan.provenance.graph_layout:
        raise InputError.build(
            "the plan was written by an older version, which kept no layout of its graph", remedy="solve again"
        )
    refuse_outdated(plan)


@dataclass(frozen=True, slots=True)
class ChainPlace:
    """One place of a chain: an op, a loop or a relay; names of nodes."""

    name: str
    """Name of the op or relay."""
    entries: tuple[str, ...]
    """Nodes that wait for the place before."""
    exits: tuple[str, ...]
    """Nodes that the next place waits for."""

    @classmethod
    def of(cls, name: str, loops: Mapping[str, Loop]) -> "ChainPlace":
        """Return the place of an op, which may stand for a loop."""
        loop = loops.get(name)
        return cls(name, loop.entries, loop.exits) if loop else cls(name, (name,), (name,))


def places_of(placement: StepPlacement, loops: Mapping[str, Loop]) -> dict[int, tuple[ChainPlace, ...]]:
    """Return the chain places of each op: its own where it is chained, then those of its relays."""
    # A chain orders ops and relays alike. An unchained op may still hold a place through its relay, which is how its
    # transfer gets a turn.
    relays, names, chained = placement.relays_of(), placement.graph.names, placement.chained.tolist()
    return {
        op: (
            *((ChainPlace.of(names[op], loops),) if chained[op] else ()),
            *(ChainPlace(name, (name,), (name,)) for name in relays.get(op, ())),
        )
        for op in np.flatnonzero(placement.ordered).tolist()
    }


# Branches of v1 conditionals: when one is not taken, its ops are dead, and so are all ops that wait for them.


def conditional_ops(trace: StepTrace) -> Bools:
    """Return [n] True for ops of the trace that run only under conditions; they have no place in a chain."""
    return np.array([bool(c) for c in op_conditions(trace)], dtype=np.bool_)


def op_conditions(trace: StepTrace) -> list[Conditions]:
    """Return [n] the conditions under which each op runs; none for an op that always runs."""
    op = trace.op_of_node
    return node_conditions(trace.nodes, op, {i for i, o in enumerate(op) if trace.graph.names[o] in trace.loops})


def reroute_branch_edges(
    pairs: Iterable[tuple[int, int]], placement: StepPlacement, trace: StepTrace
) -> list[tuple[int, int]]:
    """Return the edges `pairs` (before, after), with the Merge behind a branch in place of an op in it.

    Raise InputError when the plan ranks the Merge after the second op.
    """
    # An op in a branch that is not taken is dead, and so is every op that waits for it. An edge out of the branch would
    # kill ops that always run; the Merge behind the branch is alive in both cases.
    pairs = list(pairs)
    under = op_conditions(trace) if pairs else []
    kept = [(a, b) for a, b in pairs if under[a] <= under[b]]
    for a, b in pairs:
        if not under[a] <= under[b]:
            kept += [(m, b) for m in _first_unconditional_after(a, b, placement, under)]
    return kept


def _first_unconditional_after(a: int, b: int, placement: StepPlacement, under: list[Conditions]) -> list[int]:
    """Return the first ops after `a` that run whenever `b` does."""
    graph, rank = placement.graph, placement.rank
    unconditional: set[int] = set()
    seen, stack = {a}, [a]
    while stack:
        for c in graph.edge_dst[graph.edge_src == stack.pop()].tolist():
            if c not in seen and c != b:
                seen.add(c)
                (unconditional.add if under[c] <= under[b] else stack.append)(c)
    # The plan ranks all Merges behind b, so an edge from one of them would close a cycle with the chain.
    if not unconditional or max(rank[m] for m in unconditional) > rank[b]:
        raise InputError.build(
            f"op {shown(graph.names[b])} uses a variable that {shown(graph.names[a])} updates in a branch, and nothing "
            "in the graph orders them",
            remedy="make it wait for the tf.cond, by tf.control_dependencies",
        )
    return sorted(unconditional)
