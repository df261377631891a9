"""Symmetries of a problem: interchangeable locations, and equal devices of one location.

Both make a solver look at each schedule once for every way to name them. Names can be given in the order in which some
chosen tasks first use them, so the j-th of these needs no more than the first j + 1 members of a class.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.problem import FORBIDDEN, Problem
from solvers.schedule import Schedule
from solvers.structure.units import Units, units_of

Class = tuple[int, ...]
"""Two or more locations, or devices, any two of which can be swapped."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Symmetry:
    """The classes of a problem, each with the tasks that name its members: the j-th uses the first j + 1 at most."""

    problem: Problem
    locations: tuple[tuple[Class, Class], ...]
    """Each class of locations, with its tasks."""
    devices: tuple[tuple[Class, Class], ...]
    """Each class of devices, all at one location, with its tasks."""

    def broken(self) -> Problem:
        """Return the problem without the devices that naming in the order of first use leaves unused."""
        p, duration = self.problem, self.problem.duration.copy()
        for members, tasks in self.locations:
            for order, task in enumerate(tasks):
                duration[task, np.isin(p.location, members[order + 1 :])] = FORBIDDEN
        for members, tasks in self.devices:
            for order, task in enumerate(tasks):
                duration[task, members[order + 1 :]] = FORBIDDEN
        return replace(p, duration=duration)

    def renamed(self, schedule: Schedule) -> Schedule:
        """Return the same schedule, in which each class is named in the order in which its tasks first use it."""
        p, device = self.problem, schedule.device
        place, to = self.named(p.location[device]), np.arange(p.devices)
        for old, new in enumerate(place.tolist()):
            to[_at(p, old)] = _at(p, new)
        device = to[device]
        for members, tasks in self.devices:
            to = np.arange(p.devices)
            to[list(members)] = _by_first_use(device[list(tasks)].tolist(), members)
            device = to[device]
        return replace(schedule, device=device, sent_to=place[schedule.sent_to])

    def named(self, at: Ints) -> Ints:
        """Return [l] the new name of each location, where the tasks are at the locations `at`, [n]."""
        place = np.arange(self.problem.locations)
        for members, tasks in self.locations:
            place[list(members)] = _by_first_use(at[list(tasks)].tolist(), members)
        return place


def symmetry_of(problem: Problem, units: Units | None = None) -> Symmetry:
    """Find the classes; the tasks that name them are those that take longest, of different units.

    `units`: those that are known to share a location, and where each can be, when more is known than the groups say.
    """
    units = units_of(problem) if units is None else units

    def equal(a: int, b: int) -> bool:
        """Return True for devices of one location with equal durations."""
        same = problem.location[a] == problem.location[b]
        return bool(same and (problem.duration[:, a] == problem.duration[:, b]).all())

    longest = np.argsort(-problem.duration.max(axis=1, initial=0), kind="stable").tolist()
    able = units.allowed[units.unit]
    return Symmetry(
        problem=problem,
        locations=tuple((c, _distinct(longest, units, able[:, c[0]], len(c) - 1)) for c in interchangeable(problem)),
        devices=tuple(
            (c, tuple(t for t in longest if problem.allowed[t, c[0]])[: len(c) - 1])
            for c in _classes(list(range(problem.devices)), equal)
        ),
    )


def interchangeable(p: Problem) -> list[Class]:
    """Return the locations of which any two can be swapped, devices and links renamed, without changing the problem."""
    devices = [Counter(p.duration[:, d].tobytes() for d in _at(p, place)) for place in range(p.locations)]
    off = ~np.eye(p.locations, dtype=bool)
    # [c] the first column that is equal to each.
    first: dict[bytes, int] = {}
    equal_columns = np.array([first.setdefault(c.tobytes(), k) for k, c in enumerate(p.transfer.T)], dtype=np.int64)
    ticks = np.where(off, equal_columns[p.path_class], -1)
    # By location: the links of paths from or to it, each with all its paths.
    near: list[dict[int, frozenset[int]]] = [{} for _ in range(p.locations)]
    for link, paths in enumerate(paths_of_links(p)):
        for place in {place for path in paths for place in divmod(path, p.locations)}:
            near[place][link] = paths

    def same_links(some: dict[int, frozenset[int]], order: list[int]) -> bool:
        # Links keep their paths when locations are renamed, `some` being all that this can change.
        size, sets = p.locations, some.values()
        renamed = (frozenset(order[path // size] * size + order[path % size] for path in paths) for paths in sets)
        return Counter(renamed) == Counter(sets)

    def alike(a: int, b: int) -> bool:
        order = np.arange(p.locations)
        order[[a, b]] = b, a
        swapped = np.ix_(order, order)
        return (
            p.capacity[a] == p.capacity[b]
            and devices[a] == devices[b]
            and len(near[a]) == len(near[b])
            and np.array_equal(ticks[swapped], ticks)
            and same_links(near[a] | near[b], order.tolist())
        )

    return _classes(np.unique(p.location).tolist(), alike)


def _distinct(tasks: Iterable[int], units: Units, able: Bools, count: int) -> Class:
    """Return the first tasks of different units that are able."""
    found: dict[int, int] = {}
    for task in tasks:
        if able[task] and len(found) < count:
            found.setdefault(int(units.unit[task]), task)
    return tuple(found.values())


def _by_first_use(used: Iterable[int], members: Class) -> list[int]:
    """Return the new name of each member; `used` is where the tasks of a class are, the first task first."""
    inside = dict.fromkeys(place for place in used if place in members)
    order = [*inside, *(place for place in members if place not in inside)]
    return [members[order.index(place)] for place in members]


def _at(p: Problem, location: int) -> list[int]:
    """Return the devices of a location, equal ones side by side."""
    return sorted(np.flatnonzero(p.location == location).tolist(), key=lambda d: (p.duration[:, d].tobytes(), d))


def _classes(members: list[int], alike: Callable[[int, int], bool]) -> list[Class]:
    found: list[list[int]] = []
    for one in members:
        home = next((c for c in found if alike(c[0], one)), None)
        if home is None:
            found.append([one])
        else:
            home.append(one)
    return [tuple(c) for c in found if len(c) > 1]


def paths_of_links(p: Problem) -> list[frozenset[int]]:
    """Return the paths that hold each link, as numbers: from * locations + to."""
    found: list[set[int]] = [set() for _ in range(p.links)]
    here, there, column = np.nonzero((p.holds >= 0) & ~np.eye(p.locations, dtype=bool)[:, :, None])
    for link, path in zip(p.holds[here, there, column].tolist(), (here * p.locations + there).tolist(), strict=True):
        found[link].add(path)
    return [frozenset(paths) for paths in found]
