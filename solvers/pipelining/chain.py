"""A chain of layers, where each of them runs, and a schedule of batches that repeats. Ticks and bytes only.

Beaumont, Eyraud-Dubois, Shilova: Pipelined Model Parallelism: Complexity Results and Memory Considerations (Euro-Par
2021), sections 2 and 3.
"""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from fractions import Fraction

import numpy as np

from solvers.arrays import Ints, ints
from solvers.problem import MOST

FORWARD, BACKWARD, SEND_FORWARD, SEND_BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(6)
"""Kinds of rows of a pattern. A layer's backward half is one BACKWARD, or an INPUT_GRADIENT (what the layer before it
waits for) and a WEIGHT_GRADIENT."""
KINDS = ("forward", "backward", "send forward", "send backward", "input gradient", "weight gradient")
"""Names of the kinds of rows."""


class MemoryModel(StrEnum):
    """The bytes that count as held on a device beside the weights."""

    PAPER = "paper"
    """For each layer its activation as often as batches are in flight there at most (the paper's M(p))."""
    RECEIVED = "received"
    """Count the bytes alive at the fullest tick: activations, inputs received (kept until the backward half ends), and
    gradients from their making on one device to their last use on the other."""


def _none() -> Ints:
    return ints([])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chain:
    """L layers through which each batch runs forward, first to last, and then backward, last to first.

    Times are ticks >= 0, memory is bytes >= 0. Arrays are copied and made read-only. ValueError, naming the first
    offender, where a field has the wrong length or a value is out of range.
    """

    forward: Ints
    """[L] ticks of a layer's forward half."""
    backward: Ints
    """[L] ticks of a layer's backward half."""
    weights: Ints
    """[L] bytes held for ever: weights in all their versions, gradients, optimizer states."""
    activation: Ints
    """[L] bytes kept for each batch from the start of a layer's forward half to the end of its backward half."""
    output: Ints
    """[L + 1] bytes a batch that cross before layer 0, between layers, and after the last one; what a backward half
    sends back is as large."""
    transfers: Ints
    """[L - 1] ticks a batch that a link takes for the cut after layer l, there and back together (2a/beta)."""
    weight_gradient: Ints = field(default_factory=_none)
    """[L] ticks of `backward` that the weights' gradient takes where it is computed apart; empty: half of them."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        for f in fields(self):
            object.__setattr__(self, f.name, ints(getattr(self, f.name)))
        if self.forward.ndim != 1 or not len(self.forward):
            raise ValueError("forward must have one dimension and at least one layer")
        if not self.weight_gradient.size:
            object.__setattr__(self, "weight_gradient", ints(self.backward // 2))
        layers = len(self.forward)
        lengths = {"output": layers + 1, "transfers": layers - 1}
        for f in fields(self):
            values, length = getattr(self, f.name), lengths.get(f.name, layers)
            if values.shape != (length,):
                raise ValueError(f"{f.name} has shape {values.shape}, expected {(length,)}")
            bad = np.flatnonzero((values < 0) | (values > MOST))
            if len(bad):
                raise ValueError(f"{f.name}[{bad[0]}] is {values[bad[0]]}, out of range (0 to {MOST})")
            if sum(values.tolist()) > MOST:
                raise ValueError(f"{f.name} sums to more than {MOST}, beyond what 64 bits can add up")
        longer = np.flatnonzero(self.weight_gradient > self.backward)
        if len(longer):
            raise ValueError(f"weight_gradient[{longer[0]}] is longer than the backward half that it is a part of")
        if sum(self.forward.tolist() + self.backward.tolist() + self.transfers.tolist()) > MOST:
            raise ValueError(f"ticks sum to more than {MOST}, beyond what 64 bits can add up")

    def __repr__(self) -> str:
        """One line, without arrays."""
        return f"Chain({self.layers} layers, {int(self.loads.sum())} ticks a batch, {int(self.weights.sum())} bytes)"

    @property
    def layers(self) -> int:
        """Number of layers, L."""
        return len(self.forward)

    @property
    def loads(self) -> Ints:
        """[L] ticks of a layer's both halves."""
        return ints(self.forward + self.backward)

    def ticks(self, kind: Ints, layer: Ints) -> Ints:
        """[r] ticks of rows of these kinds and layers (of a send: the layer before the cut; forward it takes half)."""
        cut = np.append(self.transfers, 0)
        return np.choose(
            kind,
            [
                self.forward[layer], self.backward[layer], cut[layer] // 2, cut[layer] - cut[layer] // 2,
                self.backward[layer] - self.weight_gradient[layer], self.weight_gradient[layer],
            ],
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocation:
    """On which of P devices each layer runs; ValueError, naming the first offender, where a device does not exist."""

    device: Ints
    """[L] device of each layer, 0..P - 1."""
    devices: int
    """P, idle ones included."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        object.__setattr__(self, "device", ints(self.device))
        if self.device.ndim != 1 or not len(self.device):
            raise ValueError("device must have one dimension and at least one layer")
        bad = np.flatnonzero((self.device < 0) | (self.device >= self.devices))
        if len(bad):
            raise ValueError(f"device[{bad[0]}] is {self.device[bad[0]]}, of {self.devices} devices")

    @property
    def stages(self) -> Ints:
        """[s, 3] first layer, last layer and device of each run of layers on one device."""
        begins = np.flatnonzero(np.diff(self.device, prepend=-1))
        return ints(np.column_stack([begins, np.append(begins[1:], len(self.device)) - 1, self.device[begins]]))

    @property
    def contiguous(self) -> bool:
        """True if no device has more than one stage."""
        devices = self.stages[:, 2]
        return len(np.unique(devices)) == len(devices)

    @property
    def crossed(self) -> Ints:
        """[c] the layers after which a cut lies between two devices."""
        return ints(np.flatnonzero(np.diff(self.device)))

    def sent(self, chain: Chain) -> Ints:
        """[c] the cuts between two devices that take a link any time; they alone have rows in a pattern."""
        return ints([cut for cut in self.crossed.tolist() if chain.transfers[cut] > 0])

    def link(self, layer: Ints) -> Ints:
        """The link of the cut after each layer: P + d * P + e, of its devices d < e, in both directions."""
        here, there = self.device[layer], self.device[layer + 1]
        return self.devices + np.minimum(here, there) * self.devices + np.maximum(here, there)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pattern:
    """A periodic schedule: the operations of every period of `T` ticks, in which each is done for k batches.

    Period n does row r for batch n * k + shift[r], from tick n * T + t[r] on; what begins in a period may end in a
    later one. Only shapes and ranges are validated here (ValueError, naming the first offender): whether the
    schedule is a valid one says `solvers.pipelining.pattern_check.check`.
    """

    k: int
    """Batches of a period."""
    T: int
    """Ticks of a period."""
    kind: Ints
    """[r] what a row does: FORWARD, ..., WEIGHT_GRADIENT."""
    layer: Ints
    """[r] its layer; of a send, the layer before the cut."""
    copy: Ints
    """[r] 0..k - 1, once for each operation."""
    resource: Ints
    """[r] its device, 0..P - 1, or link (`Allocation.link`)."""
    t: Ints
    """[r] its first tick, 0..T - 1."""
    shift: Ints
    """[r] the batch that it does in period 0."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        if self.k < 1 or self.T < 1:
            raise ValueError(f"k and T must be at least 1, found {self.k} and {self.T}")
        limits = {
            "kind": (0, len(KINDS)), "layer": (0, MOST), "copy": (0, self.k), "resource": (0, MOST), "t": (0, self.T),
            "shift": (-MOST, MOST),
        }  # fmt: skip
        rows = np.shape(self.kind)
        for name, (least, beyond) in limits.items():
            values = ints(getattr(self, name))
            object.__setattr__(self, name, values)
            if values.ndim != 1 or values.shape != rows:
                raise ValueError(f"{name} has shape {values.shape}, expected {rows} with one dimension")
            bad = np.flatnonzero((values < least) | (values >= beyond))
            if len(bad):
                raise ValueError(f"{name}[{bad[0]}] is {values[bad[0]]}, out of range")

    def __repr__(self) -> str:
        """One line, without arrays."""
        return f"Pattern({self.k} batches every {self.T} ticks, {len(self.kind)} rows)"

    @property
    def period(self) -> Fraction:
        """Ticks a batch, T/k."""
        return Fraction(self.T, self.k)
