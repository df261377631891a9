"""Bytes that come and go, in the interval model: what is alive at a location at any tick fits its capacity.

    O[b,l]      when the last use of buffer b has ended where it was made, l;  C[p,l] that of the copy by payload p
    O >= E[j]   of each reader there,  O >= A[p,t] of each send;    C >= E[j] of each reader there
    O[c,l] or C[p,l] >= O[b,l]      where b is another name of what its maker reads, c
    k[b,l]      b takes over, in place, what its maker reads:  equally large, all other uses have ended by S[maker]
    cumulative  on every location:  [S[maker], O) unless b is a name or k,  [T, C),  scratch,  within capacity - memory

The rules are those of `solvers.memory.usage`, in-place writes included, so that solutions are the schedules that fit.
Bytes are counted in units, few enough to be multiplied by ticks; where that is no common divisor, sizes are rounded
down: then bounds hold, and a schedule that exceeds a capacity by less than that is refused.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from solvers.cpsat.model import CrossingVariables, Expression, IntervalModel, Literal
from solvers.footprint import Footprint

_UNITS, _AREA = 1 << 20, 1 << 50
"""Units of memory of a location, at most; more where these times the ticks of a schedule are no more than an area."""


class _BufferRow(NamedTuple):
    """Bytes at one location: of a buffer where it was made (payload -1), or of a copy."""

    buffer: int
    payload: int
    place: int


class _BufferUse(NamedTuple):
    """A use that keeps a row alive until some tick if all literals hold; `read` is -1 for a send."""

    read: int
    until: Expression
    when: tuple[Literal, ...]


def add_lives(model: IntervalModel, lives: Footprint) -> None:
    """The rows and constraints of each location that all bytes together do not fit into."""
    # Bytes of a unit.
    common = max(1, int(np.gcd.reduce(np.concatenate([lives.size, lives.scratch, lives.static]), initial=0)))
    largest = min(int(model.problem.capacity.max(initial=0)), _most(lives))
    unit = common * max(1, -(-largest // (common * max(_UNITS, _AREA // max(1, model.most)))))
    most = _most(lives)
    for place, capacity in enumerate(model.problem.capacity.tolist()):
        model.check()
        if most > capacity:
            _Location(model, lives, place).fit(capacity // unit, unit)


def _most(f: Footprint) -> int:
    """More bytes than can be alive at one location: every buffer once, or once for each payload that brings it."""
    times = np.bincount(np.unique(np.stack([f.read_payload, f.read_buffer]), axis=1)[1], minlength=len(f.size))
    return sum((np.maximum(times, 1) * f.size).tolist()) + sum(f.scratch.tolist()) + sum(f.static.tolist())


class _Location:
    """The rows of one location."""

    def __init__(self, model: IntervalModel, lives: Footprint, place: int) -> None:
        self.model, self.cp, self.lives, self.place = model, model.cp, lives, place
        self.maker, self.size = lives.maker.tolist(), lives.size.tolist()
        self.reads = defaultdict[int, list[tuple[int, int]]](list)
        """By buffer: its reads, each with the payload that brings it."""
        for read, buffer in enumerate(lives.read_buffer.tolist()):
            self.reads[buffer].append((read, int(lives.read_payload[read])))
        self.names = defaultdict[int, list[int]](list)
        """By read: the buffers that are its bytes' other names."""
        for buffer in np.flatnonzero(lives.passes >= 0).tolist():
            self.names[int(lives.passes[buffer])].append(buffer)
        self.brings = dict(zip(lives.read_payload.tolist(), lives.read_buffer.tolist(), strict=True))
        self.sends = defaultdict[int, list[CrossingVariables]](list)
        """By buffer: its transfers to elsewhere."""
        self.copies: dict[int, CrossingVariables] = {}
        """By payload: its transfer to here."""
        for crossing in model.crossings:
            if crossing.payload in self.brings:
                if crossing.to == place:
                    self.copies[crossing.payload] = crossing
                else:
                    self.sends[self.brings[crossing.payload]].append(crossing)
        self.end: dict[_BufferRow, Expression] = {}
        """By row that there may be: its end, no sooner than its uses'."""
        for buffer, maker in enumerate(self.maker):
            if self.here(maker) is not None:
                self._row(_BufferRow(buffer, -1, place), model.end[maker], self.here(maker))
        for payload, crossing in self.copies.items():
            self._row(_BufferRow(self.brings[payload], payload, place), crossing.arrival, crossing.present)

    def here(self, task: int) -> Literal | None:
        """Return the literal of a task being at the location; None if it cannot be there."""
        return self.model.at[task].get(self.place)

    def _row(self, row: _BufferRow, least: Expression, present: Literal) -> None:
        end = self.cp.new_int_var(0, self.model.most, "")
        self.end[row] = end
        self.cp.add(end >= least).only_enforce_if(present)
        for use in self._own_uses(row):
            self.cp.add(end >= use.until).only_enforce_if(*use.when)

    def _own_uses(self, row: _BufferRow) -> Iterator[_BufferUse]:
        """Yield the reads and sends of a row, not those of its other names."""
        for read, payload in self.reads[row.buffer]:
            by = int(self.lives.read_by[read])
            there = self.here(by)
            if there is not None and row.payload in (-1, payload):
                yield _BufferUse(read, self.model.end[by], (there,))
        for crossing in self.sends[row.buffer] if row.payload < 0 else ():
            yield _BufferUse(-1, crossing.arrival, (crossing.present,))

    def _all_uses(self, row: _BufferRow) -> Iterator[_BufferUse]:
        """Yield the reads and sends of a row under each of its names."""
        for use in self._own_uses(row):
            yield use
            for buffer in self.names[use.read] if use.read >= 0 else ():
                for other in self._all_uses(_BufferRow(buffer, -1, self.place)):
                    yield other._replace(when=(*use.when, *other.when))

    def _finds(self, read: int) -> Iterator[tuple[_BufferRow, Literal]]:
        """Yield the rows that a read at the location may find, each with what holds then."""
        buffer, payload = int(self.lives.read_buffer[read]), int(self.lives.read_payload[read])
        made = self.here(self.maker[buffer])
        if made is not None:
            yield _BufferRow(buffer, -1, self.place), made
        if payload in self.copies:
            yield _BufferRow(buffer, payload, self.place), self.copies[payload].present

    def _ends_at(self, read: int) -> Iterator[tuple[_BufferRow, tuple[Literal, ...]]]:
        """Yield the rows whose bytes a read may find in the end, names followed, each with what holds then."""
        for row, holds in self._finds(read):
            further = int(self.lives.passes[row.buffer]) if row.payload < 0 else -1
            if further < 0:
                yield row, (holds,)
            else:
                yield from ((root, (holds, *when)) for root, when in self._ends_at(further))

    def fit(self, capacity: int, unit: int) -> None:
        """All that is alive fits, in units."""
        intervals, demands = [], []
        received = [(row, self.copies[row.payload].present) for row in self.end if row.payload >= 0]
        for row, present in [*self._made(), *received]:
            size = self.size[row.buffer] // unit
            start = self.model.start[self.maker[row.buffer]] if row.payload < 0 else self.copies[row.payload].start
            if size:
                ticks = self.cp.new_int_var(0, self.model.most, "")
                intervals.append(self.cp.new_optional_interval_var(start, ticks, self.end[row], present, ""))
                demands.append(size)
        for task, need in enumerate((self.lives.scratch // unit).tolist()):
            for q, literal in self.model.on[task].items() if need else ():
                pool = self.model.pools[q]
                if pool.location == self.place:
                    ticks = int(self.model.problem.duration[task, pool.lead])
                    start = self.model.start[task]
                    intervals.append(self.cp.new_optional_fixed_size_interval_var(start, ticks, literal, ""))
                    demands.append(need)
        if intervals:
            # The capacity that static bytes leave.
            room: Expression = capacity
            held = [(size, self.here(task)) for task, size in enumerate((self.lives.static // unit).tolist()) if size]
            come = [size * literal for size, literal in held if literal is not None]
            if come:
                room = self.cp.new_int_var(0, capacity, "")
                self.cp.add(room + sum(come) <= capacity)
            self.cp.add_cumulative(intervals, demands, room)

    def _made(self) -> Iterator[tuple[_BufferRow, Any]]:
        """Yield the buffers that have bytes of their own where they are made, and whether they do."""
        taken = defaultdict[_BufferRow, list[tuple[Literal, ...]]](list)
        for row in [row for row in self.end if row.payload < 0]:
            maker, here = self.maker[row.buffer], self.here(self.maker[row.buffer])
            passes, reuses = int(self.lives.passes[row.buffer]), int(self.lives.reuses[row.buffer])
            if passes >= 0:
                self._named(row, passes, here)
            elif reuses < 0 or not self.size[row.buffer]:
                yield row, here
            else:
                takes, own = self.cp.new_bool_var(""), self.cp.new_bool_var("")
                self.cp.add(takes + own == here)
                self._named(row, reuses, takes)
                for root, when in self._ends_at(reuses):
                    if self.size[root.buffer] == self.size[row.buffer]:
                        taken[root].append((takes, *when))
                        # All other uses of the bytes have ended when their last reader starts.
                        for use in self._all_uses(root):
                            if use.read != reuses:
                                ended = self.cp.add(self.model.start[maker] >= use.until)
                                ended.only_enforce_if(takes, *when, *use.when)
                    else:
                        self.cp.add_bool_or([~each for each in (takes, *when)])
                yield row, own
        for ways in taken.values():
            for k, one in enumerate(ways):
                for other in ways[:k]:
                    self.cp.add_bool_or([~each for each in (*one, *other)])

    def _named(self, row: _BufferRow, read: int, when: Literal) -> None:
        """Keep the buffer that a read finds alive as long as the row, if the row is another name of it."""
        for target, holds in self._finds(read):
            self.cp.add(self.end[target] >= self.end[row]).only_enforce_if(when, holds)
