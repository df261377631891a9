"""SCIP by its Python package PySCIPOpt."""

import contextlib
import math
from typing import Any

import numpy as np
import pyscipopt

from solvers.arrays import Floats
from solvers.milp.formulations import TOLERANCE
from solvers.milp.linear import Linear
from solvers.milp.program_text import mps_file
from solvers.milp.solver import Milp
from solvers.milp.vendor import CallbackRelay, RunRequest, VendorListener, VendorOutcome, ended, iterations, no_optimum
from solvers.result import Limit, Status

_STATUSES = {
    "optimal": (Status.OPTIMAL, Limit.NONE),
    "infeasible": (Status.INFEASIBLE, Limit.NONE),
    "gaplimit": (Status.FEASIBLE, Limit.GAP),
    "timelimit": (Status.FEASIBLE, Limit.TIME),
    "userinterrupt": (Status.FEASIBLE, Limit.TIME),
}


def solver() -> Milp:
    """SCIP as a `Solver`."""
    return Milp(name="scip", package="PySCIPOpt", run=run)


def run(linear: Linear, ask: RunRequest, hear: VendorListener) -> VendorOutcome:
    """Run SCIP, on one thread whatever `ask.threads` says; OSError when it refuses the program."""
    relay = CallbackRelay(ask, hear)
    model = pyscipopt.Model()
    with contextlib.redirect_stdout(relay):  # type: ignore[type-var]
        # SCIP's lines are handed to Python without its lock, so `optimize` must keep it.
        model.redirectOutput()
        with mps_file(linear) as file:
            model.readProblem(file)
        columns = sorted(model.getVars(), key=lambda column: int(column.name[1:]))
        settings = {
            "randomization/randomseedshift": ask.seed % 2**31,
            "timing/clocktype": 2,  # the wall's
            "numerics/feastol": TOLERANCE,
            # SCIP's gap is relative to the smaller of objective and bound.
            "limits/gap": ask.gap / (1.0 - ask.gap) if ask.gap < 1.0 else 1e19,
        }
        model.setParams(settings)
        if ask.start is not None:
            start = model.createSol()
            for column, value in zip(columns, ask.start.tolist(), strict=True):
                model.setSolVal(start, column, value)
            model.addSol(start)
        events = _Events(relay, columns, iterations(linear, ask.effort))
        model.includeEventhdlr(events, "news", "incumbents, bounds and the end")
        model.setParam("limits/time", relay.remaining)
        model.optimize()
    relay.check()
    found = model.getStatus()
    if found in ("inforunbd", "unbounded"):
        return no_optimum(linear)
    status, limit = _STATUSES.get(found, (Status.FEASIBLE, Limit.OTHER))
    values = _values(model, columns) if model.getNSols() else None
    bound = model.getDualbound()
    return ended(status, limit, values, bound if abs(bound) < 1e20 else -math.inf)


class _Events(pyscipopt.Eventhdlr):
    """Hears of incumbents, and looks at bound, work and clock after each LP."""

    def __init__(self, relay: CallbackRelay, columns: list[Any], iterations: float) -> None:
        self._relay, self._columns, self._iterations = relay, columns, iterations
        types = pyscipopt.SCIP_EVENTTYPE
        self._best, self._solved, self._higher = types.BESTSOLFOUND, types.LPSOLVED, types.DUALBOUNDIMPROVED

    def eventinit(self) -> None:
        """Called by SCIP at its beginning."""
        for kind in (self._best, self._solved, self._higher):
            self.model.catchEvent(kind, self)

    def eventexec(self, event: Any) -> None:
        """Called by SCIP for each event."""
        model, kind, relay = self.model, event.getType(), self._relay
        if kind == self._best:
            relay.incumbent(_values(model, self._columns))
        elif kind == self._solved:
            relay.bound(model.getDualbound())
        elif model.getNNodes() <= 1 and not relay.stop and model.getDualbound() < model.getPrimalbound():
            # A search that is broken off says for a moment that its bound has risen, to the best of the nodes that
            # are left, or to the incumbent where none is. So this event is of use at the root alone.
            relay.bound(model.getDualbound())
        # Of the iterations it tells only while it solves, not while it sets out to.
        solving = model.getStage() == pyscipopt.SCIP_STAGE.SOLVING
        if relay.stop or (solving and model.getNLPIterations() > self._iterations):
            model.interruptSolve()


def _values(model: Any, columns: list[Any]) -> Floats:
    best = model.getBestSol()
    return np.array([best[column] for column in columns], dtype=np.float64)
