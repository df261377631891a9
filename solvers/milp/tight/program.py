"""The integer program that a specialist writes for `solvers.Problem`: few disjunctions, each with a small M.

Columns, for units u (tasks that must share a location), tasks i, devices d, locations l, payloads p, targets t:

    C                  makespan, least <= C <= most; minimised
    x[u,l]             the unit is at the location                                 binary, one of each unit
    y[i,d]             the task is on the device                                   binary, x[u(i),l] where l has but one
    S[i]               start, finish S[i] + p[i]
    w[p,t,v], T[p,t]   the payload crosses to t by variant v (same ticks, same links); start of the crossing
    a[i,j]             i finishes before j starts                                  binary, for open pairs alone

Rows, each family where its columns are made:

    windows_of         what a makespan of `most` rules out: devices and orders of tasks, times beyond head and tail
    places_of          one location a unit, one device a task, memory within capacity
    draft_of           S within the windows of the chosen location; precedence (its transitive reduction); C
    crossings_of       a payload crosses where a reader is and the producer is not; it starts after the producer and
                       arrives before its readers there
    add_order          disjunctions of pairs on devices and links, M from the windows of both
    add_loads          load cuts: least head + load + least tail <= C, on every device and link

Interchangeable locations and devices are named in the order of first use (`solvers.structure.symmetry`). What was tried
beside this, with numbers, is in docs/internals/solvers.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from solvers.arrays import Bools, Floats, Ints
from solvers.milp.formulations import MakespanLimits, NoScheduleError
from solvers.milp.linear import Linear, LinearBuilder
from solvers.milp.tight.times import (
    AffineSum,
    PayloadCrossing,
    ProgramDraft,
    alone,
    crossings_of,
    draft_of,
    places_of,
    windows_of,
)
from solvers.milp.vendor import with_rows
from solvers.problem import Problem
from solvers.schedule import Schedule
from solvers.structure.symmetry import Symmetry, symmetry_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Activity:
    """A task or a crossing."""

    start: AffineSum
    finish: AffineSum
    earliest: int
    """Earliest start, in ticks, wherever the activity is and whether it happens or not."""
    latest: int
    """Latest finish, in ticks, wherever the activity is and whether it happens or not."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneJob:
    """An activity on one lane; all ticks are lower bounds if it is there."""

    activity: int
    head: int
    ticks: int
    tail: int
    columns: tuple[tuple[int, int], ...]
    """Columns of which one is 1 if it is there, with its ticks then."""
    sure: bool
    """True if the activity is on the lane in every schedule."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneJobs:
    """All activities, tasks first, and the jobs of every device and link."""

    activities: list[Activity]
    jobs: list[list[LaneJob]]
    after: Bools
    """[a, a] whether the second starts after the first finishes in every schedule in which both are on a lane."""


def lanes_of(draft: ProgramDraft, crossings: list[PayloadCrossing]) -> LaneJobs:
    """Return the jobs of all tasks and crossings."""
    p = draft.windows.problem
    jobs: list[list[LaneJob]] = [[] for _ in range(p.devices + p.links)]
    windows, activities = draft.windows, list[Activity]()
    for task, (begin, finish) in enumerate(zip(draft.start, draft.finish, strict=True)):
        earliest, latest = int(windows.earliest[task]), int(windows.latest[task])
        activities.append(Activity(start=alone(begin), finish=finish, earliest=earliest, latest=latest))
        for device, y in draft.places.on[task].items():
            place, ticks = p.location[device], int(p.duration[task, device])
            head, tail = int(windows.paths.head[task, place]), int(windows.paths.tail[task, place])
            sure = y in draft.places.fixed
            job = LaneJob(activity=task, head=head, ticks=ticks, tail=tail, columns=((y, ticks),), sure=sure)
            jobs[device].append(job)
    for c in crossings:
        draft.rows.check()
        ready = windows.paths.head[c.producer] + windows.paths.took[c.producer]
        for link in frozenset().union(*(v.links for v in c.variants)):
            used = [v for v in c.variants if link in v.links]
            job = LaneJob(
                activity=len(activities), head=min(int(ready[s]) for v in used for s in v.sources),
                ticks=min(v.ticks for v in used), tail=windows.most - c.window[1],
                columns=tuple((v.column, v.ticks) for v in used), sure=c.sure,
            )  # fmt: skip
            jobs[p.devices + link].append(job)
        latest = max(c.window[1], int(windows.latest[c.producer]))
        activities.append(Activity(start=alone(c.start), finish=c.arrival, earliest=int(ready.min()), latest=latest))
    after = np.zeros((len(activities), len(activities)), dtype=bool)
    after[: p.tasks, : p.tasks] = draft.windows.after
    # One crossing is before another if all that may read it where it goes is, or is before, the other's producer.
    upto, producers = draft.windows.after | np.eye(p.tasks, dtype=bool), [c.producer for c in crossings]
    for k, c in enumerate(crossings):
        after[p.tasks + k, p.tasks :] = upto[np.ix_(list(c.late), producers)].all(axis=0)
    return LaneJobs(activities=activities, jobs=jobs, after=after)


MOST = 20_000
"""Pairs of tasks, and of crossings, that are looked at: those with least room. The others are left to
`solvers.timing.rebuild`; a program of more disjunctions does not get beyond its root, where they say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneMeeting:
    """Two activities on one lane, and whether each can be first there."""

    one: LaneJob
    two: LaneJob
    forth: bool
    back: bool

    @property
    def both(self) -> AffineSum:
        """1 when both are there, 0 or less when not."""
        columns = (*self.one.columns, *self.two.columns)
        return AffineSum(terms=tuple((column, 1.0) for column, _ in columns), constant=-1.0)

    @property
    def sure(self) -> bool:
        """True if both are there in every schedule."""
        return self.one.sure and self.two.sure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActivityPair:
    """Two activities, by number, with all lanes on which they may meet, and the columns of their order."""

    one: int
    two: int
    meetings: tuple[LaneMeeting, ...]
    forth: int | None
    """Column a[one,two]; None where the order is not open."""
    back: int | None
    """Column a[two,one]; None where it is 1 - a[one,two], or not open."""


