"""Descriptions of ops that move elements: joined, taken apart, padded, repeated, reshaped, gathered by numbers.

Elements move along some dimensions; the others can be cut. Of a reshape dimensions that stay, and the first of those
that merge or part, can be cut.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import NamedTuple

from pesto.split.tdl import Description, Index, InputTensor, Lambda, NotDescribedError, OpOperands, Sum, Value, opaque

ALL = slice(None)


def _names(rank: int) -> tuple[str, ...]:
    return tuple(f"i{d}" for d in range(rank))


def _moved_along(moved: Sequence[int], tensors: Sequence[InputTensor], rank: int) -> Lambda:
    """Read inputs of the output's rank in their place, but whole along the dimensions that elements move along."""

    def element(*i: Index) -> Value:
        read = [t[tuple(ALL if d in moved else i[d] for d in range(rank))] for t in tensors]
        return opaque(*read)[tuple(i[d] for d in moved)] if moved else opaque(*read)

    return Lambda(_names(rank), element)


def _constant(op: OpOperands, number: int) -> tuple[int, ...]:
    value = op.value(number)
    return tuple(value) if isinstance(value, tuple) else (value,)  # type: ignore[arg-type,return-value]


def concat(op: OpOperands) -> list[Lambda]:
    """Describe ConcatV2, whose axis comes last."""
    rank, axis = len(op.out()), op.inputs - 1
    return [_moved_along([_constant(op, axis)[0] % rank], [op[n] for n in range(axis)], rank)]


def split(op: OpOperands) -> list[Lambda]:
    """Describe Split, whose axis comes first, and SplitV, whose axis comes last."""
    tensor, axis = (op[1], 0) if op.signature.type == "Split" else (op[0], 2)
    moved = _constant(op, axis)[0] % tensor.rank
    return [_moved_along([moved], [tensor], tensor.rank) for _ in op.signature.outputs]


def pack(op: OpOperands) -> list[Lambda]:
    """Describe Pack, which joins its inputs along a new dimension."""
    rank = len(op.out())
    axis = op.number("axis", 0) % rank

    def element(*i: Index) -> Value:
        place = i[:axis] + i[axis + 1 :]
        return opaque(*(op[number][place] for number in range(op.inputs)))[i[axis]]

    return [Lambda(_names(rank), element)]


def unpack(op: OpOperands) -> list[Lambda]:
    """Describe Unpack, which takes a tensor apart along a dimension."""
    tensor = op[0]
    axis = op.number("axis", 0) % tensor.rank
    return [
        Lambda(_names(tensor.rank - 1), lambda *i: tensor[(*i[:axis], ALL, *i[axis:])]) for _ in op.signature.outputs
    ]


def cut_out(op: OpOperands) -> list[Lambda]:
    """Describe Slice: a dimension that is taken whole can be cut; with a halo any other, too."""
    if op.halo and op.operand(1).value is not None:
        begin, tensor = _constant(op, 1), op[0]
        return [Lambda(_names(tensor.rank), lambda *i: tensor[tuple(at + n for at, n in zip(i, begin, strict=True))])]
    shortened = [d for d, (a, b) in enumerate(zip(op[0].shape, op.out(), strict=True)) if a != b]
    return [_moved_along(shortened, [op[0]], op[0].rank)]


def pad(op: OpOperands) -> list[Lambda]:
    """Describe Pad, PadV2 and MirrorPad; with a halo dimensions that are padded, not mirrored, can be cut too."""
    value = op.value(1)
    paddings = [each if isinstance(each, tuple) else (each,) for each in (value if isinstance(value, tuple) else ())]
    if op.halo and op.signature.type != "MirrorPad":
        first, tensor = [int(sides[0]) for sides in paddings], op[0].padded  # type: ignore[arg-type]
        return [Lambda(_names(tensor.rank), lambda *i: tensor[tuple(at - n for at, n in zip(i, first, strict=True))])]
    return [_moved_along([d for d, sides in enumerate(paddings) if any(sides)], [op[0]], op[0].rank)]


def along_axes(op: OpOperands) -> list[Lambda]:
    """Describe Cumsum, Cumprod and ReverseV2, whose axes a constant names."""
    rank = op[0].rank
    return [_moved_along([axis % rank for axis in _constant(op, 1)], [op[0]], rank)]


