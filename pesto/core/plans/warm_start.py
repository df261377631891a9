"""An old plan carried over to a changed cluster or a changed graph: a placement and an order to start a solve from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.problem import lanes
from solvers import Problem
from solvers.arrays import Bools, Floats, Ints, ints, rank_of
from solvers.compiled.dag import adjacency, topological_order
from solvers.compiled.heap import drop, push
from solvers.compiled.kernels import routine
from solvers.heuristics.devices_of_location import devices_at
from solvers.structure.units import Units, fastest_at, merged, placeable_units
from solvers.timing.replay import bottom_levels, prepare, replay

_SLACK = 1.1
"""Times the mean load: what a location may get before nothing more is drawn to it."""
LOST = -2
"""Where a device went whose kind the cluster has no more of; -1 is a device that is gone while others remain."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CarriedPlan:
    """A device and a place in the order for every op."""

    device: Ints
    """[n] device of each op."""
    rank: Ints
    """[n] place of each op in an order that precedence allows."""
    rule: str
    """One line on what was kept."""


def carry_over(old: Plan, graph: Graph, problem: Problem, cluster: Cluster) -> CarriedPlan:
    """Fit the old plan's placement and order to `graph` on `cluster`, whose full-graph problem is `problem`.

    Ops are known again by their names. A device goes on as the one of its name, else as the next of its kind that has
    no predecessor; devices that are new stay empty, unless all of a kind are gone. What has no place then (new ops,
    those of devices that are gone) is streamed, whole groups at a time and in topological order, to the locations in
    use: each to where most of its transfers end, less so the fuller that is (linear deterministic greedy: Stanton and
    Kliot 2012). Where devices are gone, all of such a device to one other is a second way. Of these, each in three
    orders (the old one with new ops behind what they need, the same served as ops become ready, bottom level), the
    shortest step is returned. It may exceed the memory, as any placement may.

    Raise UsageError when the plan knows none of the graph's ops. O(n (l + log n) + e).
    """
    number = {name: k for k, name in enumerate(old.names)}
    known = np.array([number.get(name, -1) for name in graph.names], dtype=np.int64)
    kept = int(np.count_nonzero(known >= 0))
    if not kept:
        raise UsageError.build(
            f"the plan to start from is for {shown(old.provenance.graph_source)}; {graph.source} has none of its ops",
            remedy="start from a plan of this model, or from none",
        )
    topological = topological_order(problem.tasks, problem.src, problem.dst)
    offset, edge = adjacency(problem.tasks, problem.src)
    key = _fill_ranks(topological, offset, problem.dst[edge], np.where(known >= 0, old.rank[known], -1))
    wish = rank_of(np.lexsort((rank_of(topological), key)))
    waiting = np.bincount(problem.dst, minlength=problem.tasks).astype(np.int64)
    order = rank_of(_sort_by_priority(offset, problem.dst[edge], waiting, wish))
    prepared = prepare(problem)
    # [n] the old location of each op, -1 for a new op; [old locations] what each is now, -1 or LOST.
    before = list(dict.fromkeys(old.lane_device))
    home = device_successors(before, [(device.name, device.kind) for device in cluster.devices])
    lane = np.array([before.index(name) for name in old.lane_device], dtype=np.int64)
    at = np.where(known >= 0, lane[old.schedule.device[known]], -1)
    # [n] the old processor of each op, where the cluster has it: a host's cores keep their ops.
    now = {name: k for k, (name, _) in enumerate(lanes(cluster))}
    same = np.array([now.get(name, -1) for name in old.lanes], dtype=np.int64)
    own = np.where(known >= 0, same[old.schedule.device[known]], -1)
    candidates: list[tuple[int, int, CarriedPlan]] = []
    for how, location in _placements(problem, order, at, np.array(home, dtype=np.int64)):
        stays = (own >= 0) & (problem.location[own] == location) & problem.allowed[np.arange(problem.tasks), own]
        device = ints(np.where(stays, own, devices_at(problem, location)))
        # The order itself, and two of list scheduling, all along the precedence.
        ranks = [("in its order", order)]
        urgent = rank_of(np.lexsort((order, -bottom_levels(problem, device=device))))
        for rule, priority in (("ready ops in its order", order), ("ready ops by bottom level", urgent)):
            run = replay(problem, device, priority, strict=False, prepared=prepared)
            ranks.append((rule, rank_of(np.lexsort((order, run.finish, run.start)))))
        for rule, rank in ranks:
            makespan = replay(problem, device, rank, prepared=prepared).makespan
            text = f"carried over from {shown(old.provenance.cluster)}, {kept} of {graph.ops} ops known{how}, {rule}"
            candidates.append((makespan, len(candidates), CarriedPlan(device=device, rank=rank, rule=text)))
    return min(candidates, key=lambda candidate: candidate[:2])[2]


