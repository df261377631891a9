"""Devices that need not be equal, and the links between them: what a chain is on them."""

from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from solvers.arrays import Ints, ints
from solvers.pipelining.chain import Allocation, Chain
from solvers.problem import MOST

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
        """Equal devices of so many bytes each."""
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
        """With so many bytes for each device that has no limit of its own; None: as they are."""
        if memory is None:
            return self
        return replace(self, memory=ints([memory if held is None else held for held in self.limits]))

    def most_ticks(self, chain: Chain) -> int:
        """No allocation takes more ticks a batch."""
        slowest = min(*self.speed, *self.links.values(), Fraction(1))
        ticks = sum(chain.loads.tolist()) + sum(chain.transfers.tolist())
        return ticks if slowest == 1 else -(-ticks * slowest.denominator // slowest.numerator) + 3 * chain.layers

    def kinds(self) -> list[int]:
        """[P] the first device that each is like, in speed, bytes and links to all others."""
        found: list[int] = []
        for d in range(self.devices):
            found.append(next((e for e in sorted(set(found)) if self._like(d, e)), d))
        return found

    def _like(self, d: int, e: int) -> bool:
        held = self.memory is None or self.memory[d] == self.memory[e]
        others = [x for x in range(self.devices) if x not in (d, e)]
        return bool(self.speed[d] == self.speed[e] and held) and all(self.link(d, x) == self.link(e, x) for x in others)

    def link(self, d: int, e: int) -> Fraction:
        """The speed of the link between two devices."""
        return self.links.get((min(d, e), max(d, e)), Fraction(1))

    def on(self, chain: Chain, allocation: Allocation) -> Chain:
        """The chain as these devices run it where it is allocated: its ticks are those of each layer's device."""
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
    """Ticks at a speed, rounded up."""
    if speed == 1:
        return ticks
    return ints([-(-t * speed.denominator // speed.numerator) for t in ticks.tolist()])


def _check(speed: Fraction, whose: str) -> None:
    if speed <= 0 or max(speed.numerator, speed.denominator) > MOST_SPEED:
        raise ValueError(f"{whose} has speed {speed} - give a fraction above 0 of numbers up to {MOST_SPEED}")
