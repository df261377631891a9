"""The comparison as a picture: step time and the fullest device's memory, a bar a method (needs matplotlib)."""

from typing import TYPE_CHECKING

from pesto.choosing.comparison.contest import Comparison, MethodEntry
from pesto.reporting.show.drawing import BLUE, INK, RED, drawing_style, figure_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FITS, _OOM, _BOUND = BLUE, RED, INK


def draw(contest: Comparison, form: str) -> bytes:
    """The picture in one of the formats; the same contest gives the same bytes."""
    from matplotlib.figure import Figure as Canvas

    entries = [entry for entry in contest.ranked() if entry.candidate is not None]
    with drawing_style("pesto compare"):
        canvas = Canvas(figsize=(15.0, 1.6 + 0.28 * max(4, len(entries))), layout="constrained")
        panels = canvas.subplots(1, 5, sharey=True, width_ratios=(2.2, 1.3, 1, 1, 1))
        canvas.suptitle(f"{contest.graph.source} on {contest.cluster.name} (hatched: out of memory)", x=0.01, ha="left")
        _times(panels[0], contest, entries)
        _peaks(panels[1], contest, entries)
        _bars(panels[2], entries, [entry.cut_bytes / 1e9 for entry in entries])
        panels[2].set_title("crossing, GB", loc="left", fontsize=9)
        # Two marks a method.
        axis = panels[3]
        at = range(len(entries))
        axis.plot([100 * e.device_use for e in entries], at, "o", color=_FITS, label="devices, mean")
        axis.plot(
            [100 * e.link_use for e in entries], at, "D", color=_OOM, markerfacecolor="none", label="busiest link"
        )
        axis.set_xlim(-3, 103)
        axis.set_title("busy, %", loc="left", fontsize=9)
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), fontsize=7, frameon=False, ncols=1)
        _plain(axis)
        _seconds(panels[4], entries)
        return figure_bytes(canvas, form, "pesto compare")


def _seconds(axis: "Axes", entries: list[MethodEntry]) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.plot([max(entry.seconds, 1e-3) for entry in entries], range(len(entries)), "s", color=_BOUND)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_title("seconds to place (measured)", loc="left", fontsize=9)
    _plain(axis)


def _times(axis: "Axes", contest: Comparison, entries: list[MethodEntry]) -> None:
    ms = [(entry.makespan_s or 0.0) * 1e3 for entry in entries]
    _bars(axis, entries, ms)
    axis.set_yticks(range(len(entries)), labels=[entry.method for entry in entries])
    axis.invert_yaxis()
    axis.axvline(contest.lower_bound_s * 1e3, color=_BOUND, linewidth=1.0, linestyle="--")
    axis.set_title("predicted step, ms (dashed: lower bound)", loc="left", fontsize=9)
    for k, value in enumerate(ms):
        axis.annotate(f"{value:.4g}", (value, k), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
    axis.margins(x=0.12)


def _peaks(axis: "Axes", contest: Comparison, entries: list[MethodEntry]) -> None:
    devices = contest.cluster.devices
    shares = [
        max(100.0 * int(p) / d.memory_bytes for p, d in zip(e.candidate.peak, devices, strict=True))
        for e in entries
        if e.candidate is not None
    ]
    _bars(axis, entries, shares)
    axis.axvline(100.0, color=_BOUND, linewidth=1.0)
    axis.set_title("fullest device, % of its memory", loc="left", fontsize=9)


def _bars(axis: "Axes", entries: list[MethodEntry], values: list[float]) -> None:
    for k, (entry, value) in enumerate(zip(entries, values, strict=True)):
        fits = entry.fits
        axis.barh(
            k, value, color=_FITS if fits else "none", edgecolor=_FITS if fits else _OOM, hatch="" if fits else "///"
        )
    _plain(axis)


def _plain(axis: "Axes") -> None:
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.grid(visible=True, axis="x", alpha=0.18)
    axis.set_axisbelow(True)
