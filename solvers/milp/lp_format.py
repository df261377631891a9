"""A `Linear` as text in LP format, which people read and every MILP solver does."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from solvers.milp.linear import Linear

_WIDTH = 200
"""Characters of a line about, of the 255 that the strictest reader takes."""


def lp_text(linear: Linear, names: Sequence[str], comment: Sequence[str] = ()) -> Iterator[str]:
    """The program part by part, columns called by `names` [c], rows r0, r1, …

    Rows without bounds are left out; one with two unequal ones becomes two, the second with `_most` at its name.
    Numbers are written so that they read back to the same bits.
    """
    yield "".join(f"\\ {line}\n" for line in comment)
    cost = np.flatnonzero(linear.cost)
    terms = _terms(cost.tolist(), linear.cost[cost].tolist(), names)
    yield f"Minimize\n{_wrapped(['cost:', *terms])}\nSubject To\n"
    for row in range(linear.rows):
        yield from _row(linear, row, names)
    yield "Bounds\n"
    kinds = zip(names, linear.lower.tolist(), linear.upper.tolist(), linear.integer.tolist(), strict=True)
    whole: dict[str, list[str]] = {"Binary": [], "General": []}
    for name, lower, upper, integer in kinds:
        if integer:
            whole["Binary" if (lower, upper) == (0.0, 1.0) else "General"].append(name)
        yield f" {_bounds(name, lower, upper)}\n"
    for section, members in whole.items():
        if members:
            yield f"{section}\n{_wrapped(members)}\n"
    yield "End\n"


def _row(linear: Linear, row: int, names: Sequence[str]) -> Iterator[str]:
    mine = slice(*linear.offset[row : row + 2].tolist())
    # A row of no entries says what its bounds say of 0; no reader takes a row without a name.
    column, coefficient = linear.column[mine].tolist() or [0], linear.coefficient[mine].tolist() or [0.0]
    terms = _terms(column, coefficient, names)
    lower, upper = float(linear.row_lower[row]), float(linear.row_upper[row])
    if lower == upper:
        yield f"{_wrapped([f'r{row}:', *terms, f'= {lower!r}'])}\n"
        return
    if lower > -math.inf:
        yield f"{_wrapped([f'r{row}:', *terms, f'>= {lower!r}'])}\n"
    if upper < math.inf:
        name = f"r{row}" if lower == -math.inf else f"r{row}_most"
        yield f"{_wrapped([f'{name}:', *terms, f'<= {upper!r}'])}\n"


def _terms(columns: list[int], coefficients: list[float], names: Sequence[str]) -> list[str]:
    signed = zip(columns, coefficients, strict=True)
    return [f"{'-' if a < 0 else '+'} {names[c] if abs(a) == 1.0 else f'{abs(a)!r} {names[c]}'}" for c, a in signed]


def _bounds(name: str, lower: float, upper: float) -> str:
    """Both in full: readers differ in what they take for granted."""
    if lower == upper:
        return f"{name} = {lower!r}"
    if (lower, upper) == (-math.inf, math.inf):
        return f"{name} free"
    if upper == math.inf:
        return f"{name} >= {lower!r}"
    return f"{'-inf' if lower == -math.inf else repr(lower)} <= {name} <= {upper!r}"


def _wrapped(words: Sequence[str]) -> str:
    """Words on lines of about _WIDTH characters, each begun by a blank."""
    lines, length = [""], 0
    for word in words:
        if length > _WIDTH - len(word):
            lines.append("")
            length = 0
        lines[-1] += f" {word}"
        length += len(word) + 1
    return "\n".join(lines)
