"""Small tables for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape

from pesto.core.files.json import shown


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers; all of it is escaped, since names are data."""
    body = "".join(f"<tr>{_row(row, 'td')}</tr>" for row in rows)
    return f"<table><caption>{escape(shown(caption))}</caption><tr>{_row(head, 'th')}</tr>{body}</table>"


def _row(cells: Sequence[str], tag: str) -> str:
    first, *others = (escape(shown(cell)) for cell in cells)
    right = "".join(f'<{tag} style="text-align:right">{cell}</{tag}>' for cell in others)
    return f'<{tag} style="text-align:left">{first}</{tag}>{right}'
