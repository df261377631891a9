"""The Expert placement (Pesto, 5.2): layers spread over the GPUs in order, read from the graph's own scopes."""

import re

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.graph import Graph
from pesto.planning.baselines.places import accelerators
from pesto.planning.baselines.scopes import RulePlacement, fill_from_neighbours, shortest, unify_groups
from solvers import Problem
from solvers.arrays import Ints
from solvers.compiled.dag import topological_order
from solvers.heuristics.devices_of_location import devices_at

_LAYER = re.compile(r"(?:^|[/_])(?:layer|block|stage)_(\d+)(?=[/_]|$)")
_BRANCH = re.compile(r"(?:^|[/_])cell_(\d+)[/_]branch_(\d+)(?=[/_]|$)")
_FIRST = re.compile(r"(?:^|[/_])(?:embeddings?|stem)(?=[/_]|$)")
_LAST = re.compile(r"(?:^|[/_])(?:attention|softmax|logits|loss|head)(?=[/_]|$)")


def expert(graph: Graph, problem: Problem, cluster: Cluster) -> RulePlacement:
    """Layers in order over the accelerators; attention and softmax with the last, embedding with the first.

    Parallel branches of a cell are split evenly instead (NASNet): by their times, longest first, each to the
    accelerator with the least of its cell. Ops outside every scope follow the op that feeds them; a group follows the
    most of its time. A graph whose names show neither layers nor branches is cut into consecutive pieces of equal time
    in topological order.
    """
    targets = accelerators(problem, cluster)
    wish, rule = _branches(graph, problem, len(targets)), "branches of a cell split evenly"
    if wish is None:
        share, rule = _shares(graph)
        if share is None:
            share, rule = _balanced(problem), "consecutive pieces of equal time (no layers in the names)"
        wish = np.minimum((share * len(targets)).astype(np.int64), len(targets) - 1)
        wish = np.where(share < 0, -1, wish)
    wish = unify_groups(problem, fill_from_neighbours(problem, wish))
    return RulePlacement(device=devices_at(problem, np.array(targets)[wish]), rule=rule)


def _branches(graph: Graph, problem: Problem, pieces: int) -> Ints | None:
    """[n] piece of each op of a branch, -1 elsewhere; None for a graph without branches."""
    found = [_BRANCH.search(name) for name in graph.names]
    if not any(found):
        return None
    number: dict[tuple[int, int], int] = {}
    branch = np.array(
        [number.setdefault((int(m.group(1)), int(m.group(2))), len(number)) if m else -1 for m in found], dtype=np.int64
    )
    time = np.bincount(branch[branch >= 0], weights=shortest(problem)[branch >= 0], minlength=len(number)).tolist()
    load: dict[tuple[int, int], float] = {}
    piece = np.empty(len(number), dtype=np.int64)
    for (cell, _), k in sorted(number.items(), key=lambda each: (-time[each[1]], each[0])):
        piece[k] = min(range(pieces), key=lambda at: load.get((cell, at), 0.0))
        load[cell, int(piece[k])] = load.get((cell, int(piece[k])), 0.0) + time[k] + 1.0
    return np.where(branch < 0, -1, piece[branch])


def _shares(graph: Graph) -> tuple[np.ndarray | None, str]:
    """[n] position of each op in 0..1 along the layers, -1 where no scope tells."""
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
