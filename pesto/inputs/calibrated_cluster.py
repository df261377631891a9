"""A cluster file with links that were measured: on this machine, or by somebody who wrote the samples down."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs.calibration import Calibration, Samples, calibrate, join_samples
from pesto.core.costs.disturbance import DisturbanceWatch, OtherLoad, WatchedRuns, list_programs, total_load
from pesto.core.costs.presets import PRESETS, preset_named_in
from pesto.core.errors import InputError, NothingFoundError, UsageError
from pesto.core.files import toml
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import shown
from pesto.inputs.cluster_file import ClusterDescription, File, Links, describe_cluster, parse
from solvers.arrays import floats

MOST_SAMPLES = 1_000_000
"""Rows of a file of samples."""
_MOST_BYTES = 64 << 20
_HEAD = ["from", "to", "bytes", "seconds"]
Report = Callable[[str], None]
Measure = Callable[[int], tuple[Samples, Samples, WatchedRuns[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedCluster:
    """A cluster whose links were measured, with how well they are known."""

    text: str
    """The cluster's file."""
    cluster: Cluster
    """Cluster that the file describes."""
    found: tuple[Calibration, ...]
    """One for each ordered pair that was measured."""
    others: OtherLoad | None = None
    """Load of other programs meanwhile; None where nothing says."""


def calibrate_cluster(like: str | None, passes: int, watch: DisturbanceWatch, report: Report) -> CalibratedCluster:
    """Return the cluster `like`, with all its links measured between the devices of this machine.

    like: a preset or a file; None is cpux2, two logical CPU devices, where TensorFlow sees no GPU. `report` is told
    each pair. Raise UsageError without a cluster where there are GPUs, InputError for a device that is not there, and
    NothingFoundError when the machine is too busy, or samples do not settle.
    """
    from pesto.tf.tensorflow_start import load_tensorflow

    load_tensorflow()
    from pesto.tf.run import transfers

    gpus = transfers.visible_gpus()
    if like is None and gpus:
        raise UsageError.build(
            f"calibrate: TensorFlow sees {len(gpus)} GPUs, of which it does not know everything that a cluster says",
            remedy="give a cluster that has them, whose links are measured",
        )
    basis = describe_cluster(like or "cpux2")
    check_devices_present(basis.cluster, gpus)
    cpus = sum(device.kind == "cpu" for device in basis.cluster.devices)
    names = [device.name for device in basis.cluster.devices]
    found: list[Calibration] = []
    watched: list[OtherLoad] = []
    for one, other in combinations(names, 2):
        pair = transfers.DevicePair(one=one, other=other, cpus=cpus)
        for ways in _measure_until_stable(partial(transfers.measure_transfers, pair, watch), passes, watched):
            found.append(ways)
            report(f"{ways.source} to {ways.target}: {ways}")
    others = total_load(watched) if watched else None
    load = _describe_load(others, kept=watch.keep)
    head = [
        f"Links measured by pesto calibrate, over 4 B to 64 MiB; devices as in {basis.cluster.source}.",
        f"While they were measured, {load}.",
    ]
    links = []
    for way in found:
        low, high = sorted((way.source, way.target))
        shared: dict[str, tuple[str, ...]] = {"nothing": (), "both ways": (f"{low}<>{high}",)}
        holds = shared.get(way.shares, (f"{way.source}>{way.target}",))
        links.append(_entry(way, holds, f"measured: {way}; {load}"))
    return _write_cluster(basis, head, links, found, others)


def _measure_until_stable(measure: Measure, passes: int, heard: list[OtherLoad]) -> tuple[Calibration, Calibration]:
    """Both ways between two devices, measured on to twice and four times as many passes where samples do not settle."""
    there, back, runs = measure(passes)
    others = [runs.others] if runs.others is not None else []
    for more in (passes, 2 * passes, 0):
        try:
            found = calibrate(there, back), calibrate(back, there)
        except NothingFoundError as error:
            if not more:
                load = _describe_load(total_load(others) if others else None, kept=False)
                raise NothingFoundError.build(
                    f"{error.message}; {load}", where=error.where, remedy=error.remedy
                ) from error
            further = measure(more)
            there, back = join_samples(there, further[0]), join_samples(back, further[1])
            others += [further[2].others] if further[2].others is not None else []
            continue
        break
    heard += others
    return found


def check_devices_present(cluster: Cluster, gpus: Sequence[str]) -> None:
    """Raise InputError for a cluster with a device that this machine has not; gpus: the names of its own."""
    if len(cluster.devices) < 2 or any(device.host for device in cluster.devices):
        raise InputError.build(
            f"calibrate: cluster {shown(cluster.name)} has one device, or several hosts",
            remedy="name one of a single machine with two devices or more, or give samples that were measured "
            "otherwise",
        )
    here = f"TensorFlow sees {len(gpus)} GPUs here"
    for device in cluster.devices:
        kind, _, number = device.name.partition(":")
        if kind not in ("cpu", "gpu"):
            raise InputError.build(
                f"calibrate: {device.name} is neither a CPU nor a GPU", remedy="give samples measured otherwise"
            )
        if kind == "cpu":
            continue
        if int(number) >= len(gpus):
            raise InputError.build(
                f"calibrate: {device.name} of cluster {shown(cluster.name)} is not there, {here}",
                remedy="name a cluster with the devices at hand, such as cpux2, or give samples that were measured "
                "there",
            )
        model = preset_named_in(gpus[int(number)])
        # What a device is that a file describes alone, nobody knows.
        if model is not None and device.preset in PRESETS and model.name != device.preset:
            raise InputError.build(
                f"calibrate: {device.name} of cluster {shown(cluster.name)} is a {device.preset}, here it is a "
                f"{shown(gpus[int(number)])}",
                remedy="name a cluster with the devices at hand",
            )


