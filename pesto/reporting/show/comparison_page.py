"""Comparisons of placement methods: a table for people, one JSON object, and a picture (needs matplotlib)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pesto.choosing.comparison.contest import Comparison, MethodEntry
from pesto.choosing.comparison.methods import METHODS
from pesto.core.cluster import Cluster
from pesto.core.quantities import change, duration, plural, size_unit, time_unit
from pesto.reporting.show.drawing import BLUE, INK, RED, drawing_style, figure_bytes
from pesto.reporting.show.facts import costs_text, note_key
from pesto.reporting.show.lines import align_rows, fact, paragraph

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_WORDS = (
    "to best: more than the shortest that fits; peak, full: of the fullest device; OOM: does not fit; cut: sent "
    "between devices; busy: devices, mean; links: the busiest; place: of the method, measured, all else is predicted"
)


def comparison_object(contest: Comparison, plans: dict[str, Path]) -> dict[str, Any]:
    """The keys of `pesto compare --json`: seconds, bytes, shares; None where there is no value.

    Where no batch size is known, methods have no examples a second.
    """
    names, methods = [d.name for d in contest.cluster.devices], {}
    for entry in contest.entries:
        placed = entry.candidate
        methods[entry.method] = {
            "status": entry.status,
            "makespan_s": entry.makespan_s,
            **({} if contest.shape.batch is None else {"examples_per_s": _throughput(contest, entry)}),
            "peak_bytes": None if placed is None else dict(zip(names, placed.peak.tolist(), strict=True)),
            "seconds": entry.seconds,
            "fits": placed is not None and placed.fits,
            "memory_aware": METHODS[entry.method].memory,
            "mended": entry.mended,
            "cut_bytes": None if placed is None else entry.cut_bytes,
            "device_utilisation": None if placed is None else entry.device_use,
            "link_utilisation": None if placed is None else entry.link_use,
            "detail": entry.detail,
            "source": METHODS[entry.method].source,
            "plan": str(plans[entry.method]) if entry.method in plans else None,
        }
    return {
        "graph": contest.graph.source,
        "ops": contest.graph.ops,
        "cluster": contest.cluster.name,
        "costs": contest.costs.basis,
        "costs_source": contest.costs.source,
        **note_key(contest.costs.said),
        "parallelism": contest.shape.parallelism,
        "ccr": contest.shape.ccr,
        "batch": contest.shape.batch,
        "lower_bound_s": contest.lower_bound_s,
        "lower_bound": contest.lower_bound_name,
        "infeasible": contest.proof or None,
        "interrupted": contest.interrupted,
        "methods": methods,
    }


def _throughput(contest: Comparison, entry: MethodEntry) -> float | None:
    """Examples a second, predicted; None where no batch size is known, or nothing runs."""
    batch, step = contest.shape.batch, entry.makespan_s
    return batch / step if batch is not None and step and entry.fits else None


def comparison_page(contest: Comparison, plans: Path | None) -> str:
    """A table for people, best first, with every shortfall below it."""
    entries, shape = contest.ranked(), contest.shape
    words = _WORDS + ("; *: ops moved, or run in another order, to fit" if any(e.mended for e in entries) else "")
    # Tensors that are cut may take less than the bound of whole ops.
    whole = all(entry.split is None for entry in entries)
    bounded = "on the full graph" if whole else "for whole ops on the full graph"
    ccr = "no transfers between accelerators" if shape.ccr is None else f"communication / computation {shape.ccr:.3g}"
    step = f"parallelism {shape.parallelism:.3g} (all ops / the longest path), {ccr}"
    rates = [_throughput(contest, entry) for entry in contest.entries if entry.plan is not None]
    best = max((rate for rate in rates if rate is not None), default=None)
    step += "" if best is None else f"; batch {shape.batch}, at best {best:.4g} examples/s"
    lines = [
        paragraph(f"{contest.graph.source}: {plural(contest.graph.ops, 'op')} on {contest.cluster.name}", 2),
        fact("costs", costs_text(contest.costs.basis, contest.costs.source, contest.costs.said)),
        fact("lower bound", f"{duration(contest.lower_bound_s)} {bounded} ({contest.lower_bound_name})"),
        fact("step", step),
        *([fact("infeasible", contest.proof)] if contest.proof else []),
        "",
        *_table(contest.cluster, entries),
        "",
        *(paragraph(f"{entry.method}: {entry.detail}", 2) for entry in entries if entry.plan is None),
        fact("words", words),
    ]
    if plans is not None:
        lines.append(fact("plans", f"in {plans}, each verified by the independent checker"))
    return "\n".join(lines)


def _table(cluster: Cluster, entries: list[MethodEntry]) -> list[str]:
    """Head, units and a row for each entry; a column's unit is that of its largest value."""
    steps = [entry.makespan_s for entry in entries if entry.makespan_s is not None]
    best = min((e.makespan_s for e in entries if e.plan is not None and e.makespan_s is not None), default=None)
    time = time_unit(max(steps, default=0.0))
    peak = size_unit(max((int(entry.candidate.peak.max()) for entry in entries if entry.candidate), default=0))
    cut = size_unit(max((entry.cut_bytes for entry in entries), default=0))
    rows: list[tuple[str, ...]] = [
        ("method", "step", "to", "peak", "full", "cut", "busy", "links", "place"),
        ("", time[0], "best", peak[0], "", cut[0], "", "", "s"),
    ]
    for entry in entries:
        placed = entry.candidate
        if placed is None or entry.makespan_s is None:
            rows.append((entry.method, "-", "-", "-", entry.status, "-", "-", "-", "-"))
            continue
        share = [int(p) / d.memory_bytes for p, d in zip(placed.peak, cluster.devices, strict=True)]
        fullest = max(range(len(share)), key=share.__getitem__)
        full = f"{share[fullest]:.0%}{' *' if entry.mended else ''}" if placed.fits else "OOM"
        more = change(entry.makespan_s / best - 1) if best else "-"
        peak_text, cut_text = f"{int(placed.peak[fullest]) / peak[1]:.2f}", f"{entry.cut_bytes / cut[1]:.1f}"
        busy = (f"{entry.device_use:.0%}", f"{entry.link_use:.0%}", f"{entry.seconds:.2f}")
        rows.append((entry.method, f"{entry.makespan_s / time[1]:.2f}", more, peak_text, full, cut_text, *busy))
    return align_rows(rows, "<>")


