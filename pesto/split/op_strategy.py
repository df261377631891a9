"""The ways in which each kind of op can be divided by one more cut, after those that are made."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from pesto.split.geometry import Layouts, Need, Shape, divides
from pesto.split.layouts import ONE, WHOLE, Layout, Rims, Strategy
from pesto.split.ops.op_types import descriptions_version, strategies
from pesto.split.ops.window_kernels import KernelOverrides, kernel_overrides
from pesto.split.pieces import worker_boxes
from pesto.split.signature import Signature

WHOLE_WAY, ONCE_WAY = "whole", "once"
"""Names of the ways that are no cut: every worker does all of it, and the first alone."""


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
        """Part of an input that each worker needs."""
        return Need(self.needs[at], self.rims[at] if self.rims else ())


def admissible_strategies(
    signature: Signature, strategy: OpStrategy, factors: Shape, *, whole: bool, once: bool, halo: bool = False
) -> tuple[OpStrategy, ...]:
    """How one more cut, the last of `factors`, can be made; `whole` admits none where others exist.

    Without any the op is whole. An op that must run once runs on the first worker alone. halo: whether parts may read
    what their neighbours have.
    """
    return _ways(signature, strategy, factors, (whole, once, halo), descriptions_version())


@lru_cache(maxsize=1 << 16)
def _ways(
    signature: Signature, made_strategy: OpStrategy, factors: Shape, admitted: tuple[bool, bool, bool], of_edition: int
) -> tuple[OpStrategy, ...]:
    """The same, kept for one edition of the descriptions."""
    del of_edition
    whole, once, halo = admitted
    if once:
        return (single_worker_strategy(signature, made_strategy),)
    k, result = factors[-1], []
    for strategy in strategies(signature, k, halo=halo).found:
        parts = k * prod(f for name, f in zip(made_strategy.names, factors, strict=False) if name == strategy.name)
        # The strategy of that name for all parts that its variable is cut into.
        again = next((s for s in strategies(signature, parts, halo=halo).found if s.name == strategy.name), None)
        if again is not None and (
            not made_strategy.reducer or not again.reducer or made_strategy.reducer == again.reducer
        ):
            way = _extended(made_strategy, again.name, again.needs, again.gives, again)
            if _apart(way) and _even(signature, way, factors):
                result.append(way)
    if whole or not result:
        result.append(replicated_strategy(signature, made_strategy))
    return tuple(result)


def cut_ops(all_strategies: Sequence[OpStrategy]) -> list[bool]:
    """[n] whether several workers do an op, each its part, by all cuts."""
    whole = {WHOLE_WAY, ONCE_WAY}
    return [bool(way.gives or way.needs) and not whole.intersection(way.names) for way in all_strategies]


def replicated_strategy(signature: Signature, strategy: OpStrategy) -> OpStrategy:
    """Every worker of a group does all that the group does."""
    return _extended(strategy, WHOLE_WAY, (WHOLE,) * len(signature.inputs), (WHOLE,) * len(signature.outputs))


def single_worker_strategy(signature: Signature, strategy: OpStrategy) -> OpStrategy:
    """The first worker alone does all of it."""
    return _extended(strategy, ONCE_WAY, (ONE,) * len(signature.inputs), (ONE,) * len(signature.outputs))


def uncut_strategy(signature: Signature) -> OpStrategy:
    """The way of an op before any cut."""
    return OpStrategy((), ((),) * len(signature.inputs), ((),) * len(signature.outputs))


def _extended(
    made_strategy: OpStrategy,
    name: str,
    needs: tuple[int, ...],
    gives: tuple[int, ...],
    strategy: Strategy | None = None,
) -> OpStrategy:
    reducer, scaled = (strategy.reducer, strategy.scaled) if strategy is not None else ("", False)
    return OpStrategy(
        names=(*made_strategy.names, name),
        needs=tuple((*before, layout) for before, layout in zip(made_strategy.needs, needs, strict=True)),
        gives=tuple((*before, layout) for before, layout in zip(made_strategy.gives, gives, strict=True)),
        reducer=made_strategy.reducer or reducer,
        scaled=made_strategy.scaled or scaled,
        rims=_rims(made_strategy, needs, strategy.rims if strategy is not None else ()),
    )


def _rims(strategy: OpStrategy, needs: tuple[Layout, ...], more: tuple[Rims, ...]) -> tuple[Rims, ...]:
    """Those of the cuts before along other dimensions than the last cut's, and its own, which are of all its parts."""
    if not strategy.rims and not more:
        return ()
    none = ((),) * len(needs)
    rows = zip(strategy.rims or none, more or none, needs, strict=True)
    result = tuple(tuple(sorted((*(r for r in was if r.dimension != d), *own))) for was, own, d in rows)
    return result if any(result) else ()


def _apart(way: OpStrategy) -> bool:
    """Return True if each dimension with a rim is cut along one index variable alone."""
    return all(
        len({name for name, layout in zip(way.names, layouts, strict=True) if layout == rim.dimension}) == 1
        for layouts, rims in zip(way.needs, way.rims, strict=False)
        for rim in rims
    )


def _even(signature: Signature, way: OpStrategy, factors: Shape) -> bool:
    """Return True if every worker's parts are of one size."""
    inputs = all(
        operand.shape is None or divides(operand.shape, _shares(way.need(at)), factors)
        for at, operand in enumerate(signature.inputs)
    )
    return inputs and all(
        shape is None or divides(shape, layouts, factors)
        for (shape, _), layouts in zip(signature.outputs, way.gives, strict=True)
    )


def _shares(need: Need) -> Layouts:
    """The cuts whose parts are shares of one size."""
    return tuple(WHOLE if any(layout == rim.dimension for rim in need.rims) else layout for layout in need.layouts)


def overrides_of_worker(signature: Signature, way: OpStrategy, factors: Shape, worker: int) -> KernelOverrides:
    """Attributes and operands of one worker's op that differ from the whole op's, where it reads windows."""
    if not way.rims:
        return KernelOverrides()
    given = [
        worker_boxes(operand.shape or (), way.needs[at], factors, way.rims[at])[worker]
        for at, operand in enumerate(signature.inputs)
    ]
    made = [
        worker_boxes(shape or (), tuple(max(layout, WHOLE) for layout in gives), factors)[worker]
        for (shape, _), gives in zip(signature.outputs, way.gives, strict=True)
    ]
    return kernel_overrides(signature, given, made, [rim.dimension for rims in way.rims for rim in rims])
