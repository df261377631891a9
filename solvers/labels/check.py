"""Independent evaluation of labels: feasibility and cost in plain numpy, without code of any solver."""

import numpy as np
import numpy.typing as npt

from solvers.arrays import ints
from solvers.labels.labelling import FORBIDDEN, Labelling


def judge(problem: Labelling, labels: npt.ArrayLike) -> int:
    """The value of [n] labels. ValueError, naming the first offender, for what is out of range or forbidden."""
    chosen = ints(labels)
    if chosen.shape != (problem.variables,):
        raise ValueError(f"labels have shape {chosen.shape}, and there are {problem.variables} variables")
    wrong = np.flatnonzero((chosen < 0) | (chosen >= problem.labels))
    if len(wrong):
        raise ValueError(f"label {chosen[wrong[0]]} of variable {wrong[0]} is out of range")
    own = problem.unary[problem.first[:-1] + chosen]
    wrong = np.flatnonzero(own == FORBIDDEN)
    if len(wrong):
        raise ValueError(f"label {chosen[wrong[0]]} of variable {wrong[0]} is forbidden")
    columns = problem.labels[problem.b]
    pairs = problem.costs[problem.begin[problem.table] + chosen[problem.a] * columns + chosen[problem.b]]
    wrong = np.flatnonzero(pairs == FORBIDDEN)
    if len(wrong):
        a, b = problem.a[wrong[0]], problem.b[wrong[0]]
        raise ValueError(f"labels {chosen[a]} and {chosen[b]} of variables {a} and {b} are forbidden together")
    return int(own.sum()) + int(pairs.sum())
