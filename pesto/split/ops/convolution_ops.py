"""Convolutions in two and three dimensions, full and depthwise, with both gradients.

Batch b, filters co and channels ci can be cut; the picture where windows do not overlap. In gradients the picture is
read whole: which part of it a window touched is a comparison. With a halo they are described window by window.
"""

from collections.abc import Callable, Mapping

from pesto.split.ops.formats import before, channel, listed, spatial
from pesto.split.tdl import (
    Body,
    Description,
    Index,
    InputTensor,
    Lambda,
    NotDescribedError,
    OpOperands,
    Sum,
    Value,
    opaque,
)

ALL = slice(None)
_PLANE = 4
"""Rank of pictures of two dimensions: gradients in three cannot be told what to pad."""


def _names(op: OpOperands, rank: int, picture: tuple[str, ...], filters: str) -> tuple[str, ...]:
    """Index variables of a picture: b, the channels' name, and one a spatial dimension."""
    result = dict(zip(spatial(op, rank), picture, strict=True)) | {0: "b", channel(op, rank): filters}
    return tuple(result[d] for d in range(rank))


def _picture(rank: int) -> tuple[str, ...]:
    return tuple(f"x{d}" for d in range(rank - 2))


def windows(
    op: OpOperands, picture: tuple[int, ...], out: tuple[int, ...], size: dict[int, int], *, back: bool = False
) -> Callable[..., dict[int, Index]]:
    """Where in the picture a window's elements lie: stride times the output's place, and the place in the window.

    back: from the picture to the windows, which are where the index is whole.
    """
    rank = len(picture)
    strides, dilations = listed(op, "strides", rank), listed(op, "dilations", rank)

    def place(i: dict[int, Index], inside: dict[int, Index]) -> dict[int, Index]:
        result = {}
        for d in spatial(op, rank):
            reach = (size[d] - 1) * dilations[d] + 1
            first = before(op, d, picture[d], out[d], reach, strides[d])
            within = inside[d] * dilations[d] - first
            result[d] = (i[d] - within) / strides[d] if back else i[d] * strides[d] + within
        return result

    return place


def forward(*, depthwise: bool) -> Callable[[OpOperands], list[Lambda]]:
    """Conv2D, Conv3D and DepthwiseConv2dNative; filters are [picture.., ci, co or, depthwise, multiplier]."""

    def describe(op: OpOperands) -> list[Lambda]:
        data, filters, out = op[0].padded, op[1], op.out()
        rank, c = data.rank, channel(op, data.rank)
        if not depthwise and filters.shape[-2] != data.shape[c]:
            raise NotDescribedError("a grouped convolution")
        size = dict(zip(spatial(op, rank), filters.shape, strict=False))
        place = windows(op, data.shape, out, size)
        taps = [f"tap{d}" for d in range(rank - 2)]

        def element(*i: Index) -> Value:
            mine = dict(enumerate(i))

            def inner(*r: Index) -> Value:
                inside = dict(zip(spatial(op, rank), r[: rank - 2], strict=True))
                ci = mine[c] / filters.shape[-1] if depthwise else r[-1]
                read = {0: mine[0], c: ci} | place(mine, inside)
                weight = filters[(*r[: rank - 2], ci, ALL if depthwise else mine[c])]
                return data[tuple(read[d] for d in range(rank))] * weight

            return Sum(inner, [*taps, *([] if depthwise else ["ci"])])

        return [Lambda(_names(op, rank, _picture(rank), "co"), element)]

    return describe


def _read(op: OpOperands, tensor: InputTensor, b: Index, c: Index) -> Value:
    """A picture, whole."""
    at = {0: b, channel(op, tensor.rank): c}
    return tensor[tuple(at.get(d, ALL) for d in range(tensor.rank))]


def input_gradient(*, depthwise: bool) -> Callable[[OpOperands], list[Lambda]]:
    """Describe Conv2DBackpropInput and its kin, which read sizes, filters and the output's gradient."""

    def describe(op: OpOperands) -> list[Lambda]:
        filters, gradient = op[1], op[2]
        rank, c = gradient.rank, channel(op, gradient.rank)
        if not depthwise and filters.shape[-2] != op.out()[c]:
            raise NotDescribedError("a grouped convolution")
        window = (ALL,) * (rank - 2)
        if op.halo and rank == _PLANE:
            return [Lambda(_names(op, rank, _picture(rank), "ci"), _gradient_by_windows(op, depthwise=depthwise))]

        def element(*i: Index) -> Value:
            ci, picture = i[c], tuple(i[d] for d in spatial(op, rank))
            if depthwise:
                per = filters.shape[-1]
                read = _read(op, gradient, i[0], ci * per) if per == 1 else _spread(op, gradient, i[0], ci, per)
                return opaque(read * filters[(*window, ci, ALL)])[picture]
            return Sum(lambda co: opaque(_read(op, gradient, i[0], co) * filters[(*window, ci, co)])[picture])

        return [Lambda(_names(op, rank, _picture(rank), "ci"), element)]

    return describe


