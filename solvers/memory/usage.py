"""Memory over time: which bytes are alive at which location while a schedule runs."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints
from solvers.footprint import Footprint
from solvers.problem import Problem
from solvers.schedule import Schedule


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
class AliveSpans:
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
    """Return the peaks of a valid schedule. O((b + r + t) log), t transfers.

    Raise ValueError where maker and reader of a buffer are apart, and no payload, or none that was sent, brings it.
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


def fits(problem: Problem, schedule: Schedule) -> bool:
    """Return True if what is alive fits every location, in a schedule that is valid otherwise; True without lives."""
    return problem.lives is None or bool((usage(problem, problem.lives, schedule).peak <= problem.capacity).all())


def over_time(problem: Problem, footprint: Footprint, schedule: Schedule) -> list[tuple[Ints, Ints]]:
    """Return for each location (ticks, bytes alive from each of them on), static ones included; ticks ascend from 0."""
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


def spans(problem: Problem, footprint: Footprint, schedule: Schedule) -> AliveSpans:
    """Return when and where each buffer and each copy of one is alive, in a valid schedule."""
    f, s = footprint, schedule
    at, use = problem.location[s.device], _uses(problem, f, s)
    busy, rows = np.flatnonzero(f.scratch > 0), len(f.size) + len(use.copied)
    end = np.concatenate([s.finish[f.maker], s.sent_finish[use.copied]])
    np.maximum.at(end, use.source, s.sent_finish[use.copied])
    np.maximum.at(end, use.row, s.finish[f.read_by])
    root = _row_roots(f, use, _shared(f, s, use))
    np.maximum.at(end, root, end.copy())
    size = np.concatenate([f.size, f.size[use.source]])
    return AliveSpans(
        location=ints(np.concatenate([at[f.maker], s.sent_to[use.copied], at[busy]])),
        size=ints(np.concatenate([np.where(root == np.arange(rows), size, 0), f.scratch[busy]])),
        owner=ints(np.concatenate([f.maker, f.maker[use.source], busy])),
        begin=ints(np.concatenate([s.start[f.maker], s.sent_start[use.copied], s.start[busy]])),
        end=ints(np.concatenate([end, s.finish[busy]])),
    )


def shared(problem: Problem, footprint: Footprint, schedule: Schedule) -> Ints:
    """Return [b] the read whose bytes each buffer uses, the one that it passes on or takes over; -1 for none."""
    return _shared(footprint, schedule, _uses(problem, footprint, schedule))


def roots(parent: Ints) -> Ints:
    """Return [k] where each index ends that follows `parent`, [k], up to what is its own; ValueError in a cycle."""
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


class _RowUses(NamedTuple):
    """Uses of rows in a schedule; rows are the b buffers, then the copies that transfers make of some."""

    copied: Ints
    """[c] transfers that bring a buffer."""
    source: Ints
    """[c] the buffer of each."""
    row: Ints
    """[r] row that each read finds: the buffer itself, or the copy that its payload made there."""


def _uses(problem: Problem, f: Footprint, s: Schedule) -> _RowUses:
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
    return _RowUses(copied, buffer[s.sent_payload[copied]], row)


def _shared(f: Footprint, s: Schedule, use: _RowUses) -> Ints:
    if not (f.reuses >= 0).any():
        return f.passes
    # The buffers that take over the bytes that they may reuse: at most one for each root.
    root = _row_roots(f, use, f.passes)
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
    taken_over = chosen[chosen >= 0]
    taken, read = taken_over, f.passes.copy()
    read[taken] = f.reuses[taken]
    return read


def _row_roots(f: Footprint, use: _RowUses, read: Ints) -> Ints:
    """Return [rows] the row whose bytes each row really uses, where buffers use those of a `read`, [b]."""
    parent, others = np.arange(len(f.size) + len(use.copied)), np.flatnonzero(read >= 0)
    parent[others] = use.row[read[others]]
    return roots(parent)


def _levels(rows: AliveSpans, mine: Ints) -> tuple[Ints, Ints]:
    """Return (ticks, bytes after each change) of some rows; what ends at a tick is gone before what begins there."""
    when = np.concatenate([rows.end[mine], rows.begin[mine]])
    change = np.concatenate([-rows.size[mine], rows.size[mine]])
    order = np.argsort(when, kind="stable")
    return when[order], np.cumsum(change[order])
