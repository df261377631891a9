"""Bytes of a family at each location, and the unit that alone keeps them there (ParDNN's Table 4.2).

The first readers of each wide bundle at each location are kept up to date while units move: a buffer may have thousands
of readers (a scalar that every update of a training step reads); a unit that moves is one of them. Of all readers at a
location, only the two foremost units matter: until when the bytes are needed there, and whether one unit alone needs
them. The reads of a bundle come by falling finish, so that these are its first ones.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints
from solvers.compiled.dag import adjacency
from solvers.compiled.kernels import inlined, kernel, spliced, subkernel
from solvers.heuristics.overflow.buffers import BufferLives


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
