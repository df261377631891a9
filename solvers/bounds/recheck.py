"""Distances from anchors and to them, followed afresh from claims: what the check of a bound rests on.

Nothing here is shared with the search for the bound (`solvers.bounds.anchor_bound`); what both start from is a
topological order and the units of a problem.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.dag import topological_order
from solvers.compiled.kernels import routine
from solvers.problem import Problem
from solvers.structure.units import Units

CANNOT = 2**58
"""The distance of two tasks at one location that cannot share one, or at two that must."""
UNKNOWN = -1
"""The distance from a task that does not precede."""


class OrderedTasks(NamedTuple):
    """Tasks in topological order, and the edges between their positions. n tasks, e edges."""

    order: Ints
    """[n] task at each position."""
    position: Ints
    """[n] position of each task."""
    took: Ints
    """[n] least ticks of each task on any device."""
    sites: Ints
    """[n] a bit for each location where the task can be."""
    unit: Ints
    """[n] unit of each task; tasks of one unit share a location."""
    src: Ints
    dst: Ints
    near: Ints
    """[e] least ticks from the finish of one end to the start of the other at one location."""
    far: Ints
    """[e] the same ticks at two locations."""


class AnchorDistances(NamedTuple):
    """[n, k + 2] distances between each position and the start (0), k anchors, and the end (k + 1)."""

    near: Ints
    far: Ints


def tasks_of(p: Problem, units: Units) -> OrderedTasks:
    """Return the tasks and edges that distances are computed from. O(e l^2)."""
    able = units.allowed[units.unit]
    near = np.where((able[p.src] & able[p.dst]).any(axis=1), 0, CANNOT)
    far = np.full(p.edges, CANNOT, dtype=np.int64)
    apart = units.unit[p.src] != units.unit[p.dst]
    sends = p.payload >= 0
    for here in range(p.locations):
        for there in range(p.locations):
            if here != there:
                ticks = np.zeros(p.edges, dtype=np.int64)
                ticks[sends] = p.transfer[p.payload[sends], p.path_class[here, there]]
                both = apart & able[p.src, here] & able[p.dst, there]
                far[both] = np.minimum(far, ticks)[both]
    order = topological_order(p.tasks, p.src, p.dst)
    position = np.empty(p.tasks, dtype=np.int64)
    position[order] = np.arange(p.tasks)
    took = np.where(usable(p, units), p.duration, CANNOT).min(axis=1, initial=CANNOT)[order]
    sites = (able @ (1 << np.arange(p.locations)))[order].astype(np.int64)
    return OrderedTasks(order, position, took, sites, units.unit[order], position[p.src], position[p.dst], near, far)


def usable(p: Problem, units: Units) -> Bools:
    """[n, m] whether a task can run on a device, its group included."""
    found: Bools = p.allowed & units.allowed[units.unit][:, p.location]
    return found


def retraced(tasks: OrderedTasks, anchors: Ints, claims: Ints) -> tuple[AnchorDistances, AnchorDistances]:
    """Distances from the start and the anchors to each position, and from each to the anchors and the end.

    Each claim, [c, 8] by `solvers.bounds.evidence.Claim`, is taken as one more edge. O(k (e + c)).
    """
    n, k = len(tasks.took), len(anchors)
    number = np.zeros(n, dtype=np.int64)
    number[anchors] = np.arange(1, k + 1)
    place = np.concatenate([[-1], anchors, [-1]])
    columns = (place, number, np.where(place < 0, 0, tasks.sites[place]))
    tables = [np.full((n, k + 2), UNKNOWN, dtype=np.int64) for _ in range(4)]
    forward, backward = AnchorDistances(*tables[:2]), AnchorDistances(*tables[2:])
    forward.near[:, 0] = forward.far[:, 0] = backward.near[:, -1] = backward.far[:, -1] = 0
    for back, reach in ((False, forward), (True, backward)):
        at, other = (tasks.dst, tasks.src) if back else (tasks.src, tasks.dst)
        edge = np.argsort(at, kind="stable")
        edges = (np.searchsorted(at[edge], np.arange(n + 1)), other[edge], tasks.near[edge], tasks.far[edge])
        own = np.argsort(claims[:, 0 if back else 1], kind="stable")
        offset = np.searchsorted(claims[own, 0 if back else 1], np.arange(k + 3))
        _sweep(tasks, edges, columns, (claims[own], offset), (forward, reach), back)
    return forward, backward


@routine
def _sweep(
    tasks: OrderedTasks,
    edges: tuple[Ints, Ints, Ints, Ints],
    columns: tuple[Ints, Ints, Ints],
    claims: tuple[Ints, Ints],
    tables: tuple[AnchorDistances, AnchorDistances],
    back: bool,
) -> None:
    """Send the distances of each position along its edges, after what the claims of an anchor add to it."""
    (offset, other, near, far), (place, number, sites), (rows, own), (known, reach) = edges, columns, claims, tables
    for k in range(len(number)):
        x = len(number) - 1 - k if back else k
        _tie(tasks, place, x, reach)
        j = number[x]
        for c in range(own[j], own[j + 1] if j > 0 else own[j]):
            b = rows[c, 1] if back else rows[c, 0]
            _widen(reach, (x, b), rows[c, 2], rows[c, 3])
            if place[b] >= 0:
                later, earlier = (place[b], j) if back else (x, b)
                length = (known.near[later, earlier], known.far[later, earlier])
                _send(tasks, sites, (place[b], x), length, reach)
        for e in range(offset[x], offset[x + 1]):
            z, length = other[e], (near[e], far[e])
            _send(tasks, sites, (x, z), length, reach)
            if j > 0:
                reach.near[z, j] = max(reach.near[z, j], length[0])
                reach.far[z, j] = max(reach.far[z, j], length[1])


@routine
def _send(
    tasks: OrderedTasks, sites: Ints, hop: tuple[int, int], length: tuple[int, int], reach: AnchorDistances
) -> None:
    """Take the distances of one position to another that is some length away."""
    x, z = hop
    near, far, took = reach.near, reach.far, tasks.took[x]
    for a in range(near.shape[1]):
        if near[x, a] < 0:
            continue
        other = min(near[x, a] + took + length[1], far[x, a] + took + length[0])
        if _several(sites[a] | tasks.sites[x] | tasks.sites[z]):
            other = min(other, far[x, a] + took + length[1])
        near[z, a] = max(near[z, a], min(CANNOT, near[x, a] + took + length[0], far[x, a] + took + length[1]))
        far[z, a] = max(far[z, a], min(CANNOT, other))


@routine
def _several(sites: int) -> bool:
    """Return True if there are more than two locations."""
    count = 0
    while sites:
        count += sites & 1
        sites >>= 1
    return count > 2


@routine
def _tie(tasks: OrderedTasks, place: Ints, x: int, reach: AnchorDistances) -> None:
    """Tasks of one unit, or with one location for both, cannot be apart; those without a common one, not together."""
    for a in range(1, len(place) - 1):
        if reach.near[x, a] >= 0:
            one, two = tasks.sites[place[a]], tasks.sites[x]
            if one & two == 0:
                reach.near[x, a] = CANNOT
            if tasks.unit[place[a]] == tasks.unit[x] or (one == two and one & (one - 1) == 0):
                reach.far[x, a] = CANNOT


@routine
def _widen(reach: AnchorDistances, at: tuple[int, int], apart: int, ticks: int) -> None:
    """Take a claimed distance as one: at an end of the schedule as both, else as near or far."""
    x, a = at
    end = a == 0 or a == reach.near.shape[1] - 1
    if end or apart == 0:
        reach.near[x, a] = max(reach.near[x, a], ticks)
    if end or apart == 1:
        reach.far[x, a] = max(reach.far[x, a], ticks)
