"""Batch normalisation and its gradient: while it trains, a channel's mean is of all of its elements."""

from collections.abc import Mapping

from pesto.split.ops.formats import channel
from pesto.split.tdl import Description, Index, InputTensor, Lambda, OpOperands, Value, opaque


def _describe(op: OpOperands, vectors: list[int], pictures: list[int]) -> list[Lambda]:
    """Outputs: a picture, then vectors by channels; what is empty is by nothing."""
    rank, trained = op[pictures[0]].rank, bool(op.attribute("is_training", missing=True))
    at_channel = channel(op, rank)

    def of(c: Index, i: tuple[Index, ...] | None) -> Value:
        read = [op[number][c] for number in vectors if op[number].shape != (0,)]
        return opaque(*read, *(_picture(op[number], c, at_channel, None if trained else i) for number in pictures))

    def picture(*i: Index) -> Value:
        others = tuple(index for d, index in enumerate(i) if d != at_channel)
        return of(i[at_channel], i)[others] if trained else of(i[at_channel], i)

    def vector(c: Index) -> Value:
        return of(c, None)

    names = tuple("c" if d == channel(op, rank) else f"i{d}" for d in range(rank))
    result = [Lambda(names, picture)]
    for number in range(1, len(op.signature.outputs)):
        empty = op.out(number) == (0,)
        result.append(Lambda(("empty",), lambda _: Value()) if empty else Lambda(("c",), vector))
    return result


def _picture(tensor: InputTensor, c: Index, at: int, i: tuple[Index, ...] | None) -> Value:
    """The element of a channel at a place, or all elements of the channel."""
    return tensor[tuple(c if d == at else (slice(None) if i is None else i[d]) for d in range(tensor.rank))]


def forward(op: OpOperands) -> list[Lambda]:
    """FusedBatchNorm: a picture, scale, offset, mean, variance."""
    return _describe(op, [1, 2, 3, 4], [0])


def gradient(op: OpOperands) -> list[Lambda]:
    """FusedBatchNormGrad: the output's gradient, the picture, scale, and two vectors that the forward op kept."""
    return _describe(op, [2, 3, 4], [0, 1])


ROWS: Mapping[str, Description] = dict.fromkeys(
    ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), forward
) | dict.fromkeys(("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"), gradient)
