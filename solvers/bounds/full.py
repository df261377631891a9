"""The best lower bound of a full graph, of thousands to hundreds of thousands of tasks, that seconds find.

Distances from anchors to all tasks and back, raised by what lies between two anchors. As `solvers.bounds.distances`,
but for pairs of which one task is an anchor, so that it takes O(k e) for k anchors and O(n) for each pair of these that
is looked at. What is raised is kept as claims (`solvers.bounds.evidence`).
"""

import math
import time
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Floats, Ints, ints, rank_of
from solvers.bounds import quick_bounds
from solvers.bounds.distances import NEVER, NONE
from solvers.bounds.evidence import ANCHORED, HEAVIEST, Claim, Evidence, FullBound
from solvers.bounds.interval_load import (
    COLUMN,
    FAR_HEAD,
    FAR_TAIL,
    GRID,
    LONGEST,
    NEAR_HEAD,
    NEAR_TAIL,
    ROW,
    THIRD,
    TOOK,
    WORK,
    IntervalLoads,
    least,
)
from solvers.bounds.quick_bounds import device_weights
from solvers.compiled.dag import adjacency, topological_order
from solvers.compiled.kernels import kernel, routine, spliced, subkernel
from solvers.problem import Problem
from solvers.structure.units import NEVER as NOWHERE
from solvers.structure.units import LocationPaths, least_at, paths_of, units_of

_COUNTED = 2048
"""Tasks, those of most work, that are counted as ancestors and descendants."""
_WEIGHTS = 2
"""Weights of the devices that are used at most: of those that alone bound the makespan by half of the best."""


class PositionGraph(NamedTuple):
    """The tasks of a problem by position, and their edges both ways; of n + 2 entries, start and end are the last."""

    task: Ints
    """[n] task at each position."""
    before_at: Ints
    before: Ints
    """[e] predecessors, by successor from `before_at`."""
    before_near: Ints
    """[e] least ticks between the two at one location, or NEVER."""
    before_far: Ints
    """[e] the same at two."""
    after_at: Ints
    after: Ints
    after_near: Ints
    after_far: Ints
    took: Ints
    """[n + 2] least ticks of each task."""
    mask: Ints
    """[n + 2] a bit for each location where the task can be."""
    unit: Ints
    """[n + 2] tasks of one unit share a location."""


class WeightedLoads(NamedTuple):
    """The tasks of a `PositionGraph`, weighted by speeds of devices."""

    weights: Ints
    """[q, m] weight of a tick on each device, in each of q ways to weigh."""
    work: Ints
    """[q, n] least weighted ticks of the task at each position."""
    total: Ints
    """[q] sum of the weights."""
    most: Ints
    """[q] sum of the weights at the one location where it is greatest."""


def net_of(problem: Problem, paths: LocationPaths) -> PositionGraph:
    """Return the tasks in topological order. O(n l + e), and O(e) for each pair of sets of locations on an edge."""
    n, able = problem.tasks, paths.units.allowed[paths.units.unit]
    task = topological_order(n, problem.src, problem.dst)
    place = rank_of(task)
    bits = able @ (1 << np.arange(problem.locations))
    # [e] least ticks between the ends of an edge at one location, and at two: the same for equal sets of locations.
    one, two = bits[problem.src], bits[problem.dst]
    near, far = np.where(one & two > 0, 0, NEVER), np.full(problem.edges, NEVER, dtype=np.int64)
    transfer = problem.transfer
    ticks = transfer.T if problem.payloads else np.zeros((transfer.shape[1], 1), dtype=np.int64)
    joined, which = np.unique(np.stack([one, two]), axis=1, return_inverse=True)
    for k in range(joined.shape[1]):
        here, there = ((joined[side, k] >> np.arange(problem.locations)) & 1 > 0 for side in range(2))
        hops = np.outer(here, there) & ~np.eye(problem.locations, dtype=np.bool_)
        edge = np.flatnonzero(which.ravel() == k)
        if hops.any():
            fastest = ticks[np.unique(problem.path_class[hops])].min(axis=0)
            far[edge] = np.where(problem.payload[edge] < 0, 0, fastest[problem.payload[edge]])
    far[paths.units.unit[problem.src] == paths.units.unit[problem.dst]] = NEVER
    src, dst = place[problem.src], place[problem.dst]
    sides = []
    for at, other in ((dst, src), (src, dst)):
        offset, edge = adjacency(n, at)
        sides.append((offset, other[edge], near[edge], far[edge]))
    everywhere = (1 << problem.locations) - 1
    took = np.append(paths.took.min(axis=1, initial=NOWHERE)[task], [0, 0])
    mask = np.append(bits[task], [everywhere, everywhere]).astype(np.int64)
    return PositionGraph(task, *sides[0], *sides[1], took, mask, np.append(paths.units.unit[task], [-1, -2]))


