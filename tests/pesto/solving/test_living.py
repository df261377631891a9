"""Tight memory where the exact solver has every op: it is given the graph with its tensors' lives."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from pesto.coarsen import coarsen
from pesto.solving.living import living
from solvers import Status, api, check


def test_the_graph_itself_where_memory_is_tight_and_not_elsewhere(step_of_six) -> None:
    """A shorter candidate that does not fit makes it so; the schedule that CP-SAT finds then fits, and expands."""
    bench, level = step_of_six
    alone = bench.placed("single", "", np.full(bench.problem.tasks, 1))
    fits = SimpleNamespace(candidates={"single": replace(alone, fits=True)}, best=replace(alone, fits=True))
    assert living(bench, level, fits) is level
    over = SimpleNamespace(candidates={"single": replace(alone, fits=False)}, best=None)
    found = living(bench, level, over)
    assert found.problem.lives is not None and found.schedule is None
    result = api.solve(found.problem, "list")
    assert result.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert check(found.problem, result.schedule) == ()
    assert bench.ordered("x", "", *bench.expand(found.coarsening, result.schedule)[:2]).makespan > 0
    assert living(bench, replace(level, coarsening=coarsen(bench.problem, 2)), over).problem is level.problem
