"""The report of a study as files: tables as CSV, Markdown, pictures, and one HTML page of which nothing is loaded."""

import base64
import hashlib
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pesto.core.distribution import install_command
from pesto.core.errors import FileError
from pesto.core.files.disk import make_folder, write_atomic
from pesto.core.files.json import shown
from pesto.reporting.show.drawing import INK, available
from pesto.reporting.show.lines import Column, Value, escape_markdown, format_value, to_csv, to_markdown
from pesto.research.study.report.content import Report, build_report
from pesto.research.study.report.figures import Figure
from pesto.research.study.report.pictures import MADE_BY, PAPER, draw
from pesto.research.study.report.runs import read

if TYPE_CHECKING:
    from markupsafe import Markup


MOST_ROWS = 200
"""Rows of one table in the text; all are in the CSV."""
INSTALL = install_command("study")
NO_PICTURES = f"No pictures: matplotlib is not installed. To get them: {INSTALL} and write the report again."
DEFINITIONS = (
    ("makespan, lower bound", "in ticks, as the solvers count; a bound holds whatever the status."),
    ("gap", "(makespan - lower bound) / makespan; 100 % without a schedule."),
    (
        "best bound, best makespan",
        "the largest bound and the least makespan that any configuration has for the instance (a start counts too, a "
        "contradicted bound does not).",
    ),
    (
        "gap closed",
        "(gap of the start - gap at the end) / gap of the start; against the best bound, or by the own bound: from the "
        "bound that was known before the solver began to its own. Without a schedule at the end nothing is closed.",
    ),
    ("shifted geometric mean", "exp(mean(ln(s + 1))) - 1 seconds (Achterberg 2007)."),
    (
        "primal integral",
        "the integral of the primal gap, (makespan - best makespan) / makespan, from 0 s to the limit, in seconds "
        "(Berthold 2013); 100 % before the first schedule, so a run without one has its whole limit.",
    ),
    (
        "performance profile",
        "the share of problems on which a configuration is within a factor of the best one (Dolan and Moré 2002). Read "
        "off who is best at factor 1 and who is surest to the right; ranks further down depend on the field.",
    ),
    ("problem", "an instance with one seed."),
    (
        "failed",
        "crashed, hung, invalid (an answer that the checker refused), missing (solver not installed) or refused "
        "(instance not built). Failures count as 100 % gap and with at least the limit as their seconds, and are never "
        "left out of a mean, unless no cell of the configuration has run; but refused cells are only counted.",
    ),
    ("refused", "no solver was given a problem, so the cell enters no gap, integral, time or picture."),
    (
        "contradicted",
        "a bound above a known schedule, or a proof that none exists where there is one. It counts neither as a bound "
        "nor as a proof: what was known before the solver began takes its place.",
    ),
)
CONFLICTS = (
    "These claims cannot all be true, so a solver, or the identity of an instance, is wrong. They are left "
    "out of the bounds and proofs in all that follows, and their cells count as contradicted."
)
QUERIES = (
    "The file of the study is an SQLite database: the table cells has every cell of the grid, the view rows those with "
    "a result, traces every step of progress. Times are ticks where they are whole numbers; cells of ordinal below 0 "
    "belong to an earlier form of the study. The tables above are beside this report as CSV."
)


def to_text(report: Report, *, pictures: bool, database: str) -> str:
    """Return report.md; `pictures` is true if there are PNG files beside it."""
    lines = [f"# {escape_markdown(report.name)}", "", *(f"- {escape_markdown(fact)}" for fact in report.facts)]
    if report.conflicts:
        lines += ["", "## Contradictions", "", CONFLICTS, ""]
        lines += [f"- {escape_markdown(conflict)}" for conflict in report.conflicts[:MOST_ROWS]]
    if not pictures and report.figures:
        lines += ["", NO_PICTURES]
    for section in report.sections:
        for k, table in enumerate(section.tables):
            lines += ["", f"## {escape_markdown(table.title)}", "", to_markdown(table, MOST_ROWS)]
            lines += ["", escape_markdown(table.note)] if table.note else []
            lines += ["", escape_markdown(section.note)] if k == 0 and section.note else []
        for figure in section.figures if pictures else ():
            title = escape_markdown(figure.title)
            lines += ["", f"### {title}", "", f"![{title}]({figure.key}.png)", "", escape_markdown(figure.caption)]
    lines += ["", "## What the words mean", ""]
    lines += [f"- **{word}**: {escape_markdown(text)}" for word, text in DEFINITIONS]
    lines += ["", "## Ask the file itself", "", QUERIES, "", "```sh", *queries(database), "```", ""]
    return "\n".join(lines)


