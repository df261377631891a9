"""The dynamic program over contiguous stages for a given T, compiled: one label a state.

Stages and the transfers between them fill groups of load T from the chain's end (1F1B*, Beaumont, Eyraud-Dubois and
Shilova 2021, section 5.1). What a further stage or transfer does to a label (group, load) grows with the label, in
lexicographic order, and so do the bytes of a stage with its group: of all ways to lay layers i.. on p devices the one
with the least label serves all that can come before it.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.compiled.kernels import inlined, routine, subroutine
from solvers.pipelining.stage_bytes import StageBytes

NONE = 0
"""The group of a state that no stages reach; groups count from 1."""


class ChainOnDevices(NamedTuple):
    """A chain to be laid on devices."""

    work: Ints
    """[L + 1] ticks of all layers before each."""
    transfers: Ints
    """[L - 1] ticks of each cut."""
    held: StageBytes
    in_flight: Ints
    """[2 P + 2] batches in flight in a stage of each group."""


class Labels(NamedTuple):
    """The least label of layers i.. on p devices, [L + 1, P + 1] each."""

    group: Ints
    """Group of the first stage, NONE where nothing fits."""
    load: Ints
    """Ticks in that group so far."""
    end: Ints
    """The layer behind the first stage."""


@inlined
def push(group: int, load: int, ticks: int, most: int) -> tuple[int, int]:
    """The label with one stage or transfer more; (NONE, 0) where it takes more than `most` ticks by itself."""
    if ticks > most:
        return NONE, 0
    if load + ticks <= most:
        return group, load + ticks
    return group + 1, ticks


def labels(laid: ChainOnDevices, devices: int, memory: int, most: int) -> Labels:
    """The labels of all states for T = `most` and devices of `memory` bytes. O(L^2 P)."""
    return Labels(*_labels(laid, devices, memory, most))


@routine
def _labels(laid: ChainOnDevices, devices: int, memory: int, most: int) -> tuple[Ints, Ints, Ints]:
    """As of `Labels`."""
    layers = len(laid.transfers) + 1
    found = Labels(
        np.zeros((layers + 1, devices + 1), dtype=np.int64),
        np.zeros((layers + 1, devices + 1), dtype=np.int64),
        np.zeros((layers + 1, devices + 1), dtype=np.int64),
    )
    behind = np.zeros((layers + 1, 2), dtype=np.int64)  # label of the layers behind each cut, its transfer among them
    found.group[layers, 0] = behind[layers, 0] = 1
    for p in range(1, devices + 1):
        for i in range(layers - p, -1, -1):
            found.group[i, p], found.load[i, p], found.end[i, p] = _least(laid, behind, i, memory, most)
        behind[:, 0] = NONE
        for j in range(1, layers):
            if found.group[j, p] != NONE:
                behind[j] = push(found.group[j, p], found.load[j, p], laid.transfers[j - 1], most)
    return found.group, found.load, found.end


@subroutine
def _least(laid: ChainOnDevices, behind: Ints, i: int, memory: int, most: int) -> tuple[int, int, int]:
    """The least label of layers i.., and where their first stage ends; (NONE, 0, 0) where nothing fits."""
    held = laid.held
    best_group, best_load, best_end = NONE, 0, 0
    for j in range(i + 1, len(laid.work)):
        ticks = laid.work[j] - laid.work[i]
        fixed = held.weights[j] - held.weights[i] + held.before[i]
        if ticks > most or fixed > memory:
            break
        if behind[j, 0] == NONE:
            continue
        group, load = push(behind[j, 0], behind[j, 1], ticks, most)
        if best_group != NONE and (group > best_group or (group == best_group and load >= best_load)):
            continue
        in_flight = laid.in_flight[group] * (held.activation[j] - held.activation[i])
        entered = laid.in_flight[group + (load + held.sent[i] > most)] * held.entering[i]
        if fixed + held.behind[j] + in_flight + entered <= memory:
            best_group, best_load, best_end = group, load, j
    return best_group, best_load, best_end
