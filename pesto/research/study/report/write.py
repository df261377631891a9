"""The report of a study: tables as CSV, a text, pictures and a page, written from the study's file."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pesto.core.errors import FileError
from pesto.core.files.disk import make_folder, write_atomic
from pesto.core.files.json import shown
from pesto.reporting.show.drawing import available
from pesto.reporting.show.table import to_csv
from pesto.research.study.report import page
from pesto.research.study.report.content import Report, build_report
from pesto.research.study.report.pictures import MADE_BY, draw
from pesto.research.study.report.rows import read
from pesto.research.study.report.text import INSTALL, to_text

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
    (`pesto.research.study.report.rows.read`).
    """
    report, wanted = build_report(read(database)), set(formats)
    drawn, hint = _drawn(report, wanted)
    if "html" in wanted and not page.available():
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
        files["report.html"] = page.to_page(report, {key: data["svg"] for key, data in drawn.items()}, named)
    written = _put(folder, files)
    _clear(folder, wanted, files)
    return Written(report=report, files=written, hint=hint)


def _drawn(report: Report, wanted: set[str]) -> tuple[dict[str, dict[str, bytes]], str]:
    """Each figure by key and format, as far as pictures are wanted; and a hint when they cannot be."""
    needed = wanted & {"png", "svg"} | ({"svg"} if "html" in wanted else set())
    if not needed or not report.figures:
        return {}, ""
    if not available():
        return {}, f"no pictures: matplotlib is not installed - {INSTALL}"
    return {figure.key: draw(figure, tuple(sorted(needed))) for figure in report.figures}, ""


def _put(folder: Path, files: Mapping[str, str | bytes]) -> tuple[Path, ...]:
    make_folder(folder)
    for name, data in files.items():
        write_atomic(folder / name, data if isinstance(data, bytes) else data.encode("utf-8", "replace"))
    return tuple(folder / name for name in files)


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
