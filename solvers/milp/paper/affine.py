"""Vectors of affine expressions, so that a family of constraints reads as it is printed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from solvers.arrays import Bools, Floats, Ints, offsets
from solvers.milp.linear import INFINITY, Linear

Number = float | Floats
"""One for all expressions of a vector, or one for each, [r]."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Affine:
    """r expressions: a constant and at most t terms, coefficient * variable, each."""

    __array_ufunc__: ClassVar[None] = None
    """An array times a vector of expressions is one such vector, not an array of objects."""
    constant: Floats
    """[r] constant of each expression."""
    column: Ints
    """[r, t] number of the variable of each term."""
    coefficient: Floats
    """[r, t] 0 for no term."""

    @classmethod
    def of(cls, column: Ints) -> "Affine":
        """Return the variables [r] themselves."""
        return cls(constant=np.zeros(len(column)), column=column[:, None], coefficient=np.ones((len(column), 1)))

    @classmethod
    def fixed(cls, constant: Floats) -> "Affine":
        """Return numbers [r]."""
        none = (len(constant), 0)
        return cls(constant=constant, column=np.zeros(none, dtype=np.int64), coefficient=np.zeros(none))

    @classmethod
    def stack(cls, parts: Sequence["Affine"]) -> "Affine":
        """Return the expressions of one or more vectors, one vector after the other."""
        width = max(part.column.shape[1] for part in parts)
        margins = [((0, 0), (0, width - part.column.shape[1])) for part in parts]
        return cls(
            constant=np.concatenate([part.constant for part in parts]),
            column=np.concatenate([np.pad(part.column, m) for part, m in zip(parts, margins, strict=True)]),
            coefficient=np.concatenate([np.pad(part.coefficient, m) for part, m in zip(parts, margins, strict=True)]),
        )

    def __len__(self) -> int:
        """r."""
        return len(self.constant)

    def __getitem__(self, index: Ints | Bools) -> "Affine":
        """Some of the expressions, or all in another order."""
        return Affine(constant=self.constant[index], column=self.column[index], coefficient=self.coefficient[index])

    def __add__(self, other: "Affine | Number") -> "Affine":
        """The sums, one by one."""
        if not isinstance(other, Affine):
            return Affine(constant=self.constant + other, column=self.column, coefficient=self.coefficient)
        return Affine(
            constant=self.constant + other.constant,
            column=np.concatenate([self.column, other.column], axis=1),
            coefficient=np.concatenate([self.coefficient, other.coefficient], axis=1),
        )

    def __mul__(self, factor: Number) -> "Affine":
        """The products, one by one."""
        each = np.broadcast_to(factor, len(self))
        return Affine(constant=self.constant * each, column=self.column, coefficient=self.coefficient * each[:, None])

    def __neg__(self) -> "Affine":
        """All times -1."""
        return self * -1.0

    def __sub__(self, other: "Affine | Number") -> "Affine":
        """The differences, one by one."""
        return self + -other

    def __rsub__(self, other: Number) -> "Affine":
        """Numbers less the expressions."""
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    def total(self, weight: Floats) -> "Affine":
        """Return [1] the weighted sum, `weight` [r]."""
        return Affine(
            constant=np.array([self.constant @ weight]),
            column=self.column.reshape(1, -1),
            coefficient=(self.coefficient * weight[:, None]).reshape(1, -1),
        )

    def at(self, values: Floats) -> Floats:
        """Return [r] what the expressions come to at a point [c]."""
        found: Floats = self.constant + (self.coefficient * values[self.column]).sum(axis=1)
        return found


class AffineBuilder:
    """A `Linear` in the making, by vectors of variables and of constraints; `check` is asked at each of these."""

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self.columns, self._check = 0, check
        self.forced: list[tuple[Ints, Affine]] = []
        """Variables [r], each to be set to the greatest of its expressions [r] and 0."""
        self._columns: list[tuple[Floats, Floats, Floats, Bools]] = []
        self._rows: list[tuple[Affine, bool]] = []

    def variables(self, count: int, lower: float, upper: float, *, cost: float = 0.0, integer: bool = False) -> Affine:
        """Return `count` new variables."""
        first, self.columns = self.columns, self.columns + count
        each = np.ones(count)
        self._columns.append((cost * each, lower * each, upper * each, np.full(count, integer)))
        return Affine.of(np.arange(first, self.columns))

    def binaries(self, count: int) -> Affine:
        """Return `count` new variables that are 0 or 1."""
        return self.variables(count, 0.0, 1.0, integer=True)

    def kinds(self) -> Iterator[tuple[float, float, bool]]:
        """Return the lower bound, upper bound and integrality of each variable."""
        for _, lower, upper, integer in self._columns:
            yield from zip(lower.tolist(), upper.tolist(), integer.tolist(), strict=True)

    def not_negative(self, left: Affine) -> None:
        """left >= 0."""
        self._check()
        self._rows.append((left, False))

    def zero(self, left: Affine) -> None:
        """left = 0."""
        self._check()
        self._rows.append((left, True))

    def force(self, variable: Affine, least: Affine) -> None:
        """variable >= least, for variables that are no greater than such rows demand."""
        self.not_negative(variable - least)
        self.forced.append((variable.column[:, 0], least))

    def linear(self) -> Linear:
        """Return all of it; terms of one variable in one row are added up."""
        rows = []
        for left, equal in self._rows:
            if not len(left):
                continue
            self._check()
            row, term = np.nonzero(left.coefficient)
            entry, inverse = np.unique(row * self.columns + left.column[row, term], return_inverse=True)
            total = np.bincount(inverse, weights=left.coefficient[row, term], minlength=len(entry))
            entry, total = entry[total != 0], total[total != 0]
            entries = np.bincount(entry // self.columns, minlength=len(left)).astype(np.int64)
            bound = -left.constant
            rows.append((entries, entry % self.columns, total, bound, bound if equal else np.full(len(left), INFINITY)))
        count, column, coefficient, least, most = (np.concatenate(part) for part in zip(*rows, strict=True))
        cost, lower, upper, integer = (np.concatenate(part) for part in zip(*self._columns, strict=True))
        return Linear(
            cost=cost, lower=lower, upper=upper, integer=integer, offset=offsets(count), column=column,
            coefficient=coefficient, row_lower=least, row_upper=most,
        )  # fmt: skip
