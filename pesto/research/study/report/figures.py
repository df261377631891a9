"""The pictures of a report as data: which lines, on which axes, with which words."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pesto.core.files.json import shown
from pesto.research.study.report import curves
from pesto.research.study.report.runs import (
    LONGEST,
    Configuration,
    Floats,
    Ints,
    StageRuns,
    comparable,
    paired_cells,
    pairs_of_formulations,
)
from pesto.research.study.report.tables import SECONDS, Measured, is_number, measure, stem

Kind = Literal["steps", "lines", "dots", "scatter"]

POINTS = 400
"""Times at which curves are stated, evenly on a logarithmic axis."""
DECADES = 4
"""Maximum decades of time drawn before the longest limit; there is nothing to see before the first event."""
LOG_FROM = 8.0
"""A profile whose largest ratio is above this has a logarithmic axis."""
SUMMARY = -1
"""The colour of a line that sums the others up."""
FIRST = ("step_ms", "last_step_ms", "coarse_ms", "coarse_makespan_ms", SECONDS)
"""Measures in the order in which they are drawn, where they exist; `MOST_PANELS` of them."""
MOST_PANELS = 4
MOST_LINES = 24
LEAST_POINTS = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FigureLine:
    """One line or set of points; colour and dash are numbers that the drawing turns into looks."""

    label: str
    colour: int
    dash: int
    x: Floats
    y: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Panel:
    """Lines on one pair of axes."""

    title: str = ""
    x_title: str
    y_title: str
    lines: tuple[FigureLine, ...]
    kind: Kind = "steps"
    x_log: bool = False
    y_log: bool = False
    percent: str = ""
    """Axes in percent: "x", "y", "xy" or none."""
    x_ticks: tuple[float, ...] = ()
    """The few places on the x axis that there are values for; none where it is continuous."""
    rows: tuple[str, ...] = ()
    """Dots: the names of y = 0, 1, ..."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Figure:
    """A picture: panels under one legend."""

    key: str
    """Name of its files."""
    title: str
    caption: str
    panels: tuple[Panel, ...]


def comparison_figures(runs: StageRuns) -> tuple[Figure, ...]:
    """Profiles and curves over the problems that every configuration has finished; none without such a problem."""
    drawn, problems = comparable(runs)
    if not len(problems):
        return ()
    over = f"Over the problems that all of the drawn configurations have finished: {len(problems)}."
    spent = np.where(runs.proved, np.maximum(runs.seconds, curves.LEAST_S), np.inf)
    made, best = (np.where(np.isnan(x), np.inf, x) for x in (runs.makespan, runs.best_makespan))
    costs = np.column_stack([matrix(runs, made, drawn, problems), matrix(runs, best, drawn, problems)[:, 0]])
    profiles = (
        ("profile_time", "Time to proof", "time to proof, as a multiple of the fastest configuration's",
         "Performance profile (Dolan and Moré 2002) of the time to a proof, of an optimum or that no schedule exists: "
         f"the share of problems that a configuration decides within a multiple of the shortest time. {over}",
         curves.ratios(matrix(runs, spent, drawn, problems))),
        ("profile_makespan", "Makespan at the end", "makespan, as a multiple of the best known",
         "Performance profile of the makespan at the end: the share of problems on which a configuration comes within "
         f"a multiple of the best schedule known. {over}",
         curves.ratios(costs)[:, :-1]),
    )  # fmt: skip
    return (
        *(
            Figure(key=key, title=title, caption=caption, panels=(_profile(runs, drawn, ratio, x_title),))
            for key, title, x_title, caption, ratio in profiles
            if np.isfinite(ratio).any() and len(drawn) > 1
        ),
        *_curves(runs, (drawn, problems), over),
    )


def line_styles(configurations: Iterable[Configuration]) -> list[tuple[int, int]]:
    """Colour and dash of each: the colour says the solver and the dash its settings, if there are several solvers."""
    listed = list(configurations)
    solvers = list(dict.fromkeys(c.solver for c in listed))
    if len(solvers) == 1:
        return [(k, 0) for k in range(len(listed))]
    first = next((c.formulation for c in listed if c.formulation), "")
    keys = [(c.formulation or first, c.limit_s, repr(c.parameters)) for c in listed]
    settings = list(dict.fromkeys(keys))
    return [(solvers.index(c.solver), settings.index(key)) for c, key in zip(listed, keys, strict=True)]


