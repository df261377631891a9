"""The pictures of a report as data: which lines, on which axes, with which words."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pesto.files.json import shown
from pesto.study.report import curves, profiles
from pesto.study.report.formulation_pairs import formulation_pairs, paired
from pesto.study.report.gap_over_time import Progress
from pesto.study.report.rows import Floats, Ints
from pesto.study.report.runs import LONGEST, Configuration, Runs, common, said

Kind = Literal["steps", "lines", "dots", "scatter"]

POINTS = 400
"""Times at which curves are stated, evenly on a logarithmic axis."""
DECADES = 4
"""Of time before the longest limit that are drawn, at most; nothing is to be seen before the first event."""
LOG_FROM = 8.0
"""A profile whose largest ratio is above this has a logarithmic axis."""
SUMMARY = -1
"""The colour of a line that sums the others up."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
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
    lines: tuple[Line, ...]
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


def comparison_figures(runs: Runs, progress: Progress) -> tuple[Figure, ...]:
    """Profiles and curves over the problems that every configuration has finished; none without such a problem."""
    drawn, problems = common(runs)
    if not len(problems):
        return ()
    over = f"Over the problems that all of the drawn configurations have finished: {len(problems)}."
    found = [
        _profile_of_time(runs, drawn, problems, over),
        _profile_of_makespan(runs, drawn, problems, over),
        *_curves(runs, progress, (drawn, problems), over),
    ]
    return tuple(figure for figure in found if figure is not None)


def looks(configurations: Iterable[Configuration]) -> list[tuple[int, int]]:
    """Colour and dash of each: the colour says the solver and the dash its settings, if there are several solvers."""
    listed = list(configurations)
    solvers = list(dict.fromkeys(c.solver for c in listed))
    if len(solvers) == 1:
        return [(k, 0) for k in range(len(listed))]
    first = next((c.formulation for c in listed if c.formulation), "")
    keys = [(c.formulation or first, c.limit_s, repr(c.parameters)) for c in listed]
    settings = list(dict.fromkeys(keys))
    return [(solvers.index(c.solver), settings.index(key)) for c, key in zip(listed, keys, strict=True)]


def matrix(runs: Runs, values: Floats, drawn: Ints, problems: Ints) -> Floats:
    """One value a cell as problems x configurations."""
    mine = np.flatnonzero(np.isin(runs.problem, problems) & np.isin(runs.configuration, drawn) & runs.posed)
    found = np.full((len(problems), len(drawn)), np.nan)
    place = np.searchsorted(problems, runs.problem[mine]), np.searchsorted(drawn, runs.configuration[mine])
    found[place] = values[mine]
    return found


def _profile_of_time(runs: Runs, drawn: Ints, problems: Ints, over: str) -> Figure | None:
    spent = np.where(runs.proved, np.maximum(runs.seconds, profiles.LEAST_S), np.inf)
    ratio = profiles.ratios(matrix(runs, spent, drawn, problems))
    if not np.isfinite(ratio).any() or len(drawn) < 2:
        return None
    panel = _profile(runs, drawn, ratio, "time to proof, as a multiple of the fastest configuration's")
    caption = (
        "Performance profile (Dolan and Moré 2002) of the time to a proof, of an optimum or that no schedule exists: "
        f"the share of problems that a configuration decides within a multiple of the shortest time. {over}"
    )
    return Figure(key="profile_time", title="Time to proof", caption=caption, panels=(panel,))


def _profile_of_makespan(runs: Runs, drawn: Ints, problems: Ints, over: str) -> Figure | None:
    made = np.where(np.isnan(runs.makespan), np.inf, runs.makespan)
    best = np.where(np.isnan(runs.best_makespan), np.inf, runs.best_makespan)
    cost = matrix(runs, made, drawn, problems)
    least = matrix(runs, best, drawn, problems)[:, :1]
    ratio = profiles.ratios(np.concatenate([cost, least], axis=1))[:, :-1]
    if not np.isfinite(ratio).any() or len(drawn) < 2:
        return None
    panel = _profile(runs, drawn, ratio, "makespan, as a multiple of the best known")
    caption = (
        "Performance profile of the makespan at the end: the share of problems on which a configuration comes within a "
        f"multiple of the best schedule known. {over}"
    )
    return Figure(key="profile_makespan", title="Makespan at the end", caption=caption, panels=(panel,))


