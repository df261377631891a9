"""GLPK by the library that swiglpk brings: one thread, no seed, the same answer each time."""

import ctypes
import math
from dataclasses import replace
from typing import Any

import numpy as np
import swiglpk as glp

from solvers.arrays import Floats
from solvers.milp.formulations import TOLERANCE
from solvers.milp.linear import Linear
from solvers.milp.solver import Milp
from solvers.milp.vendor import Ask, Hear, Outcome, ended, iterations, left_behind, no_optimum
from solvers.milp.vendors.glpk_library import Hook, load, set_callback
from solvers.milp.vendors.mps import mps_file
from solvers.milp.vendors.relay import Relay
from solvers.result import Limit, Status

_STATUSES = {glp.GLP_OPT: Status.OPTIMAL, glp.GLP_NOFEAS: Status.INFEASIBLE}
_LIMITS = {glp.GLP_ETMLIM: Limit.TIME, glp.GLP_ESTOP: Limit.TIME, glp.GLP_EMIPGAP: Limit.GAP}


def solver() -> Milp:
    """GLPK as a `Solver`."""
    return Milp(name="glpk", package="swiglpk", run=run)


def run(linear: Linear, ask: Ask, hear: Hear) -> Outcome:
    """Run GLPK; RuntimeError when it refuses the program.

    It takes no start, but asks for what a heuristic has found at every node: at the first, that is the start.
    """
    relay = Relay(ask, hear)
    search = _Search(linear, ask, relay)
    if not relay.ends(search.run):
        return left_behind(relay.best_bound)
    outcome = search.outcome()
    search.close()
    return outcome


class _Search:
    """A program in GLPK's hands."""

    def __init__(self, linear: Linear, ask: Ask, relay: Relay) -> None:
        self._linear, self._ask, self._relay = linear, ask, relay
        self._start, self._best, self._code = ask.start, math.inf, 0
        self._iterations = iterations(linear, ask.effort)
        self._library = load()
        self._hook = Hook(self._heard)
        self._library.glp_term_hook(self._hook, None)
        self._problem = self._library.glp_create_prob()
        with mps_file(_rounded(linear)) as file:
            if self._library.glp_read_mps(self._problem, glp.GLP_MPS_FILE, None, str(file).encode()):
                raise RuntimeError("GLPK refuses the program")

    def run(self) -> None:
        """Solve the linear relaxation, and from its basis the program."""
        simplex, search = glp.glp_smcp(), glp.glp_iocp()
        glp.glp_init_smcp(simplex)
        simplex.presolve, simplex.tm_lim = glp.GLP_ON, self._milliseconds()
        self._code = self._library.glp_simplex(self._problem, int(simplex.this))
        if self._code or self._library.glp_get_status(self._problem) != glp.GLP_OPT:
            return
        self._relay.bound(self._library.glp_get_obj_val(self._problem))
        glp.glp_init_iocp(search)
        search.mir_cuts = search.gmi_cuts = search.cov_cuts = search.clq_cuts = glp.GLP_ON
        search.mip_gap, search.tol_int, search.tm_lim = self._ask.gap, TOLERANCE, self._milliseconds()
        callback = set_callback(search, self._called)
        self._code = self._library.glp_intopt(self._problem, int(search.this))
        del callback

    def outcome(self) -> Outcome:
        """What GLPK says at the end."""
        library, problem = self._library, self._problem
        relaxed = library.glp_get_status(problem)
        if self._code == glp.GLP_ENODFS or relaxed == glp.GLP_UNBND:
            return no_optimum(self._linear)
        if self._code == glp.GLP_ENOPFS or relaxed == glp.GLP_NOFEAS:
            return ended(Status.INFEASIBLE, Limit.NONE, None, math.inf)
        if self._code not in (0, *_LIMITS):
            raise RuntimeError(f"GLPK ends with code {self._code}")
        found = library.glp_mip_status(problem)
        status, limit = _STATUSES.get(found, Status.FEASIBLE), _LIMITS.get(self._code, Limit.OTHER)
        if found not in (glp.GLP_OPT, glp.GLP_FEAS):
            return ended(status, limit, None, self._relay.best_bound)
        bound = library.glp_mip_obj_val(problem) if status is Status.OPTIMAL else self._relay.best_bound
        return ended(status, limit, self._values(), bound)

    def close(self) -> None:
        """Free the program."""
        self._library.glp_term_hook(Hook(), None)
        self._library.glp_delete_prob(self._problem)

    def _milliseconds(self) -> int:
        return min(2**31 - 1, math.ceil(1000 * self._relay.remaining))

    def _heard(self, _: Any, text: bytes) -> int:
        self._relay.write(text.decode("utf-8", "replace"))
        return 1

    def _called(self, tree: int) -> None:
        """Called by GLPK for each node, several times."""
        library, problem, relay = self._library, self._problem, self._relay
        if library.glp_mip_status(problem) == glp.GLP_FEAS and library.glp_mip_obj_val(problem) < self._best:
            self._best = library.glp_mip_obj_val(problem)
            relay.incumbent(self._values())
        node = library.glp_ios_best_node(tree)
        if node:
            relay.bound(min(self._best, library.glp_ios_node_bound(tree, node)))
        if self._start is not None and library.glp_ios_reason(tree) == glp.GLP_IHEUR:
            # Counted from 1, as everywhere in GLPK.
            library.glp_ios_heur_sol(tree, (ctypes.c_double * (1 + len(self._start)))(0.0, *self._start.tolist()))
            self._start = None
        if relay.stop or library.glp_get_it_cnt(problem) > self._iterations:
            library.glp_ios_terminate(tree)

    def _values(self) -> Floats:
        value, problem = self._library.glp_mip_col_val, self._problem
        return np.array([value(problem, column) for column in range(1, self._linear.columns + 1)], dtype=np.float64)


def _rounded(linear: Linear) -> Linear:
    """With whole bounds on whole columns; GLPK takes no others."""
    lower = np.where(linear.integer, np.ceil(linear.lower - TOLERANCE), linear.lower)
    upper = np.where(linear.integer, np.floor(linear.upper + TOLERANCE), linear.upper)
    return replace(linear, lower=lower, upper=upper)
