"""Weighted loads of devices: the jobs that `quick_bounds` spreads over a set of them as if it were one machine.

With weights y >= 0 of some machines, a job that must run on one of them takes at least its least y-weighted ticks of
their sum(y) T in a schedule of length T. All other machines weigh 0, and so do the jobs that could go there.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Floats, Ints
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import kernel, routine
from solvers.problem import Problem
from solvers.structure.paths import NEVER, LocationPaths
from solvers.structure.units import distinct, least_at

SETS = 32
"""Distinct sets of devices, or of links, that are weighed at most: those of the most work."""
_SPEEDS = 64
"""Weight of the fastest device; the others' are rounded to whole numbers."""


class Jobs(NamedTuple):
    """Jobs for one machine: earliest start, work, and what must follow. Arrays of one length."""

    head: Ints
    work: Ints
    tail: Ints


def device_weights(problem: Problem, paths: LocationPaths) -> Iterator[Ints]:
    """[m] weights: 1, and the mean speed, on all devices and on each set of devices that some task is confined to."""
    usable = problem.allowed & paths.units.allowed[paths.units.unit][:, problem.location]
    least = np.where(usable, problem.duration, NEVER).min(axis=1, initial=NEVER)
    example, which = distinct(usable)
    heaviest = np.argsort(-np.bincount(which, weights=least), kind="stable")[:SETS]
    # [m] relative speed of each device on the tasks that can use it, 1.._SPEEDS.
    ratio, many = np.zeros(problem.devices), np.zeros(problem.devices)
    _ratios(problem.duration, usable, least, ratio, many)
    mean = ratio / np.maximum(many, 1)
    speed = np.clip(np.rint(_SPEEDS * mean / max(mean.max(initial=0.0), 1e-9)), 1, _SPEEDS).astype(np.int64)
    longest, tried = horizon(paths, problem.duration), set()
    for row in (usable.any(axis=0), *usable[example[heaviest]]):
        for scaled in (row.astype(np.int64), np.where(row, speed, 0)):
            weight = scaled // max(int(np.gcd.reduce(scaled)), 1)
            if weight.any() and weight.tobytes() not in tried and longest * float(weight.sum()) < NEVER:
                tried.add(weight.tobytes())
                yield weight


@kernel
def _ratios(duration: Ints, usable: Bools, least: Ints, ratio: Floats, many: Floats) -> None:
    """Sum, over the tasks that a device can use and that take time there, of the least ticks over its; and count."""
    for task in range(len(least)):
        for device in range(len(ratio)):
            if usable[task, device] and duration[task, device] > 0:
                ratio[device] += least[task] / duration[task, device]
                many[device] += 1


def horizon(paths: LocationPaths, ticks: Ints) -> float:
    """More than the sum of a head, the greatest of each row of `ticks`, and a tail: what must stay exact."""
    ends = sum(float(np.where(each == NEVER, 0, each).max(initial=0)) for each in (paths.head, paths.took, paths.tail))
    return ends + float(ticks.max(axis=1, initial=0).sum(dtype=np.float64)) + 1


def device_work(problem: Problem, weight: Ints) -> Ints:
    """[n, l] least weighted ticks of a task over the devices of each location; NEVER where none can run it."""
    return least_at(problem, weight, NEVER)


def preemptive(jobs: Jobs) -> int:
    """The greatest, over all subsets, of least head + work + least tail: one machine with preemption (Jackson 1955).

    Jobs without work count in no subset. O(n log n).
    """
    some = jobs.work > 0
    order = np.argsort(jobs.head[some], kind="stable")
    return int(preemptive_sorted(jobs.head[some][order], jobs.work[some][order], jobs.tail[some][order]))


@routine
def preemptive_sorted(head: Ints, work: Ints, tail: Ints) -> int:
    """Compute `preemptive` for jobs with work, sorted by increasing head; compiled."""
    n = len(head)
    left, key, item = work.copy(), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    at, size, now, best = int(np.int64(0)), int(np.int64(0)), 0, 0
    while at < n or size > 0:
        if size == 0:
            now = max(now, head[at])
        while at < n and head[at] <= now:
            size = push(key, item, size, (-tail[at], at))
            at += 1
        job = item[0]
        # Run only until the next head: a job with a longer tail may become ready there and preempt this one.
        if at < n and now + left[job] > head[at]:
            left[job] -= head[at] - now
            now = head[at]
            continue
        now += left[job]
        # Jackson's preemptive schedule, longest tail first, attains the bound, so no subsets have to be enumerated.
        best = max(best, now + tail[job])
        size = drop(key, item, size)
    return best
