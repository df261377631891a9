"""Pesto's program (Middleware '21, section 3.2.2) in PuLP: minimise C_max subject to (1) - (10).

The rows are written once more, one by one, in `constraints.py`; the augmented graph, which pairs are open, and the
reading of points are those of `solvers.milp.paper`, which builds the same rows by arrays.
"""

from dataclasses import dataclass

import numpy as np
from pulp import LpConstraint, LpMinimize, LpProblem

from solvers.arrays import offsets
from solvers.milp.formulations import MakespanLimits
from solvers.milp.linear import INFINITY, Linear
from solvers.milp.paper.edges import horizon, unshared
from solvers.milp.paper.program import PaperProgram, variables
from solvers.milp.printed import constraints as c
from solvers.milp.printed.symbols import Symbols, symbols
from solvers.problem import Problem

NUMBERED = {
    1: c.precedence, 2: c.duration, 3: c.makespan, 4: c.cores, 5: c.crossing, 6: c.transfer_time, 7: c.congestion,
    8: c.memory, 9: c.codes, 10: c.gpus,
}  # fmt: skip
"""By its number in the paper, the function that yields the constraint's rows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PulpProgram(PaperProgram):
    """An `IntegerProgram`, and the PuLP problem that it was made from."""

    modelled: LpProblem
    symbols: Symbols
    """Its variables."""

    @property
    def names(self) -> list[str]:
        """[c] of the columns."""
        return [variable.name for variable in self.symbols.columns]


def build(problem: Problem, limits: MakespanLimits) -> PulpProgram:
    """The program of a problem of one or more tasks, with the horizon for M, M_s and M_l."""
    edges = unshared(problem)
    most = horizon(edges, limits.most)
    model = variables(edges.problem, (min(limits.least, most), most), limits)
    v = symbols(model, most / limits.unit)
    limits.check()
    modelled = _modelled(v, limits)
    for column, least in v.affine():
        model.assembly.forced.append((np.array([column]), least))
    number = {variable.name: column for column, variable in enumerate(v.columns)}
    n = problem.tasks
    pairs = [
        (base + i, base + j, number[delta.name])
        for base, orders in zip((0, n), v.delta, strict=True)
        for (i, j), delta in orders.items()
    ]
    one, two, order = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
    # The same as arrays, the rows in the order of their numbers.
    rows = list(modelled.constraints.values())
    entries = [[(number[x.name], float(a)) for x, a in row.items() if a] for row in rows]
    flat = np.array([entry for row in entries for entry in row], dtype=np.float64).reshape(-1, 2)
    cost = np.zeros(len(v.columns))
    cost[number[v.C_max.name]] = 1.0
    bounds = np.array([_bounds(row) for row in rows], dtype=np.float64).reshape(-1, 2)
    linear = Linear(
        cost=cost,
        lower=np.array([x.lowBound for x in v.columns], dtype=np.float64),
        upper=np.array([x.upBound for x in v.columns], dtype=np.float64),
        integer=np.array([x.isInteger() for x in v.columns], dtype=np.bool_),
        offset=offsets(np.array([len(row) for row in entries], dtype=np.int64)),
        column=flat[:, 0].astype(np.int64),
        coefficient=flat[:, 1],
        row_lower=bounds[:, 0],
        row_upper=bounds[:, 1],
    )
    return PulpProgram(
        origin=problem, edges=edges, model=model, pairs=(one, two, order), linear=linear,
        modelled=modelled, symbols=v,
    )  # fmt: skip


def _modelled(v: Symbols, limits: MakespanLimits) -> LpProblem:
    lp = LpProblem("pesto", LpMinimize)
    lp.setObjective(v.C_max + 0)
    for number, family in NUMBERED.items():
        for count, constraint in enumerate(family(v)):
            limits.check()
            lp.addConstraint(constraint, f"eq{number}_{count}")
    if not v.model.codes.units.allowed.any(axis=1).all():
        lp.addConstraint(v.C_max >= 2.0 * (1.0 + v.M), "no_location")
    return lp


def _bounds(row: LpConstraint) -> tuple[float, float]:
    """The least and greatest value of a row's terms."""
    right = 0.0 - float(row.constant)
    return (-INFINITY if row.sense < 0 else right, INFINITY if row.sense > 0 else right)
