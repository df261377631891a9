"""Operands and attributes that hold shapes, or mean something by them: of a part they are the part's."""

from collections.abc import Collection, Mapping, Sequence

from pesto.split.signature import Attribute, Signature

SHAPE_OPERAND = {
    "Reshape": 1, "Fill": 0, "BroadcastTo": 1, "Slice": 2, "StridedSliceGrad": 0,
    "Conv2DBackpropInput": 0, "Conv2DBackpropFilter": 1, "Conv3DBackpropInputV2": 0, "Conv3DBackpropFilterV2": 1,
    "DepthwiseConv2dNativeBackpropInput": 0, "DepthwiseConv2dNativeBackpropFilter": 1,
    "AvgPoolGrad": 0, "AvgPool3DGrad": 0,
}  # fmt: skip
"""Op type -> the data input."""


def part_operand(value: Sequence[int], part: Sequence[int], bounded: Collection[int]) -> tuple[int, ...]:
    """The shape operand of a part: the part's extents, and of bounded dimensions what the operand says (-1)."""
    return tuple(value[d] if d in bounded else extent for d, extent in enumerate(part))


REPEATS = {"Tile": 1}
"""Op type -> the data input that says how often the first is repeated along each dimension."""


def repeats(times: Sequence[int], shape: Sequence[int], part: Sequence[int]) -> tuple[int, ...]:
    """How often a part of the output, of a shape, repeats an input of `shape` that is repeated so many `times`."""
    return tuple(extent if n == 1 else often for often, n, extent in zip(times, shape, part, strict=True))


def part_attributes(signature: Signature) -> Mapping[str, Attribute]:
    """Attributes that each part has in place of the whole op's.

    Squeeze without axes removes what has an extent of 1 in the whole tensor, not a part of that extent.
    """
    if signature.type == "Squeeze" and not signature.attribute("squeeze_dims") and not signature.inputs[0].bounded:
        return {"squeeze_dims": tuple(d for d, extent in enumerate(signature.inputs[0].shape or ()) if extent == 1)}
    return {}
