"""Everything that a report says, before it is written as Markdown, as a page or as JSON."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pesto.core.files.json import shown
from pesto.core.quantities import plural
from pesto.reporting.show.lines import Column, Table, texts
from pesto.research.study.cells import FAILED
from pesto.research.study.report import tables
from pesto.research.study.report.figures import Figure, comparison_figures, formulation_figure, plan_figure
from pesto.research.study.report.runs import OPTIMAL, StageRuns, StudyRows, comparable, group_runs, parameter_text

MOST_NAMED = 12
"""Names in a list that is meant to be read."""
_IN_LABEL = ("solver", "formulation", "limit_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the report, under the title of its first table."""

    tables: tuple[Table, ...] = ()
    """For people: in their order, less what only a program wants."""
    more: tuple[Table, ...] = ()
    """Further ones, for a page that can fold them away."""
    figures: tuple[Figure, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A study's report."""

    name: str
    cells: int
    done: int
    failed: dict[str, int]
    facts: tuple[str, ...]
    conflicts: tuple[str, ...]
    sections: tuple[Section, ...]
    files: tuple[Table, ...]
    """The tables that become CSV, whole."""

    @property
    def pending(self) -> int:
        """Cells without a result."""
        return self.cells - self.done

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures."""
        return tuple(figure for section in self.sections for figure in section.figures)


def build_report(rows: StudyRows) -> Report:
    """The report of a study as far as it has run."""
    solves, whole = group_runs(rows, plans=False), group_runs(rows, plans=True)
    result = [*_comparison(solves), *_plans(whole)]
    failed = tables.failures(solves, whole)
    sections = [section for section, _ in result] + ([Section(tables=(failed,))] if failed.rows else [])
    # Every line of every figure, point by point.
    points = tuple(
        (figure.key, panel.title or panel.y_title, line.label, x, y)
        for section in sections
        for figure in section.figures
        for panel in figure.panels
        for line in panel.lines
        for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True)
        if x == x and y == y  # noqa: PLR0124 - not NaN
    )
    columns = (*texts("figure", "panel", "line"), Column(key="x", title="x"), Column(key="y", title="y"))
    curves = Table(key="curves", title="Points of the pictures", columns=columns, rows=points)
    status = Counter([*solves.status.tolist(), *whole.status.tolist()])
    return Report(
        name=shown(rows.name),
        cells=len(rows.cells),
        done=int(solves.finished.sum() + whole.finished.sum()),
        failed={name: status[name] for name in FAILED if status[name]},
        facts=tuple(_facts(rows, solves, whole)),
        conflicts=solves.conflicts + whole.conflicts,
        sections=tuple(sections),
        files=(*(t for _, files in result for t in files), failed, *([curves] if curves.rows else [])),
    )


def _comparison(runs: StageRuns) -> Iterator[tuple[Section, tuple[Table, ...]]]:
    """Sections with the tables that become CSV; for people less the columns that the label repeats."""
    if not len(runs.cells):
        return
    summary, sides, figures = tables.configurations(runs), tables.formulations(runs), comparison_figures(runs)
    brief = summary.brief(lambda c: c.key not in _IN_LABEL)
    cells = tables.single_cells(runs, "cells_schedule")
    # Configurations and problems that pictures leave out.
    ran, problems = comparable(runs)
    silent = [c.label for k, c in enumerate(runs.configurations) if k not in set(ran.tolist())]
    note = f"Not drawn, because no cell of theirs has run: {_listed(silent)}. " if silent else ""
    if not len(problems):
        note += "No profiles and curves: there is no problem that every configuration has finished."
    elif not figures:
        note += "No profiles and curves: nothing was found on the problems that every configuration has finished."
    yield Section(tables=(brief,), figures=figures, note=note.strip()), (summary, cells)
    if sides.rows:
        drawn = formulation_figure(runs)
        yield Section(tables=(tables.compact(sides),), figures=(drawn,) if drawn else ()), (sides,)
    overview, *matrices = tables.instances(runs)
    yield Section(tables=(overview,), more=tuple(matrices)), tuple(matrices)


def _plans(runs: StageRuns) -> Iterator[tuple[Section, tuple[Table, ...]]]:
    """Likewise; for people less the measures of groups."""
    if not len(runs.cells):
        return
    measured = tables.measured_of(runs)
    whole, ratios = tables.plans(runs, measured), tables.multiples(runs, measured)
    drawn = plan_figure(runs, measured)
    if ratios.rows:
        yield Section(tables=(ratios.brief(_ungrouped),), figures=(drawn,) if drawn else ()), (ratios,)
    yield Section(tables=(whole.brief(_ungrouped),)), (whole, tables.single_cells(runs, "cells_plan"))


def _ungrouped(column: Column) -> bool:
    return "." not in column.key


def _facts(rows: StudyRows, solves: StageRuns, whole: StageRuns) -> Iterator[str]:
    for runs, what in ((solves, "solves"), (whole, "plans")):
        if not len(runs.cells):
            continue
        done = int(runs.finished.sum())
        bad = Counter(s for s in runs.status.tolist() if s in FAILED)
        told = "; failed: " + ", ".join(f"{n} {s}" for s, n in bad.items()) if bad else ""
        wait = f", {len(runs.cells) - done} pending" if done < len(runs.cells) else ""
        yield f"{what}: {done} of {len(runs.cells)} cells done{wait}{told}"
        seeds = len({c.seed for c in runs.cells})
        sizes = (plural(len(runs.instances), "instance"), plural(len(runs.configurations), "configuration"))
        # Settings shared by all configurations, which their labels do not show.
        first = runs.configurations[0]
        parts = [f"{first.limit_s:g} s"] if len({c.limit_s for c in runs.configurations}) == 1 else []
        for name in ("formulation", "solver"):
            values = {getattr(c, name) for c in runs.configurations}
            parts += [shown(v, 40) for v in values if v and len(values) == 1]
        shared = f"; everywhere {', '.join(parts)}" if parts else ""
        yield f"{what}: {', '.join(sizes)}, {plural(seeds, 'seed')}{shared}"
    if len(solves.cells):
        tried = np.unique(solves.instance[solves.posed])
        closed = np.unique(solves.instance[(solves.verdict == OPTIMAL) | solves.none_exists])
        still = [solves.instances[k] for k in np.setdiff1d(tried, closed)]
        rest = f"; open: {_listed(still)}" if still else ""
        yield f"solved by at least one configuration: {len(closed)} of {plural(len(tried), 'instance')}{rest}"
    versions = {(c.solver, c.outcome.version) for c in rows.cells if c.outcome and c.outcome.version}
    if versions:
        yield "versions: " + _listed(sorted(f"{shown(s, 40)} {shown(v, 40)}" for s, v in versions))
    for runs in (solves, whole):
        yield from _several_versions(runs)
    yield f"made by pesto {shown(rows.created_by, 40)}"
    if rows.former:
        yield f"left out: {plural(rows.former, 'result')} of cells that an earlier form of the study had"


def _several_versions(runs: StageRuns) -> Iterator[str]:
    """A line where cells of one configuration were made by different solvers or programs."""
    result: list[dict[str, set[str]]] = [{"": set(), "pesto ": set()} for _ in runs.configurations]
    for k, cell in zip(runs.configuration.tolist(), runs.cells, strict=True):
        if cell.outcome:
            result[k][""].add(shown(cell.outcome.version, 40))
            result[k]["pesto "].add(shown(parameter_text(cell.outcome.measures.get("pesto", "")), 40))
    named = [
        f"{c.label} ({', '.join(f'{what}{v}' for v in sorted(versions - {''}))})"
        for c, kinds in zip(runs.configurations, result, strict=True)
        for what, versions in kinds.items()
        if len(versions - {""}) > 1
    ]
    if named:
        yield f"cells of several versions: {_listed(named)}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
