"""pesto costs: what each op of a step costs on a device, and why."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from pesto.cli.options import cluster_option, costs_option, json_option, source_options
from pesto.cli.printed import to_json
from pesto.cluster import Cluster
from pesto.costs import MEASURED, MODELLED, Costs
from pesto.costs.explained import WORDS, reasons
from pesto.errors import UsageError
from pesto.files.json import shown
from pesto.files.toml import closest
from pesto.graph import Graph
from pesto.inputs.load import load_cluster, load_costs, load_graph
from pesto.quantities import duration, percent
from pesto.show.costs_note import costs_text, note_key
from pesto.show.lines import fact
from pesto.show.table import aligned
from pesto.source import Source

_COLUMNS = ("name", "type", "dtype", "flops", "bytes", "seconds", "origin", "kernel")
_SHOWN = 30


@click.command("costs")
@source_options
@cluster_option()
@costs_option()
@click.option(
    "--device", metavar="NAME", help="Such as gpu:0; default: the cluster's first GPU, else its first device."
)
@click.option("--by", type=click.Choice(("type", "scope")), help="Sums by type of op, or by first part of the name.")
@click.option("--csv", "as_csv", is_flag=True, help="Every op as CSV on stdout, which --costs reads again.")
@json_option()
def costs_command(
    *,
    source: Source,
    cluster: str,
    costs: Path | None,
    device: str | None,
    by: str | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """List what each op of a step costs on one device, where the time comes from, and which kernel takes it.

    \b
    pesto costs --model nmt --by type
    pesto costs --model nmt --csv > own.csv
    pesto solve --model nmt --costs own.csv
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json both fill stdout - give one")
    graph, machine = load_graph(source.checked()), load_cluster(cluster)
    at = _device(device, machine)
    found = load_costs(graph, machine, costs)
    rows = _rows(graph, machine, found, at)
    if by:
        rows = _sums(rows, by)
    columns = _COLUMNS if not by else (by, "ops", "flops", "bytes", "seconds")
    if as_json:
        said = {"device": machine.devices[at].name, "basis": found.basis, "costs": found.source, **note_key(found.note)}
        listed = [dict(zip(columns, row, strict=True)) for row in rows]
        click.echo(to_json({**said, "seconds": _total(rows, columns), by or "ops": listed}))
    elif as_csv:
        click.echo(_csv(columns, rows), nl=False)
    else:
        click.echo(_page(machine, found, at, columns, rows))


def _device(name: str | None, cluster: Cluster) -> int:
    names = [d.name for d in cluster.devices]
    if name is None:
        return next((i for i, d in enumerate(cluster.devices) if d.kind != "cpu"), 0)
    if name not in names:
        raise UsageError(f"{cluster.name} has no device {shown(name)!r} - {closest(name, names)}")
    return names.index(name)


def _rows(graph: Graph, cluster: Cluster, costs: Costs, at: int) -> list[tuple[Any, ...]]:
    """One row for every op, as `_COLUMNS`; no seconds where it cannot run."""
    seconds = [None if s != s else s for s in costs.compute_s[:, at].tolist()]  # noqa: PLR0124
    origin = np.clip(costs.origin, MODELLED, MEASURED).tolist()
    kernels = reasons(graph, cluster.devices[at])
    dtypes = (*graph.dtypes, "")
    named = [dtypes[k] for k in graph.dtype_of.tolist()]
    kinds = [graph.types[k] for k in graph.type_of.tolist()]
    return [
        (*row[:6], WORDS[row[6]], row[7] if row[6] == MODELLED and row[5] is not None else "")
        for row in zip(
            graph.names, kinds, named, graph.flops.tolist(), graph.moved_bytes.tolist(), seconds, origin, kernels,
            strict=True,
        )
    ]  # fmt: skip


def _sums(rows: Sequence[tuple[Any, ...]], by: str) -> list[tuple[Any, ...]]:
    """Ops, flops, bytes and seconds of each type or scope, the longest first."""
    total: dict[str, list[float]] = {}
    for row in rows:
        label = row[1] if by == "type" else row[0].partition("/")[0]
        sums = total.setdefault(label, [0, 0.0, 0, 0.0])
        for k, value in enumerate((1, row[3], row[4], row[5] or 0.0)):
            sums[k] += value
    return sorted(((label, *sums) for label, sums in total.items()), key=lambda row: -row[4])


def _total(rows: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> float:
    return float(sum(row[columns.index("seconds")] or 0.0 for row in rows))


def _csv(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if value is None else value for value in row] for row in rows)
    return text.getvalue()


def _page(
    cluster: Cluster, costs: Costs, at: int, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> str:  # fmt: skip
    """The total, where it comes from, and the longest rows."""
    device, k = cluster.devices[at], columns.index("seconds")
    whole = _total(rows, columns)
    ranked = sorted(rows, key=lambda row: -(row[k] or 0.0))[:_SHOWN]
    head = [
        fact("device", f"{device.name} of {cluster.name} ({device.preset})"),
        fact("all ops", f"{duration(whole)}, one after another"),
        fact("costs", costs_text(costs.basis, costs.source, costs.note)),
    ]
    shares = [percent((row[k] or 0.0) / whole) if whole else "" for row in ranked]
    lines = [(*map(_cell, columns, row), share) for row, share in zip(ranked, shares, strict=True)]
    right = {"flops", "bytes", "seconds", "ops"}
    table = aligned([(*columns, "share"), *lines], "".join(">" if c in right else "<" for c in columns) + ">")
    more = [f"{len(rows) - len(ranked)} more take less each; --csv and --json list all"] if len(rows) > _SHOWN else []
    return "\n".join([*head, "", *table, *more])


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "cannot run"
    if column == "seconds":
        return duration(value)
    return f"{value:.3g}" if column in ("flops", "bytes") else shown(value, 60)
