"""Peak bytes of a schedule, compiled, for a search that asks of many: the figures of `solvers.memory.usage.usage`."""

from dataclasses import fields
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints
from solvers.compiled.kernels import routine, spliced, subroutine
from solvers.footprint import Footprint
from solvers.problem import Problem
from solvers.schedule import Schedule

_DIGIT = 11
"""Bits that one pass of the sort looks at."""


class Gauge(NamedTuple):
    """The schedule-independent part: a footprint and the problem's tables."""

    static: Ints
    scratch: Ints
    size: Ints
    maker: Ints
    passes: Ints
    reuses: Ints
    read_buffer: Ints
    read_by: Ints
    read_payload: Ints
    brings: Ints
    """[p] buffer that each payload brings, -1 for none."""
    location: Ints
    """[m] location of each device."""
    places: int
    """Number of locations."""


class ScheduleArrays(NamedTuple):
    """A schedule's arrays."""

    at: Ints
    """[n] location of each task."""
    start: Ints
    finish: Ints
    sent_payload: Ints
    sent_to: Ints
    sent_start: Ints
    sent_finish: Ints


def gauge(problem: Problem, footprint: Footprint) -> Gauge:
    """Return everything for any number of calls of `peaks`; raise ValueError for a read of no payload."""
    f = footprint
    if len(f.read_payload) and f.read_payload.max() >= problem.payloads:
        raise ValueError(f"read_payload points at nothing (the problem has {problem.payloads} payloads)")
    brings = np.full(problem.payloads, -1, dtype=np.int64)
    known = f.read_payload >= 0
    brings[f.read_payload[known]] = f.read_buffer[known]
    return Gauge(
        **{field.name: getattr(f, field.name) for field in fields(f)},
        brings=ints(brings),
        location=problem.location,
        places=problem.locations,
    )


def peaks(g: Gauge, schedule: Schedule) -> Ints:
    """Return [l] most bytes alive at any tick at each location, in a valid schedule: `usage(...).peak`.

    Linear in buffers, reads, tasks and transfers, but for a radix sort of the times. The GIL is released. Raise
    ValueError as `usage` does: no transfer brings a buffer to a read elsewhere, or buffers pass each other on in a
    cycle.
    """
    s = schedule
    sent = (s.sent_payload, s.sent_to, s.sent_start, s.sent_finish)
    most, reason = _peaks(g, ScheduleArrays(g.location[s.device], s.start, s.finish, *sent))
    if reason >= len(g.read_by):
        raise ValueError("buffers pass each other on in a cycle")
    if reason >= 0:
        raise ValueError(f"the schedule does not bring buffer {g.read_buffer[reason]} to read {reason}")
    return ints(most)


@routine
def _peaks(g: Gauge, t: ScheduleArrays) -> tuple[Ints, int]:
    """Return the peaks and -1; or nothing, and the read that finds nothing, or the number of reads in a cycle."""
    none, buffers = np.zeros(0, dtype=np.int64), len(g.size)
    source = np.empty(len(t.sent_payload), dtype=np.int64)
    for k in range(len(source)):
        source[k] = g.brings[t.sent_payload[k]]
    row, missing = _rows_read(g, t)
    if missing >= 0:
        return none, missing
    parent = np.arange(buffers + len(source))
    for b in range(buffers):
        if g.passes[b] >= 0:
            parent[b] = row[g.passes[b]]
    root = _roots(parent)
    takes = False
    for read in g.reuses:
        takes = takes or read >= 0
    if len(root) and root[0] >= 0 and takes:
        _take_over(g, t, (row, source, root), parent)
        root = _roots(parent)
    if len(root) and root[0] < 0:
        return none, len(g.read_by)
    when, change, where = _changes(g, t, (row, source, root))
    level = np.zeros(g.places, dtype=np.int64)
    for task in range(len(t.at)):
        level[t.at[task]] += g.static[task]
    most = level.copy()
    for k in _radix_sort(when):
        level[where[k]] += change[k]
        most[where[k]] = max(most[where[k]], level[where[k]])
    return most, -1


@spliced
def _rows_read(g: Gauge, t: ScheduleArrays) -> tuple[Ints, int]:
    """Return [r] what each read finds, a buffer or the copy of a transfer; and a read without one, or -1."""
    slot = np.empty(len(g.brings) * g.places, dtype=np.int64)
    for k in range(len(t.sent_payload)):
        slot[t.sent_payload[k] * g.places + t.sent_to[k]] = k
    row = np.empty(len(g.read_by), dtype=np.int64)
    for read in range(len(row)):
        buffer, payload, to = g.read_buffer[read], g.read_payload[read], t.at[g.read_by[read]]
        row[read] = buffer
        if t.at[g.maker[buffer]] == to:
            continue
        if payload < 0:
            return row, read
        # What nothing was written to may be anything: whether it is the transfer's number, the transfer says.
        k = slot[payload * g.places + to]
        if not 0 <= k < len(t.sent_to) or t.sent_payload[k] != payload or t.sent_to[k] != to:
            return row, read
        row[read] = len(g.size) + k
    return row, -1


