"""The labelling problem: one label for each variable, so that the costs of labels and of pairs sum to the least.

A `Builder` makes problems, `narrowed` and `pinned` leave labels out, and `judge` evaluates labels in plain numpy,
without code of any solver.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solvers.arrays import Bools, Ints, ints, offsets

FORBIDDEN = -1
"""The cost of a label, or of a pair of labels, that may not be taken."""
MOST = 2**53
"""Upper limit of the sum of all largest costs: integers up to here are exact as floats."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labelling:
    """Give each of n variables one of its labels; the cost of m edges depends on the labels of two variables.

    The value of labels x is the sum of unary[v, x[v]] over variables and table(e)[x[a[e]], x[b[e]]] over edges: whole
    numbers >= 0, or FORBIDDEN. Edges share tables, since real graphs have few distinct ones; several edges may join the
    same two variables. Arrays are copied and made read-only. ValueError, naming the first offender, when a shape is
    wrong, an index out of range, a variable has no label, a cost is negative, or costs could sum to more than MOST.
    """

    first: Ints
    """[n + 1] where the labels of each variable begin in `unary`, and where the last end."""
    unary: Ints
    """[first[n]] cost of each label of each variable."""
    a: Ints
    """[m] the variable whose label is the row of the edge's table."""
    b: Ints
    """[m] the variable whose label is the column; another than `a`."""
    table: Ints
    """[m] table of each edge."""
    begin: Ints
    """[t + 1] where each table begins in `costs`, row after row, and where the last ends."""
    costs: Ints
    """[begin[t]] cost of each pair of labels in each table."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate every array."""
        for f in fields(self):
            array = ints(getattr(self, f.name))
            if array.ndim != 1:
                raise ValueError(f"{f.name} has {array.ndim} dimensions - give one")
            object.__setattr__(self, f.name, array)
        _runs("first", self.first, len(self.unary))
        _runs("begin", self.begin, len(self.costs))
        empty = np.flatnonzero(np.diff(self.first) == 0)
        if len(empty):
            raise ValueError(f"variable {empty[0]} has no label")
        for name, many in (("a", self.variables), ("b", self.variables), ("table", self.tables)):
            index = getattr(self, name)
            if len(index) != self.edges:
                raise ValueError(f"{name} has {len(index)} entries, and a has {self.edges}")
            wrong = np.flatnonzero((index < 0) | (index >= many))
            if len(wrong):
                raise ValueError(f"{name}: {index[wrong[0]]} of edge {wrong[0]} is out of range")
        loops, labels = np.flatnonzero(self.a == self.b), self.labels
        if len(loops):
            raise ValueError(f"edge {loops[0]} joins variable {self.a[loops[0]]} with itself")
        wrong = np.flatnonzero(np.diff(self.begin)[self.table] != labels[self.a] * labels[self.b])
        if len(wrong):
            edge, rows, columns = wrong[0], labels[self.a[wrong[0]]], labels[self.b[wrong[0]]]
            raise ValueError(f"table {self.table[edge]} of edge {edge} is not {rows} x {columns}, as its variables ask")
        for name, costs in (("unary", self.unary), ("costs", self.costs)):
            wrong = np.flatnonzero(costs < FORBIDDEN)
            if len(wrong):
                raise ValueError(f"{name}: {costs[wrong[0]]} at {wrong[0]} is negative and not FORBIDDEN ({FORBIDDEN})")
        if most(self) > MOST:
            raise ValueError(f"costs could sum to more than {MOST} - divide them all by a number")

    def __repr__(self) -> str:
        """One line, without arrays."""
        return (
            f"Labelling({self.variables} variables, {len(self.unary)} labels, {self.edges} edges, {self.tables} tables)"
        )

    @property
    def variables(self) -> int:
        """Number of variables, n."""
        return len(self.first) - 1

    @property
    def edges(self) -> int:
        """Number of edges, m."""
        return len(self.a)

    @property
    def tables(self) -> int:
        """Number of tables, t."""
        return len(self.begin) - 1

    @property
    def labels(self) -> Ints:
        """[n] how many labels each variable has."""
        return np.diff(self.first)


def _runs(name: str, where: Ints, end: int) -> None:
    if len(where) == 0 or where[0] != 0 or where[-1] != end or (np.diff(where) < 0).any():
        raise ValueError(f"{name} must rise from 0 to {end}, the number of costs")


def most(problem: Labelling) -> int:
    """Return a value that no labels exceed: each variable's dearest label and each edge's dearest pair."""
    unary = np.maximum.reduceat(problem.unary, problem.first[:-1]) if problem.variables else problem.unary
    used = np.unique(problem.table)
    dearest = np.zeros(problem.tables, dtype=np.int64)
    for table in used:
        dearest[table] = problem.costs[problem.begin[table] : problem.begin[table + 1]].max()
    return _exact_sum(unary) + _exact_sum(dearest[problem.table])


def _exact_sum(values: Ints) -> int:
    """Without overflow, for up to 2**31 values >= FORBIDDEN."""
    from_zero = np.maximum(values, 0)
    return (int((from_zero >> 32).sum()) << 32) + int((from_zero & 0xFFFFFFFF).sum())


Table = tuple[tuple[int, ...], ...]
"""Costs of pairs of labels, a row a label of the first variable."""


