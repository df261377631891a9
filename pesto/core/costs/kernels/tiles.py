"""Seconds of matmuls: per kernel the best of all tile shapes and splits, in whole waves over the multiprocessors."""

from dataclasses import dataclass, field

import numpy as np

from pesto.core.costs.kernels.machine import Constants, Machine
from solvers.arrays import Floats

_SIDES = (
    (16, 16), (32, 16), (16, 32), (32, 32), (64, 16), (16, 64), (64, 32), (32, 64), (64, 64), (128, 32), (32, 128),
    (128, 64), (64, 128), (128, 128), (256, 64), (64, 256), (256, 128), (128, 256),
)  # fmt: skip
_SPLITS = (1, 2, 4, 8, 16, 32, 64)
_HELD = 32768
"""Outputs that the registers of one multiprocessor hold, at 4 bytes each half of its 256 KiB."""
_MOST_RESIDENT = 8
_STEP = 8
"""Steps of the reduction that are loaded at once."""
_L2_BYTES_S = 3e12
_AT_ONCE = 64
"""Products whose candidates stay in a core's cache."""
_REACHABLE = 0.93
"""Share of the memory's bandwidth that nothing passes."""


def _zero() -> Floats:
    return np.zeros(1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Products:
    """n products [m, k] x [k, n], `batch` of each; any field may be of length 1."""

    m: Floats
    n: Floats
    k: Floats
    batch: Floats
    read_bytes: Floats
    """[n] bytes of the factors, with what slow reading adds."""
    least_bytes: Floats
    """[n] bytes read and written at least."""
    written: Floats
    """[n] numbers that a split has to add up."""
    speed: Floats
    """[n] times the rate of plain matmuls."""
    slower: Floats = field(default_factory=_zero)
    """[n] how much longer both the multiplication and the loads from L2 take."""


def seconds(p: Products, machine: Machine, fitted: Constants, *, splits: int = 64, narrowest: int = 16) -> Floats:
    """[n] seconds of each product, launch included, by the best tile and split."""
    tried = _candidates(max(narrowest, machine.least_tile), machine, splits)
    columns = np.stack(
        np.broadcast_arrays(
            p.m, p.n, p.k, p.batch, p.read_bytes, p.least_bytes, p.written, (1 + p.slower) / p.speed
        ),
        axis=1,
    )  # fmt: skip
    best = [_best(columns[at : at + _AT_ONCE], tried, machine, fitted) for at in range(0, len(columns), _AT_ONCE)]
    return fitted.launch * machine.launch_s + np.concatenate(best)


def _best(columns: Floats, tried: tuple[Floats, Floats, Floats], machine: Machine, fitted: Constants) -> Floats:
    """[n] seconds without the launch, of the best candidate; `columns` [n, 8] as `seconds` lists them."""
    m, n, k, batch, read, least, written, held_up = columns.T[:, :, None]
    tile_m, tile_n, split = tried
    steps = np.ceil(k / split / _STEP) * _STEP
    tiles = np.ceil(m / tile_m) * np.ceil(n / tile_n) * (batch * split)
    area, sides = tile_m * tile_n, tile_m + tile_n
    resident = np.clip(np.floor(_HELD / area), 1, _MOST_RESIDENT)
    each = np.ceil(tiles / machine.sms)
    under_way = np.minimum(each, resident) * area
    half = fitted.half * machine.width
    rate = machine.peak_flops / machine.sms * fitted.efficiency * (1 + half / _HELD) / (1 + half / under_way)
    work = each * (2 * area * (1 + 16 * fitted.small * sides / area)) * (steps + fitted.fill) / rate
    l2 = _L2_BYTES_S * fitted.l2 * machine.l2
    loads = tiles * steps * (sides * (machine.element_bytes / l2))
    share = fitted.bandwidth
    if fitted.spread:
        lines = np.minimum(tiles, machine.sms * resident) * sides
        share = share * lines / (lines + fitted.spread * machine.sms)
    partial = 8.0 * written * np.where(split > 1, split, 0)
    beyond_l2 = np.maximum(least + partial - machine.l2_bytes, 0)
    memory = np.maximum((read + partial) / (machine.bandwidth * share), beyond_l2 / (machine.bandwidth * _REACHABLE))
    busy = _joined(work * held_up, loads * held_up, memory)
    waits = np.ceil(each / resident) * fitted.wave_s + np.where(split > 1, fitted.split_s, 0.0)
    return (busy + waits * machine.cycles).min(axis=1)


def _joined(*seconds: Floats) -> Floats:
    """The longest of what overlaps, a little longer where two take equally long: the norm of order 4."""
    squares = [np.square(s) for s in seconds]
    return np.sqrt(np.sqrt(sum((np.square(s) for s in squares[1:]), start=np.square(squares[0]))))


def _candidates(narrowest: int, machine: Machine, splits: int) -> tuple[Floats, Floats, Floats]:
    """Rows and columns of the tile, and splits, of each candidate."""
    least = max(machine.least_tile, min(narrowest, 32))
    sides = [(a, b) for a, b in _SIDES if a >= narrowest and b >= least]
    counts = [s for s in _SPLITS if s <= splits]
    table = np.array([(a, b, s) for a, b in sides for s in counts], dtype=np.float64)
    return table[:, 0], table[:, 1], table[:, 2]
