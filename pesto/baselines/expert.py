"""The Expert placement (Pesto, 5.2): layers spread over the GPUs in order, read from the graph's own scopes."""

import re
from dataclasses import dataclass

import numpy as np

from pesto.baselines.places import accelerators
from pesto.cluster import Cluster
from pesto.graph import Graph
from solvers.arrays import Ints
from solvers.dag import topological_order
from solvers.heuristics.lanes import devices_at
from solvers.problem import Problem

_LAYER = re.compile(r"(?:^|[/_])(?:layer|block|stage)_(\d+)(?=[/_]|$)")
_BRANCH = re.compile(r"(?:^|[/_])cell_(\d+)[/_]branch_(\d+)(?=[/_]|$)")
_FIRST = re.compile(r"(?:^|[/_])(?:embeddings?|stem)(?=[/_]|$)")
_LAST = re.compile(r"(?:^|[/_])(?:attention|softmax|logits|loss|head)(?=[/_]|$)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """A device for every op, with one line that says by which rule."""

    device: Ints
    rule: str


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
    wish = _follow(problem, np.where(share < 0, -1, wish))
    return Placement(device=devices_at(problem, np.array(targets)[_together(problem, wish)]), rule=rule)


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
    took = _time(problem)
    order = topological_order(problem.tasks, problem.src, problem.dst)
    before = np.cumsum(took[order]) - took[order]
    share = np.empty(problem.tasks)
    share[order] = before / max(1, int(took.sum()))
    return share


def _follow(problem: Problem, wish: Ints) -> Ints:
    """Give what has no wish the wish of a predecessor, or else of a successor, or else the first place."""
    order = topological_order(problem.tasks, problem.src, problem.dst)
    position = np.empty(problem.tasks, dtype=np.int64)
    position[order] = np.arange(problem.tasks)
    found = wish.tolist()
    for ends, others, sequence in (
        (problem.src, problem.dst, np.argsort(position[problem.src], kind="stable")),
        (problem.dst, problem.src, np.argsort(-position[problem.dst], kind="stable")),
    ):
        for a, b in zip(ends[sequence].tolist(), others[sequence].tolist(), strict=True):
            if found[b] < 0:
                found[b] = found[a]
    return np.maximum(np.array(found, dtype=np.int64), 0)


def _together(problem: Problem, wish: Ints) -> Ints:
    """One wish a group: the one that the most of its time asks for."""
    member = np.flatnonzero(problem.group >= 0)
    if len(member) == 0:
        return wish
    votes = np.zeros((int(problem.group.max()) + 1, int(wish.max(initial=0)) + 1))
    np.add.at(votes, (problem.group[member], wish[member]), _time(problem)[member] + 1.0)
    wish = wish.copy()
    wish[member] = votes.argmax(axis=1)[problem.group[member]]
    return wish


def _time(problem: Problem) -> Ints:
    return np.where(problem.allowed, problem.duration, np.iinfo(np.int64).max).min(axis=1)
