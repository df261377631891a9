"""Bytes that one execution reads and writes in its device's memory, and whether it starts a kernel at all."""

from collections.abc import Callable, Mapping

from pesto.tf.importer.flops import OpView

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
