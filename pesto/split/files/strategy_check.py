"""A way of an op held against its description, worker by worker: the ranges that it reads, and nothing of the search.

With an index variable cut, part p of it begins at p times its size. What a worker reads of an input must lie within the
part that its way needs, and at the same place of that part on every worker, so that its kernel computes just its part.
A window is just what a worker reads of a dimension, and all of it, up to the border of the tensor.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from pesto.split.files.recount import needed_parts, part_number
from pesto.split.geometry import Shape
from pesto.split.layouts import ONE, PARTIAL, WHOLE, Rim
from pesto.split.op_strategy import ONCE_WAY, WHOLE_WAY, OpStrategy
from pesto.split.ops.op_types import description, reads_windows
from pesto.split.ops.size_faults import layouts_fault
from pesto.split.signature import Signature
from pesto.split.tdl import ElementRead, Index, NotDescribedError, Value, trace

Rows = tuple[tuple[tuple[str, ...], Value], ...]
_MEAN = "mean"


@lru_cache(maxsize=1 << 16)
def strategy_fault(signature: Signature, way: OpStrategy, factors: Shape, *, once: bool, halo: bool = False) -> str:
    """Description of the first fault of an op's strategy; empty if it is valid. halo: whether windows may be read."""
    if len(way.needs) != len(signature.inputs) or len(way.gives) != len(signature.outputs):
        return "it is of another number of inputs or outputs"
    if once or ONCE_WAY in way.names:
        alone = {(ONE,) * len(factors)}
        fine = set(way.names) == {ONCE_WAY} and {*way.needs, *way.gives} <= alone
        return "" if fine else "it must run once" if once else "it runs once, and not in all cuts"
    cut = {name for name in way.names if name != WHOLE_WAY}
    result = description(signature.type)
    if result is None and cut:
        return "its type has no description"
    try:
        windows = halo and reads_windows(signature.type)
        rows = trace(result, signature, halo=windows) if result is not None and cut else ()
    except NotDescribedError as refused:
        return str(refused)
    sizes = layouts_fault(signature, way.needs, way.gives, windows=any(way.rims)) if cut else ""
    if way.rims and not windows:
        sizes = "it reads windows, which were not asked for, or which its kernel cannot run on"
    return sizes or _StrategyCheck(signature, way, factors, rows).fault(cut)


