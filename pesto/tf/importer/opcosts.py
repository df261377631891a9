"""Work of every op of a graph: its formula for plain ops, the sum over the body for loops and branches."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.core.graph import kernel_counts
from pesto.core.source import origin_of
from pesto.tf.importer import kernels
from pesto.tf.importer.branch_shapes import FunctionKeys, FunctionShapes, argument_stand_in
from pesto.tf.importer.op_work import NO_ROW, OpView, flops, kernel_row, launches, loop_row, moved_bytes
from pesto.tf.importer.shapes import bound_shapes, find_data_sized_ops
from pesto.tf.importer.size_rules import BOUND_ATTRIBUTE
from pesto.tf.nodes.inline import flatten_function
from pesto.tf.nodes.needed_nodes import RESOURCE, TRAVELS_NOT, StepNodes, is_known
from pesto.tf.nodes.shape_inference import infer_shapes
from pesto.tf.nodes.trip_counts import LOOPS, trip_count
from pesto.tf.variables.variables import BRANCHES, Roots, bytes_of, declared_shape, find_resource_origins, value_bytes
from solvers.arrays import Bools, Floats, Ints

_COMPUTES_IN = ("T", "dtype", "Ta", "T1", "Tinput")
"""Attributes that name what an op computes in, in the order in which they count."""
_MOST = 1 << 62
_MOST_LAUNCHED = 1 << 40
_log = logging.getLogger("pesto")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpCosts:
    """Work of n ops."""

    flops: Floats
    """[n] floating-point operations of each op."""
    moved: Ints
    """[n] bytes that each op reads and writes."""
    launches: Bools
    """[n] whether the op launches a kernel."""
    values: Ints
    """[n] bytes of the variable behind each handle or reference variable."""
    runs_on: Bools
    """[n, 2] whether each op runs on each of the kinds of device `pesto.tf.importer.kernels.KINDS`."""
    kernels: Ints
    """[n, 12] form and sizes of each op's kernel, as `pesto.core.graph.Graph.kernels`."""
    dtypes: list[int]
    """[n] data type numbers of what the ops compute in; of a loop or branch, what most of its body's work is in."""
    data_sized: Bools
    """[n] whether sizes of the op's outputs, or within its bodies, depend on the data and are upper bounds."""
    unknown: Ints
    """[n] ops within the bodies of each op whose sizes are unknown, so that they count too little."""


@dataclass(frozen=True, slots=True)
class _BodyCosts:
    flops: float
    moved: int
    on_gpu: bool
    dtype: int
    """Dtype number of most of the work."""
    launched: int
    """Kernels that it starts."""
    data_sized: bool
    unknown: int


