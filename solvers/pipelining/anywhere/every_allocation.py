"""Every allocation of a short chain whose loads and bytes may do, each kind of it once, compiled."""

import numpy as np

from solvers.arrays import Ints
from solvers.compiled.kernels import routine
from solvers.pipelining.anywhere.quick_period import ChainSums


@routine
def every_allocation(on: ChainSums, kind: Ints, below: int, most: int) -> tuple[Ints, int]:
    """[n, L] allocations on which no device takes `below` ticks a batch, or more bytes for one than it has, and n.

    Of devices of one `kind`, [P], the first that is free is used first. At most `most` are given; n may be more by one.
    """
    layers, devices = on.forward.shape[1] - 1, len(on.memory)
    found = np.zeros((most, layers), dtype=np.int64)
    device, load, held = np.full(layers, -1), np.zeros(devices, dtype=np.int64), np.zeros(devices, dtype=np.int64)
    count, at = 0, 0
    busy = np.flatnonzero(on.forward[0, 1:] + on.backward[0, 1:] - on.forward[0, :-1] - on.backward[0, :-1])
    until = busy[-1] if len(busy) else -1
    while at >= 0:
        if at == layers:
            if count == most:
                return found, count + 1
            found[count] = device
            count += 1
            at -= 1
            continue
        d = device[at]
        if d >= 0:
            load[d] -= _ticks(on, d, at)
            held[d] -= _bytes(on, at, until)
        d = _next(device, kind, at, d + 1)
        while d < devices and (load[d] + _ticks(on, d, at) >= below or held[d] + _bytes(on, at, until) > on.memory[d]):
            d = _next(device, kind, at, d + 1)
        if d == devices:
            device[at] = -1
            at -= 1
            continue
        device[at] = d
        load[d] += _ticks(on, d, at)
        held[d] += _bytes(on, at, until)
        at += 1
    return found, count


@routine
def _ticks(on: ChainSums, d: int, at: int) -> int:
    return on.forward[d, at + 1] - on.forward[d, at] + on.backward[d, at + 1] - on.backward[d, at]


@routine
def _bytes(on: ChainSums, at: int, until: int) -> int:
    """Weights and one batch's activation, which a layer holds while it does its backward half.

    Layers behind `until`, the last that takes any time, may do and undo it at once.
    """
    kept = on.activation[at + 1] - on.activation[at] if at <= until else 0
    return on.weights[at + 1] - on.weights[at] + kept


@routine
def _next(device: Ints, kind: Ints, at: int, d: int) -> int:
    """The first device from d on that is in use by the layers before `at`, or the first free one of its kind."""
    while d < len(kind):
        used = (device[:at] == d).any()
        if used:
            return d
        first = True
        for e in range(d):
            if kind[e] == kind[d] and not (device[:at] == e).any():
                first = False
        if first:
            return d
        d += 1
    return d
