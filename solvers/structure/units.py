"""Units: the sets of tasks that must share a location, groups or single tasks, where each can be, and their bytes.

All packings of units into locations are looked at one by one; bytes shared out evenly are capacities. Heads and tails
say how early a task can start and how late it must finish at each location, whatever the rest does.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from solvers.arrays import Bools, Ints, bools, ints
from solvers.compiled.dag import adjacency, topological_order
from solvers.compiled.kernels import kernel, routine, spliced
from solvers.problem import FORBIDDEN, Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Units:
    """A partition of the n tasks into u units."""

    unit: Ints
    """[n] unit of each task."""
    allowed: Bools
    """[u, l] whether each of a unit's tasks has a device at a location that can run it; all False is a proof that no
    schedule exists."""
    memory: Ints
    """[u] bytes of a unit."""


def units_of(problem: Problem) -> Units:
    """Return the units that the groups imply, groups first (by number), then single tasks (by index). O(n (m + l))."""
    alone = problem.group < 0
    label = np.where(alone, np.arange(problem.tasks) + int(problem.group.max(initial=-1)) + 1, problem.group)
    return merged(problem, label)


def placeable_units(problem: Problem) -> Units:
    """Return the same for methods that place every unit; raise ValueError when one can be nowhere."""
    units = units_of(problem)
    nowhere = np.flatnonzero(~units.allowed.any(axis=1))
    if len(nowhere):
        task = np.flatnonzero(units.unit == nowhere[0])[0]
        raise ValueError(f"no location can run task {task} and all of its group")
    return units


def merged(problem: Problem, label: Ints) -> Units:
    """Return the units that a label for each task, [n], implies; numbered by increasing label."""
    _, unit = np.unique(label, return_inverse=True)
    order = np.argsort(unit, kind="stable")
    first = np.flatnonzero(np.diff(unit[order], prepend=-1))
    allowed, memory = locations_of(problem), problem.memory
    if problem.tasks:
        allowed = np.logical_and.reduceat(allowed[order], first, axis=0)
        memory = np.add.reduceat(memory[order], first)
    return Units(unit=ints(unit), allowed=bools(allowed), memory=ints(memory))


def distinct(rows: Bools) -> tuple[Ints, Ints]:
    """Return an example of each distinct row, [d], and the number among these of every row, [n].

    Rows are named by sums of random numbers; two sets might share a name, though none ever will.
    O(n (columns + log n)).
    """
    name = rows @ np.random.default_rng(0).integers(1, 2**40, rows.shape[1])
    _, example, which = np.unique(name, return_index=True, return_inverse=True)
    return ints(example), ints(which)


def locations_of(problem: Problem) -> Bools:
    """Return [n, l] whether a task can run at a location, groups aside."""
    found = np.zeros((problem.tasks, problem.locations), dtype=np.bool_)
    for device, location in enumerate(problem.location.tolist()):
        found[:, location] |= problem.allowed[:, device]
    return found


def fastest_at(problem: Problem) -> Ints:
    """Return [n, l] least ticks of a task over the devices of a location, FORBIDDEN where none can run it."""
    none = np.iinfo(np.int64).max
    found = least_at(problem, np.ones(problem.devices, dtype=np.int64), none)
    return np.where(found == none, FORBIDDEN, found)


def least_at(problem: Problem, weight: Ints, none: int) -> Ints:
    """Return [n, l] least weighted ticks of a task over the devices of a location, `none` where none can run it.

    weight: [m], by which the ticks on each device are multiplied.
    """
    found = np.full((problem.tasks, problem.locations), none, dtype=np.int64)
    _least_at(problem.duration, problem.location, weight, found)
    return found


@kernel
def _least_at(duration: Ints, location: Ints, weight: Ints, found: Ints) -> None:
    for task in range(len(duration)):
        for device in range(len(location)):
            ticks = duration[task, device]
            if ticks >= 0:
                there = location[device]
                found[task, there] = min(found[task, there], ticks * weight[device])


_UNITS = 2000
"""Greatest number of units of which packings are looked at."""
_NODES = 300_000
"""Greatest number of partial packings that are looked at."""


def every_packing(units: Units, capacity: Ints) -> tuple[Ints | None, int]:
    """Return locations, [u], that hold every unit, -1 for those without bytes; and the partial packings that fail.

    (None, k): none of the k partial packings can be completed, so no packing exists. (None, -1): the units or their
    partial packings are too many to tell. capacity: [l] bytes.
    """
    order = np.argsort(-units.memory, kind="stable")
    order = order[units.memory[order] > 0]
    if len(order) > _UNITS:
        return None, -1
    memory, allowed = units.memory[order], units.allowed[order]
    _, alike = np.unique(allowed, axis=1, return_inverse=True)
    choice = np.full(len(order) + 1, -1, dtype=np.int64)
    room = np.minimum(capacity, memory.sum())
    nodes = _packings(memory, allowed, room, alike.ravel().astype(np.int64), choice)
    if (choice[:-1] < 0).any():
        return None, nodes
    at = np.full(len(units.memory), -1, dtype=np.int64)
    at[order] = choice[:-1]
    return at, -1


@routine
def _packings(memory: Ints, allowed: Bools, room: Ints, alike: Ints, choice: Ints) -> int:
    """Put the first packing into `choice`; else return the number of partial ones, -1 when they are too many.

    The first packing in lexicographic order is not lost: of equal units the earlier is at the lower location, and of
    locations alike, with equal room, a unit is at the first (else swap the two).
    """
    units, nodes, at = len(memory), 0, int(np.int64(0))
    rest = np.zeros(units + 1, dtype=np.int64)
    for unit in range(units - 1, -1, -1):
        rest[unit] = rest[unit + 1] + memory[unit]
    while 0 <= at < units:
        if choice[at] >= 0:
            room[choice[at]] += memory[at]
        choice[at] = _next(memory, allowed, room, alike, (at, choice))
        if choice[at] < 0:
            at -= 1
            continue
        nodes += 1
        room[choice[at]] -= memory[at]
        if at == units - 1 or nodes > _NODES:
            return -1
        # A location with less room than the smallest unit is full.
        if np.sum(room[room >= memory[units - 1]]) >= rest[at + 1]:
            at += 1
            choice[at] = -1
    return nodes


@spliced
def _next(memory: Ints, allowed: Bools, room: Ints, alike: Ints, where: tuple[int, Ints]) -> int:
    """Return the next location for a unit, -1 for none."""
    at, choice = where
    first = choice[at] + 1
    if at > 0 and memory[at] == memory[at - 1] and np.all(allowed[at] == allowed[at - 1]):
        first = max(first, choice[at - 1])
    for place in range(first, len(room)):
        if allowed[at, place] and room[place] >= memory[at]:
            twin = False
            for other in range(place):
                twin = twin or (alike[other] == alike[place] and room[other] == room[place])
            if not twin:
                return place
    return -1


def balanced(problem: Problem, share: float) -> Problem:
    """Return the problem where no location holds more than 1 + `share` times the mean of those that share its tasks.

    The balance row (8) of Pesto's integer program (Middleware '21, section 3.2.2). Locations share tasks where some
    task with bytes may be at either. What they hold in all, with what can be at one of them alone, is divided by their
    number; on two GPUs the bytes then differ by at most `share` of all. The rows are capacities, no larger than those
    that there are: every solver keeps them, and the checker holds it to them. Raise ValueError for a share that is
    negative or no number.
    """
    if not 0 <= share < np.inf:
        raise ValueError(f"a balance is a share, 0 or more, not {share}")
    capacity = problem.capacity.copy()
    able, root = locations_of(problem), np.arange(problem.locations)
    for row in np.unique(able[problem.memory > 0], axis=0):
        joined = np.isin(root, root[row])
        root[joined] = root[row].min(initial=problem.locations)
    sets = [np.flatnonzero(root == place) for place in np.unique(root)]
    for places in (places for places in sets if len(places) > 1):
        inside = ~able[:, ~np.isin(np.arange(problem.locations), places)].any(axis=1)
        total = sum(problem.memory[inside].tolist())
        most = int(total * (1 + Fraction(str(share))) / len(places))
        capacity[places] = np.minimum(capacity[places], most)
    return problem.holding(capacity=capacity)


NEVER = 2**61
"""The head, tail or ticks of a task at a location where it cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocationPaths:
    """Per task and location, NEVER where the task's unit cannot be; all ticks are lower bounds in every schedule."""

    units: Units
    head: Ints
    """[n, l] earliest start of a task at a location."""
    took: Ints
    """[n, l] ticks of a task on the fastest device there."""
    tail: Ints
    """[n, l] least ticks from the finish of a task there to the end of the schedule."""


