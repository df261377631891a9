"""Labels whose weights sum to so much at most: the bound, the optimum by enumeration, and what is found."""

from contextlib import suppress
from itertools import product

import numpy as np

from solvers.labels.labelling import FORBIDDEN, Builder, judge
from solvers.labels.limited import limited
from solvers.result import Status


def random_problem(seed):
    """A chain of up to six variables with some more edges, and weights of the labels of some."""
    rng = np.random.default_rng(seed)
    n, made = int(rng.integers(2, 7)), Builder()
    many = rng.integers(2, 4, size=n)
    for count in many:
        made.variable(rng.integers(0, 20, size=count).tolist())
    for b in range(1, n):
        for a in {b - 1, int(rng.integers(0, b))}:
            table = rng.integers(0, 20, size=(many[a], many[b]))
            made.edge(a, b, np.where(rng.random(table.shape) < 0.2 * (seed % 2), FORBIDDEN, table).tolist())
    weight = rng.integers(0, 9, size=int(many.sum())) * np.repeat(rng.integers(0, 2, size=n), many)
    return made.build(), weight


def enumerated(problem, weight):
    """(weight, value) of all labels that are allowed."""
    found = []
    for labels in map(np.array, product(*map(range, problem.labels.tolist()))):
        with suppress(ValueError):
            found.append((int(weight[problem.first[:-1] + labels].sum()), judge(problem, labels)))
    return found


def test_bound_optimum_value() -> None:
    """At every limit: no bound above the optimum, labels within the limit, optimal is; else by how much."""
    optimal, within, above, exact = 0, 0, 0, 0
    for seed in range(40):
        problem, weight = random_problem(seed)
        points = enumerated(problem, weight)
        weights = sorted({w for w, _ in points})
        if not weights:
            assert limited(problem, weight, 10**6, seconds=10).answer.status is Status.INFEASIBLE
            continue
        for at_most in (weights[0] - 1, weights[0], weights[len(weights) // 3], weights[-1] + 1):
            found, least = limited(problem, weight, at_most, seconds=10)
            if at_most < weights[0]:
                assert found.status is Status.INFEASIBLE and at_most < least <= weights[0]
                exact += least == weights[0]
                continue
            best = min(value for w, value in points if w <= at_most)
            assert least is None and found.bound <= best <= found.value == judge(problem, found.labels)
            assert weight[problem.first[:-1] + found.labels].sum() <= at_most
            assert (found.status is Status.OPTIMAL) == (found.bound == found.value)
            optimal, within, above = optimal + (found.value == best), within + 1, above + found.value - best
    assert optimal > 0.8 * within and above < 2 * within and exact > 30
