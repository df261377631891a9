"""Bytes shared out evenly: the balance row (8) of Pesto's integer program (Middleware '21, section 3.2.2)."""

from fractions import Fraction

import numpy as np

from solvers.arrays import Ints, ints
from solvers.problem import Problem


def balanced(problem: Problem, share: float) -> Problem:
    """The same problem where no location holds more than 1 + `share` times the mean of those that share its tasks.

    Locations share tasks where some task with bytes may be at either. What they hold in all, with what can be at one of
    them alone, is divided by their number; on two GPUs the bytes then differ by at most `share` of all. The rows are
    capacities, no larger than those that there are: every solver keeps them, and the checker holds it to them.
    ValueError for a share that is negative or no number.
    """
    if not 0 <= share < np.inf:
        raise ValueError(f"a balance is a share, 0 or more, not {share}")
    capacity = problem.capacity.copy()
    for places in _shared(problem):
        inside = ~_places(problem)[:, ~np.isin(np.arange(problem.locations), places)].any(axis=1)
        total = sum(problem.memory[inside].tolist())
        most = int(total * (1 + Fraction(str(share))) / len(places))
        capacity[places] = np.minimum(capacity[places], most)
    return problem.holding(capacity=capacity)


def _places(p: Problem) -> Ints:
    """[n, l] whether a task can be at a location."""
    found = np.zeros((p.tasks, p.locations), dtype=bool)
    for device, place in enumerate(p.location.tolist()):
        found[:, place] |= p.allowed[:, device]
    return found


def _shared(p: Problem) -> list[Ints]:
    """The sets of two or more locations that tasks with bytes join."""
    root = np.arange(p.locations)
    for row in np.unique(_places(p)[p.memory > 0], axis=0):
        joined = np.isin(root, root[row])
        root[joined] = root[row].min(initial=p.locations)
    sets = [ints(np.flatnonzero(root == place)) for place in np.unique(root)]
    return [places for places in sets if len(places) > 1]
