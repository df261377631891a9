"""The labelling problem: one label for each variable, so that the costs of labels and of pairs sum to the least."""

from dataclasses import dataclass, fields

import numpy as np

from solvers.arrays import Ints, ints

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
        _edges(self)
        _costs(self)

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


def _edges(problem: Labelling) -> None:
    m = len(problem.a)
    for name, many in (("a", problem.variables), ("b", problem.variables), ("table", problem.tables)):
        index = getattr(problem, name)
        if len(index) != m:
            raise ValueError(f"{name} has {len(index)} entries, and a has {m}")
        wrong = np.flatnonzero((index < 0) | (index >= many))
        if len(wrong):
            raise ValueError(f"{name}: {index[wrong[0]]} of edge {wrong[0]} is out of range")
    loops = np.flatnonzero(problem.a == problem.b)
    if len(loops):
        raise ValueError(f"edge {loops[0]} joins variable {problem.a[loops[0]]} with itself")
    labels = problem.labels
    wrong = np.flatnonzero(np.diff(problem.begin)[problem.table] != labels[problem.a] * labels[problem.b])
    if len(wrong):
        edge = wrong[0]
        rows, columns = labels[problem.a[edge]], labels[problem.b[edge]]
        raise ValueError(f"table {problem.table[edge]} of edge {edge} is not {rows} x {columns}, as its variables ask")


def _costs(problem: Labelling) -> None:
    for name in ("unary", "costs"):
        array = getattr(problem, name)
        wrong = np.flatnonzero(array < FORBIDDEN)
        if len(wrong):
            raise ValueError(f"{name}: {array[wrong[0]]} at {wrong[0]} is negative and not FORBIDDEN ({FORBIDDEN})")
    if most(problem) > MOST:
        raise ValueError(f"costs could sum to more than {MOST} - divide them all by a number")


def most(problem: Labelling) -> int:
    """A value that no labels exceed: each variable's dearest label and each edge's dearest pair."""
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
