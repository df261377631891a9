"""Weighted loads of devices and links: the jobs that `quick_bounds` spreads over a set of them as over one machine.

With weights y >= 0 of some machines, a job that must run on one of them takes at least its least y-weighted ticks of
their sum(y) T in a schedule of length T. All other machines weigh 0, and so do the jobs that could go there. Links are
machines, too, whose jobs are the payloads that must cross whatever the placement.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Floats, Ints
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import kernel, routine, subroutine
from solvers.problem import Problem
from solvers.structure.paths import NEVER, LocationPaths
from solvers.structure.units import distinct, least_at
from solvers.timing.replay import prepare

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
    """Yield [m] weights: 1, and the mean speed, on all devices and on each set that some task is confined to."""
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
    """Sum the least ticks over a device's, of tasks that it can run and that take time there; count these."""
    for task in range(len(least)):
        for device in range(len(ratio)):
            if usable[task, device] and duration[task, device] > 0:
                ratio[device] += least[task] / duration[task, device]
                many[device] += 1


def horizon(paths: LocationPaths, ticks: Ints) -> float:
    """Return more than the sum of a head, the greatest of each row of `ticks`, and a tail: what must stay exact."""
    ends = sum(float(np.where(each == NEVER, 0, each).max(initial=0)) for each in (paths.head, paths.took, paths.tail))
    return ends + float(ticks.max(axis=1, initial=0).sum(dtype=np.float64)) + 1


def device_work(problem: Problem, weight: Ints) -> Ints:
    """Return [n, l] least weighted ticks of a task over the devices of each location; NEVER where none can run it."""
    return least_at(problem, weight, NEVER)


