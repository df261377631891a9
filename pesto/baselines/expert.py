"""The Expert placement (Pesto, 5.2): layers spread over the GPUs in order, read from the graph's own scopes."""

import re

import numpy as np

from pesto.baselines.places import accelerators
from pesto.baselines.scopes import Placement, follow, shortest, together
from pesto.cluster import Cluster
from pesto.graph import Graph
from solvers.dag import topological_order
from solvers.heuristics.lanes import devices_at
from solvers.problem import Problem

_LAYER = re.compile(r"(?:^|[/_])(?:layer|block|stage)_(\d+)(?=[/_]|$)")
_BRANCH = re.compile(r"(?:^|[/_])cell_(\d+)[/_]branch_(\d+)(?=[/_]|$)")
_FIRST = re.compile(r"(?:^|[/_])(?:embeddings?|stem)(?=[/_]|$)")
_LAST = re.compile(r"(?:^|[/_])(?:attention|softmax|logits|loss|head)(?=[/_]|$)")


def expert(graph: Graph, problem: Problem, cluster: Cluster) -> Placement:
    """Layers in order over the accelerators; attention and softmax with the last, embedding with the first.

    Parallel branches of a cell are split evenly instead (NASNet). Ops outside every scope follow the op that feeds
    them; a group follows the most of its time. A graph whose names show neither layers nor branches is cut into
    consecutive pieces of equal time in topological order.
    """
    targets = accelerators(problem, cluster)
    share, rule = _shares(graph)
    if share is None:
        share, rule = _balanced(problem), "consecutive pieces of equal time (no layers in the names)"
    wish = np.minimum((share * len(targets)).astype(np.int64), len(targets) - 1)
    wish = follow(problem, np.where(share < 0, -1, wish))
    return Placement(device=devices_at(problem, np.array(targets)[together(problem, wish)]), rule=rule)


def _shares(graph: Graph) -> tuple[np.ndarray | None, str]:
    """[n] position of each op in 0..1 along the layers (or across the branches), -1 where no scope tells."""
    branch = [_BRANCH.search(name) for name in graph.names]
    if any(branch):
        most = 1 + max(int(m.group(2)) for m in branch if m)
        return np.array([int(m.group(2)) / most if m else -1.0 for m in branch]), "branches of a cell split evenly"
    layer = [_LAYER.search(name) for name in graph.names]
    if not any(layer):
        return None, ""
    most = 1 + max(int(m.group(1)) for m in layer if m)
    share = np.array([int(m.group(1)) / most if m else -1.0 for m in layer])
    for i, name in enumerate(graph.names):
        if share[i] < 0 and _FIRST.search(name):
            share[i] = 0.0
        elif share[i] < 0 and _LAST.search(name):
            share[i] = (most - 1) / most
    return share, "layers in order, attention and softmax with the last"


def _balanced(problem: Problem) -> np.ndarray:
    took = shortest(problem)
    order = topological_order(problem.tasks, problem.src, problem.dst)
    before = np.cumsum(took[order]) - took[order]
    share = np.empty(problem.tasks)
    share[order] = before / max(1, int(took.sum()))
    return share
