"""How an op can be divided: which index variables can be cut, and which part of each input a part of the work reads.

Case 1 (Tofu, section 3.2) cuts an output's variable, and the parts are put together; case 2 one that the outermost
operation reduces over, and they are reduced. A part must be the op itself on parts of its inputs: with v cut in k
parts, the index of each dimension of each input must not depend on v, or move by just a k-th of the dimension from part
to part, and stay within it. What is not exact is refused with its reason: windows that overlap, strides, shifts.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from pesto.split.layouts import PARTIAL, WHOLE, Layout, Refusal, Strategies, Strategy
from pesto.split.signature import Signature
from pesto.split.tdl import Description, Index, Read, Value, trace


class ReadsBeyondError(Exception):
    """A description that reads elements that its input does not have."""


Traced = Sequence[tuple[tuple[str, ...], Value]]


def analyse(description: Description, signature: Signature, k: int) -> Strategies:
    """Every way to divide an op among k workers by its description; NotDescribedError where it says nothing of it."""
    traced = trace(description, signature)
    extents = _extents(traced, signature)
    _within(traced, extents, signature)
    made = [_cut(name, k, traced, extents, signature) for name in _variables(traced)]
    return Strategies(
        tuple(each for each in made if isinstance(each, Strategy)),
        tuple(each for each in made if isinstance(each, Refusal)),
    )


def _variables(traced: Traced) -> list[str]:
    """Of outputs, then of outermost reductions; each once."""
    cut = [name for variables, _ in traced for name in variables]
    return list(dict.fromkeys([*cut, *(name for _, value in traced for name in value.reduced)]))


def _extents(traced: Traced, signature: Signature) -> dict[str, int]:
    """How many values each variable takes: of outputs' by their shapes, of others by a dimension that is theirs."""
    found: dict[str, int] = {}
    for (variables, _), (shape, _) in zip(traced, signature.outputs, strict=False):
        found.update((name, extent) for name, extent in zip(variables, shape or (), strict=True) if extent)
    for _, value in traced:
        for read in value.reads:
            shape = signature.inputs[read.tensor].shape or ()
            for index, extent in zip(read.at, shape, strict=True):
                if index is not None and len(index.terms) == 1 and index.terms[0][1] == 1 and not index.offset:
                    found.setdefault(index.terms[0][0], extent)
    return found


def _within(traced: Traced, extents: Mapping[str, int], signature: Signature) -> None:
    """ReadsBeyondError where an index leaves its dimension, of variables whose extents are known."""
    for read in (read for _, value in traced for read in value.reads if not read.padded):
        for d, (index, extent) in enumerate(zip(read.at, signature.inputs[read.tensor].shape or (), strict=True)):
            if index is None or any(name not in extents for name, _ in index.terms):
                continue
            low, high = _range(index, extents)
            if low < 0 or math.floor(high) >= extent:
                span = f"{math.floor(low)} to {math.floor(high)}"
                raise ReadsBeyondError(f"input {read.tensor}, dimension {d} of {extent}: it reads {span}")


def _range(index: Index, extents: Mapping[str, int]) -> tuple[Fraction, Fraction]:
    """The least and the greatest value of an index."""
    last = [c * (extents[variable] - 1) for variable, c in index.terms]
    low = sum((min(each, Fraction(0)) for each in last), index.offset)
    return low, sum((max(each, Fraction(0)) for each in last), index.offset)


def _cut(name: str, k: int, traced: Traced, extents: Mapping[str, int], signature: Signature) -> Strategy | Refusal:
    """One variable in k parts."""
    if name not in extents:
        return Refusal(name, "nothing says how many values it takes")
    if extents[name] % k or extents[name] < k:
        return Refusal(name, f"{k} does not divide {extents[name]}")
    made = [_given(name, signature, number, *output) for number, output in enumerate(traced)]
    kinds = {value.reducer for (_, value), layout in zip(traced, made, strict=True) if layout == PARTIAL}
    why = next((layout for layout in made if isinstance(layout, str)), "")
    if len(kinds) > 1:
        why = f"outputs are reduced in several ways: {', '.join(sorted(kinds))}"
    needs = why or _needs(name, k, traced, extents, signature)
    if isinstance(needs, str):
        return Refusal(name, needs)
    kind = next(iter(kinds), "")
    gives = tuple(layout for layout in made[: len(signature.outputs)] if not isinstance(layout, str))
    return Strategy(name, needs, gives, "sum" if kind == "mean" else kind, kind == "mean")


def _given(name: str, signature: Signature, number: int, variables: tuple[str, ...], value: Value) -> Layout | str:
    """The layout in which an output comes, or why it does not."""
    if number < len(signature.outputs) and 0 in (signature.outputs[number][0] or ()):
        return WHOLE
    if name in value.opaque:
        return "it picks from what an opaque function returns: each part would compute all of that"
    if name in variables:
        return variables.index(name)
    return PARTIAL if name in value.reduced else "an output does not have it"


def _needs(
    name: str, k: int, traced: Traced, extents: Mapping[str, int], signature: Signature
) -> tuple[Layout, ...] | str:
    """The layout that each input must have, or why there is none."""
    found: dict[int, Layout] = {}
    for _, value in traced:
        for read in value.reads:
            layout = _layout(read, name, k, extents, signature)
            if isinstance(layout, str):
                return layout
            if found.setdefault(read.tensor, layout) != layout:
                return f"input {read.tensor} is read in two ways"
    return tuple(found.get(number, WHOLE) for number in range(len(signature.inputs)))


def _layout(read: Read, name: str, k: int, extents: Mapping[str, int], signature: Signature) -> Layout | str:
    cut = []
    for d, (index, extent) in enumerate(zip(read.at, signature.inputs[read.tensor].shape or (), strict=True)):
        if index is None or name not in dict(index.terms):
            continue
        why = _why_not(index, extent, name, k, extents)
        if why:
            return f"input {read.tensor}, dimension {d}: {why}"
        cut.append(d)
    if len(cut) > 1:
        return f"input {read.tensor} would be cut along two dimensions"
    return cut[0] if cut else WHOLE


def _why_not(index: Index, extent: int, name: str, k: int, extents: Mapping[str, int]) -> str:
    """Why a dimension cannot be cut with the variable; empty where it can."""
    times = dict(index.terms)[name]
    if extent % k:
        return f"{k} does not divide {extent}"
    if times * extents[name] != extent:
        return "parts are not of one size with those of the variable, or shifted"
    unknown = [variable for variable, _ in index.terms if variable not in extents]
    if unknown:
        return f"nothing says how many values {unknown[0]} takes"
    low, high = _range(index, {**extents, name: extents[name] // k})
    if low < 0 or math.floor(high) >= extent // k:
        return "parts overlap: each reads beyond its own (a window)"
    return ""
