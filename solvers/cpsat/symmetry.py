"""What is interchangeable in a problem: cores that form a pool, and locations that only their numbers tell apart."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from solvers.arrays import Ints
from solvers.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """Devices at one location with the same durations for every task."""

    location: int
    devices: tuple[int, ...]

    @property
    def lead(self) -> int:
        """The device whose column of `duration` holds for all."""
        return self.devices[0]


def pools(problem: Problem) -> list[Pool]:
    """The pools of a problem, by their first devices.

    Devices on which some task takes no time stay alone: a cumulative constraint ignores such tasks, though none may lie
    strictly inside another on its device.
    """
    found: dict[tuple[int, bytes], list[int]] = {}
    for device, location in enumerate(problem.location.tolist()):
        column = problem.duration[:, device]
        alone = b"%d" % device if (column == 0).any() else b""
        found.setdefault((location, alone + column.tobytes()), []).append(device)
    return [Pool(location=location, devices=tuple(devices)) for (location, _), devices in found.items()]


def interchangeable(problem: Problem) -> list[list[int]]:
    """Classes of two or more locations of which any two can be swapped, links renamed, without changing the problem."""
    links = _Links(problem)
    classes: list[list[int]] = []
    for location in np.unique(problem.location).tolist():
        home = next((c for c in classes if _swappable(problem, c[0], location, links)), None)
        if home is None:
            classes.append([location])
        else:
            home.append(location)
    return [c for c in classes if len(c) > 1]


def relabelling(at: Ints, units: list[list[int]], classes: list[list[int]]) -> dict[int, int]:
    """Location to location: within each class, named in the order in which its units first use them.

    `at` [n] is the location of each task, `units[c]` the tasks, first to last, that break the symmetry of class c.
    """
    renamed: dict[int, int] = {}
    for members, tasks in zip(classes, units, strict=True):
        used = list(dict.fromkeys(int(at[t]) for t in tasks if at[t] in members))
        rest = [m for m in members if m not in used]
        renamed.update(zip(used + rest, members, strict=True))
    return renamed


class _Links:
    """Every link's set of the pairs of locations whose transfers hold it."""

    def __init__(self, problem: Problem) -> None:
        self.pairs: dict[int, set[tuple[int, int]]] = {}
        for s, t, k in np.argwhere(problem.path_links >= 0).tolist():
            if s != t:
                self.pairs.setdefault(int(problem.path_links[s, t, k]), set()).add((s, t))
        self.plain = Counter(frozenset(held) for held in self.pairs.values())

    def invariant(self, a: int, b: int) -> bool:
        """Whether swapping two locations only renames links."""
        swap = {a: b, b: a}
        swapped = (frozenset((swap.get(s, s), swap.get(t, t)) for s, t in held) for held in self.pairs.values())
        return Counter(swapped) == self.plain


def _swappable(p: Problem, a: int, b: int, links: _Links) -> bool:
    if p.capacity[a] != p.capacity[b] or _columns(p, a) != _columns(p, b):
        return False
    order = np.arange(p.locations)
    order[[a, b]] = b, a
    before, after = p.path_class, p.path_class[order[:, None], order[None, :]]
    differ = before != after
    same_ticks = all(
        np.array_equal(p.transfer[:, one], p.transfer[:, two])
        for one, two in set(zip(before[differ].tolist(), after[differ].tolist(), strict=True))
    )
    return same_ticks and links.invariant(a, b)


def _columns(p: Problem, location: int) -> Counter[bytes]:
    return Counter(p.duration[:, device].tobytes() for device in np.flatnonzero(p.location == location).tolist())
