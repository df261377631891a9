"""One pass over all locations that hold too much, at the times of one schedule."""

import numpy as np

from solvers.arrays import Ints, ints
from solvers.compiled.dag import adjacency
from solvers.deadlines import Late, never
from solvers.footprint import Footprint
from solvers.heuristics.overflow.buffers import BufferLives, axis, bytes_at, lives_of, mean_transfer
from solvers.heuristics.overflow.bytes_over_time import levels_of
from solvers.heuristics.overflow.move_out import RepairPass, potentials, relieve_location
from solvers.heuristics.overflow.potential import Potentials, scratch_for
from solvers.heuristics.overflow.try_move import UnitTies, trial_for
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.structure.units import Units, fastest_at

_CHUNK = 3_000_000
"""Steps between two looks at the clock, about: a fraction of a second."""
_LISTS = 4
"""But at least those in which potentials can be listed so many times, as they are anew after each look."""
_NEGLIGIBLE = 0.001
"""A share of what has to leave, and of the largest capacity: the smallest buffers that make up no more than this do not
count for moves. In a training step these are half of all buffers, and the ones with the most readers."""
_STEPS = 20
"""Cost of adding to an interval of a tree, in steps of a walk."""


def relieved(
    problem: Problem, footprint: Footprint, schedule: Schedule, units: Units, limit: Ints, *, late: Late = never
) -> tuple[Ints, int]:
    """[u] location of each unit after a pass, and the number of units that moved.

    What exceeds its capacity is brought down to its `limit`, [l], by moves that bring nothing else above its own, the
    fullest location first; or as far as that goes, or as it is once it is `late`.
    """
    levels = bytes_at(problem, footprint, schedule, axis(schedule))
    over = levels.max(axis=1) - problem.capacity
    lacking = (levels.max(axis=1) - limit)[over > 0].min(initial=problem.capacity.max(initial=0))
    lives = lives_of(problem, footprint, schedule, units.unit, int(lacking * _NEGLIGIBLE))
    ties = ties_of(problem, footprint, units, lives)
    state = _pass_of(problem, units, ties, schedule)
    state.limit[:] = limit
    trees, trial = levels_of(levels), trial_for(lives, ties, state.at, problem.locations)
    for place in np.argsort(-over, kind="stable")[: np.count_nonzero(over > 0)].tolist():
        state.open[:] = ~state.moved
        more = True
        while more and not late():
            state.left[0] = max(_CHUNK, _LISTS * (len(lives.reader) + len(lives.unit) + len(state.at)))
            more = relieve_location(lives, ties, state, trees, trial, place)
    return ints(state.at), int(np.count_nonzero(state.moved))


def potential(problem: Problem, footprint: Footprint, schedule: Schedule, units: Units, where: tuple[int, int]) -> Ints:
    """[u] M_pot of Table 4.2 at `where` = (location, tick): the bytes that leave there with each unit.

    The outputs that only the unit is still to read, or is making, or is to send; as an extension, its static and
    scratch bytes, and received copies that nobody else there reads. In the source, the last reader also has what
    others are still to read before it, which does not leave with it; a pass counts that only where nothing else helps.
    """
    place, tick = where
    lives = lives_of(problem, footprint, schedule, units.unit)
    ties = ties_of(problem, footprint, units, lives)
    state = _pass_of(problem, units, ties, schedule)
    now = int(np.searchsorted(lives.ticks, tick, side="right")) - 1
    work = scratch_for(lives, state.at, problem.locations)
    potentials(lives, ties, state.at, work, (place, now), state.potential)
    return ints(state.potential.bytes)


def move_cost(problem: Problem, units: Units, location: Ints) -> Ints:
    """[u] equation (4.5): the ticks of a unit where it is, and of its edges to other units at the same location.

    location: [u]. An edge counts with its payload's mean ticks over all pairs of locations.
    """
    offset, neighbour, ticks = _neighbours(problem, units)
    unit = np.repeat(np.arange(len(location)), np.diff(offset))
    cost = _ticks(problem, units)[np.arange(len(location)), location]
    near = location[unit] == location[neighbour]
    np.add.at(cost, unit[near], ticks[near])
    return ints(cost)


