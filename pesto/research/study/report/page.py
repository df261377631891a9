"""The report as one HTML page: nothing is loaded from anywhere, and nothing in it can act but its own script."""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pesto.reporting.show.drawing import INK
from pesto.reporting.show.table import Column, Value, format_value
from pesto.research.study.report import text as words
from pesto.research.study.report.content import Report
from pesto.research.study.report.figures import Figure
from pesto.research.study.report.pictures import PAPER

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_ROWS = 2000
"""Rows of one table; all are in the CSV."""
_STATES = re.compile(
    r"^(optimal|feasible|infeasible|unknown|crashed|hung|invalid|missing|refused|contradicted|pending)$|^0 % in "
)
_COLOURED = {"optimal": "good", None: "good", "pending": "idle", "feasible": "", "infeasible": "", "unknown": ""}
"""The class of a cell by its state; any other state is bad."""
_PROLOG = re.compile(r"^.*?(?=<svg)|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
_OWN_NAMES = re.compile(r'(\bid="|url\(#|href="#)')
_SIZE = re.compile(r'<svg [^>]*?viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>')


def available() -> bool:
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
    made.filters["cells"] = _cells
    style, script = (Markup(loader.get_source(made, name)[0]) for name in ("page.css", "page.js"))  # noqa: S704
    return made.get_template("page.html").render(
        report=report,
        pictures={
            figure.key: inline_svg(figure, drawn[figure.key]) for figure in report.figures if figure.key in drawn
        },
        words=words,
        queries="\n".join(words.queries(database)),
        most=MOST_ROWS,
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


def _cells(row: tuple[Value, ...], columns: tuple[Column, ...]) -> Iterator[tuple[str, str, str | None]]:
    """Text and classes of each cell, and what it is sorted by where that is not its text."""
    for value, column in zip(row, columns, strict=True):
        text = format_value(value, column.kind)
        state = _STATES.match(text) if isinstance(value, str) else None
        colour = _COLOURED.get(state[1], "bad") if state else ""
        classes = ("text" if column.kind == "text" else "", colour, "long" if len(text) > 60 else "")
        key = "" if value is None else repr(value) if isinstance(value, int | float) else None
        yield text, " ".join(filter(None, classes)), key