class _StrategyCheck:
    """One way, and what its description reads."""

    def __init__(self, signature: Signature, way: OpStrategy, factors: Shape, rows: Rows) -> None:
        self.signature, self.way, self.factors, self.rows = signature, way, factors, rows
        # How many values each variable takes: those of an output's dimension, or of one that it indexes alone.
        result: dict[str, int] = {}
        for (names, _), (shape, _) in zip(self.rows, self.signature.outputs, strict=False):
            result |= {name: extent for name, extent in zip(names, shape or (), strict=False) if extent}
        for read in self._reads():
            for index, extent in zip(read.at, self.signature.inputs[read.tensor].shape or (), strict=True):
                if index is not None and not index.offset and [c for _, c in index.terms] == [1]:
                    result.setdefault(index.terms[0][0], extent)
        self.extents = result

    def _reads(self) -> list[ElementRead]:
        return [read for _, value in self.rows for read in value.reads]

    def fault(self, cut: set[str]) -> str:
        """The first thing that is wrong."""
        for name in sorted(cut):
            if name not in self.extents or not _steps(self.extents[name], self._cuts(name), self.factors):
                return f"its variable {name} cannot be cut so"
        faults = filter(None, map(self._read, self._reads()))
        return self._outputs() or self._inputs() or next(faults, "") or next(filter(None, self._windows()), "")

    def _cuts(self, name: str) -> tuple[bool, ...]:
        return tuple(each == name for each in self.way.names)

    def _outputs(self) -> str:
        """Describe the first output whose layout or reduction differs from the strategy's; empty if none does."""
        reducers, rows = set(), self.rows or tuple((((), Value())) for _ in self.way.gives)
        for number, (names, value) in enumerate(rows):
            gives = tuple(self._given(name, number, names, value) for name in self.way.names)
            if None in gives or (number >= len(self.way.gives) and PARTIAL in gives):
                return f"output {number} cannot be made of parts"
            if number < len(self.way.gives) and gives != self.way.gives[number]:
                return f"output {number} comes as {list(gives)}, not as {list(self.way.gives[number])}"
            if PARTIAL in gives:
                reducers.add(value.reducer)
        said = {_MEAN if self.way.scaled else self.way.reducer} - {""}
        return "" if reducers == said else f"parts are reduced by {', '.join(sorted(reducers)) or 'nothing'}"

    def _given(self, name: str, number: int, names: tuple[str, ...], value: Value) -> int | None:
        if name == WHOLE_WAY or (number < len(self.way.gives) and 0 in (self.signature.outputs[number][0] or ())):
            return WHOLE
        if name in value.opaque:
            return None
        if name in names:
            return names.index(name)
        return PARTIAL if name in value.reduced else None

    def _inputs(self) -> str:
        """Describe the first input that is needed but not read, or whose parts differ in size; empty if none does."""
        read = {read.tensor for read in self._reads()}
        for number, (operand, needs) in enumerate(zip(self.signature.inputs, self.way.needs, strict=True)):
            if number not in read and set(needs) != {WHOLE}:
                return f"input {number} is needed cut, and not read"
            dimensions, rims = range(len(operand.shape or ())), self._rims(number)
            sizes = [
                _steps((operand.shape or ())[d], tuple(at == d for at in needs), self.factors)
                for d in dimensions
                if d not in rims
            ]
            if not all(sizes) or not {*needs} <= {WHOLE, *dimensions}:
                return f"input {number} cannot lie as {list(needs)}"
        return ""

    def _read(self, read: ElementRead) -> str:
        needs, shape = self.way.needs[read.tensor], self.signature.inputs[read.tensor].shape or ()
        for d, (index, extent) in enumerate(zip(read.at, shape, strict=True)):
            if d in self._rims(read.tensor):
                continue
            steps = _steps(extent, tuple(at == d for at in needs), self.factors)
            if self._shifts(index) != steps[1:]:
                return (
                    f"input {read.tensor} is needed as {list(needs)}, and its parts do not move so along dimension {d}"
                )
            if index is not None and not self._within(index, steps[0], read, cut=any(steps[1:])):
                return f"what a part reads of input {read.tensor} is not in {list(needs)}, along dimension {d}"
        return ""

    def _shifts(self, index: Index | None) -> tuple[Fraction | int, ...]:
        """How far an index moves from one part to the next, for each cut."""
        result: list[Fraction | int] = [0] * len(self.factors)
        for name, times in index.terms if index is not None else ():
            if name in self.way.names:
                steps = _steps(self.extents[name], self._cuts(name), self.factors)[1:]
                result = [was + times * step for was, step in zip(result, steps, strict=True)]
        return tuple(result)

    def _within(self, index: Index, size: int, read: ElementRead, *, cut: bool) -> bool:
        """Return True if the first worker reads elements of its part alone; with zeros around all of it, any."""
        if not cut and (read.padded or any(name not in self.extents for name, _ in index.terms)):
            return True
        low = high = index.offset
        for name, times in index.terms:
            if name not in self.extents:
                return False
            last = times * (_steps(self.extents[name], self._cuts(name), self.factors)[0] - 1)
            low, high = low + min(last, Fraction(0)), high + max(last, Fraction(0))
        return (math.ceil(low) if read.spaced else math.floor(low)) >= 0 and math.floor(high) < size

    def _rims(self, number: int) -> dict[int, Rim]:
        """Dimension -> the rim of an input's parts."""
        return {rim.dimension: rim for rim in self.way.rims[number]} if self.way.rims else {}

    def _windows(self) -> Iterator[str]:
        """Yield the faults of windows against the elements read, worker by worker."""
        for number, operand in enumerate(self.signature.inputs):
            reads = [read.at for read in self._reads() if read.tensor == number]
            spaced = any(read.spaced for read in self._reads() if read.tensor == number)
            for d in self._rims(number):
                parts = needed_parts(operand.shape or (), self.way.needs[number], self.way.rims[number], self.factors)
                for worker, part in enumerate(parts):
                    read = [self._span(at[d], worker, spaced=spaced) for at in reads]
                    low, high = min(a for a, _ in read), max(b for _, b in read)
                    mine = range(max(low, 0), min(high + 1, (operand.shape or ())[d]))
                    if part is None or not mine or part[d] != mine:
                        yield f"what a part reads of input {number} is not its window along dimension {d}"

    def _span(self, index: Index | None, worker: int, *, spaced: bool) -> tuple[int, int]:
        """The first and the last element that a worker reads, the tensor's borders aside."""
        if index is None or any(name not in self.extents for name, _ in index.terms):
            return 0, -1
        low = high = index.offset
        for name, times in index.terms:
            many = _steps(self.extents[name], self._cuts(name), self.factors)[0]
            begin = part_number(worker, self._cuts(name), self.factors) * many
            ends = times * begin, times * (begin + many - 1)
            low, high = low + min(ends), high + max(ends)
        return math.ceil(low) if spaced else math.floor(low), math.floor(high)


def _steps(extent: int, cut: tuple[bool, ...], factors: Shape) -> tuple[int, ...]:
    """Remaining extent after the cuts, and the shift of a part by each cut, 0 for none; empty if a cut is uneven."""
    moves = []
    for here, k in zip(cut, factors, strict=True):
        if here and (extent % k or not extent):
            return ()
        extent //= k if here else 1
        moves.append(extent if here else 0)
    return (extent, *moves)
