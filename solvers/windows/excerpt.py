"""A window of a plan as a small problem of its own, and the way back from its schedules.

The window is a run of tasks that start one after the other. What starts before is settled, what starts after stays in
its order, and both are left out: all that matters of them is

    ready[i, l]   ticks, from the window's begin, at which task i can start at location l
    rest[i, l]    ticks from the end of task i there to the end of the plan

Both are payloads without links, from and to a location that no task of the window can be at: one task there begins
before all, and one ends after all, so that the makespan is what is left of the step. The links of the window's own
transfers are the plan's. What it leaves out, transfers of settled tasks that still hold a link, and one more transfer
of a payload that has moved, replaying the plan with the window's answer in its place brings back.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints, rank_of
from solvers.problem import FORBIDDEN, Problem
from solvers.schedule import Schedule
from solvers.timing.replay import replay
from solvers.windows.standing import Standing


class Span(NamedTuple):
    """The tasks that are set free."""

    free: Ints
    """[f] places of the free tasks among all by start, rising; the first and the last bound the window."""
    places: frozenset[int] | None = None
    """Units of which all tasks are free, and which are at one of these, may go to any of them; None for anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Excerpt:
    """A window's own problem: its tasks in the order of `tasks`, then the two that stand for what is around it."""

    tasks: Ints
    """[w] the window's tasks, by start."""
    devices: Ints
    """[d] devices that the window's own stand for; one more stands for all else."""
    problem: Problem
    start: Schedule
    """The plan's own part."""
    whole: bool
    """True if all tasks are free."""

    def back(self, schedule: Schedule, standing: Standing) -> tuple[Ints, Ints]:
        """(device, order) of all tasks: a plan's, this one or a later, with a schedule of the window in its place.

        In a later plan that has changed within the window too, the order may contradict the precedence.
        """
        w = len(self.tasks)
        device, order = standing.schedule.device.copy(), standing.order.copy()
        device[self.tasks] = self.devices[schedule.device[:w]]
        position = standing.tables.topological[self.tasks]
        by = np.lexsort((position, schedule.finish[:w], schedule.start[:w]))
        order[np.sort(rank_of(order)[self.tasks])] = self.tasks[by]
        return device, order


def excerpt_of(standing: Standing, span: Span) -> Excerpt:
    """The problem of a window. O(w log n + edges of its tasks + memory of all units that may move)."""
    return _ExcerptWriter(standing, span).excerpt()


