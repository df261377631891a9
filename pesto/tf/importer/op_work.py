"""Work of one execution of an op: floating point operations, bytes moved, and the form and sizes of its kernel.

Operations are exact where a formula exists, else one per element. Bytes are those that an op reads and writes in its
device's memory. Forms and sizes of kernels (`pesto.core.graph.KERNEL_FORMS`) come from shapes and attributes.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pesto.core import graph
from pesto.tf.nodes.needed_nodes import Shape


@dataclass(frozen=True, slots=True)
class OpView:
    """Inputs of the cost formulas of one op."""

    node: Any
    """The op itself, a NodeDef of TensorFlow."""
    ins: list[Shape]
    """Shape of each data input."""
    outs: list[Shape]
    """Shape of each output."""
    in_bytes: list[int]
    """Bytes of each data input, 0 for handles and references."""
    out_bytes: list[int]
    """Bytes of each output, 0 for handles and references."""
    handle_bytes: list[int]
    """Bytes of the variable behind each resource or reference input."""


Row = tuple[int, ...]
NO_ROW: Row = (0,) * (1 + max(graph.KERNEL_SIZES))
_ShapeOf = Callable[[OpView], Shape]


def flops(op: OpView) -> float:
    """Count floating point operations; a multiply-add counts as two, and ops that only move data count nothing."""
    formula = _FLOPS.get(op.node.op)
    if formula is not None:
        try:
            return float(formula(op))
        except (IndexError, TypeError):  # an op with fewer inputs, or an unknown rank, than its formula reads
            return 0.0
    if op.node.op in _MOVES:
        return 0.0
    largest = max((elements(s) for s in (*op.ins, *op.outs)), default=0)
    handles = sum(op.handle_bytes) // 4 if "Apply" in op.node.op and "Sparse" not in op.node.op else 0
    return float(_PER_ELEMENT.get(op.node.op, 1) * max(largest, handles))


def launches(op: OpView, on_host: bool) -> bool:
    """Return True if the op starts a kernel; handles, constants, views and ops in host memory do not."""
    return not on_host and op.node.op not in _BOOKKEEPING


def moved_bytes(op: OpView) -> int:
    """Count inputs read and outputs written; of a table that is gathered from or scattered into, only rows touched."""
    rule = _MOVED.get(op.node.op)
    if rule is not None:
        return rule(op)
    if op.node.op.startswith(("ResourceSparseApply", "SparseApply")):
        # The gradient, the indices, and the touched rows of every table, read and written.
        return sum(op.in_bytes) + 2 * len(op.handle_bytes) * max(op.in_bytes, default=0)
    # An update in place reads and writes the variables behind its handles.
    return sum(op.in_bytes) + sum(op.out_bytes) + 2 * sum(op.handle_bytes)


def kernel_row(op: OpView) -> Row:
    """Return form and sizes, padded with zeros; all zeros for other kinds of op, and where a shape is not known."""
    rule = _FORMS.get(op.node.op)
    if rule is None:
        return NO_ROW
    try:
        form, *sizes = rule(op)
    except (IndexError, TypeError, ValueError):  # a shape or rank is not known, or is not what the op says
        return NO_ROW
    if form <= graph.DEPTHWISE_FILTER and min(sizes[: 4 if form == graph.MATMUL else 11]) < 1:
        return NO_ROW
    return (form, *sizes, *NO_ROW[1 + len(sizes) :])


def loop_row(launched: int) -> Row:
    """Return the row of a loop that starts so many kernels, body and trips together."""
    return (graph.LOOP, launched, *NO_ROW[2:])


def elements(shape: Shape) -> int:
    """Return the number of elements, 0 when unknown."""
    return math.prod(shape) if shape is not None and -1 not in shape else 0


def _input(k: int) -> _ShapeOf:
    return lambda op: op.ins[k]


def _out(op: OpView) -> Shape:
    return op.outs[0]


def _ranked(shape: Shape) -> tuple[int, ...]:
    if shape is None:
        raise TypeError("unknown rank")
    return shape


def _known(shape: Shape) -> tuple[int, ...]:
    if shape is None or -1 in shape:
        raise TypeError("unknown shape")
    return shape


def _flag(op: OpView, *names: str) -> bool:
    return any(op.node.attr[name].b for name in names if name in op.node.attr)


def _matmul_flops(op: OpView) -> int:
    a = _ranked(op.ins[0])
    return 2 * elements(op.outs[0]) * a[-2 if _flag(op, "transpose_a", "adj_x") else -1]


def _matmul_form(op: OpView) -> Row:
    a, b = _known(op.ins[0]), _known(op.ins[1])
    swapped_a, swapped_b = _flag(op, "transpose_a", "adj_x"), _flag(op, "transpose_b", "adj_y")
    m, k = (a[-1], a[-2]) if swapped_a else (a[-2], a[-1])
    n = b[-2] if swapped_b else b[-1]
    return graph.MATMUL, m, n, k, math.prod(_known(op.outs[0])[:-2]), int(swapped_a), int(swapped_b)


def _einsum_sizes(op: OpView) -> tuple[dict[str, int], int]:
    """Return the size of each label of an Einsum, and the product of what its dots stand for."""
    size: dict[str, int] = {}
    batch = 1
    equation = op.node.attr["equation"].s.decode()
    for labels, shape in zip(equation.partition("->")[0].split(","), op.ins, strict=True):
        dims = _ranked(shape)
        before, dots, after = labels.partition("...")
        named = [*zip(before, dims, strict=False), *zip(after, dims[len(dims) - len(after) :], strict=False)]
        for label, d in named:
            size[label] = max(size.get(label, 1), d)
        if dots:
            batch = max(batch, math.prod(dims[len(before) : len(dims) - len(after)]))
    return size, batch


def _einsum_flops(op: OpView) -> int:
    size, batch = _einsum_sizes(op)
    return (2 if len(op.ins) > 1 else 1) * batch * math.prod(size.values())


def _einsum_form(op: OpView) -> Row:
    """Map an Einsum of two factors to a matrix product: shared kept labels are the batch, summed ones the reduction."""
    inputs, _, result = op.node.attr["equation"].s.decode().partition("->")
    left, right = inputs.split(",")
    size, batch = _einsum_sizes(op)
    a, b, out = set(left) & set(size), set(right) & set(size), set(result)
    m, n, k, both = (math.prod(size[x] for x in labels) for labels in ((a - b), (b - a), (a & b) - out, a & b & out))
    return graph.MATMUL, m, n, k, batch * both, 0, 0


def _conv_flops(filter_of: _ShapeOf, positions_of: _ShapeOf, last: int = -1) -> Callable[[OpView], int]:
    """Each position of the (gradient of the) output costs a multiply-add per filter weight, up to dimension `last`."""
    return lambda op: 2 * elements(positions_of(op)) * math.prod(_ranked(filter_of(op))[:last])


def _conv_form(form: int, image: _ShapeOf, kernel: _ShapeOf, result: _ShapeOf) -> Callable[[OpView], Row]:
    """Make the rule of a convolution; in volumes, output depth counts as batch and filter depth as channels."""

    def row(op: OpView) -> Row:
        layout = op.node.attr["data_format"].s.decode() if "data_format" in op.node.attr else "NHWC"
        first = layout.startswith("NC")
        inner = slice(2, None) if first else slice(1, -1)
        pixels, out, taps = _known(image(op)), _known(result(op)), _known(kernel(op))
        (height, width), (out_height, out_width) = pixels[inner][-2:], out[inner][-2:]
        down, right = list(op.node.attr["strides"].list.i)[inner][-2:]
        channels = taps[-2] * math.prod(taps[:-4])
        filters = out[1 if first else -1] if form < graph.DEPTHWISE else taps[-1] * channels
        images = out[0] * math.prod(out[inner][:-2])
        return form, images, channels, height, width, filters, taps[-4], taps[-3], down, right, out_height, out_width

    return row


def _lstm_block(op: OpView) -> int:
    x, w = (op.ins[0], op.ins[3]) if op.node.op == "LSTMBlockCell" else (op.ins[1], op.ins[4])
    return 2 * math.prod(_ranked(x)[:-1]) * elements(w)


def _gru_block(op: OpView) -> int:
    return 2 * _ranked(op.ins[0])[0] * (elements(op.ins[2]) + elements(op.ins[3]))


def _cudnn_rnn(op: OpView) -> int:
    # Every weight is used once per time step and example, whatever the cell and the number of layers.
    return 2 * math.prod(_ranked(op.ins[0])[:2]) * elements(op.ins[3])


def _twice(formula: Callable[[OpView], int]) -> Callable[[OpView], int]:
    """Gradients towards inputs and towards weights each cost as much as the forward pass."""
    return lambda op: 2 * formula(op)


def _passes(launched: int, reads: int) -> Callable[[OpView], Row]:
    """Kernels that read the largest input `reads` times more than once."""
    return lambda op: (graph.PASSES, launched, reads * max(op.in_bytes, default=0))


_BATCH_MATMULS = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
_CONVS = ("Conv2D", "_FusedConv2D", "Conv3D", "_FusedConv3D")
_DEPTHWISE = ("DepthwiseConv2dNative", "_FusedDepthwiseConv2dNative")
_BATCH_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_BATCH_NORM_GRADS = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
_CROSS_ENTROPIES = ("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits")
_POOLS = tuple(f"{kind}Pool{of}{grad}" for kind in ("Avg", "Max") for of in ("", "3D") for grad in ("", "Grad"))

_FLOPS: Mapping[str, Callable[[OpView], int]] = {
    **dict.fromkeys(("MatMul", "_FusedMatMul", "SparseMatMul", *_BATCH_MATMULS), _matmul_flops),
    "Einsum": _einsum_flops,
    **dict.fromkeys((*_CONVS, "Conv"), _conv_flops(_input(1), _out)),
    **dict.fromkeys(
        ("Conv2DBackpropInput", "Conv3DBackpropInput", "Conv3DBackpropInputV2"), _conv_flops(_input(1), _input(2))
    ),
    **dict.fromkeys(
        ("Conv2DBackpropFilter", "Conv3DBackpropFilter", "Conv3DBackpropFilterV2"), _conv_flops(_out, _input(2))
    ),
    **dict.fromkeys(_DEPTHWISE, _conv_flops(_input(1), _out, 2)),
    "DepthwiseConv2dNativeBackpropInput": _conv_flops(_input(1), _input(2), 2),
    "DepthwiseConv2dNativeBackpropFilter": _conv_flops(_out, _input(2), 2),
    **dict.fromkeys(_POOLS, lambda op: max(map(elements, op.outs)) * math.prod(op.node.attr["ksize"].list.i)),
    **dict.fromkeys(("LSTMBlockCell", "BlockLSTM", "BlockLSTMV2"), _lstm_block),
    **dict.fromkeys(("BlockLSTMGrad", "BlockLSTMGradV2"), _twice(_lstm_block)),
    "GRUBlockCell": _gru_block,
    "GRUBlockCellGrad": _twice(_gru_block),
    **dict.fromkeys(("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"), _cudnn_rnn),
    **dict.fromkeys(("CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3"), _twice(_cudnn_rnn)),
}

_PER_ELEMENT: Mapping[str, int] = {
    **dict.fromkeys(("Softmax", "LogSoftmax"), 5),
    **dict.fromkeys(_CROSS_ENTROPIES, 7),
    **dict.fromkeys(_BATCH_NORMS, 8),
    **dict.fromkeys(_BATCH_NORM_GRADS, 12),
    **dict.fromkeys(("ApplyAdam", "ResourceApplyAdam"), 4),
}
"""Operations per element where one would mislead (of Adam: per element of all its variables together)."""

_MOVES = frozenset(
    """Concat ConcatV2 Transpose ConjugateTranspose Slice StridedSlice StridedSliceGrad Pad PadV2 MirrorPad Gather
    GatherV2 GatherNd ResourceGather ResourceGatherNd Pack Unpack Split SplitV Tile Fill ZerosLike OnesLike BroadcastTo
    ReverseV2 ReverseSequence SpaceToBatchND BatchToSpaceND SpaceToDepth DepthToSpace DynamicPartition DynamicStitch
    ParallelDynamicStitch ScatterNd Assign AssignVariableOp ResourceScatterUpdate ScatterUpdate DeepCopy Copy Snapshot
    TensorListStack TensorListFromTensor TensorListGetItem TensorListSetItem TensorListGather TensorListConcatV2 Roll
    Cast Where Select SelectV2 DataFormatVecPermute DataFormatDimMap MatrixDiag MatrixDiagV3 MatrixDiagPartV3""".split()  # noqa: SIM905
)  # fmt: skip
"""Op types that only move data."""

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
"""Op types that start no kernel."""

_MOVED: Mapping[str, Callable[[OpView], int]] = {
    **dict.fromkeys(
        ("Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd"),
        lambda op: 2 * sum(op.out_bytes) + sum(op.in_bytes[1:2]),
    ),
    # Indices, and rows of the update and of the table: read, read and written.
    **{
        f"{kind}{how}": lambda op: sum(op.in_bytes[1:2]) + 3 * sum(op.in_bytes[2:3])
        for kind in ("Scatter", "ResourceScatter", "ScatterNd", "ResourceScatterNd")
        for how in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Update")
    },
    **dict.fromkeys(
        ("StridedSliceAssign", "ResourceStridedSliceAssign"), lambda op: 2 * max(op.in_bytes, default=0)
    ),
    **dict.fromkeys(("Slice", "StridedSlice", "TensorListStack"), lambda op: 2 * sum(op.out_bytes)),
    **dict.fromkeys(
        (
            "Fill", "ZerosLike", "OnesLike", "Range", "RandomUniform", "RandomUniformInt", "RandomStandardNormal",
            "StatelessRandomUniformV2", "StatelessRandomNormalV2",
        ),
        lambda op: sum(op.out_bytes),
    ),
}  # fmt: skip

_FORMS: Mapping[str, Callable[[OpView], Row]] = {
    **dict.fromkeys(("MatMul", "_FusedMatMul", *_BATCH_MATMULS), _matmul_form),
    "Einsum": _einsum_form,
    **dict.fromkeys(_CONVS, _conv_form(graph.CONV, _input(0), _input(1), _out)),
    **dict.fromkeys(
        ("Conv2DBackpropInput", "Conv3DBackpropInputV2"), _conv_form(graph.CONV_INPUT, _out, _input(1), _input(2))
    ),
    **dict.fromkeys(
        ("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"), _conv_form(graph.CONV_FILTER, _input(0), _out, _input(2))
    ),
    **dict.fromkeys(_DEPTHWISE, _conv_form(graph.DEPTHWISE, _input(0), _input(1), _out)),
    "DepthwiseConv2dNativeBackpropInput": _conv_form(graph.DEPTHWISE_INPUT, _out, _input(1), _input(2)),
    "DepthwiseConv2dNativeBackpropFilter": _conv_form(graph.DEPTHWISE_FILTER, _input(0), _out, _input(2)),
    # The maximum, the sum of exponentials, the result.
    **dict.fromkeys(("Softmax", "LogSoftmax"), _passes(2, 2)),
    **dict.fromkeys(_CROSS_ENTROPIES, _passes(3, 3)),
    # Statistics first; of the gradient the two sums.
    **dict.fromkeys(_BATCH_NORMS, _passes(2, 1)),
    **dict.fromkeys(_BATCH_NORM_GRADS, _passes(2, 2)),
    "L2Loss": _passes(2, 0),
}
