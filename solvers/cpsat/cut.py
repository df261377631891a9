"""The surroundings of the free tasks of a schedule, as far as they matter for placing these anew.

The window is from the first start to the last finish of the free tasks. All other activities are

    settled   started before the window: they stay as they are, in time too
    kept      tasks that start within it: their device and the order among them stay, their times do not
    later     start after it: they stay where they are and in their order, after all that is in the window, so all that
              matters of them is their tail, the ticks from their start to the end of the schedule
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from solvers.cpsat.timeline import ActivityTimeline

Crossing = tuple[int, int]
"""A payload and the location that it is sent to."""


class FreeTasks(NamedTuple):
    """The tasks that are set free."""

    tasks: frozenset[int]
    """Tasks, at least one, whose order may change."""
    units: frozenset[int]
    """Units, all of whose tasks are free, whose location may change too."""
    places: frozenset[int] | None = None
    """Where such units may go; None for anywhere."""


def _latest(ticks: Iterable[tuple[int, int]]) -> defaultdict[int, int]:
    """By device, the greatest of its ticks; 0 for all others."""
    found = defaultdict[int, int](int)
    for device, tick in ticks:
        found[device] = max(found[device], tick)
    return found


class ScheduleCut:
    """A schedule cut into what is in the window and what is around it.

    Tasks of no time may start with the window, or as it ends, before or after the free ones.
    """

    def __init__(self, timeline: ActivityTimeline, free: FreeTasks) -> None:
        self.timeline, self.network, self.free = timeline, timeline.network, free
        t, everything = timeline, set(range(timeline.tasks))
        self.begin = min(t.start[i] for i in free.tasks)
        """Ticks at which the window begins."""
        self._end = max(t.finish[i] for i in free.tasks)
        first, last = min(map(t.rank, free.tasks)), max(map(t.rank, free.tasks))
        others = everything - free.tasks
        self._settled = {i for i in others if t.rank(i) < first}
        self._later = {i for i in others if t.rank(i) > last and t.start[i] >= self._end}
        self.active = {i: i in free.tasks for i in sorted(everything - self._later - self._settled)}
        """The tasks in the window, and whether each is free; the others are kept."""
        self.ready = _latest((t.device[i], t.finish[i]) for i in self._settled)
        """By device: when it is done with what is settled."""
        self.rest = _latest((t.device[i], t.tail[i]) for i in self._later)
        """By device: the first tail among its later tasks."""
        self.settled: dict[Crossing, int] = {}
        """Transfers that are settled, to their activities."""
        self.later: dict[Crossing, int] = {}
        """Transfers that are later, to their activities."""
        self.amid: dict[Crossing, int] = {}
        """Transfers of free tasks after the window, to their activities: on a link, later ones may come before them."""
        self.payloads = {payload for payload in self._touched() if payload >= 0}
        """Payloads of which some transfer is neither: where it goes and when is open."""
        self.blocks = defaultdict[int, list[int]](list)
        """By link: the settled transfers that hold it."""
        self.link_rest = defaultdict[int, int](int)
        """By link: the first tail among its later transfers."""
        self._transfers()
        self.floor = max([0, *self._paths()])
        """The longest path that avoids the window: no schedule of the neighbourhood is shorter."""

    def is_later(self, task: int) -> bool:
        """Return True if a task is neither settled nor in the window."""
        return task in self._later

    def places(self, unit: int) -> list[int]:
        """The locations where a unit may be: its own, unless it may move."""
        here = self.timeline.at[self.network.members[unit][0]]
        if unit not in self.free.units:
            return [here]
        to = self.free.places
        return [place for place in self.network.places[unit] if to is None or place in to or place == here]

    def _touched(self) -> Iterator[int]:
        for task in self.active:
            yield from (payload for _, payload in self.network.outputs[task])
            yield from (payload for _, payload in self.network.inputs[task])

    def _transfers(self) -> None:
        t = self.timeline
        for crossing, activity in t.sent.items():
            links = t.links[activity - t.tasks]
            producer = self.network.producer[crossing[0]]
            if producer not in self.active and (t.start[activity] < self.begin or self._was_read(crossing)):
                self.settled[crossing] = activity
                for link in links:
                    self.blocks[link].append(activity)
            elif t.start[activity] >= self._end and not self._may_change(crossing):
                self.later[crossing] = activity
                for link in links:
                    self.link_rest[link] = max(self.link_rest[link], t.tail[activity])
            else:
                self.payloads.add(crossing[0])
                if t.start[activity] >= self._end:
                    self.amid[crossing] = activity

    def _was_read(self, crossing: Crossing) -> bool:
        """Return True if a settled task has read a payload that was sent to its location."""
        payload, to = crossing
        return any(self.timeline.at[i] == to and i in self._settled for i in self.network.readers[payload])

    def _may_change(self, crossing: Crossing) -> bool:
        """Return True if a free task may send a transfer at another time, or a task in the window need it."""
        payload, to = crossing
        readers = (i for i in self.network.readers[payload] if i in self.active)
        return bool(self.active.get(self.network.producer[payload])) or any(
            to in self.places(self.network.unit[i]) for i in readers
        )

    def _paths(self) -> Iterator[int]:
        """Compute the settled tasks, the later tasks, and the paths from one to the other."""
        t, outputs, readers = self.timeline, self.network.outputs, self.network.readers
        yield from (tail for task, tail in enumerate(t.tail[: t.tasks]) if self.is_later(task))
        for task in self._settled:
            yield t.finish[task] + self.rest[t.device[task]]
            yield from (t.finish[task] + t.tail[j] for j, _ in outputs[task] if self.is_later(j))
        for (payload, to), activity in self.settled.items():
            yield from (t.finish[activity] + t.tail[j] for j in readers[payload] if t.at[j] == to and self.is_later(j))
            yield from (t.finish[activity] + self.link_rest[link] for link in t.links[activity - t.tasks])
        for (payload, _), activity in self.later.items():
            if self.network.producer[payload] not in self.active and not self.is_later(self.network.producer[payload]):
                yield t.finish[self.network.producer[payload]] + t.tail[activity]
