"""Markdown: rows of tables, and numbers as their cells have them."""

from collections.abc import Iterable, Sequence
from math import exp, log


def row(cells: Iterable[object]) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(columns: Sequence[str], texts: int = 1) -> list[str]:
    """The first two lines of a table; the first `texts` columns are aligned left, the others right."""
    return [row(columns), "|" + "---|" * texts + "---:|" * (len(columns) - texts)]


def ms(seconds: float | None) -> str:
    """Seconds as milliseconds; a hyphen where there are none."""
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def geometric(ratios: Sequence[float]) -> float:
    """The geometric mean of positive numbers; NaN of none."""
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else float("nan")


def ratio(ratios: Sequence[float]) -> str:
    """A geometric mean as text; a hyphen where there is nothing."""
    return f"{geometric(ratios):.3f}" if ratios else "-"
