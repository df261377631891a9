"""Where the parts that workers need come from: which piece of whose part, and how pieces are joined."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from pesto.split import geometry
from pesto.split.geometry import Layouts, Need, Shape
from pesto.split.layouts import ONE, PARTIAL, Rims

Box = tuple[Shape, Shape]
"""The first element of a part, and its extents."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of one worker's part."""

    holder: int
    """The worker."""
    begin: Shape
    """Its first element in that part."""
    shape: Shape
    whole: bool
    """True if it is all of that part."""


@dataclass(frozen=True, slots=True)
class PartAssembly:
    """A grid of pieces that makes one part: the last dimension's pieces are neighbours in the list."""

    grid: Shape
    """How many pieces along each dimension."""
    pieces: tuple[Piece, ...]


@lru_cache(maxsize=1 << 16)
def worker_boxes(shape: Shape, layouts: Layouts, factors: Shape, rims: Rims = ()) -> tuple[Box | None, ...]:
    """[K] each worker's part; None for those that have none."""
    first, size = geometry.part_spans(shape, Need(layouts, rims), factors)
    boxes: list[Box | None] = [
        (tuple(begin), tuple(extents)) for begin, extents in zip(first.tolist(), size.tolist(), strict=True)
    ]
    return (boxes[0], *([None] * (len(boxes) - 1))) if ONE in layouts else tuple(boxes)


@lru_cache(maxsize=1 << 16)
def assemble_part(
    shape: Shape, stored: Layouts, need: Box, worker: int, factors: Shape, summand: Shape = ()
) -> PartAssembly:
    """How a worker comes by a part of a tensor: its own part first, for the rest that of the nearest who has it.

    Nearest are those who share most of the outermost cuts with it. summand: with PARTIAL results, the digits of those
    cuts, one result of the sum being the parts of the workers that have them.
    """
    have = _holders(shape, stored, factors, summand)
    size = geometry.part_shape(shape, stored, factors)
    along = [
        [begin for begin in sorted({first[d] for first in have}) if begin < low + n and begin + size[d] > low]
        or [max(first[d] for first in have if first[d] <= low)]  # of no elements there is one piece, of none
        for d, (low, n) in enumerate(zip(*need, strict=True))
    ]
    return PartAssembly(
        tuple(map(len, along)),
        tuple(_piece(cell, size, need, _nearest(have[cell], worker, factors)) for cell in product(*along)),
    )


def summands(stored: Layouts, factors: Shape) -> tuple[Shape, ...]:
    """The digits of PARTIAL cuts, one tuple for each result that a sum is of."""
    return tuple(product(*(range(k) for layout, k in zip(stored, factors, strict=True) if layout == PARTIAL)))


@lru_cache(maxsize=1 << 16)
def _holders(shape: Shape, stored: Layouts, factors: Shape, summand: Shape) -> dict[Shape, list[int]]:
    """First element of a part -> the workers that have it."""
    result: dict[Shape, list[int]] = {}
    digits = geometry.worker_digits(factors).T.tolist()
    for worker, box in enumerate(worker_boxes(shape, stored, factors)):
        mine = tuple(d for d, layout in zip(digits[worker], stored, strict=True) if layout == PARTIAL)
        if box is not None and (not summand or mine == summand):
            result.setdefault(box[0], []).append(worker)
    return result


def _nearest(holders: list[int], worker: int, factors: Shape) -> int:
    """The holder with whom a worker shares most outer cuts; of several the next one, so that all are asked alike."""
    size, groups = prod(factors), []
    for k in factors:
        size //= k
        groups.append(size)
    count = prod(factors)
    return min(holders, key=lambda h: (-sum(h // g == worker // g for g in groups), (h - worker) % count))


def _piece(cell: Shape, size: Shape, need: Box, holder: int) -> Piece:
    low = tuple(max(a, b) for a, b in zip(cell, need[0], strict=True))
    high = (min(a + n, b + m) for a, n, b, m in zip(cell, size, *need, strict=True))
    extents = tuple(h - a for h, a in zip(high, low, strict=True))
    return Piece(holder, tuple(a - b for a, b in zip(low, cell, strict=True)), extents, extents == size)


@lru_cache(maxsize=1 << 16)
def fetching_blocks(shape: Shape, stored: Layouts, need: Need, factors: Shape) -> int:
    """Blocks that all workers receive to have what they need of a tensor that lies in one layout."""
    own = worker_boxes(shape, stored, factors)
    return sum(
        piece.holder != worker
        for worker, box in enumerate(worker_boxes(shape, need.layouts, factors, need.rims))
        if box is not None and box != own[worker]
        for piece in assemble_part(shape, stored, box, worker, factors).pieces
    )


@lru_cache(maxsize=1 << 16)
def keeping_blocks(shape: Shape, computed: Layouts, kept_layouts: Layouts, factors: Shape) -> int:
    """Blocks that all workers receive to keep in one layout what they computed in another."""
    if PARTIAL not in computed:
        return fetching_blocks(shape, computed, Need(kept_layouts), factors)
    two = geometry.summed_in_two_steps(shape, computed, kept_layouts, factors)
    target = geometry.spread_layout(shape, computed, kept_layouts, factors) if two else kept_layouts
    summed = sum(
        piece.holder != worker
        for worker, box in enumerate(worker_boxes(shape, target, factors))
        if box is not None
        for summand in summands(computed, factors)
        for piece in assemble_part(shape, computed, box, worker, factors, summand).pieces
    )
    return summed + fetching_blocks(shape, target, Need(kept_layouts), factors)
