"""A chain cut into stages, one a device, so that 1F1B* or a thinning of it has the least period within the memory.

The paper (Beaumont, Eyraud-Dubois and Shilova 2021) has no algorithm for this. For a given T a dynamic program finds
the best cuts with one label a state: stages and the transfers between them fill groups of load T from the chain's end
(section 5.1); what a further stage or transfer does to a label (group, load) grows with the label, in lexicographic
order, and so do the bytes of a stage with its group, so that of all ways to lay layers i.. on p devices the one with
the least label serves all that can come before it. Whether some cuts fit is monotone in T, and the least T is a sum of
ticks, so bisection over integers finds it exactly.

Memory of a stage of layers i to j with n batches in flight, W their weights, a their activations of a batch, x what
enters layer i, y what leaves layer j (a gradient is as large as what it is of); c batches between the start of the
transfer of x and the end of the stage's backward half, n where x needs no transfer:

- PAPER: W + n a, and no less (section 3.2).
- RECEIVED: at most W + n a + c x + 2 x + 2 y, the 2 x only where x is transferred, the 2 y where there is a stage
  behind; at least W + n (a + x).

Why at most: each x is kept until the backward half that reads it has ended. A gradient is there from the start of the
half that writes it to the end of the one that reads it. In one group those follow each other, within T. Otherwise what
comes first waits for T minus the load of the group behind, of which it is part: within 2 T, so two at a time. Why at
least: while a stage waits for its backward half, or turns to it, all n have their activations and their x.

Layers at the chain's end that take no ticks, as no layer behind them does, are done and undone at once, so of a batch
they hold nothing: at least where nothing waits in between, and in 1F1B* at most where nothing is sent behind them. A
rule by gradients of one group alone would not grow with the group, and one label a state would not do.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, bools, ints, offsets
from solvers.compiled.kernels import inlined, routine, subroutine
from solvers.pipelining.chain import Allocation, Chain, MemoryModel
from solvers.problem import MOST


class StageBytes(NamedTuple):
    """Bytes of a stage of layers i to j - 1: weights, and activations, inputs and gradients in transit."""

    weights: Ints
    """[L + 1] weights of all layers before."""
    activation: Ints
    """[L + 1] activations of a batch of all layers before."""
    entering: Ints
    """[L] bytes of a batch that enter layer i."""
    sent: Ints
    """[L] ticks before layer i's forward half from which on they count: those of the transfer."""
    before: Ints
    """[L] further bytes of a stage that begins at layer i."""
    behind: Ints
    """[L + 1] further bytes of a stage that ends before layer j."""

    def held(self, i: int, j: int, in_flight: int, entered: int) -> int:
        """Return bytes of layers i to j - 1 with so many batches in flight, and so many of what enters."""
        fixed = self.weights[j] - self.weights[i] + self.before[i] + self.behind[j]
        return int(fixed + in_flight * (self.activation[j] - self.activation[i]) + entered * self.entering[i])


def at_most(chain: Chain, model: MemoryModel) -> StageBytes:
    """Return a rule that no stage's bytes exceed."""
    held = _busy_from(np.append(chain.loads[:-1] + chain.transfers, chain.loads[-1]))
    entering = chain.output[:-1] * (held | (np.append(0, chain.transfers) > 0))
    result = _rule(chain, held, entering * (model is MemoryModel.RECEIVED))
    if model is MemoryModel.PAPER:
        return result
    before = np.append(0, 2 * chain.output[1:-1] * (chain.transfers > 0))
    behind = np.append(2 * chain.output[:-1], 0)
    return result._replace(sent=np.append(0, chain.transfers), before=before, behind=behind)


def at_least(chain: Chain, model: MemoryModel) -> StageBytes:
    """Return a rule that no stage's bytes are below, with as many inputs as batches in flight."""
    held = _busy_from(chain.loads)
    return _rule(chain, held, chain.output[:-1] * held * (model is MemoryModel.RECEIVED))


def _busy_from(ticks: Ints) -> Bools:
    """Return [L] whether a layer or one behind it takes any ticks."""
    return bools(np.cumsum(ticks[::-1])[::-1] > 0)


def _rule(chain: Chain, held: Bools, entering: Ints) -> StageBytes:
    """With the activations of these layers alone, and without transit."""
    none = np.zeros(chain.layers + 1, dtype=np.int64)
    activation = offsets(ints(chain.activation * held))
    return StageBytes(offsets(chain.weights), activation, ints(entering), none[:-1], none[:-1], none)


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
    """Return the label with one stage or transfer more; (NONE, 0) where it takes more than `most` ticks by itself."""
    if ticks > most:
        return NONE, 0
    if load + ticks <= most:
        return group, load + ticks
    return group + 1, ticks


