"""A quick schedule of any allocation, compiled: each operation of a batch at the first free ticks modulo the period.

Runs of layers on one device are done at once. On a contiguous allocation no 1F1B* of the same period holds more: its
forward halves are as early, and so is then each backward half. Elsewhere it is a heuristic. What a batch holds is
counted as the checker does (`pattern_check`), with the layers of a run held as long as the run.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints, ints, offsets
from solvers.compiled.kernels import routine, subroutine
from solvers.pipelining.chain import Chain, Machines, MemoryModel, slower
from solvers.problem import MOST

NONE = -1


class ChainSums(NamedTuple):
    """A chain on devices, as sums."""

    forward: Ints
    """[P, L + 1] ticks of all layers before each on a device."""
    backward: Ints
    """[P, L + 1] ticks of the backward halves likewise."""
    weights: Ints
    """[L + 1] bytes of all layers before each."""
    activation: Ints
    """[L + 1] bytes of a batch of all layers before each."""
    output: Ints
    """[L + 1] bytes that cross before each layer."""
    transfers: Ints
    """[K, L + 1] ticks of the cut before each layer on each kind of link."""
    link: Ints
    """[P, P] kind of the link between two devices."""
    memory: Ints
    """[P] bytes of each device."""
    paper: bool
    """True if memory is counted by the paper's model."""


class BatchRuns(NamedTuple):
    """The operations of a batch in their order, forward and backward, and what it holds."""

    ticks: Ints
    """[n] of each operation."""
    resource: Ints
    """[n] the device or link that each takes."""
    first: Ints
    """[h] the operation from whose start on something is held."""
    last: Ints
    """[h] the one at whose end it is let go of."""
    device: Ints
    """[h] where each is held."""
    size: Ints
    """[h] bytes of each."""
    room: Ints
    """[P] bytes beside the weights."""


def ground(chain: Chain, machines: Machines, model: MemoryModel) -> ChainSums:
    """Return the sums of a chain on these devices."""
    speeds = sorted({machines.link(d, e) for e in range(machines.devices) for d in range(e)})
    kind = {speed: at for at, speed in enumerate(speeds)}
    link = np.zeros((machines.devices, machines.devices), dtype=np.int64)
    for e in range(machines.devices):
        for d in range(e):
            link[d, e] = link[e, d] = kind[machines.link(d, e)]
    cuts = ints(np.concatenate([[0], chain.transfers, [0]]))
    return ChainSums(
        forward=ints([offsets(slower(chain.forward, speed)) for speed in machines.speed]),
        backward=ints([offsets(slower(chain.backward, speed)) for speed in machines.speed]),
        weights=offsets(chain.weights), activation=offsets(chain.activation), output=chain.output,
        transfers=ints([slower(cuts, speed) for speed in speeds or [Fraction(1)]]), link=link,
        memory=ints([MOST] * machines.devices) if machines.memory is None else machines.memory,
        paper=model is MemoryModel.PAPER,
    )  # fmt: skip


@subroutine
def _runs(on: ChainSums, device: Ints) -> BatchRuns:
    """Return the operations of a batch, and what it holds."""
    layers = len(device)
    first = np.append(np.append(0, np.flatnonzero(device[1:] != device[:-1]) + 1), layers)
    count = len(first) - 1
    n, h = 4 * count - 2, 1 if on.paper else 4
    result = BatchRuns(
        np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(h * count, dtype=np.int64),
        np.zeros(h * count, dtype=np.int64), np.zeros(h * count, dtype=np.int64), np.zeros(h * count, dtype=np.int64),
        on.memory.copy(),
    )  # fmt: skip
    for r in range(count):
        i, j, d = first[r], first[r + 1], device[first[r]]
        ahead, back = 2 * r, n - 1 - 2 * r  # between them sends, also such as take no ticks
        result.ticks[ahead], result.resource[ahead] = on.forward[d, j] - on.forward[d, i], d
        result.ticks[back], result.resource[back] = on.backward[d, j] - on.backward[d, i], d
        result.room[d] -= on.weights[j] - on.weights[i]
        kept = on.activation[j] - on.activation[i]
        if r == 0 and not on.paper:
            kept += on.output[0]
        _hold(result, h * r, (ahead, back), d, kept)
        if r + 1 < count:
            _link(on, device, j, ahead, result)
    return result


