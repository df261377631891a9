"""A sweep as a picture: step times and what they save over Expert, a column an axis (needs matplotlib)."""

from typing import TYPE_CHECKING, Any

from pesto.choosing.whatif.grid import AXES
from pesto.choosing.whatif.points import PlacedStep, Sweep, SweepRow
from pesto.reporting.show.drawing import BLUE, COLOURS, GREY, INK, RED, drawing_style, figure_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PLAN, _EXPERT, _SINGLE = BLUE, RED, GREY
_COLOURS = (*COLOURS, INK)
_DASHES = ("-", "--", ":", "-.")
_TITLES = {
    "compute": "compute speed, times the cluster's", "links": "link speed, times the cluster's",
    "devices": "accelerators", "memory": "memory per accelerator, times the cluster's",
}  # fmt: skip


def draw(sweep: Sweep, form: str) -> bytes:
    """The picture in one of the formats; the same sweep gives the same bytes."""
    from matplotlib.figure import Figure

    axes = list(sweep.grid.values)
    with drawing_style("pesto sweep", font_size=9.0, axes_titlesize=9.0):
        figure = Figure(figsize=(1.6 + 3.9 * max(len(axes), 2), 6.6), layout="constrained")
        panels = figure.subplots(2, len(axes), squeeze=False, sharey="row", sharex="col", height_ratios=(3, 2))
        figure.suptitle(f"{sweep.graph.source}: what if {sweep.cluster.name} were different", x=0.01, ha="left")
        crossed = sweep.grid.cross and len(axes) > 1
        for (above, below), axis in zip(panels.T, axes, strict=True):
            (_lines if crossed else _methods)(above, sweep, axis)
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


def _lines(panel: "Axes", sweep: Sweep, axis: str) -> None:
    """The plans alone, a line a combination of the other axes."""
    for k, (label, rows) in enumerate(_groups(sweep, axis).items()):
        known = [(getattr(row.point, axis), row.plan.makespan_s * 1e3) for row in rows if row.plan is not None]
        _dashed(panel, known, k, label)


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
