"""Payloads that must cross whatever the placement, and the weighted load that they put on links."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.bounds.loads import SETS, Jobs, horizon
from solvers.compiled.kernels import routine, subroutine
from solvers.problem import Problem
from solvers.structure.paths import NEVER, LocationPaths
from solvers.structure.units import distinct
from solvers.timing.replay import prepare


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
    """Find them. O(e l)."""
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
    ready, rest = _ends(paths)
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


def _ends(p: LocationPaths) -> tuple[Ints, Ints]:
    """[n] the earliest finish of each task, and [n] the least ticks from its start to the end."""
    ready = np.where(p.took == NEVER, NEVER, p.head + p.took).min(axis=1, initial=NEVER)
    return ready, np.where(p.took == NEVER, NEVER, p.took + p.tail).min(axis=1, initial=NEVER)


def link_weights(problem: Problem, paths: LocationPaths, c: Crossings) -> Iterator[Ints]:
    """[links] weights: 1 on the links between two sets of locations that a payload must join, then on each link."""
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
    """The crossings as jobs: the least weighted ticks of each over the places of its producer and consumers."""
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
    """The least weighted ticks of a crossing by the cost of each target: all forced ones, or the dearest consumer."""
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
