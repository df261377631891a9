"""The user's own times: a CSV file of seconds or factors by op or by type, in place of other costs."""

import codecs
import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pesto.core.cluster import Cluster
from pesto.core.costs import GIVEN, Costs
from pesto.core.costs.analytical import known_everywhere, placeable, runnable
from pesto.core.costs.presets import PRESETS
from pesto.core.errors import InputError
from pesto.core.files.disk import read_bytes
from pesto.core.files.json import quoted, shown
from pesto.core.files.toml import suggest
from pesto.core.graph import Graph
from pesto.core.source import TIMES, Origin
from solvers.arrays import Ints

SUFFIX = ".csv"
"""Ending of the name of a file of the user's own times; any other file is a profile."""
MOST_BYTES = 256 << 20
MOST_SECONDS = 86_400.0
"""Most seconds of one op: a day."""
MOST_SCALE = 1000.0
_READ = ("name", "type", "device", "seconds", "scale")
_COMMAS = "separate with commas, and write decimals with a point"
_PASSED_OVER = ("dtype", "flops", "bytes", "origin", "kernel")
"""Columns of the list of a step's costs that are there for people."""
_SAME = 1e-9
"""Relative difference up to which a time is the one that was known."""
_FORMULA = ("'=", "'+", "'-", "'@")
"""Beginnings of a text that was kept from being a spreadsheet's formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """One line of the file: ops, and either their time or a factor."""

    line: int
    """Number of the line in the file, from 1."""
    name: str
    """Name of an op; empty for all ops of the type."""
    type: str
    """Type of ops; beside a name, the type that the op has to have."""
    device: str
    """A kind or a preset of devices; empty for all on which the op may be placed."""
    seconds: float
    """Seconds at `Device.speed` 1; NaN where a factor is given."""
    scale: float
    """Factor of the time that is known otherwise; NaN where seconds are given."""

    @property
    def of(self) -> str:
        """Words for the op or the type."""
        return f"op {quoted(self.name)}" if self.name else f"type {quoted(self.type)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTimes:
    """The rows of a file that give a number."""

    rows: tuple[TimeRow, ...]
    where: str
    """The file's name, for messages."""
    origin: Origin
    """Name and digest of the file, for plans."""


def load_user_times(path: Path) -> UserTimes:
    """Read the times in a CSV file (docs/guides/costs.md). Raise InputError, with the line, or FileError."""
    return parse_user_times(read_bytes(path, MOST_BYTES), shown(path.name))


def parse_user_times(data: bytes, where: str) -> UserTimes:
    """Parse content already read, as `load_user_times`; `where` names it in errors."""
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError.build(
            f"not UTF-8 text (byte {error.start})", where=where, remedy="save the file as CSV in UTF-8"
        ) from error
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = tuple(_read_rows(lines, where))
    except csv.Error as error:
        raise InputError.build(
            f"{where}, line {lines.line_num}: not CSV: {shown(error)}", remedy="correct it there"
        ) from error
    if not rows:
        raise InputError.build(
            "no row gives seconds or a scale", where=where, remedy="give one, such as 0.038 seconds for an op's name"
        )
    seen: dict[tuple[str, str, str], TimeRow] = {}
    for row in rows:
        first = seen.setdefault((row.name, "" if row.name else row.type, row.device), row)
        if first is not row:
            raise InputError.build(
                f"{where}, line {row.line}: {row.of} has a number in line {first.line} already", remedy="leave one"
            )
    return UserTimes(rows=rows, where=where, origin=Origin.of_file(TIMES, where, data))


def apply_user_times(graph: Graph, cluster: Cluster, times: UserTimes, fallback: Costs) -> Costs:
    """Return costs with the file's times in place of `fallback`'s wherever they differ.

    A row with a name holds before one with a type, and among these one of a preset before one of a kind and that before
    one of all devices. An op counts as GIVEN when the file has its seconds on every device where it may be placed; a
    time that is scaled, and one that is what was known, keep their origin. Seconds scale with `Device.speed`.
    Raise InputError when no row speaks of the graph on this cluster, or one gives an op another type than it has.
    """
    chosen, unmatched = _matching_rows(graph, cluster, times)
    if (chosen < 0).all():
        raise InputError.build(
            f"none of its rows is of an op or a type of {shown(graph.source)} on {cluster.name}",
            where=times.where,
            remedy="take names, types and devices as pesto costs prints them for this step and cluster",
        )
    seconds = np.array([*(row.seconds for row in times.rows), math.nan])[chosen]
    scale = np.array([*(row.scale for row in times.rows), 1.0])[chosen]
    speed = np.array([device.speed for device in cluster.devices])
    said = np.where(np.isnan(seconds), fallback.compute_s * scale, seconds / speed)
    differs = (chosen >= 0) & ~np.isclose(said, fallback.compute_s, rtol=_SAME, atol=0)
    note = [] if differs.any() else ["all its times are those that hold without it"]
    if unmatched:
        first = unmatched[0]
        note.append(
            f"{len(unmatched)} of {len(times.rows)} rows speak of nothing here, as {first.of}, line {first.line}"
        )
    found = replace(
        fallback,
        compute_s=np.where(differs, said, fallback.compute_s),
        origin=np.where(known_everywhere(differs & ~np.isnan(seconds), graph, cluster), GIVEN, fallback.origin),
        note=f"{times.where}: {'; '.join(note)}" if note else "",
    )
    if not differs.any():
        return found
    count, factors = int(differs.any(axis=1).sum()), int((differs & np.isnan(seconds)).any(axis=1).sum())
    how = f" ({factors} of them scaled)" if factors else ""
    by = f"{times.origin.name} (sha256 {times.origin.digest})"
    source = f"own times of {count} of {len(differs)} ops{how} by {by}, else {fallback.source}"
    return replace(found, source=source, files=(times.origin, *fallback.files))


