"""Work of every op: its formula for plain ops, the sum over the body for loops and branches."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.core.graph import kernel_counts
from pesto.core.source import origin_of
from pesto.tf.importer import devices
from pesto.tf.importer.branch_shapes import FunctionShapes, argument_stand_in
from pesto.tf.importer.datatypes import compute_dtype, dominant_dtype
from pesto.tf.importer.flops import OpView, flops
from pesto.tf.importer.function_keys import FunctionKeys
from pesto.tf.importer.kernel_forms import NO_ROW, kernel_row, loop_row
from pesto.tf.importer.kernels import kernel
from pesto.tf.importer.shapes import bounded_nodes, data_sized, infer_shapes
from pesto.tf.importer.size_rules import BOUND_ATTRIBUTE
from pesto.tf.nodes.inline import flatten_function
from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.signatures import RESOURCE, TRAVELS_NOT
from pesto.tf.nodes.sizes import is_known
from pesto.tf.nodes.trip_counts import LOOPS, trip_count
from pesto.tf.variables.variables import Roots, bytes_of, declared_shape, resource_origins, value_bytes
from solvers.arrays import Bools, Floats, Ints

# Bytes that one execution reads and writes in its device's memory, and whether it starts a kernel at all.

_BOOKKEEPING = frozenset(
    """Reshape Identity IdentityN ExpandDims Squeeze Shape ShapeN Size Rank Const HostConst NoOp ControlTrigger
    StopGradient PreventGradient Placeholder PlaceholderV2 PlaceholderWithDefault Bitcast EnsureShape VarHandleOp
    ReadVariableOp VariableV2 Variable TemporaryVariable DestroyTemporaryVariable VarIsInitializedOp VariableShape
    IsVariableInitialized AssignVariableOp BroadcastGradientArgs ConcatOffset BroadcastArgs InvertPermutation Enter Exit
    NextIteration Switch Merge LoopCond RefEnter RefExit RefNextIteration RefSwitch RefMerge RefIdentity SwitchN
    StackV2 StackPushV2 StackPopV2 StackCloseV2 TensorListReserve EmptyTensorList TensorListLength TensorListResize
    TensorListElementShape TensorListSetItem TensorListGetItem TensorListPushBack TensorListPopBack FakeParam Assert
    DisableCopyOnRead DestroyResourceOp DeviceIndex DebugIdentity DebugIdentityV2 DebugIdentityV3""".split()  # noqa: SIM905
)  # fmt: skip


def launches(op: OpView, on_host: bool) -> bool:
    """Return True if the op starts a kernel; handles, constants, views and ops in host memory do not."""
    return not on_host and op.node.op not in _BOOKKEEPING


def moved_bytes(op: OpView) -> int:
    """Inputs read plus outputs written; of a table that is gathered from or scattered into, only the rows touched."""
    rule = _RULES.get(op.node.op)
    if rule is None and op.node.op.startswith(_SPARSE):
        rule = _sparse_apply
    if rule is not None:
        return rule(op)
    # An update in place reads and writes the variables behind its handles.
    return sum(op.in_bytes) + sum(op.out_bytes) + 2 * sum(op.handle_bytes)


def _gather(op: OpView) -> int:
    rows, index = sum(op.out_bytes), op.in_bytes[1] if len(op.in_bytes) > 1 else 0
    return 2 * rows + index


def _scatter(op: OpView) -> int:
    index, rows = ([*op.in_bytes, 0, 0, 0])[1:3]
    return index + 3 * rows


def _sparse_apply(op: OpView) -> int:
    """The gradient, the indices, and the touched rows of every table, read and written."""
    grad = max(op.in_bytes, default=0)
    return sum(op.in_bytes) + 2 * len(op.handle_bytes) * grad


def _assign_window(op: OpView) -> int:
    return 2 * max(op.in_bytes, default=0)


def _window(op: OpView) -> int:
    return 2 * sum(op.out_bytes)


def _output_only(op: OpView) -> int:
    return sum(op.out_bytes)


_SPARSE = ("ResourceSparseApply", "SparseApply")
_INTO = ("Scatter", "ResourceScatter", "ScatterNd", "ResourceScatterNd")
_RULES: Mapping[str, Callable[[OpView], int]] = {
    **dict.fromkeys(("Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd"), _gather),
    **{f"{into}{how}": _scatter for into in _INTO for how in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Update")},
    **dict.fromkeys(("StridedSliceAssign", "ResourceStridedSliceAssign"), _assign_window),
    **dict.fromkeys(("Slice", "StridedSlice", "TensorListStack"), _window),
    **dict.fromkeys(("Fill", "ZerosLike", "OnesLike", "RandomUniform", "RandomStandardNormal", "Range"), _output_only),
    **dict.fromkeys(("StatelessRandomUniformV2", "StatelessRandomNormalV2", "RandomUniformInt"), _output_only),
}  # fmt: skip


_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
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
    """[n, 2] whether each op runs on each of the kinds of device `pesto.tf.importer.devices.KINDS`."""
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
    _shapes: FunctionShapes = field(default_factory=lambda: FunctionShapes(bounded_nodes))
    _keys: FunctionKeys = field(default_factory=FunctionKeys)

    def costs(self, nodes: StepNodes) -> OpCosts:
        """The work of every node; a loop counts its trips, 1 with a warning where they cannot be derived."""
        n = len(nodes.defs)
        root = resource_origins(nodes)
        values = value_bytes(nodes, root)
        out_bytes = _out_bytes(nodes)
        count = _TripCounts(nodes)
        work, moved = np.zeros(n), np.zeros(n, dtype=np.int64)
        kernels = [kernel(node) for node in nodes.defs]
        rows = [NO_ROW] * n
        dtypes = [compute_dtype(node, types) for node, types in zip(nodes.defs, nodes.dtypes, strict=True)]
        launch, on_gpu = np.ones(n, dtype=np.bool_), np.ones(n, dtype=np.bool_)
        sized, unknown = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.int64)
        sized[data_sized(nodes)] = True
        for i, node in enumerate(nodes.defs):
            if node.op in LOOPS or node.op in _BRANCHES:
                inner = self._inner(nodes, i, root, count)
                work[i], moved[i], on_gpu[i] = inner.flops, min(inner.moved, _MOST), inner.on_gpu
                dtypes[i], rows[i] = inner.dtype, loop_row(min(inner.launched, _MOST_LAUNCHED))
                sized[i], unknown[i] = sized[i] or inner.data_sized, inner.unknown
                continue
            op = _view(nodes, i, root, values, out_bytes)
            launch[i] = launches(op, kernels[i][2])
            if launch[i]:
                work[i], moved[i], rows[i] = flops(op), min(moved_bytes(op), _MOST), kernel_row(op)
        return OpCosts(
            flops=work,
            moved=moved,
            launches=launch,
            values=np.array(values, dtype=np.int64),
            runs_on=devices.runs_on(nodes, kernels, on_gpu),
            kernels=np.array(rows, dtype=np.int64).reshape(n, len(NO_ROW)),
            dtypes=dtypes,
            data_sized=sized,
            unknown=unknown,
        )

    def _inner(self, nodes: StepNodes, i: int, root: Roots, count: Callable[[int], int]) -> _BodyCosts:
        node = nodes.defs[i]
        if node.op in LOOPS:
            parts = [self._body(nodes, i, node.attr[a].func.name, root, 0) for a in ("cond", "body")]
            times = count(i)
            return _BodyCosts(
                times * sum(p.flops for p in parts),
                times * sum(p.moved for p in parts),
                all(p.on_gpu for p in parts),
                _work_in(parts),
                times * sum(p.launched for p in parts),
                any(p.data_sized for p in parts),
                sum(p.unknown for p in parts),
            )
        names = [node.attr[a].func.name for a in ("then_branch", "else_branch") if a in node.attr]
        names += [f.name for f in node.attr["branches"].list.func] if "branches" in node.attr else []
        parts = [self._body(nodes, i, name, root, 1) for name in names]
        # Which branch is taken is not known beforehand: plan for the heaviest.
        return _BodyCosts(
            max((p.flops for p in parts), default=0.0),
            max((p.moved for p in parts), default=0),
            all(p.on_gpu for p in parts),
            _work_in(parts),
            max((p.launched for p in parts), default=0),
            any(p.data_sized for p in parts),
            sum(p.unknown for p in parts),
        )

    def _body(self, nodes: StepNodes, i: int, name: str, root: Roots, skip: int) -> _BodyCosts:
        library = nodes.signatures.library
        if name not in library:
            raise InputError(f"op {shown(nodes.defs[i].name)}: its function {shown(name)} is missing")
        feeds = nodes.inputs[i][skip:]
        arguments = [argument_stand_in(nodes, p, k, root) for p, k in feeds]
        # Unrolled models contain hundreds of equal branches and loops; bodies that differ only in names are costed
        # once.
        key = (self._keys.key(library[name], library), *(_argument_key(a) for a in arguments))
        if key not in self._bodies:
            self._bodies[key] = _BodyCosts(0.0, 0, True, 0, 0, False, 0)  # what a body that contains itself finds
            made = flatten_function(library[name], arguments, library)
            inner = bounded_nodes(infer_shapes(made.graph_def), made.ops, self._shapes)
            costs = self.costs(inner)
            # Placeholders stand for arguments and exist only here; their kinds of device say nothing about the body.
            plain = [node.op != "Placeholder" for node in inner.defs]
            self._bodies[key] = _BodyCosts(
                float(costs.flops.sum()),
                int(costs.moved.sum()),
                bool(costs.runs_on[plain, devices.KINDS.index("gpu")].all()),
                dominant_dtype(costs.dtypes, costs.flops.tolist()),
                int(kernel_counts(costs.kernels, costs.launches).sum()),
                bool(costs.data_sized.any()),
                len(_unknown(inner, costs.launches)) + int(costs.unknown.sum()),
            )
        return self._bodies[key]


def _out_bytes(nodes: StepNodes) -> list[list[int]]:
    return [[bytes_of(t, nodes.upper_bound(i, k)) for k, t in enumerate(types)] for i, types in enumerate(nodes.dtypes)]


def _work_in(parts: list[_BodyCosts]) -> int:
    return dominant_dtype([p.dtype for p in parts], [p.flops for p in parts])


def _argument_key(given: Any) -> tuple[Any, ...]:
    """Return the properties of a function's argument that its body's work depends on."""
    value = given.attr["value"].tensor.SerializeToString() if given.op == "Const" else b""
    bound = given.attr[BOUND_ATTRIBUTE].shape.SerializeToString() if BOUND_ATTRIBUTE in given.attr else b""
    return given.op, given.attr["dtype"].type, declared_shape(given), bound, value


def _unknown(nodes: StepNodes, matter: Bools) -> list[int]:
    """Return the ops among those that `matter` [n] some of whose outputs travel and have unknown sizes."""
    return [
        i
        for i in np.flatnonzero(matter).tolist()
        if any(
            t not in TRAVELS_NOT and not is_known(s)
            for t, s in zip(nodes.dtypes[i], nodes.upper_bounds(i), strict=True)
        )
    ]


def warn_assumed(nodes: StepNodes, costs: OpCosts, in_loop: Bools, source: str) -> None:
    """Log what the costs of a step assume, one line for each kind: upper bounds of sizes, and sizes left out.

    in_loop: [n] whether the op is in a v1 loop, where sizes may be unknown.
    """
    sized = np.flatnonzero(costs.data_sized).tolist()
    if sized:
        branches = any(nodes.defs[i].op in _BRANCHES for i in sized)
        _log.warning(
            "%s: sizes of %d ops depend on the data, as of op %s; upper bounds are assumed%s",
            source,
            len(sized),
            shown(nodes.defs[sized[0]].name),
            ", of branches without what they search for" if branches else "",
        )
    lacking = _unknown(nodes, costs.launches & in_loop)
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


def _view(nodes: StepNodes, i: int, root: Roots, values: list[int], out_bytes: list[list[int]]) -> OpView:
    node = nodes.defs[i]
    refs, ref_outputs = nodes.signatures.input_refs(node), nodes.signatures.output_refs(node)
    in_bytes, handles = [], []
    seen = set()
    for slot, (p, k) in enumerate(nodes.inputs[i]):
        ref = bool(refs) and refs[slot]
        if nodes.dtypes[p][k] == RESOURCE:
            handles.append(values[root[p][k]] if root[p][k] >= 0 else 0)
        elif ref:
            handles.append(out_bytes[p][k])
        # A tensor that is read twice is fetched from memory once.
        in_bytes.append(0 if ref or (p, k) in seen else out_bytes[p][k])
        seen.add((p, k))
    outs = out_bytes[i]
    if ref_outputs:
        outs = [0 if ref else b for ref, b in zip(ref_outputs, outs, strict=True)]
    return OpView(node, nodes.input_upper_bounds(i), nodes.upper_bounds(i), in_bytes, outs, handles)


class _TripCounts:
    """Trip counts of the loops of one graph, in topological order, each derived once."""

    def __init__(self, nodes: StepNodes) -> None:
        self._nodes = nodes
        self._known: dict[int, int] = {}

    def __call__(self, i: int) -> int:
        """Trips of loop `i`; 1 with a warning where they cannot be derived."""
        count = trip_count(self._nodes, i, self._known)
        if count is None:
            _log.warning(
                "loop %s: its number of trips is not known before it runs; 1 is assumed, too few - bound it: "
                "tf.while_loop has maximum_iterations, a Python loop tf.autograph.experimental.set_loop_options, and "
                "tf.map_fn and tf.scan go by the first dimension, which a fixed shape gives",
                shown(self._nodes.defs[i].name),
            )
        self._known[i] = 1 if count is None else count
        return self._known[i]
