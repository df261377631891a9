"""Which tasks of a schedule to set free next: kinds of neighbourhoods, their sizes, and how often each is drawn."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from solvers.cpsat.cut import FreeTasks
from solvers.cpsat.timeline import ActivityTimeline, ProblemTables

_FIRST, _LEAST = 20.0, 4.0
"""Tasks of a neighbourhood, at first and at least."""
_GROW, _SHRINK = 1.04, 0.96
"""How the size of a kind follows each of its neighbourhoods that was searched to its end, and each that was not."""
_MEMORY = 0.95
"""Weight of a kind's past after its next neighbourhood (decay factor)."""
_EVEN = 0.2
"""Share of the draws that all kinds divide evenly."""
_NEAR = 4
"""Steps along edges up to which tasks are near each other."""

Draw = Callable[[ActivityTimeline, int, np.random.Generator], list[int]]
"""Chooses about so many tasks."""


class NeighbourhoodKind(NamedTuple):
    """One way to choose tasks."""

    draw: Draw
    moving: bool = True
    """True if their units may move, or only their order change."""
    pair: bool = False
    """True if only units at two of the locations may move, and only between these."""


def period(timeline: ActivityTimeline, size: int, rng: np.random.Generator) -> list[int]:
    """Tasks that start one after the other, whatever their device."""
    order = sorted(range(timeline.tasks), key=timeline.rank)
    # As often at either end as anywhere else.
    first = int(rng.integers(-(size // 2), len(order) - size // 2))
    first = max(0, min(first, len(order) - size))
    return order[first : first + size]


def surroundings(timeline: ActivityTimeline, size: int, rng: np.random.Generator) -> list[int]:
    """Tasks near a critical one, in time and along edges, by weights drawn anew each time."""
    n, centre = timeline.tasks, int(rng.choice(timeline.critical))
    middle = (np.array(timeline.start[:n]) + np.array(timeline.finish[:n])) / 2
    apart = np.abs(middle - middle[centre]) / max(1, timeline.makespan)
    steps = np.full(n, 2.0 * _NEAR)
    for step, tasks in enumerate(_rings(timeline.network, centre)):
        steps[tasks] = step
    score = rng.uniform(5.0, 40.0) * apart + rng.uniform(0.0, 1.0) * steps + 0.5 * rng.random(n)
    return np.argsort(score, kind="stable")[:size].tolist()


def _rings(network: ProblemTables, centre: int) -> list[list[int]]:
    """The tasks at 0, 1, 2 … steps."""
    rings, seen = [[centre]], {centre}
    for _ in range(_NEAR):
        around = (j for i in rings[-1] for j, _ in (*network.inputs[i], *network.outputs[i]))
        ring = sorted(set(around) - seen)
        seen.update(ring)
        rings.append(ring)
    return rings


def relatives(timeline: ActivityTimeline, size: int, rng: np.random.Generator) -> list[int]:
    """All tasks of some units that exchange payloads, whenever they run: the way to move a group of tasks."""
    network = timeline.network
    seeds = timeline.critical if rng.random() < 0.5 else range(timeline.tasks)
    unit = network.unit[int(rng.choice(seeds))]
    found, units, border = list[int](), {unit}, [unit]
    while border and len(found) < size:
        unit = border.pop(int(rng.integers(len(border))))
        found += network.members[unit]
        around = {network.unit[j] for i in network.members[unit] for j, _ in (*network.inputs[i], *network.outputs[i])}
        border += sorted(around - units)
        units |= around
    return found


KINDS = {
    "period": NeighbourhoodKind(period),
    "pair": NeighbourhoodKind(period, pair=True),
    "order": NeighbourhoodKind(period, moving=False),
    "surroundings": NeighbourhoodKind(surroundings),
    "relatives": NeighbourhoodKind(relatives),
}


class _KindStatistics:
    """Success statistics of a kind."""

    def __init__(self) -> None:
        self.size, self.gain, self.effort = _FIRST, 1.0, 1.0


class Neighbours:
    """Draws neighbourhoods, more often of kinds that pay. The same seed and outcomes give the same draws."""

    def __init__(self, seed: int, kinds: tuple[str, ...] = tuple(KINDS)) -> None:
        self._rng = np.random.default_rng(seed)
        self._records = {name: _KindStatistics() for name in kinds}

    def draw(self, timeline: ActivityTimeline) -> tuple[str, FreeTasks]:
        """A kind and what it sets free; the timeline has a task."""
        places = sorted(set(timeline.at))
        names = [name for name in self._records if len(places) > 2 or not KINDS[name].pair]
        paid = np.array([self._records[name].gain / self._records[name].effort for name in names])
        share = _EVEN / len(names) + (1 - _EVEN) * paid / paid.sum()
        name = names[int(self._rng.choice(len(names), p=share / share.sum()))]
        kind, size = KINDS[name], max(int(self._records[name].size), 1)
        tasks = frozenset(kind.draw(timeline, min(size, timeline.tasks), self._rng))
        if not kind.moving:
            return name, FreeTasks(tasks, frozenset())
        units = _whole(timeline.network, tasks)
        if not kind.pair:
            return name, FreeTasks(tasks, units)
        two = frozenset(self._rng.choice(places, 2, replace=False).tolist())
        there = frozenset(u for u in units if timeline.at[timeline.network.members[u][0]] in two)
        return name, FreeTasks(tasks, there, two)

    def learn(self, name: str, *, closed: bool, better: bool, effort: float) -> None:
        """Take in how a neighbourhood of a kind went: searched to its end, a better schedule found, at which effort."""
        record = self._records[name]
        record.size = max(_LEAST, record.size * (_GROW if closed else _SHRINK))
        record.gain = _MEMORY * record.gain + better
        record.effort = _MEMORY * record.effort + effort


def _whole(network: ProblemTables, tasks: frozenset[int]) -> frozenset[int]:
    """The units that have a choice, and all of whose tasks are among these."""
    units = {network.unit[i] for i in tasks}
    return frozenset(u for u in units if len(network.places[u]) > 1 and tasks.issuperset(network.members[u]))
