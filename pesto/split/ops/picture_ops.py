"""Descriptions of ops on pictures: convolutions and pools with their gradients, and batch normalisation.

Batch, filters and channels can be cut. A picture is read whole where windows may overlap, and so it is in gradients,
where only a comparison tells which elements a window touched. With a halo convolutions and pools are described window
by window, so that pictures can be cut too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pesto.split.ops.window_kernels import channel, padding_before, per_dimension, spatial
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


def _names(op: OpOperands, rank: int, filters: str) -> tuple[str, ...]:
    """Return the index variables of a convolution's picture: b, the channels' name, and x0, x1, .. in the picture."""
    picture = (f"x{d}" for d in range(rank - 2))
    result = dict(zip(spatial(op.signature, rank), picture, strict=True)) | {
        0: "b",
        channel(op.signature, rank): filters,
    }
    return tuple(result[d] for d in range(rank))


def _taps(rank: int) -> list[str]:
    return [f"tap{d}" for d in range(rank - 2)]


def windows(
    op: OpOperands, picture: tuple[int, ...], out: tuple[int, ...], size: dict[int, int], *, back: bool = False
) -> Callable[..., dict[int, Index]]:
    """Return a function from a place of the output and one in the window to the place in the picture.

    With `back` it leads from the picture to the windows, which are where the index is whole.
    """
    rank = len(picture)
    strides, dilations = per_dimension(op.signature, "strides", rank), per_dimension(op.signature, "dilations", rank)

    def place(i: dict[int, Index], inside: dict[int, Index]) -> dict[int, Index]:
        result = {}
        for d in spatial(op.signature, rank):
            reach = (size[d] - 1) * dilations[d] + 1
            within = inside[d] * dilations[d] - padding_before(op.signature, d, picture[d], out[d], reach, strides[d])
            result[d] = (i[d] - within) / strides[d] if back else i[d] * strides[d] + within
        return result

    return place


def convolution(*, depthwise: bool) -> Callable[[OpOperands], list[Lambda]]:
    """Describe Conv2D, Conv3D and DepthwiseConv2dNative, whose filters are [picture.., ci, co or multiplier]."""

    def describe(op: OpOperands) -> list[Lambda]:
        data, filters, out = op[0].padded, op[1], op.out()
        rank, c = data.rank, channel(op.signature, data.rank)
        if not depthwise and filters.shape[-2] != data.shape[c]:
            raise NotDescribedError("a grouped convolution")
        place = windows(op, data.shape, out, dict(zip(spatial(op.signature, rank), filters.shape, strict=False)))

        def element(*i: Index) -> Value:
            mine = dict(enumerate(i))

            def inner(*r: Index) -> Value:
                inside = dict(zip(spatial(op.signature, rank), r[: rank - 2], strict=True))
                ci = mine[c] / filters.shape[-1] if depthwise else r[-1]
                read = {0: mine[0], c: ci} | place(mine, inside)
                weight = filters[(*r[: rank - 2], ci, ALL if depthwise else mine[c])]
                return data[tuple(read[d] for d in range(rank))] * weight

            return Sum(inner, [*_taps(rank), *([] if depthwise else ["ci"])])

        return [Lambda(_names(op, rank, "co"), element)]

    return describe


def _channel_whole(op: OpOperands, tensor: InputTensor, b: Index, c: Index) -> Value:
    """Read all of the picture of one channel."""
    at = {0: b, channel(op.signature, tensor.rank): c}
    return tensor[tuple(at.get(d, ALL) for d in range(tensor.rank))]


def input_gradient(*, depthwise: bool) -> Callable[[OpOperands], list[Lambda]]:
    """Describe Conv2DBackpropInput and its kin, which read sizes, filters and the output's gradient."""

    def describe(op: OpOperands) -> list[Lambda]:
        filters, gradient = op[1], op[2]
        rank, c = gradient.rank, channel(op.signature, gradient.rank)
        if not depthwise and filters.shape[-2] != op.out()[c]:
            raise NotDescribedError("a grouped convolution")
        window, names = (ALL,) * (rank - 2), _names(op, rank, "ci")
        if op.halo and rank == _PLANE:
            return [Lambda(names, _gradient_by_windows(op, depthwise=depthwise))]

        def element(*i: Index) -> Value:
            ci, picture = i[c], tuple(i[d] for d in spatial(op.signature, rank))
            if not depthwise:
                return Sum(
                    lambda co: opaque(_channel_whole(op, gradient, i[0], co) * filters[(*window, ci, co)])[picture]
                )
            per = filters.shape[-1]
            if per == 1:
                read = _channel_whole(op, gradient, i[0], ci * per)
            elif per:
                # All the channels that one channel of the input has become.
                read = Sum(lambda m: _channel_whole(op, gradient, i[0], ci * per + m), ["multiplier"])
            else:
                read = Value()
            return opaque(read * filters[(*window, ci, ALL)])[picture]

        return [Lambda(names, element)]

    return describe


