"""The form and sizes of each op's kernel (`pesto.core.graph.KERNEL_FORMS`), from its shapes and attributes."""

import math
from collections.abc import Callable, Mapping

from pesto.core.graph import (
    CONV,
    CONV_FILTER,
    CONV_INPUT,
    DEPTHWISE,
    DEPTHWISE_FILTER,
    DEPTHWISE_INPUT,
    KERNEL_SIZES,
    LOOP,
    MATMUL,
    PASSES,
)
from pesto.tf.importer.flops import OpView, einsum_sizes
from pesto.tf.nodes.sizes import Shape

Row = tuple[int, ...]
NO_ROW: Row = (0,) * (1 + max(KERNEL_SIZES))


def kernel_row(op: OpView) -> Row:
    """Form and sizes, padded with zeros; all zeros for other kinds of op, and where a shape is not known."""
    rule = _RULES.get(op.node.op)
    if rule is None:
        return NO_ROW
    try:
        form, *sizes = rule(op)
    except (IndexError, TypeError, ValueError):  # a shape or rank is not known, or is not what the op says
        return NO_ROW
    if form <= DEPTHWISE_FILTER and min(sizes[: 4 if form == MATMUL else 11]) < 1:
        return NO_ROW
    return (form, *sizes, *NO_ROW[1 + len(sizes) :])


def loop_row(launches: int) -> Row:
    """A loop that starts so many kernels, body and trips together."""
    return (LOOP, launches, *NO_ROW[2:])


def _known(shape: Shape) -> tuple[int, ...]:
    if shape is None or -1 in shape:
        raise TypeError("unknown shape")
    return shape


def _flag(op: OpView, *names: str) -> int:
    return int(any(op.node.attr[name].b for name in names if name in op.node.attr))


def _matmul(op: OpView) -> Row:
    a, b = _known(op.ins[0]), _known(op.ins[1])
    swapped_a, swapped_b = _flag(op, "transpose_a", "adj_x"), _flag(op, "transpose_b", "adj_y")
    m, k = (a[-1], a[-2]) if swapped_a else (a[-2], a[-1])
    n = b[-2] if swapped_b else b[-1]
    return MATMUL, m, n, k, math.prod(_known(op.outs[0])[:-2]), swapped_a, swapped_b


def _einsum(op: OpView) -> Row:
    """Map an Einsum of two factors to a matrix product: shared kept labels are the batch, summed ones the reduction."""
    left, right = op.node.attr["equation"].s.decode().partition("->")[0].split(",")
    kept = set(op.node.attr["equation"].s.decode().partition("->")[2])
    size, batch = einsum_sizes(op)
    a, b = set(left) & set(size), set(right) & set(size)
    m, n, k, both = (math.prod(size[x] for x in labels) for labels in ((a - b), (b - a), (a & b) - kept, a & b & kept))
    return MATMUL, m, n, k, batch * both, 0, 0


def _spatial(op: OpView, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Batch (times depth), channels, height and width of an image or a volume."""
    layout = op.node.attr["data_format"].s.decode() if "data_format" in op.node.attr else "NHWC"
    first = layout.startswith("NC")
    sizes = shape[2:] if first else shape[1:-1]
    return shape[0] * math.prod(sizes[:-2]), shape[1 if first else -1], sizes[-2], sizes[-1]


def _strides(op: OpView) -> tuple[int, int]:
    values = list(op.node.attr["strides"].list.i)
    layout = op.node.attr["data_format"].s.decode() if "data_format" in op.node.attr else "NHWC"
    inner = values[2:] if layout.startswith("NC") else values[1:-1]
    return inner[-2], inner[-1]


def _conv(form: int, image: Callable[[OpView], Shape], kernel: Callable[[OpView], Shape],
          result: Callable[[OpView], Shape]) -> Callable[[OpView], Row]:  # fmt: skip
    """Make the rule of a convolution; in volumes, output depth counts as batch and filter depth as channels."""

    def row(op: OpView) -> Row:
        _, _, height, width = _spatial(op, _known(image(op)))
        n, made, out_height, out_width = _spatial(op, _known(result(op)))
        taps = _known(kernel(op))
        depth = math.prod(taps[:-4])
        channels = taps[-2] * depth
        filters = made if form < DEPTHWISE else taps[-1] * channels
        return (form, n, channels, height, width, filters, taps[-4], taps[-3], *_strides(op), out_height, out_width)

    return row


def _in(k: int) -> Callable[[OpView], Shape]:
    return lambda op: op.ins[k]


def _out(op: OpView) -> Shape:
    return op.outs[0]


def _passes(launches: int, reads: int) -> Callable[[OpView], Row]:
    """Kernels that read the largest input `reads` times more than once."""
    return lambda op: (PASSES, launches, reads * max(op.in_bytes, default=0))


_RULES: Mapping[str, Callable[[OpView], Row]] = {
    **dict.fromkeys(("MatMul", "_FusedMatMul"), _matmul),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matmul),
    "Einsum": _einsum,
    **dict.fromkeys(("Conv2D", "_FusedConv2D", "Conv3D", "_FusedConv3D"), _conv(CONV, _in(0), _in(1), _out)),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), _conv(CONV_INPUT, _out, _in(1), _in(2))),
    **dict.fromkeys(("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"), _conv(CONV_FILTER, _in(0), _out, _in(2))),
    **dict.fromkeys(("DepthwiseConv2dNative", "_FusedDepthwiseConv2dNative"), _conv(DEPTHWISE, _in(0), _in(1), _out)),
    "DepthwiseConv2dNativeBackpropInput": _conv(DEPTHWISE_INPUT, _out, _in(1), _in(2)),
    "DepthwiseConv2dNativeBackpropFilter": _conv(DEPTHWISE_FILTER, _in(0), _out, _in(2)),
    # The maximum, the sum of exponentials, the result.
    **dict.fromkeys(("Softmax", "LogSoftmax"), _passes(2, 2)),
    **dict.fromkeys(("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"), _passes(3, 3)),
    # Statistics first; of the gradient the two sums.
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _passes(2, 1)),
    **dict.fromkeys(("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"), _passes(2, 2)),
    **dict.fromkeys(("L2Loss",), _passes(2, 0)),
}
