"""Schedule checker: exact integers, tolerance 0. Shares no code with any solver, replay or bound."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from solvers.arguments import expect
from solvers.arrays import Bools, Ints
from solvers.footprint import Footprint
from solvers.problem import Problem
from solvers.schedule import Schedule

LATEST = 2**62
"""Times beyond this are refused, so that no difference of two times overflows."""
SHOWN = 3
"""Greatest number of violations of one kind that are reported."""

KINDS = {
    "shape": "an array is not one entry a task, or not one a transfer",
    "device": "a task is on a device that does not exist",
    "payload": "a transfer is of a payload that does not exist",
    "location": "a transfer goes to a location that does not exist",
    "time": "a time is negative or 2**62 ticks or later",
    "forbidden": "a task is on a device that cannot run it",
    "duration": "a task's finish is not its start and its duration",
    "group": "the tasks of a group are at different locations",
    "memory": "the tasks at a location occupy more than its capacity",
    "peak": "more bytes are alive at a location at once than its capacity",
    "duplicate": "a payload crosses more than once to a location",
    "spurious": "a payload crosses to where it is produced, or where nothing reads it",
    "missing": "a payload does not cross to where it is read",
    "early": "a transfer starts before its producer finishes",
    "length": "a transfer does not take the ticks of its path",
    "precedence": "a task starts before a predecessor finishes",
    "arrival": "a task starts before a payload that it reads arrives",
    "overlap": "two tasks run on a device at once",
    "contention": "two transfers hold a link at once",
}
"""Possible values of `Violation.kind`, with their meanings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One reason why a schedule is invalid."""

    kind: str
    """One of `solvers.checker.KINDS`."""
    text: str
    """One line with the tasks, payloads, locations and ticks concerned."""


def check(problem: Problem, schedule: Schedule) -> tuple[Violation, ...]:
    """Return the violations that make `schedule` invalid, () if it is valid; at most 3 of each kind.

    Two intervals on one device or link overlap when each starts before the other finishes: a task of zero ticks may
    touch another at its boundary but not lie strictly inside it. Malformed arrays (kinds "shape" to "time") are
    reported alone. O(n log n) in tasks, edges and transfers.

    Whatever the two hold, nothing is raised but TypeError, for what is no Problem or no Schedule.
    """
    expect("problem", problem, Problem, "a solvers.Problem")
    expect("schedule", schedule, Schedule, "a solvers.Schedule")
    malformed = tuple(_shapes(problem, schedule)) or tuple(_ranges(problem, schedule))
    if malformed:
        return malformed
    wrong = (
        *_placement(problem, schedule),
        *_memory(problem, schedule),
        *_transfers(problem, schedule),
        *_edges(problem, schedule),
        *_overlaps(problem, schedule),
    )
    # Who reads what where is known of a schedule that is valid otherwise.
    return wrong or tuple(_alive(problem, schedule))


def _report(kind: str, bad: Bools, text: Callable[[int], str]) -> Iterator[Violation]:
    """Yield a violation for the first SHOWN places where `bad` holds."""
    where = np.flatnonzero(bad)
    for index in where[:SHOWN].tolist():
        yield Violation(kind=kind, text=f"{text(index)} ({len(where)} like this)" if len(where) > 1 else text(index))


def _shapes(p: Problem, s: Schedule) -> Iterator[Violation]:
    transfers = (s.sent_payload.size,)
    want = {
        "device": (s.device, (p.tasks,)), "start": (s.start, (p.tasks,)), "finish": (s.finish, (p.tasks,)),
        "sent_payload": (s.sent_payload, transfers), "sent_to": (s.sent_to, transfers),
        "sent_start": (s.sent_start, transfers), "sent_finish": (s.sent_finish, transfers),
    }  # fmt: skip
    for name, (array, shape) in want.items():
        if array.shape != shape:
            yield Violation(kind="shape", text=f"{name} has shape {array.shape}, expected {shape}")


def _ranges(p: Problem, s: Schedule) -> Iterator[Violation]:
    limits = (
        ("device", "device", s.device, p.devices),
        ("payload", "sent_payload", s.sent_payload, p.payloads),
        ("location", "sent_to", s.sent_to, p.locations),
        ("time", "start", s.start, LATEST),
        ("time", "finish", s.finish, LATEST),
        ("time", "sent_start", s.sent_start, LATEST),
        ("time", "sent_finish", s.sent_finish, LATEST),
    )
    for kind, name, array, beyond in limits:
        yield from _report(kind, (array < 0) | (array >= beyond), _outside(name, array, beyond))


def _outside(name: str, array: Ints, beyond: int) -> Callable[[int], str]:
    return lambda i: f"{name}[{i}] = {array[i]} is not in 0..{beyond - 1}"


def _placement(p: Problem, s: Schedule) -> Iterator[Violation]:
    task = np.arange(p.tasks)
    allowed = p.allowed[task, s.device]
    yield from _report("forbidden", ~allowed, lambda i: f"task {i} cannot run on device {s.device[i]}")
    ticks = p.duration[task, s.device]
    yield from _report(
        "duration",
        allowed & (s.finish - s.start != ticks),
        lambda i: f"task {i} runs from {s.start[i]} to {s.finish[i]}, not for {ticks[i]} on device {s.device[i]}",
    )
    member = np.flatnonzero(p.group >= 0)
    member = member[np.argsort(p.group[member], kind="stable")]
    one, two = member[:-1], member[1:]
    at = p.location[s.device]
    yield from _report(
        "group",
        (p.group[one] == p.group[two]) & (at[one] != at[two]),
        lambda i: f"group {p.group[one[i]]}: task {one[i]} is at location {at[one[i]]}, {two[i]} at {at[two[i]]}",
    )


def _memory(p: Problem, s: Schedule) -> Iterator[Violation]:
    at = p.location[s.device]
    # Summed in halves: the whole could overflow.
    high, low = np.zeros(p.locations, dtype=np.int64), np.zeros(p.locations, dtype=np.int64)
    np.add.at(high, at, p.memory >> 32)
    np.add.at(low, at, p.memory & 0xFFFFFFFF)
    for place, capacity in enumerate(p.capacity.tolist()):
        used = (int(high[place]) << 32) + int(low[place])
        if used > capacity:
            text = f"tasks at location {place} occupy {used} bytes, {used - capacity} more than its {capacity}"
            yield Violation(kind="memory", text=text)


def _cut(p: Problem, s: Schedule) -> Bools:
    """Return [e] whether an edge carries a payload between two locations."""
    at = p.location[s.device]
    return (p.payload >= 0) & (at[p.src] != at[p.dst])


def _crossings(p: Problem, payload: Ints, to: Ints) -> Ints:
    """Return one number for each payload and location."""
    return payload * p.locations + to


def _among(values: Ints, ordered: Ints) -> tuple[Bools, Ints]:
    """Return for each value whether a sorted array has it, and the index of its first place."""
    if not len(ordered):
        return np.zeros(len(values), dtype=bool), np.zeros(len(values), dtype=np.int64)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return ordered[place] == values, place


def _transfers(p: Problem, s: Schedule) -> Iterator[Violation]:
    sent = _crossings(p, s.sent_payload, s.sent_to)
    ordered = np.sort(sent)
    cut = _cut(p, s)
    needed = np.unique(_crossings(p, p.payload[cut], p.location[s.device[p.dst[cut]]]))

    def name(crossing: int) -> str:
        return f"payload {crossing // p.locations} to location {crossing % p.locations}"

    again = ordered[1:] == ordered[:-1]
    yield from _report("duplicate", again, lambda i: f"{name(ordered[i])} crosses more than once")
    unread = ~_among(sent, needed)[0]
    yield from _report("spurious", unread, lambda i: f"transfer {i} of {name(sent[i])} has no reader there")
    unsent = ~_among(needed, ordered)[0]
    yield from _report("missing", unsent, lambda i: f"{name(needed[i])} does not cross, though a task there reads it")
    producer = p.producer[s.sent_payload]
    ready = s.finish[producer]
    yield from _report(
        "early",
        s.sent_start < ready,
        lambda i: f"transfer {i} starts at {s.sent_start[i]}, before task {producer[i]} finishes at {ready[i]}",
    )
    origin = p.location[s.device[producer]]
    ticks = np.zeros(len(origin), dtype=np.int64)
    away = origin != s.sent_to
    ticks[away] = p.transfer[s.sent_payload[away], p.path_class[origin[away], s.sent_to[away]]]
    yield from _report(
        "length",
        away & (s.sent_finish - s.sent_start != ticks),
        lambda i: f"transfer {i} runs from {s.sent_start[i]} to {s.sent_finish[i]}, not for {ticks[i]}",
    )


def _edges(p: Problem, s: Schedule) -> Iterator[Violation]:
    cut = _cut(p, s)
    finish, start = s.finish[p.src], s.start[p.dst]
    yield from _report(
        "precedence",
        ~cut & (finish > start),
        lambda i: f"task {p.dst[i]} starts at {start[i]}, before task {p.src[i]} finishes at {finish[i]}",
    )
    sent = _crossings(p, s.sent_payload, s.sent_to)
    order = np.argsort(sent, kind="stable")
    found, place = _among(_crossings(p, p.payload, p.location[s.device[p.dst]]), sent[order])
    arrival = np.zeros(p.edges, dtype=np.int64)
    arrival[found] = s.sent_finish[order[place[found]]]
    yield from _report(
        "arrival",
        cut & found & (arrival > start),
        lambda i: f"task {p.dst[i]} starts at {start[i]}, before payload {p.payload[i]} arrives at {arrival[i]}",
    )


def _collisions(resource: Ints, start: Ints, finish: Ints) -> tuple[Ints, Ints]:
    """Return pairs of intervals that overlap on a resource; none only when there is none."""
    order = np.lexsort((finish, start, resource))
    one, two = order[:-1], order[1:]
    # In this order, intervals of which no two neighbours overlap finish one after the other.
    hit = (resource[one] == resource[two]) & (start[two] < finish[one])
    return one[hit], two[hit]


def _overlaps(p: Problem, s: Schedule) -> Iterator[Violation]:
    one, two = _collisions(s.device, s.start, s.finish)
    yield from _report(
        "overlap",
        np.ones(len(one), dtype=bool),
        lambda i: (
            f"device {s.device[one[i]]}: task {two[i]} starts at {s.start[two[i]]}, "
            f"before task {one[i]} finishes at {s.finish[one[i]]}"
        ),
    )
    path = p.path_links[p.location[s.device[p.producer[s.sent_payload]]], s.sent_to]
    # A path that names a link twice holds it once.
    first = np.ones(path.shape, dtype=bool)
    for column in range(1, path.shape[1]):
        first[:, column] = ~(path[:, :column] == path[:, column : column + 1]).any(axis=1)
    transfer, hold = np.nonzero(first & (path >= 0))
    link = path[transfer, hold]
    one, two = _collisions(link, s.sent_start[transfer], s.sent_finish[transfer])
    yield from _report(
        "contention",
        np.ones(len(one), dtype=bool),
        lambda i: (
            f"link {link[one[i]]}: transfer {transfer[two[i]]} starts at {s.sent_start[transfer[two[i]]]}, "
            f"before transfer {transfer[one[i]]} finishes at {s.sent_finish[transfer[one[i]]]}"
        ),
    )


def _alive(p: Problem, s: Schedule) -> Iterator[Violation]:
    """Yield, where there are lives, the first tick at which a location has more alive than it can hold."""
    if p.lives is None:
        return
    cells = _Cells(p.lives, s, p.location[s.device].tolist())
    for place, capacity in enumerate(p.capacity.tolist()):
        events = sorted(cells.events(place))
        level = sum(p.memory[p.location[s.device] == place].tolist())
        for tick, change in events:
            level += change
            if level > capacity:
                over = f"{level - capacity} more than its {capacity}"
                text = f"{level} bytes are alive at location {place} at {tick}, {over}"
                yield Violation(kind="peak", text=text)
                break


Cell = tuple[int, int, int]
"""A buffer, a location, and the payload that brought it there; -1 where it was made."""


class _Cells:
    """Runs of bytes: buffers where they were made, and copies that were received.

    A cell may be another name of a cell, for good or in this schedule: then it has no bytes of its own.
    """

    def __init__(self, f: Footprint, s: Schedule, at: list[int]) -> None:
        self.lives, self.schedule, self.at = f, s, at
        self.begin: dict[Cell, int] = {}
        self.uses: dict[Cell, list[tuple[int, int]]] = {}
        """Uses of each cell as (end tick, read); the read is -1 for a send, -2 for the maker of the cell."""
        self.name_of: dict[Cell, Cell] = {}
        for buffer, maker in enumerate(f.maker.tolist()):
            self._made((buffer, self.at[maker], -1), int(s.start[maker]), int(s.finish[maker]))
        brings = dict(zip(f.read_payload.tolist(), f.read_buffer.tolist(), strict=True))
        sent = zip(
            s.sent_payload.tolist(), s.sent_to.tolist(), s.sent_start.tolist(), s.sent_finish.tolist(), strict=True
        )
        for payload, to, start, finish in sent:
            buffer = brings.get(payload, -1)
            if buffer >= 0:
                self._made((buffer, to, payload), start, finish)
                self.uses[buffer, self.at[f.maker[buffer]], -1].append((finish, -1))
        for read, by in enumerate(f.read_by.tolist()):
            self.uses[self._found(read)].append((int(s.finish[by]), read))
        self._name()

    def _made(self, cell: Cell, start: int, finish: int) -> None:
        self.begin[cell] = start
        self.uses[cell] = [(finish, -2)]

    def _found(self, read: int) -> Cell:
        buffer, to = int(self.lives.read_buffer[read]), self.at[self.lives.read_by[read]]
        here = self.at[self.lives.maker[buffer]] == to
        return buffer, to, -1 if here else int(self.lives.read_payload[read])

    def _root(self, cell: Cell) -> Cell:
        while cell in self.name_of:
            cell = self.name_of[cell]
        return cell

    def _name(self) -> None:
        """Set names for good, then what is taken over in place: bytes that nothing else uses when the maker starts."""
        f = self.lives
        home = [(buffer, self.at[maker], -1) for buffer, maker in enumerate(f.maker.tolist())]
        for buffer in np.flatnonzero(f.passes >= 0).tolist():
            self.name_of[home[buffer]] = self._found(int(f.passes[buffer]))
        used: dict[Cell, list[tuple[int, int]]] = {}
        for cell, uses in self.uses.items():
            used.setdefault(self._root(cell), []).extend(use for use in uses if use[1] != -2)
        taker: dict[Cell, int] = {}
        for buffer in np.flatnonzero((f.reuses >= 0) & (f.passes < 0)).tolist():
            read, start = int(f.reuses[buffer]), int(self.schedule.start[f.maker[buffer]])
            cell = self._root(self._found(read))
            busy = any(end > start for end, by in used[cell] if by != read)
            if f.size[cell[0]] == f.size[buffer] and not busy:
                taker[cell] = buffer
        for buffer in taker.values():
            self.name_of[home[buffer]] = self._found(int(f.reuses[buffer]))

    def events(self, place: int) -> Iterator[tuple[int, int]]:
        """Yield (tick, change of the bytes alive) at a location; sorted, what goes at a tick is before what comes."""
        end: dict[Cell, int] = {}
        for cell, uses in self.uses.items():
            root = self._root(cell)
            end[root] = max(end.get(root, 0), *(until for until, _ in uses))
        f, s = self.lives, self.schedule
        spans = [(self.begin[cell], end[cell], int(f.size[cell[0]])) for cell in end if cell[1] == place]
        busy = [task for task in np.flatnonzero(f.scratch).tolist() if self.at[task] == place]
        spans += [(int(s.start[task]), int(s.finish[task]), int(f.scratch[task])) for task in busy]
        for begin, last, size in spans:
            if begin < last and size:
                yield begin, size
                yield last, -size
