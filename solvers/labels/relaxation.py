"""Linear program of the reduced problem over the local polytope (Schlesinger 1976), with integers where needed.

A column for each label and for each pair of labels of an edge; the labels of a variable sum to 1, and the pairs of an
edge with one label at one end to that label. Its optimum is whole on trees, and mostly on training steps too. It is run
as `python -m solvers.labels.relaxation` (`solvers.labels.subprocess_lp`).
"""

import math
from dataclasses import replace

import numpy as np

from solvers.arrays import Floats, Ints, offsets
from solvers.labels.factor_graph import NEVER, FactorGraph
from solvers.labels.subprocess_lp import LabelLimits, RelaxationResult, serve
from solvers.milp.linear import Linear
from solvers.milp.vendor import LastIncumbent, RunRequest, VendorOutcome
from solvers.milp.vendors import highs
from solvers.result import Status

_WHOLE = 1e-6
_TRUSTED = 1e-9
"""Relative error allowed for an optimum of HiGHS; at least a quarter of the least difference of two values."""


def relaxed(net: FactorGraph, budget: LabelLimits) -> RelaxationResult:
    """Solve the linear program, and with whole labels where its optimum is not whole."""
    unit = max(1, int(np.gcd.reduce(np.concatenate([_known(net.cost), _known(net.table)]), initial=0)))
    labels, variables = len(net.cost), len(net.first) - 1
    row, column, entry = _entries(net)
    order = np.argsort(row, kind="stable")
    rows = int(row.max(initial=-1)) + 1
    cost = np.concatenate([net.cost, net.table])
    right = np.concatenate([np.ones(variables), np.zeros(rows - variables)])
    linear = Linear(
        cost=np.where(cost < NEVER, cost, 0) / unit, lower=np.zeros(labels + len(net.table)),
        upper=(cost < NEVER).astype(np.float64), integer=np.zeros(labels + len(net.table), dtype=np.bool_),
        offset=offsets(np.bincount(row, minlength=rows)), column=column[order], coefficient=entry[order],
        row_lower=right, row_upper=right,
    )  # fmt: skip
    effort = budget.seconds if budget.deterministic else math.inf
    ask = RunRequest(seconds=budget.left_s, gap=0.0, seed=0, threads=budget.threads, start=None, effort=effort)
    first = highs.run(linear, ask, LastIncumbent())
    if first.status is Status.INFEASIBLE:
        return RelaxationResult(None, NEVER, ended=True, fractional=0, infeasible=True)
    if first.status is not Status.OPTIMAL or first.values is None:
        return RelaxationResult(None, 0, ended=False, fractional=0)
    many = len(net.cost)
    fractional = int((np.abs(first.values[:many] - np.rint(first.values[:many])) > _WHOLE).sum())
    bound = _bound(first, unit)
    if not fractional:
        return RelaxationResult(_labels(net, first.values), bound, ended=True, fractional=0)
    whole = replace(linear, integer=np.arange(linear.columns) < many)
    second = highs.run(whole, replace(ask, seconds=budget.left_s), LastIncumbent())
    if second.status is Status.INFEASIBLE:
        return RelaxationResult(None, NEVER, ended=True, fractional=fractional, infeasible=True)
    result = None if second.values is None else _labels(net, second.values)
    return RelaxationResult(result, max(bound, _bound(second, unit)), second.status is Status.OPTIMAL, fractional)


def _known(costs: Ints) -> Ints:
    return costs[costs < NEVER]


def _bound(outcome: VendorOutcome, unit: int) -> int:
    """Return the least value that whole labels can have: a multiple of the unit."""
    if not math.isfinite(outcome.bound):
        return 0
    return unit * max(0, math.ceil(outcome.bound - max(0.25, _TRUSTED * outcome.bound)))


def _labels(net: FactorGraph, values: Floats) -> Ints:
    return np.array([values[b:e].argmax() for b, e in zip(net.first[:-1], net.first[1:], strict=True)], dtype=np.int64)


def _entries(net: FactorGraph) -> tuple[Ints, Ints, Floats]:
    """Return row, column and value of each entry of the matrix.

    Rows: one a variable, then one for each label of each edge's first end, then one for each of its second. Columns:
    labels, then pairs.
    """
    labels, variables, many = len(net.cost), len(net.first) - 1, np.diff(net.first)
    pair = np.arange(len(net.table))
    edge = np.repeat(np.arange(len(net.a)), np.diff(net.begin))
    columns = many[net.b][edge]
    place = pair - net.begin[edge]
    row, column, entry = [np.repeat(np.arange(variables), many)], [np.arange(labels)], [np.ones(labels)]
    below = variables
    for end, label in ((net.a, place // columns), (net.b, place % columns)):
        first = offsets(many[end])
        of = np.repeat(np.arange(len(end)), many[end])
        row += [below + first[edge] + label, below + np.arange(first[-1])]
        column += [labels + pair, net.first[end][of] + np.arange(first[-1]) - first[of]]
        entry += [np.ones(len(pair)), -np.ones(first[-1])]
        below += int(first[-1])
    return np.concatenate(row), np.concatenate(column), np.concatenate(entry)


if __name__ == "__main__":
    serve(relaxed)
