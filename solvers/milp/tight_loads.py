"""Load cuts: what a lane does between the least head and the least tail of some of its activities fits there."""

import numpy as np

from solvers.milp.tight_lanes import Job, Lanes
from solvers.milp.tight_times import Draft

CUTS = 8
"""Sets of activities for each lane, beside all of them."""


def add_loads(draft: Draft, lanes: Lanes, least: int) -> None:
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


def _ends(jobs: list[Job], least: int) -> list[tuple[int, int]]:
    """Pairs of a head and a tail: the activities between them with most work for the time that is left."""
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
    order = np.argsort(-score, axis=None, kind="stable")
    chosen: list[tuple[int, int]] = []
    seen: set[bytes] = set()
    for place in [score.size and 0, *order[: 8 * CUTS].tolist()]:
        h, t = int(heads[place // len(tails)]), int(tails[place % len(tails)])
        name = ((head >= h) & (tail >= t)).tobytes()
        if score.flat[place] >= 0 and name not in seen and len(chosen) <= CUTS:
            seen.add(name)
            chosen.append((h, t))
    return chosen
