"""Figures drawn by matplotlib (the extra `study`) as PNG and SVG; every text is taken as it is, whatever it holds."""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from pesto.reporting.show.drawing import COLOURS, INK, figure_bytes
from pesto.research.study.report.figures import SUMMARY, Figure, FigureLine, Panel
from pesto.research.study.report.runs import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

MADE_BY = "pesto study report"
"""In every file, so that a later report knows it for one of its own."""
PAPER = "#ffffff"
"""The colour of the ground; a page may replace it, and the ink, by its own."""
DASHES = ("-", (0, (4, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)), (0, (8, 3)), (0, (1.2, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
FEW = 4
"""So many lines are named where they end, more in a legend."""
HIGHEST = 0.98
"""Highest position of a name beside the axes, as a share of their height."""
LONGEST = 66
"""Characters of a name."""
PASSES = 2
"""Passes of the layout, which places axes, names and legend one after the other."""
_LOOK: dict[Any, Any] = {
    "font.size": 10.0, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.18,
    "grid.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.titlesize": 10.0, "xtick.color": INK,
    "ytick.color": INK, "text.color": INK, "figure.facecolor": PAPER, "axes.facecolor": PAPER, "legend.frameon": False,
    "text.parse_math": False, "svg.fonttype": "path", "axes.axisbelow": True, "legend.handlelength": 3.0,
}  # fmt: skip


def draw(figure: Figure, formats: tuple[str, ...]) -> dict[str, bytes]:
    """The figure in each of the formats ("png", "svg"); the same figure gives the same bytes. Needs matplotlib."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context({**_LOOK, "svg.hashsalt": figure.key}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fonts and of layouts too narrow: neither is the reader's business
        columns = min(len(figure.panels), 2)
        rows = -(-len(figure.panels) // columns)
        # Inches: wide enough for the legend beside the panels, tall enough for it and for the rows of dots.
        labels = [line.label for line in figure.panels[0].lines]
        legend = 0.085 * min(max(map(len, labels)), LONGEST) + 0.6
        named = max((min(len(name), LONGEST) for panel in figure.panels for name in panel.rows), default=0)
        height = max(3.6 * rows, 0.23 * len(labels) + 0.4, *(0.26 * len(p.rows) * rows + 1.2 for p in figure.panels))
        width = 4.2 if figure.panels[0].kind == "scatter" else 5.4
        size = min(width * columns + legend + 0.07 * named, 24.0), min(height, 40.0)
        canvas = Canvas(figsize=size, layout="constrained")
        axes = list(canvas.subplots(rows, columns, squeeze=False).flat)
        for axis, panel in zip(axes, figure.panels, strict=False):
            for k, line in enumerate(panel.lines):
                _line(axis, panel, line, k)
            axis.set_title(_drawable(panel.title), loc="left")
            axis.set_xlabel(_drawable(panel.x_title))
            axis.set_ylabel(_drawable(panel.y_title, LONGEST * 2 // 3))
            if panel.x_log:
                axis.set_xscale("log")
            if panel.y_log:
                axis.set_yscale("log")
            _scales(axis, panel)
        for axis in axes[len(figure.panels) :]:
            axis.set_axis_off()
        _name_lines(canvas, figure, axes)
        for _ in range(PASSES):
            canvas.draw_without_rendering()
        canvas.set_layout_engine("none")  # or the second file would look different from the first
        return {form: figure_bytes(canvas, form, MADE_BY) for form in formats}


def _line(axis: "Axes", panel: Panel, line: FigureLine, k: int) -> None:
    colour, marker = COLOURS[line.colour % len(COLOURS)], MARKERS[line.dash % len(MARKERS)]
    if panel.kind in ("dots", "scatter"):
        hollow: dict[str, Any] = {"markerfacecolor": "none"} if line.dash else {}
        axis.plot(line.x, line.y, marker, color=colour, markersize=6, markeredgewidth=1.4, alpha=0.9, **hollow)
        return
    # Lines that coincide stay visible: each is thinner than the one below it.
    width = 1.3 if len(panel.x_ticks) else 1.5 + 1.0 * (len(panel.lines) - 1 - k) / max(len(panel.lines) - 1, 1)
    look: dict[str, Any] = {"color": colour, "linestyle": DASHES[line.dash % len(DASHES)], "linewidth": width}
    if line.colour == SUMMARY:
        look |= {"color": INK, "linestyle": "-", "linewidth": 3.0, "zorder": 5}
    if panel.kind == "steps":
        axis.step(line.x, line.y, where="post", **look)
    else:
        axis.plot(line.x, line.y, **look, marker="o" if len(panel.x_ticks) else "", markersize=3.5)


def _scales(axis: "Axes", panel: Panel) -> None:
    for name, side, log in (("x", axis.xaxis, panel.x_log), ("y", axis.yaxis, panel.y_log)):
        # Plain numbers: those that matplotlib would write as formulas are taken for text here.
        percent = name in panel.percent
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, ScalarFormatter

        if log:
            low, high = side.get_view_interval()
            near = high < 200 * max(low, 1e-300)
            side.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if near else (1.0,)))
            side.set_minor_formatter(NullFormatter())
        else:
            side.set_major_formatter(ScalarFormatter(useOffset=False))
        if log or percent:
            side.set_major_formatter(
                FuncFormatter(lambda v, _, percent=percent: f"{100 * v:g} %" if percent else f"{v:g}")
            )
    if len(panel.x_ticks):
        axis.set_xticks(panel.x_ticks, labels=[f"{x:g}" for x in panel.x_ticks])
    if panel.kind == "steps":
        axis.set_ylim(-0.02, 1.02)
        axis.set_xlim(panel.lines[0].x[0], panel.lines[0].x[-1])
    elif panel.kind == "scatter":
        most = 1.04 * max(*(float(np.max([line.x, line.y], initial=0.01)) for line in panel.lines), 0.01)
        axis.plot([0, most], [0, most], color=INK, linewidth=0.8, alpha=0.5)
        axis.set(xlim=(-0.02 * most, most), ylim=(-0.02 * most, most), box_aspect=1)
    elif panel.kind == "dots":
        axis.axvline(1.0, color=INK, linewidth=0.8, alpha=0.5)
        beside = axis.get_subplotspec()
        named = beside is None or beside.is_first_col()
        axis.set_yticks(range(len(panel.rows)), labels=[_drawable(row) if named else "" for row in panel.rows])
        axis.set_ylim(len(panel.rows) - 0.4, -0.6)
    elif not len(panel.x_ticks):
        axis.set_ylim(bottom=0)


def _name_lines(canvas: "Canvas", figure: Figure, axes: list["Axes"]) -> None:
    """Each line's name at its end, or all of them in a legend outside of the axes."""
    panel = figure.panels[0]
    ends = {float(line.x[-1]) for line in panel.lines if len(line.x)}
    plain = panel.kind in ("steps", "lines") and len(figure.panels) == 1
    if plain and len(panel.lines) <= FEW and len(ends) == 1:
        low, high = axes[0].get_ylim()
        heights = np.array([(line.y[-1] - low) / (high - low) for line in panel.lines])
        places = spread_labels(heights, 0.075)
        for line, place in zip(panel.lines, places, strict=True):
            colour = COLOURS[line.colour % len(COLOURS)]
            axes[0].annotate(
                _drawable(line.label), xy=(line.x[-1], line.y[-1]), xytext=(1.04, place), textcoords="axes fraction",
                va="center", color=colour, fontweight="bold", annotation_clip=False,
                arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.9, "shrinkA": 1, "shrinkB": 0},
            )  # fmt: skip
        return
    if panel.kind == "scatter" and len(panel.lines) == 1:
        axes[0].set_title(_drawable(panel.lines[0].label), loc="left")
        return
    handles = axes[0].get_lines()[: len(panel.lines)]
    canvas.legend(handles, [_drawable(line.label) for line in panel.lines], loc="outside right upper")


def spread_labels(places: Floats, apart: float) -> Floats:
    """The places moved up until neighbours are `apart`; none above HIGHEST."""
    order = np.argsort(places, kind="stable")
    steps = apart * np.arange(len(places))
    moved = np.maximum.accumulate(places[order] - steps) + steps
    result = np.empty_like(places)
    result[order] = moved - max(0.0, (moved[-1] if len(moved) else 0.0) - HIGHEST)
    return result


def _drawable(text: str, limit: int = LONGEST) -> str:
    """At most so much of the text, with a question mark for what the font lacks, and nothing in front to be obeyed."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties()))
    # Names of a study differ at their ends more often than in their middle.
    cut = text if len(text) <= limit else f"{text[: limit // 2 - 2]}...{text[1 - limit // 2 :]}"
    line = "".join(c if font.get_char_index(ord(c)) else "?" for c in cut)
    return f" {line}" if line.startswith("_") else line
