"""Gurobi by its Python package, with whatever licence there is: the one in the package takes small programs only."""

import math
from typing import Any

import gurobipy
import numpy as np
from gurobipy import GRB

from solvers.arrays import Floats
from solvers.base import UnavailableError
from solvers.milp.formulations import TOLERANCE
from solvers.milp.linear import Linear
from solvers.milp.program_text import mps_file
from solvers.milp.solver import Milp
from solvers.milp.vendor import CallbackRelay, RunRequest, VendorListener, VendorOutcome, ended, no_optimum
from solvers.result import Limit, Status

_WORK = 0.25
"""Gurobi's work units in a second of `RunRequest.effort`; one takes about a second on an idle core."""
_STATUSES = {
    GRB.OPTIMAL: (Status.OPTIMAL, Limit.NONE),
    GRB.INFEASIBLE: (Status.INFEASIBLE, Limit.NONE),
    GRB.TIME_LIMIT: (Status.FEASIBLE, Limit.TIME),
    GRB.WORK_LIMIT: (Status.FEASIBLE, Limit.TIME),
    GRB.INTERRUPTED: (Status.FEASIBLE, Limit.TIME),
}


def solver() -> Milp:
    """Gurobi as a `Solver`."""
    return Milp(name="gurobi", package="gurobipy", run=run)


def run(linear: Linear, ask: RunRequest, hear: VendorListener) -> VendorOutcome:
    """Run Gurobi; UnavailableError where the licence is missing or too small, RuntimeError when it refuses."""
    relay = CallbackRelay(ask, hear)
    try:
        with gurobipy.Env(empty=True) as env:
            env.setParam("LogToConsole", 0)
            env.start()
            with mps_file(linear) as file, gurobipy.read(str(file), env) as model:
                settings = {"Seed": ask.seed % 2_000_000_000, "Threads": ask.threads, "MIPGap": ask.gap}
                settings |= {"FeasibilityTol": TOLERANCE, "IntFeasTol": TOLERANCE, "OutputFlag": 1}
                if math.isfinite(ask.effort):
                    settings["WorkLimit"] = ask.effort * _WORK
                for name, value in settings.items():
                    model.setParam(name, value)
                # Gurobi adds a column for each row with two bounds.
                columns = model.getVars()[: linear.columns]
                if ask.start is not None:
                    model.setAttr("Start", columns, ask.start.tolist())
                model.Params.TimeLimit = relay.remaining

                def called(model: Any, where: int) -> None:
                    what = GRB.Callback
                    if where == what.MIPSOL:
                        relay.incumbent(np.array(model.cbGetSolution(columns)))
                    elif where == what.MIP:
                        relay.bound(model.cbGet(what.MIP_OBJBND))
                    elif where == what.MESSAGE:
                        relay.write(model.cbGet(what.MSG_STRING))
                    if relay.stop:
                        model.terminate()

                model.optimize(called)
                relay.check()
                if model.Status in (GRB.INF_OR_UNBD, GRB.UNBOUNDED):
                    return no_optimum(linear)
                status, limit = _STATUSES.get(model.Status, (Status.FEASIBLE, Limit.OTHER))
                values: Floats | None = np.array(model.getAttr("X", columns)) if model.SolCount else None
                bound = model.ObjBound if model.IsMIP else (model.ObjVal if status is Status.OPTIMAL else -math.inf)
                return ended(status, limit, values, bound if abs(bound) < GRB.INFINITY else -math.inf)
    except gurobipy.GurobiError as error:
        if error.errno == GRB.Error.SIZE_LIMIT_EXCEEDED:
            size = f"{linear.columns} columns and {linear.rows} rows"
            raise UnavailableError(
                f"this Gurobi licence ends at 2000 columns and 2000 rows, the program has {size} - "
                "install a licence (see gurobi.com/unrestricted), or coarsen more"
            ) from None
        if error.errno == GRB.Error.NO_LICENSE:
            raise UnavailableError(f"{error} - install a licence (see gurobi.com/unrestricted)") from None
        raise RuntimeError(f"Gurobi fails: {error}") from None
