"""Warnings about the numerical results of a division."""

from collections import Counter

from pesto.core.quantities import plural
from pesto.split.division import Division
from pesto.split.layouts import PARTIAL
from pesto.split.typed_graph import TypedGraph

ROUNDED = frozenset(("float16", "bfloat16", "half"))
"""Data types in which the order of a sum is seen."""


def reduction_warnings(shaped: TypedGraph, division: Division) -> list[str]:
    """One line for each data type of few bits whose values are reduced from parts."""
    summed: Counter[str] = Counter()
    for op, way in enumerate(division.ways):
        for (_, dtype), gives in zip(shaped.signature(op).outputs, way.gives, strict=True):
            if PARTIAL in gives and way.reducer in ("sum", "prod"):
                summed[dtype] += dtype in ROUNDED
    return [f"{plural(many, 'op')} {_told(dtype, many)}" for dtype, many in sorted(summed.items()) if many]


def _told(dtype: str, many: int) -> str:
    ending = "s" if many == 1 else ""
    return f"add{ending} up parts of {dtype}: the order of sums changes the result"
