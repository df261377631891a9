"""Where tasks are, as binary codes: x, y, ... for the location of a unit, and more for the device of a task there."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from solvers.arrays import Bools, Floats, Ints, rank_of
from solvers.milp.paper.affine import Affine, AffineBuilder
from solvers.problem import Problem
from solvers.structure.units import Units, units_of

_FIXED = -1
"""The column of a bit that is the same wherever its unit or task can be."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Codes:
    """The binaries that say where each unit and task is, and what they mean.

    A location's code is its rank by the number of units that have it as one choice of several, so two GPUs have the
    codes 0 and 1 beside any number of hosts, and a GPU op one binary, x. A bit that is the same at all locations of a
    unit is no variable. A device's code is its rank among those of its location that can run the task.
    """

    problem: Problem
    units: Units
    code: Ints
    """[l] code of each location."""
    fixed: Ints
    """[u] the bits of a unit's code that are no variables."""
    bit: Ints
    """[u, B] column of each bit of a unit's code, least significant first, or _FIXED."""
    rank: Ints
    """[n, m] code of a device for a task, _FIXED where it cannot run it."""
    core: Ints
    """[n, W] column of each bit of the code of a task's device, or _FIXED."""

    @property
    def able(self) -> Bools:
        """[n, m] whether a task can be on a device, its unit considered."""
        found: Bools = self.rank >= 0
        return found

    def location_bit(self, unit: Ints, bit: int) -> Affine:
        """Return [r] a bit of the code of each unit's location."""
        column = self.bit[unit, bit]
        live = column != _FIXED
        return Affine(
            constant=(self.fixed[unit] >> bit & 1).astype(np.float64),
            column=np.where(live, column, 0)[:, None],
            coefficient=live.astype(np.float64)[:, None],
        )

    def away(self, unit: Ints, location: Ints | int) -> Affine:
        """Return [r] 0 where a unit is at the location (which it can be at), 1 or more elsewhere."""
        return _differ(self.bit[unit], np.broadcast_to(self.code[location], len(unit)))

    def off(self, task: Ints, device: int) -> Affine:
        """Return [r] 0 where a task has the device's code among those of its location, 1 or more elsewhere."""
        return _differ(self.core[task], self.rank[task, device])

    def encode(self, device: Ints, values: Floats) -> None:
        """Write the codes of a placement [n] into a point [c]."""
        place = np.zeros(len(self.fixed), dtype=np.int64)
        place[self.units.unit] = self.code[self.problem.location[device]]
        _write(self.bit, place, values)
        _write(self.core, self.rank[np.arange(len(device)), device], values)

    def decode(self, values: Floats) -> Ints:
        """Return [n] the placement that a point [c] describes; ValueError where its codes mean none."""
        whole = np.rint(values).astype(np.int64)
        at = (self.fixed + _read(self.bit, whole))[self.units.unit]
        here = self.able & (self.code[self.problem.location] == at[:, None])
        here &= self.rank == _read(self.core, whole)[:, None]
        if not here.any(axis=1).all():
            raise ValueError("the point's codes are of no device")
        return np.argmax(here, axis=1)


def encoded(problem: Problem, assembly: AffineBuilder) -> Codes:
    """Return new binaries for where everything is."""
    units = units_of(problem)
    choices = units.allowed[np.count_nonzero(units.allowed, axis=1) > 1]
    code = rank_of(np.argsort(-choices.sum(axis=0), kind="stable"))
    common = np.bitwise_and.reduce(np.where(units.allowed, code, -1), axis=1)
    common[~units.allowed.any(axis=1)] = 0
    some = np.bitwise_or.reduce(np.where(units.allowed, code, 0), axis=1)
    able = problem.allowed & units.allowed[units.unit][:, problem.location]
    # [n, m] the rank of each device among those of its location that a task can be on.
    location = problem.location
    rank = np.full(able.shape, _FIXED)
    for place in np.unique(location).tolist():
        here = np.flatnonzero(location == place)
        rank[:, here] = np.where(able[:, here], np.cumsum(able[:, here], axis=1) - 1, _FIXED)
    widest = rank.max(axis=1, initial=0)
    return Codes(
        problem=problem, units=units, code=code, fixed=common, bit=_columns(some & ~common, assembly), rank=rank,
        core=_columns((1 << _bits(widest)) - 1, assembly),
    )  # fmt: skip


