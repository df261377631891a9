"""Lower bounds on the makespan, in ticks, that need no solver; and proofs that memory cannot suffice.

Each holds for every valid schedule with tolerance 0: all is whole, and divisions round up, as a makespan is whole.
Each but `best` raises ValueError where the tasks of a group have no location in common; `paths` and `weights`
(`solvers.bounds.loads.device_weights`) save computing them.
"""

from collections.abc import Iterable
from weakref import WeakKeyDictionary

import numpy as np

from solvers.arrays import Ints
from solvers.bounds import memory_proof as memory
from solvers.bounds.loads import Jobs, crossings_of, device_weights, device_work, link_jobs, link_weights, preemptive
from solvers.problem import Problem
from solvers.structure.paths import NEVER, LocationPaths, paths_of
from solvers.structure.units import Units, units_of

_KNOWN: "WeakKeyDictionary[Problem, tuple[int, str]]" = WeakKeyDictionary()
"""Cache of `best`, since each solver of a problem and the judge of its answers need it."""


def best(problem: Problem) -> tuple[int, str]:
    """Return the greatest of all bounds and the function that finds it; (0, "none") where a unit can be nowhere.

    O(n (m + log n) + e l^2), for a bounded number of sets of devices and links; kept for as long as the problem is.
    """
    if problem not in _KNOWN:
        bounds = [(0, "none")]
        if units_of(problem).allowed.any(axis=1).all():
            paths = paths_of(problem)
            weights = tuple(device_weights(problem, paths))
            bounds = [
                (critical_path(problem, paths), "critical_path"),
                (device_load(problem, paths, weights), "device_load"),
                (device_window(problem, paths, weights), "device_window"),
                (unit_load(problem, paths), "unit_load"),
                (link_window(problem, paths), "link_window"),
            ]
        _KNOWN[problem] = max(bounds, key=lambda bound: bound[0])
    return _KNOWN[problem]


def share(problem: Problem, like: Problem) -> Problem:
    """Return the first problem, made to share the bound of the second, of which only its bytes differ."""
    _KNOWN[problem] = best(like)
    return problem


def critical_path(problem: Problem, paths: LocationPaths | None = None) -> int:
    """Return the longest path, each predecessor where it delays the task least, tasks of a unit at one location.

    A transfer counts where it is unavoidable, or takes less than the slower device that would avoid it.
    """
    p = paths_of(problem) if paths is None else paths
    through = np.where(p.took == NEVER, 0, p.head + p.took + p.tail)
    return _least(p.units, _per_unit(np.maximum, through, p.units))


def device_load(problem: Problem, paths: LocationPaths | None = None, weights: Iterable[Ints] | None = None) -> int:
    """Return the work that a set of devices must do, spread over them; a unit's work is at one location.

    For weights y >= 0 of the devices, sum(y) T >= the sum over units of the least y-weighted work over locations: the
    dual of the assignment relaxation (Lenstra, Shmoys and Tardos 1990). `device_weights` says which y are tried.
    """
    p = paths_of(problem) if paths is None else paths
    found = 0
    for weight in device_weights(problem, p) if weights is None else weights:
        work = np.where(p.took == NEVER, 0, device_work(problem, weight))
        least = np.where(p.units.allowed, _per_unit(np.add, work, p.units), NEVER).min(axis=1, initial=NEVER)
        found = max(found, _over(int(least.sum()), weight))
    return found


def device_window(problem: Problem, paths: LocationPaths | None = None, weights: Iterable[Ints] | None = None) -> int:
    """Return the work of any tasks, spread over a set of devices, between their least head and their least tail.

    Energetic reasoning over all subsets of tasks at once (Carlier and Pinson 1998), with the weights of `device_load`.
    """
    p = paths_of(problem) if paths is None else paths
    head, tail = p.head.min(axis=1, initial=NEVER), p.tail.min(axis=1, initial=NEVER)
    found = 0
    for weight in device_weights(problem, p) if weights is None else weights:
        work = np.where(p.took == NEVER, NEVER, device_work(problem, weight)).min(axis=1, initial=NEVER)
        found = max(found, _window(Jobs(head, work, tail), weight))
    return found


def unit_load(problem: Problem, paths: LocationPaths | None = None) -> int:
    """Return the work of a unit, spread over the devices of its best location, between its least head and tail there.

    What only one device there can do counts for that device.
    """
    p = paths_of(problem) if paths is None else paths
    devices = np.maximum(np.bincount(problem.location, minlength=problem.locations), 1)
    took = np.where(p.took == NEVER, 0, p.took)
    load = -(-_per_unit(np.add, took, p.units) // devices)
    for there in np.flatnonzero(devices > 1):
        beside = problem.allowed[:, problem.location == there]
        alone = np.count_nonzero(beside, axis=1) == 1
        for at in beside.T if alone.any() else ():
            only = _per_unit(np.add, np.where(alone & at, took[:, there], 0)[:, None], p.units)[:, 0]
            load[:, there] = np.maximum(load[:, there], only)
    ends = _per_unit(np.minimum, p.head, p.units) + _per_unit(np.minimum, p.tail, p.units)
    return _least(p.units, load + ends)


def link_window(problem: Problem, paths: LocationPaths | None = None) -> int:
    """Return the transfers that must happen whatever the placement, spread over a set of links.

    Between heads and tails, as `device_window`; `link_weights` says which links.
    """
    p = paths_of(problem) if paths is None else paths
    c = crossings_of(problem, p)
    weights = link_weights(problem, p, c) if len(c.payload) else ()
    return max((_window(link_jobs(problem, c, weight), weight) for weight in weights), default=0)


def memory_proof(problem: Problem) -> str | None:
    """Return numbers that prove that no placement satisfies memory and groups; None when there is no such proof.

    See `solvers.bounds.memory_proof`.
    """
    return memory.proof(problem)


def _per_unit(how: np.ufunc, values: Ints, units: Units) -> Ints:
    """Return [u, columns] of [n, columns]: the sum, least or most over the tasks of each unit."""
    if not len(values):
        return values
    order = np.argsort(units.unit, kind="stable")
    first = np.flatnonzero(np.diff(units.unit[order], prepend=-1))
    return how.reduceat(values[order], first, axis=0)


def _least(units: Units, ticks: Ints) -> int:
    """Return the [u, l] ticks of the unit that needs most where it needs least."""
    return int(np.where(units.allowed, ticks, NEVER).min(axis=1, initial=NEVER).max(initial=0))


def _over(work: int, weight: Ints) -> int:
    return -(-work // int(weight.sum()))


def _window(jobs: Jobs, weight: Ints) -> int:
    total = int(weight.sum())
    return _over(preemptive(Jobs(jobs.head * total, jobs.work, jobs.tail * total)), weight)
