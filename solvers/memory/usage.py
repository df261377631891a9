"""Memory over time: which bytes are alive at which location while a schedule runs."""

from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints
from solvers.problem import Problem
from solvers.schedule import Schedule


def _none() -> Ints:
    return ints([])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Footprint:
    """What the n tasks of a problem hold, in bytes; it says nothing of where and when.

    A *buffer* is what a task makes: it is alive at its maker's location from the maker's start until the last read
    or send there has finished, and at every other location with a reader from the start of its transfer until the
    last read there has finished. A payload brings one buffer. ValueError when shapes differ, an index is out of range,
    or a buffer names the read of a task that did not make it.
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
    """[r] payload of the problem that brings it there, where maker and reader are apart; -1: they never are."""
    scratch: Ints = field(default_factory=_none)
    """[n] bytes that are alive at a task's location only while it runs; empty: none."""
    reuses: Ints = field(default_factory=_none)
    """[b] the read (one of the maker's) whose bytes this buffer takes over in place, where both are equally large and
    every other use of them at that location (reads, sends, also under another name) has finished when the maker
    starts, as TensorFlow forwards an input's buffer to an output; -1, or empty: none."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        for f in fields(self):
            object.__setattr__(self, f.name, ints(getattr(self, f.name)))
        n, b, r = len(self.static), len(self.size), len(self.read_buffer)
        if not len(self.scratch):
            object.__setattr__(self, "scratch", ints(np.zeros(n, dtype=np.int64)))
        if not len(self.reuses):
            object.__setattr__(self, "reuses", ints(np.full(b, -1)))
        for length, names in (
            (n, ("scratch",)), (b, ("maker", "passes", "reuses")), (r, ("read_by", "read_payload")),
        ):  # fmt: skip
            for name in names:
                if len(getattr(self, name)) != length:
                    raise ValueError(f"{name} has {len(getattr(self, name))} entries, expected {length}")
        _ranges(self)


def _ranges(f: Footprint) -> None:
    limits = {
        "maker": (0, len(f.static)), "read_by": (0, len(f.static)), "read_buffer": (0, len(f.size)),
        "passes": (-1, len(f.read_buffer)), "reuses": (-1, len(f.read_buffer)),
    }  # fmt: skip
    for name, (least, beyond) in limits.items():
        values = getattr(f, name)
        if len(values) and not least <= values.min() <= values.max() < beyond:
            raise ValueError(f"{name} points at nothing (0..{beyond - 1} exist)")
    for name in ("passes", "reuses"):
        buffer = np.flatnonzero(getattr(f, name) >= 0)
        foreign = buffer[f.read_by[getattr(f, name)[buffer]] != f.maker[buffer]]
        if len(foreign):
            raise ValueError(f"{name}: buffer {foreign[0]} names a read of another task than its maker")
    for name in ("static", "size", "scratch"):
        if getattr(f, name).min(initial=0) < 0:
            raise ValueError(f"{name} must be at least 0")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Usage:
    """Bytes of one schedule by location."""

    static: Ints
    """[l] bytes held for the whole schedule."""
    peak: Ints
    """[l] most bytes alive at any tick, the static ones included."""
    when: Ints
    """[l] a tick at which each location is at its peak."""
    alive: Ints
    """[n] bytes of each task, static ones included, that are alive when its location is at its peak."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spans:
    """One row for each buffer where it was made, for each received copy (in the order of the transfers), and for the
    scratch bytes of each task that has some."""

    location: Ints
    size: Ints
    """Bytes; 0 where the row uses another row's bytes."""
    owner: Ints
    """Task that made the bytes."""
    begin: Ints
    end: Ints
    """Tick at which the bytes go: they are alive in begin <= t < end."""


def usage(problem: Problem, footprint: Footprint, schedule: Schedule) -> Usage:
    """Peaks of a valid schedule. O((b + r + t) log), t transfers.

    ValueError where maker and reader of a buffer are apart, and no payload, or none that was sent, brings it.
    """
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
    at, use = problem.location[s.device], _uses(problem, f, s)
    busy, rows = np.flatnonzero(f.scratch > 0), len(f.size) + len(use.copied)
    end = np.concatenate([s.finish[f.maker], s.sent_finish[use.copied]])
    np.maximum.at(end, use.source, s.sent_finish[use.copied])
    np.maximum.at(end, use.row, s.finish[f.read_by])
    root = _row_roots(f, use, _shared(f, s, use))
    np.maximum.at(end, root, end.copy())
    size = np.concatenate([f.size, f.size[use.source]])
    return Spans(
        location=ints(np.concatenate([at[f.maker], s.sent_to[use.copied], at[busy]])),
        size=ints(np.concatenate([np.where(root == np.arange(rows), size, 0), f.scratch[busy]])),
        owner=ints(np.concatenate([f.maker, f.maker[use.source], busy])),
        begin=ints(np.concatenate([s.start[f.maker], s.sent_start[use.copied], s.start[busy]])),
        end=ints(np.concatenate([end, s.finish[busy]])),
    )


