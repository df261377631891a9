"""Ticks that suit CP-SAT: a problem in coarser ticks, and what its bounds say about the original.

Every duration and transfer is divided by one factor f and rounded up, so each schedule of the scaled problem is, times
f, a schedule of the original, idle time added. Its bound is not a bound of the original: with the placement and orders
of an optimal original schedule, the scaled makespan is a longest path of distinct activities, each at most its own
rounding too long. So, with e the sum of the largest rounding of every task and of every transfer that there can be,
optimum >= f * scaled bound - e. Where f divides everything, as the common divisor does, e is 0.
"""

from dataclasses import dataclass, replace

import numpy as np

from solvers.memory.usage import fits
from solvers.problem import FORBIDDEN, Problem
from solvers.schedule import Schedule
from solvers.structure.paths import longest, serial
from solvers.timing.rebuild import rebuild

HORIZON = 1_000_000_000
"""Scaled ticks that a schedule may take: a second of nanoseconds is exact, so that optimality can be proven. Coarser
ticks gain nothing: with 1e5, 1e7 and 1e10, ten seconds on problems of 30 and 48 tasks find and prove about the same."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaled:
    """A problem in ticks of `factor` original ticks."""

    problem: Problem
    factor: int
    rounding: int
    """Original ticks by which factor * optimum of the scaled problem can exceed the original optimum."""
    horizon: int
    """Scaled ticks within which some optimal schedule of the scaled problem ends."""

    def bound(self, scaled: int) -> int:
        """Return the lower bound on the original makespan, in its ticks, that `scaled` proves."""
        return max(0, scaled * self.factor - self.rounding)

    def full(self, problem: Problem, scaled: Schedule) -> Schedule:
        """A valid scaled schedule at its own times, in the original ticks: no activity starts earlier or ends later."""
        origin = problem.location[scaled.device[problem.producer[scaled.sent_payload]]]
        ticks = problem.transfer[scaled.sent_payload, problem.path_class[origin, scaled.sent_to]]
        start, sent = scaled.start * self.factor, scaled.sent_start * self.factor
        finish = start + problem.duration[np.arange(problem.tasks), scaled.device]
        return replace(scaled, start=start, finish=finish, sent_start=sent, sent_finish=sent + ticks)

    def coarse(self, schedule: Schedule) -> Schedule | None:
        """A valid scaled schedule with the devices and orders of a valid original one; None where it may not fit.

        As early as may be; one that has to wait for memory keeps its times where the factor divides every activity.
        """
        early = rebuild(self.problem, schedule)
        if fits(self.problem, early):
            return early
        if self.rounding:
            return None
        return Schedule(
            device=schedule.device,
            sent_payload=schedule.sent_payload,
            sent_to=schedule.sent_to,
            **{
                name: getattr(schedule, name) // self.factor
                for name in ("start", "finish", "sent_start", "sent_finish")
            },
        )

    def at_least(self, bound: int) -> int:
        """Return the scaled makespan below which no schedule can be, given a `bound` on the original."""
        return -(-bound // self.factor)


def scale(problem: Problem, start: Schedule | None, horizon: int) -> Scaled:
    """The problem scaled so that `start`, or without one a serial schedule, takes about `horizon` ticks at most."""
    duration, transfer = problem.duration, problem.transfer
    exact = max(1, int(np.gcd.reduce(np.concatenate([duration[problem.allowed], transfer.ravel()]), initial=0)))
    most = serial(problem) if start is None else start.makespan
    factor = exact * max(1, -(-most // (exact * horizon)))
    scaled = replace(
        problem, duration=np.where(problem.allowed, -(-duration // factor), FORBIDDEN), transfer=-(-transfer // factor)
    )
    rounding = longest(problem, np.where(problem.allowed, -problem.duration % factor, 0), -problem.transfer % factor)
    return Scaled(problem=scaled, factor=factor, rounding=rounding, horizon=serial(scaled))
