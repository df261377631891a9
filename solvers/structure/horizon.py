"""The length of a schedule that does one thing at a time: a horizon that some optimal schedule keeps."""

import numpy as np

from solvers.arrays import Ints
from solvers.problem import Problem


def serial(problem: Problem) -> int:
    """Ticks of one activity at a time, each as slow as it can be: an optimum never takes longer."""
    return longest(problem, problem.duration, problem.transfer)


def longest(problem: Problem, duration: Ints, transfer: Ints) -> int:
    """The sum of the largest of every row, a transfer's for every target; in Python's integers, which do not overflow.

    `duration` [n, m] and `transfer` [p, c], of which negative entries count as 0.
    """
    crossings = zip(targets(problem).tolist(), transfer.max(axis=1, initial=0).tolist(), strict=True)
    return sum(duration.max(axis=1, initial=0).tolist()) + sum(times * ticks for times, ticks in crossings)


def targets(problem: Problem) -> Ints:
    """[p] locations that each payload may cross to, at most."""
    distinct = np.unique(np.stack([problem.payload, problem.dst]), axis=1)[0]
    consumers = np.bincount(distinct[distinct >= 0], minlength=problem.payloads)
    return np.minimum(consumers, max(0, problem.locations - 1)).astype(np.int64)
