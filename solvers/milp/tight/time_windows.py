"""Consequences of a makespan limit before any solver runs: allowed locations, time windows and precedence."""

import math
from dataclasses import dataclass, replace

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.bounds.windows import informed
from solvers.compiled.dag import topological_order
from solvers.problem import FORBIDDEN, Problem
from solvers.structure.paths import LocationPaths


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RestrictedProblem:
    """A problem without what no schedule of at most `most` ticks uses, and with the order that each of these keeps."""

    problem: Problem
    most: int
    paths: LocationPaths
    after: Bools
    """[n, n] whether the second task starts after the first finishes in every such schedule."""
    earliest: Ints
    """[n] earliest start of each task, in ticks."""
    latest: Ints
    """[n] latest finish of each task, in ticks."""


def windows_of(problem: Problem, most: int, ends: float = math.inf) -> RestrictedProblem | None:
    """Shrink a problem until nothing changes; None when no schedule takes at most `most` ticks.

    With heads r and tails q, a device d at location l is out for task i if  r[i,l] + p[i,d] + q[i,l] > most;  of two
    tasks that can be on one device alone, j is before i if  r[i] + p[i] + p[j] + q[j] > most  (Carlier, Pinson 1989).
    When the clock (`time.monotonic`) is at `ends`, only what longest paths say is looked for any more.
    """
    while True:
        known = informed(problem, most, ends)
        if known is None:
            return None
        paths = known.paths
        rest = (paths.head + paths.tail)[:, problem.location]
        able = paths.units.allowed[paths.units.unit][:, problem.location] & problem.allowed
        able &= rest + problem.duration <= most
        # [n, n] whether a path leads from the first task to the second. O(e n).
        after = np.zeros((problem.tasks, problem.tasks), dtype=bool)
        readers = np.split(
            problem.dst[np.argsort(problem.src, kind="stable")],
            np.cumsum(np.bincount(problem.src, minlength=problem.tasks))[:-1],
        )
        for task in topological_order(problem.tasks, problem.src, problem.dst)[::-1]:
            after[task, readers[task]] = True
            after[task] |= after[readers[task]].any(axis=0)
        before, then = _forced(problem, paths, able, most)
        fresh = ~after[before, then]
        if not able.any(axis=1).all() or after[then, before].any():
            return None
        if (able == problem.allowed).all() and not fresh.any():
            return RestrictedProblem(
                problem=problem,
                most=most,
                paths=paths,
                after=after,
                earliest=paths.head.min(axis=1),
                latest=most - paths.tail.min(axis=1),
            )
        smaller = _with(problem, able, before[fresh], then[fresh])
        if smaller is None:
            return None
        problem = smaller


def _with(p: Problem, able: Bools, before: Ints, then: Ints) -> Problem | None:
    """The problem on fewer devices and with more precedence; None when that has a cycle."""
    src, dst = np.concatenate([p.src, before]), np.concatenate([p.dst, then])
    if len(topological_order(p.tasks, src, dst)) < p.tasks:
        return None
    payload = np.concatenate([p.payload, np.full(len(before), -1)])
    return replace(p, duration=np.where(able, p.duration, FORBIDDEN), src=src, dst=dst, payload=payload)


def _forced(p: Problem, paths: LocationPaths, able: Bools, most: int) -> tuple[Ints, Ints]:
    """Pairs of tasks, the first of which must be before the second on the only device that both can be on."""
    one = np.flatnonzero(np.count_nonzero(able, axis=1) == 1)
    device = able[one].argmax(axis=1)
    at = p.location[device]
    head, tail = paths.head[one, at], paths.tail[one, at]
    ticks = p.duration[one, device]
    late = (head + ticks)[:, None] + (ticks + tail)[None, :] > most
    late &= (device[:, None] == device[None, :]) & ~np.eye(len(one), dtype=bool)
    then, before = np.nonzero(late)
    return one[before], one[then]