def pairs_of(draft: ProgramDraft, lanes: LaneJobs, among: range) -> list[ActivityPair]:
    """Return the pairs on some of the lanes, by the numbers of their activities, with columns where it is open."""
    meetings = (_meetings(draft.windows.most, lanes, lane) for lane in among)
    every = np.concatenate([np.zeros((0, 7), dtype=np.int64), *meetings])
    name, first, which = np.unique(
        every[:, 0] * len(lanes.activities) + every[:, 1], return_index=True, return_inverse=True
    )
    room = np.full(len(name), np.iinfo(np.int64).max)
    np.minimum.at(room, which, every[:, 5:].max(axis=1, initial=np.iinfo(np.int64).min))
    kept = np.zeros(len(name), dtype=bool)
    kept[np.argsort(room, kind="stable")[:MOST]] = True
    pairs: dict[tuple[int, int], list[LaneMeeting]] = {(one, two): [] for one, two in every[first[kept], :2].tolist()}
    for one, two, lane, k, m, forth, back in every[kept[which]].tolist():
        jobs = lanes.jobs[lane]
        pairs[one, two].append(LaneMeeting(one=jobs[k], two=jobs[m], forth=forth >= 0, back=back >= 0))
    found = []
    for (one, two), met in pairs.items():
        # Either can be first, on the same lane or on different ones; one column does where they meet in any case.
        open_ = any(m.forth for m in met) and any(m.back for m in met)
        forth = draft.rows.binary() if open_ else None
        back = draft.rows.binary() if open_ and not any(m.sure for m in met) else None
        found.append(ActivityPair(one=one, two=two, meetings=tuple(met), forth=forth, back=back))
    return found


def _meetings(most: int, lanes: LaneJobs, lane: int) -> Ints:
    """Return [meetings, 7] two activities, a lane, their places there, and the ticks of room for either order."""
    jobs = lanes.jobs[lane]
    if len(jobs) < 2:
        return np.zeros((0, 7), dtype=np.int64)
    which = np.array([job.activity for job in jobs])
    earliest = np.array([lanes.activities[k].earliest for k in which])
    latest = np.array([lanes.activities[k].latest for k in which])
    settled = lanes.after[np.ix_(which, which)] | (latest[:, None] <= earliest[None, :])
    # Two activities of no ticks never overlap.
    idle = np.array([max(ticks for _, ticks in job.columns) == 0 for job in jobs])
    settled |= idle[:, None] & idle[None, :]
    # [j, j] ticks that are left when the first job is before the second; negative where it cannot be.
    head, ticks, tail = (np.array(column) for column in zip(*((j.head, j.ticks, j.tail) for j in jobs), strict=True))
    room = most - (head + ticks)[:, None] - (ticks + tail)[None, :]
    one, two = np.nonzero(np.triu(~settled & ~settled.T, 1))
    return np.column_stack([which[one], which[two], np.full(len(one), lane), one, two, room[one, two], room[two, one]])


