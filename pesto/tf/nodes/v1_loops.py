"""TensorFlow 1 control flow: each outermost loop becomes a single op, and branches of conditionals have conditions.

A loop is of Enter, Merge, Switch, NextIteration and Exit. When the branch of a conditional is not taken, its nodes are
dead, and so is all that waits for them.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pesto.core.files.json import shown
from pesto.core.graph import LOOP, Graph, kernel_counts
from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.trip_counts import scalar_constant
from solvers.arrays import Ints, rank_of
from solvers.compiled.dag import topological_order

FOLDED = "WhileV1"
"""Type of the op that stands for a loop."""

MERGES = ("Merge", "RefMerge")
_ENTER, _EXIT = ("Enter", "RefEnter"), ("Exit", "RefExit")
_NEXT = ("NextIteration", "RefNextIteration")
_PASSES = ("Identity", *_ENTER)
SWITCHES = ("Switch", "RefSwitch", "_SwitchN")
Conditions = frozenset[tuple[int, int]]
"""Conditions under which an op runs: pairs (node of a predicate, required outcome)."""
_log = logging.getLogger("pesto")


def closes_loop(nodes: StepNodes, producer: int, consumer: int) -> bool:
    """Return True if an edge leads from one iteration to the next."""
    return nodes.defs[producer].op in _NEXT and nodes.defs[consumer].op in MERGES


def fold_loops(graph: Graph, nodes: StepNodes) -> Graph:
    """Return `graph` (made without the edges that close loops) with every outermost loop as one op.

    The op has the work of the body times the trips, which are 1 with a warning where they cannot be derived, and
    runs where all of the body can. It is named after the loop's first op. Its order inside is TensorFlow's.
    """
    loop = find_outermost_loops(nodes)
    if (loop < 0).all():
        return graph
    # A v1 loop runs its nodes many times in one step, but a plan gives each op one place. So the loop becomes one op
    # with the work of all trips.
    times = np.ones(graph.ops, dtype=np.int64)
    trips_of: dict[int, int] = {}
    for label in np.unique(loop[loop >= 0]).tolist():
        trips_of[label] = _count_trips(nodes, loop, label, trips_of)
        times[loop == label] = trips_of[label]
    label = np.where(loop >= 0, graph.ops + loop, np.arange(graph.ops))
    _, first, node_of = np.unique(label, return_index=True, return_inverse=True)
    count = len(first)
    src, dst = node_of[graph.edge_src], node_of[graph.edge_dst]
    order = topological_order(count, src[src != dst], dst[src != dst])
    rank = rank_of(order) if len(order) == count else np.arange(count)  # a cycle is left for the Graph to print
    return _contract(graph, rank[node_of], times, loop)


def _contract(graph: Graph, node_of: Ints, times: Ints, loop: Ints) -> Graph:
    from networkx.utils import UnionFind

    count = int(node_of.max()) + 1
    # Groups that meet in one folded op become one.
    met = UnionFind(range(count))
    for node, group in zip(node_of.tolist(), graph.group.tolist(), strict=True):
        if group >= 0:
            met.union(node, count + group)
    leader = np.full(count, graph.ops)
    np.minimum.at(leader, node_of, np.arange(graph.ops))
    folded = loop[leader] >= 0
    types = (*graph.types, FOLDED)
    kinds = np.ones((count, len(graph.kinds)), dtype=np.bool_)
    np.logical_and.at(kinds, node_of, graph.runs_on)
    kinds[~kinds.any(axis=1), graph.kinds.index("cpu")] = True
    by_op = np.argsort(node_of[graph.tensor_op], kind="stable")
    place = rank_of(by_op)
    data = _merge_distinct_rows(np.stack([node_of[graph.src], node_of[graph.dst], place[graph.tensor]], axis=1))
    control = _merge_distinct_rows(np.stack([node_of[graph.control_src], node_of[graph.control_dst]], axis=1))
    # The kernels of a loop: how many launch, body and trips together.
    kernels = np.zeros((count, graph.kernels.shape[1]), dtype=np.int64)
    kernels[node_of] = graph.kernels
    kernels[folded] = 0
    kernels[folded, 0] = LOOP
    kernels[folded, 1] = _sum_by_loop(node_of, kernel_counts(graph.kernels, graph.launches) * times, count)[folded]
    # The data type in which each folded op does most of its work; -1 where none is known, which the last column takes.
    work = np.zeros((count, len(graph.dtypes) + 1))
    np.add.at(work, (node_of, graph.dtype_of), graph.flops * times)
    work_in = np.where(work.any(axis=1), (work.argmax(axis=1) + 1) % work.shape[1] - 1, -1)
    return replace(
        graph,
        names=tuple(graph.names[i] for i in leader),
        types=types,
        type_of=np.where(folded, len(types) - 1, graph.type_of[leader]),
        tensor_op=node_of[graph.tensor_op][by_op],
        tensor_bytes=graph.tensor_bytes[by_op],
        tensor_dtype=graph.tensor_dtype[by_op],
        src=data[:, 0],
        dst=data[:, 1],
        tensor=data[:, 2],
        control_src=control[:, 0],
        control_dst=control[:, 1],
        group=number_groups(np.array([met[node] for node in range(count)], dtype=np.int64)),
        runs_on=kinds,
        param_bytes=_sum_by_loop(node_of, graph.param_bytes, count),
        flops=np.bincount(node_of, weights=graph.flops * times, minlength=count).astype(np.float64),
        moved_bytes=_sum_by_loop(node_of, graph.moved_bytes * times, count),
        launches=_sum_by_loop(node_of, graph.launches.astype(np.int64), count) > 0,
        given_s=np.empty((count, 0)),
        loose=graph.loose[leader],
        variable_of=graph.variable_of[leader],
        kernels=kernels,
        dtype_of=np.where(folded, work_in, graph.dtype_of[leader]),
    )


def _merge_distinct_rows(rows: Ints) -> Ints:
    inside = rows[:, 0] == rows[:, 1]
    distinct_rows = np.unique(rows[~inside], axis=0)
    return distinct_rows[np.lexsort((distinct_rows[:, 0], distinct_rows[:, 1]))]


def _sum_by_loop(label: Ints, values: Ints, count: int) -> Ints:
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, label, values)
    return total


def number_groups(root: Ints) -> Ints:
    """Number groups 0, 1, … in order of their first member from any label per member; -1 where a label occurs once."""
    label, first, inverse, count = np.unique(root, return_index=True, return_inverse=True, return_counts=True)
    shared = count > 1
    rank = np.full(len(label), -1, dtype=np.int64)
    rank[np.flatnonzero(shared)[np.argsort(first[shared], kind="stable")]] = np.arange(int(shared.sum()))
    return rank[inverse].astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A v1 loop that the graph has as one op; names of its nodes."""

    nodes: tuple[str, ...]
    entries: tuple[str, ...]
    """Nodes that wait when the loop waits: everything enters through them."""
    exits: tuple[str, ...]
    """Nodes that are done when the loop is done."""


