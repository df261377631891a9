"""Verification of a bound from its evidence, by arithmetic that shares no code with the search for the bound.

First all distances by longest paths, with every claim as one more edge (`solvers.bounds.recheck`); then each claim,
with these. That is no circle: a claim about two anchors is checked with distances to and from tasks strictly between,
and what claims these rest on lie between the two anchors, with fewer tasks between. So all hold, by induction on that.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints
from solvers.bounds.evidence import ALL, HEAVIEST, HERE, THERE, Claim, Evidence
from solvers.bounds.evidence import NONE as NOWHERE
from solvers.bounds.recheck import CANNOT, AnchorDistances, OrderedTasks, retraced, tasks_of, usable
from solvers.problem import Problem
from solvers.structure.units import Units, units_of

_MOST = 2**46
"""Exclusive upper limit of ticks and thresholds, so that all sums are exact."""
_LOCATIONS = 60


class EvidenceError(ValueError):
    """Evidence from which no bound follows; the text says why."""


def follows(problem: Problem, evidence: Evidence) -> int:
    """The ticks that every schedule takes, by the evidence. EvidenceError when it proves nothing.

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
    forward, backward = retraced(tasks, anchors, claims)
    work = [_work(problem, units, weight)[tasks.order] for weight in evidence.weights]
    between = _TasksBetween(tasks, anchors, forward, backward)
    for claim in map(Claim._make, claims.tolist()):
        room = _DeviceCapacity.of(problem, evidence.weights[claim.weight])
        if not _refuted(claim, between.options(claim, work[claim.weight]), room):
            raise EvidenceError(f"anchors {claim.first} and {claim.last} are not shown to be {claim.ticks} ticks apart")
    whole = forward.near[:, 0] + tasks.took + backward.near[:, -1]
    last = claims[(claims[:, 0] == 0) & (claims[:, 1] == len(anchors) + 1)]
    return int(max(whole.max(initial=0), last[:, 3].max(initial=0)))


def _read(p: Problem, evidence: Evidence, position: Ints) -> tuple[Ints, Ints]:
    """Positions of the anchors, and the claims, [c, 8]; all in range and in order."""
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


def _work(p: Problem, units: Units, weight: tuple[int, ...]) -> Ints:
    """[n] least weighted ticks of each task."""
    ticks = np.where(usable(p, units), p.duration * np.array(weight, dtype=np.int64), CANNOT)
    return ints(ticks.min(axis=1, initial=CANNOT))


class _IntervalTasks(NamedTuple):
    """The tasks between two anchors as arrays of [x] entries, in ticks."""

    work: Ints
    near_head: Ints
    far_head: Ints
    near_tail: Ints
    far_tail: Ints
    took: Ints
    third: Bools
    """True if a third location is possible."""


class _TasksBetween:
    """The tasks between two anchors, with their distances from and to both."""

    def __init__(self, tasks: OrderedTasks, anchors: Ints, forward: AnchorDistances, backward: AnchorDistances) -> None:
        self._tasks, self._anchors = tasks, anchors
        self._columns = [np.ascontiguousarray(table.T) for table in (*forward, *backward)]

    def options(self, claim: Claim, work: Ints) -> _IntervalTasks:
        """Return the arrays of the tasks that have work."""
        ends = len(self._anchors) + 1
        low = self._anchors[claim.first - 1] + 1 if claim.first > 0 else 0
        high = self._anchors[claim.last - 1] if claim.last < ends else len(work)
        nh, fh, nt, ft = (
            table[column, low:high]
            for table, column in zip(self._columns, (claim.first, claim.first, claim.last, claim.last), strict=True)
        )
        some = np.flatnonzero((nh >= 0) & (nt >= 0) & (work[low:high] > 0))
        third = np.zeros(len(some), dtype=np.bool_)
        if claim.first > 0 and claim.last < ends:
            sites = self._tasks.sites[low:high][some] | self._tasks.sites[low - 1] | self._tasks.sites[high]
            third = (sites & (sites - 1)) & ((sites & (sites - 1)) - 1) > 0
        return _IntervalTasks(
            work[low:high][some], nh[some], fh[some], nt[some], ft[some], self._tasks.took[low:high][some], third
        )


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
        """The most weighted ticks of all devices, each at work within the span of its location."""
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


def _refuted(claim: Claim, o: _IntervalTasks, room: _DeviceCapacity) -> bool:
    """Return True if one tick less than the claim has no room for what it says."""
    limit, apart = claim.ticks - 1, claim.far > 0
    tail, away = (o.far_tail, o.near_tail) if apart else (o.near_tail, o.far_tail)
    here, there = o.near_head + o.took + tail <= limit, o.far_head + o.took + away <= limit
    third = o.third & (o.far_head + o.took + o.far_tail <= limit) if apart else np.zeros_like(here)
    if claim.kind == NOWHERE:
        return bool((~(here | there | third)).any())
    some = np.minimum(o.near_head, o.far_head) >= claim.head
    some &= np.minimum(o.near_tail, o.far_tail) >= claim.tail
    work = int(o.work[some].sum())
    if claim.kind == ALL:
        ways = ((here, o.near_head, tail), (there, o.far_head, away), (third, o.far_head, o.far_tail))
        spans = [_span(some & can, head, rest, limit) for can, head, rest in ways]
        return work > room.of_spans(*spans, apart=apart)
    if claim.kind == HERE:
        only = some & here & ~there & ~third
        return int(o.work[only].sum()) > room.most * _span(only, o.near_head, tail, limit)
    only = some & there & ~here & ~third
    return apart and claim.kind == THERE and int(o.work[only].sum()) > room.most * _span(only, o.far_head, away, limit)


def _span(some: Bools, head: Ints, tail: Ints, limit: int) -> int:
    """Ticks from the least head to the least tail of some tasks."""
    if not some.any():
        return 0
    return max(0, limit - int(head[some].min()) - int(tail[some].min()))
