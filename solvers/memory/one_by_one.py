"""A proof that nothing fits: every placement, and every order of its tasks and transfers, one at a time.

Where a schedule fits, so does what it does, one activity at a time, in the order of (start, finish): what is alive
while an activity runs was made by those before it, or by it, and is used by it or one after it, and so was alive when
it started in the schedule. So it is enough to look at orders, and at these as sets of what is done: two orders of a
set leave the same bytes alive, but for what was taken over in place. What takes no time counts for nothing while it
runs, and may give up its input in time for others of no time.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from solvers.footprint import Footprint
from solvers.problem import Problem

STATES = 100_000
"""Greatest number of placements and sets of what is done that are looked at: some seconds."""


class _Activity(NamedTuple):
    """A task or a transfer of one placement; sets are bits of numbers."""

    after: int
    """Activities that come first."""
    place: int
    """Where its bytes are alive."""
    makes: list[int]
    """Rows that it makes."""
    scratch: int
    timeless: bool
    """True if it may take no time."""


class _ByteRow(NamedTuple):
    """A buffer or a received copy."""

    place: int
    size: int
    of: int
    """The row that this is another name of for good, itself where it is none."""
    takes: int
    """The row whose bytes it takes over where nobody else has a use for them; -1: none."""
    uses: int
    """Activities that use the row, other than what made it."""


def nothing_fits(problem: Problem, states: int = STATES) -> str:
    """Return why no schedule of a problem with lives fits, in one line; "" where one may, or `states` are too few."""
    if problem.lives is None:
        return ""
    left = states
    for placed in _placements(problem):
        left = _Serial(problem, problem.lives, placed).look(left - 1)
        if left <= 0:
            return ""
    return (
        f"what is alive fits in no order and no placement, even one at a time: none of {states - left} states leads on"
    )


def _placements(p: Problem) -> Iterator[list[int]]:
    """Yield [n] locations: every placement that groups and static bytes allow."""
    units: dict[int, list[int]] = {}
    for task, group in enumerate(p.group.tolist()):
        units.setdefault(group if group >= 0 else -1 - task, []).append(task)
    members, room = list(units.values()), p.capacity.tolist()
    held = [sum(p.memory[tasks].tolist()) for tasks in members]
    places = [
        [place for place in range(p.locations) if p.allowed[tasks][:, p.location == place].any(axis=1).all()]
        for tasks in members
    ]
    at = [0] * p.tasks

    def placed(unit: int) -> Iterator[list[int]]:
        if unit == len(members):
            yield at
            return
        for place in places[unit]:
            if held[unit] <= room[place]:
                room[place] -= held[unit]
                for task in members[unit]:
                    at[task] = place
                yield from placed(unit + 1)
                room[place] += held[unit]

    return placed(0)


class _Serial:
    """One placement, run one activity at a time in every order."""

    def __init__(self, problem: Problem, lives: Footprint, at: list[int]) -> None:
        self.problem, self.lives, self.at = problem, lives, at
        p = problem
        self.room = p.capacity.tolist()
        for task, place in enumerate(at):
            self.room[place] -= int(p.memory[task])
        cut = [
            (payload, at[reader])
            for payload, source, reader in zip(p.payload.tolist(), p.src.tolist(), p.dst.tolist(), strict=True)
            if payload >= 0 and at[source] != at[reader]
        ]
        self.number = {key: p.tasks + k for k, key in enumerate(sorted(set(cut)))}
        self.rows: list[_ByteRow] = []
        makes = self._rows()
        self.uses = [0] * len(self.rows)
        """Activities that use each row under any of its names for good."""
        for row, facts in enumerate(self.rows):
            self.uses[self._named(row, 0)] |= facts.uses
        after = [0] * (p.tasks + len(self.number))
        for payload, source, reader in zip(p.payload.tolist(), p.src.tolist(), p.dst.tolist(), strict=True):
            crossing = self.number.get((payload, at[reader]), -1) if at[source] != at[reader] else -1
            after[reader] |= 1 << (source if crossing < 0 else crossing)
            if crossing >= 0:
                after[crossing] |= 1 << source
        self.activities: list[_Activity] = []
        for task, place in enumerate(at):
            ticks, scratch = p.duration[task][p.allowed[task] & (p.location == place)], int(lives.scratch[task])
            self.activities.append(_Activity(after[task], place, makes[task], scratch, bool(ticks.min() == 0)))
        for (payload, to), crossing in self.number.items():
            ticks = p.transfer[payload, p.path_class[at[p.producer[payload]], to]]
            self.activities.append(_Activity(after[crossing], to, makes[crossing], 0, bool(ticks == 0)))
        self.everything = (1 << len(self.activities)) - 1
        self.zero = sum(1 << k for k, activity in enumerate(self.activities) if activity.timeless)

    def _rows(self) -> dict[int, list[int]]:
        """Collect all rows; return which of them each activity makes."""
        f, at, makes = self.lives, self.at, defaultdict[int, list[int]](list)
        row_of = {(buffer, -1): buffer for buffer in range(len(f.size))}
        place = [at[maker] for maker in f.maker.tolist()]
        size, uses = f.size.tolist(), [0] * len(f.size)
        for buffer, maker in enumerate(f.maker.tolist()):
            makes[maker].append(buffer)
        brings = dict(zip(f.read_payload.tolist(), f.read_buffer.tolist(), strict=True))
        for (payload, to), activity in self.number.items():
            if payload in brings:
                row_of[brings[payload], activity] = len(size)
                makes[activity].append(len(size))
                uses[brings[payload]] |= 1 << activity
                place, size, uses = [*place, to], [*size, size[brings[payload]]], [*uses, 0]
        found = []
        columns = (f.read_buffer.tolist(), f.read_payload.tolist(), f.read_by.tolist())
        for buffer, payload, by in zip(*columns, strict=True):
            apart = at[f.maker[buffer]] != at[by]
            found.append(row_of[buffer, self.number[payload, at[by]] if apart else -1])
            uses[found[-1]] |= 1 << by
        for row in range(len(size)):
            passes = int(f.passes[row]) if row < len(f.size) else -1
            reuses = int(f.reuses[row]) if row < len(f.size) and passes < 0 else -1
            names = found[passes] if passes >= 0 else row
            takes = found[reuses] if reuses >= 0 else -1
            self.rows.append(_ByteRow(place[row], size[row], names, takes, uses[row]))
        return makes

    def look(self, left: int) -> int:
        """Return the states left once all orders have been seen not to fit; 0 where one does, or none are left."""
        stack, seen = [(0, 0)], {(0, 0)}
        while stack:
            done, taken = stack.pop()
            if done == self.everything:
                return 0
            for state in self._next(done, taken):
                if state not in seen:
                    seen.add(state)
                    stack.append(state)
                    left -= 1
            if left <= 0:
                return 0
        return left

    def _next(self, done: int, taken: int) -> list[tuple[int, int]]:
        """Return the states after one more activity; only one that frees what it makes, where there is one."""
        before, found = self._alive(done, taken), []
        for k, activity in enumerate(self.activities):
            if done >> k & 1 or activity.after & ~done:
                continue
            # Of the rows that it makes, one for each other row takes that one's bytes over where nobody else uses them.
            others, given, took = ~(done | 1 << k | self.zero), set[int](), taken
            for row in activity.makes:
                target = self.rows[row].takes
                target = target if target < 0 else self._named(target, 0)
                same = target >= 0 and self.rows[target].size == self.rows[row].size
                if same and target not in given and not self.uses[target] & others:
                    given.add(target)
                    took |= 1 << row
            while_it_runs = self._alive(done, took, activity.makes)
            over = while_it_runs[activity.place] + activity.scratch > self.room[activity.place]
            if over and not activity.timeless:
                continue
            state = done | 1 << k, took
            after = self._alive(*state)
            certain = all(self.rows[row].takes < 0 or took >> row & 1 for row in activity.makes)
            if certain and all(a <= b for a, b in zip(after, before, strict=True)):
                return [state]
            found.append(state)
        return found

    def _named(self, row: int, taken: int) -> int:
        """Return the row whose bytes a row is in the end."""
        while True:
            further = self.rows[row].takes if taken >> row & 1 else self.rows[row].of
            if further == row:
                return row
            row = further

    def _alive(self, done: int, taken: int, makes: Sequence[int] = ()) -> list[int]:
        """Return [l] bytes alive when a set of activities is done; or while another runs that makes these rows."""
        live = set()
        for k, activity in enumerate(self.activities):
            for row in activity.makes if done >> k & 1 else ():
                if self.rows[row].uses & ~done:
                    live.add(self._named(row, taken))
        live |= {self._named(row, taken) for row in makes}
        level = [0] * len(self.room)
        for row in live:
            level[self.rows[row].place] += self.rows[row].size
        return level
