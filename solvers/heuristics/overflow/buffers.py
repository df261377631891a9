"""Lives of buffers and of their copies at each location, as a function of the placement, and who keeps them there.

Times are fixed: *positions* on a time axis whose ticks are those at which something of a given schedule begins, so that
each peak is at one. What shares bytes (`Footprint.passes`, and what the schedule lets it reuse) forms a *family*. The
unit that alone keeps a family's bytes at a location is credited with them (ParDNN's Table 4.2).

The first readers of each wide bundle at each location are kept up to date while units move: a buffer may have thousands
of readers (a scalar that every update of a training step reads); a unit that moves is one of them. Of all readers at a
location, only the two foremost units matter: until when the bytes are needed there, and whether one unit alone needs
them. The reads of a bundle come by falling finish, so that these are its first ones.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, rank_of
from solvers.compiled.dag import adjacency, topological_order
from solvers.compiled.kernels import inlined, kernel, spliced, subkernel
from solvers.footprint import Footprint
from solvers.memory.usage import roots, shared, spans
from solvers.problem import Problem, mean_transfers
from solvers.schedule import Schedule

_WIDE = 32
"""Reads of one bundle from which on they are not walked one by one (see `fronts`)."""
_POSITIONS = 2**17
"""Positions at most; with more ticks, each position stands for several, and what lives in one counts in all."""


class BufferLives(NamedTuple):
    """Buffers by family, what uses another's bytes before what it uses; their reads in bundles, one a payload."""

    unit: Ints
    """[n] unit of each task."""
    begin: Ints
    """[n] position of each task's start."""
    gone: Ints
    """[n] first position at which each task has finished."""
    after: Ints
    """[n] position of each task's finish, from which a new transfer would run."""
    scratch: Ints
    """[n] bytes that each task needs while it runs."""
    family: Ints
    """[f + 1] where the buffers of each family start."""
    over: Ints
    """[f] first position at which nothing of a family is alive any more, wherever its units are."""
    maker: Ints
    """[b] task that makes each buffer."""
    size: Ints
    """[b] bytes of each buffer."""
    shares: Ints
    """[b] place in `reader` of the read whose bytes the buffer uses; -1 for none."""
    bundle: Ints
    """[b + 1] where the bundles of each buffer start."""
    read: Ints
    """[g + 1] where the reads of each bundle start."""
    payload: Ints
    """[g] payload of each bundle, -1 for none."""
    walk: Ints
    """[g] where those reads of each bundle end that are to be walked: those whose bytes a buffer uses, and all of a
    bundle that is not wide. Behind them, reads come by falling finish, then by falling unit."""
    wide: Ints
    """[g] number of each bundle among the wide ones, -1 for one that is not."""
    reader: Ints
    """[r] task of each read."""
    sent: Ints
    """[p + 1] where the transfers of each payload start."""
    sent_to: Ints
    sent_begin: Ints
    sent_gone: Ints
    fresh: Ints
    """[p] first position at which a transfer that the schedule does not have would have finished."""
    ticks: Ints
    """[k] tick of each position."""


