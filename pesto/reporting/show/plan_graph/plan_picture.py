"""A plan as a picture (needs matplotlib): boxes coloured by device, arrows where tensors go to another one."""

from typing import TYPE_CHECKING, Any

import numpy as np

from pesto.core.files.json import shown
from pesto.core.plans.plan import Plan
from pesto.core.quantities import duration, percent, plural, shorten, time_unit
from pesto.reporting.explaining.name_scopes import GRADIENT
from pesto.reporting.show.drawing import COLOURS, GREY, INK, drawing_style, figure_bytes
from pesto.reporting.show.plan_graph.boxes import NODE, OP, SCOPE, Boxes
from solvers.arrays import Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
import math
from dataclasses import dataclass

from solvers.arrays import Floats, floats, ints
from solvers.compiled.dag import topological_order

# Where the boxes of a plan stand on a page: a band a device, time in columns from left to right and down each.

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


MOST_BOXES = 1500
"""More make no picture that anyone can read."""
_MARGIN, _HEAD, _FOOT = 0.95, 1.0, 0.75
"""Inches left of the boxes, above and below them."""
_NARROWEST = 9.0
"""Inches that the lines below the boxes need."""
_CROSSING, _STAYING = 100, 200
"""Edges of either kind that are drawn, those with the most bytes first."""
_MORE = ("#6a3d9a", "#8c564b")
_TEXT = 6.5
_LETTERS = 34


def draw(plan: Plan, boxes: Boxes, form: str) -> bytes:
    """The picture in one of `drawing.FORMATS`; the same plan gives the same bytes."""
    from matplotlib.figure import Figure

    page = lay_out(boxes)
    wide, high = page.size
    wide, high = max(wide, _NARROWEST) + _MARGIN + 0.5, high + _HEAD + _FOOT
    with drawing_style("pesto draw", font_size=_TEXT):
        figure = Figure(figsize=(wide, high))
        axis = figure.add_axes((0, 0, 1, 1))
        axis.set_xlim(-_MARGIN, wide - _MARGIN)
        axis.set_ylim(high - _HEAD, -_HEAD)
        axis.axis("off")
        # The ground of each device, with its name, the share of the step for which it works, and its peak.
        from matplotlib.patches import Rectangle

        shade, step = colours(boxes.devices), plan.makespan_s
        for d, top, bottom in page.bands:
            name = boxes.devices[d]
            ground = Rectangle((-0.08, top - 0.1), page.size[0] + 0.16, bottom - top + 0.2)
            ground.set(facecolor=shade[d], alpha=0.07, linewidth=0)
            axis.add_patch(ground)
            busy = float(boxes.busy_s[boxes.device == d].sum())
            lines = [duration(busy), f"{percent(busy / step)} busy" if step and not name.startswith("cpu") else ""]
            axis.text(
                -0.16, (top + bottom) / 2 - 0.1, name, ha="right", va="bottom", color=INK, fontsize=9, weight="bold"
            )
            axis.text(-0.16, (top + bottom) / 2 - 0.06, "\n".join(lines).strip(), ha="right", va="top", color=INK)
        unit, one = time_unit(step)
        for c, (begin, end) in enumerate(page.columns):
            text = f"{'about ' if boxes.by == SCOPE else ''}{begin / one:.1f} to {end / one:.1f} {unit}"
            axis.text(c * (WIDTH + APART), -0.16, text, va="bottom", color=GREY)
        said = _edges(axis, boxes, page)
        _boxes(axis, boxes, page)
        _words(axis, plan, boxes, page, said)
        return figure_bytes(figure, form, "pesto draw")


def colours(devices: tuple[str, ...]) -> list[str]:
    """A colour a device: grey for CPUs, and the others in turn, eight of them."""
    bright = [*(each for each in COLOURS if each != GREY), *_MORE]
    turn = iter(range(len(devices)))
    return [GREY if name.startswith("cpu") else bright[next(turn) % len(bright)] for name in devices]


def _boxes(axis: "Axes", boxes: Boxes, page: BoxLayout) -> None:
    from matplotlib.patches import FancyBboxPatch

    shade = colours(boxes.devices)
    for k, b in enumerate(page.shown.tolist()):
        left, top, high = float(page.left[k]), float(page.top[k]), float(page.height[k])
        for face, alpha, z in (("white", 1.0, 3), (shade[int(boxes.device[b])], 0.32, 4)):
            box = FancyBboxPatch((left + 0.03, top + 0.03), WIDTH - 0.06, high - 0.06, boxstyle="round,pad=0.03")
            box.set(facecolor=face, alpha=alpha, linewidth=0, zorder=z)
            axis.add_patch(box)
        took = duration(float(boxes.busy_s[b]))
        text = _short(boxes.labels[b], _LETTERS - len(took) if high < 0.3 else _LETTERS)
        if high < 0.3:
            axis.text(left + 0.05, top + high / 2, text, va="center", color=INK, zorder=5)
            axis.text(left + WIDTH - 0.05, top + high / 2, took, va="center", ha="right", color=INK, zorder=5)
            continue
        count = "" if boxes.ops[b] == 1 else f", {boxes.ops[b]} ops"
        axis.text(left + WIDTH / 2, top + high / 2, f"{text}\n{took}{count}", va="center", ha="center", zorder=5)


