"""Sweeps over changed clusters: a table for people, one JSON object, and a picture (needs matplotlib)."""

from typing import TYPE_CHECKING, Any

from pesto.choosing.whatif.grid import AXES, ClusterPoint
from pesto.choosing.whatif.points import PlacedStep, Sweep, SweepRow
from pesto.core.quantities import duration, percent, plural, time_unit
from pesto.reporting.show.drawing import BLUE, COLOURS, GREY, INK, RED, drawing_style, figure_bytes
from pesto.reporting.show.facts import note_key
from pesto.reporting.show.lines import align_rows, fact, paragraph

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_WORDS = (
    "expert: as by hand; single: all on one device; saved: of the shorter of these two that fits; OOM: does not fit "
    "the memory; took: measured; step times are predicted, plans verified"
)


def sweep_object(sweep: Sweep) -> dict[str, Any]:
    """The keys of `pesto sweep --json`: seconds, factors, shares; None where there is no value."""
    rows = []
    for row in sweep.rows:
        plan = row.plan
        point = {
            **_point(row.point),
            "status": row.status,
            "detail": row.detail,
            "makespan_s": None if plan is None else plan.makespan_s,
            "lower_bound_s": None if plan is None else plan.provenance.lower_bound_ticks * plan.tick_s,
            "gap": None if plan is None else plan.gap,
            "expert_s": None if row.expert is None else row.expert.seconds,
            "expert_fits": row.expert is not None and row.expert.fits,
            "single_s": None if row.single is None else row.single.seconds,
            "single_fits": row.single is not None and row.single.fits,
            "reduction": row.reduction,
            "start": None if row.start is None else _point(row.start),
            "seconds": round(row.seconds, 3),
        }
        rows.append(point)
    return {
        "graph": sweep.graph.source,
        "ops": sweep.graph.ops,
        "cluster": sweep.cluster.name,
        **note_key(sweep.costs_note),
        "base": _point(sweep.grid.base),
        "axes": {axis: list(values) for axis, values in sweep.grid.values.items()},
        "cross": sweep.grid.cross,
        "points": len(sweep.grid.points()),
        "interrupted": sweep.interrupted,
        "rows": rows,
    }


def _point(point: ClusterPoint) -> dict[str, float]:
    return {axis: getattr(point, axis) for axis in AXES}


def sweep_page(sweep: Sweep) -> str:
    """A table for people, an axis after the other, with every point that has no plan explained below it."""
    axes = list(sweep.grid.values)
    base = sweep.grid.base.text(axis for axis in AXES if axis not in axes or not sweep.grid.cross)
    if sweep.grid.cross:
        rows = sorted(sweep.rows, key=lambda row: [getattr(row.point, axis) for axis in axes])
    else:
        # Each row once: the base, and then an axis after the other.
        rows = [row for row in sweep.rows if row.point == sweep.grid.base]
        rows += [row for axis in axes for row in sweep.on(axis) if row.point != sweep.grid.base]
    steps = [step.seconds for row in rows for step in (row.expert, row.single) if step is not None]
    steps += [row.plan.makespan_s for row in rows if row.plan is not None]
    unit, one = time_unit(max(steps, default=0.0))
    head = (*axes, "step", "expert", "single", "saved", "gap", "took")
    units = (*("" if axis == "devices" else "x" for axis in axes), unit, unit, unit, "", "", "s")
    cells = []
    for row in rows:
        saved = "-" if row.saved is None else percent(row.saved)
        step = row.status if row.plan is None else f"{row.plan.makespan_s / one:.2f}"
        gap = "-" if row.plan is None else percent(row.plan.gap)
        rivals = (_time(row.expert, one), _time(row.single, one))
        cells.append(
            (*(f"{getattr(row.point, axis):g}" for axis in axes), step, *rivals, saved, gap, f"{row.seconds:.1f}")
        )
    lines = [
        paragraph(f"{sweep.graph.source}: {plural(sweep.graph.ops, 'op')} on {sweep.cluster.name}", 2),
        *([fact("costs", sweep.costs_note)] if sweep.costs_note else []),
        fact("around", base) if base else "",
        "",
        *align_rows([head, units, *cells], ">"),
        "",
        *(paragraph(f"{row.point.text(axes)}: {row.status}: {row.detail}", 2) for row in rows if row.plan is None),
        fact("words", _WORDS),
    ]
    return "\n".join(lines)


def _time(step: PlacedStep | None, one: float) -> str:
    return "-" if step is None else f"{step.seconds / one:.2f}{'' if step.fits else ' OOM'}"


def progress_line(sweep: Sweep) -> str:
    """The last row on one line, as progress."""
    row = sweep.rows[-1]
    where = f"[{len(sweep.rows)}/{len(sweep.grid.points())}] {row.point.text(sweep.grid.values)}"
    if row.plan is None:
        return paragraph(f"{where}: {row.status}: {row.detail}", 2)
    saved = "" if row.saved is None else f", saved {percent(row.saved)}"
    step, gap = duration(row.plan.makespan_s), percent(row.plan.gap)
    return paragraph(f"{where}: {step}{saved}, gap {gap}, {row.seconds:.1f} s", 2)


_PLAN, _EXPERT, _SINGLE = BLUE, RED, GREY
_COLOURS = (*COLOURS, INK)
_DASHES = ("-", "--", ":", "-.")
_TITLES = {
    "compute": "compute speed, times the cluster's", "links": "link speed, times the cluster's",
    "devices": "accelerators", "memory": "memory per accelerator, times the cluster's",
}  # fmt: skip


