"""The dynamic program over contiguous stages of devices that are not equal, for a given T, compiled.

As `solvers.pipelining.one_label`, from the chain's end, one label a state; a state here says which kinds of devices
the layers behind have used, and how many of each, and which kind is the first of them. Devices of a kind are alike in
speed, bytes and links, so states do not tell them apart.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.compiled.kernels import routine, subroutine
from solvers.pipelining.one_label import NONE, push


class Fleet(NamedTuple):
    """A chain on C kinds of devices."""

    work: Ints
    """[C, L + 1] ticks of all layers before each on a device of a kind."""
    transfers: Ints
    """[K, L - 1] ticks of each cut on each kind of link."""
    link: Ints
    """[C, C] kind of the link between devices of two kinds, or between two of one."""
    memory: Ints
    """[C] bytes of a device."""
    weights: Ints
    """[L + 1] as of `StageBytes`, and the following ones too."""
    activation: Ints
    entering: Ints
    before: Ints
    behind: Ints
    sent: Ints
    """[C, L] ticks of the transfer before layer i that a stage on a kind is charged with."""
    in_flight: Ints
    """[2 P + 2] batches in flight in a stage of each group."""


class States(NamedTuple):
    """Which devices are used, each state after those that it follows on."""

    kind: Ints
    """[S] of the first device."""
    begin: Ints
    """[S + 1] where the states behind its first device begin."""
    after: Ints
    """[n] these states; -1: none, the stage is the last."""


class OrderLabels(NamedTuple):
    """The least label of layers i.. in each state, [S, L + 1] each."""

    group: Ints
    """Group of the first stage, NONE where nothing fits."""
    load: Ints
    """Ticks in that group so far."""
    end: Ints
    """The layer behind the first stage."""
    behind: Ints
    """The state of what is behind it; -1: nothing."""


def order_labels(fleet: Fleet, states: States, most: int) -> OrderLabels:
    """The labels of all states for T = `most`. O(S (L^2 + L n / S))."""
    return OrderLabels(*_order_labels(fleet, states, most))


@routine
def _order_labels(fleet: Fleet, states: States, most: int) -> tuple[Ints, Ints, Ints, Ints]:
    """As of `OrderLabels`."""
    layers, many = fleet.work.shape[1] - 1, len(states.kind)
    found = OrderLabels(
        np.zeros((many, layers + 1), dtype=np.int64), np.zeros((many, layers + 1), dtype=np.int64),
        np.zeros((many, layers + 1), dtype=np.int64), np.full((many, layers + 1), -1),
    )  # fmt: skip
    for s in range(many):
        ahead = _ahead(fleet, states, found, s, most)
        for i in range(layers - 1, -1, -1):
            _stage(fleet, found, ahead, (s, states.kind[s], i), most)
    return found.group, found.load, found.end, found.behind


@subroutine
def _ahead(fleet: Fleet, states: States, found: OrderLabels, s: int, most: int) -> Ints:
    """[L + 1, 3] the least label of the layers behind each cut, its transfer among them, and its state."""
    layers = fleet.work.shape[1] - 1
    ahead = np.zeros((layers + 1, 3), dtype=np.int64)
    for at in range(states.begin[s], states.begin[s + 1]):
        other = states.after[at]
        if other < 0:
            ahead[layers, 0], ahead[layers, 2] = 1, -1
            continue
        link = fleet.link[states.kind[s], states.kind[other]]
        for j in range(1, layers):
            if found.group[other, j] == NONE:
                continue
            group, load = push(found.group[other, j], found.load[other, j], fleet.transfers[link, j - 1], most)
            known = ahead[j, 0]
            if group != NONE and (known == NONE or group < known or (group == known and load < ahead[j, 1])):
                ahead[j, 0], ahead[j, 1], ahead[j, 2] = group, load, other
    return ahead


@subroutine
def _stage(fleet: Fleet, found: OrderLabels, ahead: Ints, at: tuple[int, int, int], most: int) -> None:
    """The least label of layers i.. whose first stage is on a device of this kind."""
    s, c, i = at
    work, memory = fleet.work[c], fleet.memory[c]
    for j in range(i + 1, len(work)):
        ticks = work[j] - work[i]
        fixed = fleet.weights[j] - fleet.weights[i] + fleet.before[i]
        if ticks > most or fixed > memory:
            break
        if ahead[j, 0] == NONE:
            continue
        group, load = push(ahead[j, 0], ahead[j, 1], ticks, most)
        known = found.group[s, i]
        if known != NONE and (group > known or (group == known and load >= found.load[s, i])):
            continue
        in_flight = fleet.in_flight[group] * (fleet.activation[j] - fleet.activation[i])
        entered = fleet.in_flight[group + (load + fleet.sent[c, i] > most)] * fleet.entering[i]
        if fixed + fleet.behind[j] + in_flight + entered <= memory:
            found.group[s, i], found.load[s, i], found.end[s, i] = group, load, j
            found.behind[s, i] = ahead[j, 2]
