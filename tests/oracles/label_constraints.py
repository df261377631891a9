"""CP-SAT model of the reduced problem: a literal for each label and for each pair of labels with a cost.

It is run as `python -m label_constraints`, in place of the linear program (`solvers.labels.subprocess_lp.PROGRAM`).
"""

import math
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from solvers.labels.factor_graph import NEVER, FactorGraph
from solvers.labels.subprocess_lp import LabelLimits, RelaxationResult, serve


def constrained(net: FactorGraph, budget: LabelLimits) -> RelaxationResult:
    """The best labels that are found, with CP-SAT's bound; RuntimeError when it refuses the model."""
    model, taken = cp_model.CpModel(), list[Any]()
    for begin, end in zip(net.first[:-1].tolist(), net.first[1:].tolist(), strict=True):
        mine = [model.new_bool_var("") for _ in range(begin, end)]
        model.add_exactly_one(mine)
        taken += mine
    for label in np.flatnonzero(net.cost >= NEVER).tolist():
        model.add(taken[label] == 0)
    dear = np.flatnonzero((net.cost > 0) & (net.cost < NEVER)).tolist()
    costs, paid = net.cost[dear].tolist(), [taken[label] for label in dear]
    for one, other, cost in _pairs(net):
        if cost >= NEVER:
            model.add_bool_or(~taken[one], ~taken[other])
            continue
        paid.append(model.new_bool_var(""))
        costs.append(cost)
        model.add_bool_or(~taken[one], ~taken[other], paid[-1])
    unit = math.gcd(*costs) or 1
    model.minimize(cp_model.LinearExpr.weighted_sum(paid, [cost // unit for cost in costs]))
    return _solved(net, model, taken, (budget, unit))


def _pairs(net: FactorGraph) -> list[tuple[int, int, int]]:
    """(label of one variable, label of the other, cost) of each pair that is not free, labels counted over all."""
    many, pair = np.diff(net.first), np.flatnonzero(net.table)
    edge = np.searchsorted(net.begin, pair, side="right") - 1
    row, column = np.divmod(pair - net.begin[edge], many[net.b[edge]])
    one, other = net.first[net.a[edge]] + row, net.first[net.b[edge]] + column
    return list(zip(one.tolist(), other.tolist(), net.table[pair].tolist(), strict=True))


def _solved(net: FactorGraph, model: Any, taken: list[Any], asked: tuple[LabelLimits, int]) -> RelaxationResult:
    budget, unit = asked
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = budget.left_s
    solver.parameters.num_workers = max(1, budget.threads)
    if budget.deterministic:
        solver.parameters.interleave_search = True
        solver.parameters.max_deterministic_time = max(0.1, budget.seconds)
    status = solver.solve(model)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT refuses the model: {model.validate()}")
    if status == cp_model.INFEASIBLE:
        return RelaxationResult(None, NEVER, ended=True, fractional=0, infeasible=True)
    bound = unit * max(0, math.ceil(solver.best_objective_bound - 1e-6))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return RelaxationResult(None, bound, ended=False, fractional=0)
    values = np.array([solver.boolean_value(label) for label in taken])
    # The label of each variable that is taken.
    labels = np.array(
        [values[b:e].argmax() for b, e in zip(net.first[:-1], net.first[1:], strict=True)], dtype=np.int64
    )
    return RelaxationResult(labels, bound, ended=status == cp_model.OPTIMAL, fractional=0)


if __name__ == "__main__":
    serve(constrained)
