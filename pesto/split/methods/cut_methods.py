"""The methods by name: a row each."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from pesto.split.geometry import Shape
from pesto.split.methods.coarse_graph import CoarseGraphOptions, coarsen_labelling
from pesto.split.methods.cut import CutChoice, CutTask, by_solver, complete_labels, solve_labelling
from pesto.split.methods.joint import joint
from pesto.split.methods.memory_limited_cut import cut_within_memory
from pesto.split.methods.parallelism_rules import data_parallel, megatron
from pesto.split.methods.tensors import Tensors, tensors_of
from pesto.split.program import Rules
from solvers.arrays import Ints
from solvers.labels.critical import by_paths
from solvers.labels.factor_graph import NEVER, FactorGraph, costs_beside, incidence, net_of
from solvers.labels.labelling import Labelling

# The rules that Tofu is compared with (section 6.3): rows, at random or greedily, and the largest tensor first.

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


# Tofu's own search (section 4): CriticalDP on the coarse graph, cut after cut.

_PAPER = CoarseGraphOptions()


def tofu(cut: CutTask, *, settings: CoarseGraphOptions = _PAPER, paths: bool = True, name: str = "tofu") -> CutChoice:
    """Groups path by path, the longest first; or in the order of the step.

    As in the paper every reader is charged its own fetch, and variables are cut. What the time does not suffice for
    is chosen greedily; in a deterministic cut each group has an equal share of it, as work.
    """
    ends = time.monotonic() + 0.8 * cut.seconds
    made = cut.program(each=True)
    result = coarsen_labelling(cut.shaped, made, settings)
    share = 0.8 * cut.seconds / (1 + int(result.group.max(initial=0)))

    def best(part: Labelling) -> Ints | None:
        left = share if cut.deterministic else ends - time.monotonic()
        labels = solve_labelling(part, "exact", left, deterministic=cut.deterministic).labels if left > 0 else None
        return solve_labelling(part, "greedy", 1.0).labels if labels is None else labels

    labels = by_paths(result.problem, result.group, result.length, best, order=paths)
    return complete_labels(cut, None if labels is None else result.widened(labels), name)


@dataclass(frozen=True, slots=True)
class CutMethod:
    """How cuts are chosen."""

    what: str
    """For people, after its name."""
    choose: Callable[[CutTask], CutChoice]
    together: bool = False
    """True if it makes all cuts at once."""
    flat: bool = False
    """True if it makes one cut for all workers, whatever factors are asked for."""
    replicates: bool = False
    """True if variables, and ops, may be whole by its own rule."""
    limited: bool = False
    """True if it keeps to a limit of what a worker holds."""
    priced: bool = False
    """True if it weighs messages and ops beside bytes, where the rules have prices."""

    def cuts(self, factors: Shape) -> list[Shape]:
        """The factors of each of its problems."""
        if self.flat:
            return [(prod(factors),)]
        return [factors] if self.together else [(k,) for k in factors]

    def ruled(self, rules: Rules) -> Rules:
        """Return the rules that divisions of this method keep."""
        return replace(rules, replicate=True, redundant=True) if self.replicates else rules


def _without(what: str, settings: CoarseGraphOptions, name: str) -> CutMethod:
    return CutMethod(f"Tofu, {what}", partial(tofu, settings=settings, name=name))


def _exact(cut: CutTask) -> CutChoice:
    memory_bytes = cut.rules.memory_bytes
    return by_solver(cut, "exact") if memory_bytes is None else cut_within_memory(cut, memory_bytes)


METHODS = {
    "exact": CutMethod("each cut proven to send least", _exact, limited=True, priced=True),
    "joint": CutMethod("all cuts at once, after the exact ones", joint, together=True, priced=True),
    "greedy": CutMethod("op by op in the order of the step", partial(by_solver, method="greedy"), priced=True),
    "tofu": CutMethod("Tofu's own: critical paths of the coarse graph by dynamic programming", tofu),
    "tofu-ungrouped": _without(
        "backward ops apart from forward ones", CoarseGraphOptions(grouping=False), "tofu-ungrouped"
    ),
    "tofu-uncoalesced": _without("element-wise ops apart", CoarseGraphOptions(coalescing=False), "tofu-uncoalesced"),
    "tofu-unmerged": _without("time steps apart", CoarseGraphOptions(steps=False), "tofu-unmerged"),
    "tofu-in-order": CutMethod(
        "Tofu, group by group in the order of the step", partial(tofu, paths=False, name="tofu-in-order")
    ),
    "chop": CutMethod("Tofu with one cut for all workers (EqualChop)", partial(tofu, name="chop"), flat=True),
    "rows": CutMethod("tensors along their first dimension, ops as sends least beside that", rows),
    "rows-random": CutMethod("tensors along their first dimension, ops by lot", rows_random),
    "spartan": CutMethod("the largest tensor first, with its ops", spartan),
    "data-parallel": CutMethod("every op along its batch, variables whole", data_parallel, replicates=True),
    "megatron": CutMethod("weights of pairs of matmuls by columns, then by rows", megatron, replicates=True),
}
"""Name -> method."""
