"""The base of the tight program: consequences of a makespan limit, places of tasks, their times, and transfers.

Before any solver runs, a makespan limit has consequences: allowed locations, time windows and precedence. Tasks have a
binary for each unit and location, and for each task and device where a location has several; and a start each. A
payload has one transfer to each target, shared by all its readers there.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.bounds.windows import informed
from solvers.compiled.dag import topological_order
from solvers.milp.linear import LinearBuilder
from solvers.problem import FORBIDDEN, Problem
from solvers.structure.units import LocationPaths


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RestrictedProblem:
    """A problem without what no schedule of at most `most` ticks uses, and with the order that each of these keeps."""

    problem: Problem
    most: int
    paths: LocationPaths
    after: Bools
    """[n, n] whether the second task starts after the first finishes in every such schedule."""
    earliest: Ints
    """[n] earliest start of each task, in ticks."""
    latest: Ints
    """[n] latest finish of each task, in ticks."""


def windows_of(problem: Problem, most: int, ends: float = math.inf) -> RestrictedProblem | None:
    """Shrink a problem until nothing changes; None when no schedule takes at most `most` ticks.

    With heads r and tails q, a device d at location l is out for task i if  r[i,l] + p[i,d] + q[i,l] > most;  of two
    tasks that can be on one device alone, j is before i if  r[i] + p[i] + p[j] + q[j] > most  (Carlier, Pinson 1989).
    When the clock (`time.monotonic`) is at `ends`, only what longest paths say is looked for any more.
    """
    while True:
        known = informed(problem, most, ends)
        if known is None:
            return None
        paths = known.paths
        rest = (paths.head + paths.tail)[:, problem.location]
        able = paths.units.allowed[paths.units.unit][:, problem.location] & problem.allowed
        able &= rest + problem.duration <= most
        # [n, n] whether a path leads from the first task to the second. O(e n).
        after = np.zeros((problem.tasks, problem.tasks), dtype=bool)
        readers = np.split(
            problem.dst[np.argsort(problem.src, kind="stable")],
            np.cumsum(np.bincount(problem.src, minlength=problem.tasks))[:-1],
        )
        for task in topological_order(problem.tasks, problem.src, problem.dst)[::-1]:
            after[task, readers[task]] = True
            after[task] |= after[readers[task]].any(axis=0)
        # Pairs of tasks, the first of which must be before the second on the only device that both can be on.
        one = np.flatnonzero(np.count_nonzero(able, axis=1) == 1)
        device = able[one].argmax(axis=1)
        at, ticks = problem.location[device], problem.duration[one, device]
        late = (paths.head[one, at] + ticks)[:, None] + (ticks + paths.tail[one, at])[None, :] > most
        late &= (device[:, None] == device[None, :]) & ~np.eye(len(one), dtype=bool)
        then, before = (one[side] for side in np.nonzero(late))
        fresh = ~after[before, then]
        if not able.any(axis=1).all() or after[then, before].any():
            return None
        if (able == problem.allowed).all() and not fresh.any():
            return RestrictedProblem(
                problem=problem, most=most, paths=paths, after=after, earliest=paths.head.min(axis=1),
                latest=most - paths.tail.min(axis=1),
            )  # fmt: skip
        # The problem on fewer devices and with more precedence, unless that has a cycle.
        src, dst = (np.concatenate(ends) for ends in ((problem.src, before[fresh]), (problem.dst, then[fresh])))
        if len(topological_order(problem.tasks, src, dst)) < problem.tasks:
            return None
        payload = np.concatenate([problem.payload, np.full(np.count_nonzero(fresh), -1)])
        duration = np.where(able, problem.duration, FORBIDDEN)
        problem = replace(problem, duration=duration, src=src, dst=dst, payload=payload)


_GRAINS = 100_000.0
"""Units of memory in a capacity at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """The columns of the placement, which are fixed at 1 where there is no choice."""

    at: list[dict[int, int]]
    """By task: location to x; tasks of one unit share theirs."""
    on: list[dict[int, int]]
    """By task: device to y, or to x where a location has one device for the task."""
    fixed: frozenset[int]
    """Columns that are 1 in every point."""


