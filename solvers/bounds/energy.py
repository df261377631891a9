"""Energetic reasoning: the work that windows force into an interval, against what the devices can do there.

A task with head r and latest finish d that runs for p ticks is busy, in every schedule, for at least

    min(p, b - a, r + p - a, b - d + p)        ticks within [a, b],

the least of what it does there when it runs as early and as late as it can. So of weights y of the devices it takes the
least of y times that over the devices where it can be, and the sum over all tasks is at most sum(y) (b - a) (Erschler
and Lopez 1990; Baptiste, Le Pape and Nuijten 1999). O(n^2) intervals are looked at: from an earliest or latest start to
an earliest or latest finish.
"""

import numpy as np

from solvers.arrays import Ints
from solvers.bounds.loads import device_weights
from solvers.bounds.schedule_facts import ScheduleFacts
from solvers.compiled.kernels import routine
from solvers.problem import FORBIDDEN

MOST = 400
"""Tasks at most: O(n^3 m)."""


def overloaded(known: ScheduleFacts) -> bool:
    """Return True if an interval holds more work than the devices can do: a proof that no schedule is so short."""
    p = known.problem
    if p.tasks > MOST:
        return False
    able = p.allowed & known.able[:, p.location]
    head, took, finish = known.head, known.took, known.upper - known.tail
    starts, ends = np.unique([head, finish - took]), np.unique([finish, head + took])
    for weight in device_weights(p, known.paths):
        # Whoever can be where it weighs nothing may weigh nothing.
        confined = (took > 0) & ~(able & (weight == 0)).any(axis=1)
        ticks = np.where(able, p.duration, FORBIDDEN)[confined][:, weight > 0]
        alike = np.unique(np.vstack([weight[weight > 0], ticks]), axis=1)
        jobs = (head[confined], finish[confined], np.ascontiguousarray(alike[1:]))
        if len(ticks) and _overloaded(jobs, np.ascontiguousarray(alike[0]), (starts, ends), int(weight.sum())):
            return True
    return False


@routine
def _overloaded(jobs: tuple[Ints, Ints, Ints], weight: Ints, times: tuple[Ints, Ints], total: int) -> bool:
    for a in times[0]:
        for b in times[1]:
            if b > a and _need(jobs, weight, a, b, total * (b - a)):
                return True
    return False


@routine
def _need(jobs: tuple[Ints, Ints, Ints], weight: Ints, a: int, b: int, most: int) -> bool:
    """Return True if more than `most` is needed within [a, b]."""
    head, finish, ticks = jobs
    need = 0
    for x in range(len(head)):
        if head[x] >= b or finish[x] <= a:
            continue
        least = most + 1
        for device in range(len(weight)):
            took = ticks[x, device]
            if took >= 0:
                inside = max(0, min(took, b - a, head[x] + took - a, b - finish[x] + took))
                least = min(least, weight[device] * inside)
        need += least
        # Most intervals are far from full or far too full: the sum is given up as soon as it decides.
        if need > most:
            return True
    return False
