"""Which window to open next: kinds of windows, their sizes, and how often each is drawn."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, rank_of
from solvers.windows.excerpt import Span
from solvers.windows.standing import Standing

_LEAST, _MOST = 6.0, 60.0
"""Free tasks of a window."""
_GROW, _SHRINK = 1.01, 0.9
"""How the size of a kind follows each of its windows that was searched to its end, and each that was not."""
_MEMORY = 0.95
"""Weight of a kind's past after its next window (decay factor)."""
_EVEN = 0.25
"""Share of the draws that all kinds divide evenly."""
_FEW = 3
"""Locations up to which two of them are hardly fewer than all."""


def period(standing: Standing, size: int, rng: np.random.Generator) -> Ints:
    """Places of tasks that start one after the other, a critical one among them."""
    n = len(standing.order)
    middle = int(rank_of(standing.order)[rng.choice(standing.critical)])
    first = min(max(middle - int(rng.integers(size)), 0), max(n - size, 0))
    return np.arange(first, min(first + size, n))


def stretch(standing: Standing, size: int, rng: np.random.Generator, wide: int) -> Ints:
    """Choose the tasks with the least slack in a longer period, critical ones first; the others keep their order."""
    places = period(standing, wide * size, rng)
    tasks = standing.order[places]
    spare = standing.makespan - standing.schedule.start[tasks] - standing.tail[tasks]
    return np.sort(places[np.argsort(spare + rng.integers(0, 2, len(tasks)), kind="stable")[:size]])


class WindowKind(NamedTuple):
    """One way to choose tasks."""

    draw: Callable[[Standing, int, np.random.Generator], Ints]
    pair: bool = False
    """True if only units at two of the locations may, and only between these."""


KINDS = {
    "period": WindowKind(period),
    "pair": WindowKind(period, pair=True),
    "stretch": WindowKind(partial(stretch, wide=3)),
    "long": WindowKind(partial(stretch, wide=6)),
}


class _WindowStatistics:
    """Success statistics of a kind."""

    def __init__(self, size: float) -> None:
        self.size, self.gain, self.effort = size, 1.0, 1.0


class Choices:
    """Draws windows, more often of kinds that pay. The same seed and outcomes give the same draws."""

    def __init__(self, seed: int, size: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._records = {name: _WindowStatistics(float(size)) for name in KINDS}

    def draw(self, standing: Standing) -> tuple[str, Span]:
        """A kind, and what it sets free; the plan has a task."""
        used = np.unique(standing.at).tolist()
        names = [name for name in KINDS if len(used) > _FEW or not KINDS[name].pair]
        paid = np.array([self._records[name].gain / self._records[name].effort for name in names])
        share = _EVEN / len(names) + (1 - _EVEN) * paid / paid.sum()
        name = names[int(self._rng.choice(len(names), p=share / share.sum()))]
        kind = KINDS[name]
        size = min(int(self._records[name].size), len(standing.order))
        free = kind.draw(standing, size, self._rng)
        places = frozenset(self._rng.choice(used, 2, replace=False).tolist()) if kind.pair else None
        return name, Span(free, places)

    def learn(self, name: str, *, closed: bool, better: bool, seconds: float) -> None:
        """Take in how a window of a kind went: searched to its end, a shorter plan, in so many seconds."""
        record = self._records[name]
        record.size = min(max(record.size * (_GROW if closed else _SHRINK), _LEAST), _MOST)
        record.gain = _MEMORY * record.gain + better
        record.effort = _MEMORY * record.effort + seconds
