"""Rows picked by numbers, and rows added up by numbers."""

from collections.abc import Mapping

from pesto.split.tdl import Description, Index, Lambda, NotDescribedError, OpOperands, Sum, Value, opaque

ALL = slice(None)


def gather(op: OpOperands) -> list[Lambda]:
    """GatherV2 and ResourceGather: numbers can be cut, and what follows the rows; not the rows themselves."""
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

    return [Lambda(tuple(f"i{d}" for d in range(len(op.out()))), element)]


def segment_sum(op: OpOperands) -> list[Lambda]:
    """UnsortedSegmentSum: rows add up, in parts of the rows too; their elements can be cut."""
    data, numbers = op[0], op[1]
    rows = [f"row{d}" for d in range(numbers.rank)]

    def element(segment: Index, *i: Index) -> Value:
        return Sum(lambda *r: opaque(data[(*r, *i)] + numbers[r])[segment], rows)

    return [Lambda(("segment", *(f"i{d}" for d in range(1, len(op.out())))), element)]


ROWS: Mapping[str, Description] = {"GatherV2": gather, "ResourceGather": gather, "UnsortedSegmentSum": segment_sum}
