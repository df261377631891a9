"""Results in notebooks: small tables, a chart of processors over a step, and data frames."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from itertools import groupby
from typing import Any

import numpy as np

from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.core.quantities import duration, percent, shorten
from solvers.arrays import Floats, Ints, floats

LIBRARIES = ("pandas", "polars")
"""Packages that make data frames; the first that is installed is used."""
MOST_LANES = 32
"""Most processors in a chart: of a host with more cores, those that compute most."""
_COLUMNS, _WIDTH, _LEFT, _ROW = 600, 900, 120, 22
"""Columns of time; sizes in pixels: of the picture, of the names, of a processor."""


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose others are numbers; all of it is escaped: names are data."""

    def row(cells: Sequence[str], tag: str) -> str:
        first, *others = (escape(shown(cell)) for cell in cells)
        right = "".join(f'<{tag} style="text-align:right">{cell}</{tag}>' for cell in others)
        return f'<{tag} style="text-align:left">{first}</{tag}>{right}'

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    return f"<table><caption>{escape(shown(caption))}</caption><tr>{row(head, 'th')}</tr>{body}</table>"


def op_frame(columns: Mapping[str, list[Any]]) -> Any:
    """Return a data frame of these columns. Raise UsageError where neither pandas nor polars is installed."""
    for name in LIBRARIES:
        if find_spec(name) is not None:
            return importlib.import_module(name).DataFrame(dict(columns))
    raise UsageError.build("a frame needs pandas or polars", remedy="pip install pandas, or pip install polars")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneChart:
    """Activity of each processor over a step, in columns of time."""

    caption: str
    """Name of the step that the chart is of."""
    step_s: float
    """Seconds of the step."""
    lanes: tuple[str, ...]
    """[k] the processors that compute at all; of many, the 32 that compute most."""
    busy: Floats
    """[k, c] share of each column of time, each as long, in which a processor computes."""
    busy_s: Floats
    """[k] seconds that it computes in all."""
    longest: tuple[tuple[str, ...], ...]
    """[k, c] the op that computes longest in a column; empty where none does."""

    def __repr__(self) -> str:
        """Return one line, without arrays."""
        return f"Timeline of {self.caption}: {len(self.lanes)} processors, {duration(self.step_s)}"

    def _repr_html_(self) -> str:
        """Return a picture for notebooks: names are text, and nothing in it runs."""
        parts = []
        width = (_WIDTH - _LEFT) / self.busy.shape[1]
        for k, lane in enumerate(self.lanes):
            top = _ROW * k
            title = escape(f"{shown(lane, 40)}: {duration(float(self.busy_s[k]))}")
            parts.append(f'<text x="0" y="{top + 15}">{escape(shown(lane, 16))}<title>{title}</title></text>')
            # Columns in a row that are as busy, with the same op, are one rectangle.
            columns = list(zip(np.round(self.busy[k], 1).tolist(), self.longest[k], strict=True))
            last = 0
            for (_, op), run in groupby(columns):
                first, last = last, last + len(list(run))
                if op:
                    share = float(self.busy[k, first])
                    title = escape(f"{shown(shorten(op, 80), 80)}: {percent(min(1.0, share))} busy")
                    left, wide = _LEFT + first * width, (last - first) * width
                    place = f'x="{left:.1f}" width="{wide:.1f}" y="{top + 3}" height="{_ROW - 6}"'
                    look = f'fill="#2b6cb0" fill-opacity="{max(0.1, share):.2f}"'
                    parts.append(f"<rect {place} {look}><title>{title}</title></rect>")
        height = _ROW * len(self.lanes) + 30
        label = escape(shown(f"{self!r}"))
        head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" width="{_WIDTH}" '
        axis = f'<text x="{_LEFT}" y="{height - 8}">0</text><text x="{_WIDTH}" y="{height - 8}" text-anchor="end">'
        text = f"{axis}{duration(self.step_s)}</text>"
        style = "font:12px sans-serif;fill:currentColor;max-width:100%"
        return f'{head}height="{height}" viewBox="0 0 {_WIDTH} {height}" style="{style}">{"".join(parts)}{text}</svg>'


def draw_lanes(
    caption: str, names: tuple[str, ...], lanes: tuple[str, ...], ops: tuple[Ints, Ints, Ints], tick_s: float
) -> LaneChart:
    """Draw ops, ([n] processor, [n] start, [n] finish in ticks), over the whole step."""
    device, start, finish = ops
    took = np.bincount(device, weights=finish - start, minlength=len(lanes))
    kept = np.flatnonzero(took > 0)
    kept = np.sort(kept[np.argsort(-took[kept], kind="stable")][:MOST_LANES])
    edges = np.linspace(0, max(1, int(finish.max(initial=0))), _COLUMNS + 1)
    wide = edges[1] - edges[0]
    busy, longest = np.zeros((len(kept), _COLUMNS)), []
    for k, lane in enumerate(kept.tolist()):
        most, which = np.zeros(_COLUMNS), np.full(_COLUMNS, -1)
        for op in np.flatnonzero((device == lane) & (finish > start)).tolist():
            begin, end = int(start[op]), int(finish[op])
            first, last = int(begin // wide), min(_COLUMNS - 1, int(end // wide))
            inside = np.minimum(end, edges[first + 1 : last + 2]) - np.maximum(begin, edges[first : last + 1])
            inside = np.maximum(inside, 0.0)
            busy[k, first : last + 1] += inside
            more = np.flatnonzero(inside > most[first : last + 1])
            most[first + more], which[first + more] = inside[more], op
        longest.append(tuple(names[op] if op >= 0 else "" for op in which.tolist()))
    return LaneChart(
        caption=caption, step_s=float(finish.max(initial=0)) * tick_s, lanes=tuple(lanes[k] for k in kept.tolist()),
        busy=floats(busy / wide), busy_s=floats(took[kept] * tick_s), longest=tuple(longest),
    )  # fmt: skip
