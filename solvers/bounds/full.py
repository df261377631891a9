"""The best lower bound of a full graph, of thousands to hundreds of thousands of tasks, that seconds find."""

import math
import time

import numpy as np

from solvers.bounds import quick_bounds
from solvers.bounds.anchor_bound import anchored
from solvers.bounds.anchors import choose, loads_of, net_of
from solvers.bounds.evidence import ANCHORED, FullBound
from solvers.bounds.interval_load import LONGEST
from solvers.problem import Problem
from solvers.structure.paths import paths_of
from solvers.structure.units import units_of

_ANCHORS = (60, 120, 240)
"""How many are tried, one after the other: more are mostly better, and take with their square."""
_ENTRIES = 6_000_000
"""Distances at most, of which each takes 16 bytes."""
_TASKS = 300_000
"""Above this, the fast bounds are all."""
_LOCATIONS = 60


def full_bound(problem: Problem, *, upper: int | None = None, seconds: float = 10.0) -> FullBound:
    """The best of `solvers.bounds.quick_bounds` and of the distances between anchors; never above the optimum.

    upper: the makespan of a valid schedule, at which the search ends. seconds: no more anchors are tried after these;
    the fast bounds and the first, few anchors are not cut, and together take near-linear time. The same input gives
    the same bound where all had time. (0, "none") where a group can be nowhere. KeyboardInterrupt passes.
    """
    ends = time.monotonic() + seconds
    best = FullBound(*quick_bounds.best(problem))
    # Return True if there are few enough tasks, locations and ticks, and each group can be somewhere.
    sent = problem.transfer.max(axis=1, initial=0).sum(dtype=np.float64)
    ticks = float(problem.duration.max(axis=1, initial=0).sum(dtype=np.float64) + problem.locations * sent)
    few = 0 < problem.tasks <= _TASKS and problem.locations <= _LOCATIONS and ticks < LONGEST
    suits = few and bool(units_of(problem).allowed.any(axis=1).all())
    if not suits:
        return best
    paths = paths_of(problem)
    net = net_of(problem, paths)
    loads = loads_of(problem, paths, net)
    # Time grows with the square of the anchors: fewer anchors first, so that some bound is there when time runs out.
    before = 0
    for most in (min(most, _ENTRIES // problem.tasks) for most in _ANCHORS):
        if len(loads.total) and most > before and time.monotonic() < ends and (upper is None or best.ticks < upper):
            # The first is let through: where nothing is compiled yet, that alone may take all the time there is.
            found = anchored(net, loads, choose(net, loads, paths, most), ends if before else math.inf)
            before = most
            if found is not None and best.ticks < found.ticks < LONGEST:
                best = FullBound(found.ticks, ANCHORED, found.evidence)
    return best
