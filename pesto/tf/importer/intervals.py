"""Intervals of numbers, element by element: extents of tensors, and whole numbers that sizes are computed from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solvers.arrays import Floats

_EXACT = 2.0**53
"""Beyond it float64 does not have every whole number, and no tensor has that many elements."""


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Numbers between two bounds, which are infinite where unknown."""

    low: Floats
    """Lower bound of each element; an array of rank 0 for all elements of a tensor alike."""
    high: Floats
    """Upper bound of each element, of the same shape."""

    @property
    def limited(self) -> bool:
        """True if there is at least one element and every element has a finite upper bound."""
        return bool(self.high.size and np.isfinite(self.high).all())

    @property
    def finite(self) -> bool:
        """True if every element has a finite lower and upper bound."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())

    def sizes(self) -> tuple[int, ...] | None:
        """Return the upper bounds as a shape, none below 0; None where one is infinite."""
        if not np.isfinite(self.high).all():
            return None
        return tuple(max(0, int(n)) for n in np.ravel(self.high).tolist())

    def over_all(self) -> "Interval":
        """Make one interval that contains every element."""
        if not self.low.size:
            return UNKNOWN
        return Interval(self.low.min(), self.high.max())

    def each(self, change: Callable[[Floats], Any]) -> "Interval":
        """Apply a function that does not fall, or one that moves elements, to both bounds."""
        return interval(change(self.low), change(self.high))


def interval(low: Any, high: Any) -> Interval:
    """Make an interval of two arrays or numbers; what float64 cannot tell apart is infinite."""
    bottom, top = (np.asarray(bound, dtype=np.float64) for bound in (low, high))
    bottom, top = np.broadcast_arrays(bottom, top)
    return Interval(
        np.where((bottom >= -_EXACT) & (bottom <= _EXACT), bottom, -np.inf),
        np.where((top >= -_EXACT) & (top <= _EXACT), top, np.inf),
    )


def exactly(value: Any) -> Interval:
    """Make the interval of a known value."""
    return interval(value, value)


def at_most(*sizes: float) -> Interval:
    """Make the extents of a tensor from upper bounds alone."""
    return interval(np.zeros(len(sizes)), np.asarray(sizes, dtype=np.float64))


UNKNOWN = Interval(np.asarray(-np.inf), np.asarray(np.inf))


def union(parts: Sequence[Interval]) -> Interval:
    """Make the smallest interval, the same for all elements, that contains several."""
    every = [part.over_all() for part in parts]
    if not every:
        return UNKNOWN
    return Interval(
        np.asarray(min(float(part.low) for part in every)), np.asarray(max(float(part.high) for part in every))
    )


def at_corners(function: Callable[[Any, Any], Any], one: Sequence[Any], other: Sequence[Any]) -> Interval:
    """Make the interval of a function that is monotonic in each of two arguments between the values given for them."""
    with np.errstate(all="ignore"):
        # 0 times what is not limited is 0; other such cases have a corner that is infinite.
        values = [np.nan_to_num(function(a, b), nan=0.0, posinf=np.inf, neginf=-np.inf) for a in one for b in other]
    arrays = np.broadcast_arrays(*values)
    return interval(np.minimum.reduce(arrays), np.maximum.reduce(arrays))


def product(parts: Iterable[Interval]) -> Interval:
    """Multiply several intervals."""
    result = exactly(1)
    for part in parts:
        result = at_corners(np.multiply, (result.low, result.high), (part.low, part.high))
    return result


def elements(extents: Interval) -> Interval:
    """Bound the number of elements of a tensor with these extents."""
    return product(Interval(low, high) for low, high in zip(extents.low, extents.high, strict=True))
