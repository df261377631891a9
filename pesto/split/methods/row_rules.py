"""The rules that Tofu is compared with (section 6.3): rows, at random or greedily, and the largest tensor first."""

import numpy as np

from pesto.split.methods.cut import CutChoice, CutTask, complete_labels
from pesto.split.methods.tensors import Tensors, tensors_of
from solvers.arrays import Ints
from solvers.labels.factor_graph import NEVER, FactorGraph, costs_beside, incidence, net_of

_SEED = 0


def rows(cut: CutTask) -> CutChoice:
    """AllRow-Greedy: every tensor along its first dimension, every op as sends least beside that."""
    return _by_rows(cut, "rows")


def rows_random(cut: CutTask) -> CutChoice:
    """AllRow-Rand: every tensor along its first dimension, every op in a way drawn by lot; the same lots each time."""
    return _by_rows(cut, "rows-random")


def _by_rows(cut: CutTask, method: str) -> CutChoice:
    made = cut.program(each=True)
    tensors, costs = tensors_of(cut.shaped, made), _Costs(net_of(made.problem))
    draw = np.random.default_rng(_SEED)
    for v, layouts in tensors.layouts.items():
        costs.labels[v] = next((k for k, result in enumerate(layouts) if result[-1] == 0), 0)
    for v in tensors.ops:
        cost = costs.of(v)
        allowed = np.flatnonzero(cost < NEVER)
        if not len(allowed):
            return complete_labels(cut, None, method)
        costs.labels[v] = draw.choice(allowed) if method == "rows-random" else cost.argmin()
    return complete_labels(cut, costs.labels[: tensors.count], method)


def spartan(cut: CutTask) -> CutChoice:
    """The largest tensor first, and with it the ops that make and read it (Spartan, USENIX ATC 2015).

    A tensor's layout is that for which its ops, each as well as it can, send least beside what was chosen before.
    """
    made = cut.program(each=True)
    tensors, costs = tensors_of(cut.shaped, made), _Costs(net_of(made.problem))
    for v in sorted(tensors.layouts, key=lambda v: (-tensors.size[v], v)):
        if not _largest_next(tensors, costs, v):
            return complete_labels(cut, None, "spartan")
    for v in tensors.ops:
        if costs.labels[v] < 0:
            costs.labels[v] = costs.of(v).argmin()
    return complete_labels(cut, costs.labels[: tensors.count], "spartan")


def _largest_next(tensors: Tensors, costs: "_Costs", v: int) -> bool:
    """Choose the layout of a tensor, then its ops; whether there is any."""
    total = costs.of(v)
    around = sorted({other for other in costs.around(v) if costs.labels[other] < 0})
    for label in range(len(total)):
        costs.labels[v] = label
        for other in around:
            total[label] = min(NEVER, total[label] + costs.of(other).min())
    costs.labels[v] = total.argmin()
    for other in around:
        if not any(costs.labels[t] < 0 and tensors.size[t] for t in costs.held.get(other, ())):
            costs.labels[other] = costs.of(other).argmin()
    return bool(total.min() < NEVER)


class _Costs:
    """Costs of labels given the labels chosen so far."""

    def __init__(self, net: FactorGraph) -> None:
        self.net = net
        self.labels: Ints = np.full(len(net.first) - 1, -1, dtype=np.int64)
        self._offset, self._edge = incidence(net)
        self.held: dict[int, set[int]] = {}
        """Op -> the variables of the step that it takes: those that forbid ways of it."""
        for e in range(len(net.a)):
            if (net.table[net.begin[e] : net.begin[e + 1]] >= NEVER).any():
                self.held.setdefault(int(net.a[e]), set()).add(int(net.b[e]))

    def of(self, v: int) -> Ints:
        """Costs of all labels of a variable."""
        return costs_beside(self.net, self.labels, v, self._edges(v))

    def around(self, v: int) -> Ints:
        """Its neighbours."""
        edges = self._edges(v)
        return self.net.a[edges] + self.net.b[edges] - v

    def _edges(self, v: int) -> Ints:
        return self._edge[self._offset[v] : self._offset[v + 1]]
