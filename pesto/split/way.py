"""The ways in which each kind of op can be divided by one more cut, after those that are made."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from pesto.split.geometry import Layouts, Shape, divides
from pesto.split.layouts import ONE, WHOLE, Strategy
from pesto.split.ops.op_types import edition, strategies
from pesto.split.signature import Signature

WHOLE_WAY, ONCE_WAY = "whole", "once"
"""Names of the ways that are no cut: every worker does all of it, and the first alone."""


@dataclass(frozen=True, slots=True)
class Way:
    """How an op is divided by all cuts so far, outermost first."""

    names: tuple[str, ...]
    """The index variable that each cut is along; "whole" or "once" where it is along none."""
    needs: tuple[Layouts, ...]
    """The layout of each data input."""
    gives: tuple[Layouts, ...]
    """The layout in which each output comes."""
    reducer: str = ""
    """What makes one of PARTIAL results."""
    scaled: bool = False
    """Whether PARTIAL results are means."""


def ways(signature: Signature, made: Way, factors: Shape, *, whole: bool, once: bool) -> tuple[Way, ...]:
    """How one more cut, the last of `factors`, can be made; `whole` admits none where others exist.

    Without any the op is whole. An op that must run once runs on the first worker alone.
    """
    return _ways(signature, made, factors, (whole, once), edition())


@lru_cache(maxsize=1 << 16)
def _ways(
    signature: Signature, made: Way, factors: Shape, admitted: tuple[bool, bool], of_edition: int
) -> tuple[Way, ...]:
    """The same, kept for one edition of the descriptions."""
    del of_edition
    whole, once = admitted
    if once:
        return (once_way(signature, made),)
    k, found = factors[-1], []
    for strategy in strategies(signature, k).found:
        parts = k * prod(f for name, f in zip(made.names, factors, strict=False) if name == strategy.name)
        again = _again(signature, parts, strategy.name)
        if again is not None and (not made.reducer or not again.reducer or made.reducer == again.reducer):
            way = _extended(made, again.name, again.needs, again.gives, again)
            if _even(signature, way, factors):
                found.append(way)
    if whole or not found:
        found.append(whole_way(signature, made))
    return tuple(found)


def cut_ops(found: Sequence[Way]) -> list[bool]:
    """[n] whether several workers do an op, each its part, by all cuts."""
    whole = {WHOLE_WAY, ONCE_WAY}
    return [bool(way.gives or way.needs) and not whole.intersection(way.names) for way in found]


def whole_way(signature: Signature, made: Way) -> Way:
    """Every worker of a group does all that the group does."""
    return _extended(made, WHOLE_WAY, (WHOLE,) * len(signature.inputs), (WHOLE,) * len(signature.outputs))


def once_way(signature: Signature, made: Way) -> Way:
    """The first worker alone does all of it."""
    return _extended(made, ONCE_WAY, (ONE,) * len(signature.inputs), (ONE,) * len(signature.outputs))


def uncut(signature: Signature) -> Way:
    """The way of an op before any cut."""
    return Way((), ((),) * len(signature.inputs), ((),) * len(signature.outputs))


def _again(signature: Signature, parts: int, name: str) -> Strategy | None:
    """The strategy of that name for all parts that its variable is cut into."""
    return next((s for s in strategies(signature, parts).found if s.name == name), None)


def _extended(
    made: Way, name: str, needs: tuple[int, ...], gives: tuple[int, ...], strategy: Strategy | None = None
) -> Way:
    reducer, scaled = (strategy.reducer, strategy.scaled) if strategy is not None else ("", False)
    return Way(
        names=(*made.names, name),
        needs=tuple((*before, layout) for before, layout in zip(made.needs, needs, strict=True)),
        gives=tuple((*before, layout) for before, layout in zip(made.gives, gives, strict=True)),
        reducer=made.reducer or reducer,
        scaled=made.scaled or scaled,
    )


def _even(signature: Signature, way: Way, factors: Shape) -> bool:
    """Whether every worker's parts are of one size."""
    inputs = all(
        operand.shape is None or divides(operand.shape, layouts, factors)
        for operand, layouts in zip(signature.inputs, way.needs, strict=True)
    )
    return inputs and all(
        shape is None or divides(shape, layouts, factors)
        for (shape, _), layouts in zip(signature.outputs, way.gives, strict=True)
    )
