"""`bounds`: the solver-free arguments as a `Solver` that finds no schedule, so that they can run beside the others."""

import time

from solvers.base import Report
from solvers.bounds.strong import strong
from solvers.bounds.windows import informed
from solvers.instances.plain import chain
from solvers.problem import Problem
from solvers.progress import SolveMonitor
from solvers.result import Limit, Options, Result

_TASKS = 4


def compile_ahead() -> None:
    """Run all of it on a chain: many seconds once on a machine, after which numba has it on disk; a moment later on."""
    tiny = chain(_TASKS)
    strong(tiny)
    informed(tiny, 2 * _TASKS)


VERSION = "1"
"""Changes when a bound may."""
_SHARE = 0.9
"""Share of the time limit that the arguments get: compiled ones check the clock only now and then."""


class BoundSolver:
    """The best of all arguments of `solvers.bounds.strong`."""

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """The bound, with `options.start` as the schedule, whose makespan the destructive arguments use."""
        began = time.monotonic()
        watch = SolveMonitor(problem, options, report, solver="bounds", version=VERSION)
        if options.seconds > 0 and not watch.closed:
            upper = watch.best.makespan if watch.best else None
            found = strong(problem, upper=upper, seconds=_SHARE * options.seconds)
            watch.better_bound(found.ticks, found.name)
        over = time.monotonic() - began >= _SHARE * options.seconds
        return watch.result(Limit.TIME if over else Limit.OTHER, "all arguments were tried")
