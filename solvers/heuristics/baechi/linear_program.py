"""The linear program of SCT (Hanen and Munier 1995; Baechi's `m_sct.py`), solved by GLOP.

With small communications (none longer than the shortest operator), at most one successor of an operator i begins less
than c_ij after it, on the same processor, and at most one predecessor of j ends less than c_ij before it. The program
has a share y_ij in [0, 1] for each edge (x_ij = 1 - y_ij in the papers):

    minimise w,  s_j >= s_i + p_i + c_ij (1 - y_ij),  w >= s_i + p_i,  sum_j y_ij <= 1,  sum_i y_ij <= 1

No share is given to an edge that costs nothing, or that joins operators which are together anyway or never can be.

GLOP's dual simplex by measurement, on one core, operators after fusion: 1 440 take 0.2 s (HiGHS' interior point 0.3 s,
PDLP 4.5 s at a tolerance of 1e-4), 5 466 take 1.3 s, 12 513 take 7.4 s, 11 338 of another model 12.9 s (interior point
17 s, PDLP no answer in 50 s). Random graphs are shallow and easier: 921 operators take 0.05 s, 9 528 take 0.5 s and
95 557 take 18 s.
"""

import datetime
from typing import Any

import numpy as np
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt

from solvers.arrays import Floats, Ints, floats
from solvers.heuristics.baechi.graph import OperatorGraph, OperatorWeights


def shares(
    g: OperatorGraph, w: OperatorWeights, seconds: float, *, deterministic: bool = False
) -> tuple[Floats, float] | None:
    """Return ([e] y of each edge, least w in ticks); None when the program is not solved in `seconds`.

    deterministic: GLOP counts its work, in units of about a second, instead of the time.
    """
    if not len(w.took):
        return np.zeros(0), 0.0
    scale = 1.0 / max(1.0, float(w.took.mean()))
    parameters = mathopt.SolveParameters(lp_algorithm=mathopt.LPAlgorithm.DUAL_SIMPLEX, threads=1)
    if deterministic:
        parameters.glop.max_deterministic_time = seconds
    else:
        parameters.time_limit = datetime.timedelta(seconds=seconds)
    model = mathopt.Model.from_model_proto(_program(g, w, scale))
    result = mathopt.solve(model, mathopt.SolverType.GLOP, params=parameters)
    if result.termination.reason != mathopt.TerminationReason.OPTIMAL:
        return None
    values, edge = result.variable_values(), np.flatnonzero(w.open)
    share = np.zeros(len(g.src))
    share[edge] = [values[variable] for variable in list(model.variables())[: len(edge)]]
    return share, result.objective_value() / scale


class _SparseRows:
    """The rows of a sparse program, block by block."""

    def __init__(self) -> None:
        self.row: list[Ints] = []
        self.column: list[Ints] = []
        self.value: list[Floats] = []
        self.lower: list[Floats] = []
        self.upper: list[Floats] = []
        self.count = 0

    def block(self, lower: Floats, upper: Floats, *entries: tuple[Ints, Ints, Floats]) -> None:
        """Append rows with these bounds; `entries` are (row in the block, column, value)."""
        for row, column, value in entries:
            self.row.append(row + self.count)
            self.column.append(column)
            self.value.append(value)
        self.lower.append(lower)
        self.upper.append(upper)
        self.count += len(lower)


def _program(g: OperatorGraph, w: OperatorWeights, scale: float) -> Any:
    """Columns: a share for each open edge, a start for each operator, and the makespan; times in mean durations."""
    k, edges, open_ = len(w.took), np.arange(len(g.src)), np.flatnonzero(w.open)
    shares_, columns = len(open_), len(open_) + k + 1
    rows, one, endless = _SparseRows(), np.ones, np.full
    rows.block(
        floats((w.took[g.src] + w.comm) * scale), endless(len(edges), np.inf),
        (edges, shares_ + g.dst, one(len(edges))), (edges, shares_ + g.src, -one(len(edges))),
        (open_, np.arange(shares_), floats(w.comm[open_] * scale)),
    )  # fmt: skip
    for end in (g.src[open_], g.dst[open_]):
        several = np.bincount(end, minlength=k) > 1
        inside = np.flatnonzero(several[end])
        number = (np.cumsum(several) - 1)[end[inside]]
        count = int(several.sum())
        rows.block(endless(count, -np.inf), one(count), (number, inside, one(len(inside))))
    last = np.flatnonzero(np.bincount(g.src, minlength=k) == 0)
    at = np.arange(len(last))
    makespan = (at, endless(len(last), columns - 1), one(len(last)))
    rows.block(
        floats(w.took[last] * scale), endless(len(last), np.inf), makespan, (at, shares_ + last, -one(len(last)))
    )
    # The program as MathOpt takes it: minimise the last column, all columns from 0 to `upper`.
    upper = np.concatenate([one(shares_), endless(k + 1, np.inf)])
    row, column, value = (np.concatenate(part) for part in (rows.row, rows.column, rows.value))
    by = np.lexsort((column, row))
    p = model_pb2.ModelProto()
    p.variables.ids.extend(range(len(upper)))
    p.variables.lower_bounds.extend([0.0] * len(upper))
    p.variables.upper_bounds.extend(upper.tolist())
    p.variables.integers.extend([False] * len(upper))
    p.linear_constraints.ids.extend(range(rows.count))
    p.linear_constraints.lower_bounds.extend(np.concatenate(rows.lower).tolist())
    p.linear_constraints.upper_bounds.extend(np.concatenate(rows.upper).tolist())
    p.linear_constraint_matrix.row_ids.extend(row[by].tolist())
    p.linear_constraint_matrix.column_ids.extend(column[by].tolist())
    p.linear_constraint_matrix.coefficients.extend(value[by].tolist())
    p.objective.linear_coefficients.ids.append(len(upper) - 1)
    p.objective.linear_coefficients.values.append(1.0)
    return p
