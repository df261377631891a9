"""The methods for labelling problems by name, and their result: every answer is judged."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints
from solvers.labels.elimination import eliminate
from solvers.labels.factor_graph import NEVER, FactorGraph, costs_beside, incidence, net_of, tidy
from solvers.labels.labelling import MOST, Labelling, judge, most
from solvers.labels.messages import pass_messages
from solvers.labels.subprocess_lp import LabelLimits, relaxed_apart
from solvers.result import ANSWERED, Limit, Status, relative_gap


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelResult:
    """The outcome of one method on one problem. ValueError when the status contradicts the rest."""

    status: Status
    """OPTIMAL: the value is the bound. FEASIBLE: labels, without that proof. INFEASIBLE: proven that all labels are
    forbidden. UNKNOWN: neither labels nor a proof."""
    method: str
    """Name in the table of methods."""
    labels: Ints | None
    """[n] the best labels that were found; they have passed `judge`."""
    value: int | None
    """Cost of the labels, as `judge` computes it."""
    bound: int
    """No labels cost less; 0 where nothing is known."""
    limit: Limit = Limit.NONE
    """Limit that stopped the method before its proof; NONE if it ended by itself."""
    seconds: tuple[tuple[str, float], ...] = ()
    """Wall-clock seconds of each phase."""
    eliminated: int = 0
    """Variables that elimination alone has dealt with, before any other phase."""
    remained: int = 0
    """Variables that were left after it."""
    detail: str = ""
    """One line on what happened; empty where the status says all."""

    def __post_init__(self) -> None:
        """Copy, freeze, and refuse what cannot be."""
        if self.labels is not None:
            object.__setattr__(self, "labels", ints(self.labels))
        if (self.status in ANSWERED) != (self.labels is not None) or (self.labels is None) != (self.value is None):
            raise ValueError(f"status {self.status} contradicts the labels")
        if self.value is not None and not 0 <= self.bound <= self.value:
            raise ValueError(f"bound {self.bound} is negative or above the value {self.value}")
        if self.status is Status.OPTIMAL and self.bound != self.value:
            raise ValueError("an optimal value is its bound")

    def __repr__(self) -> str:
        """One line, without arrays."""
        result = "no labels" if self.value is None else f"value {self.value}"
        return f"Answer({self.status} by {self.method}, {result}, bound {self.bound}, {self.total_seconds:.2f} s)"

    @property
    def gap(self) -> float | None:
        """(value - bound) / value; None without labels."""
        return None if self.value is None else relative_gap(self.value, self.bound)

    @property
    def total_seconds(self) -> float:
        """Total seconds of all phases."""
        return sum(took for _, took in self.seconds)


def solve(
    problem: Labelling, method: str = "exact", *, seconds: float = 60.0, threads: int = 1, deterministic: bool = False
) -> LabelResult:
    """Solve a problem by a method; ValueError for an unknown one, or for a problem that it cannot be asked.

    deterministic: the seconds stand for work, so that the same problem has the same answer however fast the machine is.
    """
    if method not in METHODS:
        raise ValueError(f"no method {method!r} - there are {', '.join(METHODS)}")
    return METHODS[method](problem, LabelLimits(seconds, threads, deterministic))


def exact(problem: Labelling, budget: LabelLimits) -> LabelResult:
    """Eliminate variables of degree 2 or less, then solve the rest as a linear program, whole where it must be."""
    began, allowed = time.perf_counter(), tidy(net_of(problem))
    if allowed is None:
        return _infeasible("exact", began)
    net, was = allowed
    gone = eliminate(net, MOST)
    if gone.constant >= NEVER:
        return _infeasible("exact", began)
    eliminated, rest = time.perf_counter(), gone.rest
    left: Ints | None
    if _combinations(rest) <= FEW_COMBINATIONS:
        # Return the best of all combinations of labels, and its value; NEVER or more where all are forbidden.
        many = np.diff(rest.first)
        which = np.arange(_combinations(rest))
        chosen = np.stack(np.unravel_index(which, tuple(many)), axis=1) if len(many) else np.zeros((1, 0), np.int64)
        pairs = rest.begin[:-1] + chosen[:, rest.a] * many[rest.b] + chosen[:, rest.b]
        own, both = rest.cost[rest.first[:-1] + chosen], rest.table[pairs]
        never = (own >= NEVER).any(axis=1) | (both >= NEVER).any(axis=1)
        value = np.where(never, NEVER, own.sum(axis=1) + both.sum(axis=1))
        best = int(value.argmin())
        left, bound = chosen[best], int(value[best])
    else:
        left_s = budget.seconds - (0.0 if budget.deterministic else eliminated - began)
        relaxed = relaxed_apart(rest, budget._replace(seconds=left_s))
        left, bound = relaxed.labels, relaxed.bound
        if relaxed.infeasible:
            bound = NEVER
        elif left is None:
            left = _descended(rest)
    if bound >= NEVER:
        return _infeasible("exact", began)
    labels = None if left is None else was[net.first[:-1] + gone.complete(left)] - problem.first[:-1]
    took = (("elimination", eliminated - began), ("relaxation", time.perf_counter() - eliminated))
    work = _RunCost(took, problem.variables - len(gone.kept), len(rest.first) - 1)
    return _answer(problem, "exact", labels, gone.constant + bound, work)


def greedy(problem: Labelling, budget: LabelLimits) -> LabelResult:  # noqa: ARG001
    """Label variables in their order, each at least cost with those before; then change one after the other."""
    began, result = time.perf_counter(), tidy(net_of(problem))
    if result is None:
        return _infeasible("greedy", began)
    net, was = result
    labels = _descended(net)
    took = (("descent", time.perf_counter() - began),)
    if labels is None:
        return LabelResult(
            status=Status.UNKNOWN, method="greedy", labels=None, value=None, bound=0, limit=Limit.OTHER, seconds=took,
            detail="what it chose first forbids all labels of a later variable",
        )  # fmt: skip
    return _answer(problem, "greedy", was[net.first[:-1] + labels] - problem.first[:-1], 0, _RunCost(took))


def trws(problem: Labelling, budget: LabelLimits) -> LabelResult:
    """Return a bound by messages, and the best labels met on the way (`solvers.labels.messages`)."""
    began = time.perf_counter()
    result = pass_messages(problem, budget.wall_s)
    if result.bound > most(problem):
        return _infeasible("trws", began)
    return _answer(problem, "trws", result.labels, result.bound, _RunCost((("messages", time.perf_counter() - began),)))


METHODS: dict[str, Callable[[Labelling, LabelLimits], LabelResult]] = {"exact": exact, "greedy": greedy, "trws": trws}
"""Name -> method."""

FEW_COMBINATIONS = 10**5
"""Label combinations up to which what elimination leaves is enumerated."""


def _combinations(net: FactorGraph) -> int:
    return math.prod(np.diff(net.first).tolist())


def _descended(net: FactorGraph) -> Ints | None:
    """Return labels that no other label of one variable betters; None where the first pass finds none allowed."""
    offset, edge = incidence(net)
    labels = np.full(len(net.first) - 1, -1, dtype=np.int64)
    for turn in range(10):
        before = labels.copy()
        for v in range(len(labels)):
            cost = costs_beside(net, labels, v, edge[offset[v] : offset[v + 1]])
            labels[v] = int(cost.argmin())
            if turn == 0 and cost[labels[v]] >= NEVER:
                return None
        if (labels == before).all():
            break
    return labels


def _infeasible(method: str, began: float) -> LabelResult:
    took = (("elimination", time.perf_counter() - began),)
    return LabelResult(status=Status.INFEASIBLE, method=method, labels=None, value=None, bound=0, seconds=took)


class _RunCost(NamedTuple):
    seconds: tuple[tuple[str, float], ...]
    eliminated: int = 0
    remained: int = 0


def _answer(problem: Labelling, method: str, labels: Ints | None, bound: int, work: _RunCost) -> LabelResult:
    """Return judged labels; a proof only where the bound reaches their value."""
    value = None if labels is None else judge(problem, labels)
    status = Status.UNKNOWN if value is None else Status.OPTIMAL if bound >= value else Status.FEASIBLE
    limit = Limit.NONE if status is Status.OPTIMAL else Limit.OTHER if method == "greedy" else Limit.TIME
    return LabelResult(
        status=status, method=method, labels=labels, value=value, bound=bound if value is None else min(bound, value),
        limit=limit, seconds=work.seconds, eliminated=work.eliminated, remained=work.remained,
    )  # fmt: skip
