"""Load cuts: what a lane does between the least head and the least tail of some of its activities fits there."""

import numpy as np

from solvers.milp.tight.lanes import LaneJob, LaneJobs
from solvers.milp.tight.times import ProgramDraft

CUTS = 8
"""Sets of activities for each lane, beside all of them."""
_TRIED = 8
"""Pairs of a head and a tail that are looked at for each of these: several may give the same set."""


def add_loads(draft: ProgramDraft, lanes: LaneJobs, least: int) -> None:
    """For each lane and sets J of activities,  min head + sum over J of ticks * (it is there) + min tail <= C."""
    for jobs in lanes.jobs:
        for head, tail in _ends(jobs, least):
            terms = [
                (column, ticks / draft.unit)
                for job in jobs
                if job.head >= head and job.tail >= tail
                for column, ticks in job.columns
            ]
            if sum(t for _, t in terms):
                draft.rows.row(
                    [*((c, -t) for c, t in terms), (draft.makespan, 1.0)], at_least=(head + tail) / draft.unit
                )


def _ends(jobs: list[LaneJob], least: int) -> list[tuple[int, int]]:
    """Pairs of a head and a tail: all activities first, then those between with most work for the time that is left."""
    if not jobs:
        return []
    head = np.array([j.head for j in jobs])
    ticks = np.array([max(t for _, t in j.columns) for j in jobs])
    tail = np.array([j.tail for j in jobs])
    heads, row = np.unique(head, return_inverse=True)
    tails, column = np.unique(tail, return_inverse=True)
    work = np.zeros((len(heads), len(tails)))
    np.add.at(work, (row, column), ticks)
    work = work[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
    ends = heads[:, None] + tails[None, :]
    # A set of which nothing is on the lane must not say more than is known of C.
    score = np.where(ends <= least, ends + work / 2, -1.0)
    score[0, 0] += np.where(score[0, 0] < 0, 0.0, score.max() + 1)
    chosen: dict[bytes, tuple[int, int]] = {}
    for place in np.argsort(-score, axis=None, kind="stable")[: _TRIED * CUTS].tolist():
        h, t = int(heads[place // len(tails)]), int(tails[place % len(tails)])
        if score.flat[place] >= 0 and len(chosen) <= CUTS:
            chosen.setdefault(((head >= h) & (tail >= t)).tobytes(), (h, t))
    return list(chosen.values())
