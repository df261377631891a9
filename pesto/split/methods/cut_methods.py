"""The cut methods by name: exact, joint, Tofu's own and the rules that Tofu is compared with."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from pesto.core.errors import UsageError
from pesto.split.division import Division
from pesto.split.geometry import Shape
from pesto.split.methods.coarse_graph import coarsen_labelling
from pesto.split.methods.cut import (
    CutChoice,
    CutTask,
    by_solver,
    complete_labels,
    cut_within_memory,
    solve_labelling,
    solve_pinned,
    tensors_of,
)
from pesto.split.methods.parallelism_rules import data_parallel, megatron
from pesto.split.program import CutProgram, Rules
from solvers import Limit, Status
from solvers.arrays import Bools, Ints
from solvers.labels.critical import by_paths
from solvers.labels.factor_graph import NEVER, FactorGraph, costs_beside, incidence, net_of
from solvers.labels.label_methods import LabelResult
from solvers.labels.labelling import Labelling, judge, narrowed
from solvers.labels.messages import pass_messages

MOST_LABELS = 4096
"""Maximum number of products of choices of one op, in a problem of all cuts."""


def joint(cut: CutTask) -> CutChoice:
    """Choose all cuts in one problem: better than cut after cut, with a bound of all of them.

    The labels are products of the cuts' labels. The linear program of a thousand ops is too large, so the bound is that
    of messages (`solvers.labels.messages`), and so is one start. The other is the cuts made one after the other. From
    each, one cut after the other is chosen anew, exactly and over the whole graph, with all other cuts as they are,
    until none sends less. The value is never more than that of the cuts one after the other.

    In a deterministic cut no clock ends anything: messages pass until the bound stands still, and each exact choice has
    a share of the seconds as work. Raise UsageError if an op has too many products of choices.
    """
    if len(cut.more) == 1:
        return by_solver(cut, "exact")
    began = time.monotonic()
    # The division by cuts made one after the other, in a third of the time; None if one finds nothing.
    one_by_one = cut.before
    for k in cut.more:
        task = replace(cut, before=one_by_one, more=(k,), seconds=cut.seconds / 3 / len(cut.more))
        single, answer = by_solver(task, "exact")
        one_by_one = None if answer.labels is None else single.division(answer.labels.tolist())
        if one_by_one is None:
            break
    program = cut.program()
    labels = int(program.problem.labels.max(initial=0))
    if labels > MOST_LABELS:
        raise UsageError.build(
            f"an op has {labels} ways for all cuts, more than {MOST_LABELS}",
            remedy="give fewer cuts, or the exact method",
        )
    cuts_s = time.monotonic() - began
    passed = pass_messages(program.problem, math.inf if cut.deterministic else (cut.seconds - cuts_s) / 2)
    ends = math.inf if cut.deterministic else began + cut.seconds
    starts = [passed.labels] if one_by_one is None else [_joint_labels(cut, program, one_by_one, ends), passed.labels]
    passed_s = time.monotonic() - began - cuts_s
    tried = [_improved(cut, program, start, ends) for start in starts if start is not None]
    best = min(tried, key=lambda labels: judge(program.problem, labels), default=None)
    took = (("cuts", cuts_s), ("messages", passed_s), ("improvement", time.monotonic() - began - cuts_s - passed_s))
    answer = LabelResult(
        status=Status.UNKNOWN, method="joint", labels=None, value=None, bound=0, limit=Limit.TIME, seconds=took
    )
    if best is not None:
        value, bound = judge(program.problem, best), passed.bound
        status, limit = (Status.OPTIMAL, Limit.NONE) if bound >= value else (Status.FEASIBLE, Limit.OTHER)
        answer = replace(answer, status=status, labels=best, value=value, bound=min(bound, value), limit=limit)
    return CutChoice(program, answer)


def _joint_labels(cut: CutTask, program: CutProgram, division: Division, ends: float) -> Ints | None:
    """Return the labels of a division by cuts made one after the other; None if the products do not have them."""
    labels = np.full(tensors_of(cut.shaped, program).count, -1, dtype=np.int64)
    rows: list[tuple[int, Sequence[object], object]] = list(
        zip(program.op, program.strategies, division.strategies, strict=True)
    )
    rows += zip(program.tie, program.tied, division.variables, strict=True)
    for ats, options, mine in zip(program.tensor, program.layouts, division.kept, strict=True):
        rows += zip(ats, options, mine, strict=True)
    for at, choices, own in rows:
        if at >= 0 and own not in choices:
            return None
        if at >= 0:
            labels[at] = choices.index(own)
    return solve_pinned(program.problem, labels, _share_s(cut, ends), deterministic=cut.deterministic).labels


def _improved(cut: CutTask, program: CutProgram, labels: Ints, ends: float) -> Ints:
    """Choose one cut after the other anew, all others as they are, until a round brings nothing, or time is over."""
    before, problem, cuts = len(program.factors) - len(cut.more), program.problem, dict[int, list[tuple[object, ...]]]()
    for at, strategies in zip(program.op, program.strategies, strict=True):
        if at >= 0:
            cuts[at] = [strategy.names for strategy in strategies]
    cuts |= {at: list(tied) for at, tied in zip(program.tie, program.tied, strict=True)}
    for ats, options in zip(program.tensor, program.layouts, strict=True):
        cuts |= {at: list(layouts) for at, layouts in zip(ats, options, strict=True) if at >= 0}

    def agreeing(place: int) -> Bools:
        """[labels] those that agree in all cuts but that one; of what is fetched, all."""
        keep = np.ones(len(problem.unary), dtype=np.bool_)
        for v, choices in cuts.items():
            mine = choices[labels[v]]
            for k, other in enumerate(choices):
                same = other[:place] == mine[:place] and other[place + 1 :] == mine[place + 1 :]
                keep[problem.first[v] + k] = same
        return keep

    value, still, at = judge(problem, labels), 0, 0
    while still < len(cut.more) and time.monotonic() < ends:
        rest = narrowed(problem, agreeing(before + at))
        result = solve_labelling(rest.problem, "exact", _share_s(cut, ends), deterministic=cut.deterministic)
        at, still = (at + 1) % len(cut.more), still + 1
        if result.labels is not None and result.value is not None and result.value < value:
            labels, value, still = np.asarray(rest.widened(result.labels)), result.value, 1
    return labels


def _share_s(cut: CutTask, ends: float) -> float:
    """Return the seconds of one problem of several: what is left of the time, or a third of the work for each cut."""
    return cut.seconds / 3 / len(cut.more) if cut.deterministic else ends - time.monotonic()


def cut_rows(cut: CutTask, method: str) -> CutChoice:
    """Choose every tensor along its first dimension: AllRow-Greedy, or AllRow-Rand for the method rows-random.

    Every op is cut as sends least beside that, or by lot, with the same lots each time.
    """
    program = cut.program(each=True)
    tensors, costs = tensors_of(cut.shaped, program), _Costs(net_of(program.problem))
    draw = np.random.default_rng(0)
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
    """Choose for the largest tensor first, and with it the ops that make and read it (Spartan, USENIX ATC 2015).

    A tensor's layout is that for which its ops, each as well as it can, send least beside what was chosen before.
    """
    program = cut.program(each=True)
    tensors, costs = tensors_of(cut.shaped, program), _Costs(net_of(program.problem))
    for v in sorted(tensors.layouts, key=lambda v: (-tensors.size[v], v)):
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
        if total.min() >= NEVER:
            return complete_labels(cut, None, "spartan")
    for v in tensors.ops:
        if costs.labels[v] < 0:
            costs.labels[v] = costs.of(v).argmin()
    return complete_labels(cut, costs.labels[: tensors.count], "spartan")


class _Costs:
    """Costs of labels given the labels chosen so far."""

    def __init__(self, net: FactorGraph) -> None:
        self.net = net
        self.labels: Ints = np.full(len(net.first) - 1, -1, dtype=np.int64)
        self._offset, self._edge = incidence(net)
        self.held: dict[int, set[int]] = {}
        """Op -> the variables of the step that it takes: those that forbid some of its strategies."""
        for e in range(len(net.a)):
            if (net.table[net.begin[e] : net.begin[e + 1]] >= NEVER).any():
                self.held.setdefault(int(net.a[e]), set()).add(int(net.b[e]))

    def of(self, v: int) -> Ints:
        """Return the costs of all labels of a variable."""
        return costs_beside(self.net, self.labels, v, self._edges(v))

    def around(self, v: int) -> Ints:
        """Return the neighbours of a variable."""
        edges = self._edges(v)
        return self.net.a[edges] + self.net.b[edges] - v

    def _edges(self, v: int) -> Ints:
        return self._edge[self._offset[v] : self._offset[v + 1]]


def tofu(cut: CutTask, /, *, paths: bool = True, name: str = "tofu", **coarsening: bool) -> CutChoice:
    """Choose by Tofu's own search (section 4): CriticalDP on the coarse graph.

    Groups are labelled path by path, the longest first, or without `paths` in the order of the step. As in the paper
    every reader is charged its own fetch, and variables are cut. What the time does not suffice for is chosen greedily;
    in a deterministic cut each group has an equal share of it, as work. coarsening: options of `coarsen_labelling`.
    """
    ends = time.monotonic() + 0.8 * cut.seconds
    program = cut.program(each=True)
    result = coarsen_labelling(cut.shaped, program, **coarsening)
    share = 0.8 * cut.seconds / (1 + int(result.group.max(initial=0)))

    def best(part: Labelling) -> Ints | None:
        left = share if cut.deterministic else ends - time.monotonic()
        labels = solve_labelling(part, "exact", left, deterministic=cut.deterministic).labels if left > 0 else None
        return solve_labelling(part, "greedy", 1.0).labels if labels is None else labels

    labels = by_paths(result.problem, result.group, result.length, best, order=paths)
    return complete_labels(cut, None if labels is None else result.widened(labels), name)


@dataclass(frozen=True, slots=True)
class CutMethod:
    """A named way to choose cuts."""

    what: str
    """Description for people, after its name."""
    choose: Callable[[CutTask], CutChoice]
    together: bool = False
    """True if it makes all cuts at once."""
    flat: bool = False
    """True if it makes one cut for all workers, whatever factors are asked for."""
    replicates: bool = False
    """True if variables and ops may be whole, and gradients summands, by its own rule."""
    limited: bool = False
    """True if it keeps to a limit of what a worker holds."""
    priced: bool = False
    """True if it weighs messages and ops beside bytes, where the rules have prices."""

    def cuts(self, factors: Shape) -> list[Shape]:
        """Return the factors of each of its problems."""
        if self.flat:
            return [(prod(factors),)]
        return [factors] if self.together else [(k,) for k in factors]

    def ruled(self, rules: Rules) -> Rules:
        """Return the rules that divisions of this method keep."""
        return replace(rules, replicate=True, redundant=True, summands=True) if self.replicates else rules


def _tofu_without(step: str, what: str, **options: bool) -> CutMethod:
    name = f"tofu-{step}"
    return CutMethod(f"Tofu, {what}", partial(tofu, name=name, **options))


def exact(cut: CutTask) -> CutChoice:
    """Choose the cut proven to send least, under the rules' limit of memory if there is one."""
    memory_bytes = cut.rules.memory_bytes
    return by_solver(cut, "exact") if memory_bytes is None else cut_within_memory(cut, memory_bytes)