def _gradient_by_windows(op: OpOperands, *, depthwise: bool) -> Body:
    """Return an element of a picture's gradient, from all windows that it is in, filter by filter."""
    filters, gradient = op[1], op[2].spaced
    rank, c = gradient.rank, channel(op.signature, gradient.rank)
    size = dict(zip(spatial(op.signature, rank), filters.shape, strict=False))
    place = windows(op, op.out(), gradient.shape, size, back=True)

    def element(*i: Index) -> Value:
        def inner(*r: Index) -> Value:
            *taps, last = r
            at = place(dict(enumerate(i)), dict(zip(spatial(op.signature, rank), taps, strict=True)))
            read = at | {0: i[0], c: i[c] * filters.shape[-1] + last if depthwise else last}
            return gradient[tuple(read[d] for d in range(rank))] * filters[(*taps, i[c], last)]

        return Sum(inner, [*_taps(rank), "multiplier" if depthwise else "co"])

    return element


def filter_gradient(*, depthwise: bool) -> Callable[[OpOperands], list[Lambda]]:
    """Describe Conv2DBackpropFilter and its kin: from the input, sizes and output gradient, summed over the batch."""

    def describe(op: OpOperands) -> list[Lambda]:
        data, gradient = op[0], op[2]
        rank, c = data.rank, channel(op.signature, data.rank)
        if not depthwise and op.out()[-2] != data.shape[c]:
            raise NotDescribedError("a grouped convolution")
        if depthwise and op.out()[-1] != 1:
            raise NotDescribedError("several filters a channel")
        names = (*_taps(rank), "ci", "multiplier" if depthwise else "co")
        if op.halo and rank == _PLANE:
            return [Lambda(names, _filters_by_windows(op, depthwise=depthwise))]

        def element(*i: Index) -> Value:
            *window, ci, last = i
            place = (*window, *([last] if depthwise else []))
            return Sum(
                lambda b: opaque(
                    _channel_whole(op, data, b, ci) * _channel_whole(op, gradient, b, ci if depthwise else last)
                )[place]
            )

        return [Lambda(names, element)]

    return describe


def _filters_by_windows(op: OpOperands, *, depthwise: bool) -> Body:
    """Return an element of the filters' gradient, from the element of each window that it was applied to."""
    data, gradient = op[0].padded, op[2]
    rank, c = data.rank, channel(op.signature, data.rank)
    place = windows(op, data.shape, gradient.shape, dict(zip(spatial(op.signature, rank), op.out(), strict=False)))

    def element(*i: Index) -> Value:
        *taps, ci, last = i

        def inner(b: Index, *x: Index) -> Value:
            picture = dict(zip(spatial(op.signature, rank), x, strict=True))
            read = place(picture, dict(zip(spatial(op.signature, rank), taps, strict=True))) | {0: b, c: ci}
            made = picture | {0: b, c: ci if depthwise else last}
            both = data[tuple(read[d] for d in range(rank))] * gradient[tuple(made[d] for d in range(rank))]
            return opaque(both)[last] if depthwise else both

        return Sum(inner, ["b", *(f"x{d}" for d in range(rank - 2))])

    return element


def _pictures(op: OpOperands) -> list[InputTensor]:
    return [op[number] for number in range(op.inputs) if len(op.operand(number).shape or ()) == len(op.out())]


def _windows_in_pictures(op: OpOperands, rank: int) -> bool:
    """Return True if windows are of one picture, and not of several or of several channels."""
    sizes, strides = per_dimension(op.signature, "ksize", rank), per_dimension(op.signature, "strides", rank)
    return all(sizes[d] == strides[d] == 1 for d in range(rank) if d not in spatial(op.signature, rank))


def _pool_names(op: OpOperands, rank: int) -> tuple[str, ...]:
    picture = spatial(op.signature, rank)
    return tuple(f"x{picture.index(d)}" if d in picture else f"i{d}" for d in range(rank))


def pool(op: OpOperands) -> list[Lambda]:
    """Describe pools: a picture of the output is a function of the same pictures of all inputs that have pictures."""
    out, inputs = op.out(), _pictures(op)
    rank, picture = len(out), spatial(op.signature, len(out))
    if op.halo and _windows_in_pictures(op, rank):
        tensor = inputs[0]
        around, sizes, strides = (
            tensor.padded,
            per_dimension(op.signature, "ksize", rank),
            per_dimension(op.signature, "strides", rank),
        )
        first = {d: padding_before(op.signature, d, tensor.shape[d], out[d], sizes[d], strides[d]) for d in picture}

        def corners(*i: Index) -> Value:
            # The first and the last corner of the element's window: all between them counts as read.
            begin = [i[d] * strides[d] - first.get(d, 0) for d in range(rank)]
            return opaque(around[tuple(begin)], around[tuple(at + n - 1 for at, n in zip(begin, sizes, strict=True))])

        return [Lambda(_pool_names(op, rank), corners)]

    def element(*i: Index) -> Value:
        read = [tensor[tuple(ALL if d in picture else i[d] for d in range(rank))] for tensor in inputs]
        return opaque(*read)[tuple(i[d] for d in picture)]

    return [Lambda(tuple(f"i{d}" for d in range(rank)), element)]


