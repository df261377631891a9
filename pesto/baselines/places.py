"""From locations to devices: which locations are accelerators, and which core of a host each op gets."""

import heapq

import numpy as np

from pesto.cluster import Cluster
from solvers.arrays import Ints
from solvers.dag import adjacency, topological_order
from solvers.problem import Problem


def accelerators(problem: Problem, cluster: Cluster) -> list[int]:
    """Locations of other kinds than cpu on which some op may run, or the hosts when there are none."""
    used = [int(k) for k in np.unique(problem.location[problem.allowed.any(axis=0)])]
    return [k for k in used if cluster.devices[k].kind != "cpu"] or used


def placed_at(problem: Problem, location: Ints) -> Ints:
    """[n] a device at the wished location of each op that can run there, else at the first that it can run on.

    Where a location has several devices (the cores of a host), each op gets the one that is free first when they
    are served by the earliest time at which their inputs can be there.
    """
    here = problem.allowed & (problem.location[None, :] == location[:, None])
    device = np.where(here.any(axis=1), here.argmax(axis=1), problem.allowed.argmax(axis=1))
    at = problem.location[device]
    for place in np.flatnonzero(np.bincount(problem.location, minlength=problem.locations) > 1).tolist():
        tasks = np.flatnonzero(at == place)
        if len(tasks):
            device[tasks] = _shared_out(problem, tasks, np.flatnonzero(problem.location == place))
    return device


def _shared_out(problem: Problem, tasks: Ints, devices: Ints) -> Ints:
    head = _heads(problem)[tasks].tolist()
    free = [(0, d) for d in devices.tolist()]
    chosen = np.empty(len(tasks), dtype=np.int64)
    for k in np.argsort(head, kind="stable").tolist():
        able = problem.allowed[tasks[k]]
        skipped = []
        while not able[free[0][1]]:
            skipped.append(heapq.heappop(free))
        when, d = heapq.heappop(free)
        chosen[k] = d
        for entry in (*skipped, (max(when, head[k]) + int(problem.duration[tasks[k], d]), d)):
            heapq.heappush(free, entry)
    return chosen


def _heads(problem: Problem) -> Ints:
    """[n] earliest start of each task when nothing but precedence and the shortest durations count."""
    took = np.where(problem.allowed, problem.duration, np.iinfo(np.int64).max).min(axis=1).tolist()
    offset, edge = adjacency(problem.tasks, problem.src)
    offset_list, heads = offset.tolist(), problem.dst[edge].tolist()
    head = [0] * problem.tasks
    for task in topological_order(problem.tasks, problem.src, problem.dst).tolist():
        done = head[task] + took[task]
        for k in range(offset_list[task], offset_list[task + 1]):
            head[heads[k]] = max(head[heads[k]], done)
    return np.array(head, dtype=np.int64)
