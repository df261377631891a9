"""ParDNN step 1 (Qararyah, Wahib, Dikbayir, Belviranli, Unat 2020, thesis chapter 4, section 4.1.1).

Slicing, mapping and refinement, with what the text leaves open and where they deviate. The order of execution is left
to the runtime, as there. Units and device kinds are respected; memory, which is step 2 there, is not looked at.

Refinement has two policies.

Swapping. Clusters are visited by the top level of their first node. The partners of one are those whose first node
is no earlier and starts within its span, at another place. Better means that one of two sums becomes less and neither
becomes more: the communication between places, and the greater work that either place has within the visited one's
span. The one that saves most of both is taken, of all partners in graphs of some hundred clusters, of the first
`PARTNERS` or more in larger ones, as the search would be quadratic (`limits`). A cluster is swapped once at most.

Switching. In each of at most k rounds, every edge of the critical path that joins two places is looked at, from the
source on: whichever of its two nodes makes the longest path through it shortest when it goes to the other's place is
switched, if that is shorter than the critical path. Within a round only the levels of the switched node are updated,
so what a round did is taken back when the critical path is longer after it. A node whose unit has others stays.

Mapping is algorithm 2 of the source, initial merging and LALB. What the text leaves open there:

- comm(sc) counts every edge between the cluster and all else. A cluster that it says should be merged with the
  primary it talks to most, but that talks to none yet, is left to load balancing.
- Equation (4.2) counts edges to what is mapped; of equal places that talk equally much the first is taken.
- The cluster's own ticks at a place are added: the same everywhere where places are alike, as in the source.
- Fenwick's tree has a row for each level and in it a column for each place, so that one walk serves all places.

Top and bottom levels count every edge with its time, as no node has a place yet. What a level is for the sums of
work within a span, which the text leaves open: the top level, at which a node can start; a node is within a span
when it can start there (at its end no more, as that is where the child starts).
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, offsets, rank_of
from solvers.compiled.dag import topological_order
from solvers.compiled.kernels import inlined, kernel, routine, spliced, subkernel
from solvers.heuristics.clusters.linear_clustering import glb
from solvers.heuristics.devices_of_location import devices_at
from solvers.heuristics.methods import Placement
from solvers.heuristics.pardnn.emulator import emulate
from solvers.heuristics.pardnn.slicing import NOWHERE, SlicedClusters, WeightedGraph, levels, sliced, weights_of
from solvers.problem import Problem
from solvers.result import Options


class ClusterSpans(NamedTuple):
    """The spans of c clusters among the L different top levels of the graph."""

    level: Ints
    """[n] rank of each node's top level among the different ones."""
    levels: int
    low: Ints
    """[c] first rank within the span of each cluster."""
    high: Ints
    """[c] the rank behind its last."""
    first: Ints
    """[c] top level of the first node of each cluster's path, in ticks."""
    end: Ints
    """[c] end of each span, in ticks."""


def spans_of(w: WeightedGraph, c: SlicedClusters, top: Ints) -> ClusterSpans:
    """Return the spans of all clusters; `top`: [n] top levels of the whole graph. O(n log n + e).

    A span lasts from the finish of the last parent of the first node of a path, 0 when that is the source, to the
    start of the first child of its last node, the length of the critical path when that is the sink.
    """
    levels, level = np.unique(top, return_inverse=True)
    longest = int((top + w.took).max(initial=0))
    begin, end = _limits(w, c.first, c.last, top, longest)
    return ClusterSpans(
        level=level.astype(np.int64), levels=len(levels), low=np.searchsorted(levels, begin),
        high=np.searchsorted(levels, end), first=top[c.first] if len(top) else np.zeros(len(c.first), dtype=np.int64),
        end=end,
    )  # fmt: skip


def potentials(w: WeightedGraph, c: SlicedClusters, s: ClusterSpans) -> Ints:
    """Return [c] work of all nodes within the span of each cluster but its own. O(n + c).

    Nodes at places that nothing can be mapped to, such as a host, do not count.
    """
    counted = np.where(w.place < w.ticks.shape[1], w.took, 0)
    within = offsets(np.bincount(s.level, weights=counted, minlength=s.levels).astype(np.int64))
    member = np.flatnonzero(c.cluster != NOWHERE)
    of = c.cluster[member]
    inside = (s.level[member] >= s.low[of]) & (s.level[member] < s.high[of])
    own = np.zeros(len(s.low), dtype=np.int64)
    np.add.at(own, of[inside], counted[member[inside]])
    return within[s.high] - within[s.low] - own


