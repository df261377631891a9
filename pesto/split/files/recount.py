"""The bytes of a division counted anew, from the ranges of elements that each worker holds: plain Python on purpose.

It shares no code with what splits are searched by. A layout gives every worker one range of elements a dimension, a
window one that may begin before the worker's share and end behind it. What a worker wants and does not hold it
receives, each range once, from whoever has it.
"""

from collections import defaultdict
from functools import lru_cache
from math import prod

from pesto.split.division import ITEM_BYTES, Division
from pesto.split.geometry import Need
from pesto.split.layouts import ONE, PARTIAL, WHOLE, Rims
from pesto.split.typed_graph import TypedGraph

Ranges = tuple[range, ...]
"""The elements of a part: one range a dimension."""
Sizes = tuple[int, ...]


def element_bytes(dtype: str) -> int:
    """Bytes of one element; 0 for data types that are not sent."""
    return ITEM_BYTES.get(dtype.removeprefix("resource:"), 0)


def divides_evenly(shape: Sizes, layouts: Sizes, factors: Sizes) -> bool:
    """Return True if every worker's part is of one size, and the layout's dimensions are there."""
    left = dict(enumerate(shape))
    for dimension, k in zip(layouts, factors, strict=True):
        if dimension >= 0:
            if left.get(dimension, 1) % k:
                return False
            left[dimension] //= k
    return True


@lru_cache(maxsize=1 << 16)
def held_parts(shape: Sizes, layouts: Sizes, factors: Sizes) -> tuple[Ranges | None, ...]:
    """[K] what each worker holds of a tensor; None for all but the first where it lies on ONE."""
    result = []
    for worker in range(prod(factors)):
        ranges, rest = [range(extent) for extent in shape], prod(factors)
        for dimension, k in zip(layouts, factors, strict=True):
            rest //= k
            if dimension >= 0:
                part = len(ranges[dimension]) // k
                begin = ranges[dimension].start + worker // rest % k * part
                ranges[dimension] = range(begin, begin + part)
        result.append(None if worker and ONE in layouts else tuple(ranges))
    return tuple(result)


@lru_cache(maxsize=1 << 16)
def needed_parts(shape: Sizes, layouts: Sizes, rims: Rims, factors: Sizes) -> tuple[Ranges | None, ...]:
    """[K] what each worker must have of a tensor: its share, along rims its window."""
    if not rims:
        return held_parts(shape, layouts, factors)
    result = []
    for worker in range(prod(factors)):
        shares = tuple(WHOLE if any(at == rim.dimension for rim in rims) else at for at in layouts)
        ranges = list((held_parts(shape, shares, factors)[worker]) or ())
        for rim in rims:
            begin = part_number(worker, tuple(at == rim.dimension for at in layouts), factors) * rim.step + rim.low
            ranges[rim.dimension] = range(max(begin, 0), min(begin + rim.size, shape[rim.dimension]))
        result.append(tuple(ranges))
    return tuple(result)


def part_number(worker: int, cuts: tuple[bool, ...], factors: Sizes) -> int:
    """Which part a worker has of what some of the cuts divide."""
    result, rest = 0, prod(factors)
    for here, k in zip(cuts, factors, strict=True):
        rest //= k
        result = result * k + worker // rest % k if here else result
    return result


def _both(one: Ranges | None, other: Ranges | None) -> int:
    """Elements that are in two parts."""
    if one is None or other is None:
        return 0
    return prod(max(0, min(a.stop, b.stop) - max(a.start, b.start)) for a, b in zip(one, other, strict=True))


def _elements(part: Ranges | None) -> int:
    return 0 if part is None else prod(map(len, part))


@lru_cache(maxsize=1 << 16)
def _wanted(shape: Sizes, have: Sizes, want: frozenset[Need], factors: Sizes) -> int:
    """Elements that workers receive to have all parts that they want: two that are one part are one."""
    own = held_parts(shape, have, factors)
    all_parts = zip(*(needed_parts(shape, need.layouts, need.rims, factors) for need in want), strict=True)
    return sum(
        _elements(part) - _both(mine, part) for mine, parts in zip(own, all_parts, strict=True) for part in set(parts)
    )


@lru_cache(maxsize=1 << 16)
def _kept(shape: Sizes, made: Sizes, kept: Sizes, factors: Sizes) -> int:
    """Elements that workers receive to keep in one layout what they made in another."""
    if PARTIAL not in made:
        return _wanted(shape, made, frozenset((Need(kept),)), factors)
    between, straight = _spread(shape, made, kept, factors), _summed(shape, made, kept, factors)
    gathered = _summed(shape, made, between, factors) + _wanted(shape, between, frozenset((Need(kept),)), factors)
    return min(straight, gathered)


def _summed(shape: Sizes, made: Sizes, kept: Sizes, factors: Sizes) -> int:
    """Where every worker sums the part that it keeps: so many summands of each element, less those of its own."""
    summands = prod(k for layout, k in zip(made, factors, strict=True) if layout == PARTIAL)
    parts = zip(held_parts(shape, made, factors), held_parts(shape, kept, factors), strict=True)
    return sum(summands * _elements(part) - _both(own, part) for own, part in parts)


def _spread(shape: Sizes, made: Sizes, kept: Sizes, factors: Sizes) -> Sizes:
    """A layout to sum in before all is gathered: what is kept whole is cut along the longest dimension that is left."""
    between = list(kept)
    for at, (was, now, k) in enumerate(zip(made, kept, factors, strict=True)):
        left = held_parts(shape, tuple(between), factors)[0] or ()
        along = [d for d, extent in enumerate(left) if len(extent) % k == 0]
        if was == PARTIAL and now == WHOLE and along:
            between[at] = max(along, key=lambda d: len(left[d]))
    return tuple(between)


def recount_bytes(shaped: TypedGraph, division: Division) -> int:
    """Bytes that all workers receive in a step."""
    read_as: dict[tuple[int, int], set[Need]] = defaultdict(set)
    for tail, output, head, at in zip(
        shaped.src.tolist(), shaped.output.tolist(), shaped.dst.tolist(), shaped.input.tolist(), strict=True
    ):
        signature = shaped.signature(head)
        operand = signature.inputs[at]
        read = operand.value is None and not signature.reads_shapes_alone
        if read and not operand.dtype.startswith("resource"):
            read_as[tail, output].add(division.ways[head].need(at))
    total = 0
    for (op, output), needs in read_as.items():
        shape, dtype = shaped.signature(op).outputs[output]
        made, kept = division.ways[op].gives[output], division.kept[op][output]
        if shape is not None and element_bytes(dtype):
            sent = _kept(shape, made, kept, division.factors)
            sent += _wanted(shape, kept, frozenset(needs), division.factors)
            total += element_bytes(dtype) * sent
    return total


def recount_parameters(shaped: TypedGraph, division: Division) -> int:
    """Bytes of all variables with their slots that one worker holds: of the first, all parts being of one size."""
    result: dict[int, int] = {}
    for op, at, variable in zip(
        shaped.use_op.tolist(), shaped.use_input.tolist(), shaped.use_variable.tolist(), strict=True
    ):
        operand = shaped.signature(op).inputs[at]
        if operand.shape is not None:
            part = held_parts(operand.shape, division.variables[variable], division.factors)[0]
            result[variable] = _elements(part) * element_bytes(operand.dtype)
    return sum(result.values())
