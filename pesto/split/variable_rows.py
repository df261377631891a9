"""The variables of a division: how each is cut, and what a worker holds of it."""

from dataclasses import dataclass

from pesto.split.division import Division, item_bytes, parameter_bytes
from pesto.split.geometry import Layouts, Shape
from pesto.split.layouts import ONE, PARTIAL
from pesto.split.typed_graph import TypedGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableRow:
    """A variable, or an optimizer's slot of one."""

    name: str
    shape: Shape
    dtype: str
    layouts: Layouts
    worker_bytes: int
    """Bytes that one worker holds."""


def variable_rows(shaped: TypedGraph, division: Division) -> list[VariableRow]:
    """All variables that an op uses and whose shape is known; what holds most on a worker first."""
    held, result = parameter_bytes(shaped, division), dict[int, VariableRow]()
    for op, at, v in zip(shaped.use_op.tolist(), shaped.use_input.tolist(), shaped.use_variable.tolist(), strict=True):
        operand = shaped.signature(op).inputs[at]
        if operand.shape is not None and v not in result:
            result[v] = VariableRow(
                name=shaped.names[shaped.handle[v]],
                shape=operand.shape,
                dtype=operand.dtype.removeprefix("resource:"),
                layouts=division.variables[v],
                worker_bytes=int(held[v]),
            )
    return sorted(result.values(), key=lambda row: (-row.worker_bytes, row.name))


def whole_bytes(row: VariableRow) -> int:
    """Bytes of all of it."""
    size = item_bytes(row.dtype)
    for extent in row.shape:
        size *= extent
    return size


def layout_words(layouts: Layouts, factors: Shape) -> str:
    """A layout for people: `dimension 0 in 2x2`, `dimension 1 in 2`, `whole`."""
    cuts: dict[int, list[int]] = {}
    for layout, k in zip(layouts, factors, strict=True):
        cuts.setdefault(layout, []).append(k)
    if ONE in cuts:
        return "on worker 0 alone"
    told = [f"dimension {d} in {'x'.join(map(str, result))}" for d, result in cuts.items() if d >= 0]
    if PARTIAL in cuts:
        told.append(f"partial results of {'x'.join(map(str, cuts[PARTIAL]))}")
    return ", ".join(told) or "whole"
