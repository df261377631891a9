"""Memory over time: which bytes are alive at which location while a schedule runs."""

from dataclasses import dataclass, fields

import numpy as np

from solvers.arrays import Ints, ints
from solvers.problem import Problem
from solvers.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Footprint:
    """What the n tasks of a problem hold, in bytes; it says nothing of where and when.

    A *buffer* is what a task makes: it is alive at its maker's location from the maker's start until the last read
    or send there has finished, and at every other location with a reader from the start of its transfer until the
    last read there has finished. ValueError when shapes differ or an index is out of range.
    """

    static: Ints
    """[n] bytes that a task holds at its location for the whole schedule (variables)."""
    size: Ints
    """[b] bytes of each buffer."""
    maker: Ints
    """[b] task that makes each buffer."""
    passes: Ints
    """[b] the read (0..r-1, one of the maker's) whose bytes this buffer is another name of; -1: bytes of its own."""
    read_buffer: Ints
    """[r] buffer of each read."""
    read_by: Ints
    """[r] task that reads it."""
    read_payload: Ints
    """[r] payload of the problem that brings it there, where maker and reader are apart."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        for f in fields(self):
            object.__setattr__(self, f.name, ints(getattr(self, f.name)))
        b, r = len(self.size), len(self.read_buffer)
        if not len(self.maker) == len(self.passes) == b or not len(self.read_by) == len(self.read_payload) == r:
            raise ValueError("the columns of the buffers, and those of the reads, must be equally long")
        for name, beyond in (
            ("maker", len(self.static)),
            ("passes", r),
            ("read_buffer", b),
            ("read_by", len(self.static)),
        ):
            values = getattr(self, name)
            if len(values) and not -1 <= values.min() <= values.max() < beyond:
                raise ValueError(f"{name} points at nothing (0..{beyond - 1} exist)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Usage:
    """Bytes of one schedule by location."""

    static: Ints
    """[l] bytes held for the whole schedule."""
    peak: Ints
    """[l] most bytes alive at any tick, the static ones included."""
    when: Ints
    """[l] a tick at which that is so."""
    alive: Ints
    """[n] bytes of each task, static ones included, that are alive when its location is at its peak."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spans:
    """One row for each buffer where it was made, then one for each received copy (in the order of the transfers)."""

    location: Ints
    size: Ints
    """0 where the row is another name of a row's bytes."""
    owner: Ints
    """Task that made it."""
    begin: Ints
    end: Ints
    """Ticks: alive in begin <= t < end."""


def usage(problem: Problem, footprint: Footprint, schedule: Schedule) -> Usage:
    """Peaks of a valid schedule. O((b + r + t) log), t transfers."""
    rows = spans(problem, footprint, schedule)
    at = problem.location[schedule.device]
    static = np.zeros(problem.locations, dtype=np.int64)
    np.add.at(static, at, footprint.static)
    peak, when, alive = static.copy(), np.zeros_like(static), footprint.static.copy()
    for location in range(problem.locations):
        mine = np.flatnonzero((rows.location == location) & (rows.size > 0))
        ticks, level = _levels(rows, mine)
        if not len(level):
            continue
        top = int(np.argmax(level))
        when[location] = ticks[top]
        peak[location] += level[top]
        held = mine[(rows.begin[mine] <= ticks[top]) & (ticks[top] < rows.end[mine])]
        np.add.at(alive, rows.owner[held], rows.size[held])
    return Usage(static=ints(static), peak=ints(peak), when=ints(when), alive=ints(alive))


def over_time(problem: Problem, footprint: Footprint, schedule: Schedule) -> list[tuple[Ints, Ints]]:
    """For each location (ticks, bytes alive from each of them on), static ones included; ticks ascend from 0."""
    rows = spans(problem, footprint, schedule)
    static = np.zeros(problem.locations, dtype=np.int64)
    np.add.at(static, problem.location[schedule.device], footprint.static)
    curves = []
    for location in range(problem.locations):
        ticks, level = _levels(rows, np.flatnonzero((rows.location == location) & (rows.size > 0)))
        last = np.flatnonzero(np.diff(ticks, append=-1) != 0)
        ticks, level = ticks[last], level[last]
        if not len(ticks) or ticks[0] > 0:
            ticks, level = np.insert(ticks, 0, 0), np.insert(level, 0, 0)
        curves.append((ints(ticks), ints(level + static[location])))
    return curves


def spans(problem: Problem, footprint: Footprint, schedule: Schedule) -> Spans:
    """When and where each buffer and each copy of one is alive, in a valid schedule."""
    f, s = footprint, schedule
    at, buffers = problem.location[s.device], len(f.size)
    sent = _buffer_of_payload(problem, f)[s.sent_payload]
    row = _rows_read(problem, f, s)
    root = _roots(f, row, buffers + len(sent))
    begin = np.concatenate([s.start[f.maker], s.sent_start])
    end = np.concatenate([s.finish[f.maker], s.sent_finish])
    np.maximum.at(end, sent, s.sent_finish)
    np.maximum.at(end, row, s.finish[f.read_by])
    np.maximum.at(end, root, end.copy())
    size = np.concatenate([f.size, f.size[sent]])
    return Spans(
        location=ints(np.concatenate([at[f.maker], s.sent_to])),
        size=ints(np.where(root == np.arange(len(root)), size, 0)),
        owner=ints(np.concatenate([f.maker, f.maker[sent]])),
        begin=ints(begin),
        end=ints(end),
    )


def _buffer_of_payload(problem: Problem, f: Footprint) -> Ints:
    """[p] buffer that each payload carries; 0 where nobody reads it."""
    found = np.zeros(problem.payloads, dtype=np.int64)
    known = f.read_payload >= 0
    found[f.read_payload[known]] = f.read_buffer[known]
    return found


def _rows_read(problem: Problem, f: Footprint, s: Schedule) -> Ints:
    """[r] row that each read finds: the buffer itself, or the copy that its payload made there."""
    at = problem.location[s.device]
    row = f.read_buffer.copy()
    remote = np.flatnonzero(at[f.maker[f.read_buffer]] != at[f.read_by])
    if len(remote):
        keys = s.sent_payload * problem.locations + s.sent_to
        by_key = np.argsort(keys, kind="stable")
        wanted = f.read_payload[remote] * problem.locations + at[f.read_by[remote]]
        row[remote] = len(f.size) + by_key[np.searchsorted(keys[by_key], wanted)]
    return row


def _roots(f: Footprint, row: Ints, rows: int) -> Ints:
    """[rows] the row whose bytes each row really uses, following what only passes its input on."""
    parent = np.arange(rows)
    renamed = np.flatnonzero(f.passes >= 0)
    parent[renamed] = row[f.passes[renamed]]
    while True:
        further = parent[parent]
        if np.array_equal(further, parent):
            return parent
        parent = further


def _levels(rows: Spans, mine: Ints) -> tuple[Ints, Ints]:
    """(ticks, bytes alive after each change) of some rows; what ends at a tick is gone before what begins there."""
    when = np.concatenate([rows.end[mine], rows.begin[mine]])
    change = np.concatenate([-rows.size[mine], rows.size[mine]])
    order = np.argsort(when, kind="stable")
    return when[order], np.cumsum(change[order])
