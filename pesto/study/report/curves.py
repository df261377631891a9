"""Gaps as step functions of time, their means over runs and their integrals. Nothing but numpy.

A set of runs is two arrays of one entry an event, sorted by run and then by time: `run` (index) and `seconds`; a third
array is the value that holds from the event on until the next event of the run. Before its first event a run has
the value 1: nothing is known.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def gap(makespan: Floats, bound: Floats) -> Floats:
    """(makespan - bound) / makespan, elementwise and within [0, 1]; 1 where the makespan is NaN: no schedule.

    The primal-dual gap relative to the larger of the two (as Berthold 2013), which for a makespan >= bound
    is the gap that this project states everywhere. 0/0 is 0; a bound that is NaN counts as 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = (makespan - np.nan_to_num(bound, nan=0.0)) / makespan
    return np.where(np.isnan(makespan), 1.0, np.where(makespan == 0, 0.0, np.clip(relative, 0.0, 1.0)))


def primal_gap(makespan: Floats, best: Floats) -> Floats:
    """|best - makespan| / max(best, makespan), elementwise; 1 where there is no schedule (Berthold 2013).

    `best` is the best makespan known for the run's problem. 0 where both are equal, 0/0 included; 1 where either is
    NaN.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.abs(best - makespan) / np.maximum(best, makespan)
    found = ~(np.isnan(makespan) | np.isnan(best))
    return np.where(found, np.where(best == makespan, 0.0, relative), 1.0)


def lowest_so_far(run: Ints, value: Ints) -> Ints:
    """The least value of the same run up to each event; exact for every int64."""
    distinct, rank = np.unique(value, return_inverse=True)
    # Each run's ranks lie below all of the runs before it, so one running minimum serves all and starts afresh.
    base = run * len(distinct)
    return np.asarray(distinct[np.minimum.accumulate(rank - base) + base], dtype=np.int64)


def integral(run: Ints, seconds: Floats, value: Floats, horizon: Floats) -> Floats:
    """The integral of each run's step function from 0 to its horizon, seconds; shape of `horizon`: one entry a run.

    With `primal_gap` values it is the primal integral P(T) (Berthold 2013, Measuring the impact of primal
    heuristics): the less, the sooner good schedules came; T, a run without any, is the worst. Events past the
    horizon do not count.
    """
    begin = np.minimum(seconds, horizon[run])
    last = np.append(run[1:] != run[:-1], True)[: len(run)]
    end = np.where(last, horizon[run], np.append(begin[1:], 0.0)[: len(run)])
    total = np.bincount(run, weights=value * (end - begin), minlength=len(horizon))
    first = np.full(len(horizon), np.inf)
    np.minimum.at(first, run, begin)
    return np.asarray(total + np.minimum(first, horizon))


def mean_steps(run: Ints, seconds: Floats, value: Floats, runs: int) -> tuple[Floats, Floats]:
    """The mean over `runs` runs of their step functions, itself one: (seconds, mean), from second 0 on.

    Times are distinct and ascending; mean[k] holds from seconds[k] until seconds[k + 1]. ValueError without a run.
    """
    if runs < 1:
        raise ValueError("a mean needs a run")
    fresh = np.append(True, run[1:] != run[:-1])[: len(run)]
    before = np.where(fresh, 1.0, np.append(0.0, value[:-1])[: len(run)])
    order = np.argsort(seconds, kind="stable")
    times = np.append(0.0, seconds[order])
    means = 1.0 + np.append(0.0, np.cumsum((value - before)[order])) / runs
    final = np.append(times[1:] != times[:-1], True)
    return times[final], np.clip(means[final], 0.0, 1.0)


def at(times: Floats, values: Floats, when: Floats) -> Floats:
    """The step function (times, values) at each of `when`, none of which lies before times[0]."""
    return np.asarray(values[np.searchsorted(times, when, side="right") - 1])


def integral_until(times: Floats, values: Floats, when: Floats) -> Floats:
    """The integral of the step function (times, values) from times[0] to each of `when`."""
    whole = np.append(0.0, np.cumsum(values[:-1] * np.diff(times)))
    piece = np.searchsorted(times, when, side="right") - 1
    return np.asarray(whole[piece] + values[piece] * (when - times[piece]))
