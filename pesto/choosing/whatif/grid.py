"""The clusters of a sweep: four axes around a given one, the points on them, and the cluster at each point."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from pesto.core.cluster import Cluster, Path
from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown

MOST_POINTS = 1000
MOST_DEVICES = 256
_RANGE = (1e-6, 1e6)
"""Least and greatest factor of an axis."""


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
        """Return how much two points differ: the sum over the axes of |log2| of the ratio."""
        return sum(abs(math.log2(getattr(self, axis) / getattr(other, axis))) for axis in AXES)

    def text(self, axes: Iterable[str]) -> str:
        """Return the values on some axes, for people."""
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
    """True if the points are all combinations, in place of one axis at a time."""

    def __post_init__(self) -> None:
        """Validate."""
        if not self.values:
            raise UsageError.build("no axis is swept", remedy=f"give values for one of {', '.join(AXES)}")
        if self._count() > MOST_POINTS:
            raise UsageError.build(
                f"{self._count()} points, at most {MOST_POINTS}", remedy="give fewer values, or leave out cross"
            )

    def points(self) -> tuple[ClusterPoint, ...]:
        """Return each point once, those near the base first: a later one finds a neighbour that is solved."""
        if self.cross:
            rows = [dict(zip(self.values, row, strict=True)) for row in itertools.product(*self.values.values())]
        else:
            rows = [{axis: value} for axis, values in self.values.items() for value in values]
        points = dict[ClusterPoint, None]()
        for row in rows:
            at = {axis: row.get(axis, getattr(self.base, axis)) for axis in AXES}
            devices = int(at["devices"])
            points[ClusterPoint(compute=at["compute"], links=at["links"], devices=devices, memory=at["memory"])] = None
        return tuple(sorted(points, key=self.base.far))

    def _count(self) -> int:
        sizes = [len(values) for values in self.values.values()]
        return math.prod(sizes) if self.cross else sum(sizes)


def parse_values(axis: str, text: str) -> tuple[float, ...]:
    """Return the values of an axis, "0.5,1,2", ascending and each once; UsageError when one is none or out of range."""
    words = [word.strip() for word in text.split(",")]
    if not any(words):
        raise UsageError.build("no value is given", where=axis, remedy=_valid_range(axis))
    return chosen_values({axis: words})[axis]


def chosen_values(axes: Mapping[str, Iterable[float | str]]) -> dict[str, tuple[float, ...]]:
    """Return the values of each axis that has some, ascending and each once; UsageError when one is out of range."""
    for axis, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise UsageError.build(
                f"{shown(repr(values))} is no list of values", where=axis, remedy=f"{_valid_range(axis)}, in a list"
            )
    result = dict[str, tuple[float, ...]]()
    for axis, words in ((axis, list(values)) for axis, values in axes.items()):
        numbers = set[float]()
        least, most = (1, MOST_DEVICES) if axis == "devices" else _RANGE
        for word in words:
            try:
                value = float(word)
            except (TypeError, ValueError):
                value = math.nan
            if not least <= value <= most or (axis == "devices" and value != int(value)):
                raise UsageError.build(f"{shown(repr(word))} is no value", where=axis, remedy=_valid_range(axis))
            numbers.add(value)
        if numbers:
            result[axis] = tuple(sorted(numbers))
    return result


def _valid_range(axis: str) -> str:
    if axis == "devices":
        return f"give whole numbers from 1 to {MOST_DEVICES}, such as 2,4,8"
    return f"give factors from {_RANGE[0]:g} to {_RANGE[1]:g}, such as 0.5,1,2"


def scale_cluster(cluster: Cluster, point: ClusterPoint) -> Cluster:
    """Return the cluster at a point of a sweep.

    Compute: every device, CPUs included, is that many times as fast (Pesto scales both, 5.4), measured times too.
    Links: every transfer takes its time divided by the factor. Memory: of the accelerators, rounded down to bytes.
    Devices: the first so many of the accelerators, and hosts that then have none are gone as well; or more of them,
    added to the hosts in turn, each like its host's others and joined like them; links that several share stay shared.
    InputError when the others differ, or there is no pair to take the pattern from.
    """

    def scale_path(path: Path | None) -> Path | None:
        if path is None:
            return None
        pieces = tuple((latency_s / point.links, s_per_byte / point.links) for latency_s, s_per_byte in path.pieces)
        return replace(
            path, latency_s=path.latency_s / point.links, s_per_byte=path.s_per_byte / point.links,
            floor_s=path.floor_s / point.links, pieces=pieces,
        )  # fmt: skip

    resized = _resize(cluster, point.devices)
    fast = set(resized.accelerators)
    devices = []
    for k, d in enumerate(resized.devices):
        memory = max(1, int(d.memory_bytes * point.memory)) if k in fast else d.memory_bytes
        devices.append(replace(d, speed=d.speed * point.compute, memory_bytes=memory))
    rows = tuple(tuple(map(scale_path, row)) for row in resized.paths)
    return replace(resized, devices=tuple(devices), paths=rows)


def _resize(cluster: Cluster, count: int) -> Cluster:
    result = cluster.accelerators
    if count < len(result):
        # The cluster with no accelerators but `kept`, and no hosts but theirs.
        kept = result[:count]
        hosts = {cluster.devices[k].host for k in kept}
        gone = set(cluster.accelerators) - set(kept)
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
    return _extend(cluster, count - len(result)) if count > len(result) else cluster


@dataclass(frozen=True, slots=True)
class _JoinPattern:
    """Kind of link between any two devices."""

    path: Path
    """Its cost; without links."""
    holds: tuple[str, ...]
    """Names of links, with <from> and <to> for the names of the two."""


_Role = tuple[int, str]
"""Host and name of a CPU, or host and "" for its accelerators."""


def _extend(cluster: Cluster, more: int) -> Cluster:
    result = cluster.accelerators
    devices = list(cluster.devices)
    role = [(d.host, "" if k in result else d.name) for k, d in enumerate(devices)]
    pattern = _patterns(cluster, role)
    for _ in range(more):
        # Like an accelerator of the host that has the fewest of them.
        hosts = [host for host, name in role if not name]
        host = min(dict.fromkeys(hosts), key=hosts.count)
        alike = [d for d, (of, name) in zip(cluster.devices, role, strict=False) if of == host and not name]
        if any(replace(d, name="") != replace(alike[0], name="") for d in alike):
            raise _no_pattern(cluster, "its accelerators are not alike")
        example = alike[0]
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
            if wanted is None or a == b:
                row.append(None)
                continue
            # A link that is new gets the next number.
            names = [name.replace("<from>", devices[a].name).replace("<to>", devices[b].name) for name in wanted.holds]
            row.append(replace(wanted.path, links=tuple(links.setdefault(name, len(links)) for name in names)))
    return replace(cluster, devices=tuple(devices), links=tuple(links), paths=tuple(tuple(row) for row in rows))


def _patterns(cluster: Cluster, role: list[_Role]) -> dict[tuple[_Role, _Role], _JoinPattern]:
    """Return how devices of two roles are joined; InputError when accelerators of a host are not all joined alike."""
    result: dict[tuple[_Role, _Role], _JoinPattern] = {}
    for a, row in enumerate(cluster.paths):
        for b, path in enumerate(row):
            if path is None:
                continue
            ends = {cluster.devices[a].name: "<from>", cluster.devices[b].name: "<to>"}
            words = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in ends)  # gpu:1 is no part of gpu:10
            holds = tuple(_substitute(words, ends, cluster.links[link]) for link in path.links)
            pattern = _JoinPattern(replace(path, links=()), holds)
            if result.setdefault((role[a], role[b]), pattern) != pattern:
                raise _no_pattern(cluster, "its accelerators are not all joined alike")
    return result


def _substitute(pattern: str, words: dict[str, str], text: str) -> str:
    return re.sub(pattern, lambda match: words[match.group()], text)


def _no_pattern(cluster: Cluster, why: str) -> InputError:
    return InputError.build(
        f"cluster {cluster.name}: {why}", remedy="give a cluster file with as many devices as are wanted"
    )