def _spread(op: OpOperands, gradient: InputTensor, b: Index, ci: Index, per: int) -> Value:
    """All the channels that one channel of the input has become."""
    return Sum(lambda m: _read(op, gradient, b, ci * per + m), ["multiplier"]) if per else Value()


def filter_gradient(*, depthwise: bool) -> Callable[[OpOperands], list[Lambda]]:
    """Describe Conv2DBackpropFilter and its kin: from the input, sizes and output gradient, summed over the batch."""

    def describe(op: OpOperands) -> list[Lambda]:
        data, gradient = op[0], op[2]
        rank, c = data.rank, channel(op, data.rank)
        if not depthwise and op.out()[-2] != data.shape[c]:
            raise NotDescribedError("a grouped convolution")

        if depthwise and op.out()[-1] != 1:
            raise NotDescribedError("several filters a channel")
        names = (*(f"tap{d}" for d in range(rank - 2)), "ci", "multiplier" if depthwise else "co")
        if op.halo and rank == _PLANE:
            return [Lambda(names, _filters_by_windows(op, depthwise=depthwise))]

        def element(*i: Index) -> Value:
            *window, ci, last = i
            return Sum(
                lambda b: _window(
                    window,
                    last if depthwise else None,
                    _read(op, data, b, ci) * _read(op, gradient, b, ci if depthwise else last),
                )
            )

        return [Lambda(names, element)]

    return describe


def _gradient_by_windows(op: OpOperands, *, depthwise: bool) -> Body:
    """An element of a picture's gradient: of all windows that it is in, filter by filter."""
    filters, gradient = op[1], op[2].spaced
    rank, c = gradient.rank, channel(op, gradient.rank)
    size = dict(zip(spatial(op, rank), filters.shape, strict=False))
    place = windows(op, op.out(), gradient.shape, size, back=True)

    def element(*i: Index) -> Value:
        def inner(*r: Index) -> Value:
            *taps, last = r
            at = place(dict(enumerate(i)), dict(zip(spatial(op, rank), taps, strict=True)))
            read = at | {0: i[0], c: i[c] * filters.shape[-1] + last if depthwise else last}
            return gradient[tuple(read[d] for d in range(rank))] * filters[(*taps, i[c], last)]

        return Sum(inner, [*(f"tap{d}" for d in range(rank - 2)), "multiplier" if depthwise else "co"])

    return element


def _filters_by_windows(op: OpOperands, *, depthwise: bool) -> Body:
    """An element of the filters' gradient: of all windows, the element that it was applied to."""
    data, gradient = op[0].padded, op[2]
    rank, c = data.rank, channel(op, data.rank)
    size = dict(zip(spatial(op, rank), op.out(), strict=False))
    place = windows(op, data.shape, gradient.shape, size)

    def element(*i: Index) -> Value:
        *taps, ci, last = i

        def inner(b: Index, *x: Index) -> Value:
            picture = dict(zip(spatial(op, rank), x, strict=True))
            read = place(picture, dict(zip(spatial(op, rank), taps, strict=True))) | {0: b, c: ci}
            made = picture | {0: b, c: ci if depthwise else last}
            both = data[tuple(read[d] for d in range(rank))] * gradient[tuple(made[d] for d in range(rank))]
            return opaque(both)[last] if depthwise else both

        return Sum(inner, ["b", *_picture(rank)])

    return element


def _window(window: list[Index], multiplier: Index | None, read: Value) -> Value:
    return opaque(read)[(*window, *([] if multiplier is None else [multiplier]))]


ROWS: Mapping[str, Description] = {
    "Conv2D": forward(depthwise=False),
    "Conv3D": forward(depthwise=False),
    "DepthwiseConv2dNative": forward(depthwise=True),
    "Conv2DBackpropInput": input_gradient(depthwise=False),
    "Conv3DBackpropInputV2": input_gradient(depthwise=False),
    "DepthwiseConv2dNativeBackpropInput": input_gradient(depthwise=True),
    "Conv2DBackpropFilter": filter_gradient(depthwise=False),
    "Conv3DBackpropFilterV2": filter_gradient(depthwise=False),
    "DepthwiseConv2dNativeBackpropFilter": filter_gradient(depthwise=True),
}