def tile(op: OpOperands) -> list[Lambda]:
    """Describe Tile: a dimension can be cut if it is not repeated, or is of one element, repeated less by each part."""
    tensor = op[0]
    moved = [d for d, times in enumerate(_constant(op, 1)) if times != 1 and tensor.shape[d] != 1]

    def element(*i: Index) -> Value:
        whole = [d in moved or extent == 1 for d, extent in enumerate(tensor.shape)]
        read = tensor[tuple(ALL if all_of_it else index for all_of_it, index in zip(whole, i, strict=True))]
        return opaque(read)[tuple(i[d] for d in moved)] if moved else read

    return [Lambda(_names(tensor.rank), element)]


def reverse_sequence(op: OpOperands) -> list[Lambda]:
    """Describe ReverseSequence, whose lengths are cut with the batch."""
    along, batch = (op.number(name) for name in ("seq_dim", "batch_dim"))
    tensor, lengths = op[0], op[1]

    def element(*i: Index) -> Value:
        read = tensor[tuple(ALL if d == along else index for d, index in enumerate(i))]
        return opaque(read, lengths[i[batch]])[i[along]]

    return [Lambda(_names(tensor.rank), element)]


def transpose(op: OpOperands) -> list[Lambda]:
    """Describe Transpose, which orders the dimensions anew."""
    tensor = op[0]
    order = [d % tensor.rank for d in _constant(op, 1)]
    return [Lambda(_names(tensor.rank), lambda *i: tensor[tuple(i[order.index(d)] for d in range(tensor.rank))])]


def one_hot(op: OpOperands) -> list[Lambda]:
    """Describe OneHot, which adds a dimension of zeros and a one."""
    indices, rank = op[0], len(op.out())
    axis = op.number("axis", -1) % rank
    return [Lambda(_names(rank), lambda *i: opaque(indices[i[:axis] + i[axis + 1 :]])[i[axis]])]


def fill(op: OpOperands) -> list[Lambda]:
    """Describe Fill, one number everywhere."""
    return [Lambda(_names(len(op.out())), lambda *_: op[1][()])]


def broadcast(op: OpOperands) -> list[Lambda]:
    """Describe BroadcastTo: a dimension can be cut if it is not repeated, or is of one element."""
    tensor, rank = op[0], len(op.out())

    def element(*i: Index) -> Value:
        own = i[rank - tensor.rank :]
        return tensor[tuple(ALL if extent == 1 else index for index, extent in zip(own, tensor.shape, strict=True))]

    return [Lambda(_names(rank), element)]


def strided(op: OpOperands) -> list[Lambda]:
    """Describe StridedSlice and its gradient, which reads the part's; dimensions that are taken whole can be cut."""
    back = op.signature.type == "StridedSliceGrad"
    whole, part = (op.out(), op[4].shape) if back else (op[0].shape, op.out())
    kept = _kept(op, whole, [_constant(op, n) for n in (1, 2, 3)])
    same = [(d, at) for at, d in enumerate(kept) if d is not None and whole[d] == part[at]]
    # Dimension of the output -> the one of the tensor that is read there.
    tensor, there = (op[4], dict(same)) if back else (op[0], {at: d for d, at in same})

    def element(*i: Index) -> Value:
        read = {d: i[at] for at, d in there.items()}
        rest = [index for at, index in enumerate(i) if at not in there]
        taken = tensor[tuple(read.get(d, ALL) for d in range(tensor.rank))]
        return opaque(taken)[tuple(rest)] if rest else taken

    return [Lambda(_names(len(op.out())), element)]


def _kept(op: OpOperands, whole: tuple[int, ...], spec: list[tuple[int, ...]]) -> list[int | None]:
    """Return for each dimension of the part the one of the whole that it is; None for a new or a shortened one."""
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
                from_first = masks["begin"] >> s & 1 or begin[s] == 0
                to_last = masks["end"] >> s & 1 or end[s] >= whole[d]
                result.append(d if stride[s] == 1 and from_first and to_last else None)
            d += 1
    return result + list(range(d, len(whole)))