def find_loops(nodes: StepNodes) -> dict[str, Loop]:
    """Return the v1 loops by the name of the op that stands for each."""
    label, names = find_outermost_loops(nodes), [str(node.name) for node in nodes.defs]
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
        exits = [names[i] for i in inside if i not in leads and nodes.defs[i].op in _EXIT]
        loops[names[first]] = Loop(nodes=tuple(names[i] for i in inside), entries=tuple(entries), exits=tuple(exits))
    return loops


def find_outermost_loops(nodes: StepNodes) -> Ints:
    """Return [n] index of the first op of the outermost loop that each op runs in; -1 outside loops."""
    n = len(nodes.defs)
    if not any(node.op in _ENTER for node in nodes.defs):
        return np.full(n, -1, dtype=np.int64)
    inside: list[tuple[bytes, ...]] = [()] * n
    first: dict[bytes, int] = {}
    loop_of = np.full(n, -1, dtype=np.int64)
    for i, node in enumerate(nodes.defs):
        before = [p for p, _ in nodes.inputs[i] if not closes_loop(nodes, p, i)] + nodes.controls[i]
        # Inputs from outside enter through Enter; the deepest frame among the inputs is the one the op runs in.
        frame = max((inside[p] for p in before), key=len, default=())
        if node.op in _ENTER:
            frame = (*frame, node.attr["frame_name"].s)
        if frame:
            loop_of[i] = first.setdefault(frame[0], i)
        inside[i] = frame[:-1] if node.op in _EXIT else frame
    return loop_of


