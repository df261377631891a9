"""A plan as it stands, a window of it as a small problem of its own, and the way back from its schedules.

A plan stands as it runs, first come, first served, with the ticks that are left after each task and transfer.

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

from solvers.arrays import Ints, ints, offsets, rank_of
from solvers.compiled.dag import topological_order
from solvers.compiled.kernels import kernel
from solvers.problem import FORBIDDEN, Problem
from solvers.schedule import Schedule
from solvers.search.workspace import network_of
from solvers.structure.units import placeable_units
from solvers.timing.loop import Prepared
from solvers.timing.replay import prepare, replay


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StandingTables:
    """Tables for the analysis of any plan of one problem."""

    problem: Problem
    prepared: Prepared
    unit: Ints
    """[n] unit of each task."""
    size: Ints
    """[u] tasks of each unit."""
    memory: Ints
    """[u] bytes of each unit."""
    device_at: Ints
    """[n, l] the device that a task gets at a location that it moves to, -1 where its unit cannot be."""
    topological: Ints
    """[n] position of each task in a topological order."""
    behind: Ints
    """[n + 1] where the edges into each task begin in `into`."""
    into: Ints
    """[e] edges, by the tasks that they lead to."""
    ahead: Ints
    """[n + 1] where the edges out of each task begin in `out`."""
    out: Ints
    """[e] edges, by the tasks that they leave."""

    def run(self, device: Ints, order: Ints) -> Schedule:
        """Run a placement and an order; raise ValueError if the order contradicts the precedence."""
        return replay(self.problem, device, rank_of(order), prepared=self.prepared)


def tables_of(problem: Problem) -> StandingTables:
    """Prepare everything that does not depend on a plan; raise ValueError when a unit can be nowhere.

    O(e log e + n (m + l)).
    """
    units, n = placeable_units(problem), problem.tasks
    network = network_of(problem, units)
    return StandingTables(
        problem=problem,
        prepared=prepare(problem),
        unit=units.unit,
        size=np.bincount(units.unit),
        memory=units.memory,
        device_at=ints(np.where(network.device_at >= 0, network.used[network.device_at], -1)),
        topological=rank_of(topological_order(n, problem.src, problem.dst)),
        behind=offsets(np.bincount(problem.dst, minlength=n)),
        into=ints(np.argsort(problem.dst, kind="stable")),
        ahead=offsets(np.bincount(problem.src, minlength=n)),
        out=ints(np.argsort(problem.src, kind="stable")),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """A plan's run, and the longest path from the start of each of its activities to its end, all orders kept."""

    tables: StandingTables
    schedule: Schedule
    at: Ints
    """[n] location of each task."""
    held: Ints
    """[l] bytes that the tasks hold."""
    order: Ints
    """[n] tasks by start, finish and topological position."""
    tail: Ints
    """[n + t] ticks from the start of each task, then of each transfer, to the end."""
    crossing: Ints
    """[p, l] transfer of a payload to a location, -1 for none."""
    turns: tuple[Ints, ...]
    """By device: places in `order` of its tasks, rising."""

    @property
    def makespan(self) -> int:
        """Ticks of the run."""
        return self.schedule.makespan

    @property
    def critical(self) -> Ints:
        """The tasks that cannot be later without delaying the end."""
        s = self.schedule
        return np.flatnonzero(s.start + self.tail[: len(s.start)] == s.makespan)


def standing_of(tables: StandingTables, device: Ints, order: Ints) -> Standing:
    """Run a placement in an order of all tasks, and analyse the run. O((n + e + t) log n)."""
    p, s = tables.problem, tables.run(device, order)
    at = p.location[s.device]
    crossing = np.full((p.payloads, p.locations), -1)
    crossing[s.sent_payload, s.sent_to] = np.arange(len(s.sent_payload))
    by = np.lexsort((tables.topological, s.finish, s.start))
    position = np.concatenate([2 * tables.topological, 2 * tables.topological[p.producer[s.sent_payload]] + 1])
    start, finish = np.concatenate([s.start, s.sent_start]), np.concatenate([s.finish, s.sent_finish])
    tail = np.zeros(len(start), dtype=np.int64)
    run = _StandingRun(
        s.device, at, ints(crossing), tables.ahead, tables.out, p.dst, p.payload, s.sent_payload, s.sent_to, p.producer,
        p.holds, np.zeros(p.devices, dtype=np.int64), np.zeros(p.links + 1, dtype=np.int64),
    )  # fmt: skip
    _tails(run, np.lexsort((position, finish, start)), finish - start, tail)
    held = np.zeros(p.locations, dtype=np.int64)
    np.add.at(held, at, p.memory)
    there = s.device[by]
    return Standing(
        tables=tables,
        schedule=s,
        at=at,
        held=held,
        order=ints(by),
        tail=ints(tail),
        crossing=ints(crossing),
        turns=tuple(np.flatnonzero(there == d) for d in range(p.devices)),
    )


