"""Pictures of plan cells: measures along a numeric setting, or dots for settings that are words."""

import numpy as np

from pesto.study.report.figures import LOG_FROM, SUMMARY, Figure, Line, Panel
from pesto.study.report.plans import Measured, measure, stem
from pesto.study.report.rows import Floats
from pesto.study.report.runs import Configuration, Runs, said

FIRST = ("step_ms", "last_step_ms", "coarse_ms", "coarse_makespan_ms", "seconds")
"""Measures in the order in which they are drawn, where they exist; `MOST_PANELS` of them."""
MOST_PANELS = 4
MOST_LINES = 24
LEAST_POINTS = 3


def plan_figure(runs: Runs, measured: Measured) -> Figure | None:
    """The measures as multiples of the first setting's; None when there is nothing to compare."""
    values = {name: measure(runs, measured, name) for name in FIRST}
    relative = {name: _relative(value) for name, value in values.items()}
    names = [name for name, value in relative.items() if _varies(value)][:MOST_PANELS]
    if not names or len(runs.configurations) < 2:
        return None
    along = _along(runs.configurations)
    first = runs.configurations[0].label
    if along is None:
        panels = tuple(_dots(runs, name, relative[name], first) for name in names)
        caption = f"Each row is an instance; the place is the measure as a multiple of that with {first}."
    else:
        panels = tuple(_curve(runs, name, relative[name], along) for name in names)
        caption = f"Each line is an instance; the height is the measure as a multiple of that with {first}."
    return Figure(key="plans", title="Plans by setting", caption=caption, panels=panels)


def _relative(value: Floats) -> Floats:
    """Rows divided by their first column; NaN where either is missing or not above 0."""
    base = np.where(value[:, :1] > 0, value[:, :1], np.nan)
    return np.asarray(np.where(value > 0, value, np.nan) / base)


def _varies(value: Floats) -> bool:
    found = value[:, 1:]
    return bool((~np.isnan(found)).any())


def _along(configurations: tuple[Configuration, ...]) -> str | None:
    """The numeric parameter with the most values, at least three; else None."""
    best, most = None, LEAST_POINTS - 1
    for name, value in configurations[0].parameters:
        values = {dict(c.parameters)[name] for c in configurations if _is_number(dict(c.parameters)[name])}
        if _is_number(value) and len(values) > most:
            best, most = name, len(values)
    return best


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _curve(runs: Runs, name: str, value: Floats, along: str) -> Panel:
    """A line for each instance and combination of the other settings, and their geometric mean where all have one."""
    others: dict[str, list[int]] = {}
    for k, c in enumerate(runs.configurations):
        if _is_number(dict(c.parameters)[along]):
            rest = [f"{p}={said(v)}" for p, v in c.parameters if p != along]
            others.setdefault(" ".join([c.solver, c.formulation, f"{c.limit_s:g} s", *rest]), []).append(k)
    lines, every = [], set()
    for dash, (setting, mine) in enumerate(others.items()):
        x = np.array([float(dict(runs.configurations[k].parameters)[along]) for k in mine])
        order = np.argsort(x)
        y = value[:, np.array(mine)[order]]
        every |= set(x.tolist())
        for i, instance in enumerate(runs.instances[:MOST_LINES]):
            label = instance if len(others) == 1 else f"{instance} {setting}"
            lines.append(Line(label=label[:80], colour=i, dash=dash + i // 7, x=x[order], y=y[i]))
        lines += _summed(x[order], y, "" if len(others) == 1 else setting)
    found = np.concatenate([line.y for line in lines])
    found = found[~np.isnan(found)]
    return Panel(
        title=stem(name),
        x_title=along,
        y_title=f"multiple of {runs.configurations[0].label}",
        lines=tuple(lines),
        kind="lines",
        x_log=min(every) > 0,
        y_log=bool(len(found) and found.max() > LOG_FROM * found.min()),
        x_ticks=tuple(sorted(every)),
    )


def _summed(x: Floats, y: Floats, setting: str) -> list[Line]:
    whole = y[~np.isnan(y).any(axis=1)]
    if len(whole) < 2:
        return []
    middle = np.exp(np.log(whole).mean(axis=0))
    return [Line(label=f"geometric mean {setting}".strip(), colour=SUMMARY, dash=0, x=x, y=middle)]


def _dots(runs: Runs, name: str, value: Floats, first: str) -> Panel:
    rows = runs.instances[:MOST_LINES]
    y = np.arange(len(rows), dtype=np.float64)
    lines = tuple(
        Line(label=c.label, colour=k, dash=k, x=value[: len(rows), k], y=y) for k, c in enumerate(runs.configurations)
    )
    title = stem(name)
    return Panel(title=title, x_title=f"multiple of {first}", y_title="", lines=lines, kind="dots", rows=rows)
