"""Elements moved along some dimensions: put together, taken apart, padded, summed up to; others can be cut."""

from collections.abc import Mapping, Sequence

from pesto.split.signature import Number
from pesto.split.tdl import Description, Index, InputTensor, Lambda, NotDescribedError, OpOperands, Value, opaque

ALL = slice(None)


def _names(rank: int) -> tuple[str, ...]:
    return tuple(f"i{d}" for d in range(rank))


def _but(moved: Sequence[int], tensors: Sequence[InputTensor], rank: int) -> Lambda:
    """Inputs of the output's rank, read in their place but whole along what is moved."""

    def element(*i: Index) -> Value:
        read = [t[tuple(ALL if d in moved else i[d] for d in range(rank))] for t in tensors]
        return opaque(*read)[tuple(i[d] for d in moved)] if moved else opaque(*read)

    return Lambda(_names(rank), element)


def _constant(op: OpOperands, number: int) -> tuple[int, ...]:
    value = op.value(number)
    return tuple(value) if isinstance(value, tuple) else (value,)  # type: ignore[arg-type,return-value]


def _pairs(op: OpOperands, number: int) -> list[tuple[Number, ...]]:
    value = op.value(number)
    return [each if isinstance(each, tuple) else (each,) for each in (value if isinstance(value, tuple) else ())]


def concat(op: OpOperands) -> list[Lambda]:
    """ConcatV2: the axis comes last."""
    rank = len(op.out())
    return [_but([_constant(op, op.inputs - 1)[0] % rank], [op[n] for n in range(op.inputs - 1)], rank)]


def split(op: OpOperands) -> list[Lambda]:
    """Split: the axis comes first."""
    rank = op[1].rank
    return [_but([_constant(op, 0)[0] % rank], [op[1]], rank) for _ in op.signature.outputs]


def split_sizes(op: OpOperands) -> list[Lambda]:
    """SplitV: the axis comes last."""
    rank = op[0].rank
    return [_but([_constant(op, 2)[0] % rank], [op[0]], rank) for _ in op.signature.outputs]


def pack(op: OpOperands) -> list[Lambda]:
    """Pack: a new dimension, in which the inputs lie."""
    rank = len(op.out())
    axis = op.number("axis", 0) % rank

    def element(*i: Index) -> Value:
        place = i[:axis] + i[axis + 1 :]
        return opaque(*(op[number][place] for number in range(op.inputs)))[i[axis]]

    return [Lambda(_names(rank), element)]


def unpack(op: OpOperands) -> list[Lambda]:
    """Unpack: a dimension less."""
    tensor = op[0]
    axis = op.number("axis", 0) % tensor.rank

    def element(*i: Index) -> Value:
        return tensor[(*i[:axis], ALL, *i[axis:])]

    return [Lambda(_names(tensor.rank - 1), element) for _ in op.signature.outputs]


def cut_out(op: OpOperands) -> list[Lambda]:
    """Slice: what is taken whole can be cut; with a halo what is not, too."""
    if op.halo and op.operand(1).value is not None:
        begin, tensor = _constant(op, 1), op[0]
        return [Lambda(_names(tensor.rank), lambda *i: tensor[tuple(at + n for at, n in zip(i, begin, strict=True))])]
    # The dimensions along which an output is no shorter or longer than its input.
    where_same = [d for d, (a, b) in enumerate(zip(op[0].shape, op.out(), strict=True)) if a != b]
    return [_but(where_same, [op[0]], op[0].rank)]


def pad(op: OpOperands) -> list[Lambda]:
    """Pad, PadV2, MirrorPad; with a halo what is padded, not mirrored, can be cut too."""
    if op.halo and op.signature.type != "MirrorPad":
        first, tensor = [int(sides[0]) for sides in _pairs(op, 1)], op[0].padded  # type: ignore[arg-type]
        return [Lambda(_names(tensor.rank), lambda *i: tensor[tuple(at - n for at, n in zip(i, first, strict=True))])]
    moved = [d for d, sides in enumerate(_pairs(op, 1)) if any(sides)]
    return [_but(moved, [op[0]], op[0].rank)]


def along_axis(op: OpOperands) -> list[Lambda]:
    """Cumsum and Cumprod: the axis comes last."""
    return [_but([_constant(op, 1)[0] % op[0].rank], [op[0]], op[0].rank)]


def tile(op: OpOperands) -> list[Lambda]:
    """Tile: what is not repeated can be cut, and so can what is of one element, which each part repeats less often."""
    tensor = op[0]
    moved = [d for d, times in enumerate(_constant(op, 1)) if times != 1 and tensor.shape[d] != 1]

    def element(*i: Index) -> Value:
        whole = [d in moved or extent == 1 for d, extent in enumerate(tensor.shape)]
        read = tensor[tuple(ALL if all_of_it else index for all_of_it, index in zip(whole, i, strict=True))]
        return opaque(read)[tuple(i[d] for d in moved)] if moved else read

    return [Lambda(_names(tensor.rank), element)]


