"""A chain of layers, the devices on which they run, and a schedule of batches that repeats. Ticks and bytes only.

Beaumont, Eyraud-Dubois, Shilova: Pipelined Model Parallelism: Complexity Results and Memory Considerations (Euro-Par
2021), sections 2 and 3. Devices and links need not be equal.
"""

from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from fractions import Fraction

import numpy as np

from solvers.arrays import Ints, ints, offsets
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
    weight_gradient: Ints = field(default_factory=lambda: ints([]))
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
        """Return [r] ticks of rows of these kinds and layers; of a send, the layer before the cut."""
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
        """Return [c] the cuts between two devices that take a link any time; they alone have rows in a pattern."""
        return ints([cut for cut in self.crossed.tolist() if chain.transfers[cut] > 0])

    def link(self, layer: Ints) -> Ints:
        """Return the link of the cut after each layer: P + d * P + e, of its devices d < e, in both directions."""
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


MOST_SPEED = 10**9 - 1
"""The greatest numerator or denominator of a speed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Machines:
    """P devices: a layer of u ticks takes u / speed on a device, rounded up, and a transfer likewise on a link.

    ValueError, naming the first offender, for speeds that are not above 0 or beyond MOST_SPEED, negative memory, and
    links between devices that there are not.
    """

    speed: tuple[Fraction, ...]
    """[P] of each device; 1: as the chain's ticks say."""
    memory: Ints | None = None
    """[P] bytes of each device, MOST for one without limit; None: none has a limit."""
    links: dict[tuple[int, int], Fraction] = field(default_factory=dict)
    """Speed of the link between devices d < e, in both directions; 1 where none is given."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        if not self.speed:
            raise ValueError("there are no devices - give at least one")
        if self.memory is not None:
            object.__setattr__(self, "memory", ints(self.memory))
            if self.memory.shape != (self.devices,):
                raise ValueError(f"memory has shape {self.memory.shape}, expected {(self.devices,)}")
            if self.memory.min() < 0:
                at = int(self.memory.argmin())
                raise ValueError(f"device {at} has {self.memory[at]} bytes - give 0 or more")
        for (d, e), speed in self.links.items():
            if not 0 <= d < e < self.devices:
                raise ValueError(f"there is no link between devices {d} and {e} of {self.devices} - correct it")
            _check(speed, f"the link of devices {d} and {e}")
        for at, speed in enumerate(self.speed):
            _check(speed, f"device {at}")

    @classmethod
    def alike(cls, devices: int, memory: int | None = None) -> "Machines":
        """Return so many devices of speed 1, each with so many bytes; None: without a limit."""
        return cls(speed=(Fraction(1),) * devices, memory=None if memory is None else ints([memory] * devices))

    @property
    def devices(self) -> int:
        """How many, P."""
        return len(self.speed)

    @property
    def equal(self) -> bool:
        """True if all run at the speed of the chain's ticks, and have as many bytes."""
        plain = all(speed == 1 for speed in (*self.speed, *self.links.values()))
        return plain and (self.memory is None or len(set(self.memory.tolist())) == 1)

    @property
    def limits(self) -> list[int | None]:
        """[P] bytes of each device; None: it has no limit."""
        own = [MOST] * self.devices if self.memory is None else self.memory.tolist()
        return [None if held == MOST else held for held in own]

    def within(self, memory: int | None) -> "Machines":
        """Return the same with so many bytes for each device without a limit of its own; None: as they are."""
        if memory is None:
            return self
        return replace(self, memory=ints([memory if held is None else held for held in self.limits]))

    def most_ticks(self, chain: Chain) -> int:
        """Return ticks a batch that no allocation exceeds."""
        slowest = min(*self.speed, *self.links.values(), Fraction(1))
        ticks = sum(chain.loads.tolist()) + sum(chain.transfers.tolist())
        return ticks if slowest == 1 else -(-ticks * slowest.denominator // slowest.numerator) + 3 * chain.layers

    def kinds(self) -> list[int]:
        """Return [P] the first device that each is like, in speed, bytes and links to all others."""
        if self.equal:
            return [0] * self.devices

        def alike(d: int, e: int) -> bool:
            if self.speed[d] != self.speed[e] or (self.memory is not None and self.memory[d] != self.memory[e]):
                return False
            return all(self.link(d, x) == self.link(e, x) for x in range(self.devices) if x not in (d, e))

        result: list[int] = []
        for d in range(self.devices):
            result.append(next((e for e in sorted(set(result)) if alike(d, e)), d))
        return result

    def link(self, d: int, e: int) -> Fraction:
        """Return the speed of the link between two devices."""
        return self.links.get((min(d, e), max(d, e)), Fraction(1))

    def on(self, chain: Chain, allocation: Allocation) -> Chain:
        """Return the chain as these devices run it where it is allocated: ticks are those of each layer's device."""
        if all(speed == 1 for speed in (*self.speed, *self.links.values())):
            return chain
        columns = {
            name: getattr(chain, name).copy() for name in ("forward", "backward", "weight_gradient", "transfers")
        }
        for d in np.unique(allocation.device).tolist():
            here = allocation.device == d
            for name in ("forward", "backward", "weight_gradient"):
                columns[name][here] = slower(columns[name][here], self.speed[d])
        for cut in allocation.crossed.tolist():
            d, e = allocation.device[cut : cut + 2].tolist()
            columns["transfers"][cut] = slower(columns["transfers"][cut : cut + 1], self.link(d, e))[0]
        return replace(chain, **columns)


def slower(ticks: Ints, speed: Fraction) -> Ints:
    """Return ticks at a speed, rounded up."""
    if speed == 1:
        return ticks
    return ints([-(-t * speed.denominator // speed.numerator) for t in ticks.tolist()])


def _check(speed: Fraction, whose: str) -> None:
    if speed <= 0 or max(speed.numerator, speed.denominator) > MOST_SPEED:
        raise ValueError(f"{whose} has speed {speed} - give a fraction above 0 of numbers up to {MOST_SPEED}")


def pattern_from_starts(allocation: Allocation, k: int, T: int, rows: Ints) -> Pattern:  # noqa: N803 - the paper's name
    """Return the pattern of k batches every T ticks whose batches 0..k - 1 have these rows.

    rows: [r, 4] kind, layer, batch and start tick of each operation, any integer. The least shift of layer 0's backward
    half becomes 0.
    """
    kind, layer, batch, start = np.asarray(rows, dtype=np.int64).reshape(-1, 4).T
    shift = batch - k * (start // T)
    last = ((kind == BACKWARD) | (kind == INPUT_GRADIENT)) & (layer == 0)
    is_send = (kind == SEND_FORWARD) | (kind == SEND_BACKWARD)
    resource = allocation.device[layer]
    resource[is_send] = allocation.link(layer[is_send])
    return Pattern(
        k=k, T=T, kind=kind, layer=layer, copy=batch, resource=ints(resource), t=start % T,
        shift=shift - shift[last].min(),
    )  # fmt: skip


Work = tuple[int, int, int]
"""A kind, a stage (of a send: the one before the cut) and a batch."""


@dataclass(frozen=True, slots=True)
class BatchLine:
    """Operations (kind, stage) and sends of one batch, each after what it waits for."""

    stages: Ints
    """[s, 3] first layer, last layer and device of each stage."""
    ticks: dict[tuple[int, int], int]
    resource: dict[tuple[int, int], int]
    after: dict[tuple[int, int], tuple[tuple[int, int], ...]]
    """Operations that each operation makes ready."""
    gradient: int
    """The kind that the stage before waits for."""
    release: int
    """The kind that ends last of a stage."""


def line_of(chain: Chain, allocation: Allocation, stages: Ints, *, split: bool) -> BatchLine:
    """Return the line through stages, [s, 3], as of `Allocation.stages` or finer; `split`: backward halves in two."""
    sent = set(allocation.sent(chain).tolist())
    gradient, last = INPUT_GRADIENT if split else BACKWARD, len(stages) - 1
    line = BatchLine(stages, {}, {}, {}, gradient, WEIGHT_GRADIENT if split else BACKWARD)
    for stage, (first, end, device) in enumerate(stages.tolist()):
        layers = np.arange(first, end + 1)
        _add(line, (FORWARD, stage), int(chain.ticks(np.full(len(layers), FORWARD), layers).sum()), device)
        line.after[FORWARD, stage] = ((gradient, stage) if stage == last else (FORWARD, stage + 1),)
        if end in sent:
            _add_send(line, chain, allocation, SEND_FORWARD, stage)
            line.after[SEND_FORWARD, stage] = line.after[FORWARD, stage]
            line.after[FORWARD, stage] = ((SEND_FORWARD, stage),)
    for stage, (first, end, device) in reversed(list(enumerate(stages.tolist()))):
        layers = np.arange(first, end + 1)
        if end in sent:
            _add_send(line, chain, allocation, SEND_BACKWARD, stage)
            line.after[SEND_BACKWARD, stage] = ((gradient, stage),)
        back = (SEND_BACKWARD if first - 1 in sent else gradient, stage - 1)
        _add(line, (gradient, stage), int(chain.ticks(np.full(len(layers), gradient), layers).sum()), device)
        line.after[gradient, stage] = (back,) if stage else ()
        if split:
            _add(line, (WEIGHT_GRADIENT, stage), int(chain.weight_gradient[layers].sum()), device)
            line.after[gradient, stage] += ((WEIGHT_GRADIENT, stage),)
            line.after[WEIGHT_GRADIENT, stage] = ()
    return line


def pattern_of_line(
    chain: Chain, allocation: Allocation, line: BatchLine, batches: int, starts: list[tuple[int, int, int, int]]
) -> Pattern:
    """Return the flushed pattern whose batches have these starts, (kind, stage, batch, tick), from tick 0 on.

    As long as its step; a tick longer where what takes no time is last, which would else be in the next period.
    """
    rows = rows_of_layers(chain, line.stages, starts)
    makespan = int((rows[:, 3] + chain.ticks(rows[:, 0], rows[:, 1])).max())
    return pattern_from_starts(allocation, batches, max(makespan, int(rows[:, 3].max()) + 1), rows)


def rows_of_layers(chain: Chain, stages: Ints, starts: Ints | list[tuple[int, int, int, int]]) -> Ints:
    """Return [r, 4] kind, layer, batch and start: stages taken apart into layers that follow each other at once.

    stages: [s, 2] first and last layer of each, or as of `Allocation.stages`. starts: [n, 4] kind, stage, batch and
    start of each half or send.
    """
    kind, stage, batch, begin = np.asarray(starts, dtype=np.int64).reshape(-1, 4).T
    first, last = stages[stage, 0], stages[stage, 1]
    is_send = (kind == SEND_FORWARD) | (kind == SEND_BACKWARD)
    row = offsets(ints(np.where(is_send, 1, last - first + 1)))
    at = np.repeat(np.arange(len(kind)), np.diff(row))
    place = np.arange(len(at)) - row[at]
    layer = np.where(kind[at] == FORWARD, first[at] + place, last[at] - place)
    ticks = chain.ticks(kind[at], layer)
    before = np.cumsum(ticks) - ticks
    return ints(np.column_stack([kind[at], layer, batch[at], begin[at] + before - before[row[at]]]))


def batch_rows(chain: Chain, allocation: Allocation, ahead: Ints, back: Ints) -> Ints:
    """Return [r, 4] rows as of `rows_of_layers` of batch 0, there and then back.

    ahead, back: [n] starts of the halves of each stage and of each cut that takes a link any time, in the order in
    which a batch meets them.
    """
    sent = np.isin(allocation.stages[:, 1], allocation.sent(chain))
    stage = np.repeat(np.arange(len(sent)), 1 + sent)
    is_send, batch = np.diff(stage, prepend=-1) == 0, np.zeros_like(stage)
    there = np.column_stack([np.where(is_send, SEND_FORWARD, FORWARD), stage, batch, ahead])
    returned = np.column_stack([np.where(is_send, SEND_BACKWARD, BACKWARD), stage, batch, back])
    return rows_of_layers(chain, allocation.stages, ints(np.concatenate([there, returned[::-1]])))


def _add(line: BatchLine, what: tuple[int, int], ticks: int, resource: int) -> None:
    line.ticks[what], line.resource[what] = ticks, resource


def _add_send(line: BatchLine, chain: Chain, allocation: Allocation, kind: int, stage: int) -> None:
    cut = line.stages[stage, 1:2]
    _add(line, (kind, stage), int(chain.ticks(np.array([kind]), cut)[0]), int(allocation.link(cut)[0]))
