"""The arithmetic of a report: gaps as step functions of time, performance profiles, means. Nothing but numpy.

A set of runs is two arrays of one entry an event, sorted by run and then by time: `run` (index) and `seconds`; a third
array is the value that holds from the event on until the next event of the run. Before its first event a run has
the value 1: nothing is known.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHIFT_S = 1.0
"""The shift of the geometric mean of running times, seconds."""
LEAST_S = 1e-3
"""Running times below this are taken as this: a ratio of two unmeasurably short times says nothing."""


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
    result = ~(np.isnan(makespan) | np.isnan(best))
    return np.where(result, np.where(best == makespan, 0.0, relative), 1.0)


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


def ratios(cost: Floats) -> Floats:
    """Performance ratios r[p, s] = cost[p, s] / min over s of cost[p, s] (Dolan and Moré 2002, section 2).

    cost has the shape problems x solvers, all >= 0, infinite where solver s has no answer to problem p: there the
    ratio is infinite too, and so it is in the whole row of a problem that nobody answers. 0/0 is 1.
    ValueError for negative costs and NaN.
    """
    if np.isnan(cost).any() or (cost < 0).any():
        raise ValueError("a cost is a number >= 0, infinite for none")
    best = cost.min(axis=1, initial=np.inf, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = cost / best
    ratio[np.isinf(cost)] = np.inf
    ratio[(cost == 0) & (best == 0)] = 1.0
    return ratio


def profile(ratio: Floats) -> tuple[Floats, Floats]:
    """The performance profile of one solver from its column of `ratios`: rho(tau) = |{p: r[p] <= tau}| / problems.

    Returns (tau, rho), the corners of this right-continuous step function: rho[k] holds from tau[k] up to tau[k + 1],
    the last one for ever; tau[0] is 1. What is missing to 1 at the end is the share of problems without an answer.
    ValueError without a problem.
    """
    if not len(ratio):
        raise ValueError("a profile needs a problem")
    finite = ratio[np.isfinite(ratio)]
    tau = np.unique(np.append(finite, 1.0))
    return tau, np.searchsorted(np.sort(finite), tau, side="right") / len(ratio)


def shifted_geometric_mean(values: Floats, shift: float = SHIFT_S) -> float:
    """exp(mean(ln(v + shift))) - shift (Achterberg 2007, appendix A): neither the easy nor the hard problems rule it.

    ValueError without a value, or when a value is below minus the shift.
    """
    if not len(values) or not (values + shift > 0).all():
        raise ValueError("a shifted geometric mean needs values above minus the shift")
    return float(np.exp(np.log(values + shift).mean()) - shift)
