"""Labelling problems by other ways than the product's: enumeration, the paper's dynamic program, and critical paths."""

from itertools import product

import numpy as np

from solvers.labels.critical import by_paths
from solvers.labels.factor_graph import NEVER, FactorGraph
from solvers.labels.label_methods import solve
from solvers.labels.labelling import FORBIDDEN, Labelling


def value_of(problem: Labelling, labels) -> int | None:
    """Return the cost of labels, one variable and one edge at a time; None where something is forbidden."""
    costs = [problem.unary[problem.first[v] + label] for v, label in enumerate(labels)]
    for a, b, table in zip(problem.a, problem.b, problem.table, strict=True):
        costs.append(problem.costs[problem.begin[table] + labels[a] * problem.labels[b] + labels[b]])
    return None if FORBIDDEN in costs else int(sum(costs))


def net_value(net: FactorGraph, labels) -> int:
    """Return the cost of labels of a net; NEVER or more if one is forbidden."""
    pairs = net.begin[:-1] + labels[net.a] * np.diff(net.first)[net.b] + labels[net.b]
    own, both = net.cost[net.first[:-1] + labels], net.table[pairs]
    if (own >= NEVER).any() or (both >= NEVER).any():
        return NEVER
    return int(own.sum()) + int(both.sum())


def least_value(problem: Labelling) -> int | None:
    """Return the least cost of all combinations of labels; None where all are forbidden."""
    values = (value_of(problem, labels) for labels in product(*map(range, problem.labels)))
    return min((value for value in values if value is not None), default=None)


def chain_value(problem: Labelling) -> int:
    """Return the least cost of a chain 0 - 1 - ... - n - 1 without anything forbidden, from its start on."""
    unary = [problem.unary[i:j] for i, j in zip(problem.first[:-1], problem.first[1:], strict=True)]
    best = unary[0]
    for a, b, table in zip(problem.a, problem.b, problem.table, strict=True):
        assert b == a + 1
        costs = problem.costs[problem.begin[table] : problem.begin[table + 1]].reshape(len(unary[a]), len(unary[b]))
        best = (best[:, None] + costs).min(axis=0) + unary[b]
    return int(best.min())


def critical_labels(problem: Labelling):
    """Return labels by CriticalDP (Tofu, section 4.2.2): each variable a group, an edge as long as its dearest pair."""
    dearest = [problem.costs[i:j].max() for i, j in zip(problem.begin[:-1], problem.begin[1:], strict=True)]
    length = np.array(dearest, dtype=np.int64)[problem.table]
    return by_paths(problem, np.arange(problem.variables), length, lambda part: solve(part, "exact").labels)