@routine
def _limits(w: WeightedGraph, first: Ints, last: Ints, top: Ints, longest: int) -> tuple[Ints, Ints]:
    begin, end = np.zeros(len(first), dtype=np.int64), np.full(len(first), longest, dtype=np.int64)
    for c in range(len(first)):
        if first[c] < 0:
            continue
        for k in range(w.into[first[c]], w.into[first[c] + 1]):
            begin[c] = max(begin[c], top[w.tail[k]] + w.took[w.tail[k]])
        for k in range(w.out[last[c]], w.out[last[c] + 1]):
            end[c] = min(end[c], top[w.head[k]])
    return begin, end


class ClusterMapping(NamedTuple):
    """A mapping, which compiled code changes in place."""

    cluster: Ints
    """[n] cluster of each node."""
    place: Ints
    """[n] place of each node."""
    at: Ints
    """[c] place of each cluster, NOWHERE for an empty one."""
    tree: Ints
    """[L + 1, k] Fenwick's tree over the levels, for each place: ticks of its nodes."""
    member: Ints
    """[n] the nodes, by cluster."""
    start: Ints
    """[c + 1] where the nodes of each cluster start in `member`."""
    allowed: Bools
    """[c, k] places that can take all of a cluster."""
    load: Ints
    """[c, k] its ticks at each."""


def mapped(w: WeightedGraph, c: SlicedClusters, s: ClusterSpans, *, level_aware: bool = True) -> ClusterMapping:
    """Return a place for every cluster; by Guided Load Balancing instead of LALB unless `level_aware`.

    O(n log n + c k log L + e).
    """
    k, count = w.allowed.shape[1], len(c.first)
    member = np.argsort(c.cluster, kind="stable")[np.count_nonzero(c.cluster == NOWHERE) :]
    m = ClusterMapping(
        cluster=c.cluster, place=w.place.copy(), at=np.full(count, NOWHERE, dtype=np.int64),
        tree=np.zeros((s.levels + 1, k), dtype=np.int64), member=member,
        start=offsets(np.bincount(c.cluster[member], minlength=count)), allowed=np.ones((count, k), dtype=np.bool_),
        load=np.zeros((count, k), dtype=np.int64),
    )  # fmt: skip
    _totals(w, s.level, m, k)
    primaries = np.flatnonzero(np.diff(m.start[: k + 1]))
    for j in primaries.tolist():
        _put(w, s.level, m, j, j)
    rest = k + np.flatnonzero(np.diff(m.start[k:]))
    _merge(w, s.level, m, rest, potentials(w, c, s))
    rest = rest[m.at[rest] == NOWHERE]
    weight = np.zeros(count, dtype=np.int64)
    mine = c.cluster != NOWHERE
    np.add.at(weight, c.cluster[mine], w.took[mine])
    rest = rest[np.argsort(-weight[rest], kind="stable")]
    if level_aware:
        _lalb(w, s, m, rest)
    elif len(rest):
        busy = np.where(m.place[:, None] == np.arange(k), w.ticks, 0).sum(axis=0)
        there = glb(m.load[rest], m.allowed[rest], busy=busy, order=np.arange(len(rest)))
        _put_all(w, s.level, m, rest, there)
    return m


@kernel
def _totals(w: WeightedGraph, level: Ints, m: ClusterMapping, k: int) -> None:
    for c in range(len(m.at)):
        for node in m.member[m.start[c] : m.start[c + 1]]:
            for place in range(k):
                m.allowed[c, place] &= w.allowed[node, place]
                m.load[c, place] += w.ticks[node, place]
    for node in range(len(m.place)):
        if 0 <= m.place[node] < k:
            add(m.tree, level[node], m.place[node], w.ticks[node, m.place[node]])


@subkernel
def add(tree: Ints, level: int, place: int, ticks: int) -> None:
    """Add ticks at a level of a place. O(log L)."""
    at = level + 1
    while at < len(tree):
        tree[at, place] += ticks
        at += at & -at