def draw_sweep(sweep: Sweep, form: str) -> bytes:
    """The picture in one of the formats; the same sweep gives the same bytes."""
    from matplotlib.figure import Figure

    axes = list(sweep.grid.values)
    with drawing_style("pesto sweep", font_size=9.0, axes_titlesize=9.0):
        figure = Figure(figsize=(1.6 + 3.9 * max(len(axes), 2), 6.6), layout="constrained")
        panels = figure.subplots(2, len(axes), squeeze=False, sharey="row", sharex="col", height_ratios=(3, 2))
        figure.suptitle(f"{sweep.graph.source}: what if {sweep.cluster.name} were different", x=0.01, ha="left")
        crossed = sweep.grid.cross and len(axes) > 1
        for (above, below), axis in zip(panels.T, axes, strict=True):
            if crossed:
                # The plans alone, a line a combination of the other axes.
                for k, (label, rows) in enumerate(_groups(sweep, axis).items()):
                    made = [
                        (getattr(row.point, axis), row.plan.makespan_s * 1e3) for row in rows if row.plan is not None
                    ]
                    _dashed(above, made, k, label)
            else:
                _methods(above, sweep, axis)
            groups = _groups(sweep, axis) if sweep.grid.cross else {"": sweep.on(axis)}
            for k, (label, rows) in enumerate(groups.items()):
                known = [(getattr(row.point, axis), 100 * row.reduction) for row in rows if row.reduction is not None]
                _dashed(below, known, k, label)
                for at, share in known if len(groups) == 1 else ():
                    below.annotate(f"{share:.0f}", (at, share), xytext=(0, 5), textcoords="offset points", ha="center")
            below.axhline(0.0, color=INK, linewidth=0.8)
            below.margins(y=0.18)
            _plain(above, sweep, axis)
            _plain(below, sweep, axis)
            below.set_xlabel(_TITLES[axis])
            if crossed:
                below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), fontsize=8, frameon=False, ncols=2)
        panels[0][0].set_title("predicted step, ms", loc="left")
        panels[0][0].set_ylim(bottom=0)
        panels[1][0].set_title("saved of Expert's step, %", loc="left")
        if not crossed:
            figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower left", frameon=False, ncols=8)
        return figure_bytes(figure, form, "pesto sweep")


def _methods(panel: "Axes", sweep: Sweep, axis: str) -> None:
    """The plan, Expert and one device, and the bound; hollow where the memory does not suffice."""
    rows = sweep.on(axis)
    plans = [None if row.plan is None else PlacedStep(seconds=row.plan.makespan_s, fits=True) for row in rows]
    _curve(panel, rows, axis, ("one device", _SINGLE, "^", [row.single for row in rows]))
    _curve(panel, rows, axis, ("Expert", _EXPERT, "s", [row.expert for row in rows]))
    _curve(panel, rows, axis, ("this plan", _PLAN, "o", plans))
    known = [(getattr(row.point, axis), row.plan) for row in rows if row.plan is not None]
    bound = [plan.provenance.lower_bound_ticks * plan.tick_s * 1e3 for _, plan in known]
    panel.plot([at for at, _ in known], bound, "--", color=INK, linewidth=1.0, label="lower bound")
    if any(not step.fits for row in rows for step in (row.single, row.expert) if step is not None):
        panel.plot([], [], "s", color=INK, markerfacecolor="none", label="hollow: out of memory")
    for row in rows:
        if row.plan is None:
            where = (getattr(row.point, axis), 0.02)
            at_foot: Any = ("data", "axes fraction")
            panel.annotate(row.status, where, xycoords=at_foot, rotation=90, ha="center", color=_EXPERT)


def _curve(panel: "Axes", rows: list[SweepRow], axis: str, what: tuple[str, str, str, list[PlacedStep | None]]) -> None:
    label, colour, marker, steps = what
    known = [(getattr(row.point, axis), step) for row, step in zip(rows, steps, strict=True) if step is not None]
    panel.plot([at for at, _ in known], [step.seconds * 1e3 for _, step in known], color=colour, linewidth=1.4)
    for fits in (True, False):
        here = [(at, step.seconds * 1e3) for at, step in known if step.fits == fits]
        panel.plot(
            [at for at, _ in here], [ms for _, ms in here], marker, color=colour, label=label if fits else None,
            markerfacecolor=colour if fits else "white", zorder=3,
        )  # fmt: skip


def _groups(sweep: Sweep, axis: str) -> dict[str, list[SweepRow]]:
    """Rows by the values of the other axes, each group along this one."""
    result: dict[str, list[SweepRow]] = {}
    others = [other for other in AXES if other in sweep.grid.values and other != axis]
    for row in sweep.on(axis):
        result.setdefault(row.point.text(others), []).append(row)
    return dict(sorted(result.items(), key=lambda item: [getattr(item[1][0].point, other) for other in others]))


def _dashed(panel: "Axes", line: list[tuple[float, float]], k: int, label: str) -> None:
    dash = _DASHES[k // len(_COLOURS) % len(_DASHES)]
    colour = _COLOURS[k % len(_COLOURS)]
    panel.plot(
        [x for x, _ in line], [y for _, y in line], "o", linestyle=dash, color=colour, linewidth=1.4, label=label
    )


def _plain(panel: "Axes", sweep: Sweep, axis: str) -> None:
    from matplotlib.ticker import NullLocator

    values = sweep.grid.values[axis]
    panel.set_xscale("log", base=2)
    panel.set_xticks(values, labels=[f"{value:g}" for value in values])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xlim(values[0] / 1.25, values[-1] * 1.25)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    panel.grid(visible=True, alpha=0.18)
    panel.set_axisbelow(True)
