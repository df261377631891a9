"""Devices and links alike: lanes on which one activity runs at a time, and the pairs that may meet on one.

A pair is listed where neither precedence nor time windows settle its order.
"""

from dataclasses import dataclass

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.milp.tight.times import AffineSum, ProgramDraft, alone
from solvers.milp.tight.transfers import PayloadCrossing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Activity:
    """A task or a crossing."""

    start: AffineSum
    finish: AffineSum
    earliest: int
    """Earliest start, in ticks, wherever the activity is and whether it happens or not."""
    latest: int
    """Latest finish, in ticks, wherever the activity is and whether it happens or not."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneJob:
    """An activity on one lane; all ticks are lower bounds if it is there."""

    activity: int
    head: int
    ticks: int
    tail: int
    columns: tuple[tuple[int, int], ...]
    """Columns of which one is 1 if it is there, with its ticks then."""
    sure: bool
    """True if the activity is on the lane in every schedule."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneJobs:
    """All activities, tasks first, and the jobs of every device and link."""

    activities: list[Activity]
    jobs: list[list[LaneJob]]
    after: Bools
    """[a, a] whether the second starts after the first finishes in every schedule in which both are on a lane."""


def lanes_of(draft: ProgramDraft, crossings: list[PayloadCrossing]) -> LaneJobs:
    """Return the jobs of all tasks and crossings."""
    p = draft.windows.problem
    jobs: list[list[LaneJob]] = [[] for _ in range(p.devices + p.links)]
    activities = [_task(draft, task, jobs) for task in range(p.tasks)]
    activities += [_crossing(draft, c, p.tasks + k, jobs) for k, c in enumerate(crossings)]
    after = np.zeros((len(activities), len(activities)), dtype=bool)
    after[: p.tasks, : p.tasks] = draft.windows.after
    # One crossing is before another if all that may read it where it goes is, or is before, the other's producer.
    upto, producers = draft.windows.after | np.eye(p.tasks, dtype=bool), [c.producer for c in crossings]
    for k, c in enumerate(crossings):
        after[p.tasks + k, p.tasks :] = upto[np.ix_(list(c.late), producers)].all(axis=0)
    return LaneJobs(activities=activities, jobs=jobs, after=after)


def _task(draft: ProgramDraft, task: int, jobs: list[list[LaneJob]]) -> Activity:
    p, paths = draft.windows.problem, draft.windows.paths
    for device, y in draft.places.on[task].items():
        place, ticks = p.location[device], int(p.duration[task, device])
        job = LaneJob(
            activity=task, head=int(paths.head[task, place]), ticks=ticks, tail=int(paths.tail[task, place]),
            columns=((y, ticks),), sure=y in draft.places.fixed,
        )  # fmt: skip
        jobs[device].append(job)
    return Activity(
        start=alone(draft.start[task]),
        finish=draft.finish[task],
        earliest=int(draft.windows.earliest[task]),
        latest=int(draft.windows.latest[task]),
    )


def _crossing(draft: ProgramDraft, c: PayloadCrossing, activity: int, jobs: list[list[LaneJob]]) -> Activity:
    draft.rows.check()
    windows, p = draft.windows, draft.windows.problem
    ready = windows.paths.head[c.producer] + windows.paths.took[c.producer]
    for link in frozenset().union(*(v.links for v in c.variants)):
        used = [v for v in c.variants if link in v.links]
        job = LaneJob(
            activity=activity, head=min(int(ready[s]) for v in used for s in v.sources),
            ticks=min(v.ticks for v in used), tail=windows.most - c.window[1],
            columns=tuple((v.column, v.ticks) for v in used), sure=c.sure,
        )  # fmt: skip
        jobs[p.devices + link].append(job)
    return Activity(
        start=alone(c.start),
        finish=c.arrival,
        earliest=int(ready.min()),
        latest=max(c.window[1], int(windows.latest[c.producer])),
    )


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
    """Return the pairs on some of the lanes, by the numbers of their activities."""
    every = np.concatenate([np.zeros((0, 7), dtype=np.int64), *(_meetings(most, lanes, lane) for lane in among)])
    name, first, which = np.unique(
        every[:, 0] * len(lanes.activities) + every[:, 1], return_index=True, return_inverse=True
    )
    room = np.full(len(name), np.iinfo(np.int64).max)
    np.minimum.at(room, which, every[:, 5:].max(axis=1, initial=np.iinfo(np.int64).min))
    kept = np.zeros(len(name), dtype=bool)
    kept[np.argsort(room, kind="stable")[:MOST]] = True
    pairs: dict[tuple[int, int], list[LaneMeeting]] = {(one, two): [] for one, two in every[first[kept], :2].tolist()}
    for one, two, lane, k, m, forth, back in every[kept[which]].tolist():
        jobs = lanes.jobs[lane]
        pairs[one, two].append(LaneMeeting(one=jobs[k], two=jobs[m], forth=forth >= 0, back=back >= 0))
    return [ActivityPair(one=one, two=two, meetings=tuple(meetings)) for (one, two), meetings in pairs.items()]


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
    # [j, j] ticks that are left when the first job is before the second; negative where it cannot be.
    head, ticks, tail = (np.array(column) for column in zip(*((j.head, j.ticks, j.tail) for j in jobs), strict=True))
    room = most - (head + ticks)[:, None] - (ticks + tail)[None, :]
    one, two = np.nonzero(np.triu(~settled & ~settled.T, 1))
    return np.column_stack([which[one], which[two], np.full(len(one), lane), one, two, room[one, two], room[two, one]])
