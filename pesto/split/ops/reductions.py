"""Sums, means, maxima over axes, over all but the channels, or over everything."""

from collections.abc import Callable, Mapping
from typing import Any

from pesto.split.ops.formats import channel
from pesto.split.tdl import Description, Index, Lambda, Max, Mean, Min, OpOperands, Prod, Sum, Value, opaque


def _over(reduce: Callable[..., Value]) -> Callable[[OpOperands], list[Lambda]]:
    def describe(op: OpOperands) -> list[Lambda]:
        over, keep = axes(op.value(1), op[0].rank), bool(op.attribute("keep_dims", missing=False))
        if reduce is Mean and "int" in op.operand(0).dtype:
            return [_rounded(op, over, keep=keep)]
        return [_reduced(op, reduce, over, keep=keep)]

    return describe


def axes(value: Any, rank: int) -> frozenset[int]:
    """The axes that a constant names, none below 0."""
    return frozenset(axis % rank for axis in (value if isinstance(value, tuple) else (value,)) if rank)


def _reduced(op: OpOperands, reduce: Callable[..., Value], over: frozenset[int], *, keep: bool) -> Lambda:
    tensor = op[0]
    left = [d for d in range(tensor.rank) if keep or d not in over]
    names = tuple(f"i{d}" for d in left)

    def element(*i: Index) -> Value:
        place = dict(zip(left, i, strict=True))

        def inner(*r: Index) -> Value:
            return tensor[tuple((place | dict(zip(sorted(over), r, strict=True)))[d] for d in range(tensor.rank))]

        return reduce(inner, [f"r{d}" for d in sorted(over)]) if over else inner()

    return Lambda(names, element)


def _rounded(op: OpOperands, over: frozenset[int], *, keep: bool) -> Lambda:
    """A mean of integers, which is rounded: means of parts do not add up to it."""
    tensor = op[0]
    left = [d for d in range(tensor.rank) if keep or d not in over]

    def element(*i: Index) -> Value:
        place = dict(zip(left, i, strict=True))
        return opaque(tensor[tuple(slice(None) if d in over else place[d] for d in range(tensor.rank))])

    return Lambda(tuple(f"i{d}" for d in left), element)


def everything(op: OpOperands) -> list[Lambda]:
    """L2Loss: half the sum of all squares."""
    return [_reduced(op, Sum, frozenset(range(op[0].rank)), keep=False)]


def bias_gradient(op: OpOperands) -> list[Lambda]:
    """BiasAddGrad: the sum over all but the channels."""
    rank = op[0].rank
    return [_reduced(op, Sum, frozenset(range(rank)) - {channel(op, rank)}, keep=False)]


ROWS: Mapping[str, Description] = {
    "Sum": _over(Sum), "Mean": _over(Mean), "Max": _over(Max), "Min": _over(Min), "Prod": _over(Prod),
    "L2Loss": everything, "BiasAddGrad": bias_gradient,
}  # fmt: skip
