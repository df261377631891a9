"""Markdown tables, and their places in the pages: what stands between `<!-- table: NAME -->` and `<!-- end -->`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from pathlib import Path

from pesto.files.disk import write_atomic

MARK = re.compile(r"(<!-- table: ([a-z0-9-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


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


def written(blocks: Mapping[str, Sequence[str]], pages: Iterable[Path]) -> set[str]:
    """Put each block in its place in the pages; returns the names that have one. Other text stays as it is."""
    placed: set[str] = set()
    for page in pages:
        before = page.read_text(encoding="utf-8")

        def filled(found: re.Match[str]) -> str:
            name = found[2]
            if name not in blocks:
                return found[0]
            placed.add(name)
            lines = "\n".join(blocks[name]).strip()
            return f"{found[1]}\n{lines}\n\n{found[4]}"

        after = MARK.sub(filled, before)
        if after != before:
            write_atomic(page, after.encode())
    return placed