@subroutine
def _roots(parent: Ints) -> Ints:
    """Return where each index ends that follows `parent` up to what is its own; -1 first of all in a cycle."""
    root = np.full(len(parent), -1, dtype=np.int64)
    for index in range(len(parent)):
        end, steps = index, 0
        while root[end] < 0 and parent[end] != end:
            end = parent[end]
            steps += 1
            if steps > len(parent):
                root[0] = -1
                return root
        end = end if root[end] < 0 else root[end]
        at = index
        while root[at] < 0:
            root[at] = end
            at = parent[at]
    return root


@spliced
def _take_over(g: Gauge, t: ScheduleArrays, rows: tuple[Ints, Ints, Ints], parent: Ints) -> None:
    """Make the buffers that take over the bytes that they may reuse children of these: at most one for each root."""
    row, source, root = rows
    # For each root: when the last read or send of its bytes has finished, which that is, and when the last but it.
    last, who = np.full(len(root), -1, dtype=np.int64), np.full(len(root), -1, dtype=np.int64)
    next_last = last.copy()
    for use in range(len(row) + len(source)):
        k = use - len(row)
        if k >= 0 and source[k] < 0:
            continue
        of = root[row[use]] if k < 0 else root[source[k]]
        until = t.finish[g.read_by[use]] if k < 0 else t.sent_finish[k]
        if until > last[of]:
            next_last[of], last[of], who[of] = last[of], until, use
        else:
            next_last[of] = max(next_last[of], until)
    chosen = np.full(len(root), -1, dtype=np.int64)
    for b in range(len(g.size)):
        read = g.reuses[b]
        if read < 0 or g.passes[b] >= 0:
            continue
        of = root[row[read]]
        size = g.size[of] if of < len(g.size) else g.size[source[of - len(g.size)]]
        others = next_last[of] if who[of] == read else last[of]
        if others <= t.start[g.maker[b]] and g.size[b] == size:
            chosen[of] = b
    for taker in chosen:
        if taker >= 0:
            parent[taker] = row[g.reuses[taker]]


@spliced
def _changes(g: Gauge, t: ScheduleArrays, rows: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints, Ints]:
    """Return (ticks, change of bytes, location): all ends, then all begins, as what ends is gone before what begins."""
    row, source, root = rows
    buffers = len(g.size)
    # When the last use of each root has finished.
    end = np.zeros(len(root), dtype=np.int64)
    for b in range(buffers):
        end[root[b]] = max(end[root[b]], t.finish[g.maker[b]])
    for k in range(len(source)):
        if source[k] >= 0:
            copy, sent = root[buffers + k], root[source[k]]
            end[copy] = max(end[copy], t.sent_finish[k])
            end[sent] = max(end[sent], t.sent_finish[k])
    for read in range(len(row)):
        of = root[row[read]]
        end[of] = max(end[of], t.finish[g.read_by[read]])
    most = len(root) + len(t.at)
    begin, until = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    size, at, count = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64), 0
    for k in range(len(root)):
        b = k if k < buffers else source[k - buffers]
        if b < 0 or root[k] != k or g.size[b] == 0:
            continue
        begin[count] = t.start[g.maker[b]] if k < buffers else t.sent_start[k - buffers]
        at[count] = t.at[g.maker[b]] if k < buffers else t.sent_to[k - buffers]
        until[count], size[count] = end[k], g.size[b]
        count += 1
    for task in range(len(t.at)):
        if g.scratch[task] > 0:
            begin[count], until[count] = t.start[task], t.finish[task]
            size[count], at[count] = g.scratch[task], t.at[task]
            count += 1
    when, change, where = np.empty(2 * count, np.int64), np.empty(2 * count, np.int64), np.empty(2 * count, np.int64)
    for k in range(count):
        when[k], change[k], where[k] = until[k], -size[k], at[k]
        when[count + k], change[count + k], where[count + k] = begin[k], size[k], at[k]
    return when, change, where


@spliced
def _radix_sort(key: Ints) -> Ints:
    """Return a stable permutation that sorts numbers >= 0: by least significant digits."""
    order, other = np.arange(len(key)), np.empty(len(key), dtype=np.int64)
    most = int(np.int64(0))
    for k in key:
        most = max(most, k)
    shift = 0
    while most >> shift > 0:
        place = np.zeros((1 << _DIGIT) + 1, dtype=np.int64)
        for k in key:
            place[((k >> shift) & ((1 << _DIGIT) - 1)) + 1] += 1
        for k in range(1, len(place)):
            place[k] += place[k - 1]
        for k in order:
            digit = (key[k] >> shift) & ((1 << _DIGIT) - 1)
            other[place[digit]] = k
            place[digit] += 1
        order, other = other, order
        shift += _DIGIT
    return order
