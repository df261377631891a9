"""Shared parts of the literature's list schedulers: mean costs, levels, readiness, arrivals, and the partial schedule.

Their model of communication: a payload takes its transfer's ticks between two locations and none within one, and
links are never busy. A payload is sent once to a location, where every consumer finds it; without contention it is
there at the same time whoever asks first, so nothing is kept of what was sent.

Processors are the devices. What the sources do not have is kept all the same: the task of a unit that is placed first
decides the location of the whole unit, and a task is offered only to devices that can run it.

A source of the graph (a variable) is taken just before the first of its readers and offered to the devices as if it
were that reader (`solvers.heuristics.eft_pass`); it then runs as early as it can there. The tasks with one guide
are a *chain*: its sources and then the guide itself, ready one after the other once all its other inputs are placed.
"""

import math
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, ints, offsets, rank_of
from solvers.compiled.dag import adjacency, tails, topological_order
from solvers.compiled.kernels import inlined, subkernel
from solvers.heuristics.eft_pass import guided
from solvers.heuristics.methods import Placement
from solvers.problem import MOST, Problem
from solvers.structure.units import placeable_units
from solvers.timing.replay import prepare


class ListTables(NamedTuple):
    """Tables that a list scheduler reads."""

    enters: Ints
    """[n + 1] where the edges that enter each task start in `tail` and `carried`."""
    tail: Ints
    carried: Ints
    leaves: Ints
    """[n + 1] where the edges that leave each task start in `head`."""
    head: Ints
    duration: Ints
    location: Ints
    transfer: Ints
    path_class: Ints
    unit: Ints
    """[n] unit of each task."""
    allowed: Bools
    """[u, l] whether a unit can be at a location."""
    order: Ints
    """[n] tasks by priority, a topological order in which each chain is in one piece."""
    place: Ints
    """[n] place of each task in `order`."""
    guide: Ints
    """[n] the task in whose stead each is offered to the devices: itself for most."""
    first: Ints
    """[n] place at which the chain of each guide starts; -1 for tasks that are none."""


class PartialSchedule(NamedTuple):
    """A schedule of the tasks that are placed so far, and work arrays."""

    device: Ints
    """[n] device of each task, -1 while it is not placed."""
    start: Ints
    finish: Ints
    before: Ints
    """[n + 1] how many tasks were placed before each, and at the end the number of those that are placed."""
    at: Ints
    """[u] location of each unit, -1 while none of its tasks is placed."""
    waiting: Ints
    """[n] edges that enter the chain of each guide from tasks that are not placed."""
    ready: Ints
    """[l] work array: the arrivals that `arrivals` found."""
    freed: Ints
    """[n] work array: the tasks that `release` found."""


def tables_of(problem: Problem, order: Ints) -> ListTables:
    """Return the tables of a problem. order: [n] tasks by priority, a topological order. O(e log e + n log n).

    ValueError when some unit can be at no location.
    """
    units, g = placeable_units(problem), prepare(problem)
    enters, edge = adjacency(problem.tasks, problem.dst)
    ordered, guide = guided(g, units.unit, order)
    first = np.full(problem.tasks, -1, dtype=np.int64)
    first[guide[ordered[::-1]]] = np.arange(problem.tasks)[::-1]
    return ListTables(
        enters=enters, tail=problem.src[edge], carried=problem.payload[edge], leaves=g.offset, head=g.head,
        duration=problem.duration, location=problem.location, transfer=problem.transfer, path_class=problem.path_class,
        unit=units.unit, allowed=units.allowed, order=ordered, place=rank_of(ordered), guide=guide, first=first,
    )  # fmt: skip


def begin(t: ListTables) -> PartialSchedule:
    """Return the schedule of no task."""
    n, reader = len(t.order), t.guide[t.head]
    apart = reader != np.repeat(t.guide, np.diff(t.leaves))
    return PartialSchedule(
        device=np.full(n, -1, dtype=np.int64), start=np.zeros(n, dtype=np.int64), finish=np.zeros(n, dtype=np.int64),
        before=np.zeros(n + 1, dtype=np.int64), at=np.full(len(t.allowed), -1, dtype=np.int64),
        waiting=np.bincount(reader[apart], minlength=n).astype(np.int64),
        ready=np.empty(t.allowed.shape[1], dtype=np.int64), freed=np.empty(n, dtype=np.int64),
    )  # fmt: skip


