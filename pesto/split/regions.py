"""How an op can be divided: which index variables can be cut, and which part of each input a part of the work reads.

Case 1 (Tofu, section 3.2) cuts an output's variable, and the parts are put together; case 2 one that the outermost
operation reduces over, and they are reduced. A part must be the op itself on parts of its inputs: with v cut in k
parts, the index of each dimension of each input must not depend on v, or move by just a k-th of the dimension from part
to part, and stay within it. What is not exact is refused with its reason: windows that overlap, strides, shifts.

With a halo a part may also read what its neighbours have: along a dimension a window that moves by a whole number of
elements from part to part, the same for all, by at least half of its length.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pesto.split.geometry import PARTIAL, WHOLE, Layout, Rim, Rims
from pesto.split.tdl import Description, ElementRead, Index, Value, trace
from pesto.split.typed_graph import Signature


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to divide an op among k workers: partition-n-reduce with the op's own kernel (Tofu, section 2.1)."""

    name: str
    """The index variable that is cut, such as b, co or ci; "whole" where none is."""
    needs: tuple[Layout, ...]
    """The layout that each data input must have."""
    gives: tuple[Layout, ...]
    """The layout in which each output comes."""
    reducer: str = ""
    """Reduction that combines PARTIAL results: sum, max, min or prod; empty without them."""
    scaled: bool = False
    """True if the parts are means, which add up to k times the mean of all."""
    rims: tuple[Rims, ...] = ()
    """Rims of each data input whose parts read beyond their shares; empty if none does."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An index variable that cannot be cut, and why."""

    variable: str
    reason: str


@dataclass(frozen=True, slots=True)
class Strategies:
    """Every way to divide an op, and why there are no others."""

    admitted: tuple[Strategy, ...]
    refused: tuple[Refusal, ...]


class ReadsBeyondError(Exception):
    """A description that reads elements that its input does not have."""