def shared(problem: Problem, footprint: Footprint, schedule: Schedule) -> Ints:
    """[b] the read whose bytes each buffer uses in a valid schedule: the one that it passes on or takes over, or -1."""
    return _shared(footprint, schedule, _uses(problem, footprint, schedule))


def roots(parent: Ints) -> Ints:
    """[k] where each index ends that follows `parent`, [k], up to what is its own parent; ValueError in a cycle."""
    given = parent
    for _ in range(len(parent).bit_length() + 1):
        further = parent[parent]
        if np.array_equal(further, parent):
            break
        parent = further
    # A cycle of 2, 4, 8, ... comes to rest as well, but not where anything ends.
    if np.array_equal(given[parent], parent):
        return parent
    raise ValueError("buffers pass each other on in a cycle")


class _Uses(NamedTuple):
    """Who uses which row in a schedule; rows are the b buffers, then the copies that transfers make of some."""

    copied: Ints
    """[c] transfers that bring a buffer."""
    source: Ints
    """[c] the buffer of each."""
    row: Ints
    """[r] row that each read finds: the buffer itself, or the copy that its payload made there."""


def _uses(problem: Problem, f: Footprint, s: Schedule) -> _Uses:
    if len(f.read_payload) and f.read_payload.max() >= problem.payloads:
        raise ValueError(f"read_payload points at nothing (the problem has {problem.payloads} payloads)")
    buffer = np.full(problem.payloads, -1, dtype=np.int64)
    known = f.read_payload >= 0
    buffer[f.read_payload[known]] = f.read_buffer[known]
    copied = np.flatnonzero(buffer[s.sent_payload] >= 0)
    at = problem.location[s.device]
    row = f.read_buffer.copy()
    remote = np.flatnonzero(at[f.maker[f.read_buffer]] != at[f.read_by])
    if len(remote):
        keys = s.sent_payload[copied] * problem.locations + s.sent_to[copied]
        by_key = np.argsort(keys, kind="stable")
        wanted = f.read_payload[remote] * problem.locations + at[f.read_by[remote]]
        place = np.searchsorted(keys[by_key], wanted)
        missing = remote[(np.append(keys[by_key], -1)[place] != wanted) | (f.read_payload[remote] < 0)]
        if len(missing):
            raise ValueError(f"the schedule does not bring buffer {f.read_buffer[missing[0]]} to read {missing[0]}")
        row[remote] = len(f.size) + by_key[place]
    return _Uses(copied, buffer[s.sent_payload[copied]], row)


def _shared(f: Footprint, s: Schedule, use: _Uses) -> Ints:
    if not (f.reuses >= 0).any():
        return f.passes
    taken, read = _taken_over(f, s, use, _row_roots(f, use, f.passes)), f.passes.copy()
    read[taken] = f.reuses[taken]
    return read


def _row_roots(f: Footprint, use: _Uses, read: Ints) -> Ints:
    """[rows] the row whose bytes each row really uses, where buffers use those of a `read`, [b]."""
    parent, others = np.arange(len(f.size) + len(use.copied)), np.flatnonzero(read >= 0)
    parent[others] = use.row[read[others]]
    return roots(parent)


def _taken_over(f: Footprint, s: Schedule, use: _Uses, root: Ints) -> Ints:
    """The buffers that take over the bytes that they may reuse: at most one for each root."""
    size = np.concatenate([f.size, f.size[use.source]])
    bytes_of = np.concatenate([root[use.row], root[use.source]])
    until = np.concatenate([s.finish[f.read_by], s.sent_finish[use.copied]])
    by = np.lexsort((until, bytes_of))
    last = np.full(len(root), -1, dtype=np.int64)
    last[bytes_of[by]] = np.arange(len(by))
    wants = np.flatnonzero((f.reuses >= 0) & (f.passes < 0))
    of = root[use.row[f.reuses[wants]]]
    final = last[of]
    # What is used last but for the read in question; a read that is the only use has another root's before it.
    other = np.where(by[final] == f.reuses[wants], final - 1, final)
    alone = (other < 0) | (bytes_of[by[other]] != of)
    takes = (alone | (until[by[other]] <= s.start[f.maker[wants]])) & (size[wants] == size[of])
    # Tasks of zero ticks can each find the other's read finished: the later buffer has it.
    chosen = np.full(len(root), -1, dtype=np.int64)
    chosen[of[takes]] = wants[takes]
    return chosen[chosen >= 0]


def _levels(rows: Spans, mine: Ints) -> tuple[Ints, Ints]:
    """(ticks, bytes alive after each change) of some rows; what ends at a tick is gone before what begins there."""
    when = np.concatenate([rows.end[mine], rows.begin[mine]])
    change = np.concatenate([-rows.size[mine], rows.size[mine]])
    order = np.argsort(when, kind="stable")
    return when[order], np.cumsum(change[order])
