"""Edits by which a placement is enforced in TensorFlow's graph, by node name: on live graphs with undo, or on files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.tf import private
from pesto.tf.apply_placement.placement import (
    FED,
    ConstantCopy,
    SendRelay,
    StepPlacement,
    StepTrace,
    find_conditional_ops,
    find_op_conditions,
)
from pesto.tf.nodes.captured import BranchDivision, bypass_barriers
from pesto.tf.nodes.needed_nodes import Signatures, producer
from pesto.tf.nodes.v1_loops import MERGES, Loop
from pesto.tf.session_config import MERGED


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEdits:
    """Devices to set, control inputs to add, attributes to take away."""

    device: Mapping[str, str] = field(default_factory=dict)
    """Node -> TensorFlow's device."""
    waits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node -> the nodes that it waits for in addition."""
    implied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node -> those that it need not wait for itself (`find_implied_waits`)."""
    ranks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Node -> its chain and place there; of the ends of a live function, the last of each chain is enough."""
    unbound: tuple[str, ...] = ()
    """Nodes whose `_class` goes: a leftover of the Python layer that would beat the device."""
    whole: tuple[str, ...] = ()
    """Loops and branches that must not be taken apart."""
    passed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Barriers that nothing may wait at, and the tensors that each passes (`pesto.tf.nodes.captured`)."""
    divided: Mapping[str, BranchDivision] = field(default_factory=dict)
    """Branch ops of a live graph that several take the place of."""
    relays: tuple[SendRelay, ...] = ()
    """Identities to add, and what reads them from then on."""
    copies: tuple[ConstantCopy, ...] = ()
    """Constants to add, and what reads them from then on."""


def compute_function_edits(placement: StepPlacement, trace: StepTrace, every: Iterable[Any]) -> GraphEdits:
    """Return `compute_edits` of a tf.function, with edges between all neighbours, less the waits that these imply.

    Not for a v1 graph: a session runs only what its fetches need by edges of their own.
    """
    # TensorFlow optimises each partition once more before it runs. An op folded into a constant loses its data edges,
    # but a control edge between neighbours, also where data joins them, survives the fold.
    before, after = placement.neighbours()
    edits = compute_edits(replace(placement, before=before, after=after), trace, every)
    # The last op of a chain implies the earlier ones only if it certainly runs and its end means that it is done. An op
    # of a branch may not run, a loop has several exits, and nobody reads a copied constant itself.
    left_out = {*trace.loops, *(copy.constant for copy in placement.copies)}
    always = (placement.chained & ~find_conditional_ops(trace)).tolist()
    lane, rank = placement.lane.tolist(), placement.rank.tolist()
    names = placement.graph.names
    ranks = {name: (lane[i], rank[i]) for i, name in enumerate(names) if always[i] and name not in left_out}
    return replace(edits, implied=find_implied_waits(placement, trace, ranks), ranks=ranks)


def compute_edits(placement: StepPlacement, trace: StepTrace, every: Iterable[Any]) -> GraphEdits:
    """The edits that carry out `placement` on the graph from which `trace` was taken; `every` are all its NodeDefs.

    `_class` goes from every op without references, the step's or not: initialisers and savers would tie what the plan
    puts on two devices together.
    """
    graph, nodes, loops = placement.graph, trace.nodes, trace.loops
    device: dict[str, str] = {}
    for i, name in enumerate(graph.names):
        # Feeds and arguments live where the caller has its data; a device on them would only make TensorFlow insert
        # copies or fail. A v1 loop is one op for the plan, so all of its nodes get the same device.
        if graph.types[graph.type_of[i]] not in FED:
            for node in loops[name].nodes if name in loops else (name,):
                device[node] = placement.device_of(i)
    device.update((relay.name, placement.device_of(relay.op)) for relay in placement.relays)
    device.update((copy.name, placement.devices[copy.device]) for copy in placement.copies)
    waits: dict[str, list[str]] = {}
    for a, b in _find_control_edges(placement, trace):
        waits.setdefault(b, []).append(a)
    return GraphEdits(
        device=device,
        waits={b: tuple(a) for b, a in waits.items()},
        # TensorFlow's placer honours `_class` colocations before explicit devices. For ops with references the
        # colocation is real (they share a buffer) and must stay; for all others it is a leftover of the Python layer.
        unbound=tuple(n.name for n in every if "_class" in n.attr and not nodes.signatures.has_ref(n)),
        # Lowering takes an If or While apart before placement, and the pieces go wherever their inputs are. Without the
        # attribute the op stays one node, which can be placed and ordered.
        whole=tuple(n.name for n in nodes.defs if private.LOWERED in n.attr and n.attr[private.LOWERED].b),
        passed=trace.passed,
        divided=trace.divisions,
        relays=placement.relays,
        copies=placement.copies,
    )


