"""HiGHS by its own Python package."""

import math
import threading
from itertools import count
from typing import Any

import highspy
import numpy as np

from solvers.arrays import Floats
from solvers.milp.formulations import TOLERANCE
from solvers.milp.linear import Linear
from solvers.milp.solver import Milp
from solvers.milp.vendor import (
    CallbackRelay,
    RunRequest,
    VendorListener,
    VendorOutcome,
    ended,
    iterations,
    left_behind,
    no_optimum,
)
from solvers.result import Limit, Status

_PER_CALL = 30.0
"""Simplex iterations between two calls of the interrupt callback: of the work in a MIP it tells no other measure."""
_SIMPLEX_RATE = 20_000
"""Iterations of a linear program that stand for a second of `RunRequest.effort`; fewer of one with many entries. One
core does 34 000 on a labelling problem of 19 000 entries, and 14 000 on one of 260 000, where this comes to 12 000."""
_ALONE = threading.Lock()
"""Held by the one run at a time that works: all share threads, and one that was left behind may still use them."""
_RULES_OFF = 1 << 9 | 1 << 12
"""Presolve rules that HiGHS does without: doubleton equations and the aggregator. With them, versions 1.13 to 1.15 call
a point of 105.04 optimal where one of 103 is feasible; what presolve takes and saves is about the same without."""


def solver() -> Milp:
    """HiGHS as a `Solver`."""
    return Milp(name="highs", package="highspy", run=run)


def run(linear: Linear, ask: RunRequest, hear: VendorListener) -> VendorOutcome:
    """Run HiGHS; RuntimeError when it refuses the program."""
    relay = CallbackRelay(ask, hear)
    highs = highspy.Highs()
    options = {
        "log_to_console": False,
        "threads": ask.threads,
        "random_seed": ask.seed % 2**31,
        "mip_rel_gap": ask.gap,
        "mip_feasibility_tolerance": TOLERANCE,
        "primal_feasibility_tolerance": TOLERANCE,
        "presolve_rule_off": _RULES_OFF,
    }
    for name, value in options.items():
        if highs.setOptionValue(name, value) != highspy.HighsStatus.kOk:
            raise RuntimeError(f"HiGHS refuses {name} = {value}")
    most_calls = iterations(linear, ask.effort) / _PER_CALL
    calls = count(1)

    def ask_for_end(event: Any) -> None:
        relay.bound(event.data_out.mip_dual_bound)
        # HiGHS looks at its clock at times only: a limit of 20 s was overrun to 29.6 s.
        if relay.stop or next(calls) > most_calls:
            event.data_in.user_interrupt = True

    def improved(event: Any) -> None:
        relay.incumbent(event.data_out.mip_solution)

    highs.cbLogging += lambda event: relay.write(event.message)
    highs.cbMipImprovingSolution += improved
    highs.cbMipInterrupt += ask_for_end
    if math.isfinite(ask.effort) and not linear.integer.any():  # which calls nobody back
        most = ask.effort * _SIMPLEX_RATE / (1.0 + len(linear.column) / 400_000)
        if highs.setOptionValue("simplex_iteration_limit", math.ceil(most)) != highspy.HighsStatus.kOk:
            raise RuntimeError(f"HiGHS refuses {most:.0f} simplex iterations")
    whole = np.where(linear.integer, int(highspy.HighsVarType.kInteger), int(highspy.HighsVarType.kContinuous))
    status = highs.passModel(
        linear.columns, linear.rows, len(linear.column),
        int(highspy.MatrixFormat.kRowwise), int(highspy.ObjSense.kMinimize), 0.0,
        linear.cost, linear.lower, linear.upper, linear.row_lower, linear.row_upper,
        linear.offset.astype(np.int32), linear.column.astype(np.int32), linear.coefficient, whole.astype(np.int32),
    )  # fmt: skip
    if status == highspy.HighsStatus.kError:
        raise RuntimeError("HiGHS refuses the program")
    if ask.start is not None:
        highs.setSolution(linear.columns, np.arange(linear.columns, dtype=np.int32), ask.start)
    if not relay.ends(lambda: _solve(highs, relay)):
        return left_behind(relay.best_bound)
    return _outcome(highs, linear)


def _solve(highs: Any, relay: CallbackRelay) -> None:
    with _ALONE:
        if relay.done:
            return
        highs.setOptionValue("time_limit", relay.remaining)
        how = highs.run()
        # The number of threads is fixed until they are given back.
        highs.resetGlobalScheduler(True)
    if how == highspy.HighsStatus.kError:
        raise RuntimeError(f"HiGHS fails: {highs.modelStatusToString(highs.getModelStatus())}")


def _outcome(highs: Any, linear: Linear) -> VendorOutcome:
    model = highspy.HighsModelStatus
    found, info = highs.getModelStatus(), highs.getInfo()
    if found in (model.kUnboundedOrInfeasible, model.kUnbounded):
        return no_optimum(linear)
    statuses = {
        model.kOptimal: (Status.OPTIMAL, Limit.NONE),
        model.kModelEmpty: (Status.OPTIMAL, Limit.NONE),
        model.kInfeasible: (Status.INFEASIBLE, Limit.NONE),
        model.kTimeLimit: (Status.FEASIBLE, Limit.TIME),
        model.kInterrupt: (Status.FEASIBLE, Limit.TIME),
    }
    status, limit = statuses.get(found, (Status.FEASIBLE, Limit.OTHER))
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values: Floats | None = np.array(highs.getSolution().col_value) if feasible else None
    bound = info.mip_dual_bound if linear.integer.any() else info.objective_function_value
    return ended(status, limit, values, bound if math.isfinite(bound) else -math.inf)