def loads_of(problem: Problem, paths: LocationPaths, net: PositionGraph) -> WeightedLoads:
    """Return the tasks weighted by those weights of the devices that alone give the best bounds."""
    rows, works = [], []
    for weight in (weight for weight in device_weights(problem, paths) if weight.sum() <= HEAVIEST):
        ticks = np.where(paths.took == NOWHERE, NOWHERE, least_at(problem, weight, NOWHERE))
        rows.append(weight)
        works.append(ticks.min(axis=1, initial=NOWHERE)[net.task])
    weights = np.array(rows, dtype=np.int64).reshape(len(rows), problem.devices)
    work = np.array(works, dtype=np.int64).reshape(len(rows), problem.tasks)
    total = weights.sum(axis=1)
    alone = work.sum(axis=1) / np.maximum(total, 1)
    best = np.argsort(-alone, kind="stable")[:_WEIGHTS]
    best = best[alone[best] > alone.max(initial=0) / 2]
    at = np.zeros((len(rows), problem.locations), dtype=np.int64)
    for device, place in enumerate(problem.location.tolist()):
        at[:, place] += weights[:, device]
    return WeightedLoads(
        ints(weights[best]), ints(work[best]), ints(total[best]), ints(at.max(axis=1, initial=0)[best])
    )


def choose(net: PositionGraph, loads: WeightedLoads, paths: LocationPaths, most: int) -> Ints:
    """Return at most `most` positions: at each step of the longest paths, what most of the work precedes or follows."""
    n = len(net.task)
    head = paths.head.min(axis=1, initial=NOWHERE)[net.task]
    tail = paths.tail.min(axis=1, initial=NOWHERE)[net.task]
    length = head + net.took[:n] + tail
    heavy = np.argsort(-loads.work[0], kind="stable")[:_COUNTED]
    number = np.full(n, -1, dtype=np.int64)
    number[heavy] = np.arange(len(heavy))
    work = loads.work[0][heavy].astype(np.float64)
    related = _reached(net.before_at, net.before, number, work, reverse=False)
    related += _reached(net.after_at, net.after, number, work, reverse=True)
    step = head * most // (int(length.max(initial=0)) + 1)
    # Tasks near a longest path come first, and of these the one that most work precedes or follows: the more work lies
    # between two anchors, the more their distance can be raised.
    slack = length <= 0.9 * length.max(initial=0)
    by = np.lexsort((-related, slack, step))
    return ints(np.sort(by[np.flatnonzero(np.diff(step[by], prepend=-1))]))


@routine
def _reached(offset: Ints, other: Ints, number: Ints, work: Floats, reverse: bool) -> Floats:
    """Return [n] the work, by number, of what precedes each position; `reverse` with the edges of successors."""
    n, words, one = len(number), (len(work) + 63) // 64, np.uint64(1)
    seen, found = np.zeros((n, words), dtype=np.uint64), np.zeros(n)
    for k in range(n):
        x = n - 1 - k if reverse else k
        for e in range(offset[x], offset[x + 1]):
            for word in range(words):
                seen[x, word] |= seen[other[e], word]
        for word in range(words):
            bits, y = seen[x, word], word * 64
            while bits:
                if bits & one:
                    found[x] += work[y]
                bits >>= one
                y += 1
        if number[x] >= 0:
            seen[x, number[x] >> 6] |= one << np.uint64(number[x] & 63)
            found[x] += work[number[x]] / 2
    return found


