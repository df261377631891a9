"""Grids of text: the results of cells, arranged as a table or figure shows them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pesto.reporting.show.markdown import head, row
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
