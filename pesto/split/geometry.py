"""How tensors lie on workers: layouts, the part of each worker after several cuts, and how many elements are sent.

A layout says how one cut divides a tensor (Tofu, arXiv:1807.08887v1, section 2.1). K workers are the product of the
factors (k1, .., kL), outermost cut first; worker w has the digits (w1, .., wL), and a composite layout has a `Layout`
for each cut. Cuts of one dimension are nested: first into k1 parts, each of these into k2. What an op needs may have
rims besides: its parts overlap, and at the borders of the tensor they are smaller.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints

Layout = int
"""Layout of a tensor by one cut: a dimension >= 0, cut in k equal parts of which worker p has part p; or as below."""
WHOLE = -1
"""Every worker holds all of it."""
PARTIAL = -2
"""Each worker holds a partial result (summand, maximum) of all of it, as an op computes it; summands may be kept."""
ONE = -3
"""The first worker alone holds it: an op that must run once computes it there, as random numbers and loops."""


class Rim(NamedTuple):
    """A dimension of which parts read a little more than their share: part p reads `size` elements from p * step + low.

    What lies beyond the tensor is not read.
    """

    dimension: int
    step: int
    """Elements from one part's begin to the next one's; neighbours share `size - step` elements."""
    low: int
    size: int


Rims = tuple[Rim, ...]
"""Rims of one tensor by dimension; empty if all parts are shares."""


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
    """Return the shape of each worker's part, which is whole along dimensions that are not cut."""
    left = list(shape)
    for layout, k in zip(layouts, factors, strict=True):
        if layout >= 0:
            left[layout] //= k
    return tuple(left)


def part_starts(shape: Shape, layouts: Layouts, factors: Shape) -> Ints:
    """Return [K, rank] the first element of each worker's part along each dimension."""
    first, left = np.zeros((prod(factors), len(shape)), dtype=np.int64), list(shape)
    for layout, k, digit in zip(layouts, factors, worker_digits(factors), strict=True):
        if layout >= 0:
            left[layout] //= k
            first[:, layout] += digit * left[layout]
    return first


def part_spans(shape: Shape, need: Need, factors: Shape) -> tuple[Ints, Ints]:
    """Return [K, rank] the first element of each worker's part along each dimension, and [K, rank] its extents."""
    first = part_starts(shape, need.layouts, factors)
    size = np.broadcast_to(np.array(part_shape(shape, need.layouts, factors), dtype=np.int64), first.shape).copy()
    for d, step, low, many in need.rims:
        number = np.zeros(prod(factors), dtype=np.int64)  # [K] which part along the dimension each worker has
        for layout, k, digit in zip(need.layouts, factors, worker_digits(factors), strict=True):
            if layout == d:
                number = number * k + digit
        begin = step * number + low
        first[:, d] = np.maximum(begin, 0)
        size[:, d] = np.minimum(begin + many, shape[d]) - first[:, d]
    return first, size


def largest_extents(shape: Shape, need: Need, factors: Shape) -> Shape:
    """Return the greatest extent that any worker's part has along each dimension."""
    return tuple(map(int, part_spans(shape, need, factors)[1].max(axis=0)))


def worker_digits(factors: Shape) -> Ints:
    """Return [L, K] the digits of each worker."""
    return np.indices(factors).reshape(len(factors), -1)


