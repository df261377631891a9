"""Text of pages: lines that fit the terminal, 80 columns where there is none, and tables as columns, CSV and Markdown.

No colour is used, so that there is none to switch off.
"""

import csv
import io
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Literal

from pesto.core.quantities import percent

COLUMNS = 80
"""Where nobody looks: in a pipe or a file."""
_NARROWEST, _WIDEST = 40, 100
"""Narrower lines have no room beside a label, wider ones are hard to read."""
LABEL = 14
"""Columns before the text of a fact."""


def columns() -> int:
    """Return the columns of the terminal that stdout is, within what can be read; COLUMNS where it is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return COLUMNS
    return min(max(shutil.get_terminal_size((COLUMNS, 24)).columns, _NARROWEST), _WIDEST)


def paragraph(text: str, indent: int = 0) -> str:
    """Return a text broken between words; its further lines are indented."""
    blanks = " " * indent
    return textwrap.fill(text, columns(), subsequent_indent=blanks, break_long_words=False, break_on_hyphens=False)


def fact(label: str, text: str) -> str:
    """Format a fact of a page: a label, and a text whose further lines are aligned below each other."""
    head = f"{label:{LABEL}s}" if len(label) < LABEL else f"{label} "
    # The label is put in place of as many characters that cannot be broken, so that its blanks stay.
    return head + paragraph("." * len(head) + text, LABEL)[len(head) :]


def command(label: str, words: Iterable[object]) -> str:
    """Return a command that can be typed as it stands: a line that is broken ends in a backslash."""
    parts: list[str] = []
    for word in map(str, words):
        if word.startswith("-") or not parts:
            parts.append(shlex.quote(word))
        else:  # an option and its value stay together
            parts[-1] += f" {shlex.quote(word)}"
    lines = parts[:1]
    for part in parts[1:]:
        if len(lines[-1]) + 1 + len(part) > columns() - LABEL - 2:
            lines.append(part)
        else:
            lines[-1] += f" {part}"
    return f"{label:{LABEL}s}" + f" \\\n{'':{LABEL}s}".join(lines)


Value = str | int | float | bool | None
Kind = Literal["text", "number", "percent", "seconds", "multiple"]

NONE = "\u2013"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MARKUP = re.compile(r"([\\`*\[\]~|#!$]|\b_|_\b)")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "://": "&#58;//", "www.": "www&#46;"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its name in the CSV, what people read above it, and how its values are written."""

    key: str
    title: str
    kind: Kind = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under columns; None is a value that does not exist, which is never a number."""

    key: str
    """Name of its file."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a row of another width."""
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"a row of table {self.key} does not have {len(self.columns)} values")

    def brief(self, wanted: Callable[[Column], bool]) -> "Table":
        """Return the wanted columns, less those in which every value is None, 0 or an empty text."""
        kept = [
            k for k, c in enumerate(self.columns) if wanted(c) and any(row[k] not in (None, 0, "") for row in self.rows)
        ]
        rows = tuple(tuple(row[k] for k in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[k] for k in kept), rows=rows)


def texts(*names: str) -> tuple[Column, ...]:
    """Return columns of texts that are called as they are titled."""
    return tuple(Column(key=name, title=name, kind="text") for name in names)


def align_rows(rows: Iterable[Sequence[str]], sides: str, least: Sequence[int] = ()) -> list[str]:
    """Return rows as lines of a terminal, two blanks between columns; `least` are least widths.

    `sides` has "<" for a column to the left and ">" for one to the right; its last holds for all further columns.
    """
    table = [tuple(row) for row in rows]
    width = len(table[0]) if table else 0
    wide = [max(*(len(row[k]) for row in table), least[k] if k < len(least) else 0) for k in range(width)]
    forms = [f"{side}{w}" for side, w in zip(sides.ljust(width, sides[-1]), wide, strict=False)]
    return ["  ".join(format(text, form) for text, form in zip(row, forms, strict=True)).rstrip() for row in table]


def format_value(value: Value, kind: Kind) -> str:
    """Return a value for people: three significant digits or more, whole numbers in full."""
    if value is None:
        return NONE
    if isinstance(value, bool | str) or kind == "text":
        return str(value) if not isinstance(value, bool) else "yes" if value else "no"
    if kind in ("percent", "multiple"):
        return percent(value, " ") if kind == "percent" else f"{value:.3f}"
    if kind == "seconds":
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    if value == int(value):
        return f"{int(value):,}"
    size = abs(value)
    digits = 0 if size >= 1e4 else 1 if size >= 100 else 2
    return f"{value:,.{digits}f}" if size >= 1 else f"{value:.3g}"


def to_csv(table: Table) -> bytes:
    """Return CSV (RFC 4180, UTF-8): all columns and full precision; what does not exist is empty.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    from pesto.core.files.json import shown  # late: --help does without msgspec

    def cell(value: Value) -> str:
        if isinstance(value, str):
            line = shown(value, 2000)
            return f"'{line}" if line.startswith(_FORMULA) else line
        if isinstance(value, bool):
            return str(value).lower()
        return "" if value is None else repr(value)

    text = io.StringIO(newline="")
    csv.writer(text).writerows([[cell(c.key) for c in table.columns], *(map(cell, row) for row in table.rows)])
    return text.getvalue().encode("utf-8", "replace")


def to_markdown(table: Table, limit: int) -> str:
    """Return a table of GitHub's Markdown with at most `limit` rows; numbers to the right."""
    lines = [
        "| " + " | ".join(escape_markdown(c.title) for c in table.columns) + " |",
        "|" + "|".join("---" if c.kind == "text" else "---:" for c in table.columns) + "|",
    ]
    for row in table.rows[:limit]:
        cells = (escape_markdown(format_value(v, c.kind)) for v, c in zip(row, table.columns, strict=True))
        lines.append("| " + " | ".join(cells) + " |")
    if len(table.rows) > limit:
        lines.append(f"\n{len(table.rows) - limit} more rows are in {table.key}.csv.")
    return "\n".join(lines)


def escape_markdown(text: str) -> str:
    """Return any text as one line of Markdown that shows it and does nothing else."""
    from pesto.core.files.json import shown  # late: --help does without msgspec

    line = _MARKUP.sub(r"\\\1", shown(text, 400))
    for mark, entity in _ENTITIES.items():
        line = line.replace(mark, entity)
    return line


def row(cells: Iterable[object]) -> str:
    """Return a line of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(columns: Sequence[str], texts: int = 1) -> list[str]:
    """Return the first two lines of a Markdown table; the first `texts` columns are aligned left, the others right."""
    return [row(columns), "|" + "---|" * texts + "---:|" * (len(columns) - texts)]


def ms(seconds: float | None) -> str:
    """Return seconds as milliseconds; a hyphen where there are none."""
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def geometric(ratios: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers; NaN of none."""
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else float("nan")


def ratio(ratios: Sequence[float]) -> str:
    """Return a geometric mean as text; a hyphen where there is nothing."""
    return f"{geometric(ratios):.3f}" if ratios else "-"
