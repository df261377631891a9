"""A table once, laid out as CSV, as Markdown and in columns on a terminal: the one place that does so."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pesto.core.files.json import shown
from pesto.core.quantities import percent

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
        """ValueError for a row of another width."""
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"a row of table {self.key} does not have {len(self.columns)} values")

    def brief(self, wanted: Callable[[Column], bool]) -> "Table":
        """The wanted columns, less those in which every value is None, 0 or an empty text."""
        kept = [
            k for k, c in enumerate(self.columns) if wanted(c) and any(row[k] not in (None, 0, "") for row in self.rows)
        ]
        rows = tuple(tuple(row[k] for k in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[k] for k in kept), rows=rows)


def texts(*names: str) -> tuple[Column, ...]:
    """Columns of texts that are called as they are titled."""
    return tuple(Column(key=name, title=name, kind="text") for name in names)


def align_rows(rows: Iterable[Sequence[str]], sides: str, least: Sequence[int] = ()) -> list[str]:
    """Rows as lines of a terminal, two blanks between columns, each as wide as its widest text and as `least` says.

    `sides` has "<" for a column to the left and ">" for one to the right; its last holds for all further columns.
    """
    table = [tuple(row) for row in rows]
    width = len(table[0]) if table else 0
    wide = [max(*(len(row[k]) for row in table), least[k] if k < len(least) else 0) for k in range(width)]
    forms = [f"{side}{w}" for side, w in zip(sides.ljust(width, sides[-1]), wide, strict=False)]
    return ["  ".join(format(text, form) for text, form in zip(row, forms, strict=True)).rstrip() for row in table]


def format_value(value: Value, kind: Kind) -> str:
    """A value for people: three significant digits or more, whole numbers in full."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return _WRITTEN[kind](value)


def _percent(value: float) -> str:
    return percent(value, " ")


def _number(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    size = abs(value)
    digits = 0 if size >= 1e4 else 1 if size >= 100 else 2
    return f"{value:,.{digits}f}" if size >= 1 else f"{value:.3g}"


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


_WRITTEN: dict[Kind, Callable[[float], str]] = {
    "text": str, "number": _number, "percent": _percent, "seconds": _seconds, "multiple": "{:.3f}".format,
}  # fmt: skip


def to_csv(table: Table) -> bytes:
    """CSV (RFC 4180, UTF-8): all columns and full precision; what does not exist is empty.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    text = io.StringIO(newline="")
    out = csv.writer(text)
    out.writerow([_harmless(c.key) for c in table.columns])
    out.writerows([_exact(value) for value in row] for row in table.rows)
    return text.getvalue().encode("utf-8", "replace")


def _exact(value: Value) -> str:
    if isinstance(value, str):
        return _harmless(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else repr(value)


def _harmless(text: str) -> str:
    line = shown(text, 2000)
    return f"'{line}" if line.startswith(_FORMULA) else line


def to_markdown(table: Table, limit: int) -> str:
    """A table of GitHub's Markdown with at most `most` rows; numbers to the right."""
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
    """Any text as one line of Markdown that shows it and does nothing else."""
    line = _MARKUP.sub(r"\\\1", shown(text, 400))
    for mark, entity in _ENTITIES.items():
        line = line.replace(mark, entity)
    return line
