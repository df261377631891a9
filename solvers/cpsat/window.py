"""One neighbourhood of a schedule as a small CP-SAT model: its free tasks are placed and ordered anew.

    minimise    M  within floor..most
    S[i] >= ready[d],  M >= E[i] + rest[d]    on the device d of i: when what is settled ends, the first later tail
    S[j] >= E[i],  M >= E[i] + tail[k]        edges to tasks j in the window, and to later ones k
    no-overlap on devices and links, with the settled transfers; the order of the tasks that are kept; memory; and the
    rows of `solvers.cpsat.model` for the payloads that tasks in the window send or read

where the cut is of the schedule's surroundings, as far as they matter (`ScheduleCut`). The schedule itself is a
solution where most >= its makespan. A solution is a schedule of M ticks, but for what `ScheduleCut.amid` may delay. Its
size is that of the window, not of the problem.

The window is from the first start to the last finish of the free tasks. All other activities are

    settled   started before the window: they stay as they are, in time too
    kept      tasks that start within it: their device and the order among them stay, their times do not
    later     start after it: they stay where they are and in their order, after all that is in the window, so all that
              matters of them is their tail, the ticks from their start to the end of the schedule
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from solvers.compiled.dag import topological_order
from solvers.cpsat.model import Expression, Literal
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.structure.units import units_of

# A problem by who waits for whom, and a schedule as a network of activities: what neighbourhoods are cut from.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProblemTables:
    """The tables of a problem as lists, for code that looks at a few tasks at a time."""

    problem: Problem
    unit: list[int]
    """Unit of each task."""
    position: list[int]
    """Place of each task in a topological order."""
    members: list[list[int]]
    """By unit: its tasks."""
    places: list[list[int]]
    """By unit: the locations where the unit can be."""
    held: list[int]
    """By unit: the bytes that its tasks hold."""
    inputs: list[list[tuple[int, int]]]
    """By task: every predecessor with the payload that it sends, -1 for none."""
    outputs: list[list[tuple[int, int]]]
    """By task: every successor with the payload that it reads, -1 for none."""
    readers: list[list[int]]
    """By payload: its consumers."""
    producer: list[int]
    duration: list[list[int]]
    """By task and device: ticks, -1 where the device cannot run the task."""
    devices: list[list[int]]
    """By task: the devices that can run it."""
    location: list[int]
    """By device: the location whose memory it uses."""
    path: list[list[tuple[int, ...]]]
    """By source and target: the links of a transfer."""

    def ticks(self, payload: int, source: int, to: int) -> int:
        """Return ticks of a payload from one location to another."""
        p = self.problem
        return int(p.transfer[payload, p.path_class[source, to]])


def network_of(problem: Problem) -> ProblemTables:
    """Return the tables of a problem. O(n m + e + l^2)."""
    units, n = units_of(problem), problem.tasks
    members: list[list[int]] = [[] for _ in range(len(units.memory))]
    for task, unit in enumerate(units.unit.tolist()):
        members[unit].append(task)
    inputs: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    outputs: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    readers: list[list[int]] = [[] for _ in range(problem.payloads)]
    # An edge may be given twice.
    edges = list(zip(problem.src.tolist(), problem.dst.tolist(), problem.payload.tolist(), strict=True))
    for tail, head, payload in sorted(set(edges)):
        inputs[head].append((tail, payload))
        outputs[tail].append((head, payload))
        if payload >= 0:
            readers[payload].append(head)
    return ProblemTables(
        problem=problem, unit=units.unit.tolist(),
        position=np.argsort(topological_order(n, problem.src, problem.dst)).tolist(), members=members,
        places=[np.flatnonzero(row).tolist() for row in units.allowed], held=units.memory.tolist(), inputs=inputs,
        outputs=outputs, readers=readers, producer=problem.producer.tolist(), duration=problem.duration.tolist(),
        devices=[np.flatnonzero(row).tolist() for row in problem.allowed], location=problem.location.tolist(),
        path=[[tuple(sorted({link for link in to if link >= 0})) for to in row] for row in problem.holds.tolist()],
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActivityTimeline:
    """A valid schedule whose activities, the n tasks and then the transfers, know what is left after they start."""

    network: ProblemTables
    schedule: Schedule
    makespan: int
    device: list[int]
    """By task: its device."""
    at: list[int]
    """By task: its location."""
    start: list[int]
    """By activity: the tick at which it starts."""
    finish: list[int]
    """By activity: the tick at which it ends."""
    tail: list[int]
    """By activity: the ticks of the longest path from its start, along precedence and the orders of the schedule."""
    sent: dict[tuple[int, int], int]
    """The activity of each transfer, by payload and target."""
    links: list[tuple[int, ...]]
    """By transfer: the links that it holds."""

    @property
    def tasks(self) -> int:
        """Number of tasks: the index of the first transfer."""
        return len(self.device)

    def rank(self, task: int) -> tuple[int, int, int]:
        """By which tasks are in time: none is before one that it waits for."""
        return self.start[task], self.finish[task], self.network.position[task]

    @property
    def critical(self) -> list[int]:
        """The tasks that cannot be later without delaying the schedule's end, as long as all orders stay."""
        return [i for i in range(self.tasks) if self.start[i] + self.tail[i] == self.makespan]