def places_of(rows: LinearBuilder, windows: RestrictedProblem) -> Places:
    """x[u,l] and y[i,d], with  sum over l of x[u,l] = 1  and  sum over l's devices of y[i,d] = x[u(i),l]."""
    p, units = windows.problem, windows.paths.units
    at: list[dict[int, int]] = []
    fixed: set[int] = set()
    for allowed in units.allowed:
        where = np.flatnonzero(allowed).tolist()
        if len(where) > 1:
            at.append({place: rows.binary() for place in where})
            rows.row([(x, 1.0) for x in at[-1].values()], at_least=1.0, at_most=1.0)
        else:
            at.append({where[0]: rows.column(1.0, 1.0)})
            fixed.update(at[-1].values())
    mine = [at[unit] for unit in units.unit.tolist()]
    on: list[dict[int, int]] = []
    for task, here in enumerate(mine):
        on.append({})
        for place, x in here.items():
            devices = np.flatnonzero(p.allowed[task] & (p.location == place)).tolist()
            if len(devices) == 1:
                on[-1][devices[0]] = x
                continue
            chosen = {d: rows.binary() for d in devices}
            rows.row([*((y, 1.0) for y in chosen.values()), (x, -1.0)], at_least=0.0, at_most=0.0)
            on[-1].update(chosen)
    # Sum over units of bytes * x[u,l] <= capacity[l], in the largest unit of bytes that all are multiples of; where
    # that leaves more than _GRAINS in a location, in that many: the vendors' tolerance of 1e-6 then is 1e-11 of it.
    for place, capacity in enumerate(p.capacity.tolist()):
        sizes = [
            (here[place], size) for here, size in zip(at, units.memory.tolist(), strict=True) if place in here and size
        ]
        if sum(size for _, size in sizes) > capacity:
            grain = int(np.gcd.reduce([size for _, size in sizes]))
            scale = min(1.0, _GRAINS / max(1, capacity // grain))
            rows.row([(x, size // grain * scale) for x, size in sizes], at_most=capacity // grain * scale)
    return Places(at=mine, on=on, fixed=frozenset(fixed))


Terms = tuple[tuple[int, float], ...]
"""Columns and their coefficients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineSum:
    """An affine expression."""

    terms: Terms
    constant: float = 0.0

    def plus(self, terms: Terms, constant: float = 0.0) -> "AffineSum":
        """Return the expression and some more."""
        return AffineSum(terms=self.terms + terms, constant=self.constant + constant)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProgramDraft:
    """The program in the making: the columns of places and times, in units of `unit` ticks."""

    rows: LinearBuilder
    windows: RestrictedProblem
    places: Places
    unit: float
    makespan: int
    start: list[int]
    """Columns S, the start of each task."""
    finish: list[AffineSum]
    """Expressions S + p, the finish of each task."""

    def after(self, later: AffineSum, earlier: AffineSum) -> None:
        """Later >= earlier."""
        terms = [*later.terms, *((c, -a) for c, a in earlier.terms)]
        self.rows.row(terms, at_least=earlier.constant - later.constant)


def alone(column: int) -> AffineSum:
    """Return a column as an expression."""
    return AffineSum(terms=((column, 1.0),))


def draft_of(rows: LinearBuilder, windows: RestrictedProblem, places: Places, least: int, unit: float) -> ProgramDraft:
    """C and S[i] with, for heads r, tails q and i before j,

    sum over l of r[i,l] x[i,l] <= S[i]          S[j] >= S[i] + p[i]          p[i] = sum over d of p[i,d] y[i,d]
    S[i] + p[i] + sum over l of q[i,l] x[i,l] <= C
    """
    p, paths = windows.problem, windows.paths
    makespan = rows.column(min(least, windows.most) / unit, windows.most / unit, cost=1.0)
    start, finish = [], []
    for task, here in enumerate(places.at):
        took = {d: int(p.duration[task, d]) for d in places.on[task]}
        latest = windows.most - min(took[d] + int(paths.tail[task, p.location[d]]) for d in took)
        start.append(rows.column(float(windows.earliest[task]) / unit, latest / unit))
        finish.append(_chosen(start[-1], [(places.on[task][d], took[d] / unit) for d in took]))
        head = _chosen(start[-1], [(x, -float(paths.head[task, place]) / unit) for place, x in here.items()])
        if len(head.terms) > 1:
            rows.row(head.terms, at_least=0.0)
        tail = _chosen(makespan, [(x, -float(paths.tail[task, place]) / unit) for place, x in here.items()])
        last = finish[-1]
        rows.row([*tail.terms, *((c, -a) for c, a in last.terms)], at_least=last.constant - tail.constant)
    made = ProgramDraft(
        rows=rows, windows=windows, places=places, unit=unit, makespan=makespan, start=start, finish=finish
    )
    for before, then in np.argwhere(transitive_reduction(windows.after)).tolist():
        made.after(alone(start[then]), finish[before])
    return made


def _chosen(column: int, choices: list[tuple[int, float]]) -> AffineSum:
    """Return the column and the coefficient of the one choice that is made: a constant where all agree."""
    if len({value for _, value in choices}) == 1:
        return AffineSum(terms=((column, 1.0),), constant=choices[0][1])
    return AffineSum(terms=((column, 1.0), *choices))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossingVariant:
    """A way to cross: sources from which ticks and links are the same."""

    sources: tuple[int, ...]
    links: frozenset[int]
    ticks: int
    column: int
    """Column w, 1 when the crossing happens this way."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PayloadCrossing:
    """One payload to one target location."""

    payload: int
    producer: int
    to: int
    late: dict[int, frozenset[int]]
    """The tasks that may read it there, and the sources from which it would be late for each."""
    variants: tuple[CrossingVariant, ...]
    start: int
    """Column T, the start of the transfer."""
    arrival: AffineSum
    """Expression T + sum of ticks * w, the arrival."""
    sure: bool
    """True if it happens, in its only variant, in every schedule."""
    window: tuple[int, int]
    """Earliest start and latest finish, in ticks."""


def crossings_of(draft: ProgramDraft) -> list[PayloadCrossing]:
    """z, w and T of every payload and location that it may have to cross to.

    With i the producer, r its readers, B[r] the sources from which a transfer is late for r, and v the variants:

        sum over s in B[r] of x[i,s] + x[r,t] <= 1             w[v] <= sum over its sources s of x[i,s]
        sum of w[v] >= x[r,t] - x[i,t] - sum over s in B[r] of x[i,s]
        T >= S[i] + p[i]                                       S[r] >= T + sum of ticks[v] w[v] - M (1 - x[r,t])
        S[r] >= S[i] + p[i] + least ticks * (x[r,t] - x[i,t] - sum over s in B[r] of x[i,s])       where M > 0

    M is what other readers leave open, 0 where there is none: T = S[i] + p[i] is as good as any where nothing crosses.
    """
    p, at = draft.windows.problem, draft.places.at
    unit = draft.windows.paths.units.unit
    readers: dict[int, set[int]] = defaultdict(set)
    for payload, reader in zip(p.payload.tolist(), p.dst.tolist(), strict=True):
        if payload >= 0 and unit[reader] != unit[p.producer[payload]]:
            readers[payload].add(reader)
    crossings: list[PayloadCrossing] = []
    for payload, tasks in sorted(readers.items()):
        for to in range(p.locations):
            late = _late(draft, payload, to, [task for task in sorted(tasks) if to in at[task]])
            if late:
                crossings.append(_crossing(draft, payload, to, late))
                _add_rows(draft, crossings[-1])
    return crossings


def _late(draft: ProgramDraft, payload: int, to: int, readers: list[int]) -> dict[int, frozenset[int]]:
    """Return readers that some source serves in time, with the others; rows for those that it does not."""
    p, paths, at = draft.windows.problem, draft.windows.paths, draft.places.at
    producer = int(p.producer[payload])
    sources = [s for s in at[producer] if s != to]
    ready = {s: int(paths.head[producer, s] + paths.took[producer, s]) + _ticks(p, payload, s, to) for s in sources}
    found: dict[int, frozenset[int]] = {}
    for reader in readers:
        rest = int(paths.took[reader, to] + paths.tail[reader, to])
        late = frozenset(s for s in sources if ready[s] + rest > draft.windows.most)
        if late:
            draft.rows.row([*((at[producer][s], 1.0) for s in late), (at[reader][to], 1.0)], at_most=1.0)
        if len(late) < len(sources):
            found[reader] = late
    return found


def _crossing(draft: ProgramDraft, payload: int, to: int, late: dict[int, frozenset[int]]) -> PayloadCrossing:
    p, paths, places = draft.windows.problem, draft.windows.paths, draft.places
    producer = int(p.producer[payload])
    home = places.at[producer]
    sources = [s for s in home if s != to and any(s not in away for away in late.values())]
    alike: dict[tuple[int, frozenset[int]], list[int]] = defaultdict(list)
    for s in sources:
        alike[_ticks(p, payload, s, to), frozenset(p.holds[s, to].tolist()) - {-1}].append(s)
    sure = len(alike) == 1 and to not in home
    sure &= any(not away and places.at[r][to] in places.fixed for r, away in late.items())
    variants = tuple(
        CrossingVariant(sources=tuple(places_), links=links, ticks=ticks, column=draft.rows.column(float(sure), 1.0))
        for (ticks, links), places_ in alike.items()
    )
    ready = {s: int(paths.head[producer, s] + paths.took[producer, s]) for s in home}
    window = (
        min(ready[s] for s in sources),
        draft.windows.most - min(int(paths.took[r, to] + paths.tail[r, to]) for r in late),
    )
    latest = max(window[1] - min(v.ticks for v in variants), int(draft.windows.latest[producer]))
    start = draft.rows.column(min(ready.values()) / draft.unit, latest / draft.unit)
    arrival = alone(start)
    if sure:
        arrival = arrival.plus((), variants[0].ticks / draft.unit)
    else:
        arrival = arrival.plus(tuple((v.column, v.ticks / draft.unit) for v in variants))
    return PayloadCrossing(
        payload=payload, producer=producer, to=to, late=late, variants=variants, start=start, arrival=arrival,
        sure=sure, window=window,
    )  # fmt: skip


def _ticks(p: Problem, payload: int, source: int, to: int) -> int:
    return int(p.transfer[payload, p.path_class[source, to]])


def _spared(draft: ProgramDraft, c: PayloadCrossing, reader: int, late: frozenset[int]) -> list[tuple[int, float]]:
    """x[i,t] + sum over late s of x[i,s] - x[r,t]: -1 when the reader is there and waits for a crossing."""
    home = draft.places.at[c.producer]
    near = [home[s] for s in late] + ([home[c.to]] if c.to in home else [])
    return [(draft.places.at[reader][c.to], -1.0), *((x, 1.0) for x in near)]


def _add_rows(draft: ProgramDraft, c: PayloadCrossing) -> None:
    """Rows of a crossing: it happens when a reader is there and the producer is not, between these two in time."""
    paths, places, row = draft.windows.paths, draft.places, draft.rows.row
    home = places.at[c.producer]
    if not c.sure:
        for variant in c.variants:
            row([(variant.column, 1.0), *((home[s], -1.0) for s in variant.sources)], at_most=0.0)
        for reader, late in c.late.items():
            row([*((v.column, 1.0) for v in c.variants), *_spared(draft, c, reader, late)], at_least=0.0)
    draft.after(alone(c.start), draft.finish[c.producer])
    latest = {r: draft.windows.most - int(paths.took[r, c.to] + paths.tail[r, c.to]) for r in c.late}
    for reader, late in c.late.items():
        here, start = places.at[reader][c.to], alone(draft.start[reader])
        others = [latest[r] for r in c.late if r != reader]
        most = max(others, default=0) - int(draft.windows.earliest[reader])
        if here in places.fixed or most <= 0:
            draft.after(start, c.arrival)
            continue
        draft.after(start.plus(((here, -most / draft.unit),), most / draft.unit), c.arrival)
        least = min(v.ticks for v in c.variants) / draft.unit
        wait = tuple((x, -a * least) for x, a in _spared(draft, c, reader, late))
        draft.after(start, draft.finish[c.producer].plus(wait))


def transitive_reduction(after: np.ndarray) -> np.ndarray:
    """Return [n, n] the pairs of a transitively closed order that no third task stands between."""
    dense = after.astype(np.float32)
    return after & (dense @ dense == 0)