def device_successors(before: Sequence[str], after: Sequence[tuple[str, str]]) -> list[int]:
    """Return the successor of each older device, by names: an index into `after`, (name, kind) of the devices now.

    It is the one of its name, else the next of its kind that has no predecessor; -1 where there is none, LOST where
    there is no device of its kind at all.
    """
    now = {name: at for at, (name, _) in enumerate(after)}
    home = [now.get(name, -1) for name in before]
    kinds = {kind for _, kind in after}
    free = [at for at in range(len(after)) if at not in home]
    for k, name in enumerate(before):
        same = [at for at in free if after[at][1] == name.partition(":")[0]]
        if home[k] < 0 and same:
            home[k] = same[0]
            free.remove(same[0])
    return [LOST if name.partition(":")[0] not in kinds else at for name, at in zip(before, home, strict=True)]


def _placements(problem: Problem, order: Ints, at: Ints, home: Ints) -> Iterator[tuple[str, Ints]]:
    """(how, [n] location of each op): every unit at its old location's successor, the rest by one of two rules."""
    units = placeable_units(problem)
    # [u] the old location of most of a unit's time, -1 for a unit of new ops alone.
    olds = len(home)
    member = np.flatnonzero(at >= 0)
    votes = np.zeros((len(units.memory), olds))
    took = np.where(problem.allowed, problem.duration, np.iinfo(np.int64).max).min(axis=1)
    np.add.at(votes, (units.unit[member], at[member]), took[member] + 1.0)
    voted = np.where(votes.any(axis=1), votes.argmax(axis=1), -1)
    wish = np.where(voted >= 0, home[voted], -1)
    fixed = np.where((wish >= 0) & units.allowed[np.arange(len(wish)), np.maximum(wish, 0)], wish, -1)
    first = np.full(len(wish), problem.tasks)
    np.minimum.at(first, units.unit, order)
    narrow = _narrow_choices(units, fixed, wish == LOST)
    yield "", _place_greedily(problem, narrow, fixed, np.argsort(first, kind="stable"))[units.unit]
    gone = (voted >= 0) & (wish == -1)
    if not gone.any():
        return
    label = np.where(gone, len(wish) + voted, np.arange(len(wish)))
    whole, (names, example) = merged(problem, label[units.unit]), np.unique(label, return_index=True)
    if whole.allowed.any(axis=1).all():
        start = np.where(names < len(wish), fixed[example], -1)
        pieces_first = np.lexsort((first[example], names < len(wish)))
        narrow = _narrow_choices(whole, start, wish[example] == LOST)
        yield ", devices that are gone moved whole", _place_greedily(problem, narrow, start, pieces_first)[whole.unit]


def _narrow_choices(units: Units, fixed: Ints, lost: Bools) -> Units:
    """The units with no location but those in use, where such a unit has one and is not of a kind that is lost."""
    in_use: Bools = units.allowed & np.isin(np.arange(units.allowed.shape[1]), fixed)
    stays = in_use.any(axis=1) & ~lost
    return replace(units, allowed=np.where(stays[:, None], in_use, units.allowed))


class _GreedyInput(NamedTuple):
    """Input of the greedy rule: units, their neighbours as compressed rows, and the locations."""

    offset: Ints
    neighbour: Ints
    weight: Floats
    choice: Bools
    """[u, l] where a unit may go."""
    took: Ints
    """[u, l] ticks of a unit."""
    memory: Ints
    capacity: Ints


