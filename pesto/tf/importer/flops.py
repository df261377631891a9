"""Floating point operations of one execution: exact where a formula exists, else one per element."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pesto.tf.nodes.sizes import Shape


@dataclass(frozen=True, slots=True)
class OpView:
    """Inputs of the cost formula of one op."""

    node: Any
    """The op itself, a NodeDef of TensorFlow."""
    ins: list[Shape]
    outs: list[Shape]
    in_bytes: list[int]
    """Bytes of each data input, 0 for handles and references."""
    out_bytes: list[int]
    """Bytes of each output, 0 for handles and references."""
    handle_bytes: list[int]
    """Bytes of the variable behind each resource or reference input."""


def elements(shape: Shape) -> int:
    """Number of elements, 0 when unknown."""
    return math.prod(shape) if shape is not None and -1 not in shape else 0


def flops(op: OpView) -> float:
    """A multiply-add counts as two. Ops that only move data count nothing."""
    formula = _FORMULAS.get(op.node.op)
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


def _matmul(op: OpView) -> int:
    a = _known(op.ins[0])
    flag = next((f for f in ("transpose_a", "adj_x") if f in op.node.attr), "")
    return 2 * elements(op.outs[0]) * a[-2 if flag and op.node.attr[flag].b else -1]


def _einsum(op: OpView) -> int:
    size, batch = einsum_sizes(op)
    return (2 if len(op.ins) > 1 else 1) * batch * math.prod(size.values())


def einsum_sizes(op: OpView) -> tuple[dict[str, int], int]:
    """The size of each label of an Einsum, and the product of what its dots stand for."""
    equation = op.node.attr["equation"].s.decode()
    size: dict[str, int] = {}
    batch = 1
    for labels, shape in zip(equation.partition("->")[0].split(","), op.ins, strict=True):
        dims = _known(shape)
        before, dots, after = labels.partition("...")
        named = [*zip(before, dims, strict=False), *zip(after, dims[len(dims) - len(after) :], strict=False)]
        for label, d in named:
            size[label] = max(size.get(label, 1), d)
        if dots:
            batch = max(batch, math.prod(dims[len(before) : len(dims) - len(after)]))
    return size, batch


def _conv(filter_of: Callable[[OpView], Shape], positions_of: Callable[[OpView], Shape]) -> Callable[[OpView], int]:
    """Each position of the (gradient of the) output costs one multiply-add per filter weight of its channel."""
    return lambda op: 2 * elements(positions_of(op)) * math.prod(_known(filter_of(op))[:-1])


def _depthwise(
    filter_of: Callable[[OpView], Shape], positions_of: Callable[[OpView], Shape]
) -> Callable[[OpView], int]:
    return lambda op: 2 * elements(positions_of(op)) * math.prod(_known(filter_of(op))[:2])


def _pool(op: OpView) -> int:
    return max(elements(s) for s in op.outs) * math.prod(op.node.attr["ksize"].list.i)


def _lstm_block(op: OpView) -> int:
    x, w = (op.ins[0], op.ins[3]) if op.node.op == "LSTMBlockCell" else (op.ins[1], op.ins[4])
    return 2 * math.prod(_known(x)[:-1]) * elements(w)


def _gru_block(op: OpView) -> int:
    return 2 * _known(op.ins[0])[0] * (elements(op.ins[2]) + elements(op.ins[3]))


def _cudnn_rnn(op: OpView) -> int:
    # Every weight is used once per time step and example, whatever the cell and the number of layers.
    return 2 * math.prod(_known(op.ins[0])[:2]) * elements(op.ins[3])


def _twice(formula: Callable[[OpView], int]) -> Callable[[OpView], int]:
    """Gradients towards inputs and towards weights each cost as much as the forward pass."""
    return lambda op: 2 * formula(op)


def _known(shape: Shape) -> tuple[int, ...]:
    if shape is None:
        raise TypeError("unknown rank")
    return shape


def _in(k: int) -> Callable[[OpView], Shape]:
    return lambda op: op.ins[k]


def _out(op: OpView) -> Shape:
    return op.outs[0]


_FORMULAS: Mapping[str, Callable[[OpView], int]] = {
    **dict.fromkeys(("MatMul", "_FusedMatMul", "SparseMatMul"), _matmul),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matmul),
    "Einsum": _einsum,
    **dict.fromkeys(("Conv2D", "_FusedConv2D", "Conv3D", "_FusedConv3D", "Conv"), _conv(_in(1), _out)),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInput", "Conv3DBackpropInputV2"), _conv(_in(1), _in(2))),
    **dict.fromkeys(("Conv2DBackpropFilter", "Conv3DBackpropFilter", "Conv3DBackpropFilterV2"), _conv(_out, _in(2))),
    **dict.fromkeys(("DepthwiseConv2dNative", "_FusedDepthwiseConv2dNative"), _depthwise(_in(1), _out)),
    "DepthwiseConv2dNativeBackpropInput": _depthwise(_in(1), _in(2)),
    "DepthwiseConv2dNativeBackpropFilter": _depthwise(_out, _in(2)),
    **dict.fromkeys(("AvgPool", "MaxPool", "AvgPool3D", "MaxPool3D"), _pool),
    **dict.fromkeys(("AvgPoolGrad", "MaxPoolGrad", "AvgPool3DGrad", "MaxPool3DGrad"), _pool),
    **dict.fromkeys(("LSTMBlockCell", "BlockLSTM", "BlockLSTMV2"), _lstm_block),
    **dict.fromkeys(("BlockLSTMGrad", "BlockLSTMGradV2"), _twice(_lstm_block)),
    "GRUBlockCell": _gru_block,
    "GRUBlockCellGrad": _twice(_gru_block),
    **dict.fromkeys(("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"), _cudnn_rnn),
    **dict.fromkeys(("CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3"), _twice(_cudnn_rnn)),
}  # fmt: skip

_PER_ELEMENT: Mapping[str, int] = {
    **dict.fromkeys(("Softmax", "LogSoftmax"), 5),
    **dict.fromkeys(("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"), 7),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), 8),
    **dict.fromkeys(("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"), 12),
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