@lru_cache(maxsize=1 << 16)
def elements_to_fetch(shape: Shape, stored: Layouts, needed: Layouts, factors: Shape, rims: Rims = ()) -> int:
    """Return the elements that all workers receive if a tensor is stored in one layout and needed in another.

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
    """Return the elements that all workers receive to keep in one layout what they computed in another.

    Each worker sums (or takes the greatest, ..) the piece that it keeps, from the parts of all workers that hold a
    PARTIAL result of it. A PARTIAL result that all are to keep is first spread, then gathered, where a dimension
    divides and this sends less. Summands that are kept as they are send nothing.
    """
    if PARTIAL not in computed or computed == kept_layouts:
        return elements_to_fetch(shape, computed, kept_layouts, factors)
    straight = _reduced(shape, computed, kept_layouts, factors)
    between = spread_layout(shape, computed, kept_layouts, factors)
    if between == kept_layouts:
        return straight
    return min(
        straight, _reduced(shape, computed, between, factors) + elements_to_fetch(shape, between, kept_layouts, factors)
    )


def spread_layout(shape: Shape, computed: Layouts, kept_layouts: Layouts, factors: Shape) -> Layouts:
    """Return the layout in which a PARTIAL result is summed on its way to the one it is kept in.

    Each such cut divides the longest dimension that is left; equal to the layout it is kept in if none divides.
    """
    between, changed = list(kept_layouts), True
    while changed:
        changed = False
        for at, (was, now, k) in enumerate(zip(computed, between, factors, strict=True)):
            left = part_shape(shape, tuple(between), factors)
            fitting = [d for d in range(len(shape)) if left[d] % k == 0]
            if was == PARTIAL and now == WHOLE and fitting:
                between[at] = max(fitting, key=lambda d: left[d])
                changed = True
    return tuple(between)


def summing_layout(shape: Shape, computed: Layouts, kept_layouts: Layouts, factors: Shape) -> Layouts:
    """Return the layout in which `elements_to_store` sums a PARTIAL result: spread, if that sends less, or as kept."""
    straight = _reduced(shape, computed, kept_layouts, factors)
    if elements_to_store(shape, computed, kept_layouts, factors) < straight:
        return spread_layout(shape, computed, kept_layouts, factors)
    return kept_layouts


def _reduced(shape: Shape, computed: Layouts, kept_layouts: Layouts, factors: Shape) -> int:
    parts = prod(k for layout, k in zip(computed, factors, strict=True) if layout == PARTIAL)
    piece = prod(part_shape(shape, kept_layouts, factors))
    received = parts * piece - _common(shape, computed, Need(kept_layouts), factors)
    return int(received[: 1 if ONE in kept_layouts else None].sum())


def _common(shape: Shape, one: Layouts, other: Need, factors: Shape) -> Ints:
    """Return [K] the elements that each worker has in its parts of both layouts."""
    (first, size), (second, extent) = part_spans(shape, Need(one), factors), part_spans(shape, other, factors)
    both = np.minimum(first + size, second + extent) - np.maximum(first, second)
    common: Ints = np.maximum(both, 0).prod(axis=1)
    return common


Box = tuple[Shape, Shape]
"""The first element of a part, and its extents."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of one worker's part."""

    holder: int
    """The worker whose part it is cut from."""
    begin: Shape
    """Index of its first element in that part."""
    shape: Shape
    whole: bool
    """True if it is all of that part."""


@dataclass(frozen=True, slots=True)
class PartAssembly:
    """A grid of pieces that makes one part: the last dimension's pieces are neighbours in the list."""

    grid: Shape
    """Number of pieces along each dimension."""
    pieces: tuple[Piece, ...]


@lru_cache(maxsize=1 << 16)
def worker_boxes(shape: Shape, layouts: Layouts, factors: Shape, rims: Rims = ()) -> tuple[Box | None, ...]:
    """Return [K] each worker's part; None for workers that have none."""
    first, size = part_spans(shape, Need(layouts, rims), factors)
    boxes: list[Box | None] = [
        (tuple(begin), tuple(extents)) for begin, extents in zip(first.tolist(), size.tolist(), strict=True)
    ]
    return (boxes[0], *([None] * (len(boxes) - 1))) if ONE in layouts else tuple(boxes)