def _find_control_edges(placement: StepPlacement, trace: StepTrace) -> list[tuple[str, str]]:
    """Return (before, after) nodes: the chains, and control edges of the graph that its nodes do not have."""
    graph, nodes, op = placement.graph, trace.nodes, trace.op_of_node
    places = places_of(placement, trace.loops)
    alone = [ChainPlace.of(name, trace.loops) for name in graph.names]
    # Source 1 of edges: neighbours in a chain that no data edge joins.
    pairs = list(zip(placement.before.tolist(), placement.after.tolist(), strict=True))
    # 2: neighbours whose data edge orders only a part of the op, such as a loop with several entries, or a Merge. An op
    # with relays is done only when its last relay is: the data edge to the next op in the chain bypasses them.
    partly = np.array(
        [n in trace.loops or graph.types[t] in MERGES for n, t in zip(graph.names, graph.type_of, strict=True)]
    )
    partly[list(placement.relays_of())] = True
    before, after = placement.neighbours()
    is_needed = partly[before] | partly[after]
    pairs += zip(before[is_needed].tolist(), after[is_needed].tolist(), strict=True)
    edges = [(places[a][-1], places[b][0]) for a, b in pairs]
    # 3: relays behind their op.
    edges += [pair for several in places.values() for pair in pairwise(several)]
    # 4: edges that the importer added to the plan's graph, the program order of ops that touch one variable.
    own = {(op[p], op[i]) for i in range(len(op)) for p in nodes.controls[i] + [p for p, _ in nodes.inputs[i]]}
    controls = zip(graph.control_src.tolist(), graph.control_dst.tolist(), strict=True)
    hidden = reroute_branch_edges([pair for pair in controls if pair not in own], placement, trace)
    # 5: edges that keep oneDNN from fusing two ops into one, which would leave one without a node to verify.
    g, cpu = placement.graph, np.array(["CPU" in name for name in placement.devices])[placement.device]
    types, place = np.array(g.types)[g.type_of], placement.device
    selected = np.zeros(len(g.src), dtype=np.bool_)
    for first, second in MERGED:
        # oneDNN fuses such a pair only where both wait for the same ops. One more control edge to the second keeps both
        # nodes, so each can be found in the partition graphs and in traces.
        produced = (types[g.src] == first) & (place[g.src] == place[g.dst])
        also = types[g.dst] == first  # one that adds up a gradient reads it, as the filter's does
        read = np.isin(g.tensor * len(cpu) + place[g.dst], (g.tensor * len(cpu) + place[g.dst])[also])
        selected |= (types[g.dst] == second) & cpu[g.dst] & (produced | read)
    fused = zip(g.src[selected].tolist(), g.dst[selected].tolist(), strict=True)
    edges += [(alone[a], alone[b]) for a, b in (*hidden, *fused)]
    # A loop has several exits and entries. The next place must wait for every exit, and every entry must wait, since
    # each of them can start on its own.
    return list(dict.fromkeys((x, y) for a, b in edges for x in a.exits for y in b.entries))


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


