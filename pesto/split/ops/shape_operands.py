"""Operands that hold the shape of the output: on a part of the work they hold the part's."""

SHAPE_OPERAND = {
    "Reshape": 1, "Fill": 0, "BroadcastTo": 1, "Slice": 2, "StridedSliceGrad": 0,
    "Conv2DBackpropInput": 0, "Conv2DBackpropFilter": 1, "Conv3DBackpropInputV2": 0, "Conv3DBackpropFilterV2": 1,
    "DepthwiseConv2dNativeBackpropInput": 0, "DepthwiseConv2dNativeBackpropFilter": 1,
    "AvgPoolGrad": 0, "AvgPool3DGrad": 0,
}  # fmt: skip
"""Op type -> the data input."""