def _short(label: str, limit: int) -> str:
    """A label of at most `most` characters: leading scopes without a number to three, then its middle left out."""
    inner = GRADIENT.sub("", f"{label}/")[:-1]
    parts = (inner if inner == label else inner.removesuffix("_grad")).split("/")
    mark = "" if inner == label else "∇ "
    for k in range(len(parts) - 1):
        if len(mark + "/".join(parts)) > limit and not any(map(str.isdigit, parts[k])):
            parts[k] = parts[k][:3]
    return shorten(mark + "/".join(parts), limit)


def _edges(axis: "Axes", boxes: Boxes, page: BoxLayout) -> str:
    """Draw the edges that carry the most; the line that says how many others there are."""
    place = {b: k for k, b in enumerate(page.shown.tolist())}
    crosses, most = boxes.crosses, max(float(boxes.bytes.max(initial=0.0)), 1.0)
    shade = colours(boxes.devices)
    said = []
    for crossing, limit in ((False, _STAYING), (True, _CROSSING)):
        these = _heaviest(boxes, np.flatnonzero((crosses == crossing) & boxes.first), place, limit)
        for e in these.tolist():
            colour = shade[int(boxes.device[boxes.src[e]])] if crossing else GREY
            width = 0.7 + 2.6 * float(boxes.bytes[e]) / most if crossing else 0.5
            ends = place[int(boxes.src[e])], place[int(boxes.dst[e])]
            _arrow(axis, page, ends, {"color": colour, "linewidth": width, "alpha": 0.75 if crossing else 0.35})
        if crossing:
            every, total = np.flatnonzero(crosses), float(boxes.bytes[crosses].sum())
            share = percent(float(boxes.bytes[these].sum()) / total) if total else "all"
            said.append(f"{len(these)} of {len(every)} pairs of boxes that exchange data, with {share} of the bytes")
    return said[0]


def _heaviest(boxes: Boxes, edges: Ints, place: dict[int, int], limit: int) -> Ints:
    there = [e for e in edges.tolist() if int(boxes.src[e]) in place and int(boxes.dst[e]) in place]
    kept = np.array(there, dtype=np.int64)
    return np.sort(kept[np.argsort(-boxes.bytes[kept], kind="stable")[:limit]])


def _arrow(axis: "Axes", page: BoxLayout, ends: tuple[int, int], look: dict[str, Any]) -> None:
    """A curve from a box's right side to another's left; down, or back, from side to side."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    a, b = ends
    low, high = (float(page.top[k] + page.height[k] / 2) for k in ends)
    start, end = float(page.left[a]) + WIDTH, float(page.left[b])
    if end > start:
        bend = max(0.3, (end - start) * 0.4)
        points = [(start, low), (start + bend, low), (end - bend, high), (end, high)]
    elif page.left[a] == page.left[b]:
        points = [(start, low), (start + 0.35, low), (start + 0.35, high), (start, high)]
    else:
        points = [(start - WIDTH, low), (start - WIDTH - 0.5, low), (end + WIDTH + 0.5, high), (end + WIDTH, high)]
    path = Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    arrow = FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=5 + 2 * look["linewidth"], zorder=2)
    arrow.set(**look)
    axis.add_patch(arrow)


def _words(axis: "Axes", plan: Plan, boxes: Boxes, page: BoxLayout, said: str) -> None:
    made = plan.provenance
    what = {OP: "ops", NODE: "runs of ops on one device"}.get(boxes.by, "scopes, on each device apart")
    left = len(boxes.labels) - len(page.shown)
    where, step = f"{shown(made.graph_source, 60)} on {shown(made.cluster, 30)}", duration(plan.makespan_s)
    head = f"{where}: {step} a step, by {shown(made.chosen, 30)}"
    axis.text(-_MARGIN + 0.15, -_HEAD + 0.2, head, fontsize=11, va="top", color=INK, weight="bold")
    lines = [
        f"{plural(len(page.shown), 'box', 'boxes')}: {what}" + (f" ({left} more take no time)" if left else "")
        + f"; height: time, the highest {duration(page.longest_s)}; from left to right, and down each column, in order "
        "of time",
        f"arrows: tensors to another device, in the colour of the one that sends, wider for more bytes ({said}); "
        "thin grey: tensors that stay",
    ]  # fmt: skip
    foot = page.size[1] + 0.25
    for k, line in enumerate(lines):
        axis.text(-_MARGIN + 0.15, foot + 0.17 * k, line, va="top", color=INK, fontsize=7.5)
