"""Op times of a user's own: a CSV of names or types, which replace those of any other source."""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from pesto.cluster import Cluster, Device
from pesto.costs import GIVEN, Costs
from pesto.costs.analytical import everywhere, runnable
from pesto.errors import InputError
from pesto.files.disk import read_bytes
from pesto.files.json import shown
from pesto.files.toml import closest
from pesto.graph import Graph
from solvers.arrays import Ints

SUFFIX = ".csv"
"""What the name of such a file ends with."""
_MOST_BYTES = 1 << 28
_MOST_SECONDS = 1e6

_Row = tuple[int, dict[str, str]]
"""A line's number, and its columns."""


def own(path: Path, graph: Graph, cluster: Cluster, fallback: Costs) -> Costs:
    """Costs with the times of a CSV file, and `fallback`'s everywhere else.

    Its header names `seconds`, and `name` or `type`, and may name `device`: a device, a kind or a preset. A row speaks
    of the op of its name, or without one of all ops of its type, where they run; names count before types, later rows
    before earlier ones. Rows without seconds say nothing. Times are those of a device of speed 1. An op is GIVEN once
    its time is given for every device where it may be placed. InputError, with the line, for what is no such file, and
    where it matches nothing.
    """
    what = shown(path.name)
    rows = _rows(read_bytes(path, _MOST_BYTES), what)
    can = runnable(graph, cluster)
    compute_s, known = fallback.compute_s.copy(), np.zeros_like(can)
    ops = {name: i for i, name in enumerate(graph.names)}
    types = {name: k for k, name in enumerate(graph.types)}
    for line, row in sorted(rows, key=lambda found: bool(found[1].get("name"))):
        at = np.array([ops[row["name"]]]) if row.get("name") in ops else _of_type(row, graph, types)
        seconds = _seconds(row, f"{what}, line {line}")
        for d in _devices(row, cluster, f"{what}, line {line}") if len(at) and seconds is not None else []:
            there = at[can[at, d]]
            compute_s[there, d], known[there, d] = (seconds or 0.0) / cluster.devices[d].speed, True
    count = int(known.any(axis=1).sum())
    if not count:
        remedy = "give names or types as pesto costs lists them"
        raise InputError(f"{what}: none of its {len(rows)} rows matches an op of this graph - {remedy}")
    given = everywhere(known, graph, cluster)
    source = f"{count} of {graph.ops} ops by {what}, else {fallback.source}"
    return replace(fallback, compute_s=compute_s, origin=np.where(given, GIVEN, fallback.origin), source=source)


def _rows(data: bytes, what: str) -> list[_Row]:
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        keys = reader.fieldnames or []
        if "seconds" not in keys or not {"name", "type"} & set(keys):
            raise InputError(f"{what}: its first line must name seconds, and name or type - pesto costs writes such")
        return [(reader.line_num, {k: v for k, v in row.items() if k and isinstance(v, str)}) for row in reader]
    except UnicodeDecodeError as error:
        raise InputError(f"{what}: not UTF-8 text (byte {error.start}) - save the file as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{what}: no CSV: {shown(error)} - correct it there") from error


def _of_type(row: dict[str, str], graph: Graph, types: dict[str, int]) -> Ints:
    """The ops that a row without a name speaks of."""
    k = -1 if row.get("name") else types.get(row.get("type", ""), -1)
    return np.flatnonzero(graph.type_of == k)


def _seconds(row: dict[str, str], where: str) -> float | None:
    text = row.get("seconds", "").strip()
    try:
        value = float(text) if text else None
    except ValueError:
        value = math.nan
    if value is not None and not 0 <= value <= _MOST_SECONDS:
        raise InputError(f"{where}: seconds is {shown(text, 40)!r} - give a number from 0 to {_MOST_SECONDS:g}")
    return value


def _devices(row: dict[str, str], cluster: Cluster, where: str) -> list[int]:
    """Indices of the devices that a row speaks of: all where it names none."""
    asked = row.get("device", "").strip()
    found = [d for d, device in enumerate(cluster.devices) if not asked or asked in _names(device)]
    if not found:
        known = dict.fromkeys(name for device in cluster.devices for name in _names(device))
        raise InputError(f"{where}: no device, kind or preset here is named {shown(asked)!r} - {closest(asked, known)}")
    return found


def _names(device: Device) -> tuple[str, str, str]:
    return device.kind, device.name, device.preset
