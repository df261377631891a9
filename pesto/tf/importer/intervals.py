"""Intervals of numbers, element by element: extents of tensors, and whole numbers that sizes are computed from."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solvers.arrays import Floats

_EXACT = 2.0**53
"""Beyond it float64 does not have every whole number, and no tensor has that many elements."""
_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


class UnboundedError(Exception):
    """Raised by a rule, or by what it reads, where no bound is known; whoever applies rules catches it."""


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
        return Interval(self.low.min(), self.high.max()) if self.low.size else UNKNOWN

    def each(self, change: Callable[[Floats], Any]) -> "Interval":
        """Apply a function that does not fall, or one that moves elements, to both bounds."""
        return interval(change(self.low), change(self.high))


UNKNOWN = Interval(np.asarray(-np.inf), np.asarray(np.inf))


def interval(low: Any, high: Any) -> Interval:
    """Make an interval of two arrays or numbers; what float64 cannot tell apart is infinite."""
    bottom, top = np.broadcast_arrays(*(np.asarray(bound, dtype=np.float64) for bound in (low, high)))
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


def union(parts: Sequence[Interval]) -> Interval:
    """Make the smallest interval, the same for all elements, that contains several."""
    every = [part.over_all() for part in parts]
    if not every:
        return UNKNOWN
    low, high = min(float(part.low) for part in every), max(float(part.high) for part in every)
    return Interval(np.asarray(low), np.asarray(high))


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


def strided_slice(node: Any, extents: Interval, begin: Interval, end: Interval, steps: Interval) -> Interval:
    """Bound each extent of what a StridedSlice gives. Raise UnboundedError for more slices than dimensions."""
    masks = {name: node.attr[f"{name}_mask"].i for name in _MASKS}
    count, rank = len(begin.low), len(extents.low)
    added = sum(masks["new_axis"] >> s & 1 for s in range(count))
    hidden = [s for s in range(count) if masks["ellipsis"] >> s & 1]
    full_slices = rank - (count - added - len(hidden))
    if full_slices < 0:
        raise UnboundedError
    sizes: list[tuple[float, float]] = []
    d = 0
    for s in range(count):
        if s in hidden[:1]:
            sizes += [(extents.low[j], extents.high[j]) for j in range(d, d + full_slices)]
            d += full_slices
        elif masks["new_axis"] >> s & 1:
            sizes.append((1.0, 1.0))
        else:
            if not masks["shrink_axis"] >> s & 1:
                ends = [
                    (-math.inf, math.inf) if masks[name] >> s & 1 else (side.low[s], side.high[s])
                    for name, side in (("begin", begin), ("end", end))
                ]
                open_ = (bool(masks["begin"] >> s & 1), bool(masks["end"] >> s & 1))
                sizes.append(
                    _bound_extent((extents.low[d], extents.high[d]), ends, open_, (steps.low[s], steps.high[s]))
                )
            d += 1
    sizes += [(extents.low[j], extents.high[j]) for j in range(d, rank)]
    return Interval(np.array([low for low, _ in sizes]), np.array([high for _, high in sizes]))


def slice_index(node: Any, begin: Any, end: Any, steps: Any) -> tuple[Any, ...]:
    """Return the index with which NumPy takes the slice of a StridedSlice."""
    masks = {name: node.attr[f"{name}_mask"].i for name in _MASKS}
    index: list[Any] = []
    for s, (b, e, step) in enumerate(zip(begin.tolist(), end.tolist(), steps.tolist(), strict=True)):
        if masks["ellipsis"] >> s & 1:
            index.append(...)
        elif masks["new_axis"] >> s & 1:
            index.append(None)
        elif masks["shrink_axis"] >> s & 1:
            index.append(b)
        else:
            index.append(slice(None if masks["begin"] >> s & 1 else b, None if masks["end"] >> s & 1 else e, step))
    return tuple(index)


def _bound_extent(
    size: tuple[float, float], ends: list[tuple[float, float]], open_: tuple[bool, bool], step: tuple[float, float]
) -> tuple[float, float]:
    """Bound the slice of a dimension whose size, ends and step each lie between two numbers."""
    if not (step[0] > 0 or step[1] < 0):
        return 0.0, size[1]
    down = step[1] < 0
    # Between two turns of begin, end and size the extent rises or falls, so its least and largest value are at turns.
    turns = [
        [low, high, *(n for n in (-1.0, 0.0) if low < n < high)]
        for low, high in ([max(-_EXACT, min(_EXACT, n)) for n in side] for side in ends)
    ]
    extents = []
    for b in turns[0]:
        for e in turns[1]:
            low, high = size[0], min(size[1], _EXACT)
            meet = [x + by for x in (abs(b), abs(e), abs(b) + abs(e)) for by in (-1, 0, 1)]
            for n in (low, high, *(n for n in meet if low < n < high)):
                way = _bound_end(e, n, down, open_[1], last=True) - _bound_end(b, n, down, open_[0], last=False)
                extents += [max(0, math.ceil((-way if down else way) / abs(stride))) for stride in step]
    most = min(max(extents), size[1])
    return float(min(extents)), float(most) if most < _EXACT / 2 else math.inf


def _bound_end(end: float, size: float, down: bool, open_: bool, *, last: bool) -> float:
    """Return the place of a slice's end in a dimension of `size` elements, as TensorFlow counts."""
    if open_:
        return (-1.0 if down else size) if last else (size - 1 if down else 0.0)
    place = end + size if end < 0 else end
    return max(-1.0, min(size - 1, place)) if down else max(0.0, min(size, place))
