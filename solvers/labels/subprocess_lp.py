"""The reduced problem solved in a process of its own (`solvers.process.one_shot`).

HiGHS looks at its clock too seldom in a linear program, an interpreter that ends while HiGHS works is aborted, and
other packages bring a HiGHS of their own, beside which it cannot be loaded. Arrays go in and out as npz over pipes.
"""

import io
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.labels.factor_graph import FactorGraph
from solvers.process.one_shot import answered
from solvers.result import wall_limit_s

GRACE_S = 1.0
"""Seconds past the limit after which the process is killed: starting it is part of the limit."""
START_S = 3.0
"""Seconds that the process has in any case: starting takes half a second of a core, some 3 s on a busy machine."""
_ALARM_S = 5.0
"""Seconds past the grace after which a process ends by itself, where the one that asked was killed."""
CLOCK: Callable[[], float] = time.monotonic
"""Returns the seconds that the limit is counted in; it is the same in all processes of a machine."""


class LabelLimits(NamedTuple):
    """The limit of a run."""

    seconds: float
    threads: int = 1
    deterministic: bool = False
    """True if the seconds stand for work, which the solver counts in a measure of its own, and not for the clock."""
    began: float = 0.0
    """Reading of CLOCK from which the seconds are counted; set where the process is asked."""

    @property
    def wall_s(self) -> float:
        """Seconds after which the clock ends the run."""
        return wall_limit_s(self.seconds, deterministic=self.deterministic)

    @property
    def left_s(self) -> float:
        """Seconds until the clock ends the run, a tenth at least."""
        return max(0.1, self.began + self.wall_s - CLOCK())


@dataclass(frozen=True, slots=True)
class RelaxationResult:
    """Labels and bound of the reduced problem."""

    labels: Ints | None
    """[r] a label for each; None where none was found."""
    bound: int
    """No labels cost less; by the solver's word."""
    ended: bool
    """True if the solver ended within the limit."""
    fractional: int
    """Labels that were neither taken nor left in the optimum of the linear program."""
    infeasible: bool = False


PROGRAM = "solvers.labels.relaxation"
"""The module that is run."""


def relaxed_apart(net: FactorGraph, budget: LabelLimits) -> RelaxationResult:
    """Solve the reduced problem in a subprocess; no labels if the limit struck. RuntimeError if the process failed."""
    given, budget = io.BytesIO(), budget._replace(began=CLOCK())
    np.savez(given, **budget._asdict(), **net._asdict())
    patience_s = max(budget.wall_s + GRACE_S, START_S)
    answer = answered(PROGRAM, given.getvalue(), patience_s, solver="HiGHS")
    if answer is None:
        return RelaxationResult(None, 0, ended=False, fractional=0)
    result = np.load(io.BytesIO(answer), allow_pickle=False)
    labels = result["labels"] if result["answered"] else None
    return RelaxationResult(
        labels, int(result["bound"]), ended=bool(result["ended"]), fractional=int(result["fractional"]),
        infeasible=bool(result["infeasible"]),
    )  # fmt: skip


def serve(solve: Callable[[FactorGraph, LabelLimits], RelaxationResult]) -> None:
    """Solve what is on standard input, tell it on standard output, and end, though the solver may still be at work."""
    given = np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False)
    budget = LabelLimits(
        float(given["seconds"]), int(given["threads"]), bool(given["deterministic"]), float(given["began"])
    )
    signal.alarm(int(budget.wall_s + GRACE_S + _ALARM_S) + 1)  # the process that asked may have been killed
    result = solve(FactorGraph(*(given[name] for name in FactorGraph._fields)), budget)
    answer = io.BytesIO()
    labels = np.zeros(0, dtype=np.int64) if result.labels is None else result.labels
    np.savez(
        answer, labels=labels, answered=result.labels is not None, bound=result.bound, ended=result.ended,
        fractional=result.fractional, infeasible=result.infeasible,
    )  # fmt: skip
    sys.stdout.buffer.write(answer.getvalue())
    sys.stdout.buffer.flush()
    os._exit(0)
