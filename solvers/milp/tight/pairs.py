"""Pairs of activities that may meet on a lane, and whose order neither precedence nor time windows settle."""

from dataclasses import dataclass

import numpy as np

from solvers.arrays import Ints
from solvers.milp.tight.lanes import LaneJob, LaneJobs
from solvers.milp.tight.times import AffineSum

MOST = 20_000
"""Pairs of tasks, and of crossings, that are looked at: those with least room. The others are left to
`solvers.timing.rebuild`; a program of more disjunctions does not get beyond its root, where they say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneMeeting:
    """Two activities on one lane, and whether each can be first there."""

    one: LaneJob
    two: LaneJob
    forth: bool
    back: bool

    @property
    def both(self) -> AffineSum:
        """1 when both are there, 0 or less when not."""
        columns = (*self.one.columns, *self.two.columns)
        return AffineSum(terms=tuple((column, 1.0) for column, _ in columns), constant=-1.0)

    @property
    def sure(self) -> bool:
        """True if both are there in every schedule."""
        return self.one.sure and self.two.sure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActivityPair:
    """Two activities, by number, with all lanes on which they may meet."""

    one: int
    two: int
    meetings: tuple[LaneMeeting, ...]

    @property
    def open(self) -> bool:
        """True if either can be first, on the same lane or on different ones."""
        return any(m.forth for m in self.meetings) and any(m.back for m in self.meetings)

    @property
    def sure(self) -> bool:
        """True if they meet in every schedule."""
        return any(m.sure for m in self.meetings)


def pairs_of(most: int, lanes: LaneJobs, among: range) -> list[ActivityPair]:
    """The pairs on some of the lanes, by the numbers of their activities."""
    every = np.concatenate([np.zeros((0, 7), dtype=np.int64), *(_meetings(most, lanes, lane) for lane in among)])
    name, first, which = np.unique(
        every[:, 0] * len(lanes.activities) + every[:, 1], return_index=True, return_inverse=True
    )
    room = np.full(len(name), np.iinfo(np.int64).max)
    np.minimum.at(room, which, every[:, 5:].max(axis=1, initial=np.iinfo(np.int64).min))
    kept = np.zeros(len(name), dtype=bool)
    kept[np.argsort(room, kind="stable")[:MOST]] = True
    found: dict[tuple[int, int], list[LaneMeeting]] = {(one, two): [] for one, two in every[first[kept], :2].tolist()}
    for one, two, lane, k, m, forth, back in every[kept[which]].tolist():
        jobs = lanes.jobs[lane]
        found[one, two].append(LaneMeeting(one=jobs[k], two=jobs[m], forth=forth >= 0, back=back >= 0))
    return [ActivityPair(one=one, two=two, meetings=tuple(meetings)) for (one, two), meetings in found.items()]


def _meetings(most: int, lanes: LaneJobs, lane: int) -> Ints:
    """[meetings, 7] two activities, a lane, their places there, and the ticks of room for either order."""
    jobs = lanes.jobs[lane]
    if len(jobs) < 2:
        return np.zeros((0, 7), dtype=np.int64)
    which = np.array([job.activity for job in jobs])
    earliest = np.array([lanes.activities[k].earliest for k in which])
    latest = np.array([lanes.activities[k].latest for k in which])
    settled = lanes.after[np.ix_(which, which)] | (latest[:, None] <= earliest[None, :])
    # Two activities of no ticks never overlap.
    idle = np.array([max(ticks for _, ticks in job.columns) == 0 for job in jobs])
    settled |= idle[:, None] & idle[None, :]
    room = _room(jobs, most)
    one, two = np.nonzero(np.triu(~settled & ~settled.T, 1))
    return np.column_stack([which[one], which[two], np.full(len(one), lane), one, two, room[one, two], room[two, one]])


def _room(jobs: list[LaneJob], most: int) -> Ints:
    """[j, j] ticks that are left when the first job is before the second; negative where it cannot be."""
    head, ticks, tail = (np.array(column) for column in zip(*((j.head, j.ticks, j.tail) for j in jobs), strict=True))
    found: Ints = most - (head + ticks)[:, None] - (ticks + tail)[None, :]
    return found
