"""The integer program of a problem as text, in LP or free MPS format, and schedules of what solves it elsewhere."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from solvers.arrays import Bools
from solvers.bounds import quick_bounds
from solvers.milp.formulations import IntegerProgram, MakespanLimits, formulate
from solvers.milp.linear import Linear
from solvers.problem import Problem
from solvers.process.one_shot import scratch
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild


@contextlib.contextmanager
def mps_file(linear: Linear) -> Iterator[Path]:
    """Yield the program in a file of a `scratch` folder, which is removed at the end."""
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
    return zip(np.flatnonzero(where).tolist(), *(value[where].tolist() for value in values), strict=True)


def _columns(linear: Linear, kept: Bools, names: Sequence[str]) -> list[str]:
    """Return every column with its cost, even of zero, so that it exists; runs of whole ones between markers."""
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


# A `Linear` as text in LP format, which people read and every MILP solver does.

_WIDTH = 200
"""Characters of a line about, of the 255 that the strictest reader takes."""


def lp_text(linear: Linear, names: Sequence[str], comment: Sequence[str] = ()) -> Iterator[str]:
    """Yield the program part by part, columns called by `names` [c], rows r0, r1, …

    Rows without bounds are left out; one with two unequal ones becomes two, the second with `_most` at its name.
    Numbers are written so that they read back to the same bits.
    """
    yield "".join(f"\\ {line}\n" for line in comment)
    cost = np.flatnonzero(linear.cost)
    terms = _terms(cost.tolist(), linear.cost[cost].tolist(), names)
    yield f"Minimize\n{_wrapped(['cost:', *terms])}\nSubject To\n"
    for row in range(linear.rows):
        mine = slice(*linear.offset[row : row + 2].tolist())
        # A row of no entries says what its bounds say of 0; no reader takes a row without a name.
        column, coefficient = linear.column[mine].tolist() or [0], linear.coefficient[mine].tolist() or [0.0]
        terms = _terms(column, coefficient, names)
        least, most = float(linear.row_lower[row]), float(linear.row_upper[row])
        if least == most:
            yield f"{_wrapped([f'r{row}:', *terms, f'= {least!r}'])}\n"
            continue
        if least > -math.inf:
            yield f"{_wrapped([f'r{row}:', *terms, f'>= {least!r}'])}\n"
        if most < math.inf:
            name = f"r{row}" if least == -math.inf else f"r{row}_most"
            yield f"{_wrapped([f'{name}:', *terms, f'<= {most!r}'])}\n"
    yield "Bounds\n"
    kinds = zip(names, linear.lower.tolist(), linear.upper.tolist(), linear.integer.tolist(), strict=True)
    whole: dict[str, list[str]] = {"Binary": [], "General": []}
    for name, lower, upper, integer in kinds:
        if integer:
            whole["Binary" if (lower, upper) == (0.0, 1.0) else "General"].append(name)
        # Both bounds in full: readers differ in what they take for granted.
        if lower == upper:
            yield f" {name} = {lower!r}\n"
        elif (lower, upper) == (-math.inf, math.inf):
            yield f" {name} free\n"
        elif upper == math.inf:
            yield f" {name} >= {lower!r}\n"
        else:
            yield f" {'-inf' if lower == -math.inf else repr(lower)} <= {name} <= {upper!r}\n"
    for section, members in whole.items():
        if members:
            yield f"{section}\n{_wrapped(members)}\n"
    yield "End\n"


def _terms(columns: list[int], coefficients: list[float], names: Sequence[str]) -> list[str]:
    signed = zip(columns, coefficients, strict=True)
    return [f"{'-' if a < 0 else '+'} {names[c] if abs(a) == 1.0 else f'{abs(a)!r} {names[c]}'}" for c, a in signed]


def _wrapped(words: Sequence[str]) -> str:
    """Return words on lines of about _WIDTH characters, each begun by a blank."""
    lines, length = [""], 0
    for word in words:
        if length > _WIDTH - len(word):
            lines.append("")
            length = 0
        lines[-1] += f" {word}"
        length += len(word) + 1
    return "\n".join(lines)


FORMS = ("lp", "mps")
"""LP format, and free MPS format."""
_MISSED = 1e-4
"""By how much a point may miss what it has to meet; solvers' own tolerances are 1e-5 to 1e-9."""


def written(problem: Problem, formulation: str, form: str, most: int) -> str:
    """Return the program whose makespan is at most `most` ticks, which some schedule takes.

    ValueError for an unknown formulation or form, for a problem of no tasks, and for what the formulation cannot say of
    a problem; `NoScheduleError`, which is one, where it is found that there is no schedule.
    """
    if form not in FORMS:
        raise ValueError(f"no form of a program is called {form!r} - choose one of {', '.join(FORMS)}")
    program, unit = _program(problem, formulation, most)
    scale = f"a unit of time is {unit!r} ticks" if unit > 1 else "times are ticks"
    comment = [
        f"tasks: {problem.tasks}; devices: {problem.devices}; formulation: {formulation}; C_max is the makespan",
        f"{scale}; schedules of more than {most} ticks are left out",
    ]
    if form == "lp":
        return "".join(lp_text(program.linear, program.names, comment))
    return "".join([*(f"* {line}\n" for line in comment), *mps_text(program.linear, program.names)])


def read_back(problem: Problem, formulation: str, most: int, values: Mapping[str, float]) -> Schedule:
    """Return the schedule that values of the columns of the same program describe, its times computed anew.

    ValueError as for `written`, for a column without a value or of another program, and for a point that misses a row,
    a bound or a whole number by more than other solvers let it be missed.
    """
    program, _ = _program(problem, formulation, most)
    names = program.names
    strange = sorted(set(values) ^ set(names))
    if strange:
        raise ValueError(f"the values are of another program than {formulation!r}'s: {strange[0]!r} is in one alone")
    point = np.array([values[name] for name in names], dtype=np.float64)
    missed = program.linear.violation(point) if np.isfinite(point).all() else np.inf
    if missed > _MISSED:
        raise ValueError(f"the values miss a row, a bound or a whole number by {missed:.6g} - give a feasible point")
    return rebuild(problem, program.schedule(point))


def _program(problem: Problem, formulation: str, most: int) -> tuple[IntegerProgram, float]:
    """Return the program, and the ticks of its unit of time. The same problem has the same one: no clock is asked."""
    if not problem.tasks:
        raise ValueError("a problem of no tasks has no program - give it one or more")
    limits = MakespanLimits(least=min(quick_bounds.best(problem)[0], most), most=most)
    program = formulate(problem, formulation, limits)
    if program.unsaid:
        raise ValueError(f"formulation {formulation!r} cannot say this problem: {program.unsaid}")
    return program, limits.unit