class _ExcerptWriter:
    """Collects the rows of a window's problem."""

    def __init__(self, standing: Standing, span: Span) -> None:
        self._standing, self._span, self._t = standing, span, standing.tables
        self._p, self._s = self._t.problem, standing.schedule
        self._first = int(span.free[0])
        self._until = int(span.free[-1]) + 1
        self._tasks = standing.order[self._first : self._until]
        self._w = len(self._tasks)
        self._number = {task: k for k, task in enumerate(self._tasks.tolist())}
        self._free = set(standing.order[span.free].tolist())
        self._freed = Counter(self._t.unit[standing.order[span.free]].tolist())
        self._begin = int(self._s.start[self._tasks].min())
        self._options = [self._places(task) for task in self._tasks.tolist()]
        self._src, self._dst, self._payload = list[int](), list[int](), list[int]()
        self._producer, self._transfer = list[int](), list[Ints]()
        self._inner: dict[int, int] = {}
        self._ghosts = list[int]()
        self._until_tick = int(self._s.finish[self._tasks].max())

    def excerpt(self) -> Excerpt:
        """The problem, and the plan's own part as its start."""
        used = sorted({d for there in self._options for d in there.values()})
        before, after = self._w, self._w + 1
        classes, places = self._p.transfer.shape[1], self._p.locations
        for k, task in enumerate(self._tasks.tolist()):
            ready, rest = self._around(task, self._options[k])
            if ready.any():
                self._carry(before, k, np.concatenate([np.zeros(classes, dtype=np.int64), ready, 0 * rest]))
            self._carry(k, after, np.concatenate([np.zeros(classes, dtype=np.int64), 0 * ready, rest]))
            self._edges(k, task, 2 * places)
        self._in_flight()
        for one, two in self._kept():
            self._edge(one, two, -1)
        self._edge(before, after, -1)
        problem = self._problem(used)
        return Excerpt(
            tasks=self._tasks,
            devices=ints(used),
            problem=problem,
            start=self._start(problem, used),
            whole=len(self._span.free) == self._p.tasks and self._span.places is None,
        )

    def _places(self, task: int) -> dict[int, int]:
        """Where a task may be, and on which device there."""
        t, here = self._t, int(self._standing.at[task])
        stays = {here: int(self._s.device[task])}
        if task not in self._free or not self._whole(int(t.unit[task])):
            return stays
        to = self._span.places
        if to is not None and here not in to:
            return stays
        row = t.device_at[task].tolist()
        return {place: d for place, d in enumerate(row) if d >= 0 and (to is None or place in to)} | stays

    def _whole(self, unit: int) -> bool:
        """Return True if all tasks of a unit are free."""
        return bool(self._t.size[unit] == self._freed[unit])

    def _around(self, task: int, there: dict[int, int]) -> tuple[Ints, Ints]:
        """([l], [l]) ready and rest of a task at each location that it may be at, else 0."""
        ready, rest = np.zeros(self._p.locations, dtype=np.int64), np.zeros(self._p.locations, dtype=np.int64)
        for place, device in there.items():
            ready[place] = max(0, max(self._since(task, place, device)) - self._begin)
            rest[place] = max(self._after(task, place, device))
        return ready, rest

    def _since(self, task: int, place: int, device: int) -> Iterator[int]:
        """Ticks before which a task cannot start at a place, as what is settled has it."""
        p, s, at = self._p, self._s, self._standing.at
        turns = self._standing.turns[device]
        last = int(np.searchsorted(turns, self._first)) - 1
        yield int(s.finish[self._standing.order[turns[last]]]) if last >= 0 else 0
        for edge in self._t.into[self._t.behind[task] : self._t.behind[task + 1]].tolist():
            tail, payload = int(p.src[edge]), int(p.payload[edge])
            if tail in self._number:
                continue
            if payload < 0 or at[tail] == place:
                yield int(s.finish[tail])
                continue
            sent = self._standing.crossing[payload, place]
            yield int(
                s.sent_finish[sent]
                if sent >= 0
                else s.finish[tail] + int(self._p.transfer[payload, self._p.path_class[int(at[tail]), place]])
            )

    def _after(self, task: int, place: int, device: int) -> Iterator[int]:
        """Ticks that are left when a task ends at a place, as what comes later has it."""
        p, at, tail = self._p, self._standing.at, self._standing.tail
        turns = self._standing.turns[device]
        following = int(np.searchsorted(turns, self._until))
        yield int(tail[self._standing.order[turns[following]]]) if following < len(turns) else 0
        for edge in self._t.out[self._t.ahead[task] : self._t.ahead[task + 1]].tolist():
            head, payload = int(p.dst[edge]), int(p.payload[edge])
            if head in self._number:
                continue
            if payload < 0 or at[head] == place:
                yield int(tail[head])

    def _edge(self, src: int, dst: int, payload: int) -> None:
        self._src.append(src)
        self._dst.append(dst)
        self._payload.append(payload)

    def _carry(self, src: int, dst: int, ticks: Ints) -> None:
        """An edge with a payload of its own."""
        self._edge(src, dst, len(self._producer))
        self._producer.append(src)
        self._transfer.append(ticks)

    def _edges(self, k: int, task: int, more: int) -> None:
        """The edges within the window that leave a task."""
        p, later = self._p, dict[tuple[int, int], int]()
        for edge in self._t.out[self._t.ahead[task] : self._t.ahead[task + 1]].tolist():
            head, payload = int(p.dst[edge]), int(p.payload[edge])
            if payload >= 0 and payload not in self._inner:
                self._inner[payload] = len(self._producer)
                self._producer.append(k)
                self._transfer.append(np.concatenate([p.transfer[payload], np.zeros(more, dtype=np.int64)]))
            if head not in self._number:
                place = int(self._standing.at[head])
                if payload >= 0 and any(other != place for other in self._options[k]):
                    later[payload, place] = max(later.get((payload, place), 0), int(self._standing.tail[head]))
                continue
            self._edge(k, self._number[head], self._inner[payload] if payload >= 0 else -1)
        for (payload, place), left in later.items():
            self._edge(k, self._ghost(place, rest=left), self._inner[payload])

    def _ghost(self, place: int, *, ready: int = 0, rest: int = 0) -> int:
        """A task of no time on a device of its own at a location, which stands for one outside the window."""
        number, classes, places = self._w + 2 + len(self._ghosts), self._p.transfer.shape[1], self._p.locations
        self._ghosts.append(place)
        ticks = np.zeros(classes + 2 * places, dtype=np.int64)
        if ready:
            ticks[classes + place] = ready
            self._carry(self._w, number, ticks)
        else:
            ticks[classes + places + place] = rest
            self._carry(number, self._w + 1, ticks)
        return number

    def _in_flight(self) -> None:
        """Settled transfers that still hold links, or wait for them."""
        p, s, at = self._p, self._s, self._standing.at
        near = np.flatnonzero((s.sent_finish > self._begin) & (s.sent_start < self._until_tick))
        for sent in near.tolist():
            payload, to = int(s.sent_payload[sent]), int(s.sent_to[sent])
            sender = int(p.producer[payload])
            settled = sender not in self._number and int(s.finish[sender]) <= self._begin
            if not settled or (p.holds[at[sender], to] < 0).all():
                continue
            since = max(self._begin, int(s.sent_start[sent]))
            ticks = np.zeros(p.transfer.shape[1] + 2 * p.locations, dtype=np.int64)
            ticks[p.path_class[at[sender], to]] = int(s.sent_finish[sent]) - since
            ghost = self._ghost(int(at[sender]), ready=since - self._begin)
            left = int(self._standing.tail[p.tasks + sent]) - int(s.sent_finish[sent] - s.sent_start[sent])
            self._edge(ghost, self._ghost(to, rest=left), len(self._producer))
            self._producer.append(ghost)
            self._transfer.append(ticks)

    def _kept(self) -> Iterator[tuple[int, int]]:
        """The order on each device of the tasks that are not free."""
        last: dict[int, int] = {}
        for k, task in enumerate(self._tasks.tolist()):
            if task in self._free:
                continue
            device = int(self._s.device[task])
            if device in last:
                yield last[device], k
            last[device] = k

    def _durations(self, used: list[int]) -> Ints:
        """[tasks, devices] ticks; what stands for others takes none, on a device of its own."""
        w, ghosts = self._w, np.arange(len(self._ghosts))
        duration = np.full((w + 2 + len(ghosts), len(used) + 1 + len(ghosts)), FORBIDDEN)
        column = {d: k for k, d in enumerate(used)}
        for k, (task, there) in enumerate(zip(self._tasks.tolist(), self._options, strict=True)):
            for d in there.values():
                duration[k, column[d]] = self._p.duration[task, d]
        duration[[w, w + 1], len(used)] = 0
        duration[w + 2 + ghosts, len(used) + 1 + ghosts] = 0
        return duration

    def _paths(self) -> tuple[Ints, Ints]:
        """The classes and links of all paths, with those from and to where what is around the window is."""
        p, places = self._p, self._p.locations
        classes = p.transfer.shape[1]
        path_class = np.full((places + 1, places + 1), -1)
        path_class[:places, :places] = p.path_class
        path_class[places, :places] = classes + np.arange(places)
        path_class[:places, places] = classes + places + np.arange(places)
        links = np.full((places + 1, places + 1, p.holds.shape[2]), -1)
        links[:places, :places] = p.holds
        return path_class, links

    def _problem(self, used: list[int]) -> Problem:
        p, outside, ghosts = self._p, self._p.locations, len(self._ghosts)
        path_class, links = self._paths()
        moves = np.array([len(there) > 1 for there in self._options], dtype=bool)
        group = np.where(moves & (self._t.size[self._t.unit[self._tasks]] > 1), self._t.unit[self._tasks], -1)
        memory, room = self._room(moves)
        return Problem(
            duration=self._durations(used),
            location=np.concatenate([p.location[used], [outside], np.array(self._ghosts, dtype=np.int64)]),
            memory=np.append(memory, np.zeros(2 + ghosts, dtype=np.int64)),
            capacity=np.append(room, 0),
            src=np.array(self._src),
            dst=np.array(self._dst),
            payload=np.array(self._payload),
            producer=np.array(self._producer),
            transfer=np.array(self._transfer),
            path_class=path_class,
            path_links=links,
            group=np.append(group, np.full(2 + ghosts, -1)),
        )

    def _room(self, moves: Ints) -> tuple[Ints, Ints]:
        """[w] bytes of what may move, and [l] what all else leaves, at least what is there of it."""
        memory = np.where(moves, self._p.memory[self._tasks], 0)
        here = np.zeros(self._p.locations, dtype=np.int64)
        np.add.at(here, self._standing.at[self._tasks], memory)
        return memory, np.maximum(self._p.capacity - self._standing.held, 0) + here

    def _start(self, problem: Problem, used: list[int]) -> Schedule:
        """The plan's own part, first come, first served."""
        column = {d: k for k, d in enumerate(used)}
        device = np.array([column[d] for d in self._s.device[self._tasks].tolist()])
        ghosts = np.arange(len(self._ghosts))
        device = np.concatenate([device, [len(used)] * 2, len(used) + 1 + ghosts])
        # Which of several tasks that end at once sends first, their order says; a ghost's is that of nobody.
        order = np.concatenate([[self._w], np.arange(self._w), self._w + 2 + ghosts, [self._w + 1]])
        return replay(problem, ints(device), rank_of(order))
