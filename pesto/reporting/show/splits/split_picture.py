"""The largest variables of a split as grids of parts, workers as colours (needs matplotlib)."""

from typing import TYPE_CHECKING

from pesto.core.quantities import shorten, size
from pesto.reporting.show.drawing import COLOURS, INK, drawing_style, figure_bytes
from pesto.split.division import Division
from pesto.split.pieces import Box, worker_boxes
from pesto.split.typed_graph import TypedGraph
from pesto.split.variable_rows import VariableRow, layout_words, variable_rows, whole_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST, _COLUMNS = 12, 4
_FAINT = (1.0, 0.6, 0.35)
"""How strongly a colour is laid on, for workers beyond the number of colours."""


def draw(shaped: TypedGraph, division: Division, form: str) -> bytes:
    """The picture in one of the formats; the same division gives the same bytes."""
    from matplotlib.figure import Figure

    rows = sorted(variable_rows(shaped, division), key=lambda row: (-whole_bytes(row), row.name))[:_MOST]
    down = max(1, -(-len(rows) // _COLUMNS))
    with drawing_style("pesto split", font_size=8.0):
        figure = Figure(figsize=(2.6 * _COLUMNS, 0.6 + 2.5 * down), layout="constrained")
        factors = "x".join(map(str, division.factors))
        figure.suptitle(f"{shaped.source} in {factors}: the largest variables, by the worker that has each part",
                        x=0.01, ha="left")  # fmt: skip
        for at, panel in enumerate(figure.subplots(down, _COLUMNS, squeeze=False).flat):
            panel.set_axis_off()
            if at < len(rows):
                _grid(panel, rows[at], division)
        return figure_bytes(figure, form, "pesto split")


def _grid(panel: "Axes", row: VariableRow, division: Division) -> None:
    """One variable: its two dimensions that are cut, or its last two; drawn to the panel's size, not to scale."""
    panel.set_title(
        f"{shorten(row.name, 32)}\n{'x'.join(map(str, row.shape)) or 'a number'}, {size(whole_bytes(row))}\n"
        f"{layout_words(row.layouts, division.factors)}",
        fontsize=7, loc="left",
    )  # fmt: skip
    panel.set_xlim(0, 1)
    panel.set_ylim(1, 0)
    # Which dimension goes down and which across; -1 for none.
    cut = sorted({layout for layout in row.layouts if layout >= 0})[:2]
    rest = [d for d in reversed(range(len(row.shape))) if d not in cut]
    shown = sorted([*cut, *rest[: 2 - len(cut)]])
    down, across = (shown[0], shown[1]) if len(shown) == 2 else (-1, shown[0] if shown else -1)
    holders: dict[Box, list[int]] = {}
    for worker, box in enumerate(worker_boxes(row.shape, row.layouts, division.factors)):
        if box is not None:
            holders.setdefault(box, []).append(worker)
    for box, workers in holders.items():
        _part(panel, row, box, workers, (down, across))


def _part(panel: "Axes", row: VariableRow, box: Box, workers: list[int], dimensions: tuple[int, int]) -> None:
    """One part; where several workers have it, a stripe for each of the first of them."""
    from matplotlib.patches import Rectangle

    (top, tall), (left, wide) = (_span(row, box, d) for d in dimensions)
    shown = workers[: len(COLOURS)]
    for at, worker in enumerate(shown):
        faint = _FAINT[worker // len(COLOURS) % len(_FAINT)]
        panel.add_patch(Rectangle((left + wide * at / len(shown), top), wide / len(shown), tall, linewidth=0,
                                  facecolor=COLOURS[worker % len(COLOURS)], alpha=faint))  # fmt: skip
    panel.add_patch(Rectangle((left, top), wide, tall, fill=False, edgecolor=INK, linewidth=0.8))
    whose = f"{workers[0]}" if len(workers) == 1 else f"{len(workers)} workers"
    if min(tall, wide) >= 1 / 16:
        panel.text(left + wide / 2, top + tall / 2, whose, ha="center", va="center", color=INK, fontsize=7,
                   bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0})  # fmt: skip


def _span(row: VariableRow, box: Box, dimension: int) -> tuple[float, float]:
    if dimension < 0:
        return 0.0, 1.0
    extent = max(1, row.shape[dimension])
    return box[0][dimension] / extent, box[1][dimension] / extent
