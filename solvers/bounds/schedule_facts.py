"""Facts that hold in every schedule of at most some ticks: shared locations, allowed locations, and time windows."""

from dataclasses import dataclass, replace

import numpy as np

from solvers.arrays import Bools, Ints, bools, ints
from solvers.bounds.memory_proof import settled
from solvers.bounds.segments import NEVER as NO_DISTANCE
from solvers.compiled.kernels import routine
from solvers.problem import Problem
from solvers.structure.paths import NEVER, LocationPaths, paths_of
from solvers.structure.units import Units, units_of

_ROUNDS = 100


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduleFacts:
    """Holds for every schedule of a problem with a makespan of at most `upper`."""

    problem: Problem
    """With an edge without payload for each order of two tasks that was found to be the only one."""
    upper: int
    paths: LocationPaths
    """Units that must share a location, where each can be, and the heads and tails of tasks there."""
    apart: Bools
    """[n, n] tasks that cannot share a location, symmetric; [0, 0] where pairs were not looked at."""

    @property
    def head(self) -> Ints:
        """[n] earliest start of each task."""
        return ints(self.paths.head.min(axis=1, initial=NEVER))

    @property
    def tail(self) -> Ints:
        """[n] least ticks from the finish of each task to the end of the schedule."""
        return ints(self.paths.tail.min(axis=1, initial=NEVER))

    @property
    def took(self) -> Ints:
        """[n] least ticks of each task."""
        return ints(self.paths.took.min(axis=1, initial=NEVER))

    @property
    def unit(self) -> Ints:
        """[n] tasks of one unit share a location."""
        return self.paths.units.unit

    @property
    def able(self) -> Bools:
        """[n, l] where each task can be."""
        return self.paths.units.allowed[self.unit]


def known_within(problem: Problem, upper: int) -> ScheduleFacts | None:
    """Return the facts from longest paths, groups and memory; None proves that no schedule takes `upper` ticks."""
    nothing = np.zeros(problem.tasks, dtype=np.int64)
    return _settled(problem, upper, units_of(problem), (nothing, nothing))


def raised(known: ScheduleFacts, head: Ints, tail: Ints) -> ScheduleFacts | None:
    """With heads and tails, [n], that hold too, and all that follows; None as in `known_within`."""
    return _again(known, known.paths.units, (np.maximum(known.head, head), np.maximum(known.tail, tail)))


def confined(known: ScheduleFacts, allowed: Bools) -> ScheduleFacts | None:
    """With each unit only where `allowed`, [u, l], too, and all that follows; None as in `known_within`."""
    units = replace(known.paths.units, allowed=bools(known.paths.units.allowed & allowed))
    return _again(known, units, (known.head, known.tail))


def united(known: ScheduleFacts, one: Ints, two: Ints) -> ScheduleFacts | None:
    """With tasks `one[k]` and `two[k]` at one location, too, and all that follows; None as in `known_within`."""
    return _again(known, _joined(known.paths.units, one, two), (known.head, known.tail))


def edge_ticks(known: ScheduleFacts) -> tuple[Ints, Ints]:
    """[e] least ticks from the finish of an edge's tail to the start of its head, at one location, and [e] at two.

    `solvers.bounds.segments.NEVER` where that cannot be.
    """
    p, able, unit = known.problem, known.able, known.unit
    near = np.where((able[p.src] & able[p.dst]).any(axis=1), 0, NO_DISTANCE)
    far = np.full(p.edges, NO_DISTANCE, dtype=np.int64)
    for here, there in _hops(p):
        both = able[p.src, here] & able[p.dst, there] & (unit[p.src] != unit[p.dst])
        far = np.where(both, np.minimum(far, _hop_ticks(p, here, there)), far)
    return near, far


def _hops(p: Problem) -> list[tuple[int, int]]:
    return [(here, there) for here in range(p.locations) for there in range(p.locations) if here != there]


def _hop_ticks(p: Problem, here: int, there: int) -> Ints:
    """[e] ticks of each edge's payload, 0 for none, from one location to another."""
    if not p.payloads:
        return np.zeros(p.edges, dtype=np.int64)
    return np.where(p.payload < 0, 0, p.transfer[p.payload, p.path_class[here, there]])


def _again(known: ScheduleFacts, units: Units, floors: tuple[Ints, Ints]) -> ScheduleFacts | None:
    found = _settled(known.problem, known.upper, units, floors)
    return None if found is None else replace(found, apart=known.apart)


def _settled(problem: Problem, upper: int, units: Units, floors: tuple[Ints, Ints]) -> ScheduleFacts | None:
    """The fixed point of paths, locations that are too late, edges that have no time to cross, and memory."""
    # A location that is removed lengthens paths, and longer paths remove locations, until nothing changes. Stopping
    # early is valid too: every round only adds facts.
    for round_ in range(_ROUNDS):
        units, full = settled(problem, units)
        if full or not units.allowed.any(axis=1).all():
            return None
        paths = paths_of(problem, units, floors)
        known = ScheduleFacts(problem=problem, upper=upper, paths=paths, apart=bools(np.zeros((0, 0))))
        late = np.zeros_like(units.allowed)
        np.logical_or.at(late, units.unit, paths.head + paths.took + paths.tail > upper)
        stuck = _stuck(known)
        if round_ == _ROUNDS - 1 or not ((late & units.allowed).any() or len(stuck)):
            break
        units = _joined(replace(units, allowed=bools(units.allowed & ~late)), problem.src[stuck], problem.dst[stuck])
    return known


def _stuck(known: ScheduleFacts) -> Ints:
    """The edges between two units whose payload has no time to cross from any location to any other."""
    p, paths = known.problem, known.paths
    crosses = known.unit[p.src] == known.unit[p.dst]
    # Where a task cannot be, all three are NEVER; a quarter of it is more than any makespan that is looked at.
    done = np.minimum(paths.head, NEVER // 4) + np.minimum(paths.took, NEVER // 4)
    rest = np.minimum(paths.took, NEVER // 4) + np.minimum(paths.tail, NEVER // 4)
    for here, there in _hops(p):
        crosses |= done[p.src, here] + _hop_ticks(p, here, there) + rest[p.dst, there] <= known.upper
    return np.flatnonzero(~crosses)


def _joined(units: Units, one: Ints, two: Ints) -> Units:
    """The units of which tasks `one[k]` and `two[k]` are in one."""
    if not len(one):
        return units
    label = np.arange(len(units.allowed))
    _join(label, units.unit[one], units.unit[two])
    _, which = np.unique(label, return_inverse=True)
    allowed = np.ones((int(which.max(initial=-1)) + 1, units.allowed.shape[1]), dtype=np.bool_)
    np.logical_and.at(allowed, which, units.allowed)
    memory = np.zeros(len(allowed), dtype=np.int64)
    np.add.at(memory, which, units.memory)
    return Units(unit=ints(which[units.unit]), allowed=bools(allowed), memory=ints(memory))


@routine
def _join(label: Ints, one: Ints, two: Ints) -> None:
    """Give all that is joined, directly or not, its least label."""
    for k in range(len(one)):
        a, b = one[k], two[k]
        while label[a] != a:
            a = label[a]
        while label[b] != b:
            b = label[b]
        label[max(a, b)] = min(a, b)
    for a in range(len(label)):
        label[a] = label[label[a]]
