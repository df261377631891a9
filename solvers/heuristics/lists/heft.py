"""HEFT and CPOP (Topcuoglu, Hariri, Wu 2002), which may use idle intervals of devices.

HEFT, heterogeneous earliest finish time. Tasks by falling upward rank, each to the processor where it finishes first
when it may use any idle interval that is long enough, even one before tasks that are placed already. Ties of rank,
which the source breaks at random, are in topological order; ties of finish go to the device of the lower index. Beyond
the source: groups, device kinds, shared payloads and sources of the graph as `solvers.heuristics.lists.list_schedule`
says; mean costs are over the devices that can run a task, and over all pairs of different locations. Memory plays no
part.

CPOP, critical path on a processor. The priority of a task is its upward plus its downward rank. From the entry task of
highest priority, successors of the same priority make the critical path, and the processor that runs all of it in the
least time is the critical path's. Of the tasks that are ready, the one of highest priority comes next: on that
processor if it is of the critical path, else where it finishes first; both with insertion as in HEFT.

Ties of priority go by upward rank, and then by topological order; of several successors of the path's priority the
first that is given is followed. The critical path's device is the one that can run most of the path, and
all that in the least time; a task of the path that cannot be there goes where it finishes first. A source has its
guide's priority.

The intervals of one device are a treap (Seidel and Aragon 1996): a search tree by begin, a heap by random priority,
in which every node knows the longest interval below it. Taking ticks out of an interval leaves two; a remainder shorter
than any task of the device is left out, and one of no length is kept where tasks of no ticks could use it.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.dag import adjacency
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import inlined, routine, subroutine
from solvers.heuristics.lists.list_schedule import (
    ListTables,
    PartialSchedule,
    arrivals,
    begin,
    by_level,
    downward,
    mean_weights,
    placement_of,
    release,
    runs_on,
    settle,
    sources,
    tables_of,
    upward,
)  # fmt: skip
from solvers.heuristics.methods import Placement
from solvers.problem import Problem
from solvers.result import Options

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
    """Return all devices idle for ever. Priorities are drawn from a fixed seed: they decide the speed and no answer."""
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
        # The first interval to the right that is long enough; there is one.
        turn = nodes[turn, _RIGHT]
        while True:
            if _below(nodes, nodes[turn, _LEFT]) >= ticks:
                turn = nodes[turn, _LEFT]
            elif _length(nodes, turn) >= ticks:
                break
            else:
                turn = nodes[turn, _RIGHT]
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
def _longest(nodes: Ints, node: int) -> int:
    return max(_length(nodes, node), _below(nodes, nodes[node, _LEFT]), _below(nodes, nodes[node, _RIGHT]))


@subroutine
def _correct(nodes: Ints, node: int) -> None:
    """Bring the longest lengths up to date from a node whose interval or subtree changed."""
    while node != _NONE:
        longest = _longest(nodes, node)
        if longest == nodes[node, _LONGEST]:
            return
        nodes[node, _LONGEST] = longest
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
        # A rotation exchanges the node with its parent.
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
        above = top
    if above == _NONE:
        root[d] = node
    _correct(nodes, above)


def place_by_heft(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return the schedule's devices and starts. O(e l + n m log n)."""
    rank = upward(problem, mean_weights(problem))
    tables = tables_of(problem, by_level(problem, rank))
    growing = begin(tables)
    _run_heft(tables, growing, gaps_of(problem))
    return placement_of(growing)


@routine
def _run_heft(t: ListTables, s: PartialSchedule, g: Gaps) -> None:
    for task in t.order:
        arrivals(t, s, t.guide[task])
        insert(t, s, g, (task, soonest(t, s, g, task)))