def _matching_rows(graph: Graph, cluster: Cluster, times: UserTimes) -> tuple[Ints, list[TimeRow]]:
    """([n, d] index of the row that holds for an op on a device, -1 for none; rows that hold nowhere)."""
    devices = cluster.devices
    labels = dict.fromkeys([*graph.kinds, *(d.kind for d in devices), *(d.preset for d in devices), *PRESETS])
    # Indices of the devices that each label of the file speaks of.
    columns = {"": list(range(len(devices)))}
    for row in times.rows:
        if row.device and row.device not in labels:
            raise InputError.build(
                f"{times.where}, line {row.line}: device {quoted(row.device)} is no kind of device and no preset",
                remedy=suggest(row.device, labels),
            )
        columns.setdefault(row.device, [k for k, d in enumerate(devices) if row.device in (d.kind, d.preset)])
    can, places = runnable(graph, cluster), placeable(graph, cluster)
    chosen = np.full(can.shape, -1, dtype=np.int64)
    met = np.zeros(len(times.rows), dtype=np.bool_)
    by_name = _named_ops(graph, times)
    kinds = {*graph.kinds, *(device.kind for device in devices)}
    groups: dict[tuple[bool, int, str], list[int]] = {}
    for k, row in enumerate(times.rows):
        rank = 1 + (row.device not in kinds) if row.device else 0
        groups.setdefault((bool(row.name), rank, row.device), []).append(k)
    for (named, _, label), rows in sorted(groups.items()):  # what holds before others is written after them
        if named:
            pairs = [(by_name[times.rows[k].name], k) for k in rows if times.rows[k].name in by_name]
            ops, which = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        else:
            of_type = {times.rows[k].type: k for k in rows}
            which = np.array([of_type.get(name, -1) for name in graph.types], dtype=np.int64)[graph.type_of]
            ops = np.flatnonzero(which >= 0)
            which = which[ops]
        for d in columns[label]:
            here = (can if label else places)[ops, d]
            chosen[ops[here], d] = which[here]
            met[which[here]] = True
    return chosen, [row for row, there in zip(times.rows, met.tolist(), strict=True) if not there]


def _named_ops(graph: Graph, times: UserTimes) -> dict[str, int]:
    """Index of the op that each name in the file is of; InputError where its type is another than the file says."""
    index = {name: i for i, name in enumerate(graph.names)}
    ops = {}
    for row in times.rows:
        plain = row.name[1:] if row.name.startswith(_FORMULA) else row.name
        i = index.get(row.name, index.get(plain))
        if not row.name or i is None:
            continue
        own_type = graph.types[int(graph.type_of[i])]
        if row.type and row.type != own_type:
            raise InputError.build(
                f"{times.where}, line {row.line}: {row.of} is of type {shown(own_type)} and not {shown(row.type)}",
                remedy="correct the type or leave it out",
            )
        ops[row.name] = i
    return ops


def _read_rows(lines: Iterator[list[str]], where: str) -> Iterator[TimeRow]:
    """Rows that give a number; others leave all as it is."""
    header = [cell.strip() for cell in next(lines, [])]
    columns = _READ + _PASSED_OVER
    if not any(header):
        raise InputError.build("no line of column names", where=where, remedy="begin with one, such as name,seconds")
    for name in header:
        if set(name) & {";", "\t"}:
            raise InputError.build(f"column {quoted(name, 80)}", where=where, remedy=_COMMAS)
        if name not in columns:
            raise InputError.build(f"unknown column {quoted(name, 80)}", where=where, remedy=suggest(name, columns))
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise InputError.build(f"two columns are named {twice!r}", where=where, remedy="leave one")
    for wanted in (("name", "type"), ("seconds", "scale")):
        if not set(wanted) & set(header):
            raise InputError.build(f"no column {wanted[0]!r} or {wanted[1]!r}", where=where, remedy="add one of them")
    for number, cells in enumerate(lines, start=2):
        if not any(cell.strip() for cell in cells):
            continue
        line = f"{where}, line {number}"
        if len(cells) != len(header):
            raise InputError.build(f"{line}: {len(cells)} cells under {len(header)} columns", remedy=_COMMAS)
        cell = dict.fromkeys(columns, "") | dict(zip(header, (cell.strip() for cell in cells), strict=True))
        seconds = _number(cell["seconds"], "seconds", MOST_SECONDS, line)
        scale = _number(cell["scale"], "scale", MOST_SCALE, line)
        if math.isnan(seconds) and math.isnan(scale):
            continue
        if not math.isnan(seconds) and not math.isnan(scale):
            raise InputError.build(f"{line}: both seconds and scale", remedy="leave one empty")
        if not cell["name"] and not cell["type"]:
            raise InputError.build(f"{line}: neither a name nor a type", remedy="say of which ops the number is")
        yield TimeRow(
            line=number, name=cell["name"], type=cell["type"], device=cell["device"], seconds=seconds, scale=scale
        )


def _number(text: str, column: str, most: float, where: str) -> float:
    """NaN for an empty cell."""
    if not text:
        return math.nan
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        unit = "seconds, such as 0.038 for 38 ms" if column == "seconds" else "a factor, such as 1.5"
        raise InputError.build(
            f"{column} is {quoted(text, 40)}", where=where, remedy=f"write {unit}, from 0 to {most:.0f}"
        )
    return value