@subkernel
def work(tree: Ints, low: int, high: int, found: Ints) -> None:
    """[k] ticks of each place at the levels from `low` to before `high`, into `found`. O(k log L)."""
    found[:] = 0
    while high > 0:
        for place in range(len(found)):
            found[place] += tree[high, place]
        high &= high - 1
    while low > 0:
        for place in range(len(found)):
            found[place] -= tree[low, place]
        low &= low - 1


@subkernel
def talk(w: WeightedGraph, m: ClusterMapping, c: int, found: Ints) -> int:
    """[k] communication of a cluster with what is mapped to each place, into `found`; return that with all else."""
    found[:] = 0
    total = 0
    for node in m.member[m.start[c] : m.start[c + 1]]:
        for k in range(w.out[node], w.out[node + 1]):
            if m.cluster[w.head[k]] != c:
                total += w.out_cost[k]
                if 0 <= m.place[w.head[k]] < len(found):
                    found[m.place[w.head[k]]] += w.out_cost[k]
        for k in range(w.into[node], w.into[node + 1]):
            if m.cluster[w.tail[k]] != c:
                total += w.in_cost[k]
                if 0 <= m.place[w.tail[k]] < len(found):
                    found[m.place[w.tail[k]]] += w.in_cost[k]
    return total


@kernel
def _put(w: WeightedGraph, level: Ints, m: ClusterMapping, c: int, place: int) -> None:
    m.at[c] = place
    for node in m.member[m.start[c] : m.start[c + 1]]:
        m.place[node] = place
        add(m.tree, level[node], place, w.ticks[node, place])


@routine
def _put_all(w: WeightedGraph, level: Ints, m: ClusterMapping, clusters: Ints, place: Ints) -> None:
    for at in range(len(clusters)):
        _put(w, level, m, clusters[at], place[at])


@routine
def _merge(w: WeightedGraph, level: Ints, m: ClusterMapping, rest: Ints, potential: Ints) -> None:
    """Lines 1-7: each cluster of more communication than potential to the primary that it talks to most."""
    comm = np.zeros(w.allowed.shape[1], dtype=np.int64)
    for c in rest:
        if talk(w, m, c, comm) <= potential[c]:
            continue
        best = int(np.int64(-1))
        for place in range(len(comm)):
            if m.allowed[c, place] and comm[place] > 0 and (best < 0 or comm[place] > comm[best]):
                best = place
        if best >= 0:
            _put(w, level, m, c, best)


@routine
def _lalb(w: WeightedGraph, s: ClusterSpans, m: ClusterMapping, rest: Ints) -> None:
    """Lines 8-15, by equation (4.2): least work within the span and communication with other places."""
    k = w.allowed.shape[1]
    comm, busy = np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64)
    for c in rest:
        talk(w, m, c, comm)
        work(m.tree, s.low[c], s.high[c], busy)
        best, least = int(np.int64(-1)), 0
        for place in range(k):
            if not m.allowed[c, place]:
                continue
            cost = busy[place] + m.load[c, place] - comm[place]
            if best < 0 or cost < least or (cost == least and comm[place] > comm[best]):
                best, least = place, cost
        _put(w, s.level, m, c, best)


PARTNERS, TRIES = 32, 1_000_000
"""Clusters at other places that one is tried with, however many there are; and all clusters together, at least."""
_LOOKED = 4
"""Clusters within the span that are looked at for each of these."""


def refined(w: WeightedGraph, s: ClusterSpans, m: ClusterMapping) -> Ints:
    """Return [n] places after both policies; changes `m`. O(n log n + PARTNERS (n k + e + n log L) + k (n + e))."""
    k = w.allowed.shape[1]
    secondary = k + np.flatnonzero(np.diff(m.start[k:]))
    swap(w, s, m, secondary[np.argsort(s.first[secondary], kind="stable")], limits(len(secondary)))
    alone = np.bincount(w.unit)[w.unit] == 1
    return switched(w, m.place, alone)


