"""A labelling problem with some of its labels alone."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, offsets
from solvers.labels.labelling import Labelling


class LabelSubset(NamedTuple):
    """The smaller problem, and which labels its are."""

    problem: Labelling
    was: Ints
    """[labels] each one's number among all labels of the larger problem."""
    first: Ints
    """[n + 1] where the labels of each variable began there."""

    def widened(self, labels: Ints) -> Ints:
        """[n] the larger problem's labels."""
        return self.was[self.problem.first[:-1] + labels] - self.first[:-1]


def narrowed(problem: Labelling, keep: Bools) -> LabelSubset:
    """The problem with the labels of which [labels] `keep` is true; each variable keeps one at least."""
    sizes = np.add.reduceat(keep, problem.first[:-1], dtype=np.int64) if problem.variables else np.zeros(0, np.int64)
    kept = [keep[b:e] for b, e in zip(problem.first[:-1], problem.first[1:], strict=True)]
    kind = {mask.tobytes(): mask for mask in kept}
    names = {name: k for k, name in enumerate(kind)}
    mask_of = np.array([names[mask.tobytes()] for mask in kept], dtype=np.int64)
    masks = list(kind.values())
    three = np.stack([problem.table, mask_of[problem.a], mask_of[problem.b]])
    distinct, table = np.unique(three, axis=1, return_inverse=True)
    costs = []
    for t, rows, columns in distinct.T.tolist():
        found = problem.costs[problem.begin[t] : problem.begin[t + 1]].reshape(-1, len(masks[columns]))
        costs.append(found[masks[rows]][:, masks[columns]].reshape(-1))
    smaller = Labelling(
        first=offsets(sizes), unary=problem.unary[keep], a=problem.a, b=problem.b, table=table.reshape(-1),
        begin=offsets(np.array([len(c) for c in costs], dtype=np.int64)),
        costs=np.concatenate([*costs, np.zeros(0, dtype=np.int64)]),
    )  # fmt: skip
    return LabelSubset(smaller, np.flatnonzero(keep), problem.first)


def pinned(problem: Labelling, labels: Ints) -> LabelSubset:
    """The problem with the first variables' labels given: [m] of them, -1 for any."""
    keep = np.ones(len(problem.unary), dtype=np.bool_)
    for v in np.flatnonzero(labels >= 0).tolist():
        keep[problem.first[v] : problem.first[v + 1]] = False
        keep[problem.first[v] + labels[v]] = True
    return narrowed(problem, keep)