_FINE, _FINEST = 10, 16
"""A distance is raised by at least its 2^-_FINE, and found as exactly; those of the ends of the schedule by less."""


class AnchorTable(NamedTuple):
    """Distances, as far as they are known. Anchors count from 1; 0 is the start, k + 1 the end of the schedule."""

    anchor: Ints
    """[k + 2] position of each anchor: n for the start, n + 1 for the end."""
    number: Ints
    """[n] number of the anchor at each position, or 0."""
    near: Ints
    """[n + 2, k + 1] least ticks from the finish of each anchor to the start of each task at one location, or NONE."""
    far: Ints
    """[n + 2, k + 1] the same ticks when the two are at two locations."""
    to_near: Ints
    """[n] least ticks from the finish of each task to the start of the anchor that is looked at, at one location."""
    to_far: Ints
    raised: Bools
    """[k + 2, k + 2] at [last, first]: whether the distance of the pair has been raised by a claim."""
    tasks: Ints
    """[9, n] work array, which `IntervalLoads` describes."""
    cells: Ints


class AnchoredBound(NamedTuple):
    """A bound and what it rests on."""

    ticks: int
    evidence: Evidence


def anchor_bound(
    net: PositionGraph, loads: WeightedLoads, anchors: Ints, ends: float = math.inf
) -> AnchoredBound | None:
    """Return the distance from start to end of the schedule; None once the clock (`time.monotonic`) is at `ends`."""
    n, k = len(net.task), len(anchors)
    table = AnchorTable(
        anchor=np.concatenate([[n], anchors, [n + 1]]),
        number=np.zeros(n, dtype=np.int64),
        near=np.full((n + 2, k + 1), NONE, dtype=np.int64),
        far=np.full((n + 2, k + 1), NONE, dtype=np.int64),
        to_near=np.empty(n, dtype=np.int64),
        to_far=np.empty(n, dtype=np.int64),
        raised=np.zeros((k + 2, k + 2), dtype=np.bool_),
        tasks=np.empty((9, n), dtype=np.int64),
        cells=np.empty((13, GRID, GRID), dtype=np.int64),
    )
    table.number[anchors] = np.arange(1, k + 1)
    found: list[Ints] = []
    # Anchors in topological order: when an anchor is reached, all distances to the anchors before it are final, and
    # their claims can be used for the distances from there on. The clock is looked at once an anchor, so that the
    # compiled part between two looks takes as long as one anchor does.
    for last in range(1, k + 2):
        if time.monotonic() >= ends:
            return None
        claims = np.empty((4 * last, len(Claim._fields)), dtype=np.int64)
        found.append(claims[: _settle(net, loads, table, last, claims)])
    evidence = Evidence(
        anchors=tuple(net.task[anchors].tolist()),
        weights=tuple(tuple(row) for row in loads.weights.tolist()),
        claims=tuple(tuple(row) for row in np.concatenate(found).tolist()),
    )
    return AnchoredBound(int(table.near[n + 1, 0]), evidence)