def _bits(most: Ints) -> Ints:
    """Return bits that write the numbers up to `most`."""
    return np.ceil(np.log2(most + 1.0)).astype(np.int64)


def _columns(mask: Ints, assembly: AffineBuilder) -> Ints:
    """Return [r, bits] a new binary for each bit that is set in `mask` [r]."""
    width = int(_bits(mask.max(initial=0)))
    live = (mask[:, None] >> np.arange(width) & 1) == 1
    column = np.full(live.shape, _FIXED, dtype=np.int64)
    column[live] = assembly.binaries(int(live.sum())).column[:, 0]
    return column


def meaningless(codes: Codes) -> Iterator[tuple[Ints, int]]:
    """For each number, the units [r] whose variables can spell it though it is the code of no location of theirs."""
    units = codes.units
    free = np.where(codes.bit != _FIXED, 1 << np.arange(codes.bit.shape[1]), 0).sum(axis=1)
    for number in range(1 << int(codes.code.max()).bit_length()):
        spelt = (codes.fixed ^ number) & ~free == 0
        known = (units.allowed & (codes.code == number)).any(axis=1) | ~units.allowed.any(axis=1)
        yield np.flatnonzero(spelt & ~known), number


def idle_cores(codes: Codes) -> Iterator[tuple[Ints, int, int]]:
    """For each location and number, the tasks [r] that can be there and spell it though it is no device of theirs."""
    for place, number in product(range(codes.problem.locations), range(1 << codes.core.shape[1])):
        known = codes.able[:, codes.problem.location == place].sum(axis=1)
        spelt = number >> (codes.core != _FIXED).sum(axis=1) == 0
        yield np.flatnonzero(spelt & (known > 0) & (number >= known)), place, number


def exclude(codes: Codes, assembly: AffineBuilder) -> None:
    """Codes that mean nothing are excluded: for each, the bits that differ from it are 1 or more.

    For a task's device, at each location: those and the bits by which it is away are.
    """
    for unit, number in meaningless(codes):
        assembly.not_negative(_differ(codes.bit[unit], np.full(len(unit), number)) - 1.0)
    for task, place, number in idle_cores(codes):
        wrong = _differ(codes.core[task], np.full(len(task), number))
        assembly.not_negative(wrong + codes.away(codes.units.unit[task], place) - 1.0)


def _differ(column: Ints, code: Ints) -> Affine:
    """Return [r] the number of bits [r, b] that differ from a code [r]; bits that are no variables do not count."""
    ones, live = code[:, None] >> np.arange(column.shape[1]) & 1, column != _FIXED
    return Affine(
        constant=(live & (ones == 1)).sum(axis=1).astype(np.float64),
        column=np.where(live, column, 0),
        coefficient=np.where(live, 1.0 - 2.0 * ones, 0.0),
    )


def _write(column: Ints, code: Ints, values: Floats) -> None:
    """Set the bits [r, b] of codes [r] in a point [c]."""
    live = column != _FIXED
    values[column[live]] = (code[:, None] >> np.arange(column.shape[1]) & 1)[live]


def _read(column: Ints, whole: Ints) -> Ints:
    """Return [r] the numbers that bits [r, b] spell at a point [c]."""
    bits = np.where(column != _FIXED, whole[np.maximum(column, 0)], 0)
    number: Ints = (bits << np.arange(column.shape[1])).sum(axis=1)
    return number