def queries(database: str) -> list[str]:
    """Commands that query the study: its file by sqlite3 and by DuckDB, and by the latter a CSV of the report."""
    counted = "SELECT solver, formulation, status, count(*), avg(seconds) FROM {} GROUP BY solver, formulation, status"
    attached = f"ATTACH {_quoted(database)} AS s (TYPE sqlite); {counted.format('s.rows WHERE ordinal >= 0')}"
    return [
        f"sqlite3 -box {shlex.quote(database)} {_word(counted.format('rows WHERE ordinal >= 0'))}",
        f"duckdb -c {_word(attached)}  # with DuckDB's extension sqlite",
        f"duckdb -c {_word(counted.format(_quoted('cells_schedule.csv')))}  # in the folder of this report",
    ]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _word(text: str) -> str:
    """One word of a shell: SQL stays readable between double quotes, where nothing in it means more there."""
    return shlex.quote(text) if set('"$`\\!') & set(text) else f'"{text}"'


MOST_PAGE_ROWS = 2000
"""Rows of one table; all are in the CSV."""
_STATES = re.compile(
    r"^(optimal|feasible|infeasible|unknown|crashed|hung|invalid|missing|refused|contradicted|pending)$|^0 % in "
)
_COLOURED = {"optimal": "good", None: "good", "pending": "idle", "feasible": "", "infeasible": "", "unknown": ""}
"""The class of a cell by its state; any other state is bad."""
_PROLOG = re.compile(r"^.*?(?=<svg)|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
_OWN_NAMES = re.compile(r'(\bid="|url\(#|href="#)')
_SIZE = re.compile(r'<svg [^>]*?viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>')


def page_available() -> bool:
    """Return True if jinja2 (the extra `study`) is installed."""
    try:
        import jinja2 as _  # noqa: F401
    except ImportError:
        return False
    return True


def to_page(report: Report, drawn: Mapping[str, bytes], database: str) -> str:
    """The page; `drawn` has the SVG of each figure by its key, and lacks those that could not be drawn."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("pesto.research.study.report")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters["cells"] = _page_cells
    style, script = (Markup(loader.get_source(made, name)[0]) for name in ("page.css", "page.js"))  # noqa: S704
    return made.get_template("page.html").render(
        report=report,
        pictures={
            figure.key: inline_svg(figure, drawn[figure.key]) for figure in report.figures if figure.key in drawn
        },
        words={"CONFLICTS": CONFLICTS, "NO_PICTURES": NO_PICTURES, "DEFINITIONS": DEFINITIONS, "QUERIES": QUERIES},
        queries="\n".join(queries(database)),
        most=MOST_PAGE_ROWS,
        style=style,
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def inline_svg(figure: Figure, svg: bytes) -> "Markup":
    """An SVG document as an element: without prolog and comments, its names its own, text in the page's colour."""
    from markupsafe import Markup, escape

    text = _OWN_NAMES.sub(rf"\g<1>{figure.key}-", _PROLOG.sub("", svg.decode()))
    label = f'<svg role="img" aria-label="{escape(figure.title)}" '
    result = _SIZE.search(text)
    if result:  # in place of the fixed size: as wide as the page allows
        label += f'width="{float(result[1]) * 4 / 3:.0f}" viewBox="0 0 {result[1]} {result[2]}" '
        text = text[: result.start()] + label + 'xmlns:xlink="http://www.w3.org/1999/xlink">' + text[result.end() :]
    # What matplotlib has drawn is markup; names are paths of glyphs in it.
    return Markup(text.replace(f"fill: {PAPER}", "fill: none").replace(INK, "currentColor"))  # noqa: S704


def _page_cells(row: tuple[Value, ...], columns: tuple[Column, ...]) -> Iterator[tuple[str, str, str | None]]:
    """Text and classes of each cell, and what it is sorted by where that is not its text."""
    for value, column in zip(row, columns, strict=True):
        text = format_value(value, column.kind)
        state = _STATES.match(text) if isinstance(value, str) else None
        colour = _COLOURED.get(state[1], "bad") if state else ""
        classes = ("text" if column.kind == "text" else "", colour, "long" if len(text) > 60 else "")
        key = "" if value is None else repr(value) if isinstance(value, int | float) else None
        yield text, " ".join(filter(None, classes)), key


FORMATS = ("md", "csv", "html", "png", "svg")
_PICTURES = ("profile_time", "profile_makespan", "gap_over_time", "primal_integral", "formulations", "plans")
_TABLES = {
    "configurations": "configuration,", "formulations": "solver,", "failures": "configuration,", "curves": "figure,",
    "cells_schedule": "key,stage,", "cells_plan": "key,stage,", "plans": "instance,", "plan_multiples": "setting,",
    **dict.fromkeys((f"instances_{x}" for x in ("status", "makespan", "bound", "gap", "seconds")), "instance,family,"),
}  # fmt: skip
"""Files of a report of any study; tables by the beginning of their names."""
_HEAD = 4096
"""Bytes of a file that say who made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Written report: its contents and paths."""

    report: Report
    files: tuple[Path, ...]
    hint: str
    """How to get what is missing; empty if nothing is."""

    def as_object(self) -> dict[str, Any]:
        """The keys of `pesto study report --json`."""
        made = {table.key: table for table in self.report.files}.get("configurations")
        keys = [column.key for column in made.columns] if made else []
        return {
            "study": self.report.name,
            "cells": self.report.cells,
            "done": self.report.done,
            "pending": self.report.pending,
            "failed": self.report.failed,
            "conflicts": list(self.report.conflicts),
            "configurations": [dict(zip(keys, row, strict=True)) for row in made.rows] if made else [],
            "files": [str(path) for path in self.files],
            "hint": self.hint,
        }


def write_report(database: Path, folder: Path, formats: Iterable[str] = FORMATS) -> Written:
    """Read the study in `database` and write its report into `folder`, which is made if need be.

    Tables and pictures that an earlier report has left there, in one of the formats, and that this one has no more are
    removed. Works on a study that is still running. Pictures need matplotlib: without it all else is written.
    FileError when something cannot be read or written, InputError when the database is no study
    (`pesto.research.study.report.runs.read`).
    """
    report, wanted = build_report(read(database)), set(formats)
    needed = wanted & {"png", "svg"} | ({"svg"} if "html" in wanted else set())
    drawn, hint = dict[str, dict[str, bytes]](), ""
    if needed and report.figures and not available():
        hint = f"no pictures: matplotlib is not installed - {INSTALL}"
    elif needed:
        drawn = {figure.key: draw(figure, tuple(sorted(needed))) for figure in report.figures}
    if "html" in wanted and not page_available():
        wanted, hint = wanted - {"html"}, f"{hint}\nno page: jinja2 is not installed - {INSTALL}".strip()
    named = shown(database.name)
    files: dict[str, str | bytes] = {}
    if "csv" in wanted:
        files |= {f"{table.key}.csv": to_csv(table) for table in report.files}
    for form in ("png", "svg"):
        files |= {f"{key}.{form}": data[form] for key, data in drawn.items() if form in wanted}
    if "md" in wanted:
        files["report.md"] = to_text(report, pictures=bool(drawn) and "png" in wanted, database=named)
    if "html" in wanted:
        files["report.html"] = to_page(report, {key: data["svg"] for key, data in drawn.items()}, named)
    make_folder(folder)
    for name, data in files.items():
        write_atomic(folder / name, data if isinstance(data, bytes) else data.encode("utf-8", "replace"))
    _clear(folder, wanted, files)
    return Written(report=report, files=tuple(folder / name for name in files), hint=hint)


def _clear(folder: Path, wanted: set[str], files: Collection[str]) -> None:
    """Remove what an earlier report wrote and this one has not: known names whose content is a report's."""
    known = [(f"{key}.csv", begin) for key, begin in _TABLES.items() if "csv" in wanted]
    known += [(f"{key}.{form}", MADE_BY) for form in ("png", "svg") if form in wanted for key in _PICTURES]
    for name, mark in known:
        path = folder / name
        try:
            if name in files or not path.is_file():
                continue
            with path.open("rb") as file:
                head = file.read(_HEAD)
            if head.startswith(mark.encode()) if name.endswith(".csv") else mark.encode() in head:
                path.unlink()
        except OSError as error:
            reason = (error.strerror or "failed").lower()
            raise FileError.build(
                f"cannot remove {shown(path)} of an earlier report: {reason}", remedy="remove it"
            ) from error
