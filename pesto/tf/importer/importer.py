"""Converts a captured training step into the array `Graph`."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pesto.core.errors import InputError
from pesto.core.files.json import quoted
from pesto.core.files.reading import report_phase
from pesto.core.graph import FUNCTION, SESSION, Graph
from pesto.core.quantities import plural
from pesto.tf.importer import kernels
from pesto.tf.importer.opcosts import CostEstimator, dtype_columns, warn_assumed
from pesto.tf.importer.shapes import resolve_shapes
from pesto.tf.nodes import v1_loops
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.needed_nodes import RESOURCE, VARIANT, StepNodes
from pesto.tf.nodes.shape_inference import has_open_batch
from pesto.tf.nodes.unordered_ops import classify_loose
from pesto.tf.variables.program_order import find_hazard_edges
from pesto.tf.variables.variables import Touch, bytes_of, find_variables, touches
from solvers.arrays import Ints

_MAX_NAME = 4096
_LOCATION = b"loc:@"

_log = logging.getLogger("pesto")


def build_graph(captured: CapturedStep, *, batch: int | None = None) -> Graph:
    """Return the `Graph` of a step: what its fetches need, ops in a stable topological order.

    One data edge per tensor and reader. `batch` replaces the open first dimension of the feeds, and is on record in the
    graph if there was one. Raise InputError for unknown shapes (see `pesto.tf.importer.shapes`) and unusable names.
    """
    if batch is not None and batch < 1:
        raise InputError.build(f"a batch of {batch}", where=captured.source, remedy="it must be at least 1")
    report_phase(f"reading {plural(len(captured.graph_def.node), 'op')}")
    nodes = resolve_shapes(captured, batch)
    for node in nodes.defs:
        if not node.name or len(node.name.encode()) > _MAX_NAME or not node.name.isprintable():
            raise InputError.build(
                f"graph: op name {quoted(node.name)} is empty, too long or not printable", remedy="rename it"
            )
    costs, group, uses = CostEstimator().costs(nodes), colocation_groups(nodes), touches(nodes)
    if not any(touch.writes for of_variable in uses.values() for touch in of_variable):
        _log.warning("%s: the step updates no variable: inference is planned, no training", captured.source)
    edges = _make_edge_columns(nodes, uses)
    warn_assumed(nodes, costs, v1_loops.find_outermost_loops(nodes) >= 0, captured.source)
    types = tuple(sorted({node.op for node in nodes.defs}))
    variables, variable_of = find_variables(nodes)
    flat = Graph(
        names=tuple(node.name for node in nodes.defs),
        types=types,
        type_of=np.searchsorted(types, [node.op for node in nodes.defs]),
        **edges,
        group=group,
        kinds=kernels.KINDS,
        runs_on=kernels.restrict_shared_kinds(costs.runs_on, group),
        param_bytes=costs.values,
        flops=costs.flops,
        moved_bytes=costs.moved,
        launches=costs.launches,
        kernels=costs.kernels,
        given_s=np.empty((len(nodes.defs), 0)),
        source=captured.source,
        batch=batch if has_open_batch(captured.graph_def) else None,
        feed_shapes=captured.feed_shapes,
        **dtype_columns(nodes, costs.dtypes),
        variables=variables,
        variable_of=np.array(variable_of, dtype=np.int64),
    )
    graph = v1_loops.fold_loops(flat, nodes)
    # An order leaves out the loose ops, and a session runs the graph that a GraphDef is made into.
    loose, way = classify_loose(graph, nodes, captured.graph_def), FUNCTION if captured.function else SESSION
    return replace(graph, loose=loose, way=way)


def _make_edge_columns(nodes: StepNodes, uses: Mapping[int, list[Touch]]) -> dict[str, Any]:
    """Return the columns of tensors, data edges and control edges of a `Graph`."""
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
    ordered = find_hazard_edges(nodes, uses)
    size = [bytes_of(t, nodes.upper_bound(i, k)) for i, types in enumerate(nodes.dtypes) for k, t in enumerate(types)]
    tensor_op, tensor = np.repeat(np.arange(len(nodes.defs)), np.diff(offset)), np.array(tensors, dtype=np.int64)
    return {
        "tensor_op": tensor_op,
        "tensor_bytes": np.array(size, dtype=np.int64),
        "src": tensor_op[tensor],
        "dst": np.array(heads, dtype=np.int64),
        "tensor": tensor,
        "control_src": np.array(tails + [a for a, _ in ordered], dtype=np.int64),
        "control_dst": np.array(control_heads + [b for _, b in ordered], dtype=np.int64),
    }


def colocation_groups(nodes: StepNodes) -> Ints:
    """Return [n] group of each node, numbered by first member; -1 for nodes that are alone.

    TensorFlow's placer moves an op to the handle that it touches, silently, so ops are joined over every resource
    and reference input; an op that touches several handles joins them. Variants (tensor lists) are joined too: their
    edges carry no bytes and must not be cut. Of the `_class` constraints only those of ops with references bind; the
    rest are leftovers of the Python layer that a plan removes.
    """
    from networkx.utils import UnionFind

    groups = UnionFind(range(len(nodes.defs)))
    index = {node.name.encode(): i for i, node in enumerate(nodes.defs)}
    for i, node in enumerate(nodes.defs):
        refs = nodes.signatures.input_refs(node)
        for slot, (p, k) in enumerate(nodes.inputs[i]):
            # Resource handles and references cannot cross devices: the op that uses one runs where the variable lives.
            if nodes.dtypes[p][k] in (RESOURCE, VARIANT) or (refs and refs[slot]):
                groups.union(i, p)
        if "_class" in node.attr and nodes.signatures.has_ref(node):
            for where in node.attr["_class"].list.s:
                other = index.get(where.removeprefix(_LOCATION))
                if other is not None:
                    groups.union(i, other)
    return v1_loops.number_groups(np.array([groups[i] for i in range(len(nodes.defs))], dtype=np.int64))