def placement_of(s: PartialSchedule) -> Placement:
    """Return the devices, and the tasks by start. O(n log n).

    Of two tasks that start at once on one device the first takes no ticks, and so ends first; what else is tied is in
    the order in which it was placed, which is a topological one.
    """
    return Placement(device=s.device, rank=rank_of(np.lexsort((s.before[:-1], s.finish, s.start))))


@subkernel
def sources(t: ListTables, s: PartialSchedule) -> int:
    """Put the tasks that are ready in the schedule of no task into `s.freed`; return how many."""
    count = 0
    for task in range(len(t.order)):
        if t.first[task] >= 0 and s.waiting[task] == 0:
            s.freed[count] = t.order[t.first[task]]
            count += 1
    return count


@subkernel
def release(t: ListTables, s: PartialSchedule, task: int) -> int:
    """Put the tasks that are ready now that `task` is placed into `s.freed`; return how many."""
    guides, heads, waiting, freed, first, order = t.guide, t.head, s.waiting, s.freed, t.first, t.order
    count, guide, after = 0, guides[task], t.place[task] + 1
    if after < len(order) and guides[order[after]] == guide:
        freed[0] = order[after]
        count = 1
    for k in range(t.leaves[task], t.leaves[task + 1]):
        reader = guides[heads[k]]
        if reader == guide:
            continue
        waiting[reader] -= 1
        if waiting[reader] == 0:
            freed[count] = order[first[reader]]
            count += 1
    return count


@subkernel
def arrivals(t: ListTables, s: PartialSchedule, task: int) -> None:
    """Put into `s.ready` when what a task reads can be at each location; what is not placed does not count."""
    # Arrays are taken out of their tuples before a loop: in compiled code each look into a tuple counts a reference.
    ready, device, ends, location, transfer, path_class = (
        s.ready, s.device, s.finish, t.location, t.transfer, t.path_class
    )  # fmt: skip
    tails, payloads = t.tail, t.carried
    ready[:] = 0
    for k in range(t.enters[task], t.enters[task + 1]):
        tail, payload = tails[k], payloads[k]
        if device[tail] < 0:
            continue
        here, finish = location[device[tail]], ends[tail]
        for there in range(len(ready)):
            ticks = transfer[payload, path_class[here, there]] if payload >= 0 and here != there else 0
            ready[there] = max(ready[there], finish + ticks)


@inlined
def runs_on(t: ListTables, s: PartialSchedule, task: int, d: int) -> bool:
    """Return True if a device can run a task and is where the task's unit is, or can be."""
    unit, there = t.unit[task], t.location[d]
    if t.duration[task, d] < 0:
        return False
    return s.at[unit] == there if s.at[unit] >= 0 else t.allowed[unit, there]


@inlined
def is_gone(device: Ints, at: Ints, unit: int, task: int, here: int) -> bool:
    """Return True if a task that was offered to a device at `here` has been placed, or its unit elsewhere."""
    return device[task] >= 0 or (at[unit] >= 0 and at[unit] != here)


@subkernel
def append(t: ListTables, s: PartialSchedule, free: Ints, choice: tuple[int, int]) -> int:
    """Run a task after all that its device runs, `choice` = (task, device); return what `release` does.

    free: [m] when each device has finished what it was given.
    """
    task, d = choice
    arrivals(t, s, task)
    settle(t, s, task, (d, max(s.ready[t.location[d]], free[d])))
    free[d] = s.finish[task]
    return release(t, s, task)


@inlined
def settle(t: ListTables, s: PartialSchedule, task: int, slot: tuple[int, int]) -> None:
    """Place a task; `slot` = (device, start)."""
    d, start = slot
    s.device[task], s.start[task], s.finish[task] = d, start, start + t.duration[task, d]
    s.at[t.unit[task]] = t.location[d]
    s.before[task] = s.before[-1]
    s.before[-1] += 1


class MeanCostGraph(NamedTuple):
    """The tasks in topological order, from here on called by their places in it, with mean costs."""

    order: Ints
    """[n] the task at each place."""
    took: Ints
    """[n] mean ticks of the task at each place."""
    offset: Ints
    """[n + 1] where the edges that leave each place start in `head` and `ticks`."""
    head: Ints
    """[e] places of the successors, rising for each tail."""
    ticks: Ints
    """[e] mean ticks of each edge's payload."""
    entry: Ints
    """[n + 1] where the edges that enter each place start in `tail` and `cost`."""
    tail: Ints
    """[e] places of the predecessors."""
    cost: Ints
    """[e] mean ticks of each edge's payload, in the order of `tail`."""


