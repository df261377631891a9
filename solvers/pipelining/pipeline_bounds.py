"""Lower bounds on the period of a pipeline and on a flushed step, each with its name; exact fractions of ticks.

Those of a period hold for k-periodic schedules of every k, and for every order and rate. A batch stays with a layer
from the start of its forward to the end of its backward half, at least as long as both halves of all from there on
take, D; at T ticks a batch D / T are on the way on average (Little 1961), so that at some time ceil(D / T) are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.pipelining.chain import Chain, MemoryModel
from solvers.pipelining.stage_bytes import StageBytes, at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What no schedule is below."""

    name: str
    value: Fraction
    """Ticks: a batch of a period, all of a flushed step."""


def best(bounds: Sequence[Bound]) -> Bound:
    """The greatest; of equal ones the first."""
    return max(bounds, key=lambda bound: bound.value)


def of_stages(
    chain: Chain, first: Ints, memory: int | None = None, model: MemoryModel = MemoryModel.RECEIVED
) -> tuple[Bound, ...]:
    """Bounds on the period of every schedule of a contiguous allocation; `first` [S + 1] as of `Cuts`.

    - device load, link load: the ticks that a batch takes of the busiest.
    - bytes in flight: what a batch holds on a stage, for as long as it must, over the room beside the weights.
    - in flight: D over the batches that a stage has room for, of schedules that do each half of a stage at once.

    The last two with `memory` bytes a device. ValueError, naming the stage, where not even one batch fits.
    """
    ticks = passed(chain.loads, first, chain.transfers)
    found = [
        Bound(name="device load", value=Fraction(max(ticks[::2]))),
        Bound(name="link load", value=Fraction(max(ticks[1::2], default=0))),
    ]
    if memory is not None:
        held = at_least(chain, model)
        stages = [_Stage.of(chain, held, stage, i, j) for stage, (i, j) in enumerate(pairwise(first.tolist()))]
        left = [sum(ticks[2 * stage :]) for stage in range(len(stages))]
        pairs = list(zip(stages, left, strict=True))
        found.append(Bound(name="bytes in flight", value=max(s.average(memory, d) for s, d in pairs)))
        found.append(Bound(name="in flight", value=max(s.whole(memory, d) for s, d in pairs)))
    return tuple(found)


def of_all(
    chain: Chain, devices: int, memory: int | None = None, model: MemoryModel = MemoryModel.RECEIVED
) -> tuple[Bound, ...]:
    """Bounds on the period of every schedule of every allocation, contiguous or not.

    - largest layer, mean load: a layer is done by one device, all layers by `devices`.
    - packed ticks: layers in devices of T ticks, as `bins`.
    - layer in flight: D of a layer over the batches that a device has room for beside its weights.
    - bytes in flight: what a batch holds on all devices, for as long as it must, over their room beside all weights.
    - packed bytes: layers in devices, by `bins`, each with its weights and D / T activations, in the paper's model
      rounded up.

    The last three with `memory` bytes a device. ValueError where one batch in flight has no room.
    """
    ticks = chain.loads.tolist()
    found = [
        Bound(name="largest layer", value=Fraction(max(ticks))),
        Bound(name="mean load", value=Fraction(sum(ticks), devices)),
        Bound(name="packed ticks", value=Fraction(_packed_ticks(ticks, devices))),
    ]
    if memory is not None:
        layers = _Layers.of(chain, devices, memory, model)
        found.append(Bound(name="layer in flight", value=layers.alone()))
        found.append(Bound(name="bytes in flight", value=layers.average()))
        found.append(Bound(name="packed bytes", value=layers.packed()))
    return tuple(found)


