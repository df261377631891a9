"""One small problem as one run of CP-SAT, which looks for something shorter than a schedule of it."""

import math
from collections import defaultdict
from itertools import combinations

from ortools.sat.python import cp_model

from solvers.cpsat.model import IntervalModel, build
from solvers.cpsat.translate import add_hint, rough_schedule
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.timing.rebuild import rebuild

_LEAST_S = 0.02
"""Seconds that are too few for a search: CP-SAT has been seen to abort when it is stopped as it begins."""


def shorter(
    problem: Problem, start: Schedule, *, effort: float, seconds: float = math.inf, seed: int = 0
) -> tuple[Schedule | None, bool]:
    """A valid schedule that is shorter than a valid one, None if none was found; whether all was looked at.

    Links are first come, first served. effort: CP-SAT's deterministic seconds at most. RuntimeError when it refuses the
    model.
    """
    if start.makespan < 1 or seconds < _LEAST_S:
        return None, start.makespan < 1
    model = build(problem, least=0, most=start.makespan - 1)
    _first_come(model)
    add_hint(model, start)
    solver = cp_model.CpSolver()
    p = solver.parameters
    p.num_workers = 1
    p.random_seed = seed
    p.max_deterministic_time = effort
    p.max_time_in_seconds = min(seconds, 1e9)
    # As measured for the windows of `solvers.cpsat.descent`.
    p.linearization_level = 0
    p.cp_model_probing_level = 0
    p.use_precedences_in_disjunctive_constraint = False
    found = solver.solve(model.cp)
    if found == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT refuses the model: {model.cp.validate()}")
    closed = found in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    if found not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, closed
    return rebuild(problem, rough_schedule(model, solver.value)), closed


def _first_come(model: IntervalModel) -> None:
    """Transfers that share a link start in the order in which their producers end."""
    p, cp = model.problem, model.cp
    on = defaultdict[int, set[int]](set)
    for number, crossing in enumerate(model.crossings):
        for sources, _ in crossing.variants:
            for link in p.holds[sources[0], crossing.to].tolist():
                on[link].add(number)
    on.pop(-1, None)
    for one, two in sorted({pair for sharing in on.values() for pair in combinations(sorted(sharing), 2)}):
        a, b = model.crossings[one], model.crossings[two]
        first, second = model.end[int(p.producer[a.payload])], model.end[int(p.producer[b.payload])]
        if p.producer[a.payload] == p.producer[b.payload]:
            continue
        before = cp.new_bool_var("")
        for literal, early, late, x, y in ((before, first, second, a, b), (~before, second, first, b, a)):
            there = [literal, a.present, b.present]
            cp.add(early <= late).only_enforce_if(there)
            cp.add(x.start <= y.start).only_enforce_if(there)