def paths_of(problem: Problem, units: Units | None = None, floors: tuple[Ints, Ints] | None = None) -> LocationPaths:
    """Return longest paths over (task, location): each predecessor sits where it delays the task least.

    A payload's transfer counts between two locations, and tasks of one unit share theirs. Contention counts nowhere.
    `units`: what is known beyond the groups of who shares a location, and where it can be. `floors`: heads and tails
    [n] that are known to hold wherever a task is. Raise ValueError when a unit can be nowhere. O(n m + e l^2).
    """
    units = units_of(problem) if units is None else units
    nowhere = np.flatnonzero(~units.allowed.any(axis=1))
    if len(nowhere):
        raise ValueError(f"task {np.argmax(units.unit == nowhere[0])} and its group have no location in common")
    took = fastest_at(problem)
    took[~units.allowed[units.unit]] = NEVER
    order = topological_order(problem.tasks, problem.src, problem.dst)
    start = [np.where(took == NEVER, NEVER, 0 if floors is None else floors[k][:, None]) for k in range(2)]
    forward = _edges_at(problem, problem.dst, problem.src)
    head = _sweep(order, forward, (took, units.unit), (problem.transfer, problem.path_class), start[0])
    hops = (problem.transfer, ints(problem.path_class.T))
    backward = _edges_at(problem, problem.src, problem.dst)
    tail = _sweep(np.ascontiguousarray(order[::-1]), backward, (took, units.unit), hops, start[1])
    return LocationPaths(units=units, head=ints(head), took=ints(took), tail=ints(tail))