@kernel
def _settle(net: PositionGraph, loads: WeightedLoads, t: AnchorTable, last: int, claims: Ints) -> int:
    """Find all distances to an anchor, and from those before it to all tasks up to it; return the number of claims."""
    n, k = len(t.number), len(t.anchor) - 2
    # Distances from the start and the anchors before this one to the tasks from the last anchor to this.
    before = t.anchor[last - 1] if last > 1 else -1
    for x in range(before + 1, min(t.anchor[last] + 1, len(t.number))):
        t.near[x, 0] = t.far[x, 0] = 0
        for e in range(net.before_at[x], net.before_at[x + 1]):
            y, edge = net.before[e], (net.before_near[e], net.before_far[e])
            # Near and far of all anchors at once for each edge, since the row of a position is contiguous in memory.
            for a in range(last):
                found = edge
                if t.anchor[a] != y:
                    if t.near[y, a] < 0:
                        continue
                    sites = net.mask[t.anchor[a]] | net.mask[y] | net.mask[x]
                    found = _composed(net.took[y], sites, (t.near[y, a], t.far[y, a]), edge)
                t.near[x, a], t.far[x, a] = max(t.near[x, a], found[0]), max(t.far[x, a], found[1])
        for a in range(1, last):
            if t.near[x, a] >= 0:
                one, length = t.anchor[a], (t.near[x, a], t.far[x, a])
                masks = (net.mask[one], net.mask[x])
                t.near[x, a], t.far[x, a] = _related(masks, net.unit[one], net.unit[x], length)
    # The pairs of this anchor are raised from the nearest earlier anchor to the farthest: a farther pair contains the
    # nearer ones, so their claims lengthen the heads and tails of the tasks between it.
    count, x = int(np.int64(0)), _retreat(net, t, min(n, t.anchor[last]), last)
    while x >= 0:
        near, far = _known(net, t, t.number[x], last)
        count = _raise(net, loads, t, (t.number[x], last, near, far), (claims, count))
        x = _retreat(net, t, x, last)
    ticks = _known(net, t, int(np.int64(0)), last)[0]
    if last > k:
        ticks = 0
        for x in range(n):
            ticks = max(ticks, t.near[x, 0] + net.took[x] + t.to_near[x])
        t.near[n + 1, 0] = ticks
    return _raise(net, loads, t, (int(np.int64(0)), last, ticks, ticks), (claims, count))


@subkernel
def _composed(took: int, sites: int, one: tuple[int, int], two: tuple[int, int]) -> tuple[int, int]:
    """Return distances near and far by way of a task of some ticks; `sites` are the locations of the three."""
    here, there = one[0] + took, one[1] + took
    near, far = min(here + two[0], there + two[1]), min(here + two[1], there + two[0])
    # With a third location the task in between may be apart from both.
    sites &= sites - 1
    if sites & (sites - 1):
        far = min(far, there + two[1])
    return min(near, NEVER), min(far, NEVER)


@subkernel
def _related(mask: tuple[int, int], one: int, two: int, length: tuple[int, int]) -> tuple[int, int]:
    """Correct distances of tasks that must share a location, or cannot; the ends of the schedule are nowhere."""
    near, far = length
    if one >= 0 and two >= 0:
        sites = mask[0] | mask[1]
        if one == two or sites & (sites - 1) == 0:
            far = NEVER
        if mask[0] & mask[1] == 0:
            near = NEVER
    return near, far


@subkernel
def _retreat(net: PositionGraph, t: AnchorTable, x: int, last: int) -> int:
    """Fill in distances to the anchor `last` from before position x; stop at an anchor; return its position, or -1."""
    goal, end = t.anchor[last], last == len(t.anchor) - 1
    for x_ in range(x - 1, -1, -1):
        near = far = 0 if end else NONE
        for e in range(net.after_at[x_], net.after_at[x_ + 1]):
            y, edge = net.after[e], (net.after_near[e], net.after_far[e])
            found = edge
            if y != goal:
                # Positions behind the goal hold values of an earlier anchor, and those without a path to it are not
                # before it.
                if y > goal or t.to_near[y] < 0:
                    continue
                sites = net.mask[x_] | net.mask[y] | net.mask[goal]
                found = _composed(net.took[y], sites, edge, (t.to_near[y], t.to_far[y]))
            near, far = max(near, found[0]), max(far, found[1])
        if near >= 0:
            sites_ = (net.mask[x_], net.mask[goal])
            near, far = _related(sites_, net.unit[x_], net.unit[goal], (near, far))
        # The walk back stops at each anchor, so that the caller can raise its distance before farther tasks use it.
        t.to_near[x_], t.to_far[x_] = near, far
        if t.number[x_] > 0 and near >= 0:
            return x_
    return -1


