"""Strategies of an op: how it is divided by all cuts so far, and in which ways by one more."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from pesto.split.geometry import ONE, PARTIAL, WHOLE, Layouts, Need, Rims, Shape, divides, worker_boxes
from pesto.split.ops.op_types import descriptions_version, strategies
from pesto.split.ops.window_kernels import KernelOverrides, kernel_overrides
from pesto.split.regions import Strategy
from pesto.split.typed_graph import Signature

WHOLE_WAY, ONCE_WAY, SUMMANDS_WAY = "whole", "once", "summands"
"""Names of the strategies that are no cut: every worker does all of the op, or the first alone does, or every worker
does it on its own summand of each input, which gives a summand of each output."""
NO_CUT = frozenset((WHOLE_WAY, ONCE_WAY, SUMMANDS_WAY))
_ADDED = frozenset(("Add", "AddN", "AddV2", "Sub"))
"""Op types that are linear in all of their inputs together."""
_HANDED_ON = frozenset(("ExpandDims", "Identity", "Neg", "Reshape", "Squeeze", "Transpose"))
"""Op types that are linear in their first input, the others being constants."""


@dataclass(frozen=True, slots=True)
class OpStrategy:
    """How an op is divided by all cuts so far, outermost first."""

    names: tuple[str, ...]
    """The index variable that each cut is along; "whole" or "once" where it is along none."""
    needs: tuple[Layouts, ...]
    """The layout of each data input."""
    gives: tuple[Layouts, ...]
    """The layout in which each output comes."""
    reducer: str = ""
    """Reduction that combines PARTIAL results."""
    scaled: bool = False
    """True if PARTIAL results are means."""
    rims: tuple[Rims, ...] = ()
    """Rims of each data input whose parts read beyond their shares; empty if none does."""

    def need(self, at: int) -> Need:
        """Return the part of an input that each worker needs."""
        return Need(self.needs[at], self.rims[at] if self.rims else ())


def admissible_strategies(
    signature: Signature, strategy: OpStrategy, factors: Shape, *, whole: bool, once: bool, halo: bool = False
) -> tuple[OpStrategy, ...]:
    """Return how one more cut, the last of `factors`, can be made; all but `whole` ones where others exist.

    If nothing can be cut the op is whole; `whole` admits that beside cuts, too. An op that must run `once` runs on the
    first worker alone. With `halo` parts may read what their neighbours have.
    """
    return _admissible(signature, strategy, factors, (whole, once, halo), descriptions_version())


@lru_cache(maxsize=1 << 16)
def _admissible(
    signature: Signature, before: OpStrategy, factors: Shape, admitted: tuple[bool, bool, bool], version: int
) -> tuple[OpStrategy, ...]:
    del version  # a key of the cache: descriptions may be registered
    whole, once, halo = admitted
    if once:
        return (single_worker_strategy(signature, before),)
    k, result = factors[-1], []
    for strategy in strategies(signature, k, halo=halo).admitted:
        # A variable that is cut again needs the strategy of that name for all parts that it is cut into.
        parts = k * prod(f for name, f in zip(before.names, factors, strict=False) if name == strategy.name)
        again = next((s for s in strategies(signature, parts, halo=halo).admitted if s.name == strategy.name), None)
        if again is None or (before.reducer and again.reducer and before.reducer != again.reducer):
            continue
        extended = _extended(before, again.name, again.needs, again.gives, again)
        # Each dimension with a rim is cut along one index variable alone, and every worker's parts are of one size.
        apart = all(
            len({name for name, layout in zip(extended.names, layouts, strict=True) if layout == rim.dimension}) == 1
            for layouts, rims in zip(extended.needs, extended.rims, strict=False)
            for rim in rims
        )
        if apart and _is_even(signature, extended, factors):
            result.append(extended)
    if whole or not result:
        result.append(replicated_strategy(signature, before))
    return tuple(result)


def _is_even(signature: Signature, strategy: OpStrategy, factors: Shape) -> bool:
    for at, operand in enumerate(signature.inputs):
        need = strategy.need(at)
        windows = {rim.dimension for rim in need.rims}
        shares = tuple(WHOLE if layout in windows else layout for layout in need.layouts)
        if operand.shape is not None and not divides(operand.shape, shares, factors):
            return False
    return all(
        shape is None or divides(shape, layouts, factors)
        for (shape, _), layouts in zip(signature.outputs, strategy.gives, strict=True)
    )


def cut_ops(all_strategies: Sequence[OpStrategy]) -> list[bool]:
    """Return [n] True for each op of which every cut gives several workers a part to do."""
    return [
        bool(strategy.gives or strategy.needs) and not NO_CUT.intersection(strategy.names)
        for strategy in all_strategies
    ]


def replicated_strategy(signature: Signature, strategy: OpStrategy) -> OpStrategy:
    """Return a strategy extended by a cut after which every worker of a group does all that the group does."""
    return _extended(strategy, WHOLE_WAY, (WHOLE,) * len(signature.inputs), (WHOLE,) * len(signature.outputs))


def single_worker_strategy(signature: Signature, strategy: OpStrategy) -> OpStrategy:
    """Return a strategy extended by a cut after which the first worker alone does all of the op."""
    return _extended(strategy, ONCE_WAY, (ONE,) * len(signature.inputs), (ONE,) * len(signature.outputs))


def summands_strategy(signature: Signature, strategy: OpStrategy) -> OpStrategy | None:
    """Return a strategy extended by a cut after which every worker does the op on its summands; None if that is wrong.

    The sum of an op's results over the workers is its result for the sums of its inputs if it is linear. Extents must
    be known, as what is summed needs one shape.
    """
    many = len(signature.inputs)
    summed = many if signature.type in _ADDED else 1 if signature.type in _HANDED_ON else 0
    known = all(operand.value is not None for operand in signature.inputs[summed:])
    bounded = any(operand.bounded for operand in signature.inputs) or bool(signature.bounded_output(0))
    if not summed or not known or bounded or strategy.reducer not in ("", "sum") or strategy.scaled:
        return None
    needs = (PARTIAL,) * summed + (WHOLE,) * (many - summed)
    return replace(_extended(strategy, SUMMANDS_WAY, needs, (PARTIAL,) * len(signature.outputs)), reducer="sum")


def gives_summands(strategy: OpStrategy, output: int) -> bool:
    """Return True if what workers have of an output adds up to it in some cut, and is no mean, maximum or product."""
    return PARTIAL in strategy.gives[output] and strategy.reducer == "sum" and not strategy.scaled


def uncut_strategy(signature: Signature) -> OpStrategy:
    """Return the strategy of an op before any cut."""
    return OpStrategy((), ((),) * len(signature.inputs), ((),) * len(signature.outputs))


def _extended(
    before: OpStrategy, name: str, needs: tuple[int, ...], gives: tuple[int, ...], strategy: Strategy | None = None
) -> OpStrategy:
    rims: tuple[Rims, ...] = ()
    own = strategy.rims if strategy is not None else ()
    if before.rims or own:
        # Rims of the cuts before along other dimensions than the last cut's, and its own, which are of all its parts.
        none = ((),) * len(needs)
        rows = zip(before.rims or none, own or none, needs, strict=True)
        rims = tuple(tuple(sorted((*(r for r in was if r.dimension != d), *new))) for was, new, d in rows)
    return OpStrategy(
        names=(*before.names, name),
        needs=tuple((*earlier, layout) for earlier, layout in zip(before.needs, needs, strict=True)),
        gives=tuple((*earlier, layout) for earlier, layout in zip(before.gives, gives, strict=True)),
        reducer=before.reducer or (strategy.reducer if strategy is not None else ""),
        scaled=before.scaled or (strategy is not None and strategy.scaled),
        rims=rims if any(rims) else (),
    )


def overrides_of_worker(signature: Signature, strategy: OpStrategy, factors: Shape, worker: int) -> KernelOverrides:
    """Return the attributes and operands of one worker's op that differ from the whole op's, if it reads windows."""
    if not strategy.rims:
        return KernelOverrides()
    given = [
        worker_boxes(operand.shape or (), strategy.needs[at], factors, strategy.rims[at])[worker]
        for at, operand in enumerate(signature.inputs)
    ]
    made = [
        worker_boxes(shape or (), tuple(max(layout, WHOLE) for layout in gives), factors)[worker]
        for (shape, _), gives in zip(signature.outputs, strategy.gives, strict=True)
    ]
    return kernel_overrides(signature, given, made, [rim.dimension for rims in strategy.rims for rim in rims])