def reroute_branch_edges(
    pairs: Iterable[tuple[int, int]], placement: StepPlacement, trace: StepTrace
) -> list[tuple[int, int]]:
    """Return the edges `pairs` (before, after), with the Merge behind a branch in place of an op in it.

    Raise InputError when the plan ranks the Merge after the second op.
    """
    # An op in a branch that is not taken is dead, and so is every op that waits for it. An edge out of the branch would
    # kill ops that always run; the Merge behind the branch is alive in both cases.
    pairs = list(pairs)
    under = find_op_conditions(trace) if pairs else []
    edges = [(a, b) for a, b in pairs if under[a] <= under[b]]
    graph, rank = placement.graph, placement.rank
    for a, b in pairs:
        if under[a] <= under[b]:
            continue
        # The first ops after `a` that run whenever `b` does.
        unconditional: set[int] = set()
        visited, stack = {a}, [a]
        while stack:
            for c in graph.edge_dst[graph.edge_src == stack.pop()].tolist():
                if c not in visited and c != b:
                    visited.add(c)
                    (unconditional.add if under[c] <= under[b] else stack.append)(c)
        # The plan ranks all Merges behind b, so an edge from one of them would close a cycle with the chain.
        if not unconditional or max(rank[m] for m in unconditional) > rank[b]:
            raise InputError.build(
                f"op {shown(graph.names[b])} uses a variable that {shown(graph.names[a])} updates in a branch, and "
                "nothing in the graph orders them",
                remedy="make it wait for the tf.cond, by tf.control_dependencies",
            )
        edges += [(m, b) for m in sorted(unconditional)]
    return edges


def find_implied_waits(
    placement: StepPlacement, trace: StepTrace, ranks: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[str, ...]]:
    """Return, by node, the control inputs from other devices that others of its inputs imply; none of a loop's."""
    op, nodes, names, device = trace.op_of_node, trace.nodes, trace.graph.names, placement.device.tolist()
    implied_controls: dict[str, tuple[str, ...]] = {}
    for node, controls in enumerate(nodes.controls):
        node_device = op[node]
        far = [names[op[c]] for c in controls if device[op[c]] != device[node_device]]
        gone = find_chain_waits(far, (names[op[p]] for p, _ in nodes.inputs[node]), ranks)
        if gone and names[node_device] not in trace.loops:
            implied_controls[str(nodes.defs[node].name)] = tuple(gone)
    return implied_controls