def pool_gradient(op: OpOperands) -> list[Lambda]:
    """Describe gradients of pools, MaxPoolGrad and its kin; with a halo cut between windows that do not overlap."""
    out, inputs = op.out(), _pictures(op)
    rank, windowed = len(out), inputs[-1].shape if inputs else ()
    sizes, strides = per_dimension(op.signature, "ksize", rank), per_dimension(op.signature, "strides", rank)
    # Dimensions of a picture that is nothing but windows, none of which overlap.
    apart = [
        d
        for d in (spatial(op.signature, rank) if op.halo and _windows_in_pictures(op, rank) else ())
        if sizes[d] <= strides[d]
        and out[d] == windowed[d] * strides[d]
        and not padding_before(op.signature, d, out[d], windowed[d], sizes[d], strides[d])
    ]
    if not apart:
        return pool(replace(op, halo=False))
    together = [d for d in spatial(op.signature, rank) if d not in apart]

    def at(tensor: InputTensor, i: tuple[Index, ...], d: int) -> Index | slice:
        """A window is read where its elements are: parts have whole ones, as they begin with a window."""
        if d in together:
            return ALL
        return i[d] if tensor.shape[d] == out[d] else i[d] / strides[d]

    def element(*i: Index) -> Value:
        read = opaque(*(tensor[tuple(at(tensor, i, d) for d in range(rank))] for tensor in inputs))
        return read[tuple(i[d] for d in together)] if together else read

    return [Lambda(_pool_names(op, rank), element)]


def batch_norm(op: OpOperands, vectors: Sequence[int], pictures: Sequence[int]) -> list[Lambda]:
    """Describe FusedBatchNorm and its gradient by the inputs that are vectors, and those that are pictures.

    Outputs are a picture, then vectors by channels. While it trains, a channel's mean is of all of its elements.
    """
    rank, trained = op[pictures[0]].rank, bool(op.attribute("is_training", missing=True))
    c_at = channel(op.signature, rank)

    def read(c: Index, i: tuple[Index, ...] | None) -> Value:
        scales = [op[number][c] for number in vectors if op[number].shape != (0,)]
        place = tuple(c if d == c_at else (ALL if trained or i is None else i[d]) for d in range(rank))
        return opaque(*scales, *(op[number][place] for number in pictures))

    def picture(*i: Index) -> Value:
        others = tuple(index for d, index in enumerate(i) if d != c_at)
        return read(i[c_at], i)[others] if trained else read(i[c_at], i)

    result = [Lambda(tuple("c" if d == c_at else f"i{d}" for d in range(rank)), picture)]
    for number in range(1, len(op.signature.outputs)):
        empty = op.out(number) == (0,)
        result.append(Lambda(("empty",), lambda _: Value()) if empty else Lambda(("c",), lambda c: read(c, None)))
    return result


CONVOLUTIONS: Mapping[str, Description] = {
    "Conv2D": convolution(depthwise=False),
    "Conv3D": convolution(depthwise=False),
    "DepthwiseConv2dNative": convolution(depthwise=True),
    "Conv2DBackpropInput": input_gradient(depthwise=False),
    "Conv3DBackpropInputV2": input_gradient(depthwise=False),
    "DepthwiseConv2dNativeBackpropInput": input_gradient(depthwise=True),
    "Conv2DBackpropFilter": filter_gradient(depthwise=False),
    "Conv3DBackpropFilterV2": filter_gradient(depthwise=False),
    "DepthwiseConv2dNativeBackpropFilter": filter_gradient(depthwise=True),
}
POOLS: Mapping[str, Description] = dict.fromkeys(
    ("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D", "MaxPoolGradGrad"), pool
) | dict.fromkeys(("MaxPoolGrad", "AvgPoolGrad", "MaxPool3DGrad", "AvgPool3DGrad"), pool_gradient)
NORMALISATIONS: Mapping[str, Description] = dict.fromkeys(
    ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), partial(batch_norm, vectors=(1, 2, 3, 4), pictures=(0,))
) | dict.fromkeys(
    ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"),
    partial(batch_norm, vectors=(2, 3, 4), pictures=(0, 1)),
)
