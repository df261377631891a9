"""A traced step for placement: its graph, and the nodes behind the graph's ops."""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from pesto.core.graph import Graph
from pesto.tf.importer.importer import build_graph
from pesto.tf.nodes.captured import BranchDivision, CapturedStep
from pesto.tf.nodes.needed_nodes import StepNodes, parse_nodes
from pesto.tf.nodes.v1_loops import closes_loop, outermost_loops
from solvers.arrays import rank_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A v1 loop that the graph has as one op."""

    nodes: tuple[str, ...]
    """All of its nodes."""
    entries: tuple[str, ...]
    """Nodes through which everything enters: what waits when the loop waits."""
    exits: tuple[str, ...]
    """Nodes that are done when the loop is done."""


def find_loops(nodes: StepNodes) -> dict[str, Loop]:
    """The v1 loops by the name of the op that stands for each (see `pesto.tf.nodes.v1_loops`)."""
    label = outermost_loops(nodes)
    loops = {}
    for first in np.unique(label[label >= 0]).tolist():
        inside = np.flatnonzero(label == first).tolist()
        loops[str(nodes.defs[first].name)] = _loop(nodes, inside)
    return loops


def _loop(nodes: StepNodes, inside: Sequence[int]) -> Loop:
    members = set(inside)
    leads: set[int] = set()
    entries = []
    for i in inside:
        # The NextIteration edge leads back to the Merge; counted as an input it would leave the loop without an entry.
        before = [p for p, _ in nodes.inputs[i] if not closes_loop(nodes, p, i)] + nodes.controls[i]
        leads.update(p for p in before if p in members)
        if not any(p in members for p in before):
            entries.append(i)
    exits = [i for i in inside if i not in leads and nodes.defs[i].op in ("Exit", "RefExit")]
    names = [str(node.name) for node in nodes.defs]
    return Loop(
        nodes=tuple(names[i] for i in inside),
        entries=tuple(names[i] for i in entries),
        exits=tuple(names[i] for i in exits),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTrace:
    """A captured step."""

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
        """[nodes] index of the op of the graph that each node is, or is a part of."""
        leader = {node: name for name, loop in self.loops.items() for node in loop.nodes}
        index = {name: i for i, name in enumerate(self.graph.names)}
        return [index[leader.get(node.name, node.name)] for node in self.nodes.defs]

    def tensors(self) -> dict[tuple[int, int], int]:
        """(node, output) -> index of the tensor in the graph."""
        outputs = [len(types) for types in self.nodes.dtypes]
        # As loops are folded (`pesto.tf.nodes.v1_loops`).
        place = rank_of(np.argsort(np.repeat(self.op_of_node, outputs), kind="stable")).tolist()
        each = [(node, k) for node, count in enumerate(outputs) for k in range(count)]
        return dict(zip(each, place, strict=True))


def trace_step(captured: CapturedStep, batch: int | None) -> StepTrace:
    """Build the graph and nodes of a captured step for placement; InputError where it cannot be planned.

    Warnings of what its sizes and costs assume are left out: they were given when the step was planned.
    """
    # The same graph was built when the step was planned, with the same warnings.
    with _warnings_left_out():
        graph = build_graph(captured, batch=batch)
    nodes = parse_nodes(captured.graph_def, captured.fetches)
    return StepTrace(
        graph=graph, nodes=nodes, loops=find_loops(nodes), passed=captured.passed, divisions=captured.divisions
    )


@contextmanager
def _warnings_left_out() -> Iterator[None]:
    """Drop what this thread logs as the project."""
    log, here = logging.getLogger("pesto"), threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != here

    log.addFilter(of_others)
    try:
        yield
    finally:
        log.removeFilter(of_others)
