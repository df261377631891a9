"""Pools and their gradients: batch and channels can be cut; pictures are read whole, as windows may overlap.

With a halo pictures can be cut: those of pools along windows, those of gradients between windows that do not overlap.
"""

from collections.abc import Mapping
from dataclasses import replace

from pesto.split.ops.formats import before, listed, spatial
from pesto.split.tdl import Body, Description, Index, InputTensor, Lambda, OpOperands, Value, opaque


def describe(op: OpOperands) -> list[Lambda]:
    """Each picture of the output is some function of the same pictures of all inputs that have pictures."""
    rank = len(op.out())
    picture = spatial(op, rank)
    inputs = [op[number] for number in range(op.inputs) if len(op.operand(number).shape or ()) == rank]
    if op.halo and _in_pictures(op, rank):
        return [Lambda(_names(op, rank), _by_windows(op, inputs[0], picture))]

    def element(*i: Index) -> Value:
        read = [tensor[tuple(slice(None) if d in picture else i[d] for d in range(rank))] for tensor in inputs]
        return opaque(*read)[tuple(i[d] for d in picture)]

    return [Lambda(tuple(f"i{d}" for d in range(rank)), element)]


def gradient(op: OpOperands) -> list[Lambda]:
    """Describe gradients of pools: MaxPoolGrad and its kin."""
    rank = len(op.out())
    inputs = [op[number] for number in range(op.inputs) if len(op.operand(number).shape or ()) == rank]
    apart = _apart(op, inputs[-1].shape) if op.halo and _in_pictures(op, rank) else []
    if not apart:
        return describe(replace(op, halo=False))
    strides, together = listed(op, "strides", rank), [d for d in spatial(op, rank) if d not in apart]

    def at(tensor: InputTensor, i: tuple[Index, ...], d: int) -> Index | slice:
        """A window is read where its elements are: parts have whole ones, as they begin with a window."""
        if d in together:
            return slice(None)
        return i[d] if tensor.shape[d] == op.out()[d] else i[d] / strides[d]

    def element(*i: Index) -> Value:
        read = opaque(*(tensor[tuple(at(tensor, i, d) for d in range(rank))] for tensor in inputs))
        return read[tuple(i[d] for d in together)] if together else read

    return [Lambda(_names(op, rank), element)]


def _in_pictures(op: OpOperands, rank: int) -> bool:
    """Return True if windows are of one picture, and not of several or of several channels."""
    sizes, strides = listed(op, "ksize", rank), listed(op, "strides", rank)
    return all(sizes[d] == strides[d] == 1 for d in range(rank) if d not in spatial(op, rank))


def _names(op: OpOperands, rank: int) -> tuple[str, ...]:
    """As without windows; a picture's dimensions are x0, x1."""
    picture = spatial(op, rank)
    return tuple(f"x{picture.index(d)}" if d in picture else f"i{d}" for d in range(rank))


def _apart(op: OpOperands, windows: tuple[int, ...]) -> list[int]:
    """Dimensions of a picture that is nothing but windows, none of which overlap."""
    rank, picture = len(windows), op.out()
    sizes, strides = listed(op, "ksize", rank), listed(op, "strides", rank)
    return [
        d
        for d in spatial(op, rank)
        if sizes[d] <= strides[d]
        and picture[d] == windows[d] * strides[d]
        and not before(op, d, picture[d], windows[d], sizes[d], strides[d])
    ]


def _by_windows(op: OpOperands, tensor: InputTensor, picture: list[int]) -> Body:
    """Read the first and the last corner of each element's window; all between them counts as read."""
    rank, out, around = tensor.rank, op.out(), tensor.padded
    sizes, strides = listed(op, "ksize", rank), listed(op, "strides", rank)
    first = {d: before(op, d, tensor.shape[d], out[d], sizes[d], strides[d]) for d in picture}

    def element(*i: Index) -> Value:
        begin = [i[d] * strides[d] - first.get(d, 0) for d in range(rank)]
        return opaque(around[tuple(begin)], around[tuple(at + n - 1 for at, n in zip(begin, sizes, strict=True))])

    return element


ROWS: Mapping[str, Description] = dict.fromkeys(
    ("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D", "MaxPoolGradGrad"), describe
) | dict.fromkeys(("MaxPoolGrad", "AvgPoolGrad", "MaxPool3DGrad", "AvgPool3DGrad"), gradient)