def ties_of(problem: Problem, footprint: Footprint, units: Units, lives: BufferLives) -> UnitTies:
    """Return the families of `lives`, static bytes and costs that each unit touches."""
    count = len(units.memory)
    static = np.zeros(count, dtype=np.int64)
    np.add.at(static, units.unit, footprint.static)
    families = len(lives.family) - 1
    of_buffer = np.repeat(np.arange(families), np.diff(lives.family))
    of_bundle = np.repeat(of_buffer, np.diff(lives.bundle))
    of_read = np.repeat(of_bundle, np.diff(lives.read))
    task = np.concatenate([lives.maker, lives.reader])
    pair = np.unique(lives.unit[task] * max(families, 1) + np.concatenate([of_buffer, of_read]))
    offset = np.searchsorted(pair, np.arange(count + 1) * max(families, 1)).astype(np.int64)
    family = offset, pair % max(families, 1)
    return UnitTies(
        task=adjacency(count, units.unit),
        family=family,
        neighbour=_neighbours(problem, units),
        allowed=units.allowed,
        ticks=_ticks(problem, units),
        static=static,
        work=_work(lives, family, problem.locations),
    )


def _work(v: BufferLives, of_unit: tuple[Ints, Ints], locations: int) -> Ints:
    """[u] steps of a trial: what is walked of a unit's families, each row changed in trees."""
    steps = np.append(0, np.cumsum(_STEPS + v.walk - v.read[:-1] + locations * (v.wide >= 0)))[v.bundle]
    steps = np.diff((steps + _STEPS * np.arange(len(steps)))[v.family])
    offset, family = of_unit
    return ints(_STEPS + np.diff(np.append(0, np.cumsum(steps[family]))[offset]))


def _neighbours(problem: Problem, units: Units) -> tuple[Ints, Ints, Ints]:
    edge = np.flatnonzero((problem.payload >= 0) & (units.unit[problem.src] != units.unit[problem.dst]))
    tail, head = units.unit[problem.src[edge]], units.unit[problem.dst[edge]]
    ticks = mean_transfer(problem)[problem.payload[edge]]
    offset, by = adjacency(len(units.memory), np.concatenate([tail, head]))
    return offset, np.concatenate([head, tail])[by], np.concatenate([ticks, ticks])[by]


def _ticks(problem: Problem, units: Units) -> Ints:
    """[u, l] ticks of a unit's tasks at each location where it is allowed, 0 elsewhere."""
    ticks = np.zeros((len(units.memory), problem.locations), dtype=np.int64)
    np.add.at(ticks, units.unit, fastest_at(problem))
    return np.where(units.allowed, ticks, 0)


def location_of(problem: Problem, units: Units, device: Ints) -> Ints:
    """[u] where a placement has each unit."""
    at = np.zeros(len(units.memory), dtype=np.int64)
    at[units.unit] = problem.location[device]
    return at


def _pass_of(problem: Problem, units: Units, ties: UnitTies, schedule: Schedule) -> RepairPass:
    at, count = location_of(problem, units, schedule.device), len(units.memory)
    load = np.zeros(problem.locations, dtype=np.int64)
    np.add.at(load, at, ties.ticks[np.arange(count), at])
    return RepairPass(
        at=at,
        cost=np.array(move_cost(problem, units, at)),
        load=load,
        open=np.zeros(count, dtype=np.bool_),
        moved=np.zeros(count, dtype=np.bool_),
        potential=Potentials(
            np.zeros(count, dtype=np.int64),
            np.empty(count, dtype=np.int64),
            np.zeros(count, dtype=np.bool_),
            np.zeros(1, dtype=np.int64),
            np.zeros(1, dtype=np.bool_),
        ),
        attraction=np.zeros(problem.locations, dtype=np.int64),
        limit=np.array(problem.capacity),
        left=np.zeros(1, dtype=np.int64),
        paused=np.zeros(1, dtype=np.bool_),
    )
