"""How an op can be divided: which index variables can be cut, and which part of each input a part of the work reads.

Case 1 (Tofu, section 3.2) cuts an output's variable, and the parts are put together; case 2 one that the outermost
operation reduces over, and they are reduced. A part must be the op itself on parts of its inputs: with v cut in k
parts, the index of each dimension of each input must not depend on v, or move by just a k-th of the dimension from part
to part, and stay within it. What is not exact is refused with its reason: windows that overlap, strides, shifts.

With a halo a part may also read what its neighbours have: of the dimension a window that moves by a whole number of
elements from part to part, the same for all, by at least half of its length.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pesto.split.layouts import PARTIAL, WHOLE, Layout, Refusal, Rim, Strategies, Strategy
from pesto.split.signature import Signature
from pesto.split.tdl import Description, ElementRead, Index, Value, trace


class ReadsBeyondError(Exception):
    """A description that reads elements that its input does not have."""


Traced = Sequence[tuple[tuple[str, ...], Value]]


@dataclass(frozen=True, slots=True)
class _DivisionRequest:
    """An op that is to be cut in k parts."""

    k: int
    traced: Traced
    extents: Mapping[str, int]
    signature: Signature
    halo: bool


@dataclass(frozen=True, slots=True)
class _InputCut:
    """How an input must be cut for a read of it."""

    layout: Layout
    windows: bool = False
    """True if parts are not shares."""
    read: Rim | None = None
    """Window that each part reads, where a halo is allowed."""

    @property
    def rim(self) -> Rim | None:
        """The window of each part, where it is not its share."""
        return self.read if self.windows else None


def analyse(description: Description, signature: Signature, k: int, *, halo: bool = False) -> Strategies:
    """Every way to divide an op among k workers by its description; NotDescribedError where it says nothing of it.

    halo: whether parts may read what their neighbours have, too.
    """
    if signature.outputs and all(0 in (shape or ()) for shape, _ in signature.outputs):
        return Strategies((), (Refusal("*", "it makes no elements"),))
    traced = trace(description, signature, halo=halo)
    extents = _extents(traced, signature)
    # ReadsBeyondError where an index leaves its dimension, of variables whose extents are known.
    for read in (read for _, value in traced for read in value.reads if not read.padded):
        for d, (index, extent) in enumerate(zip(read.at, signature.inputs[read.tensor].shape or (), strict=True)):
            if index is None or any(name not in extents for name, _ in index.terms):
                continue
            low, high = _range(index, extents, spaced=read.spaced)
            if low < 0 or high >= extent:
                span = f"{low} to {high}"
                raise ReadsBeyondError(f"input {read.tensor}, dimension {d} of {extent}: it reads {span}")
    asked = _DivisionRequest(k, traced, extents, signature, halo)
    made = [_cut(name, asked) for name in _variables(traced)]
    return Strategies(
        tuple(each for each in made if isinstance(each, Strategy)),
        tuple(each for each in made if isinstance(each, Refusal)),
    )


def _variables(traced: Traced) -> list[str]:
    """Index variables of the outputs, then of the outermost reductions; each once."""
    cut = [name for variables, _ in traced for name in variables]
    return list(dict.fromkeys([*cut, *(name for _, value in traced for name in value.reduced)]))


def _extents(traced: Traced, signature: Signature) -> dict[str, int]:
    """How many values each variable takes: of outputs' by their shapes, of others by a dimension that is theirs.

    Variables of dimensions without elements are left out: nothing reads along them, and they cannot be cut.
    """
    result: dict[str, int] = {}
    for (variables, _), (shape, _) in zip(traced, signature.outputs, strict=False):
        result.update((name, extent) for name, extent in zip(variables, shape or (), strict=True) if extent)
    for _, value in traced:
        for read in value.reads:
            shape = signature.inputs[read.tensor].shape or ()
            for index, extent in zip(read.at, shape, strict=True):
                if (
                    extent
                    and index is not None
                    and len(index.terms) == 1
                    and index.terms[0][1] == 1
                    and not index.offset
                ):
                    result.setdefault(index.terms[0][0], extent)
    return result


def _range(index: Index, extents: Mapping[str, int], *, spaced: bool) -> tuple[int, int]:
    """The first and the last element at an index, rounded down; of spaced ones the whole between both ends."""
    last = [c * (extents[variable] - 1) for variable, c in index.terms]
    low = sum((min(each, Fraction(0)) for each in last), index.offset)
    high = sum((max(each, Fraction(0)) for each in last), index.offset)
    return math.ceil(low) if spaced else math.floor(low), math.floor(high)


def _cut(name: str, request: _DivisionRequest) -> Strategy | Refusal:
    """One variable in k parts."""
    k, extents, signature = request.k, request.extents, request.signature
    if name not in extents:
        return Refusal(name, "nothing says how many values it takes")
    if extents[name] % k or extents[name] < k:
        return Refusal(name, f"{k} does not divide {extents[name]}")
    made = [_given(name, signature, number, *output) for number, output in enumerate(request.traced)]
    kinds = {value.reducer for (_, value), layout in zip(request.traced, made, strict=True) if layout == PARTIAL}
    why = next((layout for layout in made if isinstance(layout, str)), "")
    if len(kinds) > 1:
        why = f"outputs are reduced in several ways: {', '.join(sorted(kinds))}"
    needs = why or _needs(name, request)
    if isinstance(needs, str):
        return Refusal(name, needs)
    kind = next(iter(kinds), "")
    gives = tuple(layout for layout in made[: len(signature.outputs)] if not isinstance(layout, str))
    rims = tuple(() if lies.rim is None else (lies.rim,) for lies in needs)
    return Strategy(
        name, tuple(lies.layout for lies in needs), gives, "sum" if kind == "mean" else kind, kind == "mean",
        rims if any(rims) else (),
    )  # fmt: skip


def _given(name: str, signature: Signature, number: int, variables: tuple[str, ...], value: Value) -> Layout | str:
    """The layout in which an output comes, or why it does not."""
    if number < len(signature.outputs) and 0 in (signature.outputs[number][0] or ()):
        return WHOLE
    if name in value.opaque:
        return "it picks from what an opaque function returns: each part would compute all of that"
    if name in variables:
        return variables.index(name)
    return PARTIAL if name in value.reduced else "an output does not have it"


def _needs(name: str, request: _DivisionRequest) -> tuple[_InputCut, ...] | str:
    """How each input must be cut, or why there is no way."""
    result: dict[int, _InputCut] = {}
    for _, value in request.traced:
        for read in value.reads:
            lies = _lies(read, name, request)
            if not isinstance(lies, str):
                lies = _both(result.get(read.tensor, lies), lies, read.tensor)
            if isinstance(lies, str):
                return lies
            result[read.tensor] = lies
    far = (_too_far(lies.rim, number, request) for number, lies in sorted(result.items()) if lies.rim is not None)
    return next(filter(None, far), "") or tuple(
        result.get(number, _InputCut(WHOLE)) for number in range(len(request.signature.inputs))
    )


def _both(one: _InputCut, other: _InputCut, number: int) -> _InputCut | str:
    """Layout that serves two reads of one input: shares, or the window around both."""
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


def _lies(read: ElementRead, name: str, request: _DivisionRequest) -> _InputCut | str:
    """How an input must be cut for one read, or why it cannot be."""
    cut = []
    for d, (index, extent) in enumerate(zip(read.at, request.signature.inputs[read.tensor].shape or (), strict=True)):
        if index is None or name not in dict(index.terms):
            continue
        why = no_share = _why_not(index, extent, name, read, request)
        rim = Rim(d, 0, 0, 0)
        if request.halo:
            no_window, rim = _window(rim, index, name, read, request)
            why = no_share and no_window
        if why:
            return f"input {read.tensor}, dimension {d}: {why}"
        cut.append(_InputCut(d, bool(no_share), rim if rim.step else None))
    if len(cut) > 1:
        return f"input {read.tensor} would be cut along two dimensions"
    return cut[0] if cut else _InputCut(WHOLE)


def _why_not(index: Index, extent: int, name: str, read: ElementRead, request: _DivisionRequest) -> str:
    """Why a dimension cannot be cut with the variable; empty where it can."""
    times, k, extents = dict(index.terms)[name], request.k, request.extents
    if extent % k:
        return f"{k} does not divide {extent}"
    if times * extents[name] != extent:
        return "parts are not of one size with those of the variable, or shifted"
    unknown = [variable for variable, _ in index.terms if variable not in extents]
    if unknown:
        return f"nothing says how many values {unknown[0]} takes"
    low, high = _range(index, {**extents, name: extents[name] // k}, spaced=read.spaced)
    if low < 0 or high >= extent // k:
        return "parts overlap: each reads beyond its own (a window)"
    return ""


def _window(of: Rim, index: Index, name: str, read: ElementRead, request: _DivisionRequest) -> tuple[str, Rim]:
    """Why parts of a dimension cannot be windows, empty where they can; and the window of each."""
    k, extents = request.k, request.extents
    unknown = [variable for variable, _ in index.terms if variable not in extents]
    if unknown:
        return f"nothing says how many values {unknown[0]} takes", of
    step = dict(index.terms)[name] * (extents[name] // k)
    if step.denominator != 1 or step < 1:
        return "windows of parts are not of one size", of
    low, high = _range(index, {**extents, name: extents[name] // k}, spaced=read.spaced)
    return "", of._replace(step=int(step), low=low, size=high - low + 1)


def _too_far(rim: Rim, number: int, request: _DivisionRequest) -> str:
    """Why windows of an input cannot be had from a part and its neighbours; empty where they can."""
    where, extent = f"input {number}, dimension {rim.dimension}", (request.signature.inputs[number].shape or ())
    if rim.size > 2 * rim.step:
        return f"{where}: windows of {rim.size} move by {rim.step} alone from part to part: they would share most"
    beyond = rim.low + rim.size <= 0 or rim.step * (request.k - 1) + rim.low >= extent[rim.dimension]
    return f"{where}: a part would read nothing but what lies beyond it" if beyond or rim.size < 1 else ""
