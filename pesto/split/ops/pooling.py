"""Pools and their gradients: batch and channels can be cut; pictures are read whole, as windows may overlap."""

from collections.abc import Mapping

from pesto.split.ops.formats import spatial
from pesto.split.tdl import Description, Index, Lambda, Op, Value, opaque


def describe(op: Op) -> list[Lambda]:
    """Each picture of the output is some function of the same pictures of all inputs that have pictures."""
    rank = len(op.out())
    picture = spatial(op, rank)
    inputs = [op[number] for number in range(op.inputs) if len(op.operand(number).shape or ()) == rank]

    def element(*i: Index) -> Value:
        read = [tensor[tuple(slice(None) if d in picture else i[d] for d in range(rank))] for tensor in inputs]
        return opaque(*read)[tuple(i[d] for d in picture)]

    return [Lambda(tuple(f"i{d}" for d in range(rank)), element)]


ROWS: Mapping[str, Description] = dict.fromkeys(
    (
        "MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D",
        "MaxPoolGrad", "AvgPoolGrad", "MaxPool3DGrad", "AvgPool3DGrad", "MaxPoolGradGrad",
    ),
    describe,
)  # fmt: skip