def cluster_from_samples(like: str, path: FilePath) -> CalibratedCluster:
    """Return the cluster `like`, with links fitted to a file's samples: CSV of from, to, bytes, seconds.

    A pair that has none keeps what it had, and one that has keeps the links that it holds. Raise InputError for rows
    that cannot be, NothingFoundError for samples that do not settle.
    """
    basis = describe_cluster(like)
    index = {device.name: k for k, device in enumerate(basis.cluster.devices)}
    found: list[Calibration] = []
    links: list[Links] = []
    for samples in _read_samples(path, index):
        one = calibrate(samples)
        through = basis.cluster.paths[index[one.source]][index[one.target]]
        holds = tuple(basis.cluster.links[k] for k in through.links) if through is not None else ()
        found.append(one)
        links.append(_entry(one, holds, f"fitted to samples of {shown(path.name, 60)}: {one}"))
    name = shown(path.name, 60)
    head = [f"Links fitted by pesto calibrate to samples of {name}; all else as in {basis.cluster.source}."]
    kept = toml.parse(basis.text.encode(), File, basis.cluster.source, InputError).links
    return _write_cluster(basis, head, [*kept, *links], found, None)


def _read_samples(path: FilePath, index: dict[str, int]) -> Iterator[Samples]:
    """The samples of each ordered pair in a file, as many of each size as the size with the fewest has."""
    where = shown(path)
    try:
        rows = csv.reader(io.StringIO(read_bytes(path, _MOST_BYTES).decode("utf-8-sig"), newline=""), strict=True)
        table = [row for row in rows if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError.build(
            f"no CSV in UTF-8: {shown(error)}", where=where, remedy=f"write rows of {','.join(_HEAD)}"
        ) from error
    if not table or [cell.strip() for cell in table[0]] != _HEAD:
        raise InputError.build(
            f"does not begin with {','.join(_HEAD)}", where=where, remedy="write that line above the samples"
        )
    if len(table) > MOST_SAMPLES:
        raise InputError.build(f"more than {MOST_SAMPLES} samples", where=where, remedy="leave some out")
    taken: dict[tuple[str, str], dict[int, list[float]]] = {}
    for number, row in enumerate(table[1:], 2):
        place = f"{where}: sample in row {number}"
        try:
            source, target, *cells = (cell.strip() for cell in row)
            size_cell, seconds_cell = cells
            size, seconds = int(size_cell), float(seconds_cell)
        except ValueError as error:
            raise InputError.build(
                f"{place} is no {','.join(_HEAD)}: {shown(','.join(row), 80)}", remedy="correct it there"
            ) from error
        for name in (source, target):
            if name not in index:
                raise InputError.build(
                    f"no device is named {shown(name)}", where=place, remedy=f"{toml.suggest(name, index)}"
                )
        if source == target:
            raise InputError.build(f"from {shown(source)} to itself", where=place, remedy="name two devices")
        if not 0 <= size < 1 << 50 or not 0 <= seconds < 1e6:
            raise InputError.build(
                f"{shown(size_cell)} bytes in {shown(seconds_cell)} s cannot be", where=place, remedy="leave it out"
            )
        taken.setdefault((source, target), {}).setdefault(size, []).append(seconds)
    if not taken:
        raise InputError.build("no samples", where=where, remedy=f"write some rows of {','.join(_HEAD)}")
    for (source, target), by_size in taken.items():
        fewest = min(map(len, by_size.values()))
        sizes = sorted(by_size)
        alone = floats(np.array([by_size[size][:fewest] for size in sizes]))
        yield Samples(source=source, target=target, sizes=np.array(sizes), alone=alone)


def _describe_load(others: OtherLoad | None, *, kept: bool) -> str:
    """The load of other programs, in words."""
    if others is None:
        return "what other programs used of it is not known"
    who = f" ({list_programs(others.who)})" if others.cores >= 0.1 else ""
    how = ", and disturbed runs were kept" if kept else ""
    return f"other programs used {others.cores:.2f} cores{who}{how}"


def _entry(one: Calibration, holds: tuple[str, ...], source: str) -> Links:
    (latency_us, us_per_byte), *pieces = [tuple(float(f"{x * 1e6:.6g}") for x in line) for line in one.lines]
    return Links(
        pairs=((one.source, one.target),), one_way=True, latency_us=latency_us, us_per_byte=us_per_byte,
        pieces=tuple((a, b) for a, b in pieces), holds=holds, source=source,
    )  # fmt: skip


def _write_cluster(
    like: ClusterDescription, head: list[str], links: list[Links], found: list[Calibration], others: OtherLoad | None
) -> CalibratedCluster:
    """The file of a cluster with other links, read back as anybody will."""
    file = toml.parse(like.text.encode(), File, like.cluster.source, InputError)
    made = replace(file, name=f"{like.cluster.name[:53]}-calibrated", links=tuple(links))
    whole = "".join(f"# {line}\n" for line in head) + toml.dumps(made)
    cluster = parse(whole.encode(), "the calibrated cluster", "calibrated")
    return CalibratedCluster(text=whole, cluster=cluster, found=tuple(found), others=others)
