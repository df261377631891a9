"""Variables of degree 2 or less eliminated by min-sum, which is exact: on a chain this is the dynamic program.

A variable's costs and those of its edges become a cost of its neighbours' labels (bucket elimination, Dechter 1999). A
variable with one label is left out whatever its degree. Trees and series-parallel graphs are solved by this alone.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, offsets
from solvers.compiled.kernels import routine, subroutine
from solvers.labels.factor_graph import NEVER, FactorGraph, runs

_SPREAD = 0x9E3779B1
"""Spreads pairs of variables over the slots of the hash table."""


class EliminationState(NamedTuple):
    """A net from which variables are taken, with edges added at the end; edges join a lower with a higher variable."""

    first: Ints
    """[n + 1] where each variable's labels begin."""
    cost: Ints
    """[labels] what each costs with what was eliminated below it."""
    a: Ints
    """[edges there can be] the lower variable."""
    b: Ints
    """[edges there can be] the higher variable."""
    begin: Ints
    """[edges there can be] where each edge's table begins."""
    killer: Ints
    """[edges there can be] the variable with which the edge was eliminated, -1 for none."""
    head: Ints
    """[n] a variable's last edge, as 2 * edge + end; -1 for none."""
    link: Ints
    """[2 * edges there can be] the one before in the list of the same variable."""
    slot: Ints
    """Hash table of edges by their variables; -1 for none."""
    degree: Ints
    """[n] edges that each variable has left."""
    order: Ints
    """[n] variables as they are eliminated."""
    size: Ints
    """[5] edges so far, costs in the pool, variables in the order, those eliminated, and the constant cost."""


class Elimination(NamedTuple):
    """The reduced problem after elimination, and the tables that recover the eliminated variables."""

    work: EliminationState
    pool: Ints
    """Tables of all edges that there were."""
    constant: int
    """Cost of what was eliminated altogether, NEVER where nothing is allowed."""
    kept: Ints
    """[r] variables that are left."""
    rest: FactorGraph
    """Them, and their edges."""

    def complete(self, labels: Ints) -> Ints:
        """Return [n] the best labels of all variables for [r] labels of those left."""
        result = np.zeros(len(self.work.head), dtype=np.int64)
        result[self.kept] = labels
        _complete(self.work, self.pool, result)
        return result


def eliminate(net: FactorGraph, cap: int) -> Elimination:
    """Take out all that can be; sums beyond `cap` count as forbidden, and `cap` is below NEVER / 2."""
    variables, edges = len(net.first) - 1, len(net.a)
    room = edges + variables
    slots = 1 << max(4, (2 * room).bit_length())
    work = EliminationState(
        net.first, net.cost.copy(), np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64),
        np.empty(room, dtype=np.int64), np.full(room, -1),
        np.full(variables, -1), np.empty(2 * room, dtype=np.int64), np.full(slots, -1),
        np.zeros(variables, dtype=np.int64), np.empty(variables, dtype=np.int64), np.zeros(5, dtype=np.int64),
    )  # fmt: skip
    pool = _eliminate(work, net, np.empty(2 * len(net.table) + 64, dtype=np.int64), cap)
    gone = np.zeros(variables, dtype=np.bool_)
    gone[work.order[: work.size[3]]] = True
    kept = np.flatnonzero(~gone)
    left = np.flatnonzero(work.killer[: work.size[0]] < 0)
    number = np.full(len(work.head), -1)
    number[kept] = np.arange(len(kept))
    labels = np.diff(work.first)
    label, first = runs(work.first, kept)
    begin = offsets(labels[work.a[left]] * labels[work.b[left]])
    pair = np.repeat(work.begin[left] - begin[:-1], np.diff(begin)) + np.arange(begin[-1])
    rest = FactorGraph(first, work.cost[label], number[work.a[left]], number[work.b[left]], begin, pool[pair])
    return Elimination(work, pool, int(work.size[4]), kept, rest)


@routine
def _eliminate(work: EliminationState, net: FactorGraph, pool: Ints, cap: int) -> Ints:
    for e in range(len(net.a)):
        a, b = net.a[e], net.b[e]
        result = net.table[net.begin[e] : net.begin[e + 1]]
        if a > b:
            rows, columns = net.first[a + 1] - net.first[a], net.first[b + 1] - net.first[b]
            result = result.reshape(rows, columns).T.copy().reshape(-1)
        pool = _join(work, pool, min(a, b), max(a, b), result, cap)
    waits = np.zeros(len(work.head), dtype=np.bool_)
    for v in range(len(work.head)):
        _ready(work, v, waits)
    while work.size[3] < work.size[2]:
        v = work.order[work.size[3]]
        if work.degree[v] == 2 and work.first[v + 1] - work.first[v] > 1:
            pool = _pair(work, pool, v, waits, cap)
        elif work.degree[v] == 0:
            least = NEVER
            for at in range(work.first[v], work.first[v + 1]):
                least = min(least, work.cost[at])
            work.size[4] = min(NEVER, work.size[4] + least)
        else:
            _each(work, pool, v, waits, cap)
        work.size[3] += 1
    return pool


