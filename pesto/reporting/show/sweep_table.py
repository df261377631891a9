"""Sweeps as one JSON object, or as a table for people."""

from typing import Any

from pesto.choosing.whatif.grid import AXES, ClusterPoint
from pesto.choosing.whatif.points import PlacedStep, Sweep, SweepRow
from pesto.core.quantities import duration, percent, plural, time_unit
from pesto.reporting.show.facts.costs_note import note_key
from pesto.reporting.show.lines import fact, paragraph
from pesto.reporting.show.table import align_rows

_WORDS = (
    "expert: as by hand; single: all on one device; saved: of the shorter of these two that fits; OOM: does not fit "
    "the memory; took: measured; step times are predicted, plans verified"
)


def as_object(sweep: Sweep) -> dict[str, Any]:
    """The keys of `pesto sweep --json`: seconds, factors, shares; None where there is no value."""
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
        "rows": [_row(row) for row in sweep.rows],
    }


def _point(point: ClusterPoint) -> dict[str, float]:
    return {axis: getattr(point, axis) for axis in AXES}


def _row(row: SweepRow) -> dict[str, Any]:
    plan = row.plan
    return {
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


def page(sweep: Sweep) -> str:
    """A table for people, an axis after the other, with every point that has no plan explained below it."""
    axes = list(sweep.grid.values)
    base = sweep.grid.base.text(axis for axis in AXES if axis not in axes or not sweep.grid.cross)
    rows = _ordered(sweep, axes)
    lines = [
        paragraph(f"{sweep.graph.source}: {plural(sweep.graph.ops, 'op')} on {sweep.cluster.name}", 2),
        *([fact("costs", sweep.costs_note)] if sweep.costs_note else []),
        fact("around", base) if base else "",
        "",
        *_table(rows, axes),
        "",
        *(paragraph(f"{row.point.text(axes)}: {row.status}: {row.detail}", 2) for row in rows if row.plan is None),
        fact("words", _WORDS),
    ]
    return "\n".join(lines)


def _ordered(sweep: Sweep, axes: list[str]) -> list[SweepRow]:
    """Each row once: all of a cross by its values, else the base and then an axis after the other."""
    if sweep.grid.cross:
        return sorted(sweep.rows, key=lambda row: [getattr(row.point, axis) for axis in axes])
    base = [row for row in sweep.rows if row.point == sweep.grid.base]
    return base + [row for axis in axes for row in sweep.on(axis) if row.point != sweep.grid.base]


def _table(rows: list[SweepRow], axes: list[str]) -> list[str]:
    """Head, units and the rows; all step times in the unit of the longest."""
    steps = [step.seconds for row in rows for step in (row.expert, row.single) if step is not None]
    steps += [row.plan.makespan_s for row in rows if row.plan is not None]
    unit, one = time_unit(max(steps, default=0.0))
    head = (*axes, "step", "expert", "single", "saved", "gap", "took")
    units = (*("" if axis == "devices" else "x" for axis in axes), unit, unit, unit, "", "", "s")
    return align_rows([head, units, *(_cells(row, axes, one) for row in rows)], ">")


def _cells(row: SweepRow, axes: list[str], one: float) -> tuple[str, ...]:
    """A row, its step times in units of `one` seconds."""
    values = [f"{getattr(row.point, axis):g}" for axis in axes]
    made = row.status if row.plan is None else f"{row.plan.makespan_s / one:.2f}"
    saved = "-" if row.saved is None else percent(row.saved)
    gap = "-" if row.plan is None else percent(row.plan.gap)
    return (*values, made, _time(row.expert, one), _time(row.single, one), saved, gap, f"{row.seconds:.1f}")


def _time(step: PlacedStep | None, one: float) -> str:
    if step is None:
        return "-"
    return f"{step.seconds / one:.2f}{'' if step.fits else ' OOM'}"


def progress_line(sweep: Sweep) -> str:
    """The last row on one line, as progress."""
    row = sweep.rows[-1]
    where = f"[{len(sweep.rows)}/{len(sweep.grid.points())}] {row.point.text(sweep.grid.values)}"
    if row.plan is None:
        return paragraph(f"{where}: {row.status}: {row.detail}", 2)
    saved = "" if row.saved is None else f", saved {percent(row.saved)}"
    step, gap = duration(row.plan.makespan_s), percent(row.plan.gap)
    return paragraph(f"{where}: {step}{saved}, gap {gap}, {row.seconds:.1f} s", 2)
