"""The integer program of a problem as text, and schedules of what solves it, for solvers that are reached otherwise."""

from collections.abc import Mapping

import numpy as np

from solvers.bounds import quick_bounds
from solvers.milp.formulations import IntegerProgram, MakespanLimits, formulate
from solvers.milp.lp_format import lp_text
from solvers.milp.vendors.mps import mps_text
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild

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
