"""The first cuts of a split alone: a split for fewer workers, which is known with it."""

from dataclasses import replace

from pesto.split.division import Division, moved_bytes, parameter_bytes
from pesto.split.layouts import PARTIAL
from pesto.split.op_strategy import OpStrategy
from pesto.split.split_search import Split
from pesto.split.typed_graph import TypedGraph


def first_cuts(shaped: TypedGraph, split: Split, cuts: int) -> Split:
    """Return the division that the outermost `cuts` of a split make, if cuts were made one after the other."""
    whole = split.division
    division = Division(
        factors=whole.factors[:cuts],
        ways=tuple(_shorter(way, cuts) for way in whole.ways),
        kept=tuple(tuple(layouts[:cuts] for layouts in row) for row in whole.kept),
        variables=tuple(layouts[:cuts] for layouts in whole.variables),
    )
    return replace(
        split,
        division=division,
        cuts=split.cuts[:cuts],
        moved_bytes=moved_bytes(shaped, division),
        parameter_bytes=int(parameter_bytes(shaped, division).sum()),
        objective=None,
    )


def _shorter(way: OpStrategy, cuts: int) -> OpStrategy:
    if way.rims:
        raise ValueError("windows of fewer parts are others: split once more")
    gives = tuple(layouts[:cuts] for layouts in way.gives)
    partial = any(PARTIAL in layouts for layouts in gives)
    return OpStrategy(
        names=way.names[:cuts],
        needs=tuple(layouts[:cuts] for layouts in way.needs),
        gives=gives,
        reducer=way.reducer if partial else "",
        scaled=way.scaled and partial,
    )
