"""A plan laid over one trace of the step that it is for: where each op goes, and what it waits for."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pesto.core.errors import InputError, MismatchError, VerificationError
from pesto.core.files.labels import short_fingerprints
from pesto.core.graph import Graph
from pesto.core.plans.graph_differences import differences
from pesto.core.plans.orders import chain, neighbours
from pesto.core.plans.plan import Plan, refuse_outdated
from pesto.core.problem import constants_first
from pesto.tf.nodes.unordered_ops import CARRIED, HANDLES, UNCHAINED
from solvers.arrays import Bools, Ints, bools, ints

__all__ = ["CARRIED", "FED", "ConstantCopy", "SendRelay", "StepPlacement", "place_trace", "refuse_older"]

FED = frozenset(("Placeholder", "PlaceholderV2"))
"""Feeds and arguments are where the caller's data are, whatever a plan says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRelay:
    """An Identity in the chain, on the device of the op whose tensor it passes to readers on other devices."""

    name: str
    """The node to be added."""
    tensor: str
    """Tensor that the relay passes on, named as an input of a NodeDef."""
    op: int
    """Index of the op that makes the tensor, behind which, or in whose stead, it has its place in the chain."""
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
    """For the n ops of a traced step: TensorFlow's device, and the chains."""

    graph: Graph
    """The trace, by whose index all else goes."""
    devices: tuple[str, ...]
    """[m] TensorFlow's names of the devices."""
    device: Ints
    """[n] index into `devices`."""
    lane: Ints
    """[n] processor of the plan: a GPU is one, a host has one a core. Each has a chain of its own."""
    rank: Ints
    """[n] place of each op in the plan's one order."""
    chained: Bools
    """[n] whether the op has a place in its processor's chain."""
    before: Ints
    """[k] ops that others wait for, beyond the trace's own edges."""
    after: Ints
    """[k] the ops that wait for those of `before`."""
    planned: Ints
    """[n] the op of the plan that each op is."""
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
        """(before, after) of the ops that follow each other in a chain, also where the trace's edges join them."""
        return neighbours(self.lane, self.rank, self.ordered)

    @property
    def ordered(self) -> Bools:
        """[n] whether the op, or a relay in its stead, has a place in its processor's chain."""
        in_chain = self.chained.copy()
        in_chain[[relay.op for relay in self.relays]] = True
        return in_chain

    def chains(self) -> list[list[int]]:
        """For each processor the ops that have a place in its chain, in order, by themselves or by their relays."""
        member = np.flatnonzero(self.ordered)
        member = member[np.lexsort((self.rank[member], self.lane[member]))]
        return [mine.tolist() for mine in np.split(member, np.flatnonzero(np.diff(self.lane[member])) + 1)]

    def relays_of(self) -> dict[int, tuple[str, ...]]:
        """The relays of an op, by its index."""
        relays: dict[int, tuple[str, ...]] = {}
        for relay in self.relays:
            relays[relay.op] = (*relays.get(relay.op, ()), relay.name)
        return relays

    def device_of(self, op: int) -> str:
        """TensorFlow's name of an op's device."""
        return self.devices[self.device[op]]


def place_trace(
    plan: Plan, graph: Graph, targets: Mapping[str, str], apart: Bools | None = None, *, order: bool = True
) -> StepPlacement:
    """`plan` over `graph`, a trace of the same step; `short_fingerprints` marks ops that must stay out of the chains.

    MismatchError when the trace is of another graph, VerificationError when the plan tears ops apart that share a
    variable or goes against the trace's edges. With `order` False there are no chains.
    """
    where = _correspondence(plan, graph)
    names = list(dict.fromkeys(plan.lane_device))
    devices = tuple(dict.fromkeys(targets[n] for n in names))
    device_of_lane = np.array([devices.index(targets[d]) for d in plan.lane_device], dtype=np.int64)
    # A chain a processor, not a device: a host has one processor a core, and each executes its own sequence.
    lane, rank = plan.schedule.device[where], constants_first(graph, plan.rank[where])
    device = device_of_lane[lane]
    _check_groups_whole(graph, device, devices)
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
    """[n] op of the plan that each op of the trace is.

    A fingerprint does not count names, so structure and sizes are compared index by index as well: by name when the
    names are the plan's, and in the listed order when the program was traced anew, or names went to ops of other sizes.
    """
    made = plan.provenance
    if made.graph_fingerprint != graph.fingerprint():
        planned, here = short_fingerprints(made.graph_fingerprint, graph.fingerprint())
        raise MismatchError.build(
            f"the plan is for {made.graph_source} ({planned}, {len(plan.names)} ops), this step is "
            f"{graph.source} ({here}, {graph.ops} ops): "
            f"{differences(plan.names, made.graph_batch, graph)}",
            remedy="plan this step",
        )
    if len(plan.names) != graph.ops:
        raise MismatchError.build(
            f"the plan places {len(plan.names)} ops, the graph that it names has {graph.ops}: its file was changed",
            remedy="solve again",
        )
    # A program traced twice may number its ops differently (Adam_1, Adam_2), so names help only where they and the
    # structure agree.
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
        f"the plan is for an older trace of {made.graph_source}: its ops have other names now and are "
        "listed in "
        "another order, so none can be told from its twins",
        remedy="plan this trace",
    )


def _is_as_planned(plan: Plan, graph: Graph, order: Ints) -> bool:
    """Return True if the ops of `graph` in `order` equal the plan's ops, as far as the plan's file describes them."""
    made = plan.provenance
    if made.graph_listing:
        return graph.listing(order) == made.graph_listing
    return graph.layout(order) == made.graph_layout


def refuse_older(plan: Plan) -> None:
    """InputError for a plan by which no op can be found again; what `refuse_outdated` raises."""
    if not plan.provenance.graph_layout:
        raise InputError.build(
            "the plan was written by an older version, which kept no layout of its graph", remedy="solve again"
        )
    refuse_outdated(plan)


def _check_groups_whole(graph: Graph, device: Ints, devices: tuple[str, ...]) -> None:
    """VerificationError when a group is torn: TensorFlow would move its ops silently, or fail."""
    member = np.flatnonzero(graph.group >= 0)
    if len(member) == 0:
        return
    # Assignment in reverse order leaves the first member of each group as its representative.
    first = np.full(int(graph.group.max()) + 1, -1)
    first[graph.group[member[::-1]]] = member[::-1]
    torn = member[device[member] != device[first[graph.group[member]]]]
    if len(torn):
        a, b = torn[0], first[graph.group[torn[0]]]
        raise VerificationError.build(
            f"the plan splits a resource edge: op {graph.names[a]} is on {devices[device[a]]}, "
            f"{graph.names[b]} with "
            f"the same variable or table on {devices[device[b]]}",
            remedy="keep groups whole, solve again",
        )
