"""The extents of a StridedSlice of which the tensor's extents and the slice's ends are known as intervals."""

import math
from typing import Any

import numpy as np

from pesto.tf.importer.intervals import Interval

_FAR = 2.0**53
_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


def strided_slice(
    node: Any, extents: Interval | None, begin: Interval | None, end: Interval | None, steps: Interval | None
) -> Interval | None:
    """Bound each extent; None where the number of slices, or of the tensor's dimensions, is unknown."""
    if extents is None or begin is None or end is None or steps is None:
        return None
    masks = {name: node.attr[f"{name}_mask"].i for name in _MASKS}
    count, rank = len(begin.low), len(extents.low)
    added = sum(masks["new_axis"] >> s & 1 for s in range(count))
    hidden = [s for s in range(count) if masks["ellipsis"] >> s & 1]
    whole = rank - (count - added - len(hidden))
    if whole < 0:
        return None
    sizes: list[tuple[float, float]] = []
    d = 0
    for s in range(count):
        if s in hidden[:1]:
            sizes += [(extents.low[j], extents.high[j]) for j in range(d, d + whole)]
            d += whole
        elif masks["new_axis"] >> s & 1:
            sizes.append((1.0, 1.0))
        else:
            if not masks["shrink_axis"] >> s & 1:
                ends = [
                    (-math.inf, math.inf) if masks[name] >> s & 1 else (side.low[s], side.high[s])
                    for name, side in (("begin", begin), ("end", end))
                ]
                open_ = (bool(masks["begin"] >> s & 1), bool(masks["end"] >> s & 1))
                sizes.append(_extent((extents.low[d], extents.high[d]), ends, open_, (steps.low[s], steps.high[s])))
            d += 1
    sizes += [(extents.low[j], extents.high[j]) for j in range(d, rank)]
    return Interval(np.array([low for low, _ in sizes]), np.array([high for _, high in sizes]))


def slice_index(node: Any, begin: Any, end: Any, steps: Any) -> tuple[Any, ...]:
    """The index with which NumPy takes the same slice."""
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


def _extent(
    size: tuple[float, float], ends: list[tuple[float, float]], open_: tuple[bool, bool], step: tuple[float, float]
) -> tuple[float, float]:
    """The least and the largest extent of a slice of a dimension whose size lies between two numbers."""
    if not (step[0] > 0 or step[1] < 0):
        return 0.0, size[1]
    down = step[1] < 0
    strides = [abs(s) for s in step]
    extents = [
        max(0, math.ceil((-way if down else way) / stride))
        for b in _turns(ends[0])
        for e in _turns(ends[1])
        for n in _sizes(size, b, e)
        for way in [_end(e, n, down, open_[1], last=True) - _end(b, n, down, open_[0], last=False)]
        for stride in strides
    ]
    most = min(max(extents), size[1])
    return float(min(extents)), float(most) if most < _FAR / 2 else math.inf


def _turns(side: tuple[float, float]) -> list[float]:
    """The values of a slice's end between which its place does not fall: -1 and 0 are the ends of the tensor."""
    low, high = (max(-_FAR, min(_FAR, n)) for n in side)
    return [low, high, *(n for n in (-1.0, 0.0) if low < n < high)]


def _sizes(size: tuple[float, float], begin: float, end: float) -> list[float]:
    """The sizes of a dimension between which the slice's extent rises, falls or stays."""
    low, high = size[0], min(size[1], _FAR)
    turns = [abs(x) + by for x in (begin, end) for by in (-1, 0, 1)]
    turns += [abs(begin) + abs(end) + by for by in (-1, 0, 1)]
    return [low, high, *(n for n in turns if low < n < high)]


def _end(end: float, size: float, down: bool, open_: bool, *, last: bool) -> float:
    """The place of a slice's end in a dimension of `size` elements, as TensorFlow counts."""
    if open_:
        return (-1.0 if down else size) if last else (size - 1 if down else 0.0)
    place = end + size if end < 0 else end
    return max(-1.0, min(size - 1, place)) if down else max(0.0, min(size, place))