def timeline_of(network: ProblemTables, schedule: Schedule) -> ActivityTimeline:
    """Return the timeline of a schedule that is valid for the network's problem. O((n + e + t) log n)."""
    device, n = schedule.device.tolist(), len(schedule.device)
    at = [network.location[d] for d in device]
    crossings = list(zip(schedule.sent_payload.tolist(), schedule.sent_to.tolist(), strict=True))
    links = [network.path[at[network.producer[payload]]][to] for payload, to in crossings]
    start = [*schedule.start.tolist(), *schedule.sent_start.tolist()]
    finish = [*schedule.finish.tolist(), *schedule.sent_finish.tolist()]
    sent = {crossing: n + k for k, crossing in enumerate(crossings)}
    # By activity: what waits for it, orders aside.
    after: list[list[int]] = [[] for _ in start]
    for task, outputs in enumerate(network.outputs):
        for head, payload in outputs:
            crosses = payload >= 0 and at[head] != at[task]
            after[sent[payload, at[head]] if crosses else task].append(head)
    for (payload, _), activity in sent.items():
        after[network.producer[payload]].append(activity)
    # The activities by (start, finish); those of no time that tie, so that none precedes what it waits for.
    position = [(place, 0) for place in network.position]
    position += [(network.position[network.producer[payload]], 1) for payload, _ in crossings]
    order = sorted(range(len(start)), key=lambda a: (start[a], finish[a], position[a]))
    # The orders on devices and links: each activity is followed by the next that holds what it held.
    last: dict[int, int] = {}
    holds = [*((d,) for d in device), *(tuple(-1 - link for link in held) for held in links)]
    for activity in order:
        for resource in holds[activity]:
            if resource in last:
                after[last[resource]].append(activity)
            last[resource] = activity
    tail = [f - s for s, f in zip(start, finish, strict=True)]
    for activity in reversed(order):
        tail[activity] += max([tail[follower] for follower in after[activity]], default=0)
    return ActivityTimeline(
        network=network, schedule=schedule, makespan=schedule.makespan, device=device, at=at, start=start,
        finish=finish, tail=tail, sent=sent, links=links,
    )  # fmt: skip


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
        edges = (edge for i in self.active for edge in (*self.network.outputs[i], *self.network.inputs[i]))
        self.payloads = {payload for _, payload in edges if payload >= 0}
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
        """Return the locations where a unit may be: its own, unless it may move."""
        here = self.timeline.at[self.network.members[unit][0]]
        if unit not in self.free.units:
            return [here]
        to = self.free.places
        return [place for place in self.network.places[unit] if to is None or place in to or place == here]

    def _transfers(self) -> None:
        t = self.timeline
        for crossing, activity in t.sent.items():
            links, (payload, to) = t.links[activity - t.tasks], crossing
            producer, readers = self.network.producer[payload], self.network.readers[payload]
            if producer not in self.active and (
                t.start[activity] < self.begin or any(t.at[i] == to and i in self._settled for i in readers)
            ):
                self.settled[crossing] = activity
                for link in links:
                    self.blocks[link].append(activity)
            # Else a free task may send it at another time, or a task in the window need it.
            elif (
                t.start[activity] >= self._end
                and not self.active.get(producer)
                and not any(to in self.places(self.network.unit[i]) for i in readers if i in self.active)
            ):
                self.later[crossing] = activity
                for link in links:
                    self.link_rest[link] = max(self.link_rest[link], t.tail[activity])
            else:
                self.payloads.add(payload)
                if t.start[activity] >= self._end:
                    self.amid[crossing] = activity

    def _paths(self) -> Iterator[int]:
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


