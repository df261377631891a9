"""A model that cannot be built within the limit is given up on the way: no solver is hung because it builds.

Who builds looks at the clock; here the looks are counted, and the time is over after so many of them.
"""

import numpy as np
import pytest

from solvers.bounds import quick_bounds
from solvers.cpsat import exact, model
from solvers.cpsat.descent import Searched, search
from solvers.cpsat.neighbours import Neighbours
from solvers.cpsat.solver import CpSat
from solvers.cpsat.timeline import network_of, timeline_of
from solvers.heuristics.list_solver import ListScheduler
from solvers.instances.table import make
from solvers.milp.formulations import FORMULATIONS, Limits, formulate
from solvers.milp.paper import rows
from solvers.result import Limit, Options, Status
from solvers.structure.horizon import serial

GRID = make("lstm-grid", layers=3, steps=4, gpus=4)


class Clock:
    """Raises at look number `most`."""

    def __init__(self, most: float = np.inf) -> None:
        self.looks, self.most = 0, most

    def __call__(self) -> None:
        self.looks += 1
        if self.looks >= self.most:
            raise TimeoutError("late")


@pytest.fixture
def clock(monkeypatch):
    """What the builders of integer programs look at."""
    clock = Clock()
    monkeypatch.setattr(Limits, "check", lambda _: clock())
    return clock


def program(formulation):
    limits = Limits(least=quick_bounds.best(GRID)[0], most=serial(GRID))
    return formulate(GRID, formulation, limits).linear


def whole(linear):
    """[r, c + 2] the rows with their bounds, in an order that depends on these alone."""
    dense = np.zeros((len(linear.row_lower), linear.columns + 2))
    dense[:, 0], dense[:, 1] = linear.row_lower, linear.row_upper
    for row in range(len(dense)):
        at = slice(linear.offset[row], linear.offset[row + 1])
        dense[row, 2 + linear.column[at]] = linear.coefficient[at]
    return dense[np.lexsort(dense.T)]


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_a_program_is_given_up_wherever_its_time_is_over(formulation, clock) -> None:
    """There are more looks than devices and links, for each of which rows are written; at any of them it may end."""
    program(formulation)
    assert clock.looks > GRID.devices + GRID.links
    every = clock.looks
    for most in np.linspace(1, every, 7, dtype=int).tolist():
        clock.looks, clock.most = 0, most
        with pytest.raises(TimeoutError, match="late"):
            program(formulation)
        assert clock.looks == most


def test_rows_in_blocks_are_the_same_rows(clock, monkeypatch) -> None:
    """The paper's program in blocks of 5 pairs in place of 32 768: other looks, the same program."""
    at_once, looks = whole(program("paper")), clock.looks
    clock.looks = 0
    monkeypatch.setattr(rows, "_BLOCK", 5)
    assert np.array_equal(whole(program("paper")), at_once)
    assert clock.looks > 2 * looks


def test_the_interval_model_is_given_up_wherever_its_time_is_over() -> None:
    """At every crossing, device and link."""
    clock = Clock()
    model.build(GRID, least=1, most=serial(GRID), check=clock)
    assert clock.looks > GRID.payloads + GRID.devices + GRID.links
    for most in np.linspace(1, clock.looks, 7, dtype=int).tolist():
        with pytest.raises(TimeoutError, match="late"):
            model.build(GRID, least=1, most=serial(GRID), check=Clock(most))


def test_cp_sat_says_that_its_model_is_too_large(monkeypatch) -> None:
    """Nothing is found, and the reason is told."""
    monkeypatch.setattr(exact, "_BUILDING", 0.0)
    late = CpSat().solve(GRID, Options(seconds=600), lambda _: None)
    assert (late.status, late.limit, late.schedule) == (Status.UNKNOWN, Limit.TIME, None)
    assert "too large to be built" in late.detail and late.lower_bound == quick_bounds.best(GRID)[0]


def test_a_window_is_given_up_when_its_time_is_over() -> None:
    """A clock that shows a second twice and then none: a neighbourhood with crossings ends without CP-SAT."""
    start = ListScheduler().solve(GRID, Options(), lambda _: None).schedule
    timeline, neighbours, late = timeline_of(network_of(GRID), start), Neighbours(0), 0
    for _ in range(20):
        left = iter([1.0, 1.0])
        found = search(timeline, neighbours.draw(timeline)[1], 0, lambda left=left: next(left, 0.0))
        late += found == Searched(None, False, 0.0)
    assert late > 10
