"""A cluster wholly: its devices, links and paths, and where each of its numbers comes from."""

from typing import Any

from pesto.core.cluster import Cluster, Path
from pesto.core.costs.presets import PRESETS
from pesto.core.quantities import size
from pesto.inputs.cluster_file import ClusterDescription
from pesto.reporting.show.lines import fact, paragraph
from pesto.reporting.show.table import align_rows

_OF_A_DEVICE = ("name", "kind", "preset", "host", "memory_bytes", "speed", "cores")
UNSAID = "the cluster's file, which names no source"
"""Source of numbers whose file does not name one."""


def cluster_page(described: ClusterDescription) -> str:
    """All of a cluster, for people."""
    cluster = described.cluster
    ways = _ways(cluster)
    devices = [
        (d.name, d.preset, f"{d.cores} cores" if d.cores > 1 else "", size(d.memory_bytes), f"host {d.host}",
         f"speed {d.speed:g}" if d.speed != 1 else "")
        for d in cluster.devices
    ]  # fmt: skip
    paths = [
        (
            f"{cluster.devices[a].name} > {cluster.devices[b].name}",
            f"#{ways[_way(path)]}",
            (", ".join(cluster.links[k] for k in path.links) or "nothing"),
        )
        for a, b, path in _paths(cluster)
    ]
    sources = {d.preset: PRESETS[d.preset].source for d in cluster.devices if d.preset in PRESETS}
    lines = [paragraph(f"{cluster.name} ({cluster.source})", 2)]
    lines += [paragraph(described.about, 2)] if described.about else []
    lines += ["", "devices", *(f"  {line}" for line in align_rows(devices, "<<>><<"))]
    lines += [fact(f"  {name}", f"modelled: {source}") for name, source in sources.items()]
    lines += ["", "times"]
    lines += [fact(f"  #{k}", f"{_time(path)}; {path.source or UNSAID}") for path, k in _examples(cluster, ways)]
    lines += ["", f"paths, and which of {len(cluster.links)} links each holds"]
    return "\n".join([*lines, *(f"  {line}" for line in align_rows(paths, "<<<"))])


def cluster_object(described: ClusterDescription) -> dict[str, Any]:
    """The same as one JSON object."""
    cluster = described.cluster
    return {
        "name": cluster.name,
        "source": cluster.source,
        "about": described.about,
        "devices": [
            {key: getattr(d, key) for key in _OF_A_DEVICE}
            | {"source": PRESETS[d.preset].source if d.preset in PRESETS else None}
            for d in cluster.devices
        ],
        "links": list(cluster.links),
        "paths": [
            {
                "from": cluster.devices[a].name, "to": cluster.devices[b].name, "latency_s": path.latency_s,
                "s_per_byte": path.s_per_byte, "floor_s": path.floor_s, "pieces": [list(p) for p in path.pieces],
                "links": [cluster.links[k] for k in path.links], "source": path.source or None,
            }
            for a, b, path in _paths(cluster)
        ],
    }  # fmt: skip


def _paths(cluster: Cluster) -> list[tuple[int, int, Path]]:
    rows = enumerate(cluster.paths)
    return [(a, b, path) for a, row in rows for b, path in enumerate(row) if path is not None]


def _way(path: Path) -> tuple[object, ...]:
    return (path.cost, path.source)


def _ways(cluster: Cluster) -> dict[tuple[object, ...], int]:
    """A number for each time that paths take, by what it is and where it comes from."""
    result: dict[tuple[object, ...], int] = {}
    for _, _, path in _paths(cluster):
        result.setdefault(_way(path), len(result) + 1)
    return result


def _examples(cluster: Cluster, ways: dict[tuple[object, ...], int]) -> list[tuple[Path, int]]:
    one = {ways[_way(path)]: path for _, _, path in reversed(_paths(cluster))}
    return [(one[k], k) for k in sorted(one)]


def _time(path: Path) -> str:
    """The lines of a path in words, and its floor."""
    lines = [_line(*line) for line in ((path.latency_s, path.s_per_byte), *path.pieces)]
    text = " or ".join(lines) + (", the longest" if len(lines) > 1 else "")
    return text + (f", {path.floor_s * 1e6:g} us at least" if path.floor_s else "")


def _line(latency_s: float, s_per_byte: float) -> str:
    rate = f" + bytes at {1e-9 / s_per_byte:.4g} GB/s" if s_per_byte else ", bytes free"
    return f"{latency_s * 1e6:.6g} us{rate}"
