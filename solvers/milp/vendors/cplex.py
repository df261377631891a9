"""CPLEX by its Python package, with whatever licence there is: the one in the package takes small programs only."""

import math
from typing import Any

import cplex
import numpy as np

from solvers.arrays import Floats
from solvers.base import UnavailableError
from solvers.milp.formulations import TOLERANCE
from solvers.milp.linear import Linear
from solvers.milp.program_text import mps_file
from solvers.milp.solver import Milp
from solvers.milp.vendor import CallbackRelay, RunRequest, VendorListener, VendorOutcome, ended, no_optimum
from solvers.result import Limit, Status

_TICKS = 250.0
"""CPLEX's deterministic ticks in a second of `RunRequest.effort`; an idle core does about 1000 in a second."""
_TOO_LARGE = 1016
_UNLICENSED = range(32000, 33000)


def solver() -> Milp:
    """CPLEX as a `Solver`."""
    return Milp(name="cplex", package="cplex", run=run)


def run(linear: Linear, ask: RunRequest, hear: VendorListener) -> VendorOutcome:
    """Run CPLEX; UnavailableError where the licence is missing or too small, RuntimeError when it refuses."""
    relay = CallbackRelay(ask, hear)
    try:
        with cplex.Cplex() as model:
            for redirect in (model.set_log_stream, model.set_results_stream, model.set_warning_stream):
                redirect(relay)
            model.set_error_stream(None)
            with mps_file(linear) as file:
                model.read(str(file))
            p = model.parameters
            p.randomseed.set(ask.seed % 2_000_000_000)
            p.threads.set(ask.threads)
            p.parallel.set(p.parallel.values.deterministic)
            p.mip.tolerances.mipgap.set(min(ask.gap, 1.0))
            p.mip.tolerances.integrality.set(TOLERANCE)
            p.simplex.tolerances.feasibility.set(TOLERANCE)
            if math.isfinite(ask.effort):
                p.dettimelimit.set(ask.effort * _TICKS)
            if linear.integer.any():
                # Without whole columns CPLEX takes neither.
                if ask.start is not None:
                    start = cplex.SparsePair(list(range(linear.columns)), ask.start.tolist())
                    model.MIP_starts.add(start, model.MIP_starts.effort_level.auto)
                model.set_callback(_Progress(relay), cplex.callbacks.Context.id.global_progress)
            model.parameters.timelimit.set(relay.remaining)
            model.solve()
            relay.check()
            return _outcome(model, linear)
    except cplex.exceptions.CplexError as error:
        code = error.args[2] if len(error.args) > 2 else 0
        if code == _TOO_LARGE:
            size = f"{linear.columns} columns and {linear.rows} rows"
            raise UnavailableError(
                f"CPLEX's community edition ends at 1000 columns and 1000 rows, the program has {size} - "
                "install a full edition (see ibm.biz/error1016), or coarsen more"
            ) from None
        if code in _UNLICENSED:
            raise UnavailableError(f"{error} - install a licence for CPLEX") from None
        raise RuntimeError(f"CPLEX fails: {error}") from None


class _Progress:
    """CPLEX's generic callback."""

    def __init__(self, relay: CallbackRelay) -> None:
        self._relay, self._best = relay, cplex.infinity

    def invoke(self, context: Any) -> None:
        """Called by CPLEX when anything is new, from any of its threads."""
        kinds, relay = cplex.callbacks.Context.info, self._relay
        best = context.get_double_info(kinds.best_solution)
        if best < self._best:
            self._best = best
            relay.incumbent(np.array(context.get_incumbent()))
        relay.bound(context.get_double_info(kinds.best_bound))
        if relay.stop:
            context.abort()


def _outcome(model: Any, linear: Linear) -> VendorOutcome:
    solution = model.solution
    kinds, found = solution.status, solution.get_status()
    unknown = (kinds.unbounded, kinds.infeasible_or_unbounded, kinds.MIP_unbounded, kinds.MIP_infeasible_or_unbounded)
    if found in unknown:
        return no_optimum(linear)
    values: Floats | None = np.array(solution.get_values()) if solution.is_primal_feasible() else None
    status, limit = Status.FEASIBLE, Limit.TIME
    if found in (kinds.optimal, kinds.MIP_optimal, kinds.optimal_tolerance):
        status = Status.OPTIMAL
    elif found in (kinds.infeasible, kinds.MIP_infeasible):
        status = Status.INFEASIBLE
    elif found not in (  # a limit of time or work, or an abort by the callback
        kinds.MIP_time_limit_feasible, kinds.MIP_time_limit_infeasible, kinds.MIP_dettime_limit_feasible,
        kinds.MIP_dettime_limit_infeasible, kinds.MIP_abort_feasible, kinds.MIP_abort_infeasible,
        kinds.abort_time_limit, kinds.abort_dettime_limit,
    ):  # fmt: skip
        limit = Limit.OTHER
    bound = -math.inf
    if linear.integer.any():
        bound = float(solution.MIP.get_best_objective())
    elif status is Status.OPTIMAL:
        bound = float(solution.get_objective_value())
    return ended(status, limit, values, bound if abs(bound) < cplex.infinity else -math.inf)