@lru_cache(maxsize=1 << 16)
def assemble_part(
    shape: Shape, stored: Layouts, need: Box, worker: int, factors: Shape, summand: Shape = ()
) -> PartAssembly:
    """Return how a worker gets a part of a tensor: from its own part first, for the rest from the nearest holder.

    Nearest are the workers that share most of the outermost cuts with it; of several the next one, so that all are
    asked alike. summand: with PARTIAL results, the digits of those cuts, one result of the sum being the parts of the
    workers that have them.
    """
    have, count = _holders(shape, stored, factors, summand), prod(factors)
    size = part_shape(shape, stored, factors)
    along = [
        [begin for begin in sorted({first[d] for first in have}) if begin < low + n and begin + size[d] > low]
        or [max(first[d] for first in have if first[d] <= low)]  # of no elements there is one piece, of none
        for d, (low, n) in enumerate(zip(*need, strict=True))
    ]
    groups = [count // prod(factors[: at + 1]) for at in range(len(factors))]
    pieces = []
    for cell in product(*along):
        holder = min(have[cell], key=lambda h: (-sum(h // g == worker // g for g in groups), (h - worker) % count))
        low = tuple(max(a, b) for a, b in zip(cell, need[0], strict=True))
        high = (min(a + n, b + m) for a, n, b, m in zip(cell, size, *need, strict=True))
        extents = tuple(h - a for h, a in zip(high, low, strict=True))
        begin = tuple(a - b for a, b in zip(low, cell, strict=True))
        pieces.append(Piece(holder, begin, extents, extents == size))
    return PartAssembly(tuple(map(len, along)), tuple(pieces))


@lru_cache(maxsize=1 << 16)
def _holders(shape: Shape, stored: Layouts, factors: Shape, summand: Shape) -> dict[Shape, list[int]]:
    """Map the first element of each part to the workers that have it; cached, as it is the same for all workers."""
    result: dict[Shape, list[int]] = {}
    digits = worker_digits(factors).T.tolist()
    for worker, box in enumerate(worker_boxes(shape, stored, factors)):
        mine = tuple(d for d, layout in zip(digits[worker], stored, strict=True) if layout == PARTIAL)
        if box is not None and (not summand or mine == summand):
            result.setdefault(box[0], []).append(worker)
    return result


@lru_cache(maxsize=1 << 16)
def elements_received(
    shape: Shape, gives: Layouts, kept_layouts: Layouts, needs: frozenset[Need], factors: Shape
) -> int:
    """Return the elements that workers receive to keep a tensor, and to have the parts of it that their ops need.

    Two layouts that are one part to a worker are received once by it.
    """
    received = elements_to_store(shape, gives, kept_layouts, factors)
    parts = [worker_boxes(shape, need.layouts, factors, need.rims) for need in needs]
    for w, own in enumerate(worker_boxes(shape, kept_layouts, factors)):
        for box in {part[w] for part in parts} - {None}:
            if box is None:
                continue
            received += prod(box[1])
            if own is not None:
                sides = zip(*own, *box, strict=True)
                received -= prod(max(0, min(a + n, b + m) - max(a, b)) for a, n, b, m in sides)
    return received


def summands(stored: Layouts, factors: Shape) -> tuple[Shape, ...]:
    """Return the digits of PARTIAL cuts, one tuple for each result that a sum is of."""
    return tuple(product(*(range(k) for layout, k in zip(stored, factors, strict=True) if layout == PARTIAL)))


@lru_cache(maxsize=1 << 16)
def fetching_blocks(shape: Shape, stored: Layouts, need: Need, factors: Shape) -> int:
    """Return the blocks that all workers receive to have what they need of a tensor that lies in one layout."""
    own = worker_boxes(shape, stored, factors)
    return sum(
        piece.holder != worker
        for worker, box in enumerate(worker_boxes(shape, need.layouts, factors, need.rims))
        if box is not None and box != own[worker]
        for piece in assemble_part(shape, stored, box, worker, factors).pieces
    )


@lru_cache(maxsize=1 << 16)
def keeping_blocks(shape: Shape, computed: Layouts, kept_layouts: Layouts, factors: Shape) -> int:
    """Return the blocks that all workers receive to keep in one layout what they computed in another."""
    if PARTIAL not in computed or computed == kept_layouts:
        return fetching_blocks(shape, computed, Need(kept_layouts), factors)
    target = summing_layout(shape, computed, kept_layouts, factors)
    summed = sum(
        piece.holder != worker
        for worker, box in enumerate(worker_boxes(shape, target, factors))
        if box is not None
        for summand in summands(computed, factors)
        for piece in assemble_part(shape, computed, box, worker, factors, summand).pieces
    )
    return summed + fetching_blocks(shape, target, Need(kept_layouts), factors)
