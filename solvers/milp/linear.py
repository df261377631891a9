"""A mixed-integer linear program as sparse arrays: the one form between every formulation and every vendor."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from solvers.arrays import Bools, Floats, Ints, floats

INFINITY = math.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linear:
    """minimise cost @ v  subject to  row_lower <= A v <= row_upper,  lower <= v <= upper,  v[j] whole where integer[j].

    A has r rows, c columns and k entries, row by row, at most one for each row and column. Bounds may be infinite.
    """

    cost: Floats
    """[c] what a unit of each column costs."""
    lower: Floats
    """[c] least value of each column."""
    upper: Floats
    """[c] greatest value of each column."""
    integer: Bools
    """[c] whether each column must be whole."""
    offset: Ints
    """[r + 1] where each row begins in `column` and `coefficient`."""
    column: Ints
    """[k] column of each entry of the matrix."""
    coefficient: Floats
    """[k] value of each entry of the matrix."""
    row_lower: Floats
    """[r] least value of each row, -inf for none."""
    row_upper: Floats
    """[r] greatest value of each row, inf for none."""

    @property
    def columns(self) -> int:
        """Number of variables, c."""
        return len(self.cost)

    @property
    def rows(self) -> int:
        """Number of constraints, r."""
        return len(self.row_lower)

    def activity(self, values: Floats) -> Floats:
        """Return [r] A v."""
        row = np.repeat(np.arange(self.rows), np.diff(self.offset))
        entries = self.coefficient * values[self.column]
        return floats(np.bincount(row, weights=entries, minlength=self.rows))

    def violation(self, values: Floats) -> float:
        """Return the most by which `values` [c] miss a row, a bound or wholeness; 0.0 for a feasible point."""
        activity = self.activity(values)
        misses = (
            self.row_lower - activity, activity - self.row_upper, self.lower - values, values - self.upper,
            np.abs(values - np.rint(values))[self.integer],
        )  # fmt: skip
        return max(0.0, *(float(miss.max(initial=0.0)) for miss in misses))


class LinearBuilder:
    """A `Linear` in the making. Columns and rows are numbered as they are added; `check` is asked at each row."""

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self.check = check
        self._cost: list[float] = []
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._integer: list[bool] = []
        self._offset = [0]
        self._column: list[int] = []
        self._coefficient: list[float] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []

    def column(self, lower: float, upper: float, *, cost: float = 0.0, integer: bool = False) -> int:
        """Add a variable and return its number."""
        self._cost.append(cost)
        self._lower.append(lower)
        self._upper.append(upper)
        self._integer.append(integer)
        return len(self._cost) - 1

    def binary(self) -> int:
        """Add a variable that is 0 or 1 and return its number."""
        return self.column(0.0, 1.0, integer=True)

    def row(
        self, terms: Iterable[tuple[int, float]], *, at_least: float = -INFINITY, at_most: float = INFINITY
    ) -> None:
        """Add at_least <= sum of coefficient * column <= at_most; a column that is named again adds up."""
        self.check()
        entries: dict[int, float] = {}
        for column, coefficient in terms:
            entries[column] = entries.get(column, 0.0) + coefficient
        self._column += entries
        self._coefficient += entries.values()
        self._offset.append(len(self._column))
        self._row_lower.append(at_least)
        self._row_upper.append(at_most)

    def linear(self) -> Linear:
        """Return all of it, as arrays."""
        real = np.float64
        return Linear(
            cost=np.array(self._cost, dtype=real), lower=np.array(self._lower, dtype=real),
            upper=np.array(self._upper, dtype=real), integer=np.array(self._integer, dtype=np.bool_),
            offset=np.array(self._offset, dtype=np.int64), column=np.array(self._column, dtype=np.int64),
            coefficient=np.array(self._coefficient, dtype=real), row_lower=np.array(self._row_lower, dtype=real),
            row_upper=np.array(self._row_upper, dtype=real),
        )  # fmt: skip
