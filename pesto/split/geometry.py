"""Which part of a tensor each worker holds after several cuts, and how many elements workers send each other.

K workers are the products of the factors (k1, .., kL), outermost cut first; worker w has the digits (w1, .., wL). A
composite layout has a `Layout` for each cut. Cuts of one dimension are nested: first into k1 parts, each into k2.
What an op needs may have rims besides: its parts overlap, and at the borders of the tensor they are smaller.
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from pesto.split.layouts import ONE, PARTIAL, WHOLE, Layout, Rims
from solvers.arrays import Ints

Layouts = tuple[Layout, ...]
"""A layout for each cut, outermost first."""
Shape = tuple[int, ...]


class Need(NamedTuple):
    """Part of a tensor that each worker needs for an op."""

    layouts: Layouts
    rims: Rims = ()


def divides(shape: Shape, layouts: Layouts, factors: Shape) -> bool:
    """Return True if every worker has an equal part: each extent is a multiple of the factors that cut it."""
    left = list(shape)
    for layout, k in zip(layouts, factors, strict=True):
        if layout >= 0:
            if layout >= len(left) or left[layout] % k:
                return False
            left[layout] //= k
    return True


def part_shape(shape: Shape, layouts: Layouts, factors: Shape) -> Shape:
    """The shape of each worker's part; all of the tensor along dimensions that no cut is along."""
    left = list(shape)
    for layout, k in zip(layouts, factors, strict=True):
        if layout >= 0:
            left[layout] //= k
    return tuple(left)


def part_starts(shape: Shape, layouts: Layouts, factors: Shape) -> Ints:
    """[K, rank] the first element of each worker's part along each dimension."""
    first, left = np.zeros((prod(factors), len(shape)), dtype=np.int64), list(shape)
    for layout, k, digit in zip(layouts, factors, worker_digits(factors), strict=True):
        if layout >= 0:
            left[layout] //= k
            first[:, layout] += digit * left[layout]
    return first


def part_spans(shape: Shape, need: Need, factors: Shape) -> tuple[Ints, Ints]:
    """([K, rank] the first element of each worker's part along each dimension, [K, rank] its extents)."""
    first = part_starts(shape, need.layouts, factors)
    size = np.broadcast_to(np.array(part_shape(shape, need.layouts, factors), dtype=np.int64), first.shape).copy()
    for d, step, low, many in need.rims:
        # [K] which of its parts along a dimension each worker has.
        layouts = need.layouts
        result = np.zeros(prod(factors), dtype=np.int64)
        for layout, k, digit in zip(layouts, factors, worker_digits(factors), strict=True):
            if layout == d:
                result = result * k + digit
        begin = step * result + low
        first[:, d] = np.maximum(begin, 0)
        size[:, d] = np.minimum(begin + many, shape[d]) - first[:, d]
    return first, size


def largest_extents(shape: Shape, need: Need, factors: Shape) -> Shape:
    """The greatest extent that any worker's part has along each dimension."""
    return tuple(map(int, part_spans(shape, need, factors)[1].max(axis=0)))


def worker_digits(factors: Shape) -> Ints:
    """[L, K] the digits of each worker."""
    return np.indices(factors).reshape(len(factors), -1)


@lru_cache(maxsize=1 << 16)
def elements_to_fetch(shape: Shape, stored: Layouts, needed: Layouts, factors: Shape, rims: Rims = ()) -> int:
    """Elements that all workers receive where a tensor is stored in one layout and needed in another.

    A worker that needs more than it holds gets the rest from others, once. A tensor stored on ONE worker comes from
    there; what is needed on ONE goes there alone. rims: of what is needed.
    """
    need = part_spans(shape, Need(needed, rims), factors)[1].prod(axis=1)
    own = _common(shape, stored, Need(needed, rims), factors)
    if ONE in stored:
        own[1:] = 0
    return int((need - own)[: 1 if ONE in needed else None].sum())


@lru_cache(maxsize=1 << 16)
def elements_to_store(shape: Shape, computed: Layouts, kept_layouts: Layouts, factors: Shape) -> int:
    """Elements that all workers receive to keep in one layout what they computed in another.

    Each worker sums (or takes the greatest, ..) the piece that it keeps, from the parts of all workers that hold a
    PARTIAL result of it. A PARTIAL result that all are to keep is first spread, then gathered, where a dimension
    divides and this sends less.
    """
    if PARTIAL not in computed:
        return elements_to_fetch(shape, computed, kept_layouts, factors)
    straight = _reduced(shape, computed, kept_layouts, factors)
    between = spread_layout(shape, computed, kept_layouts, factors)
    if between == kept_layouts:
        return straight
    return min(
        straight, _reduced(shape, computed, between, factors) + elements_to_fetch(shape, between, kept_layouts, factors)
    )


def spread_layout(shape: Shape, computed: Layouts, kept_layouts: Layouts, factors: Shape) -> Layouts:
    """Where a PARTIAL result is summed on its way to `kept`: cut along the longest dimension that is left.

    Equal to `kept` where that has no cut to add.
    """
    between, result = list(kept_layouts), True
    while result:
        result = False
        for at, (was, now, k) in enumerate(zip(computed, between, factors, strict=True)):
            left = part_shape(shape, tuple(between), factors)
            fitting = [d for d in range(len(shape)) if left[d] % k == 0]
            if was == PARTIAL and now == WHOLE and fitting:
                between[at] = max(fitting, key=lambda d: left[d])
                result = True
    return tuple(between)


def summed_in_two_steps(shape: Shape, computed: Layouts, kept_layouts: Layouts, factors: Shape) -> bool:
    """Return True if `elements_to_store` counts a PARTIAL result as spread first and gathered then."""
    between = spread_layout(shape, computed, kept_layouts, factors)
    return (
        PARTIAL in computed
        and between != kept_layouts
        and elements_to_store(shape, computed, kept_layouts, factors) < _reduced(shape, computed, kept_layouts, factors)
    )


def _reduced(shape: Shape, computed: Layouts, kept_layouts: Layouts, factors: Shape) -> int:
    parts = prod(k for layout, k in zip(computed, factors, strict=True) if layout == PARTIAL)
    piece = prod(part_shape(shape, kept_layouts, factors))
    received = parts * piece - _common(shape, computed, Need(kept_layouts), factors)
    return int(received[: 1 if ONE in kept_layouts else None].sum())


def _common(shape: Shape, one: Layouts, other: Need, factors: Shape) -> Ints:
    """[K] elements of each worker's part of one layout that are in its part of the other too."""
    (first, size), (second, extent) = part_spans(shape, Need(one), factors), part_spans(shape, other, factors)
    both = np.minimum(first + size, second + extent) - np.maximum(first, second)
    common: Ints = np.maximum(both, 0).prod(axis=1)
    return common
