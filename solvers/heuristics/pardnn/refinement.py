"""Refinement: the two policies of ParDNN (Qararyah et al. 2020, section 4.1.1). What the text leaves open:

Swapping. Clusters are visited by the top level of their first node. The partners of one are those whose first node
is no earlier and starts within its span, at another place. Better means that one of two sums becomes less and neither
becomes more: the communication between places, and the greater work that either place has within the visited one's
span. The one that saves most of both is taken, of all partners in graphs of some hundred clusters, of the first
`PARTNERS` or more in larger ones, as the search would be quadratic (`limits`). A cluster is swapped once at most.

Switching. In each of at most k rounds, every edge of the critical path that joins two places is looked at, from the
source on: whichever of its two nodes makes the longest path through it shortest when it goes to the other's place is
switched, if that is shorter than the critical path. Within a round only the levels of the switched node are updated,
so what a round did is taken back when the critical path is longer after it. A node whose unit has others stays.
"""

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.kernels import inlined, routine, spliced, subkernel
from solvers.heuristics.pardnn.mapping import ClusterMapping, add, talk, work
from solvers.heuristics.pardnn.spans import ClusterSpans
from solvers.heuristics.pardnn.weights import WeightedGraph

PARTNERS, TRIES = 32, 1_000_000
"""Clusters at other places that one is tried with, however many there are; and all clusters together, at least."""
_LOOKED = 4
"""Clusters within the span that are looked at for each of these."""


def refined(w: WeightedGraph, s: ClusterSpans, m: ClusterMapping) -> Ints:
    """[n] places after both policies; changes `m`. O(n log n + PARTNERS (n k + e + n log L) + k (n + e))."""
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
    done = np.zeros(len(m.at), dtype=np.bool_)
    swaps = 0
    for at in range(len(order)):
        one = order[at]
        if done[one]:
            continue
        best, most, tried = int(np.int64(-1)), 0, 0
        for two in order[at + 1 : at + 1 + looked]:
            if s.first[two] >= s.end[one] or tried == partners:
                break
            if done[two] or not _may(m, one, two):
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


@inlined
def _may(m: ClusterMapping, one: int, two: int) -> bool:
    """Return True if two clusters are at different places and each may be at the other's."""
    here, there = m.at[one], m.at[two]
    return here != there and m.allowed[one, there] and m.allowed[two, here]


@subkernel
def _gain(w: WeightedGraph, s: ClusterSpans, m: ClusterMapping, pair: tuple[int, int], known: tuple[Ints, Ints]) -> int:
    """Return the gain of a swap: saved communication and saved work within the first one's span; 0 if either grows.

    known: [k] communication of the first cluster with each place, and [k] the work there within its span.
    """
    one, two = pair
    comm, busy = known
    here, there = m.at[one], m.at[two]
    near, far, mutual = _toward(w, m, two, (one, here))
    talked = comm[there] - mutual + near - comm[here] - far
    if talked < 0:
        return 0
    gone, came = _within(w, s, m, (one, one), here), _within(w, s, m, (one, one), there)
    returned, left = _within(w, s, m, (one, two), here), _within(w, s, m, (one, two), there)
    worked = max(busy[here], busy[there]) - max(busy[here] - gone + returned, busy[there] - left + came)
    return 0 if worked < 0 else talked + worked


@spliced
def _toward(w: WeightedGraph, m: ClusterMapping, c: int, other: tuple[int, int]) -> tuple[int, int, int]:
    """Communication of a cluster with the place of another, but for that; with its own place; and with the other.

    other: a cluster and its place.
    """
    near, far, mutual = 0, 0, 0
    for node in m.member[m.start[c] : m.start[c + 1]]:
        for side in range(2):
            ends = w.out if side == 0 else w.into
            for k in range(ends[node], ends[node + 1]):
                to, cost = (w.head[k], w.out_cost[k]) if side == 0 else (w.tail[k], w.in_cost[k])
                if m.cluster[to] == other[0]:
                    mutual += cost
                elif m.place[to] == other[1]:
                    near += cost
                elif m.place[to] == m.at[c] and m.cluster[to] != c:
                    far += cost
    return near, far, mutual


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
    """[n] places after at most k rounds; `alone`: [n] whether a node is all of its unit. O(k (n + e))."""
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
    """[n] top and bottom levels when what is at one place talks for nothing."""
    n = len(place)
    top, bottom = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for node in range(n):
        top[node] = _before(w, place, top, node, place[node])
    for node in range(n - 1, -1, -1):
        bottom[node] = _ticks(w, node, place[node]) + _after(w, place, bottom, node, place[node])
    return top, bottom


@spliced
def _round(w: WeightedGraph, place: Ints, alone: Bools, level: tuple[Ints, Ints], longest: int) -> bool:
    """One round over the critical path; whether anything was switched."""
    path = _critical(w, place, level, longest)
    changed = False
    for at in range(len(path) - 1):
        a, b = path[at], path[at + 1]
        if place[a] == place[b]:
            continue
        best, shortest = int(np.int64(-1)), longest
        for node, other in ((a, b), (b, a)):
            to = place[other]
            if alone[node] and to < w.allowed.shape[1] and w.allowed[node, to]:
                through = _through(w, place, level, node, to)
                if through < shortest:
                    best, shortest = node, through
        if best >= 0:
            to = place[b] if best == a else place[a]
            level[0][best] = _before(w, place, level[0], best, to)
            level[1][best] = _ticks(w, best, to) + _after(w, place, level[1], best, to)
            place[best] = to
            changed = True
    return changed


@spliced
def _critical(w: WeightedGraph, place: Ints, level: tuple[Ints, Ints], longest: int) -> Ints:
    """The nodes of a critical path."""
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
    return path[:count]


@subkernel
def _through(w: WeightedGraph, place: Ints, level: tuple[Ints, Ints], node: int, to: int) -> int:
    """The longest path through a node if it were at another place."""
    return _before(w, place, level[0], node, to) + _ticks(w, node, to) + _after(w, place, level[1], node, to)


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
