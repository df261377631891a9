"""Round robin: units to the locations in turn, in topological order (ParDNN 2020, section 6.4.1, baseline RR).

Groups and device kinds, which the source does not have, are respected: a unit's turn comes with its first task, and
skips the locations that cannot take it.
"""

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.dag import topological_order
from solvers.compiled.kernels import routine
from solvers.heuristics.devices_of_location import devices_at
from solvers.heuristics.methods import Placement
from solvers.problem import Problem
from solvers.result import Options
from solvers.structure.units import placeable_units


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """One location after the other. O(n l + e)."""
    units = placeable_units(problem)
    order = topological_order(problem.tasks, problem.src, problem.dst)
    at = _in_turn(order, units.unit, units.allowed)
    return Placement(device=devices_at(problem, at[units.unit]))


@routine
def _in_turn(order: Ints, unit: Ints, allowed: Bools) -> Ints:
    at = np.full(len(allowed), -1, dtype=np.int64)
    turn = 0
    for task in order:
        if at[unit[task]] >= 0:
            continue
        for step in range(allowed.shape[1]):
            there = (turn + step) % allowed.shape[1]
            if allowed[unit[task], there]:
                at[unit[task]] = there
                break
        if np.count_nonzero(allowed[unit[task]]) > 1:
            turn = at[unit[task]] + 1
    return at
