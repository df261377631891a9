"""Small graphs exactly: the graph itself is the exact solver's problem, and its bound that of the graph."""

from dataclasses import replace

import numpy as np

from pesto.coarsen import coarsen
from pesto.plans.solver_claim import claimed
from pesto.settings import Settings
from pesto.solving.candidates import Bench, Candidate
from pesto.solving.exact import Exact
from pesto.solving.levels import Level
from solvers import ANSWERED, Problem
from solvers.bounds.evidence import FullBound

_TARGETS = 2
"""Times the target of coarsening up to which a graph is not coarsened for the exact solver: 400 ops by default."""
_SHARE = 0.8
"""Of the time limit, for the exact solver where search follows."""


def is_small(problem: Problem, settings: Settings) -> bool:
    """Whether the exact solver gets the graph itself."""
    return 0 < problem.tasks <= _TARGETS * settings.coarsen_to


def whole_seconds(settings: Settings) -> float:
    """The exact solver's part of the time where it gets the graph itself."""
    return _SHARE * settings.time_limit_s if settings.search else settings.time_limit_s


def whole(bench: Bench, best: Candidate | None) -> Level:
    """The full graph as a coarse graph of itself, to start from the best plan so far."""
    n = bench.problem.tasks
    itself = replace(
        coarsen(bench.problem, n), node_of=np.arange(n), rank=bench.topological, reason="the graph itself", rounds=()
    )
    schedule, by = (None, "") if best is None else (best.timeline.schedule, best.name)
    return Level(coarsening=itself, problem=bench.problem, schedule=schedule, by=by)


def proven(done: Exact, known: FullBound) -> FullBound:
    """The bound of the graph after the exact solver was given all of it; a failed solver's word counts for nothing."""
    result = done.result
    return claimed(result.lower_bound, result.solver, known) if result.status in ANSWERED else known