class _StandingRun(NamedTuple):
    """A run and its graph, for compiled code."""

    device: Ints
    at: Ints
    crossing: Ints
    ahead: Ints
    out: Ints
    head: Ints
    carried: Ints
    payload: Ints
    """[t] payload of each transfer."""
    to: Ints
    producer: Ints
    holds: Ints
    on_device: Ints
    """[m] zeros: what is left after the start of the last activity that was looked at there."""
    on_link: Ints
    """[links + 1] the same for links, and a zero for none."""


@kernel
def _tails(run: _StandingRun, order: Ints, took: Ints, tail: Ints) -> None:
    """Fill in `tail`, of all activities in the order of their starts, from the last."""
    n = len(run.device)
    for place in range(len(order) - 1, -1, -1):
        activity = order[place]
        if activity < n:
            device = run.device[activity]
            left = run.on_device[device]
            for k in range(run.ahead[activity], run.ahead[activity + 1]):
                edge = run.out[k]
                reader, payload = run.head[edge], run.carried[edge]
                crosses = payload >= 0 and run.at[reader] != run.at[activity]
                left = max(left, tail[n + run.crossing[payload, run.at[reader]] if crosses else reader])
            tail[activity] = took[activity] + left
            run.on_device[device] = tail[activity]
            continue
        sent = activity - n
        task, to, left = run.producer[run.payload[sent]], run.to[sent], 0
        for k in range(run.ahead[task], run.ahead[task + 1]):
            edge = run.out[k]
            if run.carried[edge] == run.payload[sent] and run.at[run.head[edge]] == to:
                left = max(left, tail[run.head[edge]])
        here = run.at[task]
        for k in range(run.holds.shape[2]):
            left = max(left, run.on_link[run.holds[here, to, k]])
        tail[activity] = took[activity] + left
        for k in range(run.holds.shape[2]):
            if run.holds[here, to, k] >= 0:
                run.on_link[run.holds[here, to, k]] = tail[activity]


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
        """Return (device, order) of all tasks: a plan's, this one or a later, with the window's schedule in its place.

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
    """Return the problem of a window. O(w log n + edges of its tasks + memory of all units that may move)."""
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
        """Return the problem, and the plan's own part as its start."""
        used = sorted({d for there in self._options for d in there.values()})
        before, after = self._w, self._w + 1
        classes, places = self._p.transfer.shape[1], self._p.locations
        for k, task in enumerate(self._tasks.tolist()):
            ready, rest = np.zeros(places, dtype=np.int64), np.zeros(places, dtype=np.int64)
            for place, device in self._options[k].items():
                ready[place] = max(0, max(self._since(task, place, device)) - self._begin)
                rest[place] = max(self._after(task, place, device))
            if ready.any():
                self._carry(before, k, np.concatenate([np.zeros(classes, dtype=np.int64), ready, 0 * rest]))
            self._carry(k, after, np.concatenate([np.zeros(classes, dtype=np.int64), 0 * ready, rest]))
            self._edges(k, task, 2 * places)
        # Add the settled transfers that still hold links, or wait for them.
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
        # The tasks that are not free keep their order on each device.
        last: dict[int, int] = {}
        for k, task in enumerate(self._tasks.tolist()):
            if task not in self._free:
                on = int(self._s.device[task])
                if on in last:
                    self._edge(last[on], k, -1)
                last[on] = k
        self._edge(before, after, -1)
        problem, ghosts = self._problem(used), np.arange(len(self._ghosts))
        column = {d: k for k, d in enumerate(used)}
        own = [column[d] for d in self._s.device[self._tasks].tolist()]
        start_device = np.concatenate([own, [len(used)] * 2, len(used) + 1 + ghosts])
        # Which of several tasks that end at once sends first, their order says; a ghost's is that of nobody.
        order = np.concatenate([[before], np.arange(self._w), self._w + 2 + ghosts, [after]])
        return Excerpt(
            tasks=self._tasks,
            devices=ints(used),
            problem=problem,
            start=replay(problem, ints(start_device), rank_of(order)),
            whole=len(self._span.free) == self._p.tasks and self._span.places is None,
        )

    def _places(self, task: int) -> dict[int, int]:
        """Return where a task may be, and on which device there."""
        t, here = self._t, int(self._standing.at[task])
        stays = {here: int(self._s.device[task])}
        # A unit moves as a whole, so one of which a task is not free stays.
        if task not in self._free or t.size[t.unit[task]] != self._freed[int(t.unit[task])]:
            return stays
        to = self._span.places
        if to is not None and here not in to:
            return stays
        row = t.device_at[task].tolist()
        return {place: d for place, d in enumerate(row) if d >= 0 and (to is None or place in to)} | stays

    def _since(self, task: int, place: int, device: int) -> Iterator[int]:
        """Yield ticks before which a task cannot start at a place, as what is settled has it."""
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
        """Yield ticks that are left when a task ends at a place, as what comes later has it."""
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
        """Add an edge with a payload of its own."""
        self._edge(src, dst, len(self._producer))
        self._producer.append(src)
        self._transfer.append(ticks)

    def _edges(self, k: int, task: int, more: int) -> None:
        """Add the edges within the window that leave a task."""
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
        """Add a task of no time on a device of its own at a location, which stands for one outside the window."""
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

    def _problem(self, used: list[int]) -> Problem:
        """Return the problem of all rows, in which what stands for others takes no time on a device of its own."""
        p, w, places, ghosts = self._p, self._w, self._p.locations, np.arange(len(self._ghosts))
        duration = np.full((w + 2 + len(ghosts), len(used) + 1 + len(ghosts)), FORBIDDEN)
        column = {d: k for k, d in enumerate(used)}
        for k, (task, there) in enumerate(zip(self._tasks.tolist(), self._options, strict=True)):
            for d in there.values():
                duration[k, column[d]] = p.duration[task, d]
        duration[[w, w + 1], len(used)] = 0
        duration[w + 2 + ghosts, len(used) + 1 + ghosts] = 0
        # One more location, for what is around the window, with a class of its own for each path from and to it.
        classes = p.transfer.shape[1]
        path_class = np.full((places + 1, places + 1), -1)
        path_class[:places, :places] = p.path_class
        path_class[places, :places] = classes + np.arange(places)
        path_class[:places, places] = classes + places + np.arange(places)
        links = np.full((places + 1, places + 1, p.holds.shape[2]), -1)
        links[:places, :places] = p.holds
        moves = np.array([len(there) > 1 for there in self._options], dtype=bool)
        group = np.where(moves & (self._t.size[self._t.unit[self._tasks]] > 1), self._t.unit[self._tasks], -1)
        # Tasks that may move hold bytes; a location allows what all else leaves, and at least what is there of these.
        memory = np.where(moves, p.memory[self._tasks], 0)
        here = np.zeros(places, dtype=np.int64)
        np.add.at(here, self._standing.at[self._tasks], memory)
        return Problem(
            duration=duration,
            location=np.concatenate([p.location[used], [places], np.array(self._ghosts, dtype=np.int64)]),
            memory=np.append(memory, np.zeros(2 + len(ghosts), dtype=np.int64)),
            capacity=np.append(np.maximum(p.capacity - self._standing.held, 0) + here, 0),
            src=np.array(self._src),
            dst=np.array(self._dst),
            payload=np.array(self._payload),
            producer=np.array(self._producer),
            transfer=np.array(self._transfer),
            path_class=path_class,
            path_links=links,
            group=np.append(group, np.full(2 + len(ghosts), -1)),
        )