@dataclass(frozen=True, slots=True)
class CostEstimator:
    """Costs graphs and, once for functions and shapes that differ in names only, the bodies of loops and branches."""

    _bodies: dict[Any, _BodyCosts] = field(default_factory=dict)
    _shapes: FunctionShapes = field(default_factory=lambda: FunctionShapes(bound_shapes))
    _keys: FunctionKeys = field(default_factory=FunctionKeys)

    def costs(self, nodes: StepNodes) -> OpCosts:
        """Return the work of every node; a loop counts its trips, 1 with a warning where they cannot be derived."""
        n = len(nodes.defs)
        root = find_resource_origins(nodes)
        values = value_bytes(nodes, root)
        out_bytes = [
            [bytes_of(t, nodes.upper_bound(i, k)) for k, t in enumerate(types)] for i, types in enumerate(nodes.dtypes)
        ]
        trips: dict[int, int] = {}
        work, moved = np.zeros(n), np.zeros(n, dtype=np.int64)
        registered = [kernels.kernel(node) for node in nodes.defs]
        rows = [NO_ROW] * n
        dtypes = []
        for node, types in zip(nodes.defs, nodes.dtypes, strict=True):
            named = (node.attr[attr].type for attr in _COMPUTES_IN if attr in node.attr)
            dtypes.append(next(filter(None, named), types[0] if types else 0))
        launch, on_gpu = np.ones(n, dtype=np.bool_), np.ones(n, dtype=np.bool_)
        sized, unknown = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.int64)
        sized[find_data_sized_ops(nodes)] = True
        for i, node in enumerate(nodes.defs):
            if node.op in LOOPS or node.op in BRANCHES:
                inner = self._cost_call(nodes, i, root, trips)
                work[i], moved[i], on_gpu[i] = inner.flops, min(inner.moved, _MOST), inner.on_gpu
                dtypes[i], rows[i] = inner.dtype, loop_row(min(inner.launched, _MOST_LAUNCHED))
                sized[i], unknown[i] = sized[i] or inner.data_sized, inner.unknown
                continue
            op = _make_view(nodes, i, root, values, out_bytes)
            launch[i] = launches(op, registered[i][2])
            if launch[i]:
                work[i], moved[i], rows[i] = flops(op), min(moved_bytes(op), _MOST), kernel_row(op)
        return OpCosts(
            flops=work,
            moved=moved,
            launches=launch,
            values=np.array(values, dtype=np.int64),
            runs_on=kernels.runs_on(nodes, registered, on_gpu),
            kernels=np.array(rows, dtype=np.int64).reshape(n, len(NO_ROW)),
            dtypes=dtypes,
            data_sized=sized,
            unknown=unknown,
        )

    def _cost_call(self, nodes: StepNodes, i: int, root: Roots, trips: dict[int, int]) -> _BodyCosts:
        """Cost a loop: its bodies, times its trips; or a branch, of which the heaviest is planned for."""
        node, loop = nodes.defs[i], nodes.defs[i].op in LOOPS
        attrs = ("cond", "body") if loop else ("then_branch", "else_branch")
        names = [node.attr[a].func.name for a in attrs if loop or a in node.attr]
        names += [f.name for f in node.attr["branches"].list.func] if "branches" in node.attr else []
        parts = [self._cost_body(nodes, i, name, root, 0 if loop else 1) for name in names]
        times = 1
        if loop:
            if (count := trip_count(nodes, i, trips)) is None:
                _log.warning(
                    "loop %s: its number of trips is not known before it runs; 1 is assumed, too few - bound it: "
                    "tf.while_loop has maximum_iterations, a Python loop tf.autograph.experimental.set_loop_options, "
                    "and tf.map_fn and tf.scan go by the first dimension, which a fixed shape gives",
                    shown(node.name),
                )
            times = trips[i] = 1 if count is None else count

        def total(amounts: Iterable[Any]) -> Any:
            return times * sum(amounts) if loop else max(amounts, default=0)

        return _BodyCosts(
            float(total(p.flops for p in parts)),
            total(p.moved for p in parts),
            all(p.on_gpu for p in parts),
            _find_dominant_dtype([p.dtype for p in parts], [p.flops for p in parts]),
            total(p.launched for p in parts),
            any(p.data_sized for p in parts),
            sum(p.unknown for p in parts),
        )

    def _cost_body(self, nodes: StepNodes, i: int, name: str, root: Roots, skip: int) -> _BodyCosts:
        library = nodes.signatures.library
        if name not in library:
            raise InputError(f"op {shown(nodes.defs[i].name)}: its function {shown(name)} is missing")
        arguments = [argument_stand_in(nodes, p, k, root) for p, k in nodes.inputs[i][skip:]]
        # Unrolled models contain hundreds of equal branches and loops; bodies that differ only in names are costed
        # once.
        key: tuple[Any, ...] = (self._keys.key(library[name], library),)
        for argument in arguments:
            # The properties of an argument that the body's work depends on.
            attr, bound = argument.attr, b""
            value = attr["value"].tensor.SerializeToString() if argument.op == "Const" else b""
            if BOUND_ATTRIBUTE in attr:
                bound = attr[BOUND_ATTRIBUTE].shape.SerializeToString()
            key += ((argument.op, attr["dtype"].type, declared_shape(argument), bound, value),)
        if key not in self._bodies:
            self._bodies[key] = _BodyCosts(0.0, 0, True, 0, 0, False, 0)  # what a body that contains itself finds
            flat = flatten_function(library[name], arguments, library)
            inner = bound_shapes(infer_shapes(flat.graph_def), flat.ops, self._shapes)
            costs = self.costs(inner)
            # Placeholders stand for arguments and exist only here; their kinds of device say nothing about the body.
            plain = [node.op != "Placeholder" for node in inner.defs]
            self._bodies[key] = _BodyCosts(
                float(costs.flops.sum()),
                int(costs.moved.sum()),
                bool(costs.runs_on[plain, kernels.KINDS.index("gpu")].all()),
                _find_dominant_dtype(costs.dtypes, costs.flops.tolist()),
                int(kernel_counts(costs.kernels, costs.launches).sum()),
                bool(costs.data_sized.any()),
                len(_find_unknown_sizes(inner, costs.launches)) + int(costs.unknown.sum()),
            )
        return self._bodies[key]