def _edges_at(p: Problem, at: Ints, other: Ints) -> tuple[Ints, Ints, Ints]:
    offset, edge = adjacency(p.tasks, at)
    return offset, other[edge], p.payload[edge]


def _sweep(
    order: Ints, edges: tuple[Ints, Ints, Ints], tasks: tuple[Ints, Ints], hops: tuple[Ints, Ints], length: Ints
) -> Ints:
    """Return [n, l] the longest path of earlier tasks that leads to each task at each location, from `length`."""
    done, least = np.full_like(length, NEVER), np.full(len(order), NEVER, dtype=np.int64)
    _extend(order, edges, tasks, hops, (length, done, least))
    return length


@kernel
def _extend(
    order: Ints,
    edges: tuple[Ints, Ints, Ints],
    tasks: tuple[Ints, Ints],
    hops: tuple[Ints, Ints],
    found: tuple[Ints, Ints, Ints],
) -> None:
    """Fill the lengths, with the finishes there and the least of these."""
    offset, other, carried = edges
    took, unit = tasks
    length, done, least = found
    for task in order:
        for k in range(offset[task], offset[task + 1]):
            for there in range(took.shape[1]):
                if took[task, there] == NEVER:
                    continue
                last = other[k]
                known = done[last, there]
                if unit[last] != unit[task] and known > least[last]:
                    known = least[last] if carried[k] < 0 else _cheapest(done[last], hops, carried[k], there)
                length[task, there] = max(length[task, there], known)
        for there in range(took.shape[1]):
            if took[task, there] != NEVER:
                done[task, there] = length[task, there] + took[task, there]
                least[task] = min(least[task], done[task, there])


@spliced
def _cheapest(done: Ints, hops: tuple[Ints, Ints], payload: int, there: int) -> int:
    """Return the least of done at a location and then the transfer from it."""
    transfer, path_class = hops
    best = NEVER
    for here in range(len(done)):
        if done[here] < best:
            ticks = 0 if here == there else transfer[payload, path_class[here, there]]
            best = min(best, done[here] + ticks)
    return best


def serial(problem: Problem) -> int:
    """Return the ticks of one activity at a time, each as slow as it can be: an optimum never takes longer."""
    return longest(problem, problem.duration, problem.transfer)


def longest(problem: Problem, duration: Ints, transfer: Ints) -> int:
    """Return the sum of the largest of every row, a transfer's for every target; in integers that do not overflow.

    `duration` [n, m] and `transfer` [p, c], of which negative entries count as 0.
    """
    crossings = zip(targets(problem).tolist(), transfer.max(axis=1, initial=0).tolist(), strict=True)
    return sum(duration.max(axis=1, initial=0).tolist()) + sum(times * ticks for times, ticks in crossings)


def targets(problem: Problem) -> Ints:
    """Return [p] locations that each payload may cross to, at most."""
    distinct = np.unique(np.stack([problem.payload, problem.dst]), axis=1)[0]
    consumers = np.bincount(distinct[distinct >= 0], minlength=problem.payloads)
    return np.minimum(consumers, max(0, problem.locations - 1)).astype(np.int64)
