"""Everything at one location: what one GPU alone would do, and the first plan to beat."""

import time
from collections.abc import Iterator

import numpy as np

from solvers.arrays import Ints
from solvers.base import Report
from solvers.bounds.quick_bounds import memory_proof
from solvers.heuristics.eft_pass import clusters_of
from solvers.heuristics.incumbent import HeuristicRun, infeasible
from solvers.heuristics.lists.guides import unguided
from solvers.problem import Problem
from solvers.result import Limit, Options, Result
from solvers.structure.units import Units, fastest_at, units_of

_NAME = "single"


class SingleDevice:
    """All units that one location allows run there, the rest at the first location that allows them."""

    def solve(self, problem: Problem, options: Options, report: Report) -> Result:
        """The best of all locations, or unknown with the bytes that are missing when no location has the room."""
        began, proof = time.perf_counter(), memory_proof(problem)
        if proof is not None:
            return infeasible(_NAME, began, proof)
        incumbent, units = HeuristicRun(problem, options, report), units_of(problem)
        order, limit, short = unguided(incumbent.by_level(1.0)), Limit.NONE, []
        for at, missing in placements(problem, units):
            short.append(missing)
            if missing == 0:
                incumbent.attempt(clusters_of(units, at), order)
            limit = incumbent.limit
            if limit is not Limit.NONE:
                break
        incumbent.settle()
        incumbent.bound()
        detail = "" if incumbent.schedule else f"memory: {min(short)} bytes missing at the location that lacks least"
        return incumbent.result(_NAME, limit, detail)


def placements(problem: Problem, units: Units) -> Iterator[tuple[Ints, int]]:
    """For each location, where the units are when all that can are there: ([u] locations, bytes that do not fit)."""
    first = np.argmax(units.allowed, axis=1)
    for there in range(problem.locations):
        at = np.where(units.allowed[:, there], there, first)
        used = np.zeros(problem.locations, dtype=np.int64)
        np.add.at(used, at, units.memory)
        yield at, int(np.maximum(used - problem.capacity, 0).sum())


def least_loaded(problem: Problem, units: Units) -> Ints | None:
    """The one of `placements` that fits with the least work, each task at its fastest device; None when none fits."""
    task, fastest = np.arange(problem.tasks), fastest_at(problem)
    loads = [
        (int(fastest[task, at[units.unit]].sum()), at) for at, missing in placements(problem, units) if not missing
    ]
    return min(loads, key=lambda load: load[0])[1] if loads else None
