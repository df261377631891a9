"""The integer program of a problem as text, and schedules of what solves it, for solvers that are reached otherwise."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from solvers.bounds import quick_bounds
from solvers.milp.formulations import IntegerProgram, MakespanLimits, formulate
from solvers.milp.linear import Linear
from solvers.milp.vendors.mps import mps_text
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild

# A `Linear` as text in LP format, which people read and every MILP solver does.

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


FORMS = ("lp", "mps")
"""LP format, and free MPS format."""
_MISSED = 1e-4
"""By how much a point may miss what it has to meet; solvers' own tolerances are 1e-5 to 1e-9."""


def written(problem: Problem, formulation: str, form: str, most: int) -> str:
    """The program whose makespan is at most `most` ticks, which some schedule takes.

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
    """The schedule that values of the columns of the same program describe, its times computed anew.

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
    """The program, and the ticks of its unit of time. The same problem has the same one: no clock is asked."""
    if not problem.tasks:
        raise ValueError("a problem of no tasks has no program - give it one or more")
    limits = MakespanLimits(least=min(quick_bounds.best(problem)[0], most), most=most)
    program = formulate(problem, formulation, limits)
    if program.unsaid:
        raise ValueError(f"formulation {formulation!r} cannot say this problem: {program.unsaid}")
    return program, limits.unit