def _count_trips(nodes: StepNodes, loop: Ints, label: int, trips_of: dict[int, int]) -> int:
    for i in np.flatnonzero(loop == label).tolist():
        if nodes.defs[i].op == "LoopCond":
            # Each comparison of the conjunction that is the loop's condition can end it.
            stack, counts = [nodes.inputs[i][0][0]], []
            while stack:
                term = stack.pop()
                if nodes.defs[term].op in ("LogicalAnd", "Identity"):
                    stack += [p for p, _ in nodes.inputs[term]]
                elif (count := _count_comparison_trips(nodes, loop, term, trips_of)) is not None:
                    counts.append(count)
            if counts:
                return min(counts)
            break
    _log.warning(
        "loop %s: its number of trips is not known before it runs; 1 is assumed, too few - bound it: "
        "tf.while_loop has maximum_iterations, and dynamic_rnn goes by the time dimension, which a fixed shape gives",
        shown(nodes.defs[label].name),
    )
    return 1


def _count_comparison_trips(nodes: StepNodes, loop: Ints, i: int, trips_of: dict[int, int]) -> int | None:
    """Trips of `counter < limit` from a constant start, or of the gradient's `counter >= 1` from a loop's counter."""
    if nodes.defs[i].op not in ("Less", "GreaterEqual") or len(nodes.inputs[i]) != 2:
        return None
    counter, limit = (_find_input(nodes, p) for p, _ in nodes.inputs[i])
    end = scalar_constant(nodes.defs[limit])
    if nodes.defs[counter].op not in MERGES or end is None:
        return None
    start = _find_input(nodes, nodes.inputs[counter][0][0])
    if nodes.defs[i].op == "GreaterEqual":
        return trips_of.get(int(loop[start])) if nodes.defs[start].op in _EXIT else None
    begin = scalar_constant(nodes.defs[start])
    return None if begin is None else max(0, end - begin)


def _find_input(nodes: StepNodes, i: int) -> int:
    while nodes.defs[i].op in _PASSES:
        i = nodes.inputs[i][0][0]
    return i


def find_node_conditions(nodes: StepNodes, op: Sequence[int], looped: Collection[int]) -> list[Conditions]:
    """Return [ops] the conditions that each op runs under; none for what always runs.

    op: [n] the op that each node is, or is a part of. looped: nodes of loops, which are one op each.
    """
    of_node: list[Conditions] = [frozenset()] * len(nodes.defs)
    conditions: list[Conditions] = [frozenset()] * (max(op, default=-1) + 1)
    if not any(node.op in SWITCHES and i not in looped for i, node in enumerate(nodes.defs)):
        return conditions
    for i, node in enumerate(nodes.defs):
        data = [of_node[p] | find_output_conditions(nodes, p, k, looped) for p, k in nodes.inputs[i]]
        if node.op in MERGES and i not in looped:
            data = [frozenset.intersection(*data)]
        # A loop is one op: what its first nodes wait for, the others do.
        conditions[op[i]] = of_node[i] = conditions[op[i]].union(*data, *(of_node[c] for c in nodes.controls[i]))
    return conditions


def find_output_conditions(nodes: StepNodes, producer: int, output: int, looped: Collection[int]) -> Conditions:
    """Return the condition under which an output of a node is alive, beyond those of the node."""
    if nodes.defs[producer].op not in SWITCHES or producer in looped:
        return frozenset()
    return frozenset(((nodes.inputs[producer][1][0], output),))