def matrix(runs: StageRuns, values: Floats, drawn: Ints, problems: Ints) -> Floats:
    """One value a cell as problems x configurations."""
    mine = np.flatnonzero(np.isin(runs.problem, problems) & np.isin(runs.configuration, drawn) & runs.posed)
    result = np.full((len(problems), len(drawn)), np.nan)
    place = np.searchsorted(problems, runs.problem[mine]), np.searchsorted(drawn, runs.configuration[mine])
    result[place] = values[mine]
    return result


def _profile(runs: StageRuns, drawn: Ints, ratio: Floats, x_title: str) -> Panel:
    listed = [runs.configurations[k] for k in drawn]
    most = ratio[np.isfinite(ratio)].max()
    end = most * 1.1 if most > LOG_FROM else 1 + max(1.05 * (most - 1), 0.01)
    lines = []
    for k, (c, (colour, dash)) in enumerate(zip(listed, line_styles(listed), strict=True)):
        tau, rho = curves.profile(ratio[:, k])
        x, y = np.append(tau, end), np.append(rho, rho[-1])
        lines.append(FigureLine(label=c.label, colour=colour, dash=dash, x=x, y=y))
    y_title = "share of problems"
    return Panel(x_title=x_title, y_title=y_title, lines=tuple(lines), x_log=bool(most > LOG_FROM), percent="y")


def _curves(runs: StageRuns, over: tuple[Ints, Ints], said: str) -> tuple[Figure, ...]:
    """Gap over time; primal gap over time with its integral."""
    (drawn, problems), progress = over, runs.progress
    listed = [runs.configurations[k] for k in drawn]
    lines: tuple[list[FigureLine], ...] = ([], [], [])
    # Moments from just before the first event on.
    events = progress.seconds[np.isin(runs.configuration[progress.run], drawn)]
    end = max(c.limit_s for c in listed)
    begin = np.clip(0.8 * events[events > 0].min(initial=end), end / 10**DECADES, end / 10)
    shared = np.geomspace(begin, end, POINTS) if end else np.zeros(1)
    for k, (c, (colour, dash)) in zip(drawn.tolist(), zip(listed, line_styles(listed), strict=True), strict=True):
        mine = np.flatnonzero((runs.configuration == k) & np.isin(runs.problem, problems) & runs.posed)
        when = np.append(shared[shared < c.limit_s], c.limit_s)
        # Mean gap, mean primal gap and its integral of some runs at each time.
        at = np.flatnonzero(np.isin(progress.run, mine))
        run, seconds = progress.run[at], progress.seconds[at]
        gap = curves.mean_steps(run, seconds, progress.gap[at], len(mine))
        primal = curves.mean_steps(run, seconds, progress.primal[at], len(mine))
        means = curves.at(*gap, when), curves.at(*primal, when), curves.integral_until(*primal, when)
        for series, y in zip(lines, means, strict=True):
            series.append(FigureLine(label=c.label, colour=colour, dash=dash, x=when, y=y))
    time = "seconds since the start of the solver"
    panels = [
        Panel(x_title=time, y_title=title, lines=tuple(series), kind="lines", x_log=bool(percent), percent=percent)
        for title, series, percent in zip(
            ("mean gap", "mean primal gap", "mean primal integral (s)"), lines, ("y", "y", ""), strict=True
        )
    ]
    first = (
        "Mean over the runs of the gap between a run's best schedule and its own lower bound, (makespan - bound) / "
        f"makespan, at each moment; 100 % before the first schedule. {said}"
    )
    second = (
        "Left: mean primal gap, between a run's best schedule and the best known of its instance. Right: its integral "
        f"up to each moment, the mean primal integral (Berthold 2013); lower is better. {said}"
    )
    return (
        Figure(key="gap_over_time", title="Gap over time", caption=first, panels=(panels[0],)),
        Figure(key="primal_integral", title="Primal gap and integral", caption=second, panels=(panels[1], panels[2])),
    )


