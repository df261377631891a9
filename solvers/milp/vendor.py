"""Interface to MILP vendors: request, listener, outcome and the relay of callbacks; an adapter implements one function.

A `Separable` program's disjunctions are separated: it is solved without them, then with those that the optimum breaks,
until none is. Each program in the row has the same columns and more rows, so that points, starts and bounds of one hold
for all, and what a vendor finds on the way is a schedule once it is rebuilt.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from solvers.arrays import Floats
from solvers.milp.formulations import IntegerProgram
from solvers.milp.linear import Linear
from solvers.result import Limit, Status


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunRequest:
    """The settings of one run."""

    seconds: float
    """Wall-clock limit in seconds."""
    gap: float
    """Stop at a relative gap (objective - bound) / objective of at most this."""
    seed: int
    threads: int
    start: Floats | None
    """[c] a feasible point; the vendor's first incumbent."""
    effort: float = math.inf
    """For a run that can be repeated: stop after the work that a vendor does in about so many seconds, in a measure
    of its own (iterations, nodes) that no clock enters."""


class VendorListener(Protocol):
    """Listener for results of a running vendor; may be called from any thread."""

    @property
    def enough(self) -> bool:
        """True if what was told suffices, so that the vendor may end."""
        ...

    def incumbent(self, values: Floats) -> None:
        """A feasible point [c] that the vendor has found."""
        ...

    def bound(self, objective: float) -> None:
        """A lower bound on the objective that the vendor has proven; infinite values are ignored."""
        ...

    def line(self, text: str) -> None:
        """A line of the vendor's own log."""
        ...


class LastIncumbent:
    """A listener that keeps the latest point, in case the outcome is without it."""

    enough = False

    def __init__(self) -> None:
        self.values: Floats | None = None

    def incumbent(self, values: Floats) -> None:
        """Keep the point."""
        self.values = values

    def bound(self, objective: float) -> None:
        """Ignore the bound."""

    def line(self, text: str) -> None:
        """Ignore the line."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VendorOutcome:
    """The vendor's own result at the end of a run."""

    status: Status
    """OPTIMAL, FEASIBLE, INFEASIBLE or UNKNOWN."""
    limit: Limit
    values: Floats | None
    """[c] its best feasible point, None when it has none."""
    bound: float
    """Its lower bound on the objective, -inf when it has none."""
    detail: str = ""
    left: bool = False
    """True if it was no longer waited for, and may still be at work in this process."""


class Vendor(Protocol):
    """Runs one vendor's solver on a program, within the limit of `ask`."""

    def __call__(self, linear: Linear, ask: RunRequest, hear: VendorListener) -> VendorOutcome:
        """The outcome, in the vendor's own words; RuntimeError when the vendor refuses the program."""
        ...


def iterations(linear: Linear, effort: float) -> float:
    """Simplex iterations that stand for so many seconds of `RunRequest.effort`: about a quarter of an idle core's.

    Measured with HiGHS and SCIP on disjunctive programs of 500 to 43 000 entries: 14 000 a second on the smallest, half
    as many at 6 000 entries, and in inverse proportion beyond.
    """
    return effort * 3_500.0 / (1.0 + len(linear.column) / 6_000.0)


def ended(status: Status, limit: Limit, values: Floats | None, bound: float) -> VendorOutcome:
    """Return the outcome whose status fits what there is: feasible or unknown where no proof was made."""
    if status is Status.INFEASIBLE or (status is Status.OPTIMAL and values is not None):
        limit = Limit.NONE
    else:
        status = Status.UNKNOWN if values is None else Status.FEASIBLE
    return VendorOutcome(status=status, limit=limit, values=values, bound=bound)


LOST = "did not end at its limit: what it had found by then, and not told, is lost"
"""The detail of an outcome without what the vendor has found."""


def left_behind(bound: float) -> VendorOutcome:
    """The outcome of a vendor that tells what it finds, did not end at its limit and was no longer waited for."""
    detail = "did not end at its limit, and was left behind with all that it had told"
    return VendorOutcome(status=Status.UNKNOWN, limit=Limit.TIME, values=None, bound=bound, detail=detail, left=True)


