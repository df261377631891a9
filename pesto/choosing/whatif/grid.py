"""Which clusters a sweep asks about: four axes around a given one, and the points on them."""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from pesto.core.errors import UsageError
from pesto.core.files.json import shown

MOST_POINTS = 1000
MOST_DEVICES = 256
_RANGE = (1e-6, 1e6)
"""Of a factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPoint:
    """One cluster of a sweep, as it differs from the given one."""

    compute: float = 1.0
    """Times the speed of every device."""
    links: float = 1.0
    """Times the speed of every path: latency, seconds per byte, floor and pieces are divided by it."""
    devices: int
    """Number of accelerators."""
    memory: float = 1.0
    """Times the memory of every accelerator."""

    def far(self, other: "ClusterPoint") -> float:
        """How much two points differ: the sum over the axes of |log2| of the ratio."""
        return sum(abs(math.log2(getattr(self, axis) / getattr(other, axis))) for axis in AXES)

    def text(self, axes: Iterable[str]) -> str:
        """The values on some axes, for people."""
        return ", ".join(f"{axis} {getattr(self, axis):g}{'' if axis == 'devices' else 'x'}" for axis in axes)


AXES = tuple(f.name for f in fields(ClusterPoint))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepGrid:
    """The values of each axis that is swept, one axis at a time around `base`, or all combinations of them.

    UsageError when no axis has a value, or the points are too many.
    """

    base: ClusterPoint
    """The cluster as it is given."""
    values: dict[str, tuple[float, ...]]
    """Axis -> values, ascending."""
    cross: bool = False
    """Whether the points are all combinations, in place of one axis at a time."""

    def __post_init__(self) -> None:
        """Validate."""
        if not self.values:
            raise UsageError.build("no axis is swept", remedy=f"give values for one of {', '.join(AXES)}")
        if self._count() > MOST_POINTS:
            raise UsageError.build(
                f"{self._count()} points, at most {MOST_POINTS}", remedy="give fewer values, or leave out cross"
            )

    def points(self) -> tuple[ClusterPoint, ...]:
        """Each point once, those near the base first: a later one finds a neighbour that is solved."""
        if self.cross:
            rows = [dict(zip(self.values, row, strict=True)) for row in itertools.product(*self.values.values())]
        else:
            rows = [{axis: value} for axis, values in self.values.items() for value in values]
        return tuple(sorted({self._at(row): None for row in rows}, key=self.base.far))

    def _at(self, row: dict[str, float]) -> ClusterPoint:
        at = {axis: row.get(axis, getattr(self.base, axis)) for axis in AXES}
        return ClusterPoint(compute=at["compute"], links=at["links"], devices=int(at["devices"]), memory=at["memory"])

    def _count(self) -> int:
        sizes = [len(values) for values in self.values.values()]
        return math.prod(sizes) if self.cross else sum(sizes)


def parse_values(axis: str, text: str) -> tuple[float, ...]:
    """The values of an axis, "0.5,1,2", ascending and each once; UsageError when one is none or out of range."""
    words = [word.strip() for word in text.split(",")]
    if not any(words):
        raise UsageError.build("no value is given", where=axis, remedy=_valid_range(axis))
    return chosen_values({axis: words})[axis]


def chosen_values(axes: Mapping[str, Iterable[float | str]]) -> dict[str, tuple[float, ...]]:
    """The values of each axis that has some, ascending and each once; UsageError when one is none or out of range."""
    for axis, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise UsageError.build(
                f"{shown(repr(values))} is no list of values", where=axis, remedy=f"{_valid_range(axis)}, in a list"
            )
    given = {axis: list(values) for axis, values in axes.items()}
    return {axis: tuple(sorted({_value(axis, word) for word in words})) for axis, words in given.items() if words}


def _value(axis: str, word: float | str) -> float:
    try:
        value = float(word)
    except (TypeError, ValueError):
        value = math.nan
    least, most = (1, MOST_DEVICES) if axis == "devices" else _RANGE
    if not least <= value <= most or (axis == "devices" and value != int(value)):
        raise UsageError.build(f"{shown(repr(word))} is no value", where=axis, remedy=_valid_range(axis))
    return value


def _valid_range(axis: str) -> str:
    if axis == "devices":
        return f"give whole numbers from 1 to {MOST_DEVICES}, such as 2,4,8"
    return f"give factors from {_RANGE[0]:g} to {_RANGE[1]:g}, such as 0.5,1,2"