@inlined
def soonest(t: ListTables, s: PartialSchedule, g: Gaps, task: int) -> int:
    """Return the device where a task finishes first when its inputs are there as `s.ready` says; -1 for none."""
    duration, location, arrival = t.duration, t.location, s.ready
    allowed, home = t.allowed[t.unit[task]], s.at[t.unit[task]]
    nodes, root, best, least = g.nodes, g.root, -1, 0
    for d in range(len(location)):
        here, ticks = location[d], duration[task, d]
        if ticks < 0 or not allowed[here] or (home >= 0 and home != here):
            continue
        start = arrival[here]
        if best >= 0 and start + ticks >= least:
            continue
        if start < nodes[d, _BEGIN]:  # before the device is idle for ever
            _, start = find(nodes, root[d], start, ticks)
        if best < 0 or start + ticks < least:
            best, least = d, start + ticks
    return best


@inlined
def insert(t: ListTables, s: PartialSchedule, g: Gaps, choice: tuple[int, int]) -> None:
    """Place a task into the first idle interval that holds it; `choice` = (task, device)."""
    task, d = choice
    if t.guide[task] != task:
        # It was offered in another's stead; its own inputs say when it can start.
        arrivals(t, s, task)
    ticks = t.duration[task, d]
    gap, start = find(g.nodes, g.root[d], s.ready[t.location[d]], ticks)
    take(g, d, gap, (start, ticks))
    settle(t, s, task, (d, start))


def place_by_cpop(problem: Problem, options: Options) -> Placement:  # noqa: ARG001
    """Return the schedule's devices and starts. O(e l + n m log n)."""
    weights = mean_weights(problem)
    rank = upward(problem, weights)
    priority = rank + downward(problem, weights)
    tables = tables_of(problem, by_level(problem, rank))
    growing = begin(tables)
    if problem.tasks:
        path = critical_path(problem, priority)
        _run_cpop(tables, growing, gaps_of(problem), (priority, path, path_device(problem, path)))
    return placement_of(growing)


def critical_path(problem: Problem, priority: Ints) -> Bools:
    """Return [n] whether a task is on the critical path, which starts at the entry task of highest priority; n > 0."""
    on_path = np.zeros(problem.tasks, dtype=np.bool_)
    entries = np.flatnonzero(np.bincount(problem.dst, minlength=problem.tasks) == 0)
    offset, edge = adjacency(problem.tasks, problem.src)
    _follow(int(entries[priority[entries].argmax()]), priority, (offset, problem.dst[edge]), on_path)
    return on_path


def path_device(problem: Problem, path: Bools) -> int:
    """The device that runs most tasks of a path, and these in the least time. path: [n], whether a task is on it."""
    allowed = problem.allowed[path]
    ticks = np.where(allowed, problem.duration[path], 0).sum(axis=0)
    return int(np.lexsort((ticks, -np.count_nonzero(allowed, axis=0)))[0])


@routine
def _follow(entry: int, priority: Ints, edges: tuple[Ints, Ints], on_path: Bools) -> None:
    offset, head = edges
    task = entry
    while task >= 0:
        on_path[task] = True
        following = -1
        for k in range(offset[task], offset[task + 1]):
            if priority[head[k]] == priority[entry]:
                following = head[k]
                break
        task = following


@routine
def _run_cpop(t: ListTables, s: PartialSchedule, g: Gaps, path: tuple[Ints, Bools, int]) -> None:
    """Place every task; `path` = (priorities, tasks of the critical path, its device)."""
    priority, on_path, home = path
    key, item = np.empty(len(t.order), dtype=np.int64), np.empty(len(t.order), dtype=np.int64)
    size, freed = 0, sources(t, s)
    while size + freed > 0:
        for k in range(freed):
            task = s.freed[k]
            size = push(key, item, size, (-priority[t.guide[task]], t.place[task]))
        task = t.order[item[0]]
        size = drop(key, item, size)
        arrivals(t, s, t.guide[task])
        d = home if on_path[task] and runs_on(t, s, task, home) else soonest(t, s, g, task)
        insert(t, s, g, (task, d))
        freed = release(t, s, task)
