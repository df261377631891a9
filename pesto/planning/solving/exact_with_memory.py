"""Where memory is tight and the exact solver has every op: the graph itself, with what its tensors hold and when."""

import numpy as np

from pesto.core.memory import add_lifetimes
from pesto.planning.coarsen import Coarsening
from pesto.planning.solving.candidates import CandidateEvaluator
from pesto.planning.solving.multilevel import Level
from pesto.planning.solving.tracker import SoFar
from solvers.arrays import ints

REASON = "memory is tight: the graph itself, with its tensors' lives"


def exact_with_memory(bench: CandidateEvaluator, level: Level, so_far: SoFar) -> Level:
    """The graph with its tensors' lives where `level` has all ops and a candidate that does not fit is the shortest.

    `level` itself elsewhere: a coarse graph's nodes have no lives of their own. The schedule is the best plan's.
    """
    tasks, best = bench.problem.tasks, so_far.best
    shorter = [c for c in so_far.candidates.values() if best is None or c.makespan < best.makespan]
    if level.coarsening.nodes < tasks or all(c.fits for c in shorter):
        return level
    coarsening = Coarsening(
        node_of=ints(np.arange(tasks)),
        nodes=tasks,
        rank=bench.topological,
        target=level.coarsening.target,
        reason=REASON,
        rounds=(),
        largest_group_share=level.coarsening.largest_group_share,
    )
    problem = add_lifetimes(bench.problem, bench.graph, per_edge=bench.per_edge)
    schedule = None if best is None else best.timeline.schedule
    return Level(coarsening=coarsening, problem=problem, schedule=schedule, by="" if best is None else best.name)