def no_optimum(linear: Linear) -> VendorOutcome:
    """The outcome where the vendor says "infeasible or unbounded": the former where the cost has a least value."""
    dear = linear.cost != 0.0
    least = np.where(linear.cost > 0.0, linear.lower, linear.upper)[dear]
    if np.isfinite(least).all():
        return VendorOutcome(status=Status.INFEASIBLE, limit=Limit.NONE, values=None, bound=math.inf)
    detail = "the program is infeasible or its objective has no least value"
    return VendorOutcome(status=Status.UNKNOWN, limit=Limit.OTHER, values=None, bound=-math.inf, detail=detail)


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
    """Return a program with the rows of another; the columns are those of the first."""
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


NO_BOUND = 1e19
"""Vendors write 1e20 or more for an infinite bound."""

GRACE_S = 2.0
"""Seconds past its limit after which a vendor is no longer waited for."""


class CallbackRelay:
    """Stands between a vendor's callbacks and `hear`: nothing is raised into native code, and `stop` says when to end.

    What `hear` raises is kept for `check`; after it nothing more is told. `ask.seconds` are counted from here.
    """

    def __init__(self, ask: RunRequest, hear: VendorListener) -> None:
        self._hear, self._deadline = hear, time.monotonic() + ask.seconds
        self._raised: BaseException | None = None
        self._pending, self._bound = "", -NO_BOUND
        self._lock = threading.Lock()

    @property
    def remaining(self) -> float:
        """Seconds left, at least a millisecond: a vendor may take 0 for no limit."""
        return max(0.001, self._deadline - time.monotonic())

    @property
    def overdue(self) -> float:
        """Seconds past the limit, negative before."""
        return time.monotonic() - self._deadline

    @property
    def done(self) -> bool:
        """True if nobody hears the vendor any more, or wants to hear more."""
        return self._raised is not None or self._hear.enough

    @property
    def stop(self) -> bool:
        """True if the vendor should end: it is done, or the time is up."""
        return self.done or self.overdue >= 0

    @property
    def best_bound(self) -> float:
        """The best bound told, -inf before the first."""
        return self._bound if self._bound > -NO_BOUND else -math.inf

    def incumbent(self, values: Floats) -> None:
        """Tell of a point [c]; the array may be reused by the vendor afterwards."""
        self._tell(partial(self._hear.incumbent, np.array(values, dtype=np.float64)))

    def bound(self, objective: float) -> None:
        """Tell of a lower bound that is better than all before."""
        if self._bound < objective < NO_BOUND:
            self._bound = objective
            self._tell(partial(self._hear.bound, objective))

    def write(self, text: str) -> list[str]:
        """Take in a piece of the vendor's log; tell of the lines that it completes, and return them."""
        with self._lock:
            *lines, self._pending = (self._pending + text).split("\n")
        for line in lines:
            self._tell(partial(self._hear.line, line))
        return lines

    def flush(self) -> None:
        """Hold nothing back: with `write`, this makes a stream of the relay."""

    def ends(self, call: Callable[[], object]) -> bool:
        """Run a native call in a thread of its own: whether it has ended by GRACE_S after the limit.

        For vendors that look at their clock too seldom. One that has not ended is left to itself and heard no more;
        what it works on must not be touched again, and goes with the process. Raises what the call or `hear` raises.
        """
        thread = threading.Thread(target=self._tell, args=(call,), daemon=True)
        thread.start()
        while thread.is_alive() and self.overdue < GRACE_S:
            thread.join(max(0.01, min(GRACE_S - self.overdue, 3600.0)))
        if thread.is_alive():
            self._raised = TimeoutError("the vendor was left to itself")
            return False
        self.check()
        return True

    def check(self) -> None:
        """Raise what `hear` has raised, if anything; tell of a last line that has no end."""
        if self._pending:
            self.write("\n")
        if self._raised is not None:
            raise self._raised

    def _tell(self, tell: Callable[[], object]) -> None:
        if self._raised is None:
            try:
                tell()
            except BaseException as error:  # raised again by `check`, beyond the native code
                self._raised = error
