"""First reader of each wide bundle at each location, kept up to date while units move.

A buffer may have thousands of readers (a scalar that every update of a training step reads); a unit that moves is one
of them. Of all readers at a location, only the two foremost units matter: until when the bytes are needed there, and
whether one unit alone needs them. The reads of a bundle come by falling finish, so that these are its first ones.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.compiled.dag import adjacency
from solvers.compiled.kernels import inlined, kernel, subkernel
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
    """The fronts when each unit is `at` its location, [u]. O(r log r + w l)."""
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
