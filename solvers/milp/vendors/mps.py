"""A `Linear` as a file in free MPS format, which every MILP solver reads."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from solvers.arrays import Bools
from solvers.milp.linear import Linear
from solvers.process.one_shot import scratch


@contextlib.contextmanager
def mps_file(linear: Linear) -> Iterator[Path]:
    """The program in a file of a `scratch` folder, which is removed at the end."""
    with scratch() as folder:
        file = folder / "program.mps"
        write_mps(linear, file)
        yield file


def write_mps(linear: Linear, path: Path) -> None:
    """Write the program to a file; see `mps_text`."""
    with path.open("w", encoding="ascii") as file:
        file.writelines(mps_text(linear))


def mps_text(linear: Linear, names: Sequence[str] | None = None) -> Iterator[str]:
    """The program section by section: columns are called c0, c1, … or by `names`, rows r0, r1, …, the objective "cost".

    Rows without bounds are left out. Numbers are written so that they read back to the same bits; only the upper
    bound of a row that has two is a sum (RANGES), and may be off by its rounding.
    """
    yield "NAME program FREE\n"
    called = [f"c{column}" for column in range(linear.columns)] if names is None else names
    for section, lines in _sections(linear, called):
        # CBC and SCIP miss RHS where it is not there.
        if lines or section == "RHS":
            yield "\n".join([section, *lines, ""])
    yield "ENDATA\n"


def _sections(linear: Linear, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    lower, upper = linear.row_lower, linear.row_upper
    low, high = np.isfinite(lower), np.isfinite(upper)
    equal = low & (lower == upper)
    kind = np.where(equal, "E", np.where(low, "G", "L"))
    yield "ROWS", [" N cost", *(f" {letter} r{row}" for row, letter in _at(low | high, kind))]
    yield "COLUMNS", _columns(linear, low | high, names)
    right = np.where(low, lower, upper)
    yield "RHS", [f" rhs r{row} {value!r}" for row, value in _at((low | high) & (right != 0.0), right)]
    yield "RANGES", [f" range r{row} {width!r}" for row, width in _at(low & high & ~equal, upper - lower)]
    told = linear.integer | (linear.lower != 0.0) | (linear.upper != math.inf)
    bounds = _at(told, linear.lower, linear.upper)
    yield "BOUNDS", [line for column, least, most in bounds for line in _bounds(names[column], least, most)]


def _at(where: Bools, *values: Any) -> Iterator[tuple[Any, ...]]:
    """The index and the values of each place that is marked."""
    return zip(np.flatnonzero(where).tolist(), *(value[where].tolist() for value in values), strict=True)


def _columns(linear: Linear, kept: Bools, names: Sequence[str]) -> list[str]:
    """Every column with its cost, even of zero, so that it exists; runs of whole ones between markers."""
    row = np.repeat(np.arange(linear.rows), np.diff(linear.offset))
    entries = np.flatnonzero(kept[row])
    entries = entries[np.argsort(linear.column[entries], kind="stable")]
    column = linear.column[entries]
    texts = [
        f" {names[c]} r{r} {value!r}"
        for c, r, value in zip(
            column.tolist(), row[entries].tolist(), linear.coefficient[entries].tolist(), strict=True
        )
    ]
    ends = np.searchsorted(column, np.arange(1, linear.columns + 1)).tolist()
    lines, begin, inside = [], 0, False
    for c, (whole, cost, end) in enumerate(zip(linear.integer.tolist(), linear.cost.tolist(), ends, strict=True)):
        if whole != inside:
            lines.append(f" m{c} 'MARKER' '{'INTORG' if whole else 'INTEND'}'")
            inside = whole
        lines.append(f" {names[c]} cost {cost!r}")
        lines += texts[begin:end]
        begin = end
    return [*lines, f" m{linear.columns} 'MARKER' 'INTEND'"] if inside else lines


def _bounds(column: str, lower: float, upper: float) -> Iterator[str]:
    """Both bounds in full: readers differ in what they take for granted of whole columns and negative bounds."""
    if lower == upper:
        yield f" FX b {column} {lower!r}"
    elif lower == -math.inf and upper == math.inf:
        yield f" FR b {column}"
    else:
        yield f" MI b {column}" if lower == -math.inf else f" LO b {column} {lower!r}"
        yield f" PL b {column}" if upper == math.inf else f" UP b {column} {upper!r}"
