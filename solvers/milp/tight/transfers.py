"""Transfers between locations: one for each payload and target, shared by all its readers there."""

from collections import defaultdict
from dataclasses import dataclass

from solvers.milp.tight.times import AffineSum, ProgramDraft, alone
from solvers.problem import Problem


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
    """Readers that some source serves in time, with the others; rows for those that it does not."""
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
