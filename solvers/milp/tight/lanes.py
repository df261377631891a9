"""Devices and links alike: lanes on which one activity runs at a time."""

from dataclasses import dataclass

import numpy as np

from solvers.arrays import Bools
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
    """Gather them."""
    p = draft.windows.problem
    jobs: list[list[LaneJob]] = [[] for _ in range(p.devices + p.links)]
    activities = [_task(draft, task, jobs) for task in range(p.tasks)]
    activities += [_crossing(draft, c, p.tasks + k, jobs) for k, c in enumerate(crossings)]
    after = np.zeros((len(activities), len(activities)), dtype=bool)
    after[: p.tasks, : p.tasks] = draft.windows.after
    after[p.tasks :, p.tasks :] = _follow(draft, crossings)
    return LaneJobs(activities=activities, jobs=jobs, after=after)


def _task(draft: ProgramDraft, task: int, jobs: list[list[LaneJob]]) -> Activity:
    p, paths = draft.windows.problem, draft.windows.paths
    for device, y in draft.places.on[task].items():
        place, ticks = p.location[device], int(p.duration[task, device])
        job = LaneJob(
            activity=task,
            head=int(paths.head[task, place]),
            ticks=ticks,
            tail=int(paths.tail[task, place]),
            columns=((y, ticks),),
            sure=y in draft.places.fixed,
        )
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
            activity=activity,
            head=min(int(ready[s]) for v in used for s in v.sources),
            ticks=min(v.ticks for v in used),
            tail=windows.most - c.window[1],
            columns=tuple((v.column, v.ticks) for v in used),
            sure=c.sure,
        )
        jobs[p.devices + link].append(job)
    return Activity(
        start=alone(c.start),
        finish=c.arrival,
        earliest=int(ready.min()),
        latest=max(c.window[1], int(windows.latest[c.producer])),
    )


def _follow(draft: ProgramDraft, crossings: list[PayloadCrossing]) -> Bools:
    """[c, c] whether all that may read the first where it goes is, or is before, the producer of the second."""
    n = draft.windows.problem.tasks
    upto = draft.windows.after | np.eye(n, dtype=bool)
    producers = [c.producer for c in crossings]
    found = np.zeros((len(crossings), len(crossings)), dtype=bool)
    for k, c in enumerate(crossings):
        found[k] = upto[np.ix_(list(c.late), producers)].all(axis=0)
    return found
