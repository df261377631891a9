"""The comparison as a picture: step time and the fullest device's memory, a bar a method (needs matplotlib)."""

import io
from typing import TYPE_CHECKING, Any

from pesto.compare.contest import Contest, Entry
from pesto.compare.pages import ranked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg")
_FITS, _OOM, _BOUND = "#0072b2", "#d55e00", "#1f2328"
_DPI = 144


def available() -> bool:
    """Whether matplotlib is installed."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        return False
    return True


def draw(contest: Contest, form: str) -> bytes:
    """The picture in one of FORMATS; the same contest gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    entries = [entry for entry in ranked(contest) if entry.candidate is not None]
    look: dict[Any, Any] = {"svg.hashsalt": "pesto compare", "svg.fonttype": "path", "text.parse_math": False}
    with mpl.rc_context(look):
        canvas = Canvas(figsize=(11.0, 1.6 + 0.28 * max(4, len(entries))), layout="constrained")
        times, peaks = canvas.subplots(1, 2, sharey=True)
        canvas.suptitle(f"{contest.graph.source} on {contest.cluster.name}", x=0.01, ha="left")
        _times(times, contest, entries)
        _peaks(peaks, contest, entries)
        still = {"Date": None} if form == "svg" else {"Software": "pesto compare"}
        out = io.BytesIO()
        canvas.savefig(out, format=form, dpi=_DPI, metadata=still)
    return out.getvalue()


def _times(axis: "Axes", contest: Contest, entries: list[Entry]) -> None:
    ms = [(entry.makespan_s or 0.0) * 1e3 for entry in entries]
    _bars(axis, entries, ms)
    axis.set_yticks(range(len(entries)), labels=[entry.method for entry in entries])
    axis.invert_yaxis()
    axis.axvline(contest.lower_bound_s * 1e3, color=_BOUND, linewidth=1.0, linestyle="--")
    axis.set_title("predicted step, ms (dashed: lower bound; hatched: out of memory)", loc="left", fontsize=9)
    for k, value in enumerate(ms):
        axis.annotate(f"{value:.4g}", (value, k), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
    axis.margins(x=0.12)


def _peaks(axis: "Axes", contest: Contest, entries: list[Entry]) -> None:
    devices = contest.cluster.devices
    shares = [
        max(100.0 * int(p) / d.memory_bytes for p, d in zip(e.candidate.peak, devices, strict=True))
        for e in entries
        if e.candidate is not None
    ]
    _bars(axis, entries, shares)
    axis.axvline(100.0, color=_BOUND, linewidth=1.0)
    axis.set_title("peak of the fullest device, % of its memory", loc="left", fontsize=9)


def _bars(axis: "Axes", entries: list[Entry], values: list[float]) -> None:
    for k, (entry, value) in enumerate(zip(entries, values, strict=True)):
        fits = entry.plan is not None
        axis.barh(
            k, value, color=_FITS if fits else "none", edgecolor=_FITS if fits else _OOM, hatch="" if fits else "///"
        )
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.grid(visible=True, axis="x", alpha=0.18)
    axis.set_axisbelow(True)