@subkernel
def _known(net: PositionGraph, t: AnchorTable, first: int, last: int) -> tuple[int, int]:
    """Return the distances of two anchors by tasks and claims between; put those to `last` in the table."""
    one, goal = t.anchor[first], t.anchor[last]
    near, far = t.near[goal, first], t.far[goal, first]
    # The tables were filled before the later claims were made. Instead of sweeping all tasks again, only ways through
    # an anchor with a claim are tried here: all other ways are in the tables already.
    for b in range(first + 1, last):
        y = t.anchor[b]
        if t.raised[last, b] and last < len(t.anchor) - 1 and t.near[y, first] >= 0:
            known = (t.near[y, first], t.far[y, first])
            sites = net.mask[one] | net.mask[y] | net.mask[goal]
            found = _composed(net.took[y], sites, known, (t.near[goal, b], t.far[goal, b]))
            near, far = max(near, found[0]), max(far, found[1])
    t.near[goal, first], t.far[goal, first] = near, far
    if first == 0:
        return near, far
    for b in range(first + 1, last):
        y = t.anchor[b]
        if t.raised[b, first] and t.to_near[y] >= 0:
            known = (t.near[y, first], t.far[y, first])
            sites = net.mask[one] | net.mask[y] | net.mask[goal]
            found = _composed(net.took[y], sites, known, (t.to_near[y], t.to_far[y]))
            t.to_near[one], t.to_far[one] = max(t.to_near[one], found[0]), max(t.to_far[one], found[1])
    return max(near, t.to_near[one]), max(far, t.to_far[one])