def formulation_figure(runs: StageRuns) -> Figure | None:
    """Final gaps of two formulations against each other, a point a problem; None unless one pair of names is there."""
    pairs = pairs_of_formulations(runs)
    names = {(runs.configurations[a].formulation, runs.configurations[b].formulation) for a, b in pairs}
    if len(names) != 1:
        return None
    ((one, other),) = names
    limits = {runs.configurations[a].limit_s for a, _ in pairs}
    lines = []
    for k, (a, b) in enumerate(pairs):
        first, second = paired_cells(runs, a, b)
        x, y = runs.own_gap[first], runs.own_gap[second]
        c = runs.configurations[a]
        limit = [f"{c.limit_s:g} s"] if len(limits) > 1 else []
        label = shown(" ".join([c.solver, *limit, *c.settings()]), LONGEST)
        lines.append(FigureLine(label=label, colour=k, dash=k, x=x, y=y))
    if not any(len(line.x) for line in lines):
        return None
    titles = (f"final gap, {one} formulation", f"final gap, {other} formulation")
    panel = Panel(x_title=titles[0], y_title=titles[1], lines=tuple(lines), kind="scatter", percent="xy")
    caption = f"Each point is a problem; above the diagonal the {one} formulation ends with the smaller gap."
    return Figure(key="formulations", title="Final gaps of both formulations", caption=caption, panels=(panel,))


def plan_figure(runs: StageRuns, measured: Measured) -> Figure | None:
    """The measures as multiples of the first setting's; None when there is nothing to compare."""
    relative = {}
    for name in FIRST:
        value = measure(runs, measured, name)
        base = np.where(value[:, :1] > 0, value[:, :1], np.nan)
        relative[name] = np.asarray(np.where(value > 0, value, np.nan) / base)
    names = [name for name, value in relative.items() if (~np.isnan(value[:, 1:])).any()][:MOST_PANELS]
    if not names or len(runs.configurations) < 2:
        return None
    # Along the numeric parameter with the most values, at least three.
    along, most = None, LEAST_POINTS - 1
    for name, value in runs.configurations[0].parameters:
        values = {v for c in runs.configurations if is_number(v := dict(c.parameters)[name])}
        if is_number(value) and len(values) > most:
            along, most = name, len(values)
    first, rows = runs.configurations[0].label, runs.instances[:MOST_LINES]
    if along is None:
        y, panels = np.arange(len(rows), dtype=np.float64), []
        for name in names:
            lines = tuple(
                FigureLine(label=c.label, colour=k, dash=k, x=relative[name][: len(rows), k], y=y)
                for k, c in enumerate(runs.configurations)
            )
            x_title = f"multiple of {first}"
            panels.append(Panel(title=stem(name), x_title=x_title, y_title="", lines=lines, kind="dots", rows=rows))
        caption = f"Each row is an instance; the place is the measure as a multiple of that with {first}."
    else:
        panels = [_curve(runs, name, relative[name], along) for name in names]
        caption = f"Each line is an instance; the height is the measure as a multiple of that with {first}."
    return Figure(key="plans", title="Plans by setting", caption=caption, panels=tuple(panels))


def _curve(runs: StageRuns, name: str, value: Floats, along: str) -> Panel:
    """A line for each instance and combination of the other settings, and their geometric mean where all have one."""
    others: dict[str, list[int]] = {}
    for k, c in enumerate(runs.configurations):
        if is_number(dict(c.parameters)[along]):
            rest = " ".join([c.solver, c.formulation, f"{c.limit_s:g} s", *c.settings(but=along)])
            others.setdefault(rest, []).append(k)
    lines, every = [], set()
    for dash, (setting, mine) in enumerate(others.items()):
        x = np.array([float(dict(runs.configurations[k].parameters)[along]) for k in mine])
        order = np.argsort(x)
        y = value[:, np.array(mine)[order]]
        every |= set(x.tolist())
        for i, instance in enumerate(runs.instances[:MOST_LINES]):
            label = instance if len(others) == 1 else f"{instance} {setting}"
            lines.append(FigureLine(label=label[:80], colour=i, dash=dash + i // 7, x=x[order], y=y[i]))
        whole = y[~np.isnan(y).any(axis=1)]
        if len(whole) >= 2:
            middle, label = np.exp(np.log(whole).mean(axis=0)), f"geometric mean {'' if len(others) == 1 else setting}"
            lines.append(FigureLine(label=label.strip(), colour=SUMMARY, dash=0, x=x[order], y=middle))
    result = np.concatenate([line.y for line in lines])
    result = result[~np.isnan(result)]
    return Panel(
        title=stem(name),
        x_title=along,
        y_title=f"multiple of {runs.configurations[0].label}",
        lines=tuple(lines),
        kind="lines",
        x_log=min(every) > 0,
        y_log=bool(len(result) and result.max() > LOG_FROM * result.min()),
        x_ticks=tuple(sorted(every)),
    )
