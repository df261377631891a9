"""Small graphs exactly: the graph itself is the exact solver's problem, and its bound that of the graph."""

from dataclasses import replace

import numpy as np

from pesto.core.plans.solver_claim import best_bound
from pesto.core.settings import Settings
from pesto.planning.coarsen import coarsen
from pesto.planning.solving.candidates import Candidate, CandidateEvaluator
from pesto.planning.solving.exact import ExactOutcome, ExactRun
from pesto.planning.solving.multilevel import Level
from solvers import ANSWERED, Problem, api
from solvers.bounds.evidence import FullBound

_TARGETS = 2
"""Times the target of coarsening below which a graph is not coarsened for the exact solver: 400 ops by default."""
_SHARE = 0.8
"""Of the time limit, for the exact solver where search follows."""
_ALONE = 120
"""Ops up to which CP-SAT proves more without windows: in a minute (1 to 3 CPU seconds on a busy machine) a grid of
32 ops keeps a gap of 0 %, with windows 0.97 %, a series-parallel graph of 100 ops 0.10 %, with windows 0.54 %."""


def is_small(problem: Problem, settings: Settings) -> bool:
    """Whether the exact solver gets the graph itself."""
    return 0 < problem.tasks < _TARGETS * settings.coarsen_to


def full_graph_run(problem: Problem, settings: Settings, lower_bound: int) -> ExactRun:
    """How the exact solver is run on a graph itself: for most of the time, from the bound that is known.

    Without congestion it gets a problem without links, of which a bound of the graph need not hold.
    """
    seconds = _SHARE * settings.time_limit_s if settings.search else settings.time_limit_s
    engine = api.solve_whole if problem.tasks <= _ALONE else api.solve
    return ExactRun(engine=engine, seconds=seconds, lower_bound=lower_bound if settings.congestion else 0)


def full_graph_level(bench: CandidateEvaluator, best: Candidate | None) -> Level:
    """The full graph as a coarse graph of itself, to start from the best plan so far."""
    n = bench.problem.tasks
    itself = replace(
        coarsen(bench.problem, n), node_of=np.arange(n), rank=bench.topological, reason="the graph itself", rounds=()
    )
    schedule, by = (None, "") if best is None else (best.timeline.schedule, best.name)
    return Level(coarsening=itself, problem=bench.problem, schedule=schedule, by=by)


def proven_bound(done: ExactOutcome, known: FullBound) -> FullBound:
    """The bound of the graph after the exact solver was given all of it; a failed solver's word counts for nothing."""
    result = done.result
    return best_bound(result.lower_bound, result.solver, known) if result.status in ANSWERED else known
