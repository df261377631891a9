"""The one table of solvers, and `solve`: load, run, check, return."""

import difflib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from solvers.arguments import expect
from solvers.base import Progress, Report, SolverEntry, Stoppable
from solvers.checker import check
from solvers.compiled.interruption import struck
from solvers.heuristics.methods import PLACERS
from solvers.heuristics.overflow.relief import fitted
from solvers.memory.usage import fits
from solvers.milp.formulations import FORMULATIONS
from solvers.milp.program_text import read_back, written
from solvers.problem import Problem
from solvers.process import parent
from solvers.process.judge import Judge
from solvers.result import NOT_BEGUN, Options, Result, Status
from solvers.schedule import Schedule
from solvers.structure.units import serial


def _milp(name: str, package: str, *, optional: bool = False, versions: str | None = None) -> SolverEntry:
    """Return the row of a vendor of MILP solvers, which takes every formulation."""
    return SolverEntry(
        module=f"solvers.milp.vendors.{name}",
        attribute="solver",
        isolated=True,
        package=package,
        optional=optional,
        versions=versions,
        polishes=True,
        formulations=tuple(FORMULATIONS),
    )


def _engine(module: str, attribute: str, *, lives: bool = False) -> SolverEntry:
    """Return the row of an engine on OR-Tools, which improves on what it starts from."""
    return SolverEntry(module=module, attribute=attribute, isolated=True, package="ortools", polishes=True, lives=lives)


SOLVERS: dict[str, SolverEntry] = {
    "auto": SolverEntry(module="solvers.auto.portfolio", attribute="Auto", isolated=False, confirms=True, lives=True),
    "cbc": _milp("cbc", "pulp", versions="solvers.milp.vendors.cbc"),
    "cplex": _milp("cplex", "cplex", optional=True),
    "cpsat": _engine("solvers.cpsat.solver", "CpSat", lives=True),
    "cpsat-windows": _engine("solvers.cpsat.solver", "CpSatWindows"),
    "gurobi": _milp("gurobi", "gurobipy", optional=True),
    "highs": _milp("highs", "highspy"),
    "list": SolverEntry(module="solvers.heuristics.list_solver", attribute="ListScheduler", isolated=False),
    "scip": _milp("scip", "PySCIPOpt", optional=True),
    "search": SolverEntry(module="solvers.search.solver", attribute="LocalSearch", isolated=True, package="ortools"),
    "single": SolverEntry(module="solvers.heuristics.list_solver", attribute="SingleDevice", isolated=False),
    **{
        name: SolverEntry(
            module="solvers.heuristics.list_solver",
            attribute="PlacerSolver",
            arguments=(name,),
            isolated=row.package is not None,
            package=row.package,
            optional=row.package == "pymetis",
        )
        for name, row in PLACERS.items()
    },
}
"""A new solver is one new module and one row here; a placement method has its row in `PLACERS`."""


WINDOWS: dict[str, SolverEntry] = {
    name: replace(
        entry, module="solvers.windows.solver", attribute="WindowSearch", arguments=(name, entry.package or "")
    )
    for name, entry in SOLVERS.items()
    if name == "cpsat" or entry.formulations
}
"""Solvers that search windows of a plan, by the engine's name."""

_WHOLE = {"cpsat": "whole_model"}
"""Solver name -> attribute of its module that gives the solver without windows, its whole model alone."""


class Available(NamedTuple):
    """A solver, and why it cannot run here if it cannot."""

    name: str
    """Name in the table of solvers."""
    version: str | None
    """Version of its package ("" where the project itself is not installed), None when the package is missing."""
    why_not: str
    """One line with the remedy, empty when it can run."""


def available() -> list[Available]:
    """Return every solver of the table, in its order; imports none of them."""
    return [availability(name) for name in SOLVERS]


def availability(name: str) -> Available:
    """Tell whether the solver called `name` can run here, without importing it; ValueError for an unknown name."""
    return _availability(name, _entry(name))