def reverse_sequence(op: OpOperands) -> list[Lambda]:
    """ReverseSequence: the lengths go with the batch."""
    along, batch = (op.number(name) for name in ("seq_dim", "batch_dim"))
    tensor, lengths = op[0], op[1]

    def element(*i: Index) -> Value:
        read = tensor[tuple(ALL if d == along else index for d, index in enumerate(i))]
        return opaque(read, lengths[i[batch]])[i[along]]

    return [Lambda(_names(tensor.rank), element)]


def reverse(op: OpOperands) -> list[Lambda]:
    """ReverseV2 along axes that a constant names."""
    rank = op[0].rank
    return [_but([axis % rank for axis in _constant(op, 1)], [op[0]], rank)]


def transpose(op: OpOperands) -> list[Lambda]:
    """Transpose: the dimensions in another order."""
    tensor = op[0]
    order = [d % tensor.rank for d in _constant(op, 1)]
    return [Lambda(_names(tensor.rank), lambda *i: tensor[tuple(i[order.index(d)] for d in range(tensor.rank))])]


def one_hot(op: OpOperands) -> list[Lambda]:
    """OneHot: a new dimension of zeros and a one."""
    indices, rank = op[0], len(op.out())
    axis = op.number("axis", -1) % rank
    return [Lambda(_names(rank), lambda *i: opaque(indices[i[:axis] + i[axis + 1 :]])[i[axis]])]


def fill(op: OpOperands) -> list[Lambda]:
    """Fill: one number everywhere."""
    return [Lambda(_names(len(op.out())), lambda *_: op[1][()])]


def broadcast(op: OpOperands) -> list[Lambda]:
    """BroadcastTo: what is not repeated can be cut, and so can what is of one element."""
    tensor, rank = op[0], len(op.out())

    def element(*i: Index) -> Value:
        own = i[rank - tensor.rank :]
        return tensor[tuple(ALL if extent == 1 else index for index, extent in zip(own, tensor.shape, strict=True))]

    return [Lambda(_names(rank), element)]


def strided(op: OpOperands, *, back: bool = False) -> list[Lambda]:
    """StridedSlice, and with `back` its gradient; dimensions that are taken whole can be cut."""
    whole, part = (op.out(), op[4].shape) if back else (op[0].shape, op.out())
    kept = _kept(op, whole, [_constant(op, n) for n in (1, 2, 3)])
    same = [(d, at) for at, d in enumerate(kept) if d is not None and whole[d] == part[at]]
    tensor = op[4] if back else op[0]
    there = {at: d for d, at in same} if not back else dict(same)

    def element(*i: Index) -> Value:
        read = {d: i[at] for at, d in there.items()} if not back else {at: i[d] for d, at in same}
        rest = [index for at, index in enumerate(i) if at not in there]
        taken = tensor[tuple(read.get(d, ALL) for d in range(tensor.rank))]
        return opaque(taken)[tuple(rest)] if rest else taken

    return [Lambda(_names(len(op.out())), element)]


def _kept(op: OpOperands, whole: tuple[int, ...], spec: list[tuple[int, ...]]) -> list[int | None]:
    """For each dimension of the part, the one of the whole that it is; None for a new one or one that is cut short."""
    begin, end, stride = spec
    masks = {name: op.number(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    if masks["ellipsis"] & (masks["ellipsis"] - 1):
        raise NotDescribedError("two ellipses")
    named = sum(1 for s in range(len(begin)) if not (masks["ellipsis"] | masks["new_axis"]) >> s & 1)
    result: list[int | None] = []
    d = 0
    for s in range(len(begin)):
        if masks["ellipsis"] >> s & 1:
            result += range(d, d + len(whole) - named)
            d += len(whole) - named
        elif masks["new_axis"] >> s & 1:
            result.append(None)
        else:
            if not masks["shrink_axis"] >> s & 1:
                full = (
                    stride[s] == 1
                    and _from_first(masks["begin"] >> s & 1, begin[s])
                    and _to_last(masks["end"] >> s & 1, end[s], whole[d])
                )
                result.append(d if full else None)
            d += 1
    return result + list(range(d, len(whole)))


def _from_first(masked: int, begin: int) -> bool:
    return bool(masked) or begin == 0


def _to_last(masked: int, end: int, extent: int) -> bool:
    return bool(masked) or end >= extent


def strided_gradient(op: OpOperands) -> list[Lambda]:
    """StridedSliceGrad: shape, begin, end, strides, and the gradient of the part."""
    return strided(op, back=True)


ROWS: Mapping[str, Description] = {
    "ConcatV2": concat, "Split": split, "SplitV": split_sizes, "Pack": pack, "Unpack": unpack, "Slice": cut_out,
    "Pad": pad, "PadV2": pad, "MirrorPad": pad, "Tile": tile, "ReverseSequence": reverse_sequence, "ReverseV2": reverse,
    "Cumsum": along_axis, "Cumprod": along_axis,
    "Transpose": transpose, "OneHot": one_hot, "Fill": fill, "BroadcastTo": broadcast,
    "StridedSlice": strided, "StridedSliceGrad": strided_gradient,
}  # fmt: skip