def _place_greedily(problem: Problem, units: Units, fixed: Ints, sequence: Ints) -> Ints:
    """[u] a location for every unit: `fixed`, or where that is -1 by the greedy rule, one after the other."""
    took = np.zeros(units.allowed.shape, dtype=np.int64)
    np.add.at(took, units.unit, np.maximum(fastest_at(problem), 0))
    tail, head = units.unit[problem.src], units.unit[problem.dst]
    ticks = problem.transfer.sum(axis=1)[problem.payload] if problem.payloads else np.zeros(problem.edges)
    weight = 1.0 + np.where(problem.payload >= 0, ticks, 0)
    apart = np.flatnonzero(tail != head)
    tail, head = np.concatenate([tail[apart], head[apart]]), np.concatenate([head[apart], tail[apart]])
    offset, edge = adjacency(len(fixed), tail)
    graph = _GreedyInput(
        offset, head[edge], np.tile(weight[apart], 2)[edge], units.allowed, took, units.memory, problem.capacity
    )
    # Ticks from which on nothing is drawn to a location: a little more than the mean, or than what is there.
    free = np.count_nonzero(units.allowed, axis=1) > 1
    reached: Bools = np.logical_or.reduce(units.allowed[free], axis=0)
    places, cap = int(np.count_nonzero(reached)), 1.0
    if places:
        here = np.flatnonzero(fixed >= 0)
        load = np.bincount(fixed[here], weights=took[here, fixed[here]], minlength=units.allowed.shape[1])
        mean = float(np.where(units.allowed[free], took[free], 0).max(axis=1).sum()) / places
        cap = _SLACK * max(1.0, mean, float(load[reached].max()))
    return _greedy(graph, fixed, sequence[fixed[sequence] < 0], cap)


@routine
def _greedy(graph: _GreedyInput, fixed: Ints, sequence: Ints, most: float) -> Ints:
    at = fixed.copy()
    places = graph.choice.shape[1]
    load, held = np.zeros(places), np.zeros(places, dtype=np.int64)
    for unit in range(len(at)):
        if at[unit] >= 0:
            load[at[unit]] += graph.took[unit, at[unit]]
            held[at[unit]] += graph.memory[unit]
    drawn = np.zeros(places)
    for unit in sequence:
        drawn[:] = 0
        for k in range(graph.offset[unit], graph.offset[unit + 1]):
            if at[graph.neighbour[k]] >= 0:
                drawn[at[graph.neighbour[k]]] += graph.weight[k]
        best, best_key = -1, (False, 0.0, 0.0)
        for place in range(places):
            if graph.choice[unit, place]:
                fits = held[place] + graph.memory[unit] <= graph.capacity[place]
                key = (fits, drawn[place] * max(0.0, 1 - load[place] / most), -load[place])
                if best < 0 or key > best_key:
                    best, best_key = place, key
        at[unit] = best
        load[best] += graph.took[unit, best]
        held[best] += graph.memory[unit]
    return at


@routine
def _fill_ranks(order: Ints, offset: Ints, head: Ints, rank: Ints) -> Ints:
    """Ranks for new ops: the largest of what feeds an op, else the least of what it feeds, else 0."""
    key = rank.copy()
    for op in order:
        for k in range(offset[op], offset[op + 1]):
            if rank[head[k]] < 0:
                key[head[k]] = max(key[head[k]], key[op])
    for op in order[::-1]:
        if key[op] < 0:
            for k in range(offset[op], offset[op + 1]):
                if key[head[k]] >= 0 and (key[op] < 0 or key[head[k]] < key[op]):
                    key[op] = key[head[k]]
    return np.maximum(key, 0)


@routine
def _sort_by_priority(offset: Ints, head: Ints, waiting: Ints, wish: Ints) -> Ints:
    """[n] ops in topological order; of those that may come next, the one of least wish. O((n + e) log n)."""
    key, item = np.empty(len(wish), dtype=np.int64), np.empty(len(wish), dtype=np.int64)
    order, size = np.empty(len(wish), dtype=np.int64), 0
    for op in range(len(wish)):
        if waiting[op] == 0:
            size = push(key, item, size, (wish[op], op))
    for at in range(len(wish)):
        op = item[0]
        size = drop(key, item, size)
        order[at] = op
        for k in range(offset[op], offset[op + 1]):
            waiting[head[k]] -= 1
            if waiting[head[k]] == 0:
                size = push(key, item, size, (wish[head[k]], head[k]))
    return order
