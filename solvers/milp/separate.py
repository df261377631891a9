"""Programs whose disjunctions are separated: solved without, then with those that the optimum breaks, until none is.

Each program in the row has the same columns and more rows, so that points, starts and bounds of one hold for all, and
what a vendor finds on the way is a schedule once it is rebuilt.
"""

import time
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from solvers.arrays import Floats
from solvers.milp.formulations import IntegerProgram
from solvers.milp.linear import Linear
from solvers.milp.vendor import RunRequest, Vendor, VendorListener, VendorOutcome
from solvers.result import Limit, Status


@runtime_checkable
class Separable(IntegerProgram, Protocol):
    """A program some of whose rows can wait until a point breaks them."""

    @property
    def lean(self) -> Linear:
        """The program without these rows: same columns, same cost."""
        ...

    def separated(self, values: Floats) -> "Separable | None":
        """The same program, whose lean one has the rows that an integer point [c] breaks; None when it breaks none."""
        ...


def with_rows(linear: Linear, more: Linear) -> Linear:
    """A program with the rows of another; the columns are those of the first."""
    return replace(
        linear,
        offset=np.concatenate([linear.offset, linear.offset[-1] + more.offset[1:]]),
        column=np.concatenate([linear.column, more.column]),
        coefficient=np.concatenate([linear.coefficient, more.coefficient]),
        row_lower=np.concatenate([linear.row_lower, more.row_lower]),
        row_upper=np.concatenate([linear.row_upper, more.row_upper]),
    )


def run_program(run: Vendor, program: IntegerProgram, ask: RunRequest, hear: VendorListener) -> VendorOutcome:
    """Run a vendor on a program, again and again where it is separable; optimal only when nothing is broken.

    All runs together keep the seconds of `ask`; of a finite effort each run gets half of what is left.
    """
    deadline, effort = time.monotonic() + ask.seconds, ask.effort
    while True:
        if not isinstance(program, Separable):
            return run(program.linear, ask, hear)
        effort /= 2
        outcome = run(program.lean, replace(ask, effort=effort), hear)
        if outcome.status is not Status.OPTIMAL or outcome.values is None:
            return outcome
        tighter = program.separated(outcome.values)
        if tighter is None or hear.enough:
            return outcome
        hear.incumbent(outcome.values)
        hear.bound(outcome.bound)
        left = deadline - time.monotonic()
        if left <= 0:
            return replace(outcome, status=Status.FEASIBLE, limit=Limit.TIME)
        program, ask = tighter, replace(ask, seconds=left)
