"""Where tasks are: a binary for each unit and location, and for each task and device where a location has several."""

from dataclasses import dataclass

import numpy as np

from solvers.milp.linear import LinearBuilder
from solvers.milp.tight.time_windows import RestrictedProblem

_GRAINS = 100_000.0
"""Units of memory in a capacity at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """The columns of the placement, which are fixed at 1 where there is no choice."""

    at: list[dict[int, int]]
    """By task: location to x; tasks of one unit share theirs."""
    on: list[dict[int, int]]
    """By task: device to y, or to x where a location has one device for the task."""
    fixed: frozenset[int]
    """Columns that are 1 in every point."""


def places_of(rows: LinearBuilder, windows: RestrictedProblem) -> Places:
    """x[u,l] and y[i,d], with  sum over l of x[u,l] = 1  and  sum over l's devices of y[i,d] = x[u(i),l]."""
    p, units = windows.problem, windows.paths.units
    at: list[dict[int, int]] = []
    fixed: set[int] = set()
    for allowed in units.allowed:
        where = np.flatnonzero(allowed).tolist()
        at.append(_choice(rows, where, fixed))
        if len(where) > 1:
            rows.row([(x, 1.0) for x in at[-1].values()], at_least=1.0, at_most=1.0)
    mine = [at[unit] for unit in units.unit.tolist()]
    on: list[dict[int, int]] = []
    for task, here in enumerate(mine):
        on.append({})
        for place, x in here.items():
            devices = np.flatnonzero(p.allowed[task] & (p.location == place)).tolist()
            if len(devices) == 1:
                on[-1][devices[0]] = x
                continue
            chosen = {d: rows.binary() for d in devices}
            rows.row([*((y, 1.0) for y in chosen.values()), (x, -1.0)], at_least=0.0, at_most=0.0)
            on[-1].update(chosen)
    _memory(rows, windows, at)
    return Places(at=mine, on=on, fixed=frozenset(fixed))


def _choice(rows: LinearBuilder, where: list[int], fixed: set[int]) -> dict[int, int]:
    if len(where) > 1:
        return {place: rows.binary() for place in where}
    column = rows.column(1.0, 1.0)
    fixed.add(column)
    return {where[0]: column}


def _memory(rows: LinearBuilder, windows: RestrictedProblem, at: list[dict[int, int]]) -> None:
    """Sum over units of bytes * x[u,l] <= capacity[l], in the largest unit of bytes that all are multiples of.

    Where that leaves more than _GRAINS in a location, in that many: the vendors' tolerance of 1e-6 then is 1e-11 of it.
    """
    held = windows.paths.units.memory.tolist()
    for place, capacity in enumerate(windows.problem.capacity.tolist()):
        sizes = [(here[place], size) for here, size in zip(at, held, strict=True) if place in here and size]
        if sum(size for _, size in sizes) > capacity:
            grain = int(np.gcd.reduce([size for _, size in sizes]))
            most = capacity // grain
            scale = min(1.0, _GRAINS / max(1, most))
            rows.row([(x, size // grain * scale) for x, size in sizes], at_most=most * scale)