METHODS = {
    "exact": CutMethod("each cut proven to send least", exact, limited=True, priced=True),
    "joint": CutMethod("all cuts at once, after the exact ones", joint, together=True, priced=True),
    "greedy": CutMethod("op by op in the order of the step", partial(by_solver, method="greedy"), priced=True),
    "tofu": CutMethod("Tofu's own: critical paths of the coarse graph by dynamic programming", tofu),
    "tofu-ungrouped": _tofu_without("ungrouped", "backward ops apart from forward ones", grouping=False),
    "tofu-uncoalesced": _tofu_without("uncoalesced", "element-wise ops apart", coalescing=False),
    "tofu-unmerged": _tofu_without("unmerged", "time steps apart", steps=False),
    "tofu-in-order": CutMethod(
        "Tofu, group by group in the order of the step", partial(tofu, paths=False, name="tofu-in-order")
    ),
    "chop": CutMethod("Tofu with one cut for all workers (EqualChop)", partial(tofu, name="chop"), flat=True),
    "rows": CutMethod(
        "tensors along their first dimension, ops as sends least beside that", partial(cut_rows, method="rows")
    ),
    "rows-random": CutMethod(
        "tensors along their first dimension, ops by lot", partial(cut_rows, method="rows-random")
    ),
    "spartan": CutMethod("the largest tensor first, with its ops", spartan),
    "data-parallel": CutMethod("every op along its batch, variables whole", data_parallel, replicates=True),
    "megatron": CutMethod("weights of pairs of matmuls by columns, then by rows", megatron, replicates=True),
}
"""Name -> method."""