def lives_of(
    problem: Problem, footprint: Footprint, schedule: Schedule, unit: Ints, negligible: int = 0
) -> BufferLives:
    """Return the tables of a valid schedule, without the smallest families, of `negligible` bytes at most in all.

    O((n + b + r + t) log).
    """
    f, ticks = footprint, axis(schedule)
    uses = shared(problem, f, schedule)
    # [b] the buffer whose bytes each one uses in the end, be it as a copy.
    parent, others = np.arange(len(f.size)), np.flatnonzero(uses >= 0)
    parent[others] = f.read_buffer[uses[others]]
    root = roots(parent)
    place = rank_of(topological_order(problem.tasks, problem.src, problem.dst))
    # What uses another's bytes is made later.
    by = np.lexsort((-place[f.maker], root))
    # The smallest families, of which one copy of each has this share of the bytes in all, do not matter.
    largest = np.zeros(len(root), dtype=np.int64)
    np.maximum.at(largest, root, f.size)
    families = np.unique(root)
    families = families[np.argsort(largest[families], kind="stable")]
    matters = np.ones(len(root), dtype=np.bool_)
    matters[families[np.cumsum(largest[families]) <= negligible // max(problem.locations, 1)]] = False
    by = by[matters[root][by]]
    first = np.flatnonzero(np.diff(root[by], prepend=-1))
    sent, by_payload = adjacency(problem.payloads, schedule.sent_payload)
    times = {
        "begin": _position(ticks, schedule.start),
        "gone": _beyond(ticks, schedule.finish),
        "after": _position(ticks, schedule.finish),
        "sent": sent,
        "sent_to": schedule.sent_to[by_payload],
        "sent_begin": _position(ticks, schedule.sent_start[by_payload]),
        "sent_gone": _beyond(ticks, schedule.sent_finish[by_payload]),
        "fresh": _beyond(ticks, schedule.finish[problem.producer] + mean_transfers(problem)),
        "ticks": ticks,
    }
    # [b] first position at which no task nor transfer, real or possible, has to do with a buffer any more.
    over, received = times["gone"][f.maker], times["fresh"].copy()
    np.maximum.at(received, np.repeat(np.arange(len(received)), np.diff(times["sent"])), times["sent_gone"])
    np.maximum.at(over, f.read_buffer, times["gone"][f.read_by])
    np.maximum.at(over, f.read_buffer, np.append(received, 0)[f.read_payload])
    over = over[by]
    return BufferLives(
        unit=unit, scratch=f.scratch, family=_starts(np.append(first, len(by))),
        over=np.maximum.reduceat(over, first) if len(first) else over, maker=f.maker[by], size=f.size[by],
        **_bundles(f, by, uses, times["gone"][f.read_by] * (int(unit.max(initial=0)) + 1) + unit[f.read_by]), **times,
    )  # fmt: skip


def _bundles(f: Footprint, by: Ints, uses: Ints, late: Ints) -> dict[str, Ints]:
    """The reads by buffer, in the order `by` of these, and payload; then those that are shared, then by falling `late`.

    late: [r].
    """
    place = np.full(len(f.size), -1, dtype=np.int64)
    place[by] = np.arange(len(by))
    buffer = place[f.read_buffer]
    alone = np.ones(len(buffer), dtype=np.bool_)
    alone[uses[uses >= 0]] = False
    by_read = np.lexsort((-late, alone, f.read_payload, buffer))
    by_read = by_read[np.count_nonzero(buffer < 0) :]
    buffer, payload = buffer[by_read], f.read_payload[by_read]
    first = np.flatnonzero((np.diff(buffer, prepend=-1) != 0) | (np.diff(payload, prepend=-2) != 0))
    read_place = np.full(len(f.read_by) + 1, -1, dtype=np.int64)
    read_place[by_read] = np.arange(len(by_read))
    read = np.append(first, len(by_read))
    walk = read[1:] - np.diff(np.append(0, np.cumsum(alone[by_read]))[read])
    wide = read[1:] - walk > _WIDE
    return {
        "shares": read_place[uses][by],
        "bundle": _starts(np.searchsorted(buffer[first], np.arange(len(by) + 1))),
        "read": _starts(read),
        "walk": _starts(np.where(wide, walk, read[1:])),
        "wide": _starts(np.where(wide, np.cumsum(wide) - 1, -1)),
        "payload": payload[first],
        "reader": f.read_by[by_read],
    }


def bytes_at(problem: Problem, footprint: Footprint, schedule: Schedule, ticks: Ints) -> Ints:
    """[l, k] bytes alive at each location at each position of `ticks`, static ones included; exact where all fit."""
    rows = spans(problem, footprint, schedule)
    change = np.zeros((problem.locations, len(ticks) + 1), dtype=np.int64)
    lives = np.flatnonzero((rows.end > rows.begin) & (rows.size > 0))
    here, size = rows.location[lives], rows.size[lives]
    np.add.at(change, (here, _position(ticks, rows.begin[lives])), size)
    np.add.at(change, (here, _beyond(ticks, rows.end[lives])), -size)
    np.add.at(change[:, 0], problem.location[schedule.device], footprint.static)
    return np.cumsum(change, axis=1)[:, :-1]


def axis(s: Schedule) -> Ints:
    """Return [k] the tick of each position."""
    ticks = np.unique(np.concatenate([[0], s.start, s.sent_start]))
    return ticks[:: -(-len(ticks) // _POSITIONS)]


def _position(ticks: Ints, tick: Ints) -> Ints:
    return np.searchsorted(ticks, tick, side="right") - 1


def _beyond(ticks: Ints, tick: Ints) -> Ints:
    return np.searchsorted(ticks, tick, side="left").astype(np.int64)


def _starts(values: Ints) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int64)


class FirstReaders(NamedTuple):
    """Places in `BufferLives.reader`, by wide bundle (w of them) and location; as many as there are reads for none."""

    first: Ints
    """[w, l] first read of each bundle by a unit at each location."""
    second: Ints
    """[w, l] first read there by another unit than that."""
    touched: tuple[Ints, Ints, Ints]
    """(offset [u + 1], wide bundle, first read of it by the unit): what each unit reads."""
    log: Ints
    """[k, 4] what the last `shift` overwrote; k: wide bundles of one unit at most."""


def fronts_of(v: BufferLives, at: Ints, locations: int) -> FirstReaders:
    """Return the fronts when each unit is `at` its location, [u]. O(r log r + w l)."""
    wide, none = np.flatnonzero(v.wide >= 0), len(v.reader)
    count = v.read[wide + 1] - v.walk[wide]
    bundle = np.repeat(wide, count)
    read = np.arange(len(bundle)) + np.repeat(v.walk[wide] - (np.cumsum(count) - count), count)
    # The first of each pair of a unit and a bundle: reads rise.
    _, example = np.unique(v.unit[v.reader[read]] * max(len(v.wide), 1) + bundle, return_index=True)
    bundle, read = bundle[example], read[example]
    offset, by = adjacency(len(at), v.unit[v.reader[read]])
    most = int(np.diff(offset).max(initial=0))
    found = FirstReaders(
        first=np.full((len(wide), locations), none, dtype=np.int64),
        second=np.full((len(wide), locations), none, dtype=np.int64),
        touched=(offset, bundle[by], read[by]),
        log=np.empty((most, 4), dtype=np.int64),
    )
    _fill(v, at, found)
    return found


@kernel
def _fill(v: BufferLives, at: Ints, f: FirstReaders) -> None:
    offset, bundles, reads = f.touched
    for unit in range(len(at)):
        for k in range(offset[unit], offset[unit + 1]):
            _come(f, v.wide[bundles[k]], at[unit], reads[k])


@inlined
def _come(f: FirstReaders, row: int, place: int, read: int) -> None:
    if read < f.first[row, place]:
        f.first[row, place], f.second[row, place] = read, f.first[row, place]
    elif read < f.second[row, place]:
        f.second[row, place] = read


@kernel
def shift(v: BufferLives, at: Ints, f: FirstReaders, unit: int, there: int) -> None:
    """Set the location of a unit to another one. Reads that are passed over are not looked at again for that unit."""
    place, (offset, bundles, reads) = at[unit], f.touched
    at[unit] = there
    for k in range(offset[unit], offset[unit + 1]):
        bundle, mine = bundles[k], reads[k]
        row, entry = v.wide[bundle], k - offset[unit]
        f.log[entry, 0], f.log[entry, 1] = f.first[row, place], f.second[row, place]
        f.log[entry, 2], f.log[entry, 3] = f.first[row, there], f.second[row, there]
        if mine == f.first[row, place]:
            f.first[row, place] = f.second[row, place]
            f.second[row, place] = _further(v, at, (bundle, place), f.first[row, place], f.first[row, place])
        elif mine == f.second[row, place]:
            f.second[row, place] = _further(v, at, (bundle, place), mine, f.first[row, place])
        _come(f, row, there, mine)


@subkernel
def _further(v: BufferLives, at: Ints, where: tuple[int, int], after: int, first: int) -> int:
    """The next read, `where` = (bundle, location), behind `after`, by another unit than that of the read `first`."""
    bundle, place = where
    for r in range(after + 1, v.read[bundle + 1]):
        unit = v.unit[v.reader[r]]
        if at[unit] == place and unit != v.unit[v.reader[first]]:
            return r
    return len(v.reader)


@kernel
def take_back(v: BufferLives, at: Ints, f: FirstReaders, unit: int, place: int) -> None:
    """Undo the last `shift`, which was of this unit and from there."""
    there, (offset, bundles, _) = at[unit], f.touched
    at[unit] = place
    for k in range(offset[unit], offset[unit + 1]):
        row, entry = v.wide[bundles[k]], k - offset[unit]
        f.first[row, place], f.second[row, place] = f.log[entry, 0], f.log[entry, 1]
        f.first[row, there], f.second[row, there] = f.log[entry, 2], f.log[entry, 3]


_MANY, _NOBODY = -2, -1


class FamilyRows(NamedTuple):
    """Rows of families: bytes at a location over an interval of positions."""

    key: Ints
    """Names a row; rises, and is the same whatever the placement."""
    location: Ints
    low: Ints
    high: Ints
    size: Ints


class Scratch(NamedTuple):
    """Work arrays; each function leaves them as it found them."""

    kept: Ints
    """[r] until which position, or by which keeper, what shares a read's bytes keeps them; -1 for none."""
    until: Ints
    """[l] position until which the readers of the current bundle need it; -1 where there are none."""
    fronts: FirstReaders
    """First readers at the locations that the units are at."""


class Potentials(NamedTuple):
    """M_pot of Table 4.2, for one location and one position."""

    bytes: Ints
    """[u] bytes that leave the location, at the position, with the unit."""
    changed: Ints
    """[u] units whose entry, or whose cost, changed since the list was last emptied."""
    known: Bools
    """[u] whether a unit is in `changed`."""
    length: Ints
    """[1] length of `changed`."""
    last: Bools
    """[1] whether what several units keep counts for the last of them."""


def held_for(rows: int) -> FamilyRows:
    """Return room for so many rows."""
    return FamilyRows(*(np.empty(rows, dtype=np.int64) for _ in range(5)))


def scratch_for(v: BufferLives, at: Ints, locations: int) -> Scratch:
    """Work arrays for units that are each `at` its location, [u]."""
    nothing = (np.full(len(v.reader), -1, dtype=np.int64), np.full(locations, -1, dtype=np.int64))
    return Scratch(*nothing, fronts_of(v, at, locations))


@subkernel
def crossing(v: BufferLives, bundle: int, there: int, maker: int) -> tuple[int, int]:
    """First position, and first one after, of the transfer of a bundle: the schedule's, or one at the maker's finish.

    The latter takes the mean ticks over all pairs of locations.
    """
    payload = v.payload[bundle]
    if payload < 0:
        return v.after[maker], v.gone[maker]
    for k in range(v.sent[payload], v.sent[payload + 1]):
        if v.sent_to[k] == there:
            return v.sent_begin[k], v.sent_gone[k]
    return v.after[maker], v.fresh[payload]


@spliced
def hold(v: BufferLives, at: Ints, family: int, w: Scratch, into: tuple[FamilyRows, int]) -> int:
    """Append what a family holds when each unit is `at` its location, [u]; into = (rows, how many). Return how many."""
    rows, count = into
    locations = len(w.until)
    for b in range(v.family[family], v.family[family + 1]):
        maker = v.maker[b]
        here, end = at[v.unit[maker]], v.gone[maker]
        for g in range(v.bundle[b], v.bundle[b + 1]):
            # Until when each location reads the bundle, and the first and the last location that does.
            low, high = locations, -1
            for r in range(v.read[g], v.walk[g]):
                there = at[v.unit[v.reader[r]]]
                w.until[there] = max(w.until[there], v.gone[v.reader[r]], w.kept[r])
                w.kept[r] = -1
                low, high = min(low, there), max(high, there)
            if v.wide[g] >= 0:
                for there in range(locations):
                    r = w.fronts.first[v.wide[g], there]
                    if r < len(v.reader):
                        w.until[there] = max(w.until[there], v.gone[v.reader[r]])
                        low, high = min(low, there), max(high, there)
            for there in range(low, high + 1):
                if there == here:
                    end = max(end, w.until[there])
                elif w.until[there] >= 0:
                    begin, received = crossing(v, g, there, maker)
                    end = max(end, received)
                    interval = (begin, max(received, w.until[there]))
                    count = _append(rows, count, ((g + b) * locations + there, there), interval, v.size[b])
                w.until[there] = -1
        if v.shares[b] >= 0:
            w.kept[v.shares[b]] = max(w.kept[v.shares[b]], end)
        else:
            key = (v.bundle[b + 1] + b) * locations + here
            count = _append(rows, count, (key, here), (v.begin[maker], end), v.size[b])
    return count


@subkernel
def _append(rows: FamilyRows, count: int, name: tuple[int, int], interval: tuple[int, int], size: int) -> int:
    low, high = interval
    if size == 0 or low >= high:
        return count
    rows.key[count], rows.location[count] = name
    rows.low[count], rows.high[count], rows.size[count] = low, high, size
    return count + 1


@subkernel
def credit(v: BufferLives, at: Ints, where: tuple[int, int, int], w: Scratch, into: Potentials, sign: int) -> None:
    """Add `sign` times the bytes that a family holds to the potential of their keeper: a unit that alone keeps them.

    where: (family, location, position). A unit keeps what it is making; after that, what one of its tasks has still
    to read, or to send. What several keep counts for none, or for the last of them if `into.last` says so.
    """
    family, place, now = where
    units, last = len(at), into.last[0]
    for b in range(v.family[family], v.family[family + 1]):
        maker = v.maker[b]
        unit = v.unit[maker]
        here, making = at[unit] == place, now < v.gone[maker]
        keeper = v.gone[maker] * units + unit if here and making else _NOBODY
        for g in range(v.bundle[b], v.bundle[b + 1]):
            reads = _reading(v, at, (g, place, now), w, last)
            if here and not making:
                keeper = _both(keeper, reads, units, last)
                sent = _sending(v, at, (g, place), w, maker)
                if sent > now:
                    keeper = _both(keeper, sent * units + unit, units, last)
            elif not here and reads >= 0 and crossing(v, g, place, maker)[0] <= now:
                _give(into, reads % units, sign * v.size[b])
        if here and v.shares[b] >= 0:
            w.kept[v.shares[b]] = _both(w.kept[v.shares[b]], keeper, units, last)
        elif here and keeper >= 0 and v.begin[maker] <= now:
            _give(into, keeper % units, sign * v.size[b])


@inlined
def _give(into: Potentials, unit: int, change: int) -> None:
    into.bytes[unit] += change
    if not into.known[unit]:
        into.known[unit] = True
        into.changed[into.length[0]] = unit
        into.length[0] += 1


@subkernel
def _both(one: int, other: int, units: int, last: bool) -> int:
    """Merge two keepers, each encoded as position * `units` + the unit that keeps until that position."""
    if one == _NOBODY:
        return other
    if other == _NOBODY:
        return one
    if last or (one >= 0 and other >= 0 and one % units == other % units):
        return max(one, other)
    return _MANY


@spliced
def _reading(v: BufferLives, at: Ints, where: tuple[int, int, int], w: Scratch, last: bool) -> int:
    """Find who still has to read a bundle at a location; `where` is (bundle, location, position)."""
    bundle, place, now = where
    keeper, units = _NOBODY, len(at)
    for r in range(v.read[bundle], v.walk[bundle]):
        task = v.reader[r]
        if at[v.unit[task]] == place:
            reads = v.gone[task] * units + v.unit[task] if now < v.gone[task] else w.kept[r]
            keeper = _both(keeper, reads, units, last)
        w.kept[r] = _NOBODY
    if v.wide[bundle] >= 0:
        for front in (w.fronts.first, w.fronts.second):
            r = front[v.wide[bundle], place]
            if r < len(v.reader) and now < v.gone[v.reader[r]]:
                keeper = _both(keeper, v.gone[v.reader[r]] * units + v.unit[v.reader[r]], units, last)
    return keeper


@spliced
def _sending(v: BufferLives, at: Ints, where: tuple[int, int], w: Scratch, maker: int) -> int:
    """First position at which a bundle, `where` = (bundle, location), has left that for all others; -1: at once."""
    bundle, place = where
    gone = -1
    for r in range(v.read[bundle], v.walk[bundle]):
        there = at[v.unit[v.reader[r]]]
        if there != place and w.until[there] < 0:
            w.until[there] = 0
            gone = max(gone, crossing(v, bundle, there, maker)[1])
    for r in range(v.read[bundle], v.walk[bundle]):
        w.until[at[v.unit[v.reader[r]]]] = -1
    if v.wide[bundle] >= 0:
        for there in range(len(w.until)):
            if there != place and w.fronts.first[v.wide[bundle], there] < len(v.reader):
                gone = max(gone, crossing(v, bundle, there, maker)[1])
    return gone