@subroutine
def _link(on: ChainSums, device: Ints, j: int, ahead: int, runs: BatchRuns) -> None:
    """The sends behind a run whose forward half is `ahead`, and what is held for them."""
    d, e, devices, last = device[j - 1], device[j], len(on.memory), len(runs.ticks) - 1 - ahead
    total, out, back = on.transfers[on.link[d, e], j], ahead + 1, last - 1
    runs.ticks[out], runs.ticks[back] = total // 2, total - total // 2
    runs.resource[out] = runs.resource[back] = devices + min(d, e) * devices + max(d, e)
    if on.paper:
        return
    row, size = 2 * ahead + 1, on.output[j]
    if total:
        _hold(runs, row, (out, back - 1), e, size)
        _hold(runs, row + 1, (back, last), d, size)
        _hold(runs, row + 2, (back - 1, back), e, size)
    else:
        _hold(runs, row, (out + 1, back - 1), e, size)
        _hold(runs, row + 1, (back - 1, last), d, size)


@subroutine
def _hold(runs: BatchRuns, row: int, ends: tuple[int, int], device: int, size: int) -> None:
    runs.first[row], runs.last[row], runs.device[row], runs.size[row] = ends[0], ends[1], device, size


@routine
def quick_period(on: ChainSums, device: Ints, most: int) -> int:
    """Return the least period <= `most` that is found; NONE where none is."""
    runs = _runs(on, device)
    loads = np.zeros(runs.resource.max() + 1, dtype=np.int64)
    for at in range(len(runs.ticks)):
        loads[runs.resource[at]] += runs.ticks[at]
    low, high = max(1, loads.max()), most
    if low > most or runs.room.min() < 0 or not _fits(runs, high, on.paper):
        return NONE
    while low < high:
        middle = (low + high) // 2
        if _fits(runs, middle, on.paper):
            high = middle
        else:
            low = middle + 1
    return high


@routine
def lacking(on: ChainSums, device: Ints) -> int:
    """Return bytes that lack on all devices where one batch is done after the other."""
    runs = _runs(on, device)
    start = np.cumsum(runs.ticks) - runs.ticks
    peaks = _peaks(runs, start, max(1, runs.ticks.sum()), on.paper)
    return np.maximum(peaks - runs.room, 0).sum()


@routine
def quick_starts(on: ChainSums, device: Ints, period: int) -> tuple[Ints, Ints]:
    """Return resources and starts of the operations of batch 0, at a period that `quick_period` found."""
    runs = _runs(on, device)
    start = np.zeros(len(runs.ticks), dtype=np.int64)
    _placed(runs, period, start)
    return runs.resource, start


@subroutine
def _fits(runs: BatchRuns, period: int, paper: bool) -> bool:
    start = np.zeros(len(runs.ticks), dtype=np.int64)
    if not _placed(runs, period, start):
        return False
    return bool((_peaks(runs, start, period, paper) <= runs.room).all())


@subroutine
def _placed(runs: BatchRuns, period: int, start: Ints) -> bool:
    """Place each operation at the first free ticks of its resource once it is ready; return False without any."""
    ready = 0
    for at in range(len(runs.ticks)):
        begin, ticks = ready, runs.ticks[at]
        moved = ticks > 0
        while moved:
            moved = False
            for other in range(at):
                if runs.resource[other] != runs.resource[at] or not runs.ticks[other]:
                    continue
                inside = (begin - start[other]) % period
                if inside < runs.ticks[other] or inside + ticks > period:
                    begin += (
                        (runs.ticks[other] - inside) % period
                        if inside < runs.ticks[other]
                        else period - inside + runs.ticks[other]
                    )
                    moved = True
            if begin >= ready + period:
                return False
        start[at] = begin
        ready = begin + ticks
    return True


@subroutine
def _peaks(runs: BatchRuns, start: Ints, period: int, paper: bool) -> Ints:
    """Return [P] greatest bytes of batches at any tick; by the paper's model the sum of each thing's own greatest."""
    result = np.zeros(len(runs.room), dtype=np.int64)
    for at in range(len(runs.first)):
        begin = start[runs.first[at]]
        end = start[runs.last[at]] + runs.ticks[runs.last[at]]
        if paper:
            result[runs.device[at]] += runs.size[at] * -(-(end - begin) // period)
            continue
        there = 0
        for other in range(len(runs.first)):
            if runs.device[other] == runs.device[at]:
                since = begin - start[runs.first[other]]
                gone = begin - start[runs.last[other]] - runs.ticks[runs.last[other]]
                there += runs.size[other] * (since // period - gone // period)
        result[runs.device[at]] = max(result[runs.device[at]], there)
    return result