# Which of two activities is first on a lane that both may use: binaries only where that is open.

_OVERLAP = 1e-5
"""Units of time by which two activities overlap at least where their pair is separated."""
_THERE = 0.5
"""Least value of h[i,d] + h[j,d] - 1 that counts as both being on a lane."""


def add_order(draft: ProgramDraft, lanes: LaneJobs, order: ActivityPair) -> None:
    """The rows of a pair."""
    one, two = lanes.activities[order.one], lanes.activities[order.two]
    if order.forth is None:
        # At most one of the two can be first, whatever the lane.
        for m in order.meetings:
            together = AffineSum(terms=(), constant=1.0) if m.sure else m.both
            if m.forth:
                _apart(draft, one, two, together)
            elif m.back:
                _apart(draft, two, one, together)
            else:
                draft.rows.row(m.both.terms, at_most=1.0)
        return
    first = alone(order.forth)
    second = AffineSum(terms=((order.forth, -1.0),), constant=1.0) if order.back is None else alone(order.back)
    _apart(draft, one, two, first)
    _apart(draft, two, one, second)
    if order.back is None:
        return
    draft.rows.row([*first.terms, *second.terms], at_most=1.0)
    for m in order.meetings:
        chosen = [*(first.terms if m.forth else ()), *(second.terms if m.back else ())]
        draft.rows.row([*chosen, *((c, -a) for c, a in m.both.terms)], at_least=m.both.constant)


def _apart(draft: ProgramDraft, before: Activity, then: Activity, holds: AffineSum) -> None:
    """`before` finishes by the start of `then` where `holds` is 1."""
    most = (before.latest - then.earliest) / draft.unit
    slack = tuple((column, -coefficient * most) for column, coefficient in holds.terms)
    draft.after(then.start.plus(slack, (1.0 - holds.constant) * most), before.finish)


def overlapping(orders: Iterable[ActivityPair], lanes: LaneJobs, values: Floats) -> list[ActivityPair]:
    """Return the pairs that are on one lane at the same time in a point [c]."""
    start = np.array([_value(a.start, values) for a in lanes.activities])
    finish = np.array([_value(a.finish, values) for a in lanes.activities])
    return [
        order
        for order in orders
        if min(finish[order.one], finish[order.two]) - _OVERLAP > max(start[order.one], start[order.two])
        and any(_value(m.both, values) > _THERE for m in order.meetings)
    ]


def _value(expression: AffineSum, values: Floats) -> float:
    return expression.constant + sum(coefficient * float(values[column]) for column, coefficient in expression.terms)


# Load cuts: what a lane does between the least head and the least tail of some of its activities fits there.

CUTS = 8
"""Sets of activities for each lane, beside all of them."""
_TRIED = 8
"""Pairs of a head and a tail that are looked at for each of these: several may give the same set."""


def add_loads(draft: ProgramDraft, lanes: LaneJobs, least: int) -> None:
    """For each lane and sets J of activities,  min head + sum over J of ticks * (it is there) + min tail <= C."""
    for jobs in lanes.jobs:
        for head, tail in _ends(jobs, least):
            terms = [
                (column, ticks / draft.unit)
                for job in jobs
                if job.head >= head and job.tail >= tail
                for column, ticks in job.columns
            ]
            if sum(t for _, t in terms):
                draft.rows.row(
                    [*((c, -t) for c, t in terms), (draft.makespan, 1.0)], at_least=(head + tail) / draft.unit
                )


