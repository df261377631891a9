"""Models of CP-SAT that cannot be built within the limit, in a process of its own, where CP-SAT is alone.

Prints a word for each that was given up as it should be.
"""

import numpy as np

from solvers.bounds import quick_bounds
from solvers.cpsat import exact, model
from solvers.cpsat.descent import NeighbourhoodResult, Neighbours, search
from solvers.cpsat.solver import CpSat
from solvers.cpsat.window import network_of, timeline_of
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.table import make
from solvers.result import Limit, Options, Status
from solvers.structure.units import serial

GRID = make("lstm-grid", layers=3, steps=4, gpus=4)


class Clock:
    """Raises at look number `most`."""

    def __init__(self, most: float = np.inf) -> None:
        self.looks, self.most = 0, most

    def __call__(self) -> None:
        self.looks += 1
        if self.looks >= self.most:
            raise TimeoutError


def given_up() -> bool:
    """The interval model looks at every crossing, device and link; at any of them it may end."""
    clock = Clock()
    model.build(GRID, least=1, most=serial(GRID), check=clock)
    given = []
    for most in np.linspace(1, clock.looks, 7, dtype=int).tolist():
        try:
            model.build(GRID, least=1, most=serial(GRID), check=Clock(most))
        except TimeoutError:
            given.append(most)
    return clock.looks > GRID.payloads + GRID.devices + GRID.links and len(given) == 7


def too_large() -> bool:
    """With no time for building nothing is found, and the reason is told."""
    exact._BUILDING = 0.0
    late = CpSat().solve(GRID, Options(seconds=600), lambda _: None)
    told = "too large to be built" in late.detail and late.lower_bound == quick_bounds.best(GRID)[0]
    return told and (late.status, late.limit, late.schedule) == (Status.UNKNOWN, Limit.TIME, None)


def windows() -> bool:
    """A clock that shows a second twice and then none: a neighbourhood with crossings ends without CP-SAT."""
    start = ListScheduler().solve(GRID, Options(), lambda _: None).schedule
    timeline, neighbours, late = timeline_of(network_of(GRID), start), Neighbours(0), 0
    for _ in range(20):
        left = iter([1.0, 1.0])
        found = search(timeline, neighbours.draw(timeline)[1], 0, lambda left=left: next(left, 0.0))
        late += found == NeighbourhoodResult(None, False, 0.0)
    return late > 10


if __name__ == "__main__":
    for case in (given_up, too_large, windows):
        if case():
            print(case.__name__)
