"""What placements by a graph's own scopes share: a placement with its rule, and where ops without a scope go."""

from dataclasses import dataclass

import numpy as np

from solvers import Problem
from solvers.arrays import Ints, rank_of
from solvers.compiled.dag import topological_order


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RulePlacement:
    """A device for every op, with one line that says by which rule."""

    device: Ints
    rule: str


def fill_from_neighbours(problem: Problem, wish: Ints) -> Ints:
    """Give what has no wish (-1) the wish of a predecessor, or else of a successor, or else the first place."""
    order = topological_order(problem.tasks, problem.src, problem.dst)
    position = rank_of(order)
    found = wish.tolist()
    for ends, others, sequence in (
        (problem.src, problem.dst, np.argsort(position[problem.src], kind="stable")),
        (problem.dst, problem.src, np.argsort(-position[problem.dst], kind="stable")),
    ):
        for a, b in zip(ends[sequence].tolist(), others[sequence].tolist(), strict=True):
            if found[b] < 0:
                found[b] = found[a]
    return np.maximum(np.array(found, dtype=np.int64), 0)


def unify_groups(problem: Problem, wish: Ints) -> Ints:
    """One wish a group: the one that the most of its time asks for."""
    member = np.flatnonzero(problem.group >= 0)
    if len(member) == 0:
        return wish
    votes = np.zeros((int(problem.group.max()) + 1, int(wish.max(initial=0)) + 1))
    np.add.at(votes, (problem.group[member], wish[member]), shortest(problem)[member] + 1.0)
    wish = wish.copy()
    wish[member] = votes.argmax(axis=1)[problem.group[member]]
    return wish


def shortest(problem: Problem) -> Ints:
    """[n] ticks of each op on its fastest device."""
    return np.where(problem.allowed, problem.duration, np.iinfo(np.int64).max).min(axis=1)
