"""Lower bounds on the makespan, in ticks, that need no solver; and proofs that memory cannot suffice.

Each bound holds for every valid schedule with tolerance 0: all is whole, and divisions round up, as a makespan is
whole. Each but `best` raises ValueError where the tasks of a group have no location in common; `paths` and `weights`
(`device_weights`) save computing them.

Loads are weighted. With weights y >= 0 of some machines, a job that must run on one of them takes at least its least
y-weighted ticks of their sum(y) T in a schedule of length T. All other machines weigh 0, and so do the jobs that could
go there. Links are machines, too, whose jobs are the payloads that must cross whatever the placement.

Each proof about memory is tried on what the ones before leave: units that fit one location only fill it, which leaves
fewer for others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from solvers.arrays import Bools, Floats, Ints, bools, offsets
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import kernel, routine, subroutine
from solvers.problem import Problem
from solvers.structure.units import NEVER, LocationPaths, Units, distinct, every_packing, least_at, paths_of, units_of
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


_SETS = 256
"""Sets of locations whose memory is summed at most: the smallest."""


def memory_proof(problem: Problem) -> str | None:
    """Return why no placement satisfies memory and groups; None when no proof is found. O(u l log u), u units.

    Each unit alone; the bytes of the units that each set of locations must hold; the number of locations that these
    need, packed whole (bound L2 of Martello and Toth 1990); and all packings, where they are few.
    """
    return next(_proofs(problem), None)


def _proofs(p: Problem) -> Iterator[str]:
    units = units_of(p)
    room = np.where(units.allowed, p.capacity, -1).max(axis=1, initial=-1)
    for unit in np.flatnonzero(units.memory > room)[:1].tolist():
        name = _named(p, units, unit)
        if room[unit] < 0:
            yield f"{name}: no location can run all of its tasks"
        else:
            need, most = int(units.memory[unit]), int(room[unit])
            yield f"{name} needs {need} bytes, the largest location for it has {most}: {need - most} bytes short"
    yield from _sets(p, units)
    fitting, why = fitting_units(p, units)
    if why:
        yield why
    else:
        yield from _sets(p, fitting)
        _, nodes = every_packing(fitting, p.capacity)
        if nodes >= 0:
            needy = fitting.memory[fitting.memory > 0].tolist()
            what = f"{len(needy)} tasks and groups of {sum(needy)} bytes"
            yield f"no packing of {what} into {p.locations} locations: none of {nodes} partial ones can be completed"


def fitting_units(p: Problem, units: Units) -> tuple[Units, str]:
    """Remove the locations that have no room for a unit beside what can only be there; return why one is left none.

    The reason is empty where each unit has a location.
    """
    allowed = units.allowed
    while True:
        alone = np.count_nonzero(allowed, axis=1) == 1
        held = np.where(allowed & alone[:, None], units.memory[:, None], 0)
        room = p.capacity - held.sum(axis=0) + held
        tighter = allowed & (units.memory[:, None] <= room)
        if (tighter == allowed).all():
            return replace(units, allowed=bools(allowed)), ""
        stuck = np.flatnonzero(~tighter.any(axis=1))
        if len(stuck):
            unit = int(stuck[np.argmax(units.memory[stuck])])
            need, most, name = int(units.memory[unit]), int(room[unit].max()), _named(p, units, unit)
            why = f"{name} needs {need} bytes, which what can only be there leaves at none of its locations"
            if most < need:
                short = f"{need - most} bytes short"
                why = f"{name} needs {need} bytes, what can only be elsewhere leaves at most {most}: {short}"
            return replace(units, allowed=bools(tighter)), why
        allowed = tighter


def packed_bins(sizes: Ints, capacity: int) -> int:
    """Return the bins of a capacity that items of these sizes, each <= `capacity`, need at least.

    L2 of Martello and Toth. For each a <= capacity / 2: the items above capacity - a, and those above half, each in a
    bin of its own; those from a to half fill what the latter leave, and more bins. Sizes sum to 62 bits.
    """
    item = np.sort(sizes)[::-1]
    total = offsets(item)
    above_half = int(np.count_nonzero(2 * item > capacity))
    # Only sizes that occur, and 0, can change the bound as thresholds: all of them are evaluated at once on prefix sums
    # of the sorted sizes, in O(n log n).
    least = np.unique(np.append(item[above_half:], 0))
    alone = np.searchsorted(-item, -(capacity - least), side="left")
    small = np.searchsorted(-item, -least, side="right")
    left = (above_half - alone) * capacity - (total[above_half] - total[alone])
    more = np.maximum(0, total[np.maximum(small, above_half)] - total[above_half] - left)
    return int((above_half + -(-more // max(capacity, 1))).max())


def _named(p: Problem, units: Units, unit: int) -> str:
    task = int(np.argmax(units.unit == unit))
    return f"group {p.group[task]}" if p.group[task] >= 0 else f"task {task}"


def _sets(p: Problem, units: Units) -> Iterator[str]:
    example, which = distinct(units.allowed)
    sets, held = units.allowed[example], np.zeros(len(example), dtype=np.int64)
    np.add.at(held, which, units.memory)
    for among in (*sets[np.argsort(np.count_nonzero(sets, axis=1), kind="stable")[:_SETS]], sets.any(axis=0)):
        inside = ~(sets & ~among).any(axis=1)
        need, most = sum(held[inside].tolist()), sum(p.capacity[among].tolist())
        places = ", ".join(map(str, np.flatnonzero(among).tolist()))
        if need > most:
            yield (
                f"the tasks confined to locations {places} need {need} bytes, "
                f"these have {most}: {need - most} bytes short"
            )
        elif among.any() and (bins := _bins(p.capacity[among], units.memory[inside[which]])) > among.sum():
            lack = "" if len(set(p.capacity[among].tolist())) == 1 else ", with what the smaller ones lack of that"
            yield (
                f"the tasks confined to locations {places} need {need} bytes, these have {most}, but packed whole "
                f"they fill {bins} of {int(p.capacity[among].max())} bytes{lack}"
            )


def _bins(capacity: Ints, memory: Ints) -> int:
    """Return the locations needed when all are as large as the largest and what the others lack is packed, too."""
    most = int(capacity.max())
    if most * (len(capacity) + 1) >= 2**62:
        return 0
    return packed_bins(np.concatenate([memory, most - capacity]), most)


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
        work = np.where(p.took == NEVER, 0, least_at(problem, weight, NEVER))
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
        work = np.where(p.took == NEVER, NEVER, least_at(problem, weight, NEVER)).min(axis=1, initial=NEVER)
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