def edge_ticks(problem: Problem, sent: Ints) -> Ints:
    """Return [e] ticks of each edge when its payload takes `sent`, [p]; 0 where it carries none."""
    ticks = np.zeros(problem.edges, dtype=np.int64)
    carries = problem.payload >= 0
    ticks[carries] = sent[problem.payload[carries]]
    return ints(ticks)


def dag_of(problem: Problem, took: Ints, ticks: Ints) -> MeanCostGraph:
    """Return the graph with the costs of its tasks, [n], and edges, [e]. O(n + e log e)."""
    order = topological_order(problem.tasks, problem.src, problem.dst)
    place = rank_of(order)
    by = np.lexsort((place[problem.dst], place[problem.src]))
    tail, head, ticks = place[problem.src[by]], place[problem.dst[by]], ticks[by]
    offset = offsets(np.bincount(tail, minlength=problem.tasks))
    entry, entering = adjacency(problem.tasks, head)
    return MeanCostGraph(order, took[order], offset, head, ticks, entry, tail[entering], ticks[entering])


class PathWeights(NamedTuple):
    """Weights of tasks and edges on a path."""

    took: Ints
    """[n] what each task counts."""
    carried: Ints
    """[e] what each edge counts."""
    scale: int
    """Units of `took` and `carried` in a tick."""


def mean_weights(problem: Problem) -> PathWeights:
    """Mean ticks of a task over the devices that can run it, and of a payload over the pairs of different locations.

    Means are fractions, and a list scheduler asks whether two levels are equal: the unit is that part of a tick in
    which all of them are whole. Where 64 bits cannot hold paths of such, it is the tick, and means are rounded.
    O(n m + p c + e).
    """
    count = np.count_nonzero(problem.allowed, axis=1)
    off = problem.path_class[~np.eye(problem.locations, dtype=bool)]
    pairs = max(len(off), 1)
    share = np.bincount(off, minlength=problem.transfer.shape[1])
    scale = math.lcm(pairs, *np.unique(count).tolist())
    longest = sum(float(x.max(axis=1, initial=0).sum(dtype=np.float64)) for x in (problem.duration, problem.transfer))
    duration = np.where(problem.allowed, problem.duration, 0)
    if longest * scale * (problem.devices + pairs) < MOST:
        took = duration.sum(axis=1) * (scale // np.maximum(count, 1))
        sent = (problem.transfer @ share) * (scale // pairs)
    else:
        scale = 1
        took = np.rint(duration.sum(axis=1, dtype=np.float64) / count).astype(np.int64)
        sent = np.rint(problem.transfer @ (share / pairs)).astype(np.int64)
    carried = np.zeros(problem.edges, dtype=np.int64)
    carries = problem.payload >= 0
    carried[carries] = sent[problem.payload[carries]]
    return PathWeights(took, carried, scale)


def upward(problem: Problem, weights: PathWeights) -> Ints:
    """Return [n] weight of the heaviest path from each task, itself included, to the end. O(n + e log e).

    The upward rank of Topcuoglu, Hariri and Wu 2002; without transfers the static level of Sih and Lee 1993.
    """
    order = topological_order(problem.tasks, problem.src, problem.dst)
    offset, edge = adjacency(problem.tasks, problem.src)
    return tails(order, weights.took, (offset, problem.dst[edge], weights.carried[edge]))


def downward(problem: Problem, weights: PathWeights) -> Ints:
    """Return [n] weight of the heaviest path from the start to each task, itself not included. O(n + e log e).

    The downward rank of Topcuoglu, Hariri and Wu 2002.
    """
    order = topological_order(problem.tasks, problem.src, problem.dst)
    offset, edge = adjacency(problem.tasks, problem.dst)
    arrived = (offset, problem.src[edge], weights.carried[edge])
    return tails(order[::-1].copy(), weights.took, arrived) - weights.took


def by_level(problem: Problem, level: Ints) -> Ints:
    """Return [n] tasks by falling level, ties in topological order.

    level: [n], never less than that of a successor. A topological order then.
    """
    place = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    return np.lexsort((place, -level))