def limits(clusters: int) -> tuple[int, int]:
    """Partners that a cluster is tried with, and clusters that are looked at for them."""
    partners = max(PARTNERS, TRIES // max(clusters, 1))
    return partners, _LOOKED * partners


@routine
def swap(w: WeightedGraph, s: ClusterSpans, m: ClusterMapping, order: Ints, most_of: tuple[int, int]) -> int:
    """Swap secondaries, visited in `order`, within `most_of` (see `limits`); return how many pairs were."""
    partners, looked = most_of
    k = w.allowed.shape[1]
    comm, busy = np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64)
    done, at_place, allowed = np.zeros(len(m.at), dtype=np.bool_), m.at, m.allowed
    swaps = 0
    for at in range(len(order)):
        one = order[at]
        if done[one]:
            continue
        best, most, tried = int(np.int64(-1)), 0, 0
        for two in order[at + 1 : at + 1 + looked]:
            if s.first[two] >= s.end[one] or tried == partners:
                break
            here, there = at_place[one], at_place[two]
            if done[two] or here == there or not (allowed[one, there] and allowed[two, here]):
                continue
            if tried == 0:
                talk(w, m, one, comm)
                work(m.tree, s.low[one], s.high[one], busy)
            tried += 1
            gain = _gain(w, s, m, (one, two), (comm, busy))
            if gain > most:
                best, most = two, gain
        if best >= 0:
            here, there = m.at[one], m.at[best]
            _move(w, s.level, m, one, there)
            _move(w, s.level, m, best, here)
            done[best] = True
            swaps += 1
    return swaps


@subkernel
def _gain(w: WeightedGraph, s: ClusterSpans, m: ClusterMapping, pair: tuple[int, int], known: tuple[Ints, Ints]) -> int:
    """Return the gain of a swap: saved communication and saved work within the first one's span; 0 if either grows.

    known: [k] communication of the first cluster with each place, and [k] the work there within its span.
    """
    one, two = pair
    comm, busy = known
    here, there = m.at[one], m.at[two]
    # What the second cluster talks with the first one's place but for that, with its own place, and with the first.
    near, far, mutual = 0, 0, 0
    for node in m.member[m.start[two] : m.start[two + 1]]:
        for side in range(2):
            ends = w.out if side == 0 else w.into
            for k in range(ends[node], ends[node + 1]):
                to, cost = (w.head[k], w.out_cost[k]) if side == 0 else (w.tail[k], w.in_cost[k])
                if m.cluster[to] == one:
                    mutual += cost
                elif m.place[to] == here:
                    near += cost
                elif m.place[to] == there and m.cluster[to] != two:
                    far += cost
    talked = comm[there] - mutual + near - comm[here] - far
    if talked < 0:
        return 0
    gone, came = _within(w, s, m, (one, one), here), _within(w, s, m, (one, one), there)
    returned, left = _within(w, s, m, (one, two), here), _within(w, s, m, (one, two), there)
    worked = max(busy[here], busy[there]) - max(busy[here] - gone + returned, busy[there] - left + came)
    return 0 if worked < 0 else talked + worked


@subkernel
def _within(w: WeightedGraph, s: ClusterSpans, m: ClusterMapping, of: tuple[int, int], place: int) -> int:
    """Ticks at a place that `of` = (one, another cluster) has within one's span: those of the other's nodes."""
    one, c = of
    ticks = 0
    for node in m.member[m.start[c] : m.start[c + 1]]:
        if s.low[one] <= s.level[node] < s.high[one]:
            ticks += w.ticks[node, place]
    return ticks


@subkernel
def _move(w: WeightedGraph, level: Ints, m: ClusterMapping, c: int, place: int) -> None:
    for node in m.member[m.start[c] : m.start[c + 1]]:
        add(m.tree, level[node], m.at[c], -w.ticks[node, m.at[c]])
        add(m.tree, level[node], place, w.ticks[node, place])
        m.place[node] = place
    m.at[c] = place


@routine
def switched(w: WeightedGraph, place: Ints, alone: Bools) -> Ints:
    """Return [n] places after at most k rounds; `alone`: [n] whether a node is all of its unit. O(k (n + e))."""
    rounds, least = w.allowed.shape[1], -1
    place, before = place.copy(), place
    for done in range(rounds + 1):
        top, bottom = placed_levels(w, place)
        longest = int(np.int64(0))
        for node in range(len(top)):
            longest = max(longest, top[node] + bottom[node])
        if least >= 0 and longest > least:
            return before
        least, before = longest, place.copy()
        if done == rounds or not _round(w, place, alone, (top, bottom), longest):
            break
    return place


@spliced
def placed_levels(w: WeightedGraph, place: Ints) -> tuple[Ints, Ints]:
    """Return [n] top and bottom levels when what is at one place talks for nothing."""
    n = len(place)
    top, bottom = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for node in range(n):
        top[node] = _before(w, place, top, node, place[node])
    for node in range(n - 1, -1, -1):
        bottom[node] = _ticks(w, node, place[node]) + _after(w, place, bottom, node, place[node])
    return top, bottom


