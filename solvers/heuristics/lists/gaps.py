"""Idle intervals of devices, searched by time and length in logarithmic time: the insertion of HEFT and CPOP.

The intervals of one device are a treap (Seidel and Aragon 1996): a search tree by begin, a heap by random priority,
in which every node knows the longest interval below it. Taking ticks out of an interval leaves two; a remainder shorter
than any task of the device is left out, and one of no length is kept where tasks of no ticks could use it.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.compiled.kernels import inlined, routine, subroutine
from solvers.problem import Problem

ENDLESS = np.iinfo(np.int64).max
"""The end, and the length, of the last interval of a device."""
_NONE = -1
_BEGIN, _END, _LONGEST, _LEFT, _RIGHT, _PARENT, _PRIORITY = range(7)


class Gaps(NamedTuple):
    """The trees of all devices over one pool of nodes; a device's number is its last interval, the endless one."""

    nodes: Ints
    """[n + m, 8] begin and end of each interval, the longest length in its subtree, the nodes to the left and right and
    above, and a priority. One that stands for no interval any more ends before it begins."""
    root: Ints
    """[m] node at the root of each device's tree."""
    least: Ints
    """[m] ticks of the shortest task of each device."""
    used: Ints
    """[1] number of nodes in use."""


def gaps_of(problem: Problem) -> Gaps:
    """All devices idle for ever. Priorities are drawn from a fixed seed: they decide the speed and no answer."""
    m, count = problem.devices, problem.tasks + problem.devices
    # A row is one line of a cache, and one array is quicker to hand over than many.
    nodes = np.full((count, 8), _NONE, dtype=np.int64)
    nodes[:, [_BEGIN, _END, _LONGEST]] = 0, ENDLESS, ENDLESS
    nodes[:, _PRIORITY] = np.random.default_rng(0).integers(0, 2**62, count)
    return Gaps(
        nodes=nodes,
        root=np.arange(m, dtype=np.int64),
        least=np.where(problem.allowed, problem.duration, ENDLESS).min(axis=0, initial=ENDLESS),
        used=np.array([m]),
    )


@inlined
def idle_from(nodes: Ints, d: int) -> int:
    """When a device is idle for ever."""
    return nodes[d, _BEGIN]


@routine
def find(nodes: Ints, root: int, ready: int, ticks: int) -> tuple[int, int]:
    """The first interval of a tree that holds `ticks` from `ready` on, and the start in it. O(log n) expected."""
    under, turn, node = _NONE, _NONE, root
    while node != _NONE:
        if nodes[node, _BEGIN] <= ready:
            under, node = node, nodes[node, _RIGHT]
            continue
        # Here begins a later interval: it, or one between it and where the path turned left before, may do.
        if _length(nodes, node) >= ticks or _below(nodes, nodes[node, _RIGHT]) >= ticks:
            turn = node
        node = nodes[node, _LEFT]
    if under != _NONE and nodes[under, _END] - ticks >= ready:
        return under, ready
    if _length(nodes, turn) < ticks:
        turn = _leftmost(nodes, nodes[turn, _RIGHT], ticks)
    return turn, nodes[turn, _BEGIN]


@routine
def take(g: Gaps, d: int, gap: int, slot: tuple[int, int]) -> None:
    """Use an interval that `find` gave for a device; `slot` = (start, ticks). O(log n) expected."""
    nodes, (start, ticks) = g.nodes, slot
    finish, begin, end = start + ticks, nodes[gap, _BEGIN], nodes[gap, _END]
    if ticks == 0 and start in (begin, end):
        return
    before = start - begin >= g.least[d]
    after = end == ENDLESS or end - finish >= g.least[d]
    if before and after:
        node = g.used[0]
        g.used[0] += 1
        nodes[node, _BEGIN], nodes[node, _END], nodes[gap, _BEGIN] = begin, start, finish
        _correct(nodes, gap)
        _insert(nodes, g.root, d, (node, gap))
        return
    if before:
        nodes[gap, _END] = start
    elif after:
        nodes[gap, _BEGIN] = finish
    else:
        nodes[gap, _END] = begin - 1
    _correct(nodes, gap)


@inlined
def _length(nodes: Ints, node: int) -> int:
    return ENDLESS if nodes[node, _END] == ENDLESS else nodes[node, _END] - nodes[node, _BEGIN]


@inlined
def _below(nodes: Ints, node: int) -> int:
    return -1 if node == _NONE else nodes[node, _LONGEST]


@inlined
def _leftmost(nodes: Ints, node: int, ticks: int) -> int:
    """The first interval in a subtree that is long enough; there is one."""
    while True:
        if _below(nodes, nodes[node, _LEFT]) >= ticks:
            node = nodes[node, _LEFT]
        elif _length(nodes, node) >= ticks:
            return node
        else:
            node = nodes[node, _RIGHT]


@inlined
def _longest(nodes: Ints, node: int) -> int:
    return max(_length(nodes, node), _below(nodes, nodes[node, _LEFT]), _below(nodes, nodes[node, _RIGHT]))


@subroutine
def _correct(nodes: Ints, node: int) -> None:
    """Bring the longest lengths up to date from a node whose interval or subtree changed."""
    while node != _NONE:
        found = _longest(nodes, node)
        if found == nodes[node, _LONGEST]:
            return
        nodes[node, _LONGEST] = found
        node = nodes[node, _PARENT]


@subroutine
def _insert(nodes: Ints, root: Ints, d: int, places: tuple[int, int]) -> None:
    """Hang a node into the tree just before another, `places`, and turn it up to where its priority belongs."""
    node, gap = places
    above = nodes[gap, _LEFT]
    if above == _NONE:
        above = gap
        nodes[gap, _LEFT] = node
    else:
        while nodes[above, _RIGHT] != _NONE:
            above = nodes[above, _RIGHT]
        nodes[above, _RIGHT] = node
    nodes[node, _PARENT] = above
    nodes[node, _LONGEST] = _length(nodes, node)
    while above != _NONE and nodes[node, _PRIORITY] > nodes[above, _PRIORITY]:
        _turn(nodes, node)
        above = nodes[node, _PARENT]
    if above == _NONE:
        root[d] = node
    _correct(nodes, above)


@subroutine
def _turn(nodes: Ints, node: int) -> None:
    """Exchange a node with its parent: a rotation."""
    above = nodes[node, _PARENT]
    top = nodes[above, _PARENT]
    side, other = (_LEFT, _RIGHT) if nodes[above, _LEFT] == node else (_RIGHT, _LEFT)
    moved = nodes[node, other]
    nodes[above, side], nodes[node, other] = moved, above
    if moved != _NONE:
        nodes[moved, _PARENT] = above
    nodes[above, _PARENT], nodes[node, _PARENT] = node, top
    if top != _NONE:
        nodes[top, _LEFT if nodes[top, _LEFT] == above else _RIGHT] = node
    nodes[above, _LONGEST] = _longest(nodes, above)
    nodes[node, _LONGEST] = _longest(nodes, node)