@subkernel
def _raise(
    net: PositionGraph, loads: WeightedLoads, t: AnchorTable, pair: tuple[int, int, int, int], claims: tuple[Ints, int]
) -> int:
    """Raise the distances of two anchors by what is between; return the number of claims with the new ones."""
    first, last, near, far = pair
    rows, count = claims
    inner = first > 0 and last < len(t.anchor) - 1
    # Every weighting of the devices gives a valid bound; each starts from what the ones before have raised, so that a
    # claim is written only for a real gain.
    for q in range(len(loads.total)):
        size, grid = _between(net, loads.work[q], t, (first, last))
        for apart in range(1 + inner):
            low = far if apart else near
            interval = IntervalLoads(t.tasks, size, t.cells, apart > 0, loads.total[q], loads.most[q])
            ticks, why = least(interval, low, _FINE if inner else _FINEST)
            # A claim that gains nothing would only cost whoever checks the evidence.
            if ticks == low:
                continue
            kind, cell = (why - 1) // GRID**2, (why - 1) % GRID**2
            # Rounded up: the least head and tail of the tasks that fall into the cell or beyond.
            head = grid[0] - (-(cell // GRID) * grid[1] // GRID)
            tail = grid[2] - (-(cell % GRID) * grid[3] // GRID)
            for column, value in enumerate((first, last, apart, ticks, q, kind, head, tail)):
                rows[count, column] = value
            count += 1
            # An end of the schedule is at no location: near and far are the same there.
            one, goal = t.anchor[first], t.anchor[last]
            t.raised[last, first] = True
            if apart == 0:
                t.near[goal, first] = ticks
            if apart == 1 or first == 0 or last == len(t.anchor) - 1:
                t.far[goal, first] = ticks
            if first > 0 and apart == 0:
                t.to_near[one] = ticks
            if first > 0 and (apart == 1 or last == len(t.anchor) - 1):
                t.to_far[one] = ticks
            near, far = (near, ticks) if apart else (ticks, far)
    return count


@spliced
def _between(
    net: PositionGraph, work: Ints, t: AnchorTable, pair: tuple[int, int]
) -> tuple[int, tuple[int, int, int, int]]:
    """Gather the tasks between two anchors; return how many, and the least and the range of their heads and tails."""
    first, last = pair
    one, goal, inner = t.anchor[first], t.anchor[last], first > 0 and last < len(t.anchor) - 1
    r, size = t.tasks, 0
    for x in range(one + 1 if first > 0 else 0, min(goal, len(t.number))):
        # What does no work fills no time, and what has no way to both anchors is not between them.
        if work[x] == 0 or t.near[x, first] < 0 or t.to_near[x] < 0:
            continue
        r[NEAR_HEAD, size], r[FAR_HEAD, size] = t.near[x, first], t.far[x, first]
        r[NEAR_TAIL, size], r[FAR_TAIL, size] = t.to_near[x], t.to_far[x]
        sites = net.mask[one] | net.mask[x] | net.mask[goal]
        sites &= sites - 1
        r[TOOK, size], r[WORK, size], r[THIRD, size] = net.took[x], work[x], inner and sites & (sites - 1) != 0
        r[ROW, size] = min(t.near[x, first], t.far[x, first])
        r[COLUMN, size] = min(t.to_near[x], t.to_far[x])
        size += 1
    if size == 0:
        return 0, (0, 1, 0, 1)
    head = tail = NEVER
    heads = tails = 0
    for k in range(size):
        head, tail = min(head, r[ROW, k]), min(tail, r[COLUMN, k])
        heads, tails = max(heads, r[ROW, k]), max(tails, r[COLUMN, k])
    heads, tails = heads - head + 1, tails - tail + 1
    # The grid has a fixed size, so that a test takes time linear in the tasks, not the square of them. It only chooses
    # which sets are tested: the heads and tails of a set stay exact, so any grid gives a valid bound.
    for k in range(size):
        r[ROW, k] = (r[ROW, k] - head) * GRID // heads
        r[COLUMN, k] = (r[COLUMN, k] - tail) * GRID // tails
    return size, (head, heads, tail, tails)


_ANCHORS = (60, 120, 240)
"""How many are tried, one after the other: more are mostly better, and take with their square."""
_ENTRIES = 6_000_000
"""Distances at most, of which each takes 16 bytes."""
_TASKS = 300_000
"""Above this, the fast bounds are all."""
_LOCATIONS = 60


def full_bound(problem: Problem, *, upper: int | None = None, seconds: float = 10.0) -> FullBound:
    """Return the best of `solvers.bounds.quick_bounds` and of the distances between anchors; never above the optimum.

    upper: the makespan of a valid schedule, at which the search ends. seconds: no more anchors are tried after these;
    the fast bounds and the first, few anchors are not cut, and together take near-linear time. The same input gives
    the same bound where all had time. (0, "none") where a group can be nowhere. KeyboardInterrupt passes.
    """
    ends = time.monotonic() + seconds
    best = FullBound(*quick_bounds.best(problem))
    # Return True if there are few enough tasks, locations and ticks, and each group can be somewhere.
    sent = problem.transfer.max(axis=1, initial=0).sum(dtype=np.float64)
    ticks = float(problem.duration.max(axis=1, initial=0).sum(dtype=np.float64) + problem.locations * sent)
    few = 0 < problem.tasks <= _TASKS and problem.locations <= _LOCATIONS and ticks < LONGEST
    suits = few and bool(units_of(problem).allowed.any(axis=1).all())
    if not suits:
        return best
    paths = paths_of(problem)
    net = net_of(problem, paths)
    loads = loads_of(problem, paths, net)
    # Time grows with the square of the anchors: fewer anchors first, so that some bound is there when time runs out.
    before = 0
    for most in (min(most, _ENTRIES // problem.tasks) for most in _ANCHORS):
        if len(loads.total) and most > before and time.monotonic() < ends and (upper is None or best.ticks < upper):
            # The first is let through: where nothing is compiled yet, that alone may take all the time there is.
            found = anchor_bound(net, loads, choose(net, loads, paths, most), ends if before else math.inf)
            before = most
            if found is not None and best.ticks < found.ticks < LONGEST:
                best = FullBound(found.ticks, ANCHORED, found.evidence)
    return best