@dataclass(frozen=True, slots=True)
class _DivisionRequest:
    """An op that is to be cut in k parts."""

    k: int
    traced: Sequence[tuple[tuple[str, ...], Value]]
    extents: Mapping[str, int]
    signature: Signature
    halo: bool

    def part_range(self, index: Index, name: str, *, spaced: bool) -> tuple[int, int]:
        """Return the first and the last element at an index in the first part of a variable."""
        return _range(index, {**self.extents, name: self.extents[name] // self.k}, spaced=spaced)


@dataclass(frozen=True, slots=True)
class _InputCut:
    """A cut of an input that serves a read of it."""

    layout: Layout
    windows: bool = False
    """True if parts are not shares."""
    read: Rim | None = None
    """Window that each part reads, where a halo is allowed."""

    @property
    def rim(self) -> Rim | None:
        return self.read if self.windows else None


def analyse(description: Description, signature: Signature, k: int, *, halo: bool = False) -> Strategies:
    """Return every way to divide an op among k workers by its description; with `halo` parts may be windows.

    Raise NotDescribedError if the description says nothing of the op, ReadsBeyondError if an index leaves its
    dimension.
    """
    if signature.outputs and all(0 in (shape or ()) for shape, _ in signature.outputs):
        return Strategies((), (Refusal("*", "it makes no elements"),))
    traced = trace(description, signature, halo=halo)
    # The values that each variable takes: of outputs' by their shapes, of others by a dimension that is theirs.
    # Variables of dimensions without elements are left out: nothing reads along them, and they cannot be cut.
    extents: dict[str, int] = {}
    for (variables, _), (shape, _) in zip(traced, signature.outputs, strict=False):
        extents.update((name, extent) for name, extent in zip(variables, shape or (), strict=True) if extent)
    reads = [read for _, value in traced for read in value.reads]
    for read in reads:
        for index, extent in zip(read.at, signature.inputs[read.tensor].shape or (), strict=True):
            if extent and index is not None and [times for _, times in index.terms] == [1] and not index.offset:
                extents.setdefault(index.terms[0][0], extent)
    for read in (read for read in reads if not read.padded):
        for d, (index, extent) in enumerate(zip(read.at, signature.inputs[read.tensor].shape or (), strict=True)):
            if index is None or any(name not in extents for name, _ in index.terms):
                continue
            low, high = _range(index, extents, spaced=read.spaced)
            if low < 0 or high >= extent:
                raise ReadsBeyondError(f"input {read.tensor}, dimension {d} of {extent}: it reads {low} to {high}")
    request = _DivisionRequest(k, traced, extents, signature, halo)
    outputs = [name for variables, _ in traced for name in variables]
    names = dict.fromkeys([*outputs, *(name for _, value in traced for name in value.reduced)])
    result = [_cut(name, request) for name in names]
    return Strategies(
        tuple(each for each in result if isinstance(each, Strategy)),
        tuple(each for each in result if isinstance(each, Refusal)),
    )


def _range(index: Index, extents: Mapping[str, int], *, spaced: bool) -> tuple[int, int]:
    """Return the first and the last element at an index, rounded down; if spaced, those between both ends."""
    last = [c * (extents[variable] - 1) for variable, c in index.terms]
    low = sum((min(each, Fraction(0)) for each in last), index.offset)
    high = sum((max(each, Fraction(0)) for each in last), index.offset)
    return math.ceil(low) if spaced else math.floor(low), math.floor(high)


def _cut(name: str, request: _DivisionRequest) -> Strategy | Refusal:
    """Return the strategy that cuts one variable in k parts, or why there is none."""
    k, extents, signature = request.k, request.extents, request.signature
    if name not in extents:
        return Refusal(name, "nothing says how many values it takes")
    if extents[name] % k or extents[name] < k:
        return Refusal(name, f"{k} does not divide {extents[name]}")
    given: list[Layout] = []
    kinds, why = set[str](), ""
    for number, (variables, value) in enumerate(request.traced):
        if number < len(signature.outputs) and 0 in (signature.outputs[number][0] or ()):
            given.append(WHOLE)
        elif name in value.opaque:
            why = why or "it picks from what an opaque function returns: each part would compute all of that"
        elif name in variables:
            given.append(variables.index(name))
        elif name in value.reduced:
            given.append(PARTIAL)
            kinds.add(value.reducer)
        else:
            why = why or "an output does not have it"
    if len(kinds) > 1:
        why = f"outputs are reduced in several ways: {', '.join(sorted(kinds))}"
    needs = why or _needs(name, request)
    if isinstance(needs, str):
        return Refusal(name, needs)
    kind = next(iter(kinds), "")
    rims = tuple(() if need.rim is None else (need.rim,) for need in needs)
    return Strategy(
        name, tuple(need.layout for need in needs), tuple(given[: len(signature.outputs)]),
        "sum" if kind == "mean" else kind, kind == "mean", rims if any(rims) else (),
    )  # fmt: skip


def _needs(name: str, request: _DivisionRequest) -> tuple[_InputCut, ...] | str:
    """Return how each input must be cut, or why there is no way."""
    result: dict[int, _InputCut] = {}
    for read in (read for _, value in request.traced for read in value.reads):
        need = _input_cut(read, name, request)
        if not isinstance(need, str) and read.tensor in result:
            need = _joined(result[read.tensor], need, read.tensor)
        if isinstance(need, str):
            return need
        result[read.tensor] = need
    for number, need in sorted(result.items()):
        rim, where = need.rim, f"input {number}, dimension {need.layout}"
        if rim is None:
            continue
        if rim.size > 2 * rim.step:
            return f"{where}: windows of {rim.size} move by {rim.step} alone from part to part: they would share most"
        extent = (request.signature.inputs[number].shape or ())[rim.dimension]
        if rim.low + rim.size <= 0 or rim.step * (request.k - 1) + rim.low >= extent or rim.size < 1:
            return f"{where}: a part would read nothing but what lies beyond it"
    return tuple(result.get(number, _InputCut(WHOLE)) for number in range(len(request.signature.inputs)))


def _joined(one: _InputCut, other: _InputCut, number: int) -> _InputCut | str:
    """Return the cut that serves two reads of one input: shares, or the window around both."""
    if one.layout != other.layout:
        return f"input {number} is read in two ways"
    if one.read is None or other.read is None:
        return one
    windows = one.windows or other.windows
    if windows and one.read.step != other.read.step:
        return f"input {number} is read in two ways"
    low = min(one.read.low, other.read.low)
    high = max(one.read.low + one.read.size, other.read.low + other.read.size)
    return _InputCut(one.layout, windows, one.read._replace(low=low, size=high - low))


def _input_cut(read: ElementRead, name: str, request: _DivisionRequest) -> _InputCut | str:
    """Return how an input must be cut for one read, or why it cannot be."""
    cut = []
    for d, (index, extent) in enumerate(zip(read.at, request.signature.inputs[read.tensor].shape or (), strict=True)):
        if index is None or name not in dict(index.terms):
            continue
        why = no_share = _share_fault(index, extent, name, read, request)
        rim: Rim | None = None
        if request.halo:
            window = _window(d, index, name, read, request)
            if isinstance(window, Rim):
                why, rim = "", window
            else:
                why = no_share and window
        if why:
            return f"input {read.tensor}, dimension {d}: {why}"
        cut.append(_InputCut(d, bool(no_share), rim))
    if len(cut) > 1:
        return f"input {read.tensor} would be cut along two dimensions"
    return cut[0] if cut else _InputCut(WHOLE)


def _share_fault(index: Index, extent: int, name: str, read: ElementRead, request: _DivisionRequest) -> str:
    """Return why a dimension cannot be cut in shares with the variable; empty if it can."""
    times, k, extents = dict(index.terms)[name], request.k, request.extents
    if extent % k:
        return f"{k} does not divide {extent}"
    if times * extents[name] != extent:
        return "parts are not of one size with those of the variable, or shifted"
    unknown = [variable for variable, _ in index.terms if variable not in extents]
    if unknown:
        return f"nothing says how many values {unknown[0]} takes"
    low, high = request.part_range(index, name, spaced=read.spaced)
    return "parts overlap: each reads beyond its own (a window)" if low < 0 or high >= extent // k else ""


def _window(d: int, index: Index, name: str, read: ElementRead, request: _DivisionRequest) -> Rim | str:
    """Return the window of each part along a dimension, or why parts cannot be windows."""
    unknown = [variable for variable, _ in index.terms if variable not in request.extents]
    if unknown:
        return f"nothing says how many values {unknown[0]} takes"
    step = dict(index.terms)[name] * (request.extents[name] // request.k)
    if step.denominator != 1 or step < 1:
        return "windows of parts are not of one size"
    low, high = request.part_range(index, name, spaced=read.spaced)
    return Rim(d, int(step), low, high - low + 1)