def flushed_step(chain: Chain, first: Ints, micro_batches: int, *, split: bool = False) -> tuple[Bound, ...]:
    """Bounds on a step of so many micro-batches through a contiguous allocation, from empty to empty.

    The busiest device, and the busiest link: what is before it in the chain, forward, `micro_batches` times its load,
    and what is before it, backward. `split`: nothing waits for the weights' gradients, so they may come last of all.
    ValueError without a micro-batch.
    """
    if micro_batches < 1:
        raise ValueError(f"{micro_batches} micro-batches - give 1 or more")
    ticks = passed(chain.loads, first, chain.transfers)
    forward = passed(chain.forward, first, chain.transfers // 2)
    last = passed(chain.weight_gradient * split, first, 0 * chain.transfers)
    found = []
    head = framed = 0  # ticks before it: forward, and all that are waited for
    for once, ahead, behind in zip(ticks, forward, last, strict=True):
        found.append(max(head + micro_batches * once, framed + micro_batches * (once - behind)))
        head, framed = head + ahead, framed + once - behind
    return (
        Bound(name="device", value=Fraction(max(found[::2]))),
        Bound(name="link", value=Fraction(max(found[1::2], default=0))),
    )


def passed(ticks: Ints, first: Ints, cut: Ints) -> list[int]:
    """What a batch passes: the sums of `ticks` [L] over each stage, and between two stages the `cut` [L - 1] there."""
    found = np.empty(2 * len(first) - 3, dtype=np.int64)
    found[::2] = np.add.reduceat(ticks, first[:-1])
    found[1::2] = cut[first[1:-1] - 1]
    return found.tolist()


def bins(sizes: Sequence[int], room: int) -> int:
    """The least number of bins of `room` that can hold the sizes, none larger: a bound, L2 (Martello and Toth 1990)."""
    order = sorted(sizes, reverse=True)
    before = list(accumulate(order, initial=0))
    half = bisect_left(order, -room, key=lambda size: -2 * size)  # those above half a bin
    found = -(-before[-1] // room) if room else 0
    for small in {size for size in order[half:] if size}:
        # Above room - small: alone. To half a bin: one in each. From there to small: in the room beside those.
        alone = bisect_left(order, small - room, 0, half, key=lambda size: -size)
        end = bisect_right(order, -small, key=lambda size: -size)
        spare = (half - alone) * room - (before[half] - before[alone])
        found = max(found, half + max(0, -((spare - (before[end] - before[half])) // room)))
    return max(found, half)


class _Stage(NamedTuple):
    """A stage of layers, and what a batch holds there."""

    number: int
    weights: int
    each: int
    """Activations and what enters."""
    later: int
    """Bytes times the ticks from the stage's first layer to where they begin to be held, there and back."""

    @classmethod
    def of(cls, chain: Chain, held: StageBytes, stage: int, i: int, j: int) -> "_Stage":
        """Layers i to j - 1."""
        before = accumulate(chain.loads[i:j].tolist(), initial=0)
        later = sum(a * ticks for a, ticks in zip(chain.activation[i:j].tolist(), before, strict=False))
        weights = held.held(i, j, 0, 0)
        return cls(stage, weights, held.held(i, j, 1, 1) - weights, later)

    def average(self, memory: int, left: int) -> Fraction:
        """Bytes times ticks of a batch over the room; `left` is D of the stage."""
        return Fraction(self.each * left - self.later, self.room(memory)) if self.each else Fraction(0)

    def whole(self, memory: int, left: int) -> Fraction:
        """`left` over the batches that there is room for."""
        return Fraction(left, self.room(memory) // self.each) if self.each else Fraction(0)

    def room(self, memory: int) -> int:
        """Bytes beside the weights; ValueError where they are less than of one batch."""
        lacking = self.weights + self.each - memory
        if lacking > 0:
            raise ValueError(
                f"stage {self.number} lacks {lacking} bytes for one batch in flight - cut elsewhere, or give it more"
            )
        return memory - self.weights


def _packed_ticks(ticks: list[int], devices: int) -> int:
    """The least T of which `bins` does not say that the layers need more devices."""
    low, high = max(ticks), sum(ticks)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if bins(ticks, middle) > devices else (low, middle)
    return low


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layers:
    """Layers that any device may do, of which it has `memory` bytes."""

    passing: list[int]
    """D of each layer, ticks."""
    weights: list[int]
    activation: list[int]
    devices: int
    memory: int
    rounded: bool
    """Whether batches in flight are counted layer by layer, at different times."""

    @classmethod
    def of(cls, chain: Chain, devices: int, memory: int, model: MemoryModel) -> "_Layers":
        passing = list(accumulate(reversed(chain.loads.tolist())))[::-1]
        found = cls(
            passing=passing, weights=chain.weights.tolist(), activation=chain.activation.tolist(),
            devices=devices, memory=memory, rounded=model is MemoryModel.PAPER,
        )  # fmt: skip
        # Between the forward and the backward half of the last layer a batch holds all its activations.
        if not found.go([w + a for w, a in zip(found.weights, found.activation, strict=True)], memory):
            raise ValueError(
                f"no allocation fits: {devices} devices of {memory} bytes have no room for a batch - give them more"
            )
        return found

    def go(self, sizes: list[int], room: int) -> bool:
        """Whether `bins` does not say that layers of these sizes are too many."""
        return max(sizes) <= room and bins(sizes, room) <= self.devices

    def fit(self, period: Fraction) -> bool:
        """Whether nothing speaks against T = `period` > 0."""
        rows = list(zip(self.passing, self.weights, self.activation, strict=True))
        if self.rounded:
            return self.go([w + ceil(d / period) * a for d, w, a in rows], self.memory)
        p, q = period.numerator, period.denominator
        return self.go([w * p + d * q * a for d, w, a in rows], self.memory * p)

    def alone(self) -> Fraction:
        """D over the batches that the layer has room for by itself, at most."""
        rows = zip(self.passing, self.weights, self.activation, strict=True)
        return max((Fraction(d, (self.memory - w) // a) for d, w, a in rows if a), default=Fraction(0))

    def average(self) -> Fraction:
        """Bytes times ticks of a batch over the room of all devices."""
        held = sum(d * a for d, a in zip(self.passing, self.activation, strict=True))
        return Fraction(held, self.devices * self.memory - sum(self.weights)) if held else Fraction(0)

    def packed(self) -> Fraction:
        """What T is at least: the last whole one that is refuted, or with rounding the first step that is not."""
        low, high = 0, max(1, self.passing[0])
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fit(Fraction(middle)) else (middle, high)
        if low == 0 or not self.rounded:
            return Fraction(low)
        # Sizes change where a D / T is whole, and are those of the step before until then.
        steps = sorted({Fraction(d, n) for d in self.passing for n in _whole(d, low, high)})
        return next((step for step in steps if self.fit(step)), Fraction(high))


def _whole(ticks: int, low: int, high: int) -> range:
    """Every n with low < ticks / n <= high, and `low` > 0."""
    return range(max(1, -(-ticks // high)), (ticks - 1) // low + 1)
