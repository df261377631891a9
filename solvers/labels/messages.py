"""A bound by messages: sequential tree-reweighted message passing (TRW-S; Kolmogorov, PAMI 2006), in whole numbers.

Every pass reparametrises the problem, and what variables and edges cost at least in it sums to a bound. All of it is
integer arithmetic, so the bound holds whatever is rounded or cut off; forbidden pairs cost more than all others.
"""

import time
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, offsets
from solvers.compiled.kernels import routine, subroutine
from solvers.labels.labelling import FORBIDDEN, Labelling, most

_ROOM = 2**56
"""Upper limit of the sum of a variable's costs and the messages to it."""
_STILL = 1e-5
"""Share of the bound by which passes must raise it, or they end."""
_PATIENCE = 12
"""Passes that may raise it by less."""


class MessageResult(NamedTuple):
    """Bound and labels after some passes."""

    labels: Ints | None
    """[n] the best labels met that are allowed."""
    bound: int
    """No labels cost less."""
    passes: int


class _Graph(NamedTuple):
    """Edges from a lower to a higher variable, by variable; tables are shared."""

    first: Ints
    cost: Ints
    low: Ints
    """[m] the lower variable of each edge."""
    high: Ints
    """[m] the higher."""
    begin: Ints
    """[m] where its table begins in `table`."""
    step: Ints
    """[m] how far apart the labels of the lower one lie in it."""
    stride: Ints
    """[m] how far apart those of the higher one."""
    table: Ints
    offset: Ints
    """[n + 1] where each variable's edges begin in `edge`."""
    edge: Ints
    to_low: Ints
    """[m] where the messages to the lower one begin; those to the higher are in `to_high`."""
    to_high: Ints
    message: Ints


def pass_messages(problem: Labelling, seconds: float, most_passes: int = 1000) -> MessageResult:
    """Pass messages until the bound stands still, or the time is over."""
    ends = time.perf_counter() + seconds
    dear = most(problem) + 1
    scale = max(1, min(64, _ROOM // (8 * dear)))
    swapped = problem.a > problem.b
    columns = problem.labels[problem.b]
    low, high = np.where(swapped, problem.b, problem.a), np.where(swapped, problem.a, problem.b)
    both = np.stack([low, high], axis=1).reshape(-1)
    room = offsets(np.stack([problem.labels[low], problem.labels[high]], axis=1).reshape(-1))
    graph = _Graph(
        first=np.array(problem.first), cost=np.where(problem.unary == FORBIDDEN, dear, problem.unary) * scale,
        low=low, high=high, begin=problem.begin[problem.table],
        step=np.where(swapped, 1, columns), stride=np.where(swapped, columns, 1),
        table=np.where(problem.costs == FORBIDDEN, dear, problem.costs) * scale,
        offset=offsets(np.bincount(both, minlength=problem.variables)), edge=np.argsort(both, kind="stable") // 2,
        to_low=room[:-1:2].copy(), to_high=room[1:-1:2].copy(), message=np.zeros(int(room[-1]), dtype=np.int64),
    )  # fmt: skip
    best, value, bound, still, passes = None, dear, 0, 0, 0
    labels = np.zeros(problem.variables, dtype=np.int64)
    while passes < most_passes and still < _PATIENCE:
        total = _pass(graph, labels, passes % 2 == 0, _ROOM)
        passes += 1
        result = _value(graph, labels)
        if result < dear * scale and result // scale < value:
            value, best = result // scale, labels.copy()
        now = min(-(-int(total) // scale), dear)
        still = 0 if now > bound * (1 + _STILL) else still + 1
        bound = max(bound, now)
        if bound >= value or time.perf_counter() > ends:
            break
    return MessageResult(best, min(bound, value), passes)


@routine
def _pass(g: _Graph, labels: Ints, forward: bool, room: int) -> int:
    """Send messages to later variables and label each by those before it; return the bound."""
    n = len(g.first) - 1
    bound, about = 0, 0.0  # what overflows on the way comes right, unless the sum itself is too large
    for k in range(n):
        v = k if forward else n - 1 - k
        many = g.first[v + 1] - g.first[v]
        own = g.cost[g.first[v] : g.first[v + 1]].copy()
        chosen = own.copy()
        after = 0
        edges = g.edge[g.offset[v] : g.offset[v + 1]]
        for e in edges:
            ahead = (g.low[e] == v) == forward
            after += 1 if ahead else 0
            at = g.to_low[e] if g.low[e] == v else g.to_high[e]
            other = g.high[e] if g.low[e] == v else g.low[e]
            for i in range(many):
                own[i] += g.message[at + i]
                chosen[i] += g.message[at + i] if ahead else g.table[_place(g, e, v, i, labels[other])]
        labels[v] = chosen.argmin()
        parts = max(1, after, len(edges) - after)
        share = own // parts
        least = (own - after * share).min()
        for e in edges:
            if (g.low[e] == v) == forward:
                least += _send(g, e, v, share, room // (8 * max(1, len(edges))))
        bound += least
        about += least
    return bound if abs(about) < 2.0**62 else 0


@subroutine
def _place(g: _Graph, e: int, v: int, mine: int, other: int) -> int:
    if g.low[e] == v:
        return g.begin[e] + mine * g.step[e] + other * g.stride[e]
    return g.begin[e] + other * g.step[e] + mine * g.stride[e]


@subroutine
def _send(g: _Graph, e: int, v: int, share: Ints, most_each: int) -> int:
    """Make the message of an edge anew; return what it costs at least whatever the labels are."""
    to_low = g.low[e] != v
    other = g.low[e] if to_low else g.high[e]
    back, there = (g.to_high[e], g.to_low[e]) if to_low else (g.to_low[e], g.to_high[e])
    many, reached = len(share), g.first[other + 1] - g.first[other]
    least = 0
    for j in range(reached):
        result = share[0] - g.message[back] + g.table[_place(g, e, v, 0, j)]
        for i in range(1, many):
            result = min(result, share[i] - g.message[back + i] + g.table[_place(g, e, v, i, j)])
        g.message[there + j] = result
        least = result if j == 0 else min(least, result)
    for j in range(reached):
        g.message[there + j] = min(most_each, g.message[there + j] - least)
    return least


@routine
def _value(g: _Graph, labels: Ints) -> int:
    total = 0
    for v in range(len(labels)):
        total += g.cost[g.first[v] + labels[v]]
    for e in range(len(g.low)):
        total += g.table[g.begin[e] + labels[g.low[e]] * g.step[e] + labels[g.high[e]] * g.stride[e]]
    return total
