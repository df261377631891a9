"""Nodes that a plan adds: Identities through which tensors leave at their place in the order, and copies of constants.

Tensors of an op outside of the chains would fill the links from the start on, ahead of the planned transfers; and
nothing orders the tensors that one op sends over one link. Initialisers, savers and reports read the op itself.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from pesto.core.plans.orders import chain
from pesto.core.plans.plan import PER_EDGE, Plan
from pesto.core.problem import copied_constants, payloads
from pesto.tf.apply_placement.placement import (
    ConstantCopy,
    SendRelay,
    StepPlacement,
    StepTrace,
    conditional_ops,
    place_trace,
)
from pesto.tf.nodes.needed_nodes import COPY, RELAY
from pesto.tf.nodes.signatures import RESOURCE, VARIANT
from pesto.tf.nodes.unordered_ops import CARRIED
from solvers.arrays import Bools, bools

_Read = tuple[int, int, int]
"""A tensor that is read on another device: node, output, device of the readers."""


def send_turns(plan: Plan, placement: StepPlacement) -> dict[tuple[int, int], int]:
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
        kept = np.isin(trace.graph.names, list(keep))
        out = bools(kept if out is None else out | kept)
    placement = place_trace(plan, trace.graph, targets, out, order=order)
    # [n] ops between which an Identity can stand: none of a branch, where a chain would end when it is not taken, and
    # none that runs where its data are. References and handles have no relay either (`_read_elsewhere`).
    graph = trace.graph
    carried = np.isin(graph.type_of, [k for k, t in enumerate(graph.types) if t in CARRIED])
    free = bools(~(carried | conditional_ops(trace)))
    small, copies, read = small_constants(trace).difference(keep), [], {}
    for key, readers in _read_elsewhere(placement, trace).items():
        constant, device = str(trace.nodes.defs[key[0]].name), key[2]
        if constant in small:
            names = _names(trace, readers)
            name = f"{constant}{COPY}{_name_digest(constant, placement.devices[device], *names)}"
            copies.append(ConstantCopy(name=name, constant=constant, device=device, readers=names))
        else:
            read[key] = readers  # a copied constant is not sent at all
    if not order:
        return replace(placement, copies=tuple(copies))
    relays = tuple(_relays(placement, trace, free, read, send_turns(plan, placement)))
    sequence = placement.chained.copy()
    # The relay of an unchained op takes part in the chain in place of the op.
    sequence[[relay.op for relay in relays]] = True
    before, after = chain(placement.graph, placement.lane, placement.rank, sequence)
    return replace(placement, relays=relays, copies=tuple(copies), before=before, after=after)


def _read_elsewhere(placement: StepPlacement, trace: StepTrace) -> dict[_Read, list[int]]:
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


def small_constants(trace: StepTrace) -> frozenset[str]:
    """Return the names of constants that every reading device gets a copy of (`core.problem.copied_constants`)."""
    graph = trace.graph
    return frozenset(graph.names[op] for op in graph.tensor_op[copied_constants(graph)].tolist())


def count_sends(placement: StepPlacement, trace: StepTrace, names: Collection[str]) -> int:
    """Return the number of pairs of a tensor of these ops and another device on which it is read."""
    defs = trace.nodes.defs
    return sum(defs[source].name in names for source, _, _ in _read_elsewhere(placement, trace))


def _relays(
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
        first, names = str(trace.nodes.defs[source].name), _names(trace, readers)
        passed = f"{first}:{output}" if output else first
        yield SendRelay(name=f"{first}{RELAY}{_name_digest(passed, *names)}", tensor=passed, op=producer, readers=names)


def _names(trace: StepTrace, nodes: list[int]) -> tuple[str, ...]:
    return tuple(str(trace.nodes.defs[node].name) for node in dict.fromkeys(nodes))


def _name_digest(*texts: str) -> str:
    # Nodes added to a live graph stay there after undo. A name by content lets the same plan find them again and keeps
    # another plan from reusing a node with other readers.
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