class Builder:
    """Variables and edges are numbered as they are added; equal tables are kept once."""

    def __init__(self) -> None:
        self._unary: list[Sequence[int]] = []
        self._a: list[int] = []
        self._b: list[int] = []
        self._table: list[int] = []
        self._tables: dict[Table, int] = {}

    def variable(self, costs: Sequence[int]) -> int:
        """Add a variable with the cost of each of its labels; its number."""
        self._unary.append(costs)
        return len(self._unary) - 1

    def edge(self, a: int, b: int, table: Sequence[Sequence[int]]) -> None:
        """Add the costs of pairs of labels of two variables; nothing where all are 0."""
        rows = tuple(map(tuple, table))
        if any(map(any, rows)):
            self._a.append(a)
            self._b.append(b)
            self._table.append(self._tables.setdefault(rows, len(self._tables)))

    def shared(
        self, producer: int, consumers: Sequence[int], needed: Sequence[Sequence[int]], cost: Sequence[Sequence[int]]
    ) -> None:
        """Add what readers fetch from a producer: each kind once, however many of them need it.

        `needed` has for each consumer the kind that each of its labels needs, `cost` for each label of the producer
        what each kind costs: the sum over kinds that anyone needs. A consumer that reads twice is there twice. A kind
        that several can need is a variable of two labels, whether it is fetched, and FORBIDDEN not to be while a
        consumer needs it: exact, and of pairs alone.
        """
        asked: dict[int, list[dict[int, None]]] = {}
        able: dict[int, set[int]] = {}
        for consumer, kinds in zip(consumers, needed, strict=True):
            for mine, kind in zip(asked.setdefault(consumer, [{} for _ in kinds]), kinds, strict=True):
                mine[kind] = None
                able.setdefault(kind, set()).add(consumer)
        fetched = dict[int, int]()
        for kind, by in able.items():
            if len(by) > 1 and any(row[kind] for row in cost):
                fetched[kind] = self.variable((0, 0))
                self.edge(producer, fetched[kind], [(0, row[kind]) for row in cost])
        for consumer, labels in asked.items():
            alone = [[kind for kind in mine if len(able[kind]) == 1] for mine in labels]
            self.edge(producer, consumer, [[sum(row[kind] for kind in mine) for mine in alone] for row in cost])
            for kind in dict.fromkeys(kind for mine in labels for kind in mine):
                if kind in fetched:
                    unfetched = [FORBIDDEN if kind in mine else 0 for mine in labels]
                    self.edge(fetched[kind], consumer, [unfetched, [0] * len(labels)])

    def build(self) -> Labelling:
        """Return all of it, as arrays."""
        tables = list(self._tables)
        flat = [cost for rows in tables for row in rows for cost in row]
        return Labelling(
            first=np.array([0, *accumulate(map(len, self._unary))], dtype=np.int64),
            unary=np.array([cost for costs in self._unary for cost in costs], dtype=np.int64),
            a=np.array(self._a, dtype=np.int64),
            b=np.array(self._b, dtype=np.int64),
            table=np.array(self._table, dtype=np.int64),
            begin=np.array([0, *accumulate(len(rows) * len(rows[0]) for rows in tables)], dtype=np.int64),
            costs=np.array(flat, dtype=np.int64),
        )


class LabelSubset(NamedTuple):
    """The smaller problem, and which labels its are."""

    problem: Labelling
    was: Ints
    """[labels] each one's number among all labels of the larger problem."""
    first: Ints
    """[n + 1] where the labels of each variable began there."""

    def widened(self, labels: Ints) -> Ints:
        """Return [n] the larger problem's labels."""
        return self.was[self.problem.first[:-1] + labels] - self.first[:-1]


def narrowed(problem: Labelling, keep: Bools) -> LabelSubset:
    """Return the problem with the labels of which [labels] `keep` is true; each variable keeps one at least."""
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
        result = problem.costs[problem.begin[t] : problem.begin[t + 1]].reshape(-1, len(masks[columns]))
        costs.append(result[masks[rows]][:, masks[columns]].reshape(-1))
    smaller = Labelling(
        first=offsets(sizes), unary=problem.unary[keep], a=problem.a, b=problem.b, table=table.reshape(-1),
        begin=offsets(np.array([len(c) for c in costs], dtype=np.int64)),
        costs=np.concatenate([*costs, np.zeros(0, dtype=np.int64)]),
    )  # fmt: skip
    return LabelSubset(smaller, np.flatnonzero(keep), problem.first)


def pinned(problem: Labelling, labels: Ints) -> LabelSubset:
    """Return the problem with the first variables' labels given: [m] of them, -1 for any."""
    keep = np.ones(len(problem.unary), dtype=np.bool_)
    for v in np.flatnonzero(labels >= 0).tolist():
        keep[problem.first[v] : problem.first[v + 1]] = False
        keep[problem.first[v] + labels[v]] = True
    return narrowed(problem, keep)


def judge(problem: Labelling, labels: npt.ArrayLike) -> int:
    """Return the value of [n] labels. ValueError, naming the first offender, for what is out of range or forbidden."""
    chosen = ints(labels)
    if chosen.shape != (problem.variables,):
        raise ValueError(f"labels have shape {chosen.shape}, and there are {problem.variables} variables")
    wrong = np.flatnonzero((chosen < 0) | (chosen >= problem.labels))
    if len(wrong):
        raise ValueError(f"label {chosen[wrong[0]]} of variable {wrong[0]} is out of range")
    own = problem.unary[problem.first[:-1] + chosen]
    wrong = np.flatnonzero(own == FORBIDDEN)
    if len(wrong):
        raise ValueError(f"label {chosen[wrong[0]]} of variable {wrong[0]} is forbidden")
    columns = problem.labels[problem.b]
    pairs = problem.costs[problem.begin[problem.table] + chosen[problem.a] * columns + chosen[problem.b]]
    wrong = np.flatnonzero(pairs == FORBIDDEN)
    if len(wrong):
        a, b = problem.a[wrong[0]], problem.b[wrong[0]]
        raise ValueError(f"labels {chosen[a]} and {chosen[b]} of variables {a} and {b} are forbidden together")
    return int(own.sum()) + int(pairs.sum())