def find_chain_waits(waits: Iterable[str], others: Iterable[str], ranks: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return those of `waits` that are earlier in their chain than another of them, or than one of `others`."""
    waits, last = [name for name in waits if name in ranks], dict[int, int]()
    for name in (*waits, *(name for name in others if name in ranks)):
        lane, rank = ranks[name]
        last[lane] = max(rank, last.get(lane, -1))
    return [name for name in waits if ranks[name][1] < last[ranks[name][0]]]


def merge_edits(several: Sequence[GraphEdits]) -> GraphEdits:
    """Merge the edits of several placements of one graph that order different ops and agree on devices."""
    return GraphEdits(
        device={node: device for e in several for node, device in e.device.items()},
        waits={node: earlier for e in several for node, earlier in e.waits.items()},
        unbound=tuple(dict.fromkeys(node for e in several for node in e.unbound)),
        whole=tuple(dict.fromkeys(node for e in several for node in e.whole)),
        passed={node: tensors for e in several for node, tensors in e.passed.items()},
        divided={node: division for e in several for node, division in e.divided.items()},
        relays=tuple(relay for e in several for relay in e.relays),
        copies=tuple(dict.fromkeys(copy for e in several for copy in e.copies)),
    )


def apply_edits(graph: Any, wanted: GraphEdits) -> Callable[[], None]:
    """Carry out `wanted` on a live v1 graph or FuncGraph and return a function that undoes it.

    A failure midway is undone before it is raised.
    """
    undo: list[Callable[[], None]] = []

    def back() -> None:
        # Edits are undone in reverse order, as later ones may have been recorded on top of earlier ones.
        while undo:
            undo.pop()()

    try:
        _apply_recording_undo(graph, wanted, undo)
    except BaseException:
        back()
        raise
    return back


def _apply_recording_undo(graph: Any, wanted: GraphEdits, undo: list[Callable[[], None]]) -> None:
    ops = {op.name: op for op in graph.get_operations()}
    # Divided branches come first: devices and edges below refer to the parts by name.
    for name, division in wanted.divided.items():
        _divide(graph, ops, name, division, undo)
    # An earlier edit that was undone has left its nodes in the graph, without readers.
    for relay in wanted.relays:
        if relay.name not in ops:
            ops[relay.name] = private.add_identity(graph, relay.name, _tensor(ops, relay.tensor))
    for copy in wanted.copies:
        if copy.name not in ops:
            ops[copy.name] = private.add_copy(graph, copy.name, ops[copy.constant])
    for name, device in wanted.device.items():
        op = ops[name]
        if op.type not in FED:  # an argument of a function, where a GraphDef has a variable's handle
            undo.append(partial(private.set_device, op, op.device))
            private.set_device(op, device)
    for name in wanted.passed:
        _bypass_barrier(ops[name], undo)
    # Readers are redirected after the relays exist and after barriers are bypassed, so that the tensor a relay passes
    # on is the one its readers now read.
    added = [(r.readers, ops[r.name].inputs[0], ops[r.name]) for r in wanted.relays]
    added += [(c.readers, ops[c.constant].outputs[0], ops[c.name]) for c in wanted.copies]
    for readers, source, node in added:
        for reader in readers:
            _replace_input(ops[reader], source, node.outputs[0], undo)
    for name, gone in wanted.implied.items():
        # Each wait for an op on another device costs a constant, a send and a receive. These are implied by other
        # inputs of the node (`find_implied_waits`).
        own = _record_controls(ops[name], undo)
        private.set_controls(ops[name], [c for c in own if c.name not in gone])
    # The control outputs of a function are what its caller waits for. In a chain the last op implies all earlier ones,
    # and each output on another device would cost a send of its own.
    ends = list(getattr(graph, "control_outputs", ()))
    superfluous = set(find_chain_waits((end.name for end in ends), (), wanted.ranks))
    if superfluous:
        undo.append(partial(setattr, graph, "control_outputs", ends))
        graph.control_outputs = [end for end in ends if end.name not in superfluous]
    for name, earlier in wanted.waits.items():
        _record_controls(ops[name], undo)
        private.add_controls(ops[name], [ops[e] for e in earlier])
    for name, attr in (*((n, "_class") for n in wanted.unbound), *((n, private.LOWERED) for n in wanted.whole)):
        undo.append(partial(private.set_attr, ops[name], attr, ops[name].node_def.attr[attr]))
        private.clear_attr(ops[name], attr)


def _divide(
    graph: Any, ops: dict[str, Any], name: str, division: BranchDivision, undo: list[Callable[[], None]]
) -> None:
    """Redirect all ops that read or wait for a branch op of a live function to the ops that replace it."""
    branch_op = ops.get(name)
    if branch_op is None:  # a graph made of the captured step has the parts already
        return
    if division.ends[0] not in ops:
        added = private.add_nodes(graph, ops, division.nodes, division.functions)
        ops.update((op.name, op) for op in added)
        for node in division.nodes:
            private.add_controls(ops[node.name], [ops[text[1:]] for text in node.input if text[0] == "^"])
    # The whole branch op stays in the live graph, since TensorFlow cannot remove an op; without readers it is not
    # compiled into the function (`FunctionEnforcement.on_compile`).
    for output, text in zip(branch_op.outputs, division.outputs, strict=True):
        for reader in output.consumers():
            _replace_input(reader, output, _tensor(ops, text), undo)
    ends = [ops[end] for end in division.ends]
    for reader in private.control_readers(branch_op):
        own = _record_controls(reader, undo)
        private.set_controls(reader, [*(c for c in own if c is not branch_op), *ends])
    # The old list is kept for undo, and the branch op is replaced in it: as a control output it would run beside its
    # parts and update the variables twice.
    controls = list(graph.control_outputs)
    undo.append(partial(setattr, graph, "control_outputs", controls))
    graph.control_outputs = [e for op in controls for e in (ends if op is branch_op else [op])]


def _bypass_barrier(barrier: Any, undo: list[Callable[[], None]]) -> None:
    for output, source in zip(barrier.outputs, barrier.inputs, strict=True):
        for reader in output.consumers():
            _replace_input(reader, output, source, undo)
    # An op that waited for the barrier waited for all of its inputs. Waiting for these directly keeps that order
    # without the barrier's device in between.
    for reader in private.control_readers(barrier):
        own = _record_controls(reader, undo)
        private.set_controls(reader, [*(c for c in own if c is not barrier), *(t.op for t in barrier.inputs)])


def _record_controls(op: Any, undo: list[Callable[[], None]]) -> list[Any]:
    """Return the control inputs of a live op, after recording how to restore them."""
    controls = list(op.control_inputs)
    undo.append(partial(private.set_controls, op, controls))
    return controls


def _tensor(ops: Mapping[str, Any], text: str) -> Any:
    name = producer(text)
    return ops[name].outputs[int(text[len(name) + 1 :] or 0)]


def _replace_input(reader: Any, old: Any, new: Any, undo: list[Callable[[], None]]) -> None:
    # One reader may take the tensor at several inputs; each is replaced and undone by its own position.
    for place in [k for k, tensor in enumerate(reader.inputs) if tensor is old]:
        undo.append(partial(private.set_input, reader, place, old))
        private.set_input(reader, place, new)


def write_edits(graph_def: Any, wanted: GraphEdits) -> None:
    """Carry out `wanted` on a GraphDef, in place."""
    unbound, undivided = set(wanted.unbound), set(wanted.whole)
    # Barriers first: relays and copies are inserted between a tensor and its real readers, which the barrier hides.
    bypass_barriers(graph_def, wanted.passed)
    by_name = {node.name: node for node in graph_def.node}
    signatures = Signatures({f.signature.name: f for f in graph_def.library.function})
    for relay in wanted.relays:
        _redirect_readers(by_name, relay.readers, relay.tensor, relay.name)
        name = producer(relay.tensor)
        dtype = signatures.output_types(by_name[name])[int(relay.tensor[len(name) + 1 :] or 0)]
        graph_def.node.add(name=relay.name, op="Identity", input=[relay.tensor]).attr["T"].type = dtype
    for copy in wanted.copies:
        _redirect_readers(by_name, copy.readers, copy.constant, copy.name)
        added = graph_def.node.add(name=copy.name, op="Const")
        for key in ("dtype", "value"):
            added.attr[key].CopyFrom(by_name[copy.constant].attr[key])
    for node in graph_def.node:
        if node.name in wanted.device:
            node.device = wanted.device[node.name]
        node.input.extend(f"^{e}" for e in wanted.waits.get(node.name, ()))
        if node.name in unbound:
            del node.attr["_class"]
        if node.name in undivided:
            del node.attr[private.LOWERED]


def _redirect_readers(by_name: Mapping[str, Any], readers: Sequence[str], tensor: str, to: str) -> None:
    same = (tensor, f"{tensor}:0") if ":" not in tensor else (tensor,)
    for reader in readers:
        node = by_name[reader]
        node.input[:] = [to if text in same else text for text in node.input]
