"""A cluster made faster, slower, larger or smaller: what a point of a sweep stands for."""

import re
from dataclasses import dataclass, replace

from pesto.choosing.whatif.grid import ClusterPoint
from pesto.core.cluster import Cluster, Device, Path
from pesto.core.errors import InputError


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