def labels(laid: ChainOnDevices, devices: int, memory: int, most: int) -> Labels:
    """Return the labels of all states for T = `most` and devices of `memory` bytes. O(L^2 P)."""
    return Labels(*_labels(laid, devices, memory, most))


@routine
def _labels(laid: ChainOnDevices, devices: int, memory: int, most: int) -> tuple[Ints, Ints, Ints]:
    layers = len(laid.transfers) + 1
    result = Labels(
        np.zeros((layers + 1, devices + 1), dtype=np.int64),
        np.zeros((layers + 1, devices + 1), dtype=np.int64),
        np.zeros((layers + 1, devices + 1), dtype=np.int64),
    )
    behind = np.zeros((layers + 1, 2), dtype=np.int64)  # label of the layers behind each cut, its transfer among them
    result.group[layers, 0] = behind[layers, 0] = 1
    for p in range(1, devices + 1):
        for i in range(layers - p, -1, -1):
            result.group[i, p], result.load[i, p], result.end[i, p] = _least_label(laid, behind, i, memory, most)
        behind[:, 0] = NONE
        for j in range(1, layers):
            if result.group[j, p] != NONE:
                behind[j] = push(result.group[j, p], result.load[j, p], laid.transfers[j - 1], most)
    return result.group, result.load, result.end


@subroutine
def _least_label(laid: ChainOnDevices, behind: Ints, i: int, memory: int, most: int) -> tuple[int, int, int]:
    """Return the least label of layers i.., and where their first stage ends; (NONE, 0, 0) where nothing fits."""
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


MOST_DEVICES = 1 << 12
"""Devices of one pipeline at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cuts:
    """A chain cut into S stages, one a device, and the 1F1B*, thinned or not, that is laid over them."""

    first: Ints
    """[S + 1] first layer of each stage, and the number of layers."""
    devices: int
    """P, of which S have a stage."""
    T: int
    """Ticks of a period of 1F1B* before it is thinned."""
    keep: tuple[int, int]
    """(k, n): of every n batches of 1F1B*, k are kept, spread evenly; (1, 1) for all."""
    group: Ints
    """[S] group of each stage, the last stage's 1."""
    bytes: Ints
    """[S] bytes with which the memory model charges each stage."""
    order: Ints = field(default_factory=lambda: ints([]))
    """[S] device of each stage; empty: stage s is on device s."""

    def __post_init__(self) -> None:
        """Copy and freeze."""
        if not len(self.order):
            object.__setattr__(self, "order", np.arange(len(self.group)))
        for name in ("first", "group", "bytes", "order"):
            object.__setattr__(self, name, ints(getattr(self, name)))

    def __repr__(self) -> str:
        """One line, without arrays."""
        return f"Cuts({len(self.group)} stages, {self.period} ticks a batch, {int(self.bytes.max())} bytes at most)"

    @property
    def period(self) -> Fraction:
        """Ticks a batch, n T / k."""
        keep = self.keep
        return Fraction(self.T * keep[1], keep[0])

    @property
    def in_flight(self) -> Ints:
        """[S] batches in flight of each stage."""
        return in_flight_of(self.group, self.keep)

    @property
    def allocation(self) -> Allocation:
        """Which device does each layer."""
        return Allocation(device=np.repeat(self.order, np.diff(self.first)), devices=self.devices)


def thinnings(most: int) -> tuple[tuple[int, int], ...]:
    """Return (k, n) of every ratio with n <= `most` once: all batches first, then by n."""
    return tuple((k, n) for n in range(1, most + 1) for k in range(n, 0, -1) if Fraction(k, n).denominator == n)


def best_cuts(
    chain: Chain, devices: int, memory: int | None = None, model: MemoryModel = MemoryModel.RECEIVED,
    keeps: tuple[tuple[int, int], ...] = ((1, 1),),
) -> Cuts | None:  # fmt: skip
    """Return the cuts whose 1F1B*, thinned by one of `keeps`, has the least period within memory; None: none fits.

    Each of the `devices` has `memory` bytes, None: without limit. Least among all contiguous allocations under 1F1B*
    and these thinnings, with bytes by the rule `stage_bytes.at_most`: in the paper's model that is what a stage holds,
    in the other no pattern holds more, and `period_bound` says what is the least there can be. Of equal periods that
    of the first of `keeps`; idle devices are the last. O(L^2 P) a T. ValueError for fewer than one device, negative
    memory, and bytes that cannot be summed.
    """
    check_sums(chain, devices, memory)
    return _least(chain, devices, memory, at_most(chain, model), keeps)


