"""CriticalDP: groups of variables, the longest path of them first (Tofu, arXiv:1807.08887v1, section 4.2.2).

Groups are numbered in the order of the step, so an edge leads from the lower to the higher and all paths are acyclic.
The groups of a path are labelled as its chain asks: costs of groups, of neighbours on the path, and of what was
labelled before. Edges that skip groups of the path count nothing, unless they forbid a pair, nor do those to groups
not yet labelled. The paper leaves open what such edges cost and which of two paths of one length comes first: here
the one that ends, and begins, earliest.
"""

from collections.abc import Callable

import numpy as np

from solvers.arrays import Bools, Ints, offsets
from solvers.compiled.kernels import routine
from solvers.labels.labelling import FORBIDDEN, Labelling


def by_paths(
    problem: Labelling, group: Ints, length: Ints, solve: Callable[[Labelling], Ints | None], order: bool = True
) -> Ints | None:
    """Return [n] labels, path by path; None where what was labelled before forbids all labels of a path.

    group: [n] of each variable. length: [m] of each edge between groups. solve: the best labels of a small problem.
    order: whether paths are critical ones; else each group is a path of its own, in the order of groups.
    """
    many = int(group.max(initial=-1)) + 1
    low, high = np.minimum(group[problem.a], group[problem.b]), np.maximum(group[problem.a], group[problem.b])
    between = np.flatnonzero(low != high)
    pairs, of = np.unique(low[between] * many + high[between], return_inverse=True)
    weight = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(weight, of.reshape(-1), length[between])
    tail, head = pairs // max(1, many), pairs % max(1, many)
    by_head = np.argsort(head, kind="stable")
    offset = offsets(np.bincount(head, minlength=many))
    open_, parts = np.ones(many, dtype=np.bool_), _PathProblems(problem, group)
    for g in range(many):
        while open_.any() if order else open_[g]:
            path = _longest(offset, tail[by_head], weight[by_head], open_) if order else np.array([g])
            open_[path] = False
            if not parts.label(path, solve):
                return None
    return parts.labels


class _PathProblems:
    """The labels so far, and the problem of one path."""

    def __init__(self, problem: Labelling, group: Ints) -> None:
        self.problem, self.group = problem, group
        self.labels = np.full(problem.variables, -1, dtype=np.int64)
        ends = np.stack([problem.a, problem.b], axis=1).reshape(-1)
        self._edge = np.argsort(ends, kind="stable") // 2
        self._edges = offsets(np.bincount(ends, minlength=problem.variables))
        self._forbids = [
            bool((problem.costs[b:e] == FORBIDDEN).any())
            for b, e in zip(problem.begin[:-1], problem.begin[1:], strict=True)
        ]
        self._variable = np.argsort(group, kind="stable")
        self._variables = offsets(np.bincount(group, minlength=int(group.max(initial=-1)) + 1))

    def label(self, path: Ints, solve: Callable[[Labelling], Ints | None]) -> bool:
        """Label the groups of a path; return False where there are no labels."""
        p = self.problem
        mine = np.concatenate([self._variable[self._variables[g] : self._variables[g + 1]] for g in path])
        place = {int(g): k for k, g in enumerate(path)}
        number = {int(v): k for k, v in enumerate(mine)}
        unary = [p.unary[p.first[v] : p.first[v + 1]].copy() for v in mine]
        edges = np.unique(np.concatenate([self._edge[self._edges[v] : self._edges[v + 1]] for v in mine]))
        within = []
        for e in edges.tolist():
            a, b = int(p.a[e]), int(p.b[e])
            if a in number and b in number:
                near = abs(place[int(self.group[a])] - place[int(self.group[b])]) <= 1
                if near or self._forbids[p.table[e]]:
                    within.append((number[a], number[b], int(p.table[e])))
                continue
            inside, fixed = (a, b) if a in number else (b, a)
            if self.labels[fixed] >= 0:
                table = p.costs[p.begin[p.table[e]] : p.begin[p.table[e] + 1]].reshape(-1, p.labels[b])
                cost = table[:, self.labels[fixed]] if inside == a else table[self.labels[fixed]]
                own = unary[number[inside]]
                unary[number[inside]] = np.where((own == FORBIDDEN) | (cost == FORBIDDEN), FORBIDDEN, own + cost)
        one, other, table_of = np.array(within, dtype=np.int64).reshape(-1, 3).T
        used, table_of = np.unique(table_of, return_inverse=True)
        costs = [p.costs[p.begin[t] : p.begin[t + 1]] for t in used]
        part = Labelling(
            first=offsets(np.array([len(u) for u in unary], dtype=np.int64)), unary=np.concatenate(unary),
            a=one, b=other, table=table_of.reshape(-1),
            begin=offsets(np.array([len(c) for c in costs], dtype=np.int64)),
            costs=np.concatenate([*costs, np.zeros(0, dtype=np.int64)]),
        )  # fmt: skip
        labels = solve(part)
        if labels is not None:
            self.labels[mine] = labels
        return labels is not None


@routine
def _longest(offset: Ints, tail: Ints, weight: Ints, open_: Bools) -> Ints:
    """Return the open groups of a longest path among them, from its first."""
    many = len(open_)
    far, came = np.zeros(many, dtype=np.int64), np.full(many, -1)
    last = -1
    for g in range(many):
        if not open_[g]:
            continue
        for k in range(offset[g], offset[g + 1]):
            if open_[tail[k]] and far[tail[k]] + weight[k] > far[g]:
                far[g] = far[tail[k]] + weight[k]
                came[g] = tail[k]
        if last < 0 or far[g] > far[last]:
            last = g
    count, g = 0, last
    while g >= 0:
        count += 1
        g = came[g]
    path = np.empty(count, dtype=np.int64)
    g = last
    for k in range(count):
        path[count - 1 - k] = g
        g = came[g]
    return path
