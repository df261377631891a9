"""Converts a captured training step into the array `Graph`."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pesto.core.errors import InputError
from pesto.core.files.json import quoted
from pesto.core.files.reading import report_phase
from pesto.core.graph import FUNCTION, SESSION, Graph
from pesto.core.quantities import plural
from pesto.tf.importer import datatypes, devices
from pesto.tf.importer.opcosts import CostEstimator, OpCosts, warn_assumed
from pesto.tf.importer.shapes import known_nodes
from pesto.tf.nodes import v1_loops
from pesto.tf.nodes.batch_dimension import has_open_batch
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.colocation import colocation_groups
from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.unordered_ops import classify_loose
from pesto.tf.variables.program_order import hazard_edges
from pesto.tf.variables.uses import Touch, touches
from pesto.tf.variables.variables import bytes_of, named_variables
from solvers.arrays import Ints

_MAX_NAME = 4096

_log = logging.getLogger("pesto")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _GraphEdges:
    tensor_op: Ints
    tensor_bytes: Ints
    tensor: Ints
    dst: Ints
    control_src: Ints
    control_dst: Ints


def build_graph(captured: CapturedStep, *, batch: int | None = None) -> Graph:
    """The `Graph` of a step: what its fetches need, ops in a stable topological order.

    One data edge per tensor and reader. Unknown shapes are an InputError (see `pesto.tf.importer.shapes`). `batch`
    replaces the open first dimension of the feeds, and is on record in the graph if there was one.
    """
    if batch is not None and batch < 1:
        raise InputError.build(f"a batch of {batch}", where=captured.source, remedy="it must be at least 1")
    report_phase(f"reading {plural(len(captured.graph_def.node), 'op')}")
    nodes = _check_names(known_nodes(captured, batch))
    costs, group, edges = (
        CostEstimator().costs(nodes),
        colocation_groups(nodes),
        _edges(nodes, _uses(nodes, captured.source)),
    )
    warn_assumed(nodes, costs, v1_loops.outermost_loops(nodes) >= 0, captured.source)
    types = tuple(sorted({node.op for node in nodes.defs}))
    variables, variable_of = named_variables(nodes)
    flat = Graph(
        names=tuple(node.name for node in nodes.defs),
        types=types,
        type_of=np.searchsorted(types, [node.op for node in nodes.defs]),
        tensor_op=edges.tensor_op,
        tensor_bytes=edges.tensor_bytes,
        src=edges.tensor_op[edges.tensor],
        dst=edges.dst,
        tensor=edges.tensor,
        control_src=edges.control_src,
        control_dst=edges.control_dst,
        group=group,
        kinds=devices.KINDS,
        runs_on=devices.shared_kinds(costs.runs_on, group),
        **_work(costs),
        given_s=np.empty((len(nodes.defs), 0)),
        source=captured.source,
        batch=batch if has_open_batch(captured.graph_def) else None,
        feed_shapes=captured.feed_shapes,
        **datatypes.dtype_columns(nodes, costs.dtypes),
        variables=variables,
        variable_of=np.array(variable_of, dtype=np.int64),
    )
    # `graph` with what an order of it leaves out, and how it is run: what a GraphDef is made into is a session's.
    graph = v1_loops.fold_loops(flat, nodes)
    way = FUNCTION if captured.function else SESSION
    return replace(graph, loose=classify_loose(graph, nodes, captured.graph_def), way=way)


def _work(costs: OpCosts) -> dict[str, Any]:
    return {
        "param_bytes": costs.values, "flops": costs.flops, "moved_bytes": costs.moved, "launches": costs.launches,
        "kernels": costs.kernels,
    }  # fmt: skip


def _uses(nodes: StepNodes, source: str) -> Mapping[int, list[Touch]]:
    """Variable -> the ops that touch it, with a warning where none is updated."""
    uses = touches(nodes)
    if not any(touch.writes for each in uses.values() for touch in each):
        _log.warning("%s: the step updates no variable: inference is planned, no training", source)
    return uses


def _check_names(nodes: StepNodes) -> StepNodes:
    for node in nodes.defs:
        if not node.name or len(node.name.encode()) > _MAX_NAME or not node.name.isprintable():
            raise InputError.build(
                f"graph: op name {quoted(node.name)} is empty, too long or not printable", remedy="rename it"
            )
    return nodes


def _edges(nodes: StepNodes, uses: Mapping[int, list[Touch]]) -> _GraphEdges:
    offset = np.zeros(len(nodes.defs) + 1, dtype=np.int64)
    np.cumsum([len(t) for t in nodes.dtypes], out=offset[1:])
    first = offset.tolist()
    tensors, heads, tails, control_heads = [], [], [], []
    for i, inputs in enumerate(nodes.inputs):
        # A set: an op that takes a tensor twice causes one transfer.
        read = {first[p] + k for p, k in inputs if not v1_loops.closes_loop(nodes, p, i)}
        tensors += sorted(read)
        heads += [i] * len(read)
        # Data orders two ops already.
        waits = [c for c in nodes.controls[i] if c not in {p for p, _ in inputs}] if nodes.controls[i] else []
        tails += waits
        control_heads += [i] * len(waits)
    # Without these edges a plan could reorder a read and an update of one variable, which TensorFlow's own graph often
    # leaves unordered.
    ordered = hazard_edges(nodes, uses)
    size = [bytes_of(t, nodes.upper_bound(i, k)) for i, types in enumerate(nodes.dtypes) for k, t in enumerate(types)]
    return _GraphEdges(
        tensor_op=np.repeat(np.arange(len(nodes.defs)), np.diff(offset)),
        tensor_bytes=np.array(size, dtype=np.int64),
        tensor=np.array(tensors, dtype=np.int64),
        dst=np.array(heads, dtype=np.int64),
        control_src=np.array(tails + [a for a, _ in ordered], dtype=np.int64),
        control_dst=np.array(control_heads + [b for _, b in ordered], dtype=np.int64),
    )
