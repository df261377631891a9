"""Which clusters a sweep asks about: four axes around a given one, and the points on them."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from pesto.core.cluster import Cluster, Device, Path
from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown

MOST_POINTS = 1000
MOST_DEVICES = 256
_RANGE = (1e-6, 1e6)
"""Of a factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPoint:
    """One cluster of a sweep, as it differs from the given one."""

    compute: float = 1.0
    """Times the speed of every device."""
    links: float = 1.0
    """Times the speed of every path: latency, seconds per byte, floor and pieces are divided by it."""
    devices: int
    """Number of accelerators."""
    memory: float = 1.0
    """Times the memory of every accelerator."""

    def far(self, other: "ClusterPoint") -> float:
        """How much two points differ: the sum over the axes of |log2| of the ratio."""
        return sum(abs(math.log2(getattr(self, axis) / getattr(other, axis))) for axis in AXES)

    def text(self, axes: Iterable[str]) -> str:
        """The values on some axes, for people."""
        return ", ".join(f"{axis} {getattr(self, axis):g}{'' if axis == 'devices' else 'x'}" for axis in axes)


AXES = tuple(f.name for f in fields(ClusterPoint))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepGrid:
    """The values of each axis that is swept, one axis at a time around `base`, or all combinations of them.

    UsageError when no axis has a value, or the points are too many.
    """

    base: ClusterPoint
    """The cluster as it is given."""
    values: dict[str, tuple[float, ...]]
    """Axis -> values, ascending."""
    cross: bool = False
    """Whether the points are all combinations, in place of one axis at a time."""

    def __post_init__(self) -> None:
        """Validate."""
        if not self.values:
            raise UsageError.build("no axis is swept", remedy=f"give values for one of {', '.join(AXES)}")
        if self._count() > MOST_POINTS:
            raise UsageError.build(
                f"{self._count()} points, at most {MOST_POINTS}", remedy="give fewer values, or leave out cross"
            )

    def points(self) -> tuple[ClusterPoint, ...]:
        """Each point once, those near the base first: a later one finds a neighbour that is solved."""
        if self.cross:
            rows = [dict(zip(self.values, row, strict=True)) for row in itertools.product(*self.values.values())]
        else:
            rows = [{axis: value} for axis, values in self.values.items() for value in values]
        return tuple(sorted({self._at(row): None for row in rows}, key=self.base.far))

    def _at(self, row: dict[str, float]) -> ClusterPoint:
        at = {axis: row.get(axis, getattr(self.base, axis)) for axis in AXES}
        return ClusterPoint(compute=at["compute"], links=at["links"], devices=int(at["devices"]), memory=at["memory"])

    def _count(self) -> int:
        sizes = [len(values) for values in self.values.values()]
        return math.prod(sizes) if self.cross else sum(sizes)


def parse_values(axis: str, text: str) -> tuple[float, ...]:
    """The values of an axis, "0.5,1,2", ascending and each once; UsageError when one is none or out of range."""
    words = [word.strip() for word in text.split(",")]
    if not any(words):
        raise UsageError.build("no value is given", where=axis, remedy=_valid_range(axis))
    return chosen_values({axis: words})[axis]


def chosen_values(axes: Mapping[str, Iterable[float | str]]) -> dict[str, tuple[float, ...]]:
    """The values of each axis that has some, ascending and each once; UsageError when one is none or out of range."""
    for axis, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise UsageError.build(
                f"{shown(repr(values))} is no list of values", where=axis, remedy=f"{_valid_range(axis)}, in a list"
            )
    given = {axis: list(values) for axis, values in axes.items()}
    return {axis: tuple(sorted({_value(axis, word) for word in words})) for axis, words in given.items() if words}


def _value(axis: str, word: float | str) -> float:
    try:
        value = float(word)
    except (TypeError, ValueError):
        value = math.nan
    least, most = (1, MOST_DEVICES) if axis == "devices" else _RANGE
    if not least <= value <= most or (axis == "devices" and value != int(value)):
        raise UsageError.build(f"{shown(repr(word))} is no value", where=axis, remedy=_valid_range(axis))
    return value


def _valid_range(axis: str) -> str:
    if axis == "devices":
        return f"give whole numbers from 1 to {MOST_DEVICES}, such as 2,4,8"
    return f"give factors from {_RANGE[0]:g} to {_RANGE[1]:g}, such as 0.5,1,2"


# A cluster made faster, slower, larger or smaller: what a point of a
# sweep stands for.


def accelerators(cluster: Cluster) -> list[int]:
    """Indices of the devices that are no CPU, or of all when there are none such."""
    return [k for k, device in enumerate(cluster.devices) if device.kind != "cpu"] or list(range(len(cluster.devices)))


def scale_cluster(cluster: Cluster, point: ClusterPoint) -> Cluster:
    """The cluster at a point of a sweep.

    Compute: every device, CPUs included, is that many times as fast (Pesto scales both, 5.4), measured times too.
    Links: every transfer takes its time divided by the factor. Memory: of the accelerators, rounded down to bytes.
    Devices: the first so many of the accelerators, and hosts that then have none are gone as well; or more of them,
    added to the hosts in turn, each like its host's others and joined like them; links that several share stay shared.
    InputError when the others differ, or there is no pair to take the pattern from.
    """
    made = _resize(cluster, point.devices)
    fast = set(accelerators(made))
    devices = tuple(
        replace(
            d,
            speed=d.speed * point.compute,
            memory_bytes=max(1, int(d.memory_bytes * point.memory)) if k in fast else d.memory_bytes,
        )
        for k, d in enumerate(made.devices)
    )
    rows = tuple(tuple(_path(path, point.links) for path in row) for row in made.paths)
    return replace(made, devices=devices, paths=rows)