class DimensionRun(NamedTuple):
    """Dimensions of the input and of the output with the same product; the least such."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def dimension_runs(before: Sequence[int], after: Sequence[int]) -> list[DimensionRun]:
    """Match dimensions of two shapes of as many elements, above 0; dimensions of extent 1 belong to no run."""
    left = [d for d, extent in enumerate(before) if extent != 1]
    made = [d for d, extent in enumerate(after) if extent != 1]
    result, i, j = [], 0, 0
    while i < len(left):
        a, b = i + 1, j + 1
        while (sizes := (_product(before, left[i:a]), _product(after, made[j:b])))[0] != sizes[1]:
            a, b = (a + 1, b) if sizes[0] < sizes[1] else (a, b + 1)
        result.append(DimensionRun(tuple(left[i:a]), tuple(made[j:b])))
        i, j = a, b
    return result


def _product(shape: Sequence[int], dimensions: Sequence[int]) -> int:
    return prod(shape[d] for d in dimensions)


def reshape(op: OpOperands) -> list[Lambda]:
    """Describe Reshape and ExpandDims."""
    tensor, out = op[0], op.out()
    if prod(tensor.shape) != prod(out):
        raise NotDescribedError(f"{prod(tensor.shape)} elements cannot become {prod(out)}")
    given, made = op.operand(0).bounded, op.signature.bounded_output(0)
    if given or made:
        # Extents that depend on the data hide which dimensions became which.
        one, runs = len(given) == len(made) == 1, dimension_runs(tensor.shape, out)
        if not one or not any(given[0] in run.inputs and made[0] in run.outputs for run in runs):
            raise NotDescribedError("extents depend on the data, and which dimensions they become")

    def element(*i: Index) -> Value:
        if 0 in out:
            return opaque(tensor[(ALL,) * tensor.rank])[i]
        at: dict[int, Index] = {}
        merged = [i[d] for d, extent in enumerate(out) if extent == 1]
        for run in dimension_runs(tensor.shape, out):
            first, *rest = run.outputs
            alone = len(run.inputs) == len(run.outputs) == 1
            times = Fraction(_product(out, rest), _product(tensor.shape, run.inputs[1:]))
            at[run.inputs[0]] = i[first] if alone else i[first] * times
            merged += [i[d] for d in rest]
        read = tensor[tuple(at.get(d, ALL) for d in range(tensor.rank))]
        return opaque(read)[tuple(merged)] if merged else read

    return [Lambda(_names(len(out)), element)]


def squeeze(op: OpOperands) -> list[Lambda]:
    """Describe Squeeze; one without axes that finds nothing to remove might find something in its parts."""
    if not op.attribute("squeeze_dims") and 1 not in op[0].shape:
        raise NotDescribedError("it removes nothing, and has no axes to say so for parts of extent 1")
    return reshape(op)


def gather(op: OpOperands) -> list[Lambda]:
    """Describe GatherV2 and ResourceGather: indices and the dimensions behind the rows can be cut; not the rows."""
    table, indices = op[0], op[1]
    axis = 0
    if op.inputs > 2:
        given = op.value(2)
        axis = int(given[0] if isinstance(given, tuple) else given) % table.rank  # type: ignore[arg-type]
    if op.attribute("batch_dims", 0):
        raise NotDescribedError("a gather with batch dimensions")

    def element(*i: Index) -> Value:
        left, picked, right = i[:axis], i[axis : axis + indices.rank], i[axis + indices.rank :]
        return table[(*left, ALL, *right)] + indices[picked]

    return [Lambda(_names(len(op.out())), element)]


def segment_sum(op: OpOperands) -> list[Lambda]:
    """Describe UnsortedSegmentSum, which adds up rows by numbers: rows, and their elements, can be cut."""
    data, numbers = op[0], op[1]
    rows = [f"row{d}" for d in range(numbers.rank)]

    def element(segment: Index, *i: Index) -> Value:
        return Sum(lambda *r: opaque(data[(*r, *i)] + numbers[r])[segment], rows)

    return [Lambda(("segment", *(f"i{d}" for d in range(1, len(op.out())))), element)]


MOVES: Mapping[str, Description] = {
    "ConcatV2": concat, "Split": split, "SplitV": split, "Pack": pack, "Unpack": unpack, "Slice": cut_out,
    "Pad": pad, "PadV2": pad, "MirrorPad": pad, "Tile": tile, "ReverseSequence": reverse_sequence,
    "ReverseV2": along_axes, "Cumsum": along_axes, "Cumprod": along_axes,
    "Transpose": transpose, "OneHot": one_hot, "Fill": fill, "BroadcastTo": broadcast,
    "StridedSlice": strided, "StridedSliceGrad": strided,
}  # fmt: skip
RESHAPES: Mapping[str, Description] = {"Reshape": reshape, "ExpandDims": reshape, "Squeeze": squeeze}
GATHERS: Mapping[str, Description] = {"GatherV2": gather, "ResourceGather": gather, "UnsortedSegmentSum": segment_sum}