_FITS, _OOM, _BOUND = BLUE, RED, INK


def draw_comparison(contest: Comparison, form: str) -> bytes:
    """The picture in one of the formats; the same contest gives the same bytes."""
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import FuncFormatter, NullFormatter

    entries = [entry for entry in contest.ranked() if entry.candidate is not None]
    with drawing_style("pesto compare"):
        canvas = Canvas(figsize=(15.0, 1.6 + 0.28 * max(4, len(entries))), layout="constrained")
        panels = canvas.subplots(1, 5, sharey=True, width_ratios=(2.2, 1.3, 1, 1, 1))
        canvas.suptitle(f"{contest.graph.source} on {contest.cluster.name} (hatched: out of memory)", x=0.01, ha="left")
        times, ms = panels[0], [(entry.makespan_s or 0.0) * 1e3 for entry in entries]
        _bars(times, entries, ms)
        times.set_yticks(range(len(entries)), labels=[entry.method for entry in entries])
        times.invert_yaxis()
        times.axvline(contest.lower_bound_s * 1e3, color=_BOUND, linewidth=1.0, linestyle="--")
        times.set_title("predicted step, ms (dashed: lower bound)", loc="left", fontsize=9)
        for k, value in enumerate(ms):
            where, shift = (value, k), (3, 0)
            times.annotate(f"{value:.4g}", where, xytext=shift, textcoords="offset points", va="center", fontsize=8)
        times.margins(x=0.12)
        # Bytes at once on the device that is fullest.
        devices = contest.cluster.devices
        peaks = [entry.candidate.peak for entry in entries if entry.candidate is not None]
        shares = [max(100.0 * int(p) / d.memory_bytes for p, d in zip(peak, devices, strict=True)) for peak in peaks]
        _bars(panels[1], entries, shares)
        panels[1].axvline(100.0, color=_BOUND, linewidth=1.0)
        panels[1].set_title("fullest device, % of its memory", loc="left", fontsize=9)
        _bars(panels[2], entries, [entry.cut_bytes / 1e9 for entry in entries])
        panels[2].set_title("crossing, GB", loc="left", fontsize=9)
        busy, at = panels[3], range(len(entries))
        busy.plot([100 * e.device_use for e in entries], at, "o", color=_FITS, label="devices, mean")
        links = [100 * e.link_use for e in entries]
        busy.plot(links, at, "D", color=_OOM, markerfacecolor="none", label="busiest link")
        busy.set_xlim(-3, 103)
        busy.set_title("busy, %", loc="left", fontsize=9)
        busy.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), fontsize=7, frameon=False, ncols=1)
        _plain(busy)
        panels[4].plot([max(entry.seconds, 1e-3) for entry in entries], at, "s", color=_BOUND)
        panels[4].set_xscale("log")
        panels[4].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panels[4].xaxis.set_minor_formatter(NullFormatter())
        panels[4].set_title("seconds to place (measured)", loc="left", fontsize=9)
        _plain(panels[4])
        return figure_bytes(canvas, form, "pesto compare")


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
