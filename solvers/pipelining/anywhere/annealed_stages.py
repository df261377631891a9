"""Allocations annealed by the period of their quick schedule, compiled; what does not fit is worth what lacks."""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Floats, Ints
from solvers.compiled.kernels import routine, subroutine
from solvers.pipelining.anywhere.quick_period import NONE, ChainSums, lacking, quick_period

POOL = 24
"""Allocations that are kept."""
DRAWS = 5
"""Random numbers of a move."""
_RUNS = 16
"""Runs of layers, beside six a device, that an allocation has at most: more take long to lay out."""


class AllocationPool(NamedTuple):
    """The best allocations met, each once."""

    device: Ints
    """[POOL, L] device of each layer of each."""
    value: Ints
    """[POOL] least periods that were found; NONE where there is none yet."""


@routine
def worth(on: ChainSums, device: Ints, most: int) -> int:
    """The least period that is found; where none is below `most`, that and the bytes that lack for one batch."""
    found = quick_period(on, device, most)
    return found if found != NONE else most + lacking(on, device)


@routine
def annealed(on: ChainSums, device: Ints, most: int, heat: float, draws: Floats, pool: AllocationPool) -> Ints:
    """The allocation after as many moves as there are `draws`, [n, DRAWS] of 0 to 1; `heat` falls to none.

    `most`: ticks of all operations of a batch, the longest period that there is reason for.
    """
    value = worth(on, device, most)
    _keep(pool, device, value, most)
    for n in range(len(draws)):
        moved = _moved(device, len(on.memory), draws[n])
        runs = 1 + int(np.count_nonzero(moved[1:] != moved[:-1]))
        if runs > _RUNS + 6 * len(on.memory) or (moved == device).all():
            continue
        if value > most:
            found = worth(on, moved, most)
            found = found if found <= value else NONE
        else:
            allowed = value - value * heat * (1 - n / len(draws)) * np.log(max(draws[n, 4], 1e-12))
            found = quick_period(on, moved, min(most, int(allowed)))
        if found != NONE:
            device, value = moved, found
            _keep(pool, device, value, most)
    return device


@subroutine
def _moved(device: Ints, devices: int, draw: Floats) -> Ints:
    """A copy with a boundary shifted, a run or some layers elsewhere, or two runs that change places."""
    layers, found = len(device), device.copy()
    first = np.append(0, np.flatnonzero(device[1:] != device[:-1]) + 1)
    run = int(draw[1] * len(first))
    i, j = first[run], first[run + 1] if run + 1 < len(first) else layers
    d = int(draw[2] * devices)
    if draw[0] < 0.45 and len(first) > 1:
        far = 1 + int((j - i) * draw[3] ** 3)
        if run and (draw[2] < 0.5 or j == layers):
            found[i : min(i + far, j)] = device[i - 1]
        elif j < layers:
            found[max(j - far, i) : j] = device[j]
    elif draw[0] < 0.65:
        found[i:j] = d
    elif draw[0] < 0.85:
        at = int(draw[1] * layers)
        found[at : at + 1 + int(0.5 * layers * draw[3] ** 3)] = d
    else:
        other = int(draw[3] * len(first))
        end = first[other + 1] if other + 1 < len(first) else layers
        found[i:j], found[first[other] : end] = device[first[other]], device[i]
    return found


@subroutine
def _keep(pool: AllocationPool, device: Ints, value: int, most: int) -> None:
    """In place of the worst, if it is better and not there yet."""
    worst = 0
    for at in range(len(pool.value)):
        if pool.value[at] == value and (pool.device[at] == device).all():
            return
        if pool.value[worst] != NONE and (pool.value[at] == NONE or pool.value[at] > pool.value[worst]):
            worst = at
    if value <= most and (pool.value[worst] == NONE or value < pool.value[worst]):
        pool.value[worst] = value
        pool.device[worst] = device