def _find_dominant_dtype(dtypes: Iterable[int], weights: Iterable[float]) -> int:
    """Return the data type number that has most of the weight; 0 without any."""
    total: dict[int, float] = {0: 0.0}
    for dtype, weight in zip(dtypes, weights, strict=True):
        total[dtype] = total.get(dtype, 0.0) + weight
    return max(total, key=total.__getitem__)


def _find_unknown_sizes(nodes: StepNodes, matter: Bools) -> list[int]:
    """Return the ops among those that `matter` [n] some of whose outputs travel and have unknown sizes."""
    return [
        i
        for i in np.flatnonzero(matter).tolist()
        if any(
            t not in TRAVELS_NOT and not is_known(s)
            for t, s in zip(nodes.dtypes[i], nodes.upper_bounds(i), strict=True)
        )
    ]


def _make_view(nodes: StepNodes, i: int, root: Roots, values: list[int], out_bytes: list[list[int]]) -> OpView:
    node = nodes.defs[i]
    refs, ref_outputs = nodes.signatures.input_refs(node), nodes.signatures.output_refs(node)
    in_bytes, handles = [], []
    counted = set()
    for slot, (p, k) in enumerate(nodes.inputs[i]):
        ref = bool(refs) and refs[slot]
        if nodes.dtypes[p][k] == RESOURCE:
            handles.append(values[root[p][k]] if root[p][k] >= 0 else 0)
        elif ref:
            handles.append(out_bytes[p][k])
        # A tensor that is read twice is fetched from memory once.
        in_bytes.append(0 if ref or (p, k) in counted else out_bytes[p][k])
        counted.add((p, k))
    outs = out_bytes[i]
    if ref_outputs:
        outs = [0 if ref else b for ref, b in zip(ref_outputs, outs, strict=True)]
    return OpView(node, nodes.input_upper_bounds(i), nodes.upper_bounds(i), in_bytes, outs, handles)


def dtype_columns(nodes: StepNodes, own: Sequence[int]) -> dict[str, Any]:
    """Return the data type columns of a `Graph`; `own` [n] are the dtype numbers that the ops compute in."""
    of_tensors = [t for types in nodes.dtypes for t in types]
    name = {}
    for number in {*own, *of_tensors}:
        try:
            name[number] = str(tf.as_dtype(number).name)
        except TypeError:  # TensorFlow has no type of this number
            name[number] = ""
    table = sorted({*name.values()} - {""})
    code = {number: table.index(text) if text else -1 for number, text in name.items()}
    return {
        "dtypes": tuple(table),
        "dtype_of": np.array([code[t] for t in own], dtype=np.int64),
        "tensor_dtype": np.array([code[t] for t in of_tensors], dtype=np.int64),
    }


def warn_assumed(nodes: StepNodes, costs: OpCosts, in_loop: Bools, source: str) -> None:
    """Log what the costs of a step assume, one line for each kind: upper bounds of sizes, and sizes left out.

    in_loop: [n] whether the op is in a v1 loop, where sizes may be unknown.
    """
    sized = np.flatnonzero(costs.data_sized).tolist()
    if sized:
        branches = any(nodes.defs[i].op in BRANCHES for i in sized)
        _log.warning(
            "%s: sizes of %d ops depend on the data, as of op %s; upper bounds are assumed%s",
            source,
            len(sized),
            shown(nodes.defs[sized[0]].name),
            ", of branches without what they search for" if branches else "",
        )
    lacking = _find_unknown_sizes(nodes, costs.launches & in_loop)
    inside = np.flatnonzero(costs.unknown).tolist()
    if lacking or inside:
        _log.warning(
            "%s: %d ops of loops or branches, as of %s, have unknown shapes and count too little - %s",
            source,
            len(lacking) + int(costs.unknown.sum()),
            shown(nodes.defs[(inside or lacking)[0]].name),
            "export with add_shapes=True"
            if origin_of(source).kind == "file"
            else "give tensors there fixed sizes (tf.ensure_shape, or shapes of the signature)",
        )
