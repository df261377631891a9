"""Clusters from TOML: the presets by name, or the user's own file (docs/guides/clusters.md)."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path as FilePath
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from pesto.core.cluster import Cluster, Device, Path, Rates
from pesto.core.costs.network import link_model
from pesto.core.costs.presets import PRESETS, device_preset, preset
from pesto.core.errors import InputError, UsageError
from pesto.core.files import toml
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import quoted, shown
from pesto.core.option import expect
from pesto.core.source import Origin

VERSION = 1
_PRESETS = FilePath(__file__).parents[1] / "configs" / "clusters"
"""Folder of the presets."""
_LIMITS = {
    "memory_gb_s": (0.1, 1e6, "GB/s"), "l2_mib": (0.01, 1e5, "MiB"), "sms": (1, 1e5, "multiprocessors"),
    "clock_ghz": (0.01, 20.0, "GHz"), "launch_us": (0.01, 1e4, "us"),
}  # fmt: skip
_LINK_LIMITS = {
    "latency_us": (0.0, 1e8, "us"), "floor_us": (0.0, 1e8, "us"), "us_per_byte": (0.0, 1e3, "us"),
    "bandwidth_gb_s": (1e-6, 1e6, "GB/s"), "lanes": (1, 1024, "lanes"),
}  # fmt: skip
"""Least and most of each rate, far beyond any device or link: what lies outside is a wrong unit."""
_NEEDED = "peak_tflops, memory_gb_s, sms and clock_ghz"
_SI = {
    "memory_gb_s": ("bandwidth", 1e9), "l2_mib": ("l2_bytes", 2**20), "clock_ghz": ("clock_hz", 1e9),
    "launch_us": ("launch_s", 1e-6),
}  # fmt: skip
# A path per ordered pair of devices: these keep a small file from becoming gigabytes.
MOST_DEVICES = 256
MOST_PAIRS = 4096
MOST_LINKS = 1 << 17

Positive = Annotated[float, Meta(gt=0, le=1e12)]
Count = Annotated[int, Meta(ge=1, le=1 << 20)]
Name = Annotated[str, Meta(min_length=1, max_length=64)]
Held = Annotated[str, Meta(min_length=1, max_length=100)]
Pair = tuple[Name, Name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine; its cores are the device cpu:INDEX."""

    name: Name = "host"
    cpu: Name
    """Preset of one core."""
    cores: Count
    memory_gib: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Dense TFLOP/s by precision; what is left out is the preset's, or not there."""

    fp64: float | None = None
    fp32: float | None = None
    tf32: float | None = None
    fp16: float | None = None
    bf16: float | None = None
    int8: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Devices of one model in one host, named KIND:INDEX and counted over the whole file."""

    preset: Name | None = None
    """May be left out where the rates below say all; `name` then labels the devices."""
    name: Name | None = None
    """Name of devices without a preset."""
    memory_gib: Positive | None = None
    """Default: the preset's."""
    peak_tflops: Peaks | None = None
    memory_gb_s: float | None = None
    l2_mib: float | None = None
    sms: int | None = None
    clock_ghz: float | None = None
    launch_us: float | None = None
    count: Count = 1
    host: Name | None = None
    """Name of the host; may be left out when there is one."""
    kind: Name | None = None
    """Default: the preset's kind."""
    speed: Positive = 1.0
    cores: Count = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Transfers between pairs of devices, and the links that they hold meanwhile; later entries win."""

    pairs: tuple[Pair, ...]
    """Each side a device's name or a kind; both directions."""
    scope: Literal["same-host", "other-host", "any"] = "any"
    one_way: bool = False
    """From the first to the second of each pair only."""
    model: Name | None = None
    """A link model (`pesto.core.costs.network`), in place of the numbers below."""
    lanes: int | None = None
    """Lanes of that model side by side; default as many as it usually has."""
    latency_us: float | None = None
    us_per_byte: float | None = None
    bandwidth_gb_s: float | None = None
    """1e9 bytes per second, in place of `us_per_byte`."""
    floor_us: float = 0.0
    pieces: Annotated[tuple[tuple[float, float], ...], Meta(max_length=16)] = ()
    """Further lines, each as (us of no bytes, us of each byte); a transfer takes what the longest of all says."""
    source: Annotated[str, Meta(max_length=1000)] = ""
    """One line on where the numbers come from."""
    holds: Annotated[tuple[Held, ...], Meta(max_length=8)] = ("{from}>{to}",)
    """Names of the links that a transfer holds; pairs that name the same link share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """The content of a cluster file."""

    format_version: int
    name: Name | None = None
    hosts: tuple[Host, ...]
    devices: tuple[Devices, ...] = ()
    links: tuple[Links, ...] = ()


def cluster_names() -> tuple[str, ...]:
    """Return the names of the presets, sorted."""
    return tuple(sorted(p.stem for p in _PRESETS.glob("*.toml")))


def load_cluster(cluster: str | FilePath | Cluster) -> Cluster:
    """Return a cluster, or load a preset by its name or a file: what ends in .toml or contains a separator.

    Raise UsageError with a suggestion when no preset has the name, InputError naming file and key when the content is
    refused, FileError when the file cannot be read.
    """
    expect("cluster", cluster, str | FilePath | Cluster, "a preset's name, a file, or a Cluster")
    return cluster if isinstance(cluster, Cluster) else _read(str(cluster))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """A cluster with the comment and the text of its file."""

    cluster: Cluster
    """Cluster that the file describes."""
    about: str
    """The comment that the file begins with, on one line; empty where it has none."""
    text: str
    """The file as it is, which loads back to the same cluster whatever it is called."""


def describe_cluster(name_or_path: str) -> ClusterDescription:
    """Return the cluster that `load_cluster` gives, with the text of its file; errors as there."""
    cluster, data, where = _read(name_or_path)
    text = data.decode()
    head = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    about = " ".join(line.lstrip("# ").rstrip() for line in head)
    unnamed = toml.parse(data, File, where, InputError).name is None
    return ClusterDescription(
        cluster=cluster, about=about, text=f"name = {toml.quoted(cluster.name)}\n{text}" if unnamed else text
    )


def _read(name_or_path: str) -> tuple[Cluster, bytes, str]:
    """Return a cluster, the bytes of its file, and the name of the file in errors."""
    if name_or_path.endswith(".toml") or "/" in name_or_path or "\\" in name_or_path:
        path = FilePath(name_or_path)
        data = read_bytes(path, toml.MOST_BYTES)
        return parse(data, shown(path), shown(path.name)), data, shown(path)
    if name_or_path not in cluster_names():
        remedy = toml.suggest(name_or_path, cluster_names())
        raise UsageError.build(
            f"no cluster is named {quoted(name_or_path)}", remedy=f"{remedy}; or give a file ending in .toml"
        )
    path = _PRESETS / f"{name_or_path}.toml"
    data = read_bytes(path, toml.MOST_BYTES)
    return parse(data, str(path), name_or_path, is_preset=True), data, str(path)


def parse(data: bytes, where: str, source: str, *, is_preset: bool = False) -> Cluster:
    """Return the cluster in the bytes of a file; `where` names the file in errors, `source` in the cluster.

    Raise InputError as `load_cluster`.
    """
    file = toml.parse(data, File, where, InputError)
    if file.format_version != VERSION:
        raise InputError.build(
            f"format_version {file.format_version} is not known", where=where, remedy=f"this version reads {VERSION}"
        )
    try:
        # The CPUs of the hosts first, then the devices in the order of the file.
        hosts = [h.name for h in file.hosts]
        if not hosts or len(set(hosts)) != len(hosts):
            raise InputError(f"hosts: give one at least, and each its own name; found {hosts}")
        if len(hosts) + sum(d.count for d in file.devices) > MOST_DEVICES:
            raise InputError.build(f"devices: more than {MOST_DEVICES}", remedy="lower a count")
        found: list[Device] = []
        numbered: Counter[str] = Counter()
        cpus = [
            Devices(preset=h.cpu, memory_gib=h.memory_gib, host=h.name, kind="cpu", cores=h.cores) for h in file.hosts
        ]
        for entry in (*cpus, *file.devices):
            for _ in range(entry.count):
                label = entry.preset or entry.name or "device"
                if entry.host is None and len(hosts) > 1:
                    raise InputError.build(
                        f"devices: {label} has no host", remedy=f"set host to one of {', '.join(hosts)}"
                    )
                host = entry.host if entry.host is not None else hosts[0]
                if host not in hosts:
                    raise InputError.build(f"devices: no host is named {host!r}", remedy=f"{toml.suggest(host, hosts)}")
                known = preset(entry.preset) if entry.preset is not None else None
                kind = entry.kind or (known.kind if known else "gpu")
                memory = entry.memory_gib or (known.memory_gib if known else 0)
                if not memory:
                    raise InputError.build(f"devices: {label} has no memory_gib", remedy="give the GiB of one device")
                device = Device(
                    name=f"{kind}:{numbered[kind]}", kind=kind, preset=label, host=hosts.index(host),
                    memory_bytes=int(memory * 2**30), speed=entry.speed, cores=entry.cores, rates=_rates(entry, label),
                )  # fmt: skip
                device_preset(device)
                numbered[device.kind] += 1
                found.append(device)
        devices = tuple(found)
        links: dict[str, int] = {}
        paths = _paths(file, devices, links)
        name = file.name or FilePath(where).stem
        return Cluster(
            name=name, devices=devices, links=tuple(links), paths=paths,
            source=f"preset {source}" if is_preset else source,
            origin=Origin(kind="preset", name=source) if is_preset else Origin.of_file("file", source, data),
        )  # fmt: skip
    except InputError as e:
        raise InputError.of(e, where=where) from e


def _rates(entry: Devices, label: str) -> Rates | None:
    """The rates that an entry gives, in SI units; None for none. InputError for what no device has."""
    said = {f.name: getattr(entry.peak_tflops, f.name) for f in fields(Peaks)} if entry.peak_tflops else {}
    given = {name: getattr(entry, name) for name in _LIMITS}
    if entry.preset is None and entry.name is not None and entry.name in PRESETS:
        raise InputError.build(
            f"devices: name {label!r} is a preset", remedy=f"write preset = {label!r}, or another name"
        )
    if entry.preset is not None and entry.name is not None:
        raise InputError.build(f"devices: {label} has a preset and a name", remedy="drop one")
    for name, value in [*((f"peak_tflops.{p}", x) for p, x in said.items()), *given.items()]:
        _check_limits(value, f"devices: {name} of {label}", _LIMITS.get(name, (1e-3, 1e5, "TFLOP/s")))
    if entry.peak_tflops is None and all(value is None for value in given.values()):
        if entry.preset is None:
            raise InputError.build(f"devices: {label} has no preset", remedy=f"name one, or give {_NEEDED}")
        return None
    if entry.preset is not None and not preset(entry.preset).sms:
        raise InputError.build(
            f"devices: {label} is a preset of one core, with rates of its own", remedy="set speed, or drop preset"
        )
    return Rates(
        peaks=tuple((name, value * 1e12) for name, value in said.items() if value is not None),
        sms=entry.sms,
        **{name: None if given[key] is None else given[key] * unit for key, (name, unit) in _SI.items()},
    )


def _check_limits(value: float | None, what: str, limits: tuple[float, float, str]) -> None:
    """InputError for what no device and no link has."""
    least, most, unit = limits
    if value is not None and not least <= value <= most:
        raise InputError.build(f"{what} is {value:g}, which cannot be", remedy=f"give {least:g} to {most:g} {unit}")


def _paths(file: File, devices: tuple[Device, ...], links: dict[str, int]) -> tuple[tuple[Path | None, ...], ...]:
    """[device][device]; fills `links` with the index of each link by name."""
    if sum(len(entry.pairs) for entry in file.links) > MOST_PAIRS:
        raise InputError.build(f"links: more than {MOST_PAIRS} pairs", remedy="name kinds instead of devices")
    entry_of = np.full((len(devices), len(devices)), -1)
    host = np.array([d.host for d in devices])
    same = host[:, None] == host[None, :]
    for k, entry in enumerate(file.links):
        joined = np.zeros_like(same)
        for one, other in entry.pairs:
            joined[np.ix_(_side(one, devices), _side(other, devices))] = True
        if not entry.one_way:
            joined |= joined.T
        entry_of[joined & {"same-host": same, "other-host": ~same, "any": np.True_}[entry.scope]] = k
    np.fill_diagonal(entry_of, -2)
    missing = np.argwhere(entry_of == -1)
    if len(missing):
        a, b = (devices[i].name for i in missing[0])
        raise InputError.build(f"links: nothing joins {a} to {b}", remedy=f"add an entry with pairs = [[{a!r}, {b!r}]]")
    costs = [_cost(entry, f"links[{k}]") for k, entry in enumerate(file.links)]
    hosts = [h.name for h in file.hosts]
    rows: list[tuple[Path | None, ...]] = []
    for a, row in zip(devices, entry_of.tolist(), strict=True):
        held = [_held_links(file.links[k], a, b, hosts) if k >= 0 else () for b, k in zip(devices, row, strict=True)]
        paths: list[Path | None] = []
        for names, k in zip(held, row, strict=True):
            if k >= 0 and len(links) > MOST_LINKS:
                raise InputError.build(
                    f"links: more than {MOST_LINKS} distinct", remedy="let pairs share some by naming them in holds"
                )
            indices = tuple(links.setdefault(name, len(links)) for name in names)
            paths.append(replace(costs[k], links=indices) if k >= 0 else None)
        rows.append(tuple(paths))
    return tuple(rows)


def _side(name: str, devices: tuple[Device, ...]) -> list[int]:
    found = [i for i, d in enumerate(devices) if name in (d.name, d.kind)]
    if not found:
        known = dict.fromkeys([*(d.kind for d in devices), *(d.name for d in devices)])
        raise InputError.build(f"links: no device or kind is named {name!r}", remedy=f"{toml.suggest(name, known)}")
    return found


def _cost(entry: Links, where: str) -> Path:
    """Times and source of an entry, as a path that holds no link."""
    for name, limits in _LINK_LIMITS.items():
        _check_limits(getattr(entry, name), f"{where}.{name}", limits)
    for k, piece in enumerate(entry.pieces):
        for j, name in enumerate(("latency_us", "us_per_byte")):
            _check_limits(piece[j], f"{where}.pieces[{k}][{j}]", _LINK_LIMITS[name])
    rates = [x for x in (entry.us_per_byte, entry.bandwidth_gb_s) if x is not None]
    if entry.model is not None:
        if rates or entry.latency_us is not None or entry.floor_us or entry.pieces:
            raise InputError.build(
                f"model {entry.model} brings its own numbers", where=where, remedy="drop them or drop the model"
            )
        known = link_model(entry.model, entry.lanes)
        said = entry.source or f"{entry.model}: {known.source}"
        return Path(latency_s=known.latency_s, s_per_byte=known.s_per_byte, floor_s=known.floor_s, source=said)
    if entry.lanes is not None:
        raise InputError.build("lanes are those of a model", where=where, remedy="name one, or drop lanes")
    if entry.latency_us is None or len(rates) != 1:
        remedy = "give latency_us and one of bandwidth_gb_s and us_per_byte, or a model"
        raise InputError.build("the cost of the link is not known", where=where, remedy=remedy)
    per_byte = 1e-9 / entry.bandwidth_gb_s if entry.bandwidth_gb_s is not None else rates[0] / 1e6
    return Path(
        latency_s=entry.latency_us / 1e6, s_per_byte=per_byte, floor_s=entry.floor_us / 1e6,
        pieces=tuple((us / 1e6, us_per_byte / 1e6) for us, us_per_byte in entry.pieces), source=entry.source,
    )  # fmt: skip


def _held_links(entry: Links, a: Device, b: Device, hosts: list[str]) -> Iterable[str]:
    """Names of the links that a transfer from a to b holds, each once."""
    values = {
        "from": a.name, "to": b.name, "from_host": hosts[a.host], "to_host": hosts[b.host],
        "from_cpu": f"cpu:{a.host}", "to_cpu": f"cpu:{b.host}",
    }  # fmt: skip

    def filled(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise InputError.build(
                f"links: holds has the unknown placeholder {found[0]}", remedy=f"{toml.suggest(found[1], values)}"
            )
        return values[found[1]]

    # Not str.format: a file's text must not reach attributes or field widths.
    return dict.fromkeys(re.sub(r"\{(\w*)\}", filled, name) for name in entry.holds)
