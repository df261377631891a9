"""Which of two activities is first on a lane that both may use: binaries only where that is open.

Of activities i and j whose order neither precedence nor their windows settle, on lanes d where either may be, h[i,d]:

    a[i,j] + a[j,i] >= h[i,d] + h[j,d] - 1        without a[i,j] where i cannot be first on d in time
    S[j] >= S[i] + p[i] - M (1 - a[i,j])          M = latest finish of i - earliest start of j
    a[i,j] + a[j,i] <= 1

("in time": head[i,d] + p[i,d] + p[j,d] + tail[j,d] <= most), so a[i,j] = 1 says that i finishes before j starts,
wherever they are. Two that are surely on one lane have a[j,i] = 1 - a[i,j]; where one of the two is out on every lane,
the other is h[i,d] + h[j,d] - 1 itself. An activity of no ticks may touch another at its ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from solvers.arrays import Floats
from solvers.milp.tight.lanes import Activity, LaneJobs
from solvers.milp.tight.pairs import ActivityPair
from solvers.milp.tight.times import AffineSum, ProgramDraft, alone

_OVERLAP = 1e-5
"""Units of time by which two activities overlap at least where their pair is separated."""
_THERE = 0.5
"""Least value of h[i,d] + h[j,d] - 1 that counts as both being on a lane."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairOrder:
    """A pair of activities with its columns."""

    pair: ActivityPair
    forth: int | None
    """Column a[i,j]; None where the order is not open."""
    back: int | None
    """Column a[j,i]; None where it is 1 - a[i,j], or not open."""


def order_of(draft: ProgramDraft, pair: ActivityPair) -> PairOrder:
    """The columns of a pair."""
    forth = draft.rows.binary() if pair.open else None
    back = draft.rows.binary() if pair.open and not pair.sure else None
    return PairOrder(pair=pair, forth=forth, back=back)


def add_order(draft: ProgramDraft, lanes: LaneJobs, order: PairOrder) -> None:
    """The rows of a pair."""
    one, two = lanes.activities[order.pair.one], lanes.activities[order.pair.two]
    if order.forth is None:
        _settle(draft, one, two, order.pair)
        return
    first = alone(order.forth)
    second = AffineSum(terms=((order.forth, -1.0),), constant=1.0) if order.back is None else alone(order.back)
    _apart(draft, one, two, first)
    _apart(draft, two, one, second)
    if order.back is None:
        return
    draft.rows.row([*first.terms, *second.terms], at_most=1.0)
    for m in order.pair.meetings:
        chosen = [*(first.terms if m.forth else ()), *(second.terms if m.back else ())]
        draft.rows.row([*chosen, *((c, -a) for c, a in m.both.terms)], at_least=m.both.constant)


def _settle(draft: ProgramDraft, one: Activity, two: Activity, pair: ActivityPair) -> None:
    """At most one of the two can be first, whatever the lane."""
    for m in pair.meetings:
        together = AffineSum(terms=(), constant=1.0) if m.sure else m.both
        if m.forth:
            _apart(draft, one, two, together)
        elif m.back:
            _apart(draft, two, one, together)
        else:
            draft.rows.row(m.both.terms, at_most=1.0)


def _apart(draft: ProgramDraft, before: Activity, then: Activity, holds: AffineSum) -> None:
    """`before` finishes by the start of `then` where `holds` is 1."""
    most = (before.latest - then.earliest) / draft.unit
    slack = tuple((column, -coefficient * most) for column, coefficient in holds.terms)
    draft.after(then.start.plus(slack, (1.0 - holds.constant) * most), before.finish)


def overlapping(orders: Iterable[PairOrder], lanes: LaneJobs, values: Floats) -> list[PairOrder]:
    """The pairs that are on one lane at the same time in a point [c]."""
    start = np.array([_value(a.start, values) for a in lanes.activities])
    finish = np.array([_value(a.finish, values) for a in lanes.activities])
    return [
        order
        for order in orders
        if min(finish[order.pair.one], finish[order.pair.two]) - _OVERLAP
        > max(start[order.pair.one], start[order.pair.two])
        and any(_value(m.both, values) > _THERE for m in order.pair.meetings)
    ]


def _value(expression: AffineSum, values: Floats) -> float:
    return expression.constant + sum(coefficient * float(values[column]) for column, coefficient in expression.terms)
