"""A split's bytes counted anew and its strategies held against their descriptions: plain Python on purpose.

It shares no code with what splits are searched by. A layout gives every worker one range of elements a dimension, a
window one that may begin before the worker's share and end behind it. What a worker wants and does not hold it
receives, each range once, from whoever has it.

With an index variable cut, part p of it begins at p times its size. What a worker reads of an input must lie within the
part that its strategy needs, and at the same place of that part on every worker, so that its kernel computes just its
part. A window is just what a worker reads of a dimension, and all of it, up to the border of the tensor.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import prod

from pesto.split.division import ITEM_BYTES, Division
from pesto.split.geometry import ONE, PARTIAL, WHOLE, Need, Rim, Rims, Shape
from pesto.split.op_strategy import ONCE_WAY, SUMMANDS_WAY, WHOLE_WAY, OpStrategy
from pesto.split.ops.op_types import description, layouts_fault, reads_windows
from pesto.split.tdl import ElementRead, Index, NotDescribedError, Value, trace
from pesto.split.typed_graph import Signature, TypedGraph

Ranges = tuple[range, ...]
"""The elements of a part: one range a dimension."""
Sizes = tuple[int, ...]
Rows = tuple[tuple[tuple[str, ...], Value], ...]
_MEAN = "mean"
_LINEAR = {
    "Add": None, "AddN": None, "AddV2": None, "Sub": None,
    "ExpandDims": 1, "Identity": 1, "Neg": 1, "Reshape": 1, "Squeeze": 1, "Transpose": 1,
}  # fmt: skip
"""Op type -> number of first inputs in which it is linear together; None for all of them."""


def element_bytes(dtype: str) -> int:
    """Return the bytes of one element; 0 for data types that are not sent."""
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
    """Return [K] what each worker holds of a tensor; None for all but the first if it lies on ONE."""
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
    """Return [K] what each worker must have of a tensor: its share, along rims its window."""
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
    """Return the number of the part that a worker has of what some of the cuts divide."""
    result, rest = 0, prod(factors)
    for here, k in zip(cuts, factors, strict=True):
        rest //= k
        result = result * k + worker // rest % k if here else result
    return result


def _both(one: Ranges | None, other: Ranges | None) -> int:
    """Return the number of elements in both parts."""
    if one is None or other is None:
        return 0
    return prod(max(0, min(a.stop, b.stop) - max(a.start, b.start)) for a, b in zip(one, other, strict=True))


def _elements(part: Ranges | None) -> int:
    return 0 if part is None else prod(map(len, part))


@lru_cache(maxsize=1 << 16)
def _wanted(shape: Sizes, have: Sizes, want: frozenset[Need], factors: Sizes) -> int:
    """Return the elements that workers receive to have all parts that they want, equal parts once."""
    own = held_parts(shape, have, factors)
    all_parts = zip(*(needed_parts(shape, need.layouts, need.rims, factors) for need in want), strict=True)
    return sum(
        _elements(part) - _both(mine, part) for mine, parts in zip(own, all_parts, strict=True) for part in set(parts)
    )


@lru_cache(maxsize=1 << 16)
def _kept(shape: Sizes, made: Sizes, kept: Sizes, factors: Sizes) -> int:
    """Return the elements that workers receive to keep in one layout what they made in another."""
    if PARTIAL not in made or made == kept:
        return _wanted(shape, made, frozenset((Need(kept),)), factors)
    # All may be summed in another layout before it is gathered: cut along the longest dimension that is left.
    between = list(kept)
    for at, (was, now, k) in enumerate(zip(made, kept, factors, strict=True)):
        left = held_parts(shape, tuple(between), factors)[0] or ()
        along = [d for d, extent in enumerate(left) if len(extent) % k == 0]
        if was == PARTIAL and now == WHOLE and along:
            between[at] = max(along, key=lambda d: len(left[d]))
    gathered = _wanted(shape, tuple(between), frozenset((Need(kept),)), factors)
    return min(_summed(shape, made, kept, factors), _summed(shape, made, tuple(between), factors) + gathered)


def _summed(shape: Sizes, made: Sizes, kept: Sizes, factors: Sizes) -> int:
    """Return the elements received if every worker sums the part that it keeps: all summands of each but its own."""
    summands = prod(k for layout, k in zip(made, factors, strict=True) if layout == PARTIAL)
    parts = zip(held_parts(shape, made, factors), held_parts(shape, kept, factors), strict=True)
    return sum(summands * _elements(part) - _both(own, part) for own, part in parts)


def recount_bytes(shaped: TypedGraph, division: Division) -> int:
    """Return the bytes that all workers receive in a step."""
    read_as: dict[tuple[int, int], set[Need]] = defaultdict(set)
    for tail, output, head, at in shaped.edges:
        signature = shaped.signature(head)
        operand = signature.inputs[at]
        read = operand.value is None and not signature.reads_shapes_alone
        if read and not operand.dtype.startswith("resource"):
            read_as[tail, output].add(division.strategies[head].need(at))
    total = 0
    for (op, output), needs in read_as.items():
        shape, dtype = shaped.signature(op).outputs[output]
        made, kept = division.strategies[op].gives[output], division.kept[op][output]
        if shape is not None and element_bytes(dtype):
            sent = _kept(shape, made, kept, division.factors)
            sent += _wanted(shape, kept, frozenset(needs), division.factors)
            total += element_bytes(dtype) * sent
    return total


def recount_parameters(shaped: TypedGraph, division: Division) -> int:
    """Return the bytes of all variables with their slots that the first worker holds; all parts are of one size."""
    result: dict[int, int] = {}
    for op, at, variable in shaped.uses:
        operand = shaped.signature(op).inputs[at]
        if operand.shape is not None:
            part = held_parts(operand.shape, division.variables[variable], division.factors)[0]
            result[variable] = _elements(part) * element_bytes(operand.dtype)
    return sum(result.values())


@lru_cache(maxsize=1 << 16)
def strategy_fault(
    signature: Signature, strategy: OpStrategy, factors: Shape, *, once: bool, halo: bool = False
) -> str:
    """Return the first fault of an op's strategy, empty if it is valid; with `halo` it may read windows."""
    if len(strategy.needs) != len(signature.inputs) or len(strategy.gives) != len(signature.outputs):
        return "it is of another number of inputs or outputs"
    if SUMMANDS_WAY in strategy.names and not once:
        return _summands_fault(signature, strategy, factors, halo=halo)
    if once or ONCE_WAY in strategy.names:
        alone = {(ONE,) * len(factors)}
        fine = set(strategy.names) == {ONCE_WAY} and {*strategy.needs, *strategy.gives} <= alone
        return "" if fine else "it must run once" if once else "it runs once, and not in all cuts"
    cut = {name for name in strategy.names if name != WHOLE_WAY}
    result = description(signature.type)
    if result is None and cut:
        return "its type has no description"
    try:
        windows = halo and reads_windows(signature.type)
        rows = trace(result, signature, halo=windows) if result is not None and cut else ()
    except NotDescribedError as refused:
        return str(refused)
    sizes = layouts_fault(signature, strategy.needs, strategy.gives, windows=any(strategy.rims)) if cut else ""
    if strategy.rims and not windows:
        sizes = "it reads windows, which were not asked for, or which its kernel cannot run on"
    return sizes or _StrategyCheck(signature, strategy, factors, rows).fault(cut)