def solve(
    problem: Problem,
    name: str,
    options: Options | None = None,
    *,
    report: Report | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Run the solver called `name`; whatever goes wrong with it is a status of the result, not an exception.

    Every schedule is checked, so the result's is valid, and it is at least as good as `options.start`. Without a start
    it begins from nothing: give `solve(problem, "list").schedule` for a quick one. `report` hears
    of better schedules and bounds; of several that arrive at once, of the best. `stop`, once set by another thread,
    interrupts a solver that has a process of its own, or several. ValueError for an unknown name, a formulation that
    the solver does not take, or an invalid `options.start`; TypeError for an argument of another type.
    """
    options = Options() if options is None else options
    expect("problem", problem, Problem, "a solvers.Problem")
    expect("name", name, str, f"one of {', '.join(SOLVERS)}")
    expect("options", options, Options, "solvers.Options")
    expect("report", report, Callable | None, "a function of one Progress")
    expect("stop", stop, threading.Event | None, "a threading.Event")
    entry = _entry(name)
    check_formulation(name, options.formulation)
    here = _availability(name, entry)
    if problem.lives is not None and not entry.lives:
        wrong = check(problem, options.start) if options.start is not None else ()
        if wrong:
            raise ValueError(f"options.start is not a valid schedule: {wrong[0].text}")

        def fitting(progress: Progress) -> None:
            kept = progress.schedule if progress.schedule is None or fits(problem, progress.schedule) else None
            if report is not None:
                report(replace(progress, schedule=kept))

        found = solve(problem.living(None), name, replace(options, lower_bound=0), report=fitting, stop=stop)
        return fitted(problem, found, options)
    judge = Judge(problem, options, report or _nobody, solver=name, version=here.version or "")
    if here.why_not:
        return judge.failed(Status.MISSING, here.why_not)
    if entry.isolated:
        return parent.run(problem, entry, options, judge, stop=stop)
    return _run_here(problem, entry, options, judge, stop)


def check_formulation(name: str, formulation: str) -> None:
    """Raise ValueError when the solver called `name` is asked for an integer program that it cannot be given."""
    known = _entry(name).formulations
    if not known and formulation != Options().formulation:
        raise ValueError(f"{name} has a model of its own - give a formulation to a MILP solver such as cbc or highs")
    if known and formulation not in known:
        raise ValueError(f"no formulation is called {formulation!r} - choose one of {', '.join(known)}")


def improve(
    problem: Problem,
    name: str,
    options: Options,
    *,
    report: Report | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Improve `options.start`, as it runs with links first come, first served, by windows that an engine searches.

    As `solve`, but that the schedules are such runs too. ValueError without a start, or for an engine that is not among
    `WINDOWS`. The clock ends it: nothing of it is deterministic.
    """
    if name not in WINDOWS or options.start is None:
        raise ValueError(f"windows need a start and one of {', '.join(WINDOWS)}, not {name!r}")
    entry = WINDOWS[name]
    here = _availability(name, entry)
    judge = Judge(problem, options, report or _nobody, solver=name, version=here.version or "")
    if here.why_not:
        return judge.failed(Status.MISSING, here.why_not)
    return parent.run(problem, entry, options, judge, stop=stop)


def solve_whole(
    problem: Problem, name: str, options: Options, *, report: Report, stop: threading.Event | None = None
) -> Result:
    """As `solve`; but a solver that also searches windows, CP-SAT, searches its whole model alone."""
    here = _availability(name, _entry(name))
    if name not in _WHOLE or here.why_not:
        return solve(problem, name, options, report=report, stop=stop)
    entry = replace(_entry(name), attribute=_WHOLE[name])
    judge = Judge(problem, options, report, solver=name, version=here.version or "")
    return parent.run(problem, entry, options, judge, stop=stop)


def has_begun(result: Result) -> bool:
    """Return True if the solver began to solve, and was not stopped while its process still loaded it."""
    return not result.detail.startswith(NOT_BEGUN)


def program_text(problem: Problem, formulation: str = "tight", form: str = "lp") -> str:
    """Return the integer program that a formulation makes of a problem, in LP format or, with "mps", in MPS format.

    Its least objective is the least makespan, in the unit that the first lines say; its columns have names that can be
    read. ValueError for an unknown formulation or form, for a problem that the formulation cannot say, with the
    payload or the pairs that it cannot, for one of no tasks, and for one that has no schedule.
    """
    expect("problem", problem, Problem, "a solvers.Problem")
    _refuse_lives(problem)
    return written(problem, formulation, form, _horizon(problem))


def program_schedule(problem: Problem, values: Mapping[str, float], formulation: str = "tight") -> Schedule:
    """Return the schedule that values of the columns of `program_text` describe, by name, wherever they come from.

    Placement and order are taken from the values, times are computed anew, and the schedule is valid. ValueError as for
    `program_text`, for values of another program, and for values that are no feasible point.
    """
    expect("problem", problem, Problem, "a solvers.Problem")
    _refuse_lives(problem)
    found = read_back(problem, formulation, _horizon(problem), values)
    wrong = check(problem, found)
    if wrong:
        raise ValueError(f"the values describe no valid schedule: {wrong[0].text}")
    return found


def _refuse_lives(problem: Problem) -> None:
    if problem.lives is not None:
        raise ValueError("lives: no integer program says which bytes come and go - leave them out, or ask cpsat")


def _horizon(problem: Problem) -> int:
    """Return the ticks that some schedule takes."""
    quick = solve(problem, "list").schedule
    return serial(problem) if quick is None else quick.makespan


def _run_here(
    problem: Problem, entry: SolverEntry, options: Options, judge: Judge, stop: threading.Event | None
) -> Result:
    callers: list[Exception] = []

    def report(progress: Progress) -> None:
        try:
            judge.improved(progress.schedule, progress.lower_bound, progress.bound_by, progress.log)
        except Exception as error:
            callers.append(error)
            raise

    try:
        solver = entry.load()
        if stop is not None and isinstance(solver, Stoppable):
            solver = solver.until(stop)
        claim = solver.solve(problem, options, report)
    except KeyboardInterrupt:
        return judge.interrupted()
    except Exception as error:
        # Whatever a solver raises is its crash; what the caller's own report raised is the caller's.
        if callers:
            raise callers[0] from None
        if struck(error):
            return judge.interrupted()
        return judge.failed(Status.CRASHED, f"{type(error).__name__}: {error}")
    if claim.status is Status.INFEASIBLE and entry.confirms:
        return claim
    judge.take_in(claim.schedule, claim.lower_bound, claim.bound_by)
    if stop is not None and stop.is_set():
        return judge.interrupted()
    result = judge.ended(claim.status, claim.limit, claim.schedule, claim.lower_bound, claim.detail)
    return replace(result, detail=result.detail or claim.detail)


def _entry(name: str) -> SolverEntry:
    if name not in SOLVERS:
        close = difflib.get_close_matches(name, SOLVERS, n=1)
        hint = f"did you mean {close[0]}" if close else "choose one of these"
        raise ValueError(f"no solver is called {name!r}; there are {', '.join(SOLVERS)} - {hint}")
    return SOLVERS[name]


def _availability(name: str, entry: SolverEntry) -> Available:
    version = entry.version()
    why_not = "" if version is not None else f"{name} needs the package {entry.package} - pip install {entry.package}"
    return Available(name, version, why_not)


def _nobody(progress: Progress) -> None:
    del progress