def _path(path: Path | None, speed: float) -> Path | None:
    if path is None:
        return None
    return replace(
        path,
        latency_s=path.latency_s / speed,
        s_per_byte=path.s_per_byte / speed,
        floor_s=path.floor_s / speed,
        pieces=tuple((latency_s / speed, s_per_byte / speed) for latency_s, s_per_byte in path.pieces),
    )


def _resize(cluster: Cluster, count: int) -> Cluster:
    found = accelerators(cluster)
    if count < len(found):
        # The cluster with no accelerators but `kept`, and no hosts but theirs.
        kept = found[:count]
        hosts = {cluster.devices[k].host for k in kept}
        gone = set(accelerators(cluster)) - set(kept)
        stays = [k for k, device in enumerate(cluster.devices) if k not in gone and device.host in hosts]
        paths = [[cluster.paths[a][b] for b in stays] for a in stays]
        used = sorted({link for row in paths for path in row if path is not None for link in path.links})
        number = {link: k for k, link in enumerate(used)}
        return replace(
            cluster,
            devices=tuple(cluster.devices[k] for k in stays),
            links=tuple(cluster.links[link] for link in used),
            paths=tuple(
                tuple(
                    None if path is None else replace(path, links=tuple(number[link] for link in path.links))
                    for path in row
                )
                for row in paths
            ),
        )
    return _extend(cluster, count - len(found)) if count > len(found) else cluster


@dataclass(frozen=True, slots=True)
class _JoinPattern:
    """How two devices are joined, whichever they are."""

    path: Path
    """Its cost; without links."""
    holds: tuple[str, ...]
    """Names of links, with <from> and <to> for the names of the two."""


_Role = tuple[int, str]
"""Host and name of a CPU, or host and "" for its accelerators."""


def _extend(cluster: Cluster, more: int) -> Cluster:
    found = accelerators(cluster)
    devices = list(cluster.devices)
    role = [(d.host, "" if k in found else d.name) for k, d in enumerate(devices)]
    pattern = _patterns(cluster, role)
    for _ in range(more):
        example = _example(cluster, role)
        number = sum(d.kind == example.kind for d in devices)
        devices.append(replace(example, name=f"{example.kind}:{number}"))
        role.append((example.host, ""))
    links = {name: k for k, name in enumerate(cluster.links)}
    rows = [list(row) for row in cluster.paths] + [[] for _ in range(more)]
    for a, row in enumerate(rows):
        for b in range(len(row), len(devices)):
            wanted = pattern.get((role[a], role[b]))
            if a != b and wanted is None:
                raise _no_pattern(cluster, "no two of its accelerators show how more are joined")
            row.append(None if wanted is None or a == b else _fill_pattern(wanted, (devices[a], devices[b]), links))
    return replace(cluster, devices=tuple(devices), links=tuple(links), paths=tuple(tuple(row) for row in rows))


def _example(cluster: Cluster, role: list[_Role]) -> Device:
    """An accelerator of the host that has the fewest of them; InputError when that host's differ."""
    hosts = [host for host, name in role if not name]
    host = min(dict.fromkeys(hosts), key=hosts.count)
    alike = [d for d, (of, name) in zip(cluster.devices, role, strict=False) if of == host and not name]
    if any(replace(d, name="") != replace(alike[0], name="") for d in alike):
        raise _no_pattern(cluster, "its accelerators are not alike")
    return alike[0]


def _patterns(cluster: Cluster, role: list[_Role]) -> dict[tuple[_Role, _Role], _JoinPattern]:
    """How devices of any two roles are joined; InputError when not all accelerators of a host are joined alike."""
    found: dict[tuple[_Role, _Role], _JoinPattern] = {}
    for a, row in enumerate(cluster.paths):
        for b, path in enumerate(row):
            if path is None:
                continue
            ends = {cluster.devices[a].name: "<from>", cluster.devices[b].name: "<to>"}
            holds = tuple(_rename_words(cluster.links[link], ends) for link in path.links)
            pattern = _JoinPattern(replace(path, links=()), holds)
            if found.setdefault((role[a], role[b]), pattern) != pattern:
                raise _no_pattern(cluster, "its accelerators are not all joined alike")
    return found


def _fill_pattern(pattern: _JoinPattern, ends: tuple[Device, Device], links: dict[str, int]) -> Path:
    """The path between two devices by a pattern; a link that is new gets the next number."""
    names = [name.replace("<from>", ends[0].name).replace("<to>", ends[1].name) for name in pattern.holds]
    return replace(pattern.path, links=tuple(links.setdefault(name, len(links)) for name in names))


def _rename_words(text: str, names: dict[str, str]) -> str:
    """The text with whole words replaced: gpu:1 is no part of gpu:10."""
    words = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in names)
    return re.sub(words, lambda match: names[match.group()], text)


def _no_pattern(cluster: Cluster, why: str) -> InputError:
    return InputError.build(
        f"cluster {cluster.name}: {why}", remedy="give a cluster file with as many devices as are wanted"
    )