def _summands_fault(signature: Signature, strategy: OpStrategy, factors: Shape, *, halo: bool) -> str:
    """Return the first fault of an op that workers do on summands in some cuts: of these, then of the other cuts."""
    if signature.type not in _LINEAR:
        return "its type is not linear, so it cannot run on summands"
    first = _LINEAR[signature.type]
    summed = len(signature.inputs) if first is None else first
    if any(operand.value is None for operand in signature.inputs[summed:]):
        return "an input that is not summed is no constant"
    if any(operand.bounded for operand in signature.inputs) or signature.bounded_output(0):
        return "its extents depend on the data, so its summands may differ in shape"
    there = [name == SUMMANDS_WAY for name in strategy.names]
    for tensors, partial in ((strategy.needs[:summed], True), (strategy.needs[summed:], False), (strategy.gives, True)):
        for layouts in tensors:
            at = {layout for layout, here in zip(layouts, there, strict=True) if here}
            if at != {PARTIAL if partial else WHOLE}:
                return f"its tensors are no summands: {list(layouts)}"
    if strategy.reducer != "sum" or strategy.scaled:
        return "summands are not reduced by sum"

    def rest(layouts: Sizes) -> Sizes:
        return tuple(layout for layout, here in zip(layouts, there, strict=True) if not here)

    other = replace(
        strategy,
        names=tuple(name for name in strategy.names if name != SUMMANDS_WAY),
        needs=tuple(map(rest, strategy.needs)),
        gives=tuple(map(rest, strategy.gives)),
    )
    other = replace(other, reducer="sum" if any(PARTIAL in layouts for layouts in other.gives) else "")
    return strategy_fault(signature, other, rest(factors), once=False, halo=halo) if other.names else ""


