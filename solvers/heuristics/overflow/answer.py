"""The answer of a solver that was asked without lives, for the problem that has them."""

from dataclasses import replace

import numpy as np

from solvers.arrays import rank_of
from solvers.compiled.dag import topological_order
from solvers.deadlines import after
from solvers.footprint import Footprint
from solvers.heuristics.overflow.relief import relieve
from solvers.memory.usage import fits
from solvers.problem import Problem
from solvers.result import ANSWERED, FAILED, Limit, Options, Result, Status
from solvers.schedule import Schedule

SECONDS = 10.0
"""For a repair, about."""


def fitted(problem: Problem, found: Result, options: Options) -> Result:
    """A result for the problem without its lives, made one for the problem with them.

    A bound holds as it is: lives only exclude schedules. A schedule that fits stays, and is optimal if it was; another
    is repaired (`relieve`), and never proves more than the bound does. Nothing is worse than `options.start`.
    """
    bound = max(found.lower_bound, options.lower_bound)
    by = found.bound_by if bound == found.lower_bound else "given"
    schedule, detail = found.schedule, found.detail
    if schedule is not None and problem.lives is not None and not fits(problem, schedule):
        schedule, detail = _repaired(problem, problem.lives, schedule)
    best = min((s for s in (schedule, options.start) if s is not None), key=lambda s: s.makespan, default=None)
    status, limit = found.status, found.limit
    if status not in FAILED and (status in ANSWERED or best is not None):
        status = Status.FEASIBLE if best is not None else Status.UNKNOWN
        limit = Limit.OTHER if found.status is Status.OPTIMAL else limit
        if best is not None and best.makespan == bound:
            status, limit = Status.OPTIMAL, Limit.NONE
    return replace(found, status=status, limit=limit, schedule=best, lower_bound=bound, bound_by=by, detail=detail)


def _repaired(problem: Problem, lives: Footprint, schedule: Schedule) -> tuple[Schedule | None, str]:
    """A schedule with units moved until it fits, None where no way is found; and what was done, in one line."""
    # [n] rank by start, then finish, then position in a topological order.
    position = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    order = rank_of(np.lexsort((position, schedule.finish, schedule.start)))
    relief = relieve(problem, lives, schedule.device, order=order, late=after(SECONDS))
    if not relief.fits:
        return None, f"it knows of no bytes that come and go, and no repair was found: {relief.shortfall}"
    return relief.schedule, f"it knows of no bytes that come and go: {relief.moved} tasks or groups moved to fit"
