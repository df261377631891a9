"""A plan's processors over the step, drawn for a notebook: where each computes, and where it waits."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

import numpy as np

from pesto.core.files.json import shown
from pesto.core.quantities import duration, percent, shorten
from solvers.arrays import Floats, Ints, floats

MOST_LANES = 32
"""Processors that are drawn: of a host with more cores, those that compute most."""
_COLUMNS, _WIDTH, _LEFT, _ROW = 600, 900, 120, 22
"""Columns of time; sizes in pixels: of the picture, of the names, of a processor."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneChart:
    """What each processor does over a step, in columns of time."""

    caption: str
    """What step it is of."""
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
        """One line, without arrays."""
        return f"Timeline of {self.caption}: {len(self.lanes)} processors, {duration(self.step_s)}"

    def _repr_html_(self) -> str:
        """A picture for notebooks: names are text, and nothing in it runs."""
        height = _ROW * len(self.lanes) + 30
        said = escape(shown(f"{self!r}"))
        head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{said}" width="{_WIDTH}" '
        rows = "".join(piece for k in range(len(self.lanes)) for piece in self._row(k))
        axis = f'<text x="{_LEFT}" y="{height - 8}">0</text><text x="{_WIDTH}" y="{height - 8}" text-anchor="end">'
        text = f"{axis}{duration(self.step_s)}</text>"
        style = "font:12px sans-serif;fill:currentColor;max-width:100%"
        return f'{head}height="{height}" viewBox="0 0 {_WIDTH} {height}" style="{style}">{rows}{text}</svg>'

    def _row(self, k: int) -> Iterator[str]:
        top = _ROW * k
        said = f"{shown(self.lanes[k], 40)}: {duration(float(self.busy_s[k]))}"
        yield f'<text x="0" y="{top + 15}">{escape(shown(self.lanes[k], 16))}<title>{escape(said)}</title></text>'
        width = (_WIDTH - _LEFT) / self.busy.shape[1]
        for first, last in self._runs(k):
            op, share = self.longest[k][first], float(self.busy[k, first])
            title = escape(f"{shown(shorten(op, 80), 80)}: {percent(min(1.0, share))} busy")
            left, wide = _LEFT + first * width, (last - first) * width
            place = f'x="{left:.1f}" width="{wide:.1f}" y="{top + 3}" height="{_ROW - 6}"'
            yield f'<rect {place} fill="#2b6cb0" fill-opacity="{max(0.1, share):.2f}"><title>{title}</title></rect>'

    def _runs(self, k: int) -> Iterator[tuple[int, int]]:
        """(first, one past the last) of columns in a row that are as busy, with the same op."""
        row = list(zip(np.round(self.busy[k], 1).tolist(), self.longest[k], strict=True))
        first = 0
        for at in range(1, len(row) + 1):
            if at == len(row) or row[at] != row[first]:
                if row[first][1]:
                    yield first, at
                first = at


def draw_lanes(
    caption: str, names: tuple[str, ...], lanes: tuple[str, ...], ops: tuple[Ints, Ints, Ints], tick_s: float
) -> LaneChart:
    """Draw ops, ([n] processor, [n] start, [n] finish in ticks), over the whole step."""
    device, start, finish = ops
    took = np.bincount(device, weights=finish - start, minlength=len(lanes))
    kept = np.flatnonzero(took > 0)
    kept = np.sort(kept[np.argsort(-took[kept], kind="stable")][:MOST_LANES])
    edges = np.linspace(0, max(1, int(finish.max(initial=0))), _COLUMNS + 1)
    busy, longest = np.zeros((len(kept), _COLUMNS)), []
    for k, lane in enumerate(kept.tolist()):
        mine = np.flatnonzero((device == lane) & (finish > start))
        share, op = _bin_columns(edges, start[mine], finish[mine])
        busy[k] = share
        longest.append(tuple(names[mine[i]] if i >= 0 else "" for i in op.tolist()))
    return LaneChart(
        caption=caption,
        step_s=float(finish.max(initial=0)) * tick_s,
        lanes=tuple(lanes[k] for k in kept.tolist()),
        busy=floats(busy),
        busy_s=floats(took[kept] * tick_s),
        longest=tuple(longest),
    )


def _bin_columns(edges: Floats, start: Ints, finish: Ints) -> tuple[Floats, Ints]:
    """([c] share of each column, [c] the op that has most of it, -1 for none)."""
    busy, most, which = (np.zeros(_COLUMNS), np.zeros(_COLUMNS), np.full(_COLUMNS, -1))
    wide = edges[1] - edges[0]
    for i, (begin, end) in enumerate(zip(start.tolist(), finish.tolist(), strict=True)):
        first, last = int(begin // wide), min(_COLUMNS - 1, int(end // wide))
        inside = np.minimum(end, edges[first + 1 : last + 2]) - np.maximum(begin, edges[first : last + 1])
        inside = np.maximum(inside, 0.0)
        busy[first : last + 1] += inside
        more = np.flatnonzero(inside > most[first : last + 1])
        most[first + more], which[first + more] = inside[more], i
    return floats(busy / wide), which
