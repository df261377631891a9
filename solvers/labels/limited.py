"""The labelling problem under a limit: labels have weights, which may sum to so much at most.

A price for weight, as a cost of labels, gives labelling problems without the limit; its best is found by secants of the
value over the weight (LARAC: Juttner et al. 2001). For every price, (least priced cost) - price * limit bounds the
value, so the best of these bounds is that of the Lagrangian relaxation. What the best price leaves of the limit is
filled with dearer variables' other labels.
"""

import time
from dataclasses import replace
from math import ceil
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, bools
from solvers.labels.label_methods import LabelResult, solve
from solvers.labels.labelling import FORBIDDEN, MOST, Labelling, judge, most, pinned
from solvers.result import Limit, Status

_FINEST = 64
"""Prices are whole numbers over this, or over less where costs are too large for it."""
_ROUNDS = 12


class LimitedResult(NamedTuple):
    """An answer, and what no labels weigh less than."""

    answer: LabelResult
    least: int | None
    """Proven, and above the limit, where no labels are within it; None where some may be."""


class _PricedPoint(NamedTuple):
    labels: Ints
    value: int
    weight: int


def limited(problem: Labelling, weight: Ints, at_most: int, *, seconds: float) -> LimitedResult:
    """Return the least value of labels whose weights, [labels] of all variables, sum to at most `at_most`.

    Status OPTIMAL where the bound meets the value, INFEASIBLE with a bound of the weight where that is proven.
    ValueError where costs and weights together are too large to be summed exactly.
    """
    least = int(np.minimum.reduceat(weight, problem.first[:-1]).sum()) if problem.variables else 0
    if least > at_most:
        return LimitedResult(
            LabelResult(status=Status.INFEASIBLE, method="exact", labels=None, value=None, bound=0), least
        )
    return _PriceSearch(problem, weight, at_most, time.monotonic() + seconds).run()


class _PriceSearch:
    def __init__(self, problem: Labelling, weight: Ints, at_most: int, ends: float) -> None:
        self.problem, self.weight, self.at_most, self.ends = problem, weight, at_most, ends
        self.began = time.monotonic()
        self.bound = 0
        self.best: _PricedPoint | None = None

    def run(self) -> LimitedResult:
        free = self._priced(0, 1)
        if free is None or free.weight <= self.at_most:
            return LimitedResult(self._answer(), None)
        light, least = self._lightest()
        if light is None:
            return LimitedResult(self._answer(infeasible=least is not None), least)
        first = self.problem.first[:-1]
        values, dearest = most(self.problem), int(np.maximum.reduceat(self.weight, first).sum())
        for _ in range(_ROUNDS):
            if time.monotonic() >= self.ends or free.value >= light.value:
                break
            # The price by which the two points cost the same.
            price = (light.value - free.value) / (free.weight - light.weight)
            most_extra, of = (price + 1) * dearest, _FINEST
            if values + most_extra > MOST:
                break
            while of > 1 and of * (values + most_extra) > MOST:
                of //= 2
            result = self._priced(max(1, round(price * of)), of)
            if result is None or result.weight in (free.weight, light.weight):
                break
            free, light = (result, light) if result.weight > self.at_most else (free, result)
        # Give variables their heavier labels while there is room, the heaviest first, and choose all else anew.
        more = self.weight[first + free.labels] - self.weight[first + light.labels]
        labels, left = np.where(self._weighs(), light.labels, -1), self.at_most - light.weight
        for v in np.argsort(-more, kind="stable").tolist():
            if 0 < more[v] <= left:
                labels[v], left = free.labels[v], left - more[v]
        self._completed(labels)
        return LimitedResult(self._answer(), None)

    def _priced(self, price: int, of: int) -> _PricedPoint | None:
        """Return the best labels where a weight of `of` costs `price`; the bound that they give is kept."""
        p = self.problem
        unary = np.where(p.unary == FORBIDDEN, FORBIDDEN, of * p.unary + price * self.weight)
        costs = np.where(p.costs == FORBIDDEN, FORBIDDEN, of * p.costs)
        result = self._solved(replace(p, unary=unary, costs=costs))
        self.bound = max(self.bound, ceil((result.bound - price * self.at_most) / of))
        if not price:
            self.free = result
        return None if result.labels is None else self._point(result.labels)

    def _lightest(self) -> tuple[_PricedPoint | None, int | None]:
        """Return labels of the least weight, where that is within the limit; else the least weight, if it is known."""
        p = self.problem
        unary = np.where(p.unary == FORBIDDEN, FORBIDDEN, self.weight)
        costs = np.where(p.costs == FORBIDDEN, FORBIDDEN, 0)
        result = self._solved(replace(p, unary=unary, costs=costs))
        point = None if result.labels is None else self._point(result.labels)
        if point is not None and point.weight <= self.at_most:
            return self._completed(np.where(self._weighs(), point.labels, -1)) or point, None
        return None, result.bound if result.bound > self.at_most else None

    def _solved(self, problem: Labelling) -> LabelResult:
        return solve(problem, "exact", seconds=max(0.1, self.ends - time.monotonic()))

    def _point(self, labels: Ints) -> _PricedPoint:
        weight = int(self.weight[self.problem.first[:-1] + labels].sum())
        point = _PricedPoint(labels, judge(self.problem, labels), weight)
        if weight <= self.at_most and (self.best is None or point.value < self.best.value):
            self.best = point
        return point

    def _weighs(self) -> Bools:
        """Return [n] whether any label of a variable has a weight."""
        return bools(np.maximum.reduceat(self.weight, self.problem.first[:-1]) > 0)

    def _completed(self, labels: Ints) -> _PricedPoint | None:
        """Return the best labels of all variables whose label is -1."""
        some = pinned(self.problem, labels)
        result = self._solved(some.problem)
        return None if result.labels is None else self._point(np.asarray(some.widened(result.labels)))

    def _answer(self, *, infeasible: bool = False) -> LabelResult:
        took = (*self.free.seconds, ("limit", time.monotonic() - self.began - self.free.total_seconds))
        if self.free.labels is None or self.best is None:
            status = Status.INFEASIBLE if infeasible or self.free.status is Status.INFEASIBLE else Status.UNKNOWN
            return replace(self.free, status=status, labels=None, value=None, bound=0, limit=Limit.OTHER, seconds=took)
        bound, best = min(self.bound, self.best.value), self.best
        status = Status.OPTIMAL if bound == best.value else Status.FEASIBLE
        return replace(
            self.free, status=status, labels=best.labels, value=best.value, bound=bound, limit=Limit.NONE, seconds=took
        )
