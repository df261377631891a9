"""The integer program of a problem as text, for solvers that are reached otherwise."""

from solvers.bounds import quick_bounds
from solvers.milp.formulations import HORIZON, Limits, formulate
from solvers.milp.lp_format import lp_text
from solvers.milp.vendors.mps import mps_text
from solvers.problem import Problem

FORMS = ("lp", "mps")
"""LP format, and free MPS format."""


def written(problem: Problem, formulation: str, form: str, most: int) -> str:
    """The program whose makespan is at most `most` ticks, which some schedule takes.

    ValueError for an unknown formulation or form, for a problem of no tasks, and for what the formulation cannot say of
    a problem; `NoScheduleError`, which is one, where it is found that there is no schedule.
    """
    if form not in FORMS:
        raise ValueError(f"no form of a program is called {form!r} - choose one of {', '.join(FORMS)}")
    if not problem.tasks:
        raise ValueError("a problem of no tasks has no program - give it one or more")
    limits = Limits(least=min(quick_bounds.best(problem)[0], most), most=most)
    program = formulate(problem, formulation, limits)
    if program.unsaid:
        raise ValueError(f"formulation {formulation!r} cannot say this problem: {program.unsaid}")
    scale = f"a unit of time is {limits.unit!r} ticks" if most > HORIZON else "times are ticks"
    comment = [
        f"tasks: {problem.tasks}; devices: {problem.devices}; formulation: {formulation}; C_max is the makespan",
        f"{scale}; schedules of more than {most} ticks are left out",
    ]
    if form == "lp":
        return "".join(lp_text(program.linear, program.names, comment))
    return "".join([*(f"* {line}\n" for line in comment), *mps_text(program.linear, program.names)])
