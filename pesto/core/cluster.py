"""The machine: devices with their memory and speed, and the paths between them over shared links."""

import reprlib
from collections import Counter
from dataclasses import dataclass, field, fields

from pesto.core.errors import InputError
from pesto.core.quantities import plural
from pesto.core.source import Origin

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "int8")
"""Precisions in which a device can have peaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates of a device in a cluster file, beside or in place of a preset; None where it gives none.

    InputError when a rate is not a finite number above zero, or a precision is not one of PRECISIONS.
    """

    peaks: tuple[tuple[str, float], ...] = ()
    """Dense operations per second by precision."""
    bandwidth: float | None = None
    """Bytes per second of the device's memory."""
    l2_bytes: float | None = None
    """Second-level cache."""
    sms: int | None = None
    """Its multiprocessors."""
    clock_hz: float | None = None
    """Boost clock."""
    launch_s: float | None = None
    """Seconds that every kernel takes on top of its work."""

    def __post_init__(self) -> None:
        """Validate."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "peaks"}
        for name, value in [*self.peaks, *said.items()]:
            if value is not None and not 0 < value < float("inf"):
                raise InputError.build(f"device rates: {name} is {value}", remedy="it must be finite and above zero")
        unknown = [name for name, _ in self.peaks if name not in PRECISIONS]
        if unknown:
            raise InputError.build(
                f"device rates: no precision is named {unknown[0]!r}", remedy=f"known: {', '.join(PRECISIONS)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A memory with processors: one GPU, or the CPU cores of a host."""

    name: str
    """Unique, such as gpu:0 or cpu:0."""
    kind: str
    """Kind of device, as graphs have it: gpu, cpu."""
    preset: str
    """Model whose speed it has, such as V100; a key of `pesto.core.costs.presets`, or a label where `rates` say all."""
    host: int
    """Index of the machine that it sits in."""
    memory_bytes: int
    """Bytes that it can hold."""
    speed: float = 1.0
    """Times the preset's speed."""
    cores: int = 1
    """Ops that run at the same time: 1 for a GPU, the cores of a host."""
    rates: Rates | None = None
    """Rates of its own, beside or in place of the preset's; None where the preset says all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """How data gets from one device to another: seconds = max(floor, latency + bytes * s_per_byte, further lines).

    A maximum of lines is convex: each further byte takes as long as the one before it, or longer.
    """

    latency_s: float
    """Seconds before the first byte."""
    s_per_byte: float
    """Seconds of each byte."""
    floor_s: float = 0.0
    """Seconds of a transfer at least."""
    pieces: tuple[tuple[float, float], ...] = ()
    """Further lines, each as (seconds of no bytes, seconds of each byte): a transfer takes what the longest says."""
    links: tuple[int, ...] = ()
    """Indices into `Cluster.links` that one transfer holds; empty: no congestion."""
    source: str = field(default="", compare=False)
    """One line for people: where the numbers come from; empty where nothing says."""

    @property
    def cost(self) -> tuple[float, ...]:
        """Latency, seconds per byte and floor, then the further lines: equal for paths that are equally fast."""
        return (self.latency_s, self.s_per_byte, self.floor_s, *(x for piece in self.pieces for x in piece))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Devices and, for every ordered pair of two, the path between them (None on the diagonal).

    InputError when a name repeats, a number is out of range, a pair has no path, or a path names no link.
    """

    name: str
    """For people, and in plans."""
    devices: tuple[Device, ...]
    """In the order in which plans and paths count them."""
    links: tuple[str, ...]
    """Names of the links; each carries one transfer at a time."""
    paths: tuple[tuple[Path | None, ...], ...]
    """[device][device] the path from the first to the second."""
    source: str
    """Where the cluster came from: "preset NAME", or the file's name."""
    origin: Origin = Origin()  # noqa: RUF009
    """The same as fields."""

    def __post_init__(self) -> None:
        """Validate."""
        names = [d.name for d in self.devices]
        if not names or len(set(names)) != len(names):
            raise InputError(f"cluster {self.name}: device names must be unique and at least one: {names}")
        for d in self.devices:
            if d.memory_bytes <= 0 or not 0 < d.speed < float("inf") or d.cores < 1:
                raise InputError(f"cluster {self.name}: {d.name} needs memory, speed and cores above zero")
        for a, row in enumerate(self.paths):
            for b, path in enumerate(row):
                where = f"cluster {self.name}: {self.devices[a].name} to {self.devices[b].name}"
                if (path is None) != (a == b):
                    raise InputError.build(f"{where} has no path", remedy="add a link that joins them")
                if path is None:
                    continue
                if not all(0 <= x < float("inf") for x in path.cost):
                    raise InputError(f"{where}: latency, bandwidth, floor and pieces must be finite and not negative")
                if any(not 0 <= k < len(self.links) for k in path.links):
                    raise InputError(f"{where} uses a link that does not exist")

    @property
    def accelerators(self) -> list[int]:
        """Indices of the devices that are no hosts; of all where there are no others."""
        return [k for k, device in enumerate(self.devices) if device.kind != "cpu"] or list(range(len(self.devices)))

    def __repr__(self) -> str:
        """One line: how many devices of which kind, and how many links."""
        kinds = " + ".join(f"{count} {kind}" for kind, count in Counter(d.kind for d in self.devices).items())
        return f"Cluster({reprlib.repr(self.name)}, {reprlib.repr(kinds)[1:-1]}, {plural(len(self.links), 'link')})"

    def s_per_byte(self, a: int, b: int) -> float:
        """Seconds that a byte takes from device `a` to device `b` behind others; infinite from a device to itself."""
        path = self.paths[a][b]
        return float("inf") if path is None else path.s_per_byte
