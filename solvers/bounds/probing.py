"""Probing: of two tasks that an edge joins, both at one location, and at two; what leaves no schedule is out."""

import time
from dataclasses import replace

import numpy as np

from solvers.arrays import Ints, bools
from solvers.bounds.schedule_facts import ScheduleFacts, united
from solvers.bounds.windows import informed, settled
from solvers.problem import Problem


def probed(problem: Problem, upper: int, ends: float) -> ScheduleFacts | None:
    """Return the facts of `informed` for a `dense` problem, strengthened by refuting either case of each edge.

    None as in `informed`. Edges with the least time to spare come first, until nothing changes, or until the clock
    (`time.monotonic`) is at `ends`.
    """
    known = informed(problem, upper, ends)
    while known is not None:
        # Facts found at one edge help at the others, so all edges are probed again until a whole round finds nothing.
        before = known
        for edge in _by_slack(known).tolist():
            if known is None or time.monotonic() >= ends:
                return known
            known = _probe(known, int(problem.src[edge]), int(problem.dst[edge]))
        if known is before:
            return known
    return None


def _by_slack(known: ScheduleFacts) -> Ints:
    """The edges with a payload between two units."""
    p = known.problem
    slack = -(known.head + known.took)[p.src] - (known.took + known.tail)[p.dst]
    edges = np.flatnonzero(p.payload >= 0)
    return edges[np.argsort(slack[edges], kind="stable")]


def _probe(known: ScheduleFacts, one: int, two: int) -> ScheduleFacts | None:
    if known.unit[one] == known.unit[two] or known.apart[one, two]:
        return known
    together = united(known, np.array([one]), np.array([two]))
    together = together and settled(together)
    pair = known.apart.copy()
    pair[one, two] = pair[two, one] = True
    apart = settled(replace(known, apart=bools(pair)))
    if together is None:
        return apart
    return together if apart is None else known