class _StrategyCheck:
    """One strategy, and what its description reads."""

    def __init__(self, signature: Signature, strategy: OpStrategy, factors: Shape, rows: Rows) -> None:
        self.signature, self.strategy, self.factors, self.rows = signature, strategy, factors, rows
        self.reads = [read for _, value in rows for read in value.reads]
        self.extents: dict[str, int] = {}
        """Number of values of each variable: the extent of an output's dimension, or of one that it indexes alone."""
        for (names, _), (shape, _) in zip(rows, signature.outputs, strict=False):
            self.extents |= {name: extent for name, extent in zip(names, shape or (), strict=False) if extent}
        for read in self.reads:
            for index, extent in zip(read.at, signature.inputs[read.tensor].shape or (), strict=True):
                if index is not None and not index.offset and [c for _, c in index.terms] == [1]:
                    self.extents.setdefault(index.terms[0][0], extent)

    def fault(self, cut: set[str]) -> str:
        for name in sorted(cut):
            if name not in self.extents or not self._steps(name):
                return f"its variable {name} cannot be cut so"
        # Inputs first: reads and windows are only of inputs whose parts are of one size.
        return self._output_fault() or next(self._input_faults(), "") or next(self._read_faults(), "")

    def _cuts(self, name: str) -> tuple[bool, ...]:
        return tuple(each == name for each in self.strategy.names)

    def _steps(self, name: str) -> tuple[int, ...]:
        return _steps(self.extents[name], self._cuts(name), self.factors)

    def _output_fault(self) -> str:
        """Describe the first output whose layout or reduction differs from the strategy's; empty if none does."""
        strategy, reducers = self.strategy, set()
        rows = self.rows or tuple((((), Value())) for _ in strategy.gives)
        for number, (names, value) in enumerate(rows):
            gives: list[int] = []
            empty = number < len(strategy.gives) and 0 in (self.signature.outputs[number][0] or ())
            for name in strategy.names:
                if name == WHOLE_WAY or empty:
                    gives.append(WHOLE)
                elif name not in value.opaque and name in names:
                    gives.append(names.index(name))
                elif name not in value.opaque and name in value.reduced:
                    gives.append(PARTIAL)
            if len(gives) < len(strategy.names) or (number >= len(strategy.gives) and PARTIAL in gives):
                return f"output {number} cannot be made of parts"
            if number < len(strategy.gives) and tuple(gives) != strategy.gives[number]:
                return f"output {number} comes as {gives}, not as {list(strategy.gives[number])}"
            if PARTIAL in gives:
                reducers.add(value.reducer)
        claimed = {_MEAN if strategy.scaled else strategy.reducer} - {""}
        return "" if reducers == claimed else f"parts are reduced by {', '.join(sorted(reducers)) or 'nothing'}"

    def _input_faults(self) -> Iterator[str]:
        """Yield faults of inputs that are needed but not read, or whose parts differ in size."""
        read = {read.tensor for read in self.reads}
        for number, (operand, needs) in enumerate(zip(self.signature.inputs, self.strategy.needs, strict=True)):
            if number not in read and set(needs) != {WHOLE}:
                yield f"input {number} is needed cut, and not read"
            shape, rims = operand.shape or (), self._rims(number)
            even = all(
                _steps(extent, tuple(at == d for at in needs), self.factors)
                for d, extent in enumerate(shape)
                if d not in rims
            )
            if not even or not {*needs} <= {WHOLE, *range(len(shape))}:
                yield f"input {number} cannot lie as {list(needs)}"

    def _rims(self, number: int) -> dict[int, Rim]:
        """Map dimensions to the rims of an input's parts."""
        return {rim.dimension: rim for rim in self.strategy.rims[number]} if self.strategy.rims else {}

    def _read_faults(self) -> Iterator[str]:
        """Yield faults of elements read outside the parts, then of windows, worker by worker."""
        for read in self.reads:
            needs, shape = self.strategy.needs[read.tensor], self.signature.inputs[read.tensor].shape or ()
            for d, (index, extent) in enumerate(zip(read.at, shape, strict=True)):
                if d in self._rims(read.tensor):
                    continue
                steps = _steps(extent, tuple(at == d for at in needs), self.factors)
                shifts: list[Fraction | int] = [0] * len(self.factors)
                for name, times in index.terms if index is not None else ():
                    if name in self.strategy.names:
                        moves = self._steps(name)[1:]
                        shifts = [was + times * move for was, move in zip(shifts, moves, strict=True)]
                if tuple(shifts) != steps[1:]:
                    yield (
                        f"input {read.tensor} is needed as {list(needs)}, and its parts do not move so along "
                        f"dimension {d}"
                    )
                elif index is not None and not self._is_within(index, steps[0], read, cut=any(steps[1:])):
                    yield f"what a part reads of input {read.tensor} is not in {list(needs)}, along dimension {d}"
        for number, operand in enumerate(self.signature.inputs):
            reads, shape = [read for read in self.reads if read.tensor == number], operand.shape or ()
            spaced = any(read.spaced for read in reads)
            for d in self._rims(number):
                parts = needed_parts(shape, self.strategy.needs[number], self.strategy.rims[number], self.factors)
                for worker, part in enumerate(parts):
                    spans = [self._span(read.at[d], worker, spaced=spaced) for read in reads]
                    low, high = min(a for a, _ in spans), max(b for _, b in spans)
                    mine = range(max(low, 0), min(high + 1, shape[d]))
                    if part is None or not mine or part[d] != mine:
                        yield f"what a part reads of input {number} is not its window along dimension {d}"

    def _is_within(self, index: Index, size: int, read: ElementRead, *, cut: bool) -> bool:
        """Return True if the first worker reads elements of its part alone; with zeros around all of it, any."""
        if not cut and (read.padded or any(name not in self.extents for name, _ in index.terms)):
            return True
        low = high = index.offset
        for name, times in index.terms:
            if name not in self.extents:
                return False
            last = times * (self._steps(name)[0] - 1)
            low, high = low + min(last, Fraction(0)), high + max(last, Fraction(0))
        return (math.ceil(low) if read.spaced else math.floor(low)) >= 0 and math.floor(high) < size

    def _span(self, index: Index | None, worker: int, *, spaced: bool) -> tuple[int, int]:
        """Return the first and the last element that a worker reads, the tensor's borders aside."""
        if index is None or any(name not in self.extents for name, _ in index.terms):
            return 0, -1
        low = high = index.offset
        for name, times in index.terms:
            many = self._steps(name)[0]
            begin = part_number(worker, self._cuts(name), self.factors) * many
            ends = times * begin, times * (begin + many - 1)
            low, high = low + min(ends), high + max(ends)
        return math.ceil(low) if spaced else math.floor(low), math.floor(high)


def _steps(extent: int, cut: tuple[bool, ...], factors: Shape) -> tuple[int, ...]:
    """Return the extent left by the cuts, and the shift of a part by each, 0 for none; empty if one is uneven."""
    moves = []
    for here, k in zip(cut, factors, strict=True):
        if here and (extent % k or not extent):
            return ()
        extent //= k if here else 1
        moves.append(extent if here else 0)
    return (extent, *moves)
