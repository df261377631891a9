"""Where the boxes of a plan stand on a page: a band a device, time in columns from left to right and down each."""

import math
from dataclasses import dataclass

import numpy as np

from pesto.reporting.show.plan_graph.boxes import SCOPE, Boxes
from solvers.arrays import Floats, Ints, floats, ints
from solvers.compiled.dag import topological_order

WIDTH, APART = 1.8, 0.62
"""Inches of a box, and between two columns."""
LEAST, MOST, BETWEEN = 0.19, 1.0, 0.06
"""Inches of height of the lowest and the highest box, and between two of them."""
GAP = 0.3
"""Inches between two bands."""
_DEPTH = 14
"""Columns at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoxLayout:
    """Inches from the left and from the top; k boxes are on the page."""

    shown: Ints
    """[k] the boxes: all that take time; all, where there are few."""
    left: Floats
    """[k] left edge of each."""
    top: Floats
    """[k] top edge of each."""
    height: Floats
    """[k] height of each: its time, from LEAST up."""
    longest_s: float
    """Seconds of a box of height MOST."""
    bands: tuple[tuple[int, float, float], ...]
    """Device, top and bottom of each band, from the top."""
    columns: tuple[tuple[float, float], ...]
    """Seconds of the first start and the last end in each column; of scopes, of the first and the last centre."""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of it all."""
        return len(self.columns) * (WIDTH + APART) - APART, self.bands[-1][2]


def lay_out(boxes: Boxes) -> BoxLayout:
    """Place the boxes; those of one column and band stand in order of time, from the top."""
    few = len(boxes.labels) <= _DEPTH
    shown = np.flatnonzero((boxes.busy_s > 0) | few)
    longest = float(boxes.busy_s.max(initial=0.0)) or 1.0
    height = np.maximum(LEAST, MOST * boxes.busy_s[shown] / longest)
    column = _columns(boxes, ints(shown), height + BETWEEN)
    device, top = boxes.device[shown], np.zeros(len(shown))
    order = np.lexsort((boxes.start_s[shown], boxes.centre_s[shown]))
    bands, below = [], 0.0
    for d in np.unique(device).tolist():
        filled: dict[int, float] = {}
        for k in order[device[order] == d].tolist():
            top[k] = below + filled.get(int(column[k]), 0.0)
            filled[int(column[k])] = top[k] - below + height[k] + BETWEEN
        bottom = below + max(filled.values()) - BETWEEN
        bands.append((d, below, bottom))
        below = bottom + GAP
    begin, end = (boxes.centre_s,) * 2 if boxes.by == SCOPE else (boxes.start_s, boxes.finish_s)
    spans = [shown[column == c] for c in range(int(column.max(initial=0)) + 1)]
    return BoxLayout(
        shown=ints(shown), left=floats(column * (WIDTH + APART)), top=floats(top), height=floats(height),
        longest_s=longest, bands=tuple(bands),
        columns=tuple((float(begin[k].min()), float(end[k].max())) for k in spans),
    )  # fmt: skip


def _columns(boxes: Boxes, shown: Ints, height: Floats) -> Ints:
    """[k] column of each box: along the edges where that is not too long, else of equal heights, by time."""
    index = np.full(len(boxes.labels), -1)
    index[shown] = np.arange(len(shown))
    src, dst = index[boxes.src], index[boxes.dst]
    there = (src >= 0) & (dst >= 0)
    level = _levels(len(shown), ints(src[there]), ints(dst[there]))
    wide = max(1, min(_DEPTH, 1 + round(math.sqrt(0.5 * len(shown)))))
    if level is not None and int(level.max(initial=0)) < max(wide, min(_DEPTH, len(shown))):
        return level
    order = np.lexsort((boxes.start_s[shown], boxes.centre_s[shown]))
    above = np.empty(len(shown))
    above[order] = np.cumsum(height[order]) - height[order]
    return ints(np.unique((above * wide / height.sum()).astype(np.int64), return_inverse=True)[1])


def _levels(count: int, src: Ints, dst: Ints) -> Ints | None:
    """[k] edges on the longest way to each box; None where edges form a cycle."""
    order = topological_order(count, src, dst).tolist()
    if len(order) < count:
        return None
    readers: list[list[int]] = [[] for _ in range(count)]
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        readers[a].append(b)
    level = [0] * count
    for a in order:
        for b in readers[a]:
            level[b] = max(level[b], level[a] + 1)
    return ints(np.array(level, dtype=np.int64))