def _profile(runs: Runs, drawn: Ints, ratio: Floats, x_title: str) -> Panel:
    listed = [runs.configurations[k] for k in drawn]
    most = ratio[np.isfinite(ratio)].max()
    end = most * 1.1 if most > LOG_FROM else 1 + max(1.05 * (most - 1), 0.01)
    lines = []
    for k, (c, (colour, dash)) in enumerate(zip(listed, looks(listed), strict=True)):
        tau, rho = profiles.profile(ratio[:, k])
        x, y = np.append(tau, end), np.append(rho, rho[-1])
        lines.append(Line(label=c.label, colour=colour, dash=dash, x=x, y=y))
    y_title = "share of problems"
    return Panel(x_title=x_title, y_title=y_title, lines=tuple(lines), x_log=bool(most > LOG_FROM), percent="y")


def _curves(runs: Runs, progress: Progress, over: tuple[Ints, Ints], said: str) -> tuple[Figure, ...]:
    """Gap over time; primal gap over time with its integral."""
    drawn, problems = over
    listed = [runs.configurations[k] for k in drawn]
    lines: tuple[list[Line], ...] = ([], [], [])
    shared = _times(progress.seconds[np.isin(runs.configuration[progress.run], drawn)], max(c.limit_s for c in listed))
    for k, (c, (colour, dash)) in zip(drawn.tolist(), zip(listed, looks(listed), strict=True), strict=True):
        mine = np.flatnonzero((runs.configuration == k) & np.isin(runs.problem, problems) & runs.posed)
        when = np.append(shared[shared < c.limit_s], c.limit_s)
        for series, y in zip(lines, _means(progress, mine, when), strict=True):
            series.append(Line(label=c.label, colour=colour, dash=dash, x=when, y=y))
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


def _times(events: Floats, end: float) -> Floats:
    """Moments from just before the first event on."""
    begin = np.clip(0.8 * events[events > 0].min(initial=end), end / 10**DECADES, end / 10)
    return np.geomspace(begin, end, POINTS) if end else np.zeros(1)


def _means(progress: Progress, mine: Ints, when: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean gap, mean primal gap and its integral of some runs at each time."""
    at = np.flatnonzero(np.isin(progress.run, mine))
    run, seconds = progress.run[at], progress.seconds[at]
    gap = curves.mean_steps(run, seconds, progress.gap[at], len(mine))
    primal = curves.mean_steps(run, seconds, progress.primal[at], len(mine))
    return curves.at(*gap, when), curves.at(*primal, when), curves.integral_until(*primal, when)


def formulation_figure(runs: Runs) -> Figure | None:
    """Final gaps of two formulations against each other, a point a problem; None unless one pair of names is there."""
    pairs = formulation_pairs(runs)
    names = {(runs.configurations[a].formulation, runs.configurations[b].formulation) for a, b in pairs}
    if len(names) != 1:
        return None
    ((one, other),) = names
    limits = {runs.configurations[a].limit_s for a, _ in pairs}
    lines = []
    for k, (a, b) in enumerate(pairs):
        first, second = paired(runs, a, b)
        x, y = runs.own_gap[first], runs.own_gap[second]
        c = runs.configurations[a]
        limit = [f"{c.limit_s:g} s"] if len(limits) > 1 else []
        label = shown(" ".join([c.solver, *limit, *(f"{p}={said(v)}" for p, v in c.parameters)]), LONGEST)
        lines.append(Line(label=label, colour=k, dash=k, x=x, y=y))
    if not any(len(line.x) for line in lines):
        return None
    titles = (f"final gap, {one} formulation", f"final gap, {other} formulation")
    panel = Panel(x_title=titles[0], y_title=titles[1], lines=tuple(lines), kind="scatter", percent="xy")
    caption = f"Each point is a problem; above the diagonal the {one} formulation ends with the smaller gap."
    return Figure(key="formulations", title="Final gaps of both formulations", caption=caption, panels=(panel,))
