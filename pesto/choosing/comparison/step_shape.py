"""What a step offers to several devices, before any method places it (ParDNN, Qararyah et al. 2020, section 6.2.2)."""

from dataclasses import dataclass

from pesto.core.cluster import Cluster
from pesto.core.graph import Graph
from pesto.core.source import named_by
from pesto.planning.baselines.places import accelerators
from pesto.planning.coarsen.quotient import shortest
from solvers import Problem
from solvers.timing.replay import bottom_levels


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """Ratios of a graph's times on one cluster; each op counts on its quickest device."""

    parallelism: float
    """Time of all ops over that of the longest path of ops: the average degree of concurrency; 1 where all is 0."""
    ccr: float | None
    """Transfers of all edges with data, each between two accelerators (mean of their pairs), over the time of all ops.

    Each edge counts, as in the source, though a tensor crosses once. None on one accelerator, and where ops take no
    time.
    """
    batch: int | None
    """Examples in a step, where the graph leaves that open or its model was built for so many; else None."""


def shape_of(graph: Graph, problem: Problem, cluster: Cluster) -> StepShape:
    """The ratios of `problem`, which is of `graph` on `cluster`. O(n m + e)."""
    work = int(shortest(problem).sum())
    longest = int(bottom_levels(problem, mean=False, communication=0.0).max(initial=0))
    places = accelerators(problem, cluster)
    classes = [problem.path_class[a, b] for a in places for b in places if a != b and problem.path_class[a, b] >= 0]
    ccr = None
    if classes and work:
        mean = problem.transfer[:, classes].mean(axis=1)
        ccr = float(mean[problem.payload[problem.payload >= 0]].sum() / work)
    named = named_by(graph.source)
    batch = graph.batch if graph.batch is not None or named is None else named.batch
    return StepShape(parallelism=work / longest if longest else 1.0, ccr=ccr, batch=batch)
