"""A solver's answer reduced to what it decides - devices and orders - and timed anew, exactly, by longest path.

Vendors answer with rounded, scaled or slightly overlapping times (big-M models do at M >= 1e6). Only the device of each
task and the order on each device and link are taken from them.
"""

from collections import defaultdict
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, rank_of
from solvers.problem import Problem
from solvers.schedule import Schedule


class RebuiltTransfers(NamedTuple):
    """The transfers that a placement needs, one entry each, ordered by payload and then by target."""

    payload: Ints
    """[t] payload that each transfer sends."""
    to: Ints
    """[t] location that each transfer goes to."""
    ticks: Ints
    """[t] ticks on the path from the producer's location."""


def needed_transfers(problem: Problem, device: Ints) -> RebuiltTransfers:
    """Return what tasks on `device`, [n], send: each payload once to each foreign location with a consumer."""
    at = problem.location[device]
    cut = np.flatnonzero((problem.payload >= 0) & (at[problem.src] != at[problem.dst]))
    crossing = np.unique(problem.payload[cut] * problem.locations + at[problem.dst[cut]])
    payload, to = crossing // problem.locations, crossing % problem.locations
    ticks = problem.transfer[payload, problem.path_class[at[problem.producer[payload]], to]]
    return RebuiltTransfers(payload, to, ticks)


def rebuild(problem: Problem, rough: Schedule) -> Schedule:
    """Return the earliest-start schedule with the devices of `rough` and its order on every device and link.

    The times of `rough` serve as priorities only, in any unit: activities are taken in the order of (start, finish),
    each no sooner than its predecessors, and appended to their device or links. Where `rough` is a valid schedule,
    for this problem or one with no shorter activities, nothing finishes later than there. Transfers that devices need
    are derived; one that `rough` lacks has its producer's priority. Raise ValueError when a device is out of range or
    cannot run its task. O((n + e + t) log n).
    """
    tasks = np.arange(problem.tasks)
    if rough.device.shape != (problem.tasks,) or not ((rough.device >= 0) & (rough.device < problem.devices)).all():
        raise ValueError("rough.device must hold a device for every task")
    if not problem.allowed[tasks, rough.device].all():
        raise ValueError("a task is on a device that cannot run it")
    p, n, need, at = problem, problem.tasks, needed_transfers(problem, rough.device), problem.location[rough.device]
    # Activities are the tasks, then the transfers: producers precede transfers, transfers the consumers that they
    # serve, and tasks each other along the edges that no transfer serves.
    cut = (p.payload >= 0) & (at[p.src] != at[p.dst])
    serves = np.searchsorted(need.payload * p.locations + need.to, p.payload[cut] * p.locations + at[p.dst[cut]])
    before = np.concatenate([p.producer[need.payload], p.src[~cut], n + serves])
    after = np.concatenate([n + np.arange(len(need.payload)), p.dst[~cut], p.dst[cut]])
    followers: list[list[int]] = [[] for _ in range(n + len(need.payload))]
    for one, other in zip(before.tolist(), after.tolist(), strict=True):
        followers[one].append(other)
    holds = [[d] for d in rough.device.tolist()]
    paths = p.holds[at[p.producer[need.payload]], need.to]
    holds += [[p.devices + link for link in set(path) if link >= 0] for path in paths.tolist()]
    ticks = np.concatenate([p.duration[tasks, rough.device], need.ticks])
    # The priority of every activity: its place by (start, finish) in `rough`; equals in the order of their indices.
    begin = np.concatenate([rough.start, rough.finish[p.producer[need.payload]]])
    end = np.concatenate([rough.finish, begin[n:] + need.ticks])
    crossings = zip(rough.sent_payload.tolist(), rough.sent_to.tolist(), strict=True)
    known = {key: index for index, key in enumerate(crossings)}
    for k, key in enumerate(zip(need.payload.tolist(), need.to.tolist(), strict=True), start=n):
        if key in known:
            begin[k], end[k] = rough.sent_start[known[key]], rough.sent_finish[known[key]]
    start = _earliest(ticks.tolist(), holds, followers, rank_of(np.lexsort((end, begin))).tolist())
    return Schedule(
        device=rough.device,
        start=start[:n],
        finish=(start + ticks)[:n],
        sent_payload=need.payload,
        sent_to=need.to,
        sent_start=start[n:],
        sent_finish=(start + ticks)[n:],
    )


def _earliest(ticks: list[int], holds: list[list[int]], followers: list[list[int]], rank: list[int]) -> Ints:
    """Return the start of every activity when they are appended in the order of `rank`, each once its inputs are."""
    waiting, free, start = [0] * len(rank), defaultdict[int, int](int), [0] * len(rank)
    for after in chain.from_iterable(followers):
        waiting[after] += 1
    queue = [(rank[a], a) for a in range(len(rank)) if not waiting[a]]
    heapify(queue)
    while queue:
        _, activity = heappop(queue)
        begin = max(start[activity], max((free[r] for r in holds[activity]), default=0))
        start[activity] = begin
        finish = begin + ticks[activity]
        for resource in holds[activity]:
            free[resource] = finish
        for after in followers[activity]:
            start[after] = max(start[after], finish)
            waiting[after] -= 1
            if not waiting[after]:
                heappush(queue, (rank[after], after))
    return np.asarray(start, dtype=np.int64)
