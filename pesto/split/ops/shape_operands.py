"""Operands that hold the shape of the output, or how often it repeats an input: of a part they hold the part's."""

from collections.abc import Sequence

SHAPE_OPERAND = {
    "Reshape": 1, "Fill": 0, "BroadcastTo": 1, "Slice": 2, "StridedSliceGrad": 0,
    "Conv2DBackpropInput": 0, "Conv2DBackpropFilter": 1, "Conv3DBackpropInputV2": 0, "Conv3DBackpropFilterV2": 1,
    "DepthwiseConv2dNativeBackpropInput": 0, "DepthwiseConv2dNativeBackpropFilter": 1,
    "AvgPoolGrad": 0, "AvgPool3DGrad": 0,
}  # fmt: skip
"""Op type -> the data input."""

REPEATS = {"Tile": 1}
"""Op type -> the data input that says how often the first is repeated along each dimension."""


def repeats(times: Sequence[int], shape: Sequence[int], part: Sequence[int]) -> tuple[int, ...]:
    """How often a part of the output, of a shape, repeats an input of `shape` that is repeated so many `times`."""
    return tuple(extent if n == 1 else often for often, n, extent in zip(times, shape, part, strict=True))