def period_bound(
    chain: Chain, devices: int, memory: int | None = None, model: MemoryModel = MemoryModel.RECEIVED,
    keeps: tuple[tuple[int, int], ...] = ((1, 1),),
) -> Fraction | None:  # fmt: skip
    """Return a period below which nothing contiguous fits under 1F1B* thinned by one of `keeps`; None: nothing does.

    In the paper's model it is that of `best_cuts`. ValueError as there.
    """
    check_sums(chain, devices, memory)
    result = _least(chain, devices, memory, at_least(chain, model), keeps)
    return result.period if result else None


def least_memory(chain: Chain, devices: int, model: MemoryModel = MemoryModel.RECEIVED) -> int:
    """Return the least bytes a device for which `best_cuts` finds some: one batch in flight. ValueError as there."""
    check_sums(chain, devices, None)
    held = at_most(chain, model)
    low, high = 0, held.held(0, chain.layers, 1, 1)
    while low < high:
        middle = (low + high) // 2
        fits = _CutSearch.of(chain, devices, middle, held).least((1, 1), None) is not None
        low, high = (low, middle) if fits else (middle + 1, high)
    return low


def _least(
    chain: Chain, devices: int, memory: int | None, held: StageBytes, keeps: tuple[tuple[int, int], ...]
) -> Cuts | None:
    search = _CutSearch.of(chain, devices, memory, held)
    best: Cuts | None = None
    for kept, of in keeps:
        # What is no shorter than the best is of no use: n T / k < period of the best.
        most = None if best is None else int(-(-best.period * kept // of)) - 1
        best = search.least((kept, of), most) or best
    return best


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _CutSearch:
    """A chain with its sums, and what it is to be laid on."""

    work: Ints
    """[L + 1] ticks of all layers before each."""
    transfers: Ints
    """[L - 1] ticks of each cut."""
    held: StageBytes
    memory: int
    devices: int

    @classmethod
    def of(cls, chain: Chain, devices: int, memory: int | None, held: StageBytes) -> "_CutSearch":
        return cls(
            work=offsets(chain.loads), transfers=chain.transfers, held=held,
            memory=MOST if memory is None else min(memory, MOST), devices=devices,
        )  # fmt: skip

    def least(self, keep: tuple[int, int], most: int | None) -> Cuts | None:
        """Return the cuts of least T <= `most`, None for any; None where nothing fits."""
        low, high = max(1, int(np.diff(self.work).max())), max(1, int(self.work[-1] + self.transfers.sum()))
        high = high if most is None else min(most, high)  # beyond the sum of all ticks nothing changes
        result = self._laid(high, keep) if high >= low else None
        if result is None:
            return None
        while low < high:
            middle = (low + high) // 2
            tried = self._laid(middle, keep)
            if tried is None:
                low = middle + 1
            else:
                high, result = middle, tried
        # The stages that lead to the least label of the whole chain.
        fitting = np.flatnonzero(result.group[0] != NONE).tolist()
        devices = min(fitting, key=lambda p: (result.group[0, p], result.load[0, p]))
        first, group, charged = [0], [], []
        for left in range(devices, 0, -1):
            i, j = first[-1], int(result.end[first[-1], left])
            entered = result.group[i, left] + (result.load[i, left] + self.held.sent[i] > high)
            copies = in_flight_of(ints([result.group[i, left], entered]), keep).tolist()
            charged.append(self.held.held(i, j, *copies))
            first.append(j)
            group.append(int(result.group[i, left]))
        return Cuts(first=ints(first), devices=self.devices, T=high, keep=keep, group=ints(group), bytes=ints(charged))

    def _laid(self, most: int, keep: tuple[int, int]) -> Labels | None:
        """Return the labels for T = `most`; None where the whole chain has none."""
        used = min(self.devices, len(self.work) - 1)
        laid = ChainOnDevices(self.work, self.transfers, self.held, in_flight_of(np.arange(2 * used + 2), keep))
        result = labels(laid, used, self.memory, most)
        return result if (result.group[0] != NONE).any() else None


def in_flight_of(group: Ints, keep: tuple[int, int]) -> Ints:
    """Return [s] batches in flight of each group, thinned by `keep`."""
    return -(-group * keep[0] // keep[1])


def check_sums(chain: Chain, devices: int, memory: int | None) -> None:
    """Raise ValueError for devices or bytes that are out of range, and for bytes that cannot be summed."""
    if not 1 <= devices <= MOST_DEVICES:
        raise ValueError(f"{devices} devices - give 1 to {MOST_DEVICES}")
    if memory is not None and memory < 0:
        raise ValueError(f"a device has {memory} bytes - give 0 or more")
    groups = 2 * min(devices, chain.layers) + 1
    crossing, kept = int(chain.output.max()), int(chain.activation.sum())
    if int(chain.weights.sum()) + 4 * crossing + groups * (kept + crossing) > MOST:
        raise ValueError(f"stages could hold more than {MOST} bytes - count in larger units")
