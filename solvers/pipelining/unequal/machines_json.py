"""Devices and links of a chain's file, where they are not equal; docs/reference/chain-file.md says what they mean."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

import msgspec

from solvers.arrays import ints
from solvers.pipelining.chain import Chain
from solvers.pipelining.unequal_devices import Machines
from solvers.problem import MOST

MOST_MACHINES = 64
"""Devices of a file at most."""
_SPEED = r"^[1-9][0-9]{0,8}(/[1-9][0-9]{0,8})?(?!\n)$"
_ONE = "1"

_Speed = Annotated[str, msgspec.Meta(pattern=_SPEED)]


class DeviceEntry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A device: a layer of u ticks takes u / speed there, rounded up."""

    speed: _Speed = _ONE
    memory_bytes: Annotated[int, msgspec.Meta(ge=0, le=MOST)] | None = None


class LinkEntry(msgspec.Struct, kw_only=True):
    """The link between two devices, in both directions; a transfer of u ticks takes u / speed there, rounded up."""

    between: tuple[int, int]
    speed: _Speed


def entries_of(machines: Machines | None) -> tuple[list[DeviceEntry], list[LinkEntry]]:
    """Return the file entries of devices and links; links of speed 1 are omitted."""
    if machines is None:
        return [], []
    memory = [MOST] * machines.devices if machines.memory is None else machines.memory.tolist()
    devices = [
        DeviceEntry(speed=_ONE if speed == 1 else str(speed), memory_bytes=None if held == MOST else held)
        for speed, held in zip(machines.speed, memory, strict=True)
    ]
    links = sorted((pair, speed) for pair, speed in machines.links.items() if speed != 1)
    return devices, [LinkEntry(between=pair, speed=str(speed)) for pair, speed in links]


def machines_of(
    devices: Sequence[DeviceEntry], links: Sequence[LinkEntry], chain: Chain, where: str = "$"
) -> Machines | None:
    """The devices that a file names; None where it names none.

    ValueError, one line with the place below `where` and a remedy, for more than MOST_MACHINES, links of devices that
    there are not or that are named twice, and ticks of the slowest that cannot be summed.
    """
    if len(devices) > MOST_MACHINES:
        raise ValueError(f"{where}.devices: {len(devices)} devices, expected at most {MOST_MACHINES} - leave some out")
    known = dict[tuple[int, int], Fraction]()
    for at, link in enumerate(links):
        d, e = sorted(link.between)
        if not 0 <= d < e < len(devices):
            raise ValueError(f"{where}.links[{at}].between: no two of {len(devices)} devices - correct one of them")
        if (d, e) in known:
            raise ValueError(f"{where}.links[{at}].between: a link of {d} and {e} is there already - leave one out")
        known[d, e] = Fraction(link.speed)
    if not devices:
        return None
    memory = [MOST if each.memory_bytes is None else each.memory_bytes for each in devices]
    found = Machines(
        speed=tuple(Fraction(each.speed) for each in devices), links=known,
        memory=None if min(memory) == MOST else ints(memory),
    )  # fmt: skip
    if found.most_ticks(chain) > MOST:
        raise ValueError(f"{where}.devices: ticks of the slowest sum to more than {MOST} - give them higher speeds")
    return found
