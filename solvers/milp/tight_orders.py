"""Which of two activities is first on a lane that both may use: binaries only where that is open.

Of activities i and j whose order neither precedence nor their windows settle, on lanes d where either may be, h[i,d]:

    a[i,j] + a[j,i] >= h[i,d] + h[j,d] - 1        without a[i,j] where i cannot be first on d in time
    S[j] >= S[i] + p[i] - M (1 - a[i,j])          M = latest finish of i - earliest start of j
    a[i,j] + a[j,i] <= 1

(head[i,d] + p[i,d] + p[j,d] + tail[j,d] > most),
so a[i,j] = 1 says that i finishes before j starts, wherever they are. Two that are surely on one lane have
a[j,i] = 1 - a[i,j]; where one of the two is out on every lane, the other is h[i,d] + h[j,d] - 1 itself. Activities of
no ticks touch others at their ends, as a makespan allows; two of these meet nowhere.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solvers.arrays import Ints
from solvers.milp.tight_lanes import Activity, Job, Lanes
from solvers.milp.tight_times import Draft, Sum, alone

PAIRS = 20_000
"""Pairs that are given rows at most, those with least room first. The others are left to `solvers.rebuild`, as a
program of more disjunctions does not get beyond its root, where they say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meeting:
    """Two activities on one lane, and whether each can be first there."""

    one: Job
    two: Job
    forth: bool
    back: bool

    @property
    def both(self) -> Sum:
        """1 when both are there, 0 or less when not."""
        columns = (*self.one.columns, *self.two.columns)
        return Sum(terms=tuple((column, 1.0) for column, _ in columns), constant=-1.0)

    @property
    def sure(self) -> bool:
        """Whether both are there in every schedule."""
        return self.one.sure and self.two.sure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Order:
    """The columns of an open pair of activities."""

    one: int
    two: int
    forth: int
    """a[one, two]"""
    back: int | None
    """a[two, one]; None where it is 1 - a[one, two]."""


def orders_of(draft: Draft, lanes: Lanes) -> list[Order]:
    """The rows of all pairs, and the columns of the open ones."""
    found = []
    for pair, meetings in sorted(_meetings(draft.windows.most, lanes).items()):
        if any(m.forth for m in meetings) and any(m.back for m in meetings):
            found.append(_open(draft, lanes, pair, meetings))
        else:
            _settled(draft, lanes, pair, meetings)
    return found


def _open(draft: Draft, lanes: Lanes, pair: tuple[int, int], meetings: list[Meeting]) -> Order:
    one, two = (lanes.activities[k] for k in pair)
    forth, back = draft.rows.binary(), None
    first, second = alone(forth), Sum(terms=((forth, -1.0),), constant=1.0)
    if not any(m.sure for m in meetings):
        back = draft.rows.binary()
        second = alone(back)
        draft.rows.row([(forth, 1.0), (back, 1.0)], at_most=1.0)
        for m in meetings:
            chosen = [*(first.terms if m.forth else ()), *(second.terms if m.back else ())]
            draft.rows.row([*chosen, *((c, -a) for c, a in m.both.terms)], at_least=m.both.constant)
    _apart(draft, one, two, first)
    _apart(draft, two, one, second)
    return Order(one=pair[0], two=pair[1], forth=forth, back=back)


def _settled(draft: Draft, lanes: Lanes, pair: tuple[int, int], meetings: list[Meeting]) -> None:
    """Rows for a pair of which at most one can be first, whatever the lane."""
    one, two = (lanes.activities[k] for k in pair)
    for m in meetings:
        together = Sum(terms=(), constant=1.0) if m.sure else m.both
        if m.forth:
            _apart(draft, one, two, together)
        elif m.back:
            _apart(draft, two, one, together)
        else:
            draft.rows.row(m.both.terms, at_most=1.0)


def _apart(draft: Draft, before: Activity, then: Activity, holds: Sum) -> None:
    """`before` finishes by the start of `then` where `holds` is 1."""
    most = (before.latest - then.earliest) / draft.unit
    slack = tuple((column, -coefficient * most) for column, coefficient in holds.terms)
    draft.after(then.start.plus(slack, (1.0 - holds.constant) * most), before.finish)


def _meetings(most: int, lanes: Lanes) -> dict[tuple[int, int], list[Meeting]]:
    """The lanes on which each pair can meet; only pairs whose order precedence and windows leave open."""
    rows = [row for lane in range(len(lanes.jobs)) for row in _pairs(most, lanes, lane)]
    if len(rows) > PAIRS:
        rows = _tightest(rows)
    found: dict[tuple[int, int], list[Meeting]] = defaultdict(list)
    for _, meeting in rows:
        found[meeting.one.activity, meeting.two.activity].append(meeting)
    return found


def _pairs(most: int, lanes: Lanes, lane: int) -> Iterator[tuple[int, Meeting]]:
    """The meetings on one lane, each with the ticks of room that the better of its orders has."""
    jobs = lanes.jobs[lane]
    if len(jobs) < 2:
        return
    which = np.array([job.activity for job in jobs])
    earliest = np.array([lanes.activities[k].earliest for k in which])
    latest = np.array([lanes.activities[k].latest for k in which])
    settled = lanes.after[np.ix_(which, which)] | (latest[:, None] <= earliest[None, :])
    idle = np.array([max(ticks for _, ticks in job.columns) == 0 for job in jobs])
    settled |= idle[:, None] & idle[None, :]
    room = _room(jobs, most)
    for k, m in np.argwhere(np.triu(~settled & ~settled.T, 1)).tolist():
        forth, back = int(room[k, m]), int(room[m, k])
        yield max(forth, back), Meeting(one=jobs[k], two=jobs[m], forth=forth >= 0, back=back >= 0)


def _room(jobs: list[Job], most: int) -> Ints:
    """[j, j] ticks that are left when the first job is before the second; negative where it cannot be."""
    head, ticks, tail = (np.array(column) for column in zip(*((j.head, j.ticks, j.tail) for j in jobs), strict=True))
    found: Ints = most - (head + ticks)[:, None] - (ticks + tail)[None, :]
    return found


def _tightest(rows: list[tuple[int, Meeting]]) -> list[tuple[int, Meeting]]:
    """All meetings of the PAIRS pairs that have least room on some lane."""
    least: dict[tuple[int, int], int] = {}
    for room, meeting in rows:
        pair = meeting.one.activity, meeting.two.activity
        least[pair] = min(room, least.get(pair, room))
    kept = set(sorted(least, key=lambda pair: (least[pair], pair))[:PAIRS])
    return [(room, meeting) for room, meeting in rows if (meeting.one.activity, meeting.two.activity) in kept]
