"""Verification of a bound from its evidence, by arithmetic that shares no code with the search (`solvers.bounds.full`).

First all distances by longest paths, with every claim as one more edge; then each claim, with these. That is no circle:
a claim about two anchors is checked with distances to and from tasks strictly between, and what claims these rest on
lie between the two anchors, with fewer tasks between. So all hold, by induction on that. What both start from is a
topological order and the units of a problem.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints
from solvers.bounds.evidence import ALL, HEAVIEST, HERE, THERE, Claim, Evidence
from solvers.bounds.evidence import NONE as NOWHERE
from solvers.compiled.dag import topological_order
from solvers.compiled.kernels import routine
from solvers.problem import Problem
from solvers.structure.units import Units, units_of

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
    """Return [n, m] whether a task can run on a device, its group included."""
    found: Bools = p.allowed & units.allowed[units.unit][:, p.location]
    return found


def trace_distances(tasks: OrderedTasks, anchors: Ints, claims: Ints) -> tuple[AnchorDistances, AnchorDistances]:
    """Return distances from the start and the anchors to each position, and from each to the anchors and the end.

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
        # Tasks of one unit, or with one location for both, cannot be apart; those without a common one, not together.
        for a in range(1, len(place) - 1):
            if reach.near[x, a] >= 0:
                one, two = tasks.sites[place[a]], tasks.sites[x]
                if one & two == 0:
                    reach.near[x, a] = CANNOT
                if tasks.unit[place[a]] == tasks.unit[x] or (one == two and one & (one - 1) == 0):
                    reach.far[x, a] = CANNOT
        j = number[x]
        for c in range(own[j], own[j + 1] if j > 0 else own[j]):
            b = rows[c, 1] if back else rows[c, 0]
            # At an end of the schedule there is no location: near and far are the same.
            end = b == 0 or b == reach.near.shape[1] - 1
            if end or rows[c, 2] == 0:
                reach.near[x, b] = max(reach.near[x, b], rows[c, 3])
            if end or rows[c, 2] == 1:
                reach.far[x, b] = max(reach.far[x, b], rows[c, 3])
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
        # More than two locations: bits are left once the two lowest are cleared.
        among = sites[a] | tasks.sites[x] | tasks.sites[z]
        among &= among - 1
        if among & (among - 1):
            other = min(other, far[x, a] + took + length[1])
        near[z, a] = max(near[z, a], min(CANNOT, near[x, a] + took + length[0], far[x, a] + took + length[1]))
        far[z, a] = max(far[z, a], min(CANNOT, other))


_MOST = 2**46
"""Exclusive upper limit of ticks and thresholds, so that all sums are exact."""
_LOCATIONS = 60


class EvidenceError(ValueError):
    """Evidence from which no bound follows; the text says why."""


def follows(problem: Problem, evidence: Evidence) -> int:
    """Return the ticks that every schedule takes, by the evidence; raise EvidenceError when it proves nothing.

    O(e l^2 + k (e + c)) for k anchors and c claims, and O(n) for each claim.
    """
    units = units_of(problem)
    # Refuse a problem whose sums might not be exact.
    sent = problem.transfer.max(axis=1, initial=0).sum(dtype=np.float64)
    ticks = float(problem.duration.max(axis=1, initial=0).sum(dtype=np.float64) + problem.locations * sent)
    if not units.allowed.any(axis=1).all() or problem.locations > _LOCATIONS or ticks >= _MOST:
        raise EvidenceError(f"evidence is for up to {_LOCATIONS} locations, {_MOST} ticks, and groups with a location")
    tasks = tasks_of(problem, units)
    anchors, claims = _read(problem, evidence, tasks.position)
    forward, backward = trace_distances(tasks, anchors, claims)
    can, work = usable(problem, units), []
    for weight in evidence.weights:
        least = np.where(can, problem.duration * np.array(weight, dtype=np.int64), CANNOT).min(axis=1, initial=CANNOT)
        work.append(ints(least[tasks.order]))
    columns = [np.ascontiguousarray(table.T) for table in (*forward, *backward)]
    for claim in map(Claim._make, claims.tolist()):
        room = _DeviceCapacity.of(problem, evidence.weights[claim.weight])
        if not _refutes(claim, tasks, anchors, columns, work[claim.weight], room):
            raise EvidenceError(f"anchors {claim.first} and {claim.last} are not shown to be {claim.ticks} ticks apart")
    whole = forward.near[:, 0] + tasks.took + backward.near[:, -1]
    last = claims[(claims[:, 0] == 0) & (claims[:, 1] == len(anchors) + 1)]
    return int(max(whole.max(initial=0), last[:, 3].max(initial=0)))


