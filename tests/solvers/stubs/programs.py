"""Small mixed-integer programs with known answers, for the adapters of MILP vendors."""

import itertools
import math

import numpy as np
from exhaustive import exhaustive

from solvers.milp.linear import INFINITY, LinearBuilder
from solvers.problem import Problem


def random_program(seed):
    """A program and its optimum, None when infeasible: whole x in boxes, whole z and real y with no upper bound.

    y and z are pushed down by their costs onto rows  y >= a x + b,  z >= a x + b,  so that enumeration of x suffices.
    Now and then a column is fixed, a row is empty, unbounded, an equality, or bounded on both sides.
    """
    rng = np.random.default_rng(seed)
    rows, n = LinearBuilder(), int(rng.integers(1, 5))
    low = rng.integers(-3, 2, n)
    high = low + rng.integers(0, 4, n)
    cost = rng.integers(-5, 6, n + 2).astype(float)
    cost[n:] = rng.integers(1, 6, 2)
    x = [rows.column(float(a), float(b), cost=c, integer=True) for a, b, c in zip(low, high, cost, strict=False)]
    y = rows.column(-INFINITY if rng.random() < 0.3 else -200.0, INFINITY, cost=cost[n])
    z = rows.column(-7.5, INFINITY, cost=cost[n + 1], integer=True)
    limits, pushed = [], {y: [], z: []}
    for _ in range(int(rng.integers(0, 4))):
        a, b = rng.integers(-4, 5, n), float(rng.integers(-6, 7))
        least, most = [(b, b), (b, b + 2.5), (-INFINITY, b), (b, INFINITY), (-INFINITY, INFINITY)][rng.integers(5)]
        rows.row(zip(x, a.astype(float), strict=True), at_least=least, at_most=most)
        limits.append((a, least, most))
    for column, denominator in ((y, 1.0), (y, 2.0), (z, 1.0), (z, 2.0)):
        a, b = rng.integers(-4, 5, n) / denominator, float(rng.integers(-6, 7)) / denominator
        rows.row([(column, 1.0), *zip(x, -a, strict=True)], at_least=b)
        pushed[column].append((a, b))
    if rng.random() < 0.3:
        rows.row([], at_least=-1.0, at_most=1.0)
    best = None
    for point in itertools.product(*(range(a, b + 1) for a, b in zip(low.tolist(), high.tolist(), strict=True))):
        at = np.array(point)
        if any(not least <= a @ at <= most for a, least, most in limits):
            continue
        real = max(a @ at + b for a, b in pushed[y])
        whole = math.ceil(max(-7.5, *(a @ at + b for a, b in pushed[z])))
        value = float(cost[:n] @ at + cost[n] * real + cost[n + 1] * whole)
        best = value if best is None else min(best, value)
    return rows.linear(), best


def infeasible(whole):
    """2 v = 1 in whole v: its relaxation is feasible; or 2 v >= 11 for v <= 5, where not even that is."""
    rows = LinearBuilder()
    v = rows.column(0.0, 5.0, cost=1.0, integer=True)
    rows.row([(v, 2.0)], at_least=1.0 if whole else 11.0, at_most=1.5 if whole else INFINITY)
    return rows.linear()


def unbounded():
    """Cost that falls for ever along a feasible ray."""
    rows = LinearBuilder()
    v, w = rows.column(-INFINITY, 5.0, cost=1.0, integer=True), rows.binary()
    rows.row([(v, 1.0), (w, 1.0)], at_most=11.0)
    return rows.linear()


def real_only():
    """A linear program, 2 v >= 3 with least v = 1.5, and one without rows, with least cost 2 - 3 = -1; with starts."""
    rows, bare = LinearBuilder(), LinearBuilder()
    rows.row([(rows.column(0.0, 5.0, cost=1.0), 2.0)], at_least=3.0)
    bare.column(1.0, 5.0, cost=2.0, integer=True)
    bare.column(-INFINITY, 3.0, cost=-1.0)
    return [(rows.linear(), 1.5, np.array([2.0])), (bare.linear(), -1.0, np.array([2.0, 0.0]))]


def job_shop(jobs, machines, seed=1):
    """A random job shop with one big M, and a start that dispatches the job with most work left."""
    rng, rows = np.random.default_rng(seed), LinearBuilder()
    ticks = rng.integers(1, 100, (jobs, machines))
    route = np.array([rng.permutation(machines) for _ in range(jobs)])
    most = float(ticks.sum())
    length = rows.column(0.0, most, cost=1.0)
    start = np.array([[rows.column(0.0, most) for _ in range(machines)] for _ in range(jobs)])
    begin = dispatched(ticks, route)
    values = [float((begin + ticks).max()), *begin.astype(float).ravel().tolist()]
    for j in range(jobs):
        for k in range(machines - 1):
            rows.row([(start[j, k + 1], 1.0), (start[j, k], -1.0)], at_least=float(ticks[j, k]))
        rows.row([(length, 1.0), (start[j, -1], -1.0)], at_least=float(ticks[j, -1]))
    for machine in range(machines):
        stage = [int(np.flatnonzero(row == machine)[0]) for row in route]
        for i, j in itertools.combinations(range(jobs), 2):
            a, b, first = (i, stage[i]), (j, stage[j]), rows.binary()
            rows.row([(start[b], 1.0), (start[a], -1.0), (first, -most)], at_least=float(ticks[a]) - most)
            rows.row([(start[a], 1.0), (start[b], -1.0), (first, most)], at_least=float(ticks[b]))
            values.append(float(begin[a] < begin[b]))
    linear, point = rows.linear(), np.array(values)
    assert linear.violation(point) < 1e-9
    return linear, point


def dispatched(ticks, route):
    """Starts of a schedule that always begins, at the earliest, the next step of the job with most work left."""
    jobs, machines = ticks.shape
    step, ready, free = np.zeros(jobs, int), np.zeros(jobs, int), np.zeros(machines, int)
    begin = np.zeros_like(ticks)
    for _ in range(ticks.size):
        open_ = [j for j in range(jobs) if step[j] < machines]
        at = {j: max(ready[j], free[route[j, step[j]]]) for j in open_}
        j = min(open_, key=lambda j: (at[j], -ticks[j, step[j] :].sum()))
        begin[j, step[j]] = at[j]
        ready[j] = free[route[j, step[j]]] = at[j] + ticks[j, step[j]]
        step[j] += 1
    return begin


def contended():
    """A problem of seven tasks, three host cores, one GPU and one link, and an optimal schedule of it, of 103 ticks."""
    problem = Problem(
        duration=[[-1, -1, -1, 2], [-1, -1, -1, 18], [19, 0, 20, 12], [23, 0, 22, 9], [-1, -1, -1, 10],
                  [-1, -1, -1, 16], [31, 30, 31, -1]],
        location=[0, 0, 0, 1], memory=[46, 5, 92, 74, 2, 47, 39], capacity=[147, 247], src=[5, 5, 1, 1, 4, 1, 5, 1, 5],
        dst=[3, 6, 6, 2, 2, 6, 6, 3, 2], payload=[0, -1, 1, 2, 3, 4, -1, 5, 6], producer=[5, 1, 1, 4, 1, 1, 5],
        transfer=[[10], [20], [5], [0], [35], [35], [0]], path_class=[[-1, 0], [0, -1]],
        path_links=[[[-1], [1]], [[1], [-1]]], group=[-1] * 7,
    )  # fmt: skip
    return problem, exhaustive(problem)
