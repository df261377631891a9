"""A model that cannot be built within the limit is given up on the way: no solver is hung because it builds.

Who builds looks at the clock; here the looks are counted, and the time is over after so many of them.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from solvers.bounds import quick_bounds
from solvers.instances.table import make
from solvers.milp.formulations import FORMULATIONS, MakespanLimits, formulate
from solvers.milp.paper import rows
from solvers.structure.units import serial

STUB = Path(__file__).resolve().parent / "stubs" / "late_cpsat.py"
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
    monkeypatch.setattr(MakespanLimits, "check", lambda _: clock())
    return clock


def program(formulation):
    limits = MakespanLimits(least=quick_bounds.best(GRID)[0], most=serial(GRID))
    return formulate(GRID, formulation, limits).linear


def whole(linear):
    """[r, c + 2] the rows with their bounds, in an order that depends on these alone."""
    dense = np.zeros((len(linear.row_lower), linear.columns + 2))
    dense[:, 0], dense[:, 1] = linear.row_lower, linear.row_upper
    for row in range(len(dense)):
        at = slice(linear.offset[row], linear.offset[row + 1])
        dense[row, 2 + linear.column[at]] = linear.coefficient[at]
    return dense[np.lexsort(dense.T)]


@pytest.mark.parametrize(
    "formulation", [pytest.param(name, marks=[pytest.mark.slow] * (name == "pulp")) for name in FORMULATIONS]
)
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


@pytest.mark.slow
def test_rows_in_blocks_are_the_same_rows(clock, monkeypatch) -> None:
    """The paper's program in blocks of 5 pairs in place of 32 768: other looks, the same program."""
    at_once, looks = whole(program("paper")), clock.looks
    clock.looks = 0
    monkeypatch.setattr(rows, "_BLOCK", 5)
    assert np.array_equal(whole(program("paper")), at_once)
    assert clock.looks > 2 * looks


def test_cp_sat_s_models_are_given_up() -> None:
    """Where CP-SAT is alone: beside TensorFlow it crashes."""
    done = subprocess.run([sys.executable, STUB], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["given_up", "too_large", "windows"]), done.stderr
