"""Lower bounds on the period of a pipeline and on a flushed step, each with its name; exact fractions of ticks.

Those of a period hold for k-periodic schedules of every k, and for every order and rate, on devices equal or not. A
batch stays with a layer from the start of its forward to the end of its backward half, at least as long as both halves
of all from there on take, D; at T ticks a batch D / T are on the way on average (Little 1961), so that at some time
ceil(D / T) are.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from math import ceil
from typing import NamedTuple

import numpy as np

from solvers.arrays import Ints
from solvers.pipelining.chain import Allocation, Chain, Machines, MemoryModel, slower
from solvers.pipelining.contiguous import at_least
from solvers.problem import MOST


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodBound:
    """A lower bound on the period of every schedule, with its name."""

    name: str
    value: Fraction
    """Ticks: a batch of a period, all of a flushed step."""


def best(bounds: Sequence[PeriodBound]) -> PeriodBound:
    """Return the greatest; of equal ones the first."""
    return max(bounds, key=lambda bound: bound.value)


def of_allocation(
    chain: Chain, allocation: Allocation, memory: int | Ints | None = None, model: MemoryModel = MemoryModel.RECEIVED
) -> tuple[PeriodBound, ...]:
    """Return bounds on the period of every schedule of an allocation, contiguous or not, of the chain as run there.

    - device load, link load: the ticks that a batch takes of the busiest.
    - bytes in flight: what a batch holds on a device, for as long as it must, over the room beside the weights.
    - in flight: D over the batches that a stage has room for, of schedules that do each half of a stage at once.

    The last two with `memory` bytes a device, or [P]. ValueError, naming the device, where not even one batch fits.
    """
    passed = _passed(chain, allocation)
    load: dict[int, int] = defaultdict(int)
    for resource, ticks in zip(passed.resource, passed.ticks, strict=True):
        load[resource] += ticks
    links = [ticks for resource, ticks in load.items() if resource >= allocation.devices]
    result = [
        PeriodBound(name="device load", value=Fraction(max(load[d] for d in load if d < allocation.devices))),
        PeriodBound(name="link load", value=Fraction(max(links, default=0))),
    ]
    if memory is None:
        return tuple(result)
    limits = np.broadcast_to(memory, allocation.devices).tolist()
    held, left = at_least(chain, model), list(accumulate(reversed(passed.ticks)))[::-2]
    stages: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # of a device: D, bytes, bytes times ticks
    weights: dict[int, int] = defaultdict(int)
    for (i, last, device), passing in zip(allocation.stages.tolist(), left, strict=True):
        j = last + 1
        before = accumulate(chain.loads[i:j].tolist(), initial=0)
        kept = np.diff(held.activation[i : j + 1]).tolist()
        later = sum(a * ticks for a, ticks in zip(kept, before, strict=False))
        weights[device] += held.held(i, j, 0, 0)
        each = held.held(i, j, 1, 1) - held.held(i, j, 0, 0)
        stages[device].append((passing, each, each * passing - later))
    average, whole = Fraction(0), Fraction(0)
    for device, rows in stages.items():
        room, once = limits[device] - weights[device], max(each for _, each, _ in rows)
        if room < once:
            raise ValueError(f"device {device} lacks {once - room} bytes for one batch in flight - give it more")
        average = max(average, Fraction(sum(time for _, _, time in rows), room) if room else average)
        whole = max([whole, *(Fraction(d, room // each) for d, each, _ in rows if each)])
    return (*result, PeriodBound(name="bytes in flight", value=average), PeriodBound(name="in flight", value=whole))


def of_all(
    chain: Chain, devices: int, memory: int | None = None, model: MemoryModel = MemoryModel.RECEIVED
) -> tuple[PeriodBound, ...]:
    """Return bounds on the period of every schedule of every allocation, contiguous or not.

    - largest layer, mean load: a layer is done by one device, all layers by `devices`.
    - packed ticks: layers in devices of T ticks, as `bins`.
    - layer in flight: D of a layer over the batches that a device has room for beside its weights.
    - bytes in flight: what a batch holds on all devices, for as long as it must, over their room beside all weights.
    - packed bytes: layers in devices, by `bins`, each with its weights and D / T activations, in the paper's model
      rounded up.

    The last three with `memory` bytes a device. ValueError where one batch in flight has no room.
    """
    ticks = chain.loads.tolist()
    result = [
        PeriodBound(name="largest layer", value=Fraction(max(ticks))),
        PeriodBound(name="mean load", value=Fraction(sum(ticks), devices)),
        PeriodBound(name="packed ticks", value=Fraction(packed_ticks(ticks, devices))),
    ]
    if memory is not None:
        layers = _Layers.of(chain, devices, memory, model)
        result.append(PeriodBound(name="layer in flight", value=layers.alone()))
        result.append(PeriodBound(name="bytes in flight", value=layers.average()))
        result.append(PeriodBound(name="packed bytes", value=layers.packed()))
    return tuple(result)


def flushed_step(chain: Chain, allocation: Allocation, batches: int, *, split: bool = False) -> tuple[PeriodBound, ...]:
    """Return bounds on a step of so many micro-batches through an allocation, from empty to empty.

    The busiest device, and the busiest link: what comes before it in the chain, forward, its load of all `batches`, and
    what comes before it, backward. `split`: nothing waits for the weights' gradients, so they may come last of all.
    ValueError without a batch.
    """
    if batches < 1:
        raise ValueError(f"{batches} batches - give 1 or more")
    passed = _passed(chain, allocation)
    frames: dict[int, tuple[int, int]] = {}  # ticks before a resource: forward, and all that are waited for
    load: dict[int, int] = defaultdict(int)
    late: dict[int, int] = defaultdict(int)
    head = framed = 0
    for resource, once, ahead, last in zip(*passed, strict=True):
        frames.setdefault(resource, (head, framed))
        load[resource] += once
        late[resource] += last * split
        head, framed = head + ahead, framed + once - last * split
    result = {"device": 0, "link": 0}
    for resource, (ahead, around) in frames.items():
        kind = "device" if resource < allocation.devices else "link"
        ticks = max(ahead + batches * load[resource], around + batches * (load[resource] - late[resource]))
        result[kind] = max(result[kind], ticks)
    return tuple(PeriodBound(name=name, value=Fraction(ticks)) for name, ticks in result.items())


class _ForwardPassage(NamedTuple):
    """The resources that a batch passes forward: a stage, the link behind it, the next stage, and so on."""

    resource: list[int]
    """Device or link."""
    ticks: list[int]
    """There and back."""
    forward: list[int]
    """There; of a link half, rounded down."""
    late: list[int]
    """Ticks of the backward halves that compute gradients of weights."""


def _passed(chain: Chain, allocation: Allocation) -> _ForwardPassage:
    first, device, cuts = allocation.stages[:, 0], allocation.stages[:, 2], allocation.crossed
    columns = []
    for stages, links in (
        (device, allocation.link(cuts)),
        (np.add.reduceat(chain.loads, first), chain.transfers[cuts]),
        (np.add.reduceat(chain.forward, first), chain.transfers[cuts] // 2),
        (np.add.reduceat(chain.weight_gradient, first), 0 * cuts),
    ):
        column = np.empty(2 * len(first) - 1, dtype=np.int64)
        column[::2], column[1::2] = stages, links
        columns.append(column.tolist())
    return _ForwardPassage(*columns)


def bins(sizes: Sequence[int], room: int) -> int:
    """Return a bound on the bins of `room` that hold the sizes, none larger: L2 (Martello and Toth 1990)."""
    order = sorted(sizes, reverse=True)
    before = list(accumulate(order, initial=0))
    half = bisect_left(order, -room, key=lambda size: -2 * size)  # those above half a bin
    result = -(-before[-1] // room) if room else 0
    for small in {size for size in order[half:] if size}:
        # Above room - small: alone. To half a bin: one in each. From there to small: in the room beside those.
        alone = bisect_left(order, small - room, 0, half, key=lambda size: -size)
        end = bisect_right(order, -small, key=lambda size: -size)
        spare = (half - alone) * room - (before[half] - before[alone])
        result = max(result, half + max(0, -((spare - (before[end] - before[half])) // room)))
    return max(result, half)


def packed_ticks(ticks: list[int], devices: int) -> int:
    """Return the least T of which `bins` does not say that layers of these ticks need more devices."""
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
    """True if batches in flight are counted layer by layer, at different times."""

    @classmethod
    def of(cls, chain: Chain, devices: int, memory: int, model: MemoryModel) -> "_Layers":
        passing = list(accumulate(reversed(chain.loads.tolist())))[::-1]
        result = cls(
            passing=passing, weights=chain.weights.tolist(),
            # What nothing behind takes time for is done and undone at once.
            activation=[a if d else 0 for a, d in zip(chain.activation.tolist(), passing, strict=True)],
            devices=devices, memory=memory, rounded=model is MemoryModel.PAPER,
        )  # fmt: skip
        # Between the forward and the backward half of the last layer a batch holds all its activations.
        if not result.go([w + a for w, a in zip(result.weights, result.activation, strict=True)], memory):
            raise ValueError(
                f"no allocation fits: {devices} devices of {memory} bytes have no room for a batch - give them more"
            )
        return result

    def go(self, sizes: list[int], room: int) -> bool:
        """Return True if `bins` does not say that layers of these sizes are too many."""
        return max(sizes) <= room and bins(sizes, room) <= self.devices

    def fit(self, period: Fraction) -> bool:
        """Return True if nothing speaks against T = `period` > 0."""
        rows = list(zip(self.passing, self.weights, self.activation, strict=True))
        if self.rounded:
            return self.go([w + ceil(d / period) * a for d, w, a in rows], self.memory)
        p, q = period.numerator, period.denominator
        return self.go([w * p + d * q * a for d, w, a in rows], self.memory * p)

    def alone(self) -> Fraction:
        """Return the greatest D of a layer over the batches that it has room for by itself."""
        rows = zip(self.passing, self.weights, self.activation, strict=True)
        return max((Fraction(d, (self.memory - w) // a) for d, w, a in rows if a), default=Fraction(0))

    def average(self) -> Fraction:
        """Return bytes times ticks of a batch over the room of all devices."""
        held = sum(d * a for d, a in zip(self.passing, self.activation, strict=True))
        return Fraction(held, self.devices * self.memory - sum(self.weights)) if held else Fraction(0)

    def packed(self) -> Fraction:
        """Return a lower bound on T: the last whole T that is refuted or, with rounding, the first step that is not."""
        low, high = 0, max(1, self.passing[0])
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fit(Fraction(middle)) else (middle, high)
        if low == 0 or not self.rounded:
            return Fraction(low)
        # Sizes change where a D / T is whole, and are those of the step before until then.
        steps = sorted({Fraction(d, n) for d in self.passing for n in range(max(1, -(-d // high)), (d - 1) // low + 1)})
        return next((step for step in steps if self.fit(step)), Fraction(high))


def of_machines(chain: Chain, machines: Machines, model: MemoryModel = MemoryModel.RECEIVED) -> tuple[PeriodBound, ...]:
    """Return bounds on the period of all schedules of all allocations, contiguous or not; equal devices as in `of_all`.

    Where devices differ:

    - those of `of_all` on as many devices that are all as fast as the fastest, and have as much memory as the largest:
      whatever is scheduled on these devices can be there too. "mean load" and "bytes in flight" are below the next.
    - fastest devices: the n layers with most ticks are on n devices at most, so they take at least their ticks over the
      speeds of the n fastest; all layers, over those of all devices.
    - bytes in flight: what a batch holds, for as long as it must on the fastest, over the room of all devices.

    ValueError where one batch in flight has no room.
    """
    memory = machines.memory
    if machines.equal:
        return of_all(chain, machines.devices, None if memory is None else int(memory[0]), model)
    fastest = max(machines.speed)
    halves = {name: slower(getattr(chain, name), fastest) for name in ("forward", "backward", "weight_gradient")}
    quick = replace(chain, **halves)
    most = None if memory is None or memory.max() == MOST else int(memory.max())
    result = list(of_all(quick, machines.devices, most, model))
    speeds = list(accumulate(sorted(machines.speed, reverse=True)))
    loads = list(accumulate(sorted(chain.loads.tolist(), reverse=True)))
    few = [load / speed for load, speed in zip(loads, speeds, strict=False)]
    value = max(*few, loads[-1] / speeds[-1], Fraction(0))
    result.append(PeriodBound(name="fastest devices", value=value))
    if memory is not None and most is not None:
        # Bytes times ticks of a batch over the room of all devices; ValueError where weights and a batch have none.
        room = sum(memory.tolist()) - int(quick.weights.sum())
        passing = np.cumsum(quick.loads[::-1])[::-1]
        lacking = int(quick.activation[passing > 0].sum()) - room
        if lacking > 0:
            raise ValueError(f"no allocation fits: a batch and all weights lack {lacking} bytes - give devices more")
        held = sum(d * a for d, a in zip(passing.tolist(), quick.activation.tolist(), strict=True))
        average = Fraction(held, room) if held else Fraction(0)
        result.append(PeriodBound(name="bytes in flight", value=average))
    return tuple(result)
