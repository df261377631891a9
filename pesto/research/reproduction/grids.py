"""Grids of text as tables and figures show them, the results of cells, and the numbers printed in the papers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pesto.core.errors import UsageError
from pesto.core.files import toml
from pesto.reporting.show.lines import head, row
from pesto.research.reproduction.cached_cells import Found, Table

LACKS = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextGrid:
    """A table of text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    """Empty where the artefact has one table only."""
    texts: int = 1
    """Columns that are aligned left."""

    def lines(self) -> Iterator[str]:
        """In Markdown."""
        if self.title:
            yield from (f"**{self.title}**", "")
        yield from head(self.columns, self.texts)
        yield from map(row, self.rows)


def grid(columns: Iterable[str], rows: Iterable[Iterable[object]], title: str = "", texts: int = 1) -> TextGrid:
    """A table of what is no text yet."""
    made = tuple(tuple(map(str, each)) for each in rows)
    return TextGrid(columns=tuple(columns), rows=made, title=title, texts=texts)


@dataclass(frozen=True, slots=True)
class Results:
    """Stored results by table."""

    tables: Mapping[str, Table]

    def found(self, table: str, *key: str) -> Found:
        """Result of one cell; KeyError if it is not stored."""
        return self.tables[table][key].found

    def cpu_s(self, table: str, *key: str) -> float:
        """CPU seconds of one cell."""
        return self.tables[table][key].cpu_s


def share(value: float | None) -> str:
    """A share in per cent."""
    return LACKS if value is None else f"{value:.0%}" if round(value, 3) == round(value, 2) else f"{value:.1%}"


def plain(value: float | None, form: str = "g") -> str:
    """A number, as it is printed."""
    return LACKS if value is None else format(value, form)


VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperNumbers:
    """One table or figure of a paper."""

    name: str
    """As the command line has it."""
    source: str
    """The paper, and its table, figure or section."""
    title: str
    ours: str
    """Our counterpart, and whether it is modelled or measured."""
    says: str = ""
    """Statements of the paper's text."""
    reasons: tuple[str, ...] = ()
    """Why ours differs."""
    numbers: dict[str, dict[str, float]] = field(default_factory=dict)
    """The paper's numbers, by row and column."""

    def number(self, row: str, column: str) -> float | None:
        """One number; None where the paper has none there."""
        return self.numbers.get(row, {}).get(column)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PaperFile:
    format_version: int
    artefacts: tuple[PaperNumbers, ...]


@cache
def load_printed() -> dict[str, PaperNumbers]:
    """By name, in the order of the papers; UsageError where the file is not as it should be."""
    path = Path(__file__).with_name("printed.toml")
    result = toml.load(path, _PaperFile)
    if result.format_version != VERSION:
        raise UsageError.build(
            f"format_version {result.format_version} is not known", where=path, remedy=f"this reads {VERSION}"
        )
    return {each.name: each for each in result.artefacts}
