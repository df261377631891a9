"""The times of a step's ops: a page of the longest, the object of --json, and the CSV that can be given back."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pesto.core.cluster import Cluster, Device
from pesto.core.costs import ORIGINS, Costs
from pesto.core.costs.analytical import CostListing, CostSum, form_name, sum_costs
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.quantities import duration, percent, plural, size
from pesto.reporting.show.facts.costs_note import costs_text, note_key
from pesto.reporting.show.lines import fact, paragraph
from pesto.reporting.show.table import Column, Table, align_rows, to_csv

_LARGEST = 20
"""Rows of a page."""
_INDENT = 8
_FLOPS = (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3), ("FLOP", 1.0))
_OPS = ("name", "type", "device", "dtype", "flops", "bytes", "seconds", "origin", "kernel")
_SUMMED = ("ops", "flops", "bytes", "total_s")
_OUTSIDE = "(no scope)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpTimes:
    """Op times to show, with the grouping."""

    graph: Graph
    cluster: Cluster
    costs: Costs
    found: CostListing
    by: str | None
    """type or scope; None for op by op."""

    @property
    def total_s(self) -> float:
        """All ops that are listed, one after the other."""
        return float(self.found.seconds.sum())

    @property
    def sums(self) -> list[CostSum]:
        """By type or scope."""
        return sum_costs(self.graph, self.found, self.by or "")


def as_object(times: OpTimes) -> dict[str, Any]:
    """The keys of `pesto costs --json`: all ops, or all sums."""
    used = sorted(set(times.found.device.tolist()))
    head = {
        "graph": times.graph.source,
        "cluster": times.cluster.name,
        "devices": [times.cluster.devices[d].name for d in used],
        "costs": times.costs.basis,
        "costs_source": times.costs.source,
        **note_key(times.costs.said),
        "total_s": times.total_s,
    }
    if times.by is None:
        return head | {"ops": [dict(zip(_OPS, row, strict=True)) for row in _rows(times)]}
    keys = (times.by, *_SUMMED)
    return head | {f"by_{times.by}": [dict(zip(keys, _summed_row(row), strict=True)) for row in times.sums]}


def as_csv(times: OpTimes) -> bytes:
    """All ops, as a file of one's own times; or all sums, whose column is named so that it cannot be one."""
    columns: tuple[str, ...] = _OPS if times.by is None else (times.by, *_SUMMED)
    rows = _rows(times, at_speed_one=True) if times.by is None else map(_summed_row, times.sums)
    kept = tuple(Column(key=key, title=key) for key in columns)
    return to_csv(Table(key="costs", title="costs", columns=kept, rows=tuple(rows)))


def page(times: OpTimes, rest: str = "") -> str:
    """A total, the longest ops or sums, and how many more there are; `rest` goes on with where these are found."""
    graph, costs, result = times.graph, times.costs, times.found
    lines = [
        fact("graph", f"{shown(graph.source)}, {plural(graph.ops, 'op')}"),
        fact("costs", costs_text(costs.basis, costs.source, costs.said)),
        fact("devices", _devices(times)),
        fact("total", f"{duration(times.total_s)} for {plural(len(result.op), 'op')}, one after the other"),
        "",
        *(_op_lines(times, rest) if times.by is None else _sum_lines(times, rest)),
    ]
    return "\n".join(lines)


def _devices(times: OpTimes) -> str:
    count: dict[int, int] = {}
    for d in times.found.device.tolist():
        count[d] = count.get(d, 0) + 1
    said = [(times.cluster.devices[d], n) for d, n in sorted(count.items(), key=lambda pair: -pair[1])]
    text = ", ".join(f"{plural(n, 'op')} on {shown(d.name)} ({_speed(d)})" for d, n in said)
    left = times.graph.ops - len(times.found.op)
    return f"{text or 'none'}{f'; {left} cannot run there' if left else ''}"


def _speed(device: Device) -> str:
    return shown(device.preset) + (f", speed {device.speed:g}" if device.speed != 1 else "")


def _op_lines(times: OpTimes, rest: str) -> list[str]:
    rows, total = [*_rows(times, _LARGEST)], times.total_s or 1.0
    # The preset of the device that most ops are listed on; of others it is said.
    used = times.found.device.tolist()
    usual = times.cluster.devices[max(set(used), key=used.count)].preset if used else ""
    lines = []
    for row in (dict(zip(_OPS, values, strict=True)) for values in rows):
        share = percent(row["seconds"] / total)
        how = f"{row['origin']}, {row['kernel']}" if row["kernel"] else row["origin"]
        work = f"{_flops(row['flops'])}, {size(row['bytes'])}"
        kind = " ".join(shown(row[key], 60) for key in ("type", "dtype") if row[key])
        elsewhere = f"on {shown(row['device'], 60)}" if row["device"] != usual else ""
        text = f"{', '.join(part for part in (kind, elsewhere, work) if part)}: {how}"
        lines.append(f"{duration(row['seconds']):>10s}  {share:>5s}  {shown(row['name'], 400)}")
        lines.append(paragraph("." * _INDENT + text, _INDENT).replace("." * _INDENT, " " * _INDENT, 1))
    return lines + _more(len(times.found.op), float(times.found.seconds[_LARGEST:].sum()), "ops", rest)


def _sum_lines(times: OpTimes, rest: str) -> list[str]:
    sums, total = times.sums, times.total_s or 1.0
    head = ("time", "share", "ops", "flops", "bytes", str(times.by))
    rows = [
        (duration(s.seconds), percent(s.seconds / total), str(s.ops), _flops(s.flops), size(s.bytes),
         shown(s.label, 200) or _OUTSIDE)
        for s in sums[:_LARGEST]
    ]  # fmt: skip
    return align_rows([head, *rows], ">>>>><") + _more(len(sums), sum(s.seconds for s in sums[_LARGEST:]), "rows", rest)


def _more(count: int, seconds: float, what: str, rest: str) -> list[str]:
    left = count - _LARGEST
    return [f"{left} more {what} take {duration(seconds)}{rest}"] if left > 0 else []


def _rows(times: OpTimes, limit: int | None = None, *, at_speed_one: bool = False) -> Iterator[tuple[Any, ...]]:
    """Values of _OPS; seconds on the device as it is, or as files have them."""
    graph, result, devices = times.graph, times.found, times.cluster.devices
    columns = (result.op, result.device, result.seconds, result.kernel)
    for i, d, seconds, kernel in zip(*(column[:limit].tolist() for column in columns), strict=True):
        dtype = int(graph.dtype_of[i])
        yield (
            graph.names[i],
            graph.types[int(graph.type_of[i])],
            devices[d].preset,
            graph.dtypes[dtype] if dtype >= 0 else None,
            float(graph.flops[i]),
            int(graph.moved_bytes[i]),
            seconds * devices[d].speed if at_speed_one else seconds,
            ORIGINS[int(times.costs.origin[i])],
            form_name(kernel),
        )


def _summed_row(row: CostSum) -> tuple[Any, ...]:
    return row.label, row.ops, row.flops, row.bytes, row.seconds


def _flops(count: float) -> str:
    name, one = next(((name, one) for name, one in _FLOPS if count >= one), _FLOPS[-1])
    return f"{count / one:.2f} {name}" if one > 1 else f"{count:.0f} {name}"