@spliced
def _round(w: WeightedGraph, place: Ints, alone: Bools, level: tuple[Ints, Ints], longest: int) -> bool:
    # The nodes of a critical path.
    top, bottom = level
    path = np.empty(len(place), dtype=np.int64)
    count, node = 0, 0
    while top[node] > 0 or bottom[node] < longest:
        node += 1
    while node >= 0:
        path[count] = node
        count += 1
        left, following = bottom[node] - _ticks(w, node, place[node]), -1
        for k in range(w.out[node], w.out[node + 1]):
            child = w.head[k]
            if following < 0 and _cost(w.out_cost[k], place[node], place[child]) + bottom[child] == left:
                following = child
        node = following
    changed = False
    for at in range(count - 1):
        a, b = path[at], path[at + 1]
        if place[a] == place[b]:
            continue
        best, shortest = int(np.int64(-1)), longest
        for node, other in ((a, b), (b, a)):
            to = place[other]
            if alone[node] and to < w.allowed.shape[1] and w.allowed[node, to]:
                through = _before(w, place, top, node, to) + _ticks(w, node, to) + _after(w, place, bottom, node, to)
                if through < shortest:
                    best, shortest = node, through
        if best >= 0:
            to = place[b] if best == a else place[a]
            top[best] = _before(w, place, top, best, to)
            bottom[best] = _ticks(w, best, to) + _after(w, place, bottom, best, to)
            place[best] = to
            changed = True
    return changed


@inlined
def _ticks(w: WeightedGraph, node: int, at: int) -> int:
    return w.ticks[node, at] if at < w.ticks.shape[1] else w.took[node]


@inlined
def _cost(cost: int, here: int, there: int) -> int:
    return 0 if here == there else cost


@subkernel
def _before(w: WeightedGraph, place: Ints, top: Ints, node: int, at: int) -> int:
    """The longest path to a node at a place."""
    longest = 0
    for k in range(w.into[node], w.into[node + 1]):
        parent = w.tail[k]
        way = top[parent] + _ticks(w, parent, place[parent]) + _cost(w.in_cost[k], place[parent], at)
        longest = max(longest, way)
    return longest


@subkernel
def _after(w: WeightedGraph, place: Ints, bottom: Ints, node: int, at: int) -> int:
    """The longest path from a node at a place, without itself."""
    longest = 0
    for k in range(w.out[node], w.out[node + 1]):
        longest = max(longest, _cost(w.out_cost[k], place[w.head[k]], at) + bottom[w.head[k]])
    return longest


def place(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return the whole of step 1. O(k (n + e) + n k log n)."""
    return _placed(problem, refine=True, level_aware=True)


def place_unrefined(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Slicing and mapping alone (section 6.4.1)."""
    return _placed(problem, refine=False, level_aware=True)


def place_balanced(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return the whole, with Guided Load Balancing in the place of LALB (figure 4.2 (e))."""
    return _placed(problem, refine=True, level_aware=False)


def place_emulated(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return the whole of step 1, in the order that the framework's scheduler is emulated to give (section 4.1.2)."""
    device = _placed(problem, refine=True, level_aware=True).device
    made = emulate(problem, device)
    position = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    return Placement(device=device, rank=rank_of(np.lexsort((position, made.finish, made.start))))


def _placed(problem: Problem, *, refine: bool, level_aware: bool) -> Placement:
    w, chosen = weights_of(problem)
    place = partitioned(w, refine=refine, level_aware=level_aware)
    location = np.empty(problem.tasks, dtype=np.int64)
    location[w.task] = np.append(chosen, np.arange(problem.locations))[place]
    return Placement(device=devices_at(problem, location))


def partitioned(w: WeightedGraph, *, refine: bool, level_aware: bool) -> Ints:
    """Return [n] place of each node, in one of the three ways."""
    none = np.zeros(len(w.task), dtype=np.bool_)
    top, bottom = levels(w, none)
    clusters = sliced(w, top + bottom)
    spans = spans_of(w, clusters, top)
    m: ClusterMapping = mapped(w, clusters, spans, level_aware=level_aware)
    return refined(w, spans, m) if refine else m.place
