"""The methods by name, and what they share: every answer is judged."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints
from solvers.labels.critical import by_paths
from solvers.labels.elimination import eliminate
from solvers.labels.factor_graph import NEVER, FactorGraph, costs_beside, incidence, net_of, tidy
from solvers.labels.labelling import MOST, Labelling, judge, most
from solvers.labels.messages import pass_messages
from solvers.labels.subprocess_lp import LabelLimits, relaxed_apart
from solvers.result import ANSWERED, Limit, Status, relative_gap

# The result of a method for labelling problems.


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
        found = "no labels" if self.value is None else f"value {self.value}"
        return f"Answer({self.status} by {self.method}, {found}, bound {self.bound}, {self.total_seconds:.2f} s)"

    @property
    def gap(self) -> float | None:
        """(value - bound) / value; None without labels."""
        return None if self.value is None else relative_gap(self.value, self.bound)

    @property
    def total_seconds(self) -> float:
        """Total seconds of all phases."""
        return sum(took for _, took in self.seconds)


MOST_COMBINATIONS, FEW_COMBINATIONS = 10**6, 10**5
"""Label combinations that `exhaustive` accepts, and up to which a reduced problem is enumerated."""


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
    """Elimination of variables of degree 2 or less, then the rest as a linear program, whole where it must be."""
    return _by_elimination(problem, budget, "exact")


def cpsat(problem: Labelling, budget: LabelLimits) -> LabelResult:
    """The same elimination, then CP-SAT."""
    return _by_elimination(problem, budget, "cpsat")


def chain(problem: Labelling, budget: LabelLimits) -> LabelResult:
    """The dynamic program of the paper (Tofu, section 4.1); ValueError for what is no forest of chains.

    Variables of two labels that stand for what is fetched count as any others.
    """
    degree = np.bincount(np.concatenate([problem.a, problem.b]), minlength=problem.variables)
    if (degree > 2).any():
        raise ValueError(
            f"variable {int(degree.argmax())} has {int(degree.max())} neighbours, so this is no chain - ask exact"
        )
    return _by_elimination(problem, budget, "chain")


def greedy(problem: Labelling, budget: LabelLimits) -> LabelResult:  # noqa: ARG001
    """Variable by variable in their order, each the label that costs least with those before; then one by one anew."""
    began, found = time.perf_counter(), tidy(net_of(problem))
    if found is None:
        return _infeasible("greedy", began)
    net, was = found
    labels = _descended(net)
    took = (("descent", time.perf_counter() - began),)
    if labels is None:
        return LabelResult(
            status=Status.UNKNOWN, method="greedy", labels=None, value=None, bound=0, limit=Limit.OTHER, seconds=took,
            detail="what it chose first forbids all labels of a later variable",
        )  # fmt: skip
    return _answer(problem, "greedy", was[net.first[:-1] + labels] - problem.first[:-1], 0, _RunCost(took))


def exhaustive(problem: Labelling, budget: LabelLimits) -> LabelResult:  # noqa: ARG001
    """Every combination of labels; ValueError where there are more than MOST_COMBINATIONS."""
    began, net = time.perf_counter(), net_of(problem)
    many = _combinations(net)
    if many > MOST_COMBINATIONS:
        raise ValueError(f"{many} combinations of labels are more than {MOST_COMBINATIONS} - ask exact")
    labels, value = _enumerated(net)
    if value >= NEVER:
        return _infeasible("exhaustive", began)
    return _answer(problem, "exhaustive", labels, value, _RunCost((("enumeration", time.perf_counter() - began),)))


def trws(problem: Labelling, budget: LabelLimits) -> LabelResult:
    """A bound by messages, and the best labels met on the way (`solvers.labels.messages`)."""
    began = time.perf_counter()
    found = pass_messages(problem, budget.wall_s)
    if found.bound > most(problem):
        return _infeasible("trws", began)
    return _answer(problem, "trws", found.labels, found.bound, _RunCost((("messages", time.perf_counter() - began),)))


def critical(problem: Labelling, budget: LabelLimits) -> LabelResult:
    """CriticalDP (Tofu, section 4.2.2), each variable a group, an edge as long as its dearest pair is dear."""
    began = time.perf_counter()
    dearest = np.array([problem.costs[b:e].max() for b, e in zip(problem.begin[:-1], problem.begin[1:], strict=True)])
    length = dearest[problem.table] if problem.edges else np.zeros(0, np.int64)
    labels = by_paths(problem, np.arange(problem.variables), length, lambda part: exact(part, budget).labels)
    took = (("paths", time.perf_counter() - began),)
    if labels is None:
        return LabelResult(
            status=Status.UNKNOWN, method="critical", labels=None, value=None, bound=0, limit=Limit.OTHER, seconds=took,
            detail="what it chose first forbids all labels of a later variable",
        )  # fmt: skip
    return _answer(problem, "critical", labels, 0, _RunCost(took))


METHODS: dict[str, Callable[[Labelling, LabelLimits], LabelResult]] = {
    "exact": exact, "cpsat": cpsat, "chain": chain, "greedy": greedy, "exhaustive": exhaustive, "trws": trws,
    "critical": critical,
}  # fmt: skip
"""Name -> method."""


def _by_elimination(problem: Labelling, budget: LabelLimits, method: str) -> LabelResult:
    began, found = time.perf_counter(), tidy(net_of(problem))
    if found is None:
        return _infeasible(method, began)
    net, was = found
    gone = eliminate(net, MOST)
    if gone.constant >= NEVER:
        return _infeasible(method, began)
    eliminated = time.perf_counter()
    left_s = budget.seconds - (0.0 if budget.deterministic else eliminated - began)
    solver = "CP-SAT" if method == "cpsat" else "HiGHS"
    rest, bound, left = _rest(gone.rest, budget._replace(seconds=left_s), solver)
    if bound >= NEVER:
        return _infeasible(method, began)
    labels = None
    if rest is not None:
        labels = was[net.first[:-1] + gone.complete(rest)] - problem.first[:-1]
    took = (("elimination", eliminated - began), ("relaxation", time.perf_counter() - eliminated))
    work = _RunCost(took, problem.variables - len(gone.kept), left)
    return _answer(problem, method, labels, gone.constant + bound, work)


def _rest(net: FactorGraph, budget: LabelLimits, solver: str) -> tuple[Ints | None, int, int]:
    """Labels of what is left, a bound of what they cost, and how many variables there are."""
    variables = len(net.first) - 1
    if _combinations(net) <= FEW_COMBINATIONS:
        labels, value = _enumerated(net)
        return labels, value, variables
    found = relaxed_apart(net, budget, solver)
    if found.infeasible:
        return None, NEVER, variables
    return (_descended(net) if found.labels is None else found.labels), found.bound, variables


def _combinations(net: FactorGraph) -> int:
    return math.prod(np.diff(net.first).tolist())


def _enumerated(net: FactorGraph) -> tuple[Ints, int]:
    """The best of all combinations of labels, and its value; NEVER or more where all are forbidden."""
    many = np.diff(net.first)
    which = np.arange(_combinations(net))
    chosen = np.stack(np.unravel_index(which, tuple(many)), axis=1) if len(many) else np.zeros((1, 0), np.int64)
    pairs = net.begin[:-1] + chosen[:, net.a] * many[net.b] + chosen[:, net.b]
    own, both = net.cost[net.first[:-1] + chosen], net.table[pairs]
    never = (own >= NEVER).any(axis=1) | (both >= NEVER).any(axis=1)
    value = np.where(never, NEVER, own.sum(axis=1) + both.sum(axis=1))
    best = int(value.argmin())
    return chosen[best], int(value[best])


def _descended(net: FactorGraph) -> Ints | None:
    """Labels that no other label of one variable betters; None where the first pass finds none that is allowed."""
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
    """Phases and size of a run."""

    seconds: tuple[tuple[str, float], ...]
    eliminated: int = 0
    remained: int = 0


def _answer(problem: Labelling, method: str, labels: Ints | None, bound: int, work: _RunCost) -> LabelResult:
    """Judged labels; a proof only where the bound reaches their value."""
    value = None if labels is None else judge(problem, labels)
    status = Status.UNKNOWN if value is None else Status.OPTIMAL if bound >= value else Status.FEASIBLE
    limit = (
        Limit.NONE if status is Status.OPTIMAL else Limit.TIME if method in ("exact", "cpsat", "trws") else Limit.OTHER
    )
    return LabelResult(
        status=status, method=method, labels=labels, value=value, bound=bound if value is None else min(bound, value),
        limit=limit, seconds=work.seconds, eliminated=work.eliminated, remained=work.remained,
    )  # fmt: skip
