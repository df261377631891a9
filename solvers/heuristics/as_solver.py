"""A placement method of the table as a solver: placed, put in order, timed, bounded."""

import time

import numpy as np

from solvers.base import Report, UnavailableError
from solvers.bounds.quick_bounds import memory_proof
from solvers.heuristics.incumbent import HeuristicRun, infeasible
from solvers.heuristics.methods import PLACERS, NoRoomError
from solvers.problem import Problem
from solvers.result import Limit, Options, Result
from solvers.timing.replay import replay


class PlacerSolver:
    """The method called `name` in `PLACERS`."""

    def __init__(self, name: str) -> None:
        self._name, self._place = name, PLACERS[name].load()

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """The method's schedule; unknown, with the bytes, where it needs more memory than there is."""
        began, proof = time.perf_counter(), memory_proof(problem)
        if proof is not None:
            return infeasible(self._name, began, proof)
        incumbent = HeuristicRun(problem, options, report)
        try:
            placement = self._place(problem, options)
            # By how much the placement exceeds a capacity; empty when it does not.
            used = np.zeros(problem.locations, dtype=np.int64)
            np.add.at(used, problem.location[placement.device], problem.memory)
            over = used - problem.capacity
            at = int(over.argmax()) if problem.locations else 0
            detail = f"memory: {over[at]} bytes too many at location {at}" if problem.locations and over[at] > 0 else ""
        except NoRoomError as short:
            placement, detail = None, f"memory: {short}"
        except ImportError as missing:
            raise UnavailableError(str(missing)) from missing
        if placement is not None and not detail:
            if placement.rank is None:
                incumbent.offer(incumbent.complete(placement.device, incumbent.by_level(1.0)))
            else:
                incumbent.offer(replay(problem, placement.device, placement.rank, prepared=incumbent.prepared))
        incumbent.bound()
        return incumbent.result(self._name, Limit.NONE, detail)