_CORES = 3
"""Devices of one location that a task is offered beside its own: those that are free first."""


class _OpenTransfer(NamedTuple):
    """A transfer that the model decides on."""

    crossing: Crossing
    present: Literal
    start: Expression
    arrival: Expression


class Window:
    """The model of a neighbourhood, `cp`, and the way back from its solutions. `cut.floor` must not exceed `most`.

    TimeoutError once `clock()`, in seconds, is used up before it is built.
    """

    def __init__(self, cut: ScheduleCut, most: int, clock: Callable[[], float] = lambda: math.inf) -> None:
        self._clock = clock
        self._cut, self._t, self._w, self._most = cut, cut.timeline, cut.network, most
        self.cp = cp_model.CpModel()
        self._one, self._hint = self.cp.new_constant(1), dict[int, tuple[Any, int]]()
        self._makespan = self.cp.new_int_var(cut.floor, most, "M")
        self._at: dict[int, dict[int, Literal]] = {}
        self._on: dict[int, dict[int, Literal]] = {}
        self._start: dict[int, Expression] = {}
        self._end: dict[int, Expression] = {}
        self._sends: list[_OpenTransfer] = []
        self._links = defaultdict[int, list[tuple[int, Any]]](list)
        # Every unit that may move at exactly one location; the others where they are.
        moved: dict[int, dict[int, Literal]] = {}
        for unit in sorted(cut.free.units):
            here = self._t.at[self._w.members[unit][0]]
            moved[unit] = {place: self._new(place == here) for place in cut.places(unit)}
            self.cp.add_exactly_one(moved[unit].values())
        for task in cut.active:
            self._at[task] = moved.get(self._w.unit[task], {self._t.at[task]: self._one})
        self._tasks()
        t, last = self._t, dict[int, int]()
        kept = (i for i, free in self._cut.active.items() if not free)
        for task in sorted(kept, key=t.rank):
            if t.device[task] in last:
                self.cp.add(self._start[task] >= self._end[last[t.device[task]]])
            last[t.device[task]] = task
        self._payloads()
        # One transfer at a time on every link, the settled ones where they are.
        for link, transfers in self._links.items():
            begin = min(least for least, _ in transfers)
            fixed = [a for a in cut.blocks[link] if t.finish[a] > begin]
            blocks = [self.cp.new_fixed_size_interval_var(t.start[a], t.finish[a] - t.start[a], "") for a in fixed]
            self.cp.add_no_overlap([*(interval for _, interval in transfers), *blocks])
        # Add memory rows: the units that may move fit the room that the others leave at every location.
        w, units = self._w, sorted(self._cut.free.units)
        room = w.problem.capacity.tolist()
        for unit, members in enumerate(w.members):
            if unit not in self._cut.free.units:
                room[self._t.at[members[0]]] -= w.held[unit]
        for place, left in enumerate(room):
            at = [(w.held[u], self._at[w.members[u][0]]) for u in units]
            come = [(held, x[place]) for held, x in at if held and place in x]
            if sum(held for held, _ in come) > left:
                self.cp.add(sum(held * x for held, x in come) <= left)
        self.cp.minimize(self._makespan)
        for variable, value in self._hint.values():
            self.cp.add_hint(variable, value)

    def _when(self, constraint: Any, literal: Literal) -> None:
        if literal is not self._one:
            constraint.only_enforce_if(literal)

    def _new(self, was: bool) -> Literal:
        literal = self.cp.new_bool_var("")
        self._hint[literal.index] = literal, int(was)
        return literal

    def _time(self, least: int, was: int) -> Expression:
        variable = self.cp.new_int_var(min(least, self._most), self._most, "")
        self._hint[variable.index] = variable, was
        return variable

    def _tasks(self) -> None:
        """Start, end and devices of every task, between what is settled and what is later; and precedence."""
        busy = defaultdict[int, list[Any]](list)
        for task, free in self._cut.active.items():
            on = {self._t.device[task]: self._one}
            if free:
                on = {d: y for place, x in self._at[task].items() for d, y in self._devices(task, place, x)}
            took, start = self._w.duration[task], self._time(self._cut.begin, self._t.start[task])
            ticks = {took[d] for d in on}
            end = start + (ticks.pop() if len(ticks) == 1 else sum(took[d] * y for d, y in on.items()))
            self.cp.add(self._makespan >= end)
            for d, y in on.items():
                busy[d].append(self.cp.new_optional_fixed_size_interval_var(start, took[d], y, ""))
                if self._cut.ready[d] > self._cut.begin:
                    self._when(self.cp.add(start >= self._cut.ready[d]), y)
                if self._cut.rest[d]:
                    self._when(self.cp.add(self._makespan >= start + (took[d] + self._cut.rest[d])), y)
            self._on[task], self._start[task], self._end[task] = on, start, end
        for intervals in busy.values():
            self.cp.add_no_overlap(intervals)
        cut, t = self._cut, self._t
        for task in cut.active:
            for j, _ in self._w.outputs[task]:
                if j in cut.active:
                    self.cp.add(self._start[j] >= self._end[task])
                elif cut.is_later(j):
                    self.cp.add(self._makespan >= self._end[task] + t.tail[j])
            done = max([0, *(t.finish[i] for i, _ in self._w.inputs[task] if i not in cut.active)])
            if done > cut.begin:
                self.cp.add(self._start[task] >= done)

    def _devices(self, task: int, place: int, here: Literal) -> Iterable[tuple[int, Literal]]:
        """The devices of a location that a task is offered, with literals: exactly one of them if it is there."""
        mine = self._t.device[task]
        able = [d for d in self._w.devices[task] if self._w.location[d] == place]
        offered = sorted(able, key=lambda d: (d != mine, self._cut.ready[d], d))[: _CORES + 1]
        if len(offered) == 1:
            return ((offered[0], here),)
        literals = [self._new(d == mine) for d in offered]
        # Where the location is not open to choice, `here` is a constant.
        self.cp.add_exactly_one(literals if here is self._one else [*literals, ~here])
        return zip(offered, literals, strict=True)

    def _payloads(self) -> None:
        """Every payload with an open transfer, to every location where it may be needed."""
        cut, t = self._cut, self._t
        for payload in sorted(cut.payloads):
            producer = self._w.producer[payload]
            home = self._at.get(producer) or {t.at[producer]: self._one}
            # The tasks in the window, or later, that read a payload whose producer is not later, by where they may be.
            targets: dict[int, list[int]] = {}
            for task in () if cut.is_later(producer) else self._w.readers[payload]:
                if task in cut.active:
                    for place in self._at[task]:
                        targets.setdefault(place, []).append(task)
                elif cut.is_later(task):
                    targets.setdefault(t.at[task], []).append(task)
            for to, readers in targets.items():
                if (payload, to) in cut.settled:
                    arrived = t.finish[cut.settled[payload, to]]
                    for task in readers if arrived > cut.begin else ():
                        if task in cut.active:
                            self._when(self.cp.add(self._start[task] >= arrived), self._at[task][to])
                elif (payload, to) in cut.later:
                    if producer in cut.active:
                        rest = t.tail[cut.later[payload, to]]
                        self.cp.add(self._makespan >= self._end[producer] + rest)
                elif any(place != to for place in home) and home.get(to) is not self._one:
                    self._crossing((payload, to), home, readers)

    def _crossing(self, crossing: Crossing, home: dict[int, Literal], readers: list[int]) -> None:
        """One payload to one target: whether, when and along which path."""
        if self._clock() <= 0:
            raise TimeoutError("the window is too large to be built within the limit")
        t, (payload, to) = self._t, crossing
        producer = self._w.producer[payload]
        active = producer in self._cut.active
        least = self._cut.begin if active else t.finish[producer]
        was = t.start[t.sent[crossing]] if crossing in t.sent else t.finish[producer]
        present = self._present(
            crossing, home.get(to), [self._at[i][to] if i in self._at else self._one for i in readers]
        )
        start = self._time(least, was)
        if active:
            self.cp.add(start >= self._end[producer])
        arrival = start
        for ticks, links, literal in self._variants(crossing, home, present):
            arrival = arrival + (ticks if literal is self._one else ticks * literal)
            held = self.cp.new_optional_fixed_size_interval_var(start, ticks, literal, "")
            for link in links:
                self._links[link].append((least, held))
                if self._cut.link_rest[link] and crossing not in self._cut.amid:
                    self._when(self.cp.add(self._makespan >= start + (ticks + self._cut.link_rest[link])), literal)
        for task in readers:
            if task in self._cut.active:
                self._when(self.cp.add(self._start[task] >= arrival), self._at[task][to])
            else:
                self.cp.add(self._makespan >= arrival + t.tail[task])
        self._sends.append(_OpenTransfer(crossing, present, start, arrival))

    def _present(self, crossing: Crossing, home: Literal | None, there: list[Literal]) -> Literal:
        """Return the literal of the payload crossing: some consumer is there, and its producer is not."""
        if any(x is self._one for x in there):
            return self._one if home is None else ~home
        present = self._new(crossing in self._t.sent)
        for x in there:
            self.cp.add_bool_or([~x, present] if home is None else [~x, present, home])
        self.cp.add_bool_or([~present, *there])
        if home is not None:
            self.cp.add_implication(present, ~home)
        return present

    def _variants(
        self, crossing: Crossing, home: dict[int, Literal], present: Literal
    ) -> Iterator[tuple[int, tuple[int, ...], Literal]]:
        """Yield ticks and links for each group of sources that are alike, and whether the payload comes from there."""
        payload, to = crossing
        alike: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        for place in home:
            if place != to:
                alike.setdefault((self._w.ticks(payload, place, to), self._w.path[place][to]), []).append(place)
        if len(alike) == 1:
            yield from ((ticks, links, present) for ticks, links in alike)
            return
        here, chosen = self._t.at[self._w.producer[payload]], []
        for (ticks, links), places in alike.items():
            chosen.append(self._new(crossing in self._t.sent and here in places))
            self.cp.add_bool_or([~chosen[-1], *(home[place] for place in places)])
            yield ticks, links, chosen[-1]
        self.cp.add_exactly_one(chosen if present is self._one else [*chosen, ~present])

    def answer(self, value: Callable[[Any], int]) -> Schedule:
        """Return the rough schedule of a solution: devices, the window's times, and later activities after these."""
        t, n = self._t, self._t.tasks
        shift = t.makespan + self._most
        device, delay = list(t.device), [shift if self._cut.is_later(i) else 0 for i in range(n)]
        start = [begin + late for begin, late in zip(t.start[:n], delay, strict=True)]
        finish = [end + late for end, late in zip(t.finish[:n], delay, strict=True)]
        for task, on in self._on.items():
            start[task], finish[task] = value(self._start[task]), value(self._end[task])
            device[task] = next(d for d, y in on.items() if value(y))
        sent = {key: (t.start[a], t.finish[a]) for key, a in self._cut.settled.items()}
        sent |= {key: (t.start[a] + shift, t.finish[a] + shift) for key, a in self._cut.later.items()}
        sent |= {s.crossing: (value(s.start), value(s.arrival)) for s in self._sends if value(s.present)}
        for key, activity in self._cut.amid.items():
            if key in sent and sent[key][0] >= t.start[activity]:
                sent[key] = t.start[activity] + shift, t.finish[activity] + shift
        return Schedule(
            device=np.array(device),
            start=np.array(start),
            finish=np.array(finish),
            sent_payload=np.array([payload for payload, _ in sent], dtype=np.int64),
            sent_to=np.array([to for _, to in sent], dtype=np.int64),
            sent_start=np.array([begin for begin, _ in sent.values()], dtype=np.int64),
            sent_finish=np.array([end for _, end in sent.values()], dtype=np.int64),
        )