def preemptive(jobs: Jobs) -> int:
    """Return the greatest, over all subsets, of least head + work + least tail: one machine with preemption.

    The bound of Jackson (1955). Jobs without work count in no subset. O(n log n).
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


class Crossings(NamedTuple):
    """Payloads of which no location of the producer suits every consumer; c of them."""

    payload: Ints
    """[c] number of the payload in the problem."""
    first: Ints
    """[c] the first of its consumers in `head`."""
    last: Ints
    """[c] one beyond the last of its consumers in `head`."""
    head: Ints
    """[e] consumers; those of a payload are consecutive."""
    producer: Ints
    """[p] producer of each payload."""
    unit: Ints
    """[n] unit of each task."""
    able: Bools
    """[u, l] where a unit can be."""
    ready: Ints
    """[c] the earliest finish of its producer."""
    rest: Ints
    """[c] the least ticks from the start of a consumer to the end."""


def crossings_of(problem: Problem, paths: LocationPaths) -> Crossings:
    """Find the payloads that must cross. O(e l)."""
    g, units = prepare(problem), paths.units
    first = np.flatnonzero(np.diff(g.carried, prepend=-2))
    last = np.append(first[1:], len(g.carried))[: len(first)]
    able = units.allowed[units.unit]
    suits = able[:0]
    if len(first):
        suits = np.logical_and.reduceat(able[g.head], first, axis=0)
    sends = np.flatnonzero(g.carried[first] >= 0)
    must = sends[~(suits[sends] & able[problem.producer[g.carried[first[sends]]]]).any(axis=1)]
    payload = g.carried[first[must]]
    ready = np.where(paths.took == NEVER, NEVER, paths.head + paths.took).min(axis=1, initial=NEVER)
    rest = np.where(paths.took == NEVER, NEVER, paths.took + paths.tail).min(axis=1, initial=NEVER)
    after = np.minimum.reduceat(rest[g.head], first)[must] if len(first) else first
    return Crossings(
        payload,
        first[must],
        last[must],
        g.head,
        problem.producer,
        units.unit,
        units.allowed,
        ready[problem.producer[payload]],
        after,
    )


def link_weights(problem: Problem, paths: LocationPaths, c: Crossings) -> Iterator[Ints]:
    """Yield [links] weights: 1 on the links between two sets of locations that must be joined, then on each link."""
    # The links between the locations of a producer and those of a consumer that cannot meet, for SETS such pairs.
    which = np.repeat(np.arange(len(c.payload)), c.last - c.first)
    edge = np.arange(len(which)) - np.repeat(np.cumsum(c.last - c.first) - c.last, c.last - c.first)
    one, two = c.able[c.unit[c.producer[c.payload[which]]]], c.able[c.unit[c.head[edge]]]
    apart = ~(one & two).any(axis=1)
    pairs = np.concatenate([one, two], axis=1)[apart]
    example, name = distinct(pairs)
    most = np.argsort(-np.bincount(name, minlength=len(example)), kind="stable")[:SETS]
    found = []
    for pair in pairs[example[most]]:
        held = problem.holds[np.ix_(pair[: problem.locations], pair[problem.locations :])]
        found.append(np.bincount(held[held >= 0], minlength=problem.links).clip(max=1))
    joined = [*found, _any(found, problem.links).astype(np.int64)]
    each = np.flatnonzero(_any(joined, problem.links))[: 2 * SETS]
    longest, tried = horizon(paths, problem.transfer[c.payload] * problem.locations), set()
    for weight in (*joined, *(np.arange(problem.links) == each[:, None]).astype(np.int64)):
        if weight.any() and weight.tobytes() not in tried and longest * float(weight.sum()) < NEVER:
            tried.add(weight.tobytes())
            yield weight


def _any(sets: list[Ints], links: int) -> Bools:
    return np.any([np.zeros(links, dtype=np.bool_), *(s > 0 for s in sets)], axis=0)


def link_jobs(problem: Problem, c: Crossings, weight: Ints) -> Jobs:
    """Return the crossings as jobs: the least weighted ticks of each over the places of its producer and consumers."""
    # [l, l] the weight of all links of a path, each once.
    toll = np.zeros((problem.locations, problem.locations), dtype=np.int64)
    for column in range(problem.holds.shape[2]):
        link = problem.holds[:, :, column]
        fresh = (link >= 0) & ~(problem.holds[:, :, :column] == link[:, :, None]).any(axis=2)
        toll += np.where(fresh, weight[link], 0)
    work = _work(c, toll, problem.transfer, problem.path_class)
    return Jobs(c.ready, work, c.rest)


@routine
def _work(c: Crossings, toll: Ints, transfer: Ints, path_class: Ints) -> Ints:
    work = np.zeros(len(c.payload), dtype=np.int64)
    seen, cost = np.empty(toll.shape[0], dtype=np.bool_), np.empty(toll.shape[0], dtype=np.int64)
    for k in range(len(c.payload)):
        payload = c.payload[k]
        source = c.unit[c.producer[payload]]
        least = NEVER
        for here in range(len(seen)):
            if c.able[source, here]:
                for there in range(len(seen)):
                    ticks = 0 if there == here else transfer[payload, path_class[here, there]]
                    cost[there] = toll[here, there] * ticks
                least = min(least, _cost(c, k, cost, seen))
        work[k] = least
    return work


@subroutine
def _cost(c: Crossings, k: int, cost: Ints, seen: Bools) -> int:
    """Return the least weighted ticks of a crossing, by the cost of each target: all forced ones, or the dearest."""
    forced, dearest = 0, 0
    for there in range(len(seen)):
        seen[there] = False
    for at in range(c.first[k], c.last[k]):
        unit = c.unit[c.head[at]]
        if unit == c.unit[c.producer[c.payload[k]]]:
            continue
        cheapest, places, last = NEVER, 0, -1
        for there in range(len(cost)):
            if c.able[unit, there]:
                cheapest, places, last = min(cheapest, cost[there]), places + 1, there
        dearest = max(dearest, cheapest)
        if places == 1 and not seen[last]:
            seen[last] = True
            forced += cheapest
    return max(forced, dearest)
