"""What a sweep says: one JSON object, or a table for people."""

from typing import Any

from pesto.show.table import aligned
from pesto.whatif.grid import AXES, Point
from pesto.whatif.points import Row, Step, Sweep


def as_object(sweep: Sweep) -> dict[str, Any]:
    """The keys of `pesto sweep --json`: seconds, factors, shares; None where there is no value."""
    return {
        "graph": sweep.graph.source,
        "ops": sweep.graph.ops,
        "cluster": sweep.cluster.name,
        "base": _point(sweep.grid.base),
        "axes": {axis: list(values) for axis, values in sweep.grid.values.items()},
        "cross": sweep.grid.cross,
        "points": len(sweep.grid.points()),
        "interrupted": sweep.interrupted,
        "rows": [_row(row) for row in sweep.rows],
    }


def _point(point: Point) -> dict[str, float]:
    return {axis: getattr(point, axis) for axis in AXES}


def _row(row: Row) -> dict[str, Any]:
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
    head = (*axes, "step ms", "expert ms", "saved", "one device ms", "gap", "seconds")
    base = sweep.grid.base.text(axis for axis in AXES if axis not in axes or not sweep.grid.cross)
    rows = sorted(sweep.rows, key=lambda row: [getattr(row.point, axis) for axis in axes])
    blocks = [rows] if sweep.grid.cross else [sweep.on(axis) for axis in axes]
    table = [head, *(_cells(row, axes) for block in blocks for row in block)]
    without = [row for row in rows if row.plan is None]
    lines = [
        f"{sweep.graph.source}: {sweep.graph.ops} ops on {sweep.cluster.name}",
        f"around        {base}" if base else "",
        "",
        *aligned(table, ">"),
        "",
        *(f"{row.point.text(axes)}: {row.status}: {row.detail}" for row in without),
        "Step times are predicted by the simulator, plans verified by the independent checker; seconds are measured.",
        "saved: of Expert's step time. OOM: does not fit the memory.",
    ]
    return "\n".join(lines)


def _cells(row: Row, axes: list[str]) -> tuple[str, ...]:
    values = [f"{getattr(row.point, axis):g}" for axis in axes]
    made = row.status if row.plan is None else f"{row.plan.makespan_s * 1e3:.2f}"
    saved = "-" if row.reduction is None else f"{row.reduction:.1%}"
    gap = "-" if row.plan is None else f"{row.plan.gap:.1%}"
    return (*values, made, _time(row.expert), saved, _time(row.single), gap, f"{row.seconds:.1f}")


def _time(step: Step | None) -> str:
    if step is None:
        return "-"
    return f"{step.seconds * 1e3:.2f}{'' if step.fits else ' OOM'}"


def brief(sweep: Sweep) -> str:
    """The last row on one line, as progress."""
    row = sweep.rows[-1]
    where = f"[{len(sweep.rows)}/{len(sweep.grid.points())}] {row.point.text(AXES)}"
    if row.plan is None:
        return f"{where}: {row.status}: {row.detail}"
    saved = "" if row.reduction is None else f", {row.reduction:.1%} less than expert"
    return f"{where}: {row.plan.makespan_s * 1e3:.2f} ms{saved}, gap {row.plan.gap:.1%}, {row.seconds:.1f} s"