@subroutine
def _ready(work: EliminationState, v: int, waits: Bools) -> None:
    if not waits[v] and (work.degree[v] <= 2 or work.first[v + 1] - work.first[v] == 1):
        waits[v] = True
        work.order[work.size[2]] = v
        work.size[2] += 1


@subroutine
def _sum(one: int, other: int, cap: int) -> int:
    total = one + other
    return total if total <= cap else NEVER


@subroutine
def _join(work: EliminationState, pool: Ints, a: int, b: int, found: Ints, cap: int) -> Ints:
    """Add a table between two variables: to the edge that they have, or as a new one."""
    mask = len(work.slot) - 1
    at = ((a * len(work.head) + b) * _SPREAD >> 7) & mask
    while work.slot[at] >= 0 and (work.a[work.slot[at]] != a or work.b[work.slot[at]] != b):
        at = (at + 1) & mask
    e = work.slot[at]
    if e >= 0 and work.killer[e] < 0:
        for k in range(len(found)):
            pool[work.begin[e] + k] = _sum(pool[work.begin[e] + k], found[k], cap)
        return pool
    e, used = work.size[0], work.size[1]
    work.slot[at] = e
    work.a[e], work.b[e], work.begin[e] = a, b, used
    work.size[0], work.size[1] = e + 1, used + len(found)
    if used + len(found) > len(pool):
        larger = np.empty(2 * (used + len(found)), dtype=np.int64)
        larger[:used] = pool[:used]
        pool = larger
    pool[used : used + len(found)] = found
    for end, v in ((0, a), (1, b)):
        work.link[2 * e + end] = work.head[v]
        work.head[v] = 2 * e + end
        work.degree[v] += 1
    return pool


@subroutine
def _strides(work: EliminationState, e: int, v: int) -> tuple[int, int, int]:
    """Return the variable at the other end, and how far apart labels of v and of the other lie in the table."""
    a, b = work.a[e], work.b[e]
    columns = work.first[b + 1] - work.first[b]
    if a == v:
        return b, columns, 1
    return a, 1, columns


@subroutine
def _each(work: EliminationState, pool: Ints, v: int, waits: Bools, cap: int) -> None:
    """Into each neighbour's costs: for a single edge, or a single label, whose own cost goes into the first."""
    mine = work.first[v]
    own = True
    at = work.head[v]
    while at >= 0:
        e = at >> 1
        at = work.link[at]
        if work.killer[e] >= 0:
            continue
        other, step, stride = _strides(work, e, v)
        for i in range(work.first[other + 1] - work.first[other]):
            least = NEVER
            for j in range(work.first[v + 1] - mine):
                cost = work.cost[mine + j] if own else 0
                least = min(least, _sum(cost, pool[work.begin[e] + j * step + i * stride], cap))
            work.cost[work.first[other] + i] = _sum(work.cost[work.first[other] + i], least, cap)
        own = False
        work.killer[e] = v
        work.degree[other] -= 1
        _ready(work, other, waits)


@subroutine
def _pair(work: EliminationState, pool: Ints, v: int, waits: Bools, cap: int) -> Ints:
    """Into a table between its two neighbours."""
    edges = np.empty(2, dtype=np.int64)
    many, at = 0, work.head[v]
    while many < 2:
        if work.killer[at >> 1] < 0:
            edges[many] = at >> 1
            many += 1
        at = work.link[at]
    if work.a[edges[0]] + work.b[edges[0]] > work.a[edges[1]] + work.b[edges[1]]:
        edges[0], edges[1] = edges[1], edges[0]
    a, step, stride = _strides(work, edges[0], v)
    b, other_step, other_stride = _strides(work, edges[1], v)
    rows, columns = work.first[a + 1] - work.first[a], work.first[b + 1] - work.first[b]
    result = np.full(rows * columns, NEVER)
    for k in range(work.first[v + 1] - work.first[v]):
        left, right = work.begin[edges[0]] + k * step, work.begin[edges[1]] + k * other_step
        for i in range(rows):
            own = _sum(work.cost[work.first[v] + k], pool[left + i * stride], cap)
            for j in range(columns):
                cost = _sum(own, pool[right + j * other_stride], cap)
                result[i * columns + j] = min(result[i * columns + j], cost)
    for e in edges:
        work.killer[e] = v
    work.degree[a] -= 1
    work.degree[b] -= 1
    pool = _join(work, pool, a, b, result, cap)
    _ready(work, a, waits)
    _ready(work, b, waits)
    return pool


@routine
def _complete(work: EliminationState, pool: Ints, labels: Ints) -> None:
    for k in range(work.size[3] - 1, -1, -1):
        v = work.order[k]
        cost = work.cost[work.first[v] : work.first[v + 1]].copy()
        at = work.head[v]
        while at >= 0:
            e = at >> 1
            at = work.link[at]
            if work.killer[e] == v:
                other, step, stride = _strides(work, e, v)
                for j in range(len(cost)):
                    pair = pool[work.begin[e] + j * step + labels[other] * stride]
                    cost[j] = min(NEVER, cost[j] + pair)
        labels[v] = np.argmin(cost)