def _ends(jobs: list[LaneJob], least: int) -> list[tuple[int, int]]:
    """Pairs of a head and a tail: all activities first, then those between with most work for the time that is left."""
    if not jobs:
        return []
    head = np.array([j.head for j in jobs])
    ticks = np.array([max(t for _, t in j.columns) for j in jobs])
    tail = np.array([j.tail for j in jobs])
    heads, row = np.unique(head, return_inverse=True)
    tails, column = np.unique(tail, return_inverse=True)
    work = np.zeros((len(heads), len(tails)))
    np.add.at(work, (row, column), ticks)
    work = work[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
    ends = heads[:, None] + tails[None, :]
    # A set of which nothing is on the lane must not say more than is known of C.
    score = np.where(ends <= least, ends + work / 2, -1.0)
    score[0, 0] += np.where(score[0, 0] < 0, 0.0, score.max() + 1)
    chosen: dict[bytes, tuple[int, int]] = {}
    for place in np.argsort(-score, axis=None, kind="stable")[: _TRIED * CUTS].tolist():
        h, t = int(heads[place // len(tails)]), int(tails[place % len(tails)])
        if score.flat[place] >= 0 and len(chosen) <= CUTS:
            chosen.setdefault(((head >= h) & (tail >= t)).tobytes(), (h, t))
    return list(chosen.values())


GRID = 10_000
"""Steps that a unit of time is rounded to in a rough schedule, so that noise does not invert what starts together."""
_ROWS = 3
"""Rows between two activities of a path whose tolerances add up: start of a crossing, arrival, order."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TightProgram:
    """An `IntegerProgram` with its columns by what they mean."""

    lean: Linear
    """The program without the rows of `waiting`."""
    symmetry: Symmetry
    draft: ProgramDraft
    crossings: list[PayloadCrossing]
    lanes: LaneJobs
    orders: list[ActivityPair]
    """All pairs of activities that may meet, in the order of their columns."""
    waiting: list[ActivityPair]
    """The pairs of transfers, whose rows may wait until a point breaks them."""
    binding: bool = True

    @property
    def linear(self) -> Linear:
        """The program with all of its rows."""
        return self._with(self.waiting)

    @property
    def names(self) -> list[str]:
        """[c] by the letters of this module's docstring, with what each stands for.

        C_max, S_op3, x_op3_loc1 (of the first of the tasks that share a location), y_op3_dev1, T_data4_to1,
        w_data4_to1_0, op3_before_op5. Locations and devices that are alike are numbered in the order of their first
        use.
        """
        draft = self.draft
        found = {draft.makespan: "C_max"}
        found |= {column: f"S_op{task}" for task, column in enumerate(draft.start)}
        for task, (at, on) in enumerate(zip(draft.places.at, draft.places.on, strict=True)):
            for place, x in at.items():
                found.setdefault(x, f"x_op{task}_loc{place}")
            for device, y in on.items():
                found.setdefault(y, f"y_op{task}_dev{device}")
        label = [f"op{task}" for task in range(len(draft.start))]
        for c in self.crossings:
            label.append(f"data{c.payload}_to{c.to}")
            found[c.start] = f"T_{label[-1]}"
            found |= {variant.column: f"w_{label[-1]}_{k}" for k, variant in enumerate(c.variants)}
        for order in self.orders:
            one, two = label[order.one], label[order.two]
            for column, name in ((order.forth, f"{one}_before_{two}"), (order.back, f"{two}_before_{one}")):
                if column is not None:
                    found[column] = name
        return [found[column] for column in range(len(found))]

    @property
    def unsaid(self) -> str:
        """That there were more pairs than a program is given."""
        lists = (len(self.orders) - len(self.waiting), len(self.waiting))
        return f"it orders {MOST} pairs of activities on devices or links, and no others" if MOST in lists else ""

    @property
    def activities(self) -> int:
        """Tasks and crossings, each counted for the rows of a path that lead to it."""
        return _ROWS * (len(self.draft.start) + len(self.crossings))

    def values(self, schedule: Schedule) -> Floats:
        """[c] the schedule with its interchangeable locations and devices renamed; a crossing that does not happen
        starts when its producer finishes, and two activities that touch are in order."""
        s, draft = self.symmetry.renamed(schedule), self.draft
        at = draft.windows.problem.location[s.device]
        point = np.zeros(self.lean.columns)
        point[draft.makespan] = max(s.makespan / draft.unit, float(self.lean.lower[draft.makespan]))
        for task, device in enumerate(s.device.tolist()):
            point[draft.places.at[task][int(at[task])]] = 1.0
            point[draft.places.on[task][device]] = 1.0
        keys = zip(s.sent_payload.tolist(), s.sent_to.tolist(), strict=True)
        sent = dict(zip(keys, zip(s.sent_start.tolist(), s.sent_finish.tolist(), strict=True), strict=True))
        times = []
        for c in self.crossings:
            ready = int(s.finish[c.producer])
            times.append(sent.get((c.payload, c.to), (ready, ready)))
            for variant in c.variants:
                point[variant.column] = (c.payload, c.to) in sent and at[c.producer] in variant.sources
        crossed = np.array(times, dtype=np.int64).reshape(-1, 2)
        start, finish = np.concatenate([s.start, crossed[:, 0]]), np.concatenate([s.finish, crossed[:, 1]])
        point[draft.start] = start[: len(s.start)] / draft.unit
        point[[c.start for c in self.crossings]] = start[len(s.start) :] / draft.unit
        for order in self.orders:
            one, two = order.one, order.two
            forth = bool(finish[one] <= start[two])
            if order.forth is not None:
                point[order.forth] = forth
            if order.back is not None:
                point[order.back] = not forth and bool(finish[two] <= start[one])
        return point

    def separated(self, values: Floats) -> "TightProgram | None":
        """Return the program with the pairs that overlap in a point [c] among its lean rows; None when none does."""
        broken = overlapping(self.waiting, self.lanes, values)
        if not broken:
            return None
        added = set(broken)
        waiting = [order for order in self.waiting if order not in added]
        return replace(self, lean=self._with(broken), waiting=waiting)

    def _with(self, orders: list[ActivityPair]) -> Linear:
        more = replace(self.draft, rows=LinearBuilder())
        for order in orders:
            add_order(more, self.lanes, order)
        return with_rows(self.lean, more.rows.linear())

    def schedule(self, values: Floats) -> Schedule:
        """Return devices, and the middle of each activity, on a grid, as its place in every order.

        Of two activities that do not overlap the one with the earlier middle is first, even where both start within a
        tolerance of each other because the first takes next to nothing.
        """
        draft, p = self.draft, self.draft.windows.problem
        device = np.array([max((values[y], d) for d, y in on.items())[1] for on in draft.places.on], dtype=np.int64)
        at = p.location[device]
        sent = [c for c in self.crossings if at[c.producer] != c.to and any(at[r] == c.to for r in c.late)]
        payload = np.array([c.payload for c in sent], dtype=np.int64)
        to = np.array([c.to for c in sent], dtype=np.int64)
        ticks = p.transfer[payload, p.path_class[at[p.producer[payload]], to]]
        middle = self._middle(draft.start, p.duration[np.arange(p.tasks), device], values)
        between = self._middle([c.start for c in sent], ticks, values)
        return Schedule(
            device=device, start=middle, finish=middle,
            sent_payload=payload, sent_to=to, sent_start=between, sent_finish=between,
        )  # fmt: skip

    def _middle(self, start: list[int], ticks: Ints, values: Floats) -> Ints:
        return np.rint((values[start] + ticks / self.draft.unit / 2) * GRID).astype(np.int64)


def build(problem: Problem, limits: MakespanLimits) -> TightProgram:
    """The program of a problem of one or more tasks; NoScheduleError when none takes at most `limits.most` ticks.

    TimeoutError at `limits.build_by`.
    """
    symmetry = symmetry_of(problem)
    windows = windows_of(symmetry.broken(), limits.most, limits.settle_by)
    if windows is None:
        raise NoScheduleError(f"no schedule takes at most {limits.most} ticks")
    limits.check()
    rows = LinearBuilder(limits.check)
    draft = draft_of(rows, windows, places_of(rows, windows), limits.least, limits.unit)
    limits.check()
    crossings = crossings_of(draft)
    limits.check()
    lanes = lanes_of(draft, crossings)
    on_devices = pairs_of(draft, lanes, range(problem.devices))
    on_links = pairs_of(draft, lanes, range(problem.devices, problem.devices + problem.links))
    limits.check()
    for order in on_devices:
        limits.check()
        add_order(draft, lanes, order)
    add_loads(draft, lanes, limits.least)
    return TightProgram(
        lean=rows.linear(), symmetry=symmetry, draft=draft, crossings=crossings, lanes=lanes,
        orders=[*on_devices, *on_links], waiting=on_links,
    )  # fmt: skip