def _read(p: Problem, evidence: Evidence, position: Ints) -> tuple[Ints, Ints]:
    """Return positions of the anchors, and the claims, [c, 8]; raise EvidenceError for any out of range or order."""
    if any(not 0 <= task < p.tasks for task in evidence.anchors):
        raise EvidenceError("an anchor is not a task")
    anchors = position[np.array(evidence.anchors, dtype=np.int64)]
    if (np.diff(anchors) <= 0).any():
        raise EvidenceError("the anchors are not in topological order")
    for weight in evidence.weights:
        if len(weight) != p.devices or any(w < 0 for w in weight) or not 0 < sum(weight) <= HEAVIEST:
            raise EvidenceError(f"a weight is not {p.devices} numbers from 0, of at most {HEAVIEST} in all")
    limits = (len(anchors) + 1, len(anchors) + 2, 2, _MOST, len(evidence.weights), NOWHERE + 1, _MOST, _MOST)
    for row in evidence.claims:
        if len(row) != len(limits) or any(not 0 <= value < most for value, most in zip(row, limits, strict=True)):
            raise EvidenceError("a claim has a number out of range")
    claims = np.array(evidence.claims, dtype=np.int64).reshape(-1, len(limits))
    first, last, far = claims[:, 0], claims[:, 1], claims[:, 2]
    ends = (first == 0) | (last == len(anchors) + 1)
    order = last * (len(anchors) + 2) - first
    if (first >= last).any() or (ends & (far > 0)).any() or (np.diff(order) < 0).any():
        raise EvidenceError("the claims are not in order")
    return anchors, claims


class _DeviceCapacity(NamedTuple):
    """The sum of the weights of the devices, and the most at one location."""

    total: int
    most: int

    @classmethod
    def of(cls, p: Problem, weight: tuple[int, ...]) -> "_DeviceCapacity":
        """Return the capacity for these weights of devices."""
        at = np.zeros(p.locations, dtype=np.int64)
        np.add.at(at, p.location, weight)
        return cls(sum(weight), int(at.max()))

    def of_spans(self, here: int, there: int, third: int, *, apart: bool) -> int:
        """Return the most weighted ticks of all devices, each at work within the span of its location."""
        if not apart:
            # Elsewhere are all devices but those of one location, or all.
            return self.most * here + (self.total - self.most) * there if here > there else self.total * there
        left, found = self.total, 0
        # Two locations of at most `most` each; any others have the third span.
        spans = sorted(((here, self.most), (there, self.most), (third, self.total)), reverse=True)
        for span, most in spans:
            found += span * min(left, most)
            left -= min(left, most)
        return found


def _refutes(
    claim: Claim, tasks: OrderedTasks, anchors: Ints, columns: list[Ints], work: Ints, room: _DeviceCapacity
) -> bool:
    """Return True if one tick less than the claim has no room for what it says.

    columns: the distances by anchor. work: [n] weighted ticks of each position.
    """
    # The tasks with work between the two anchors, and which of them can be at a third location.
    ends = len(anchors) + 1
    low = anchors[claim.first - 1] + 1 if claim.first > 0 else 0
    high = anchors[claim.last - 1] if claim.last < ends else len(work)
    rows = zip(columns, (claim.first, claim.first, claim.last, claim.last), strict=True)
    nh, fh, nt, ft = (table[column, low:high] for table, column in rows)
    some = np.flatnonzero((nh >= 0) & (nt >= 0) & (work[low:high] > 0))
    work, took = work[low:high][some], tasks.took[low:high][some]
    near_head, far_head, near_tail, far_tail = nh[some], fh[some], nt[some], ft[some]
    limit, apart = claim.ticks - 1, claim.far > 0
    tail, away = (far_tail, near_tail) if apart else (near_tail, far_tail)
    here, there = near_head + took + tail <= limit, far_head + took + away <= limit
    third = np.zeros_like(here)
    if apart and claim.first > 0 and claim.last < ends:
        sites = tasks.sites[low:high][some] | tasks.sites[low - 1] | tasks.sites[high]
        several = (sites & (sites - 1)) & ((sites & (sites - 1)) - 1) > 0
        third = several & (far_head + took + far_tail <= limit)
    if claim.kind == NOWHERE:
        return bool((~(here | there | third)).any())
    inside = np.minimum(near_head, far_head) >= claim.head
    inside &= np.minimum(near_tail, far_tail) >= claim.tail
    if claim.kind == ALL:
        sites_ = ((here, near_head, tail), (there, far_head, away), (third, far_head, far_tail))
        spans = [_span(inside & can, head, rest, limit) for can, head, rest in sites_]
        return int(work[inside].sum()) > room.of_spans(*spans, apart=apart)
    if claim.kind == HERE:
        only = inside & here & ~there & ~third
        return int(work[only].sum()) > room.most * _span(only, near_head, tail, limit)
    only = inside & there & ~here & ~third
    return apart and claim.kind == THERE and int(work[only].sum()) > room.most * _span(only, far_head, away, limit)


def _span(some: Bools, head: Ints, tail: Ints, limit: int) -> int:
    """Return the ticks from the least head to the least tail of some tasks."""
    if not some.any():
        return 0
    return max(0, limit - int(head[some].min()) - int(tail[some].min()))
