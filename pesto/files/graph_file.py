"""The project's own graph file (docs/graph-file.md): JSON, one op a line, from anywhere and without TensorFlow."""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from pesto.errors import InputError
from pesto.files.disk import gzipped, read_bytes, write_atomic
from pesto.files.graphrows import MAX_KINDS, Op, check_labels, to_graph, usually_moved
from pesto.files.json import Kind, decode_document, shown, without_collection
from pesto.graph import Graph
from solvers.arrays import Ints

if TYPE_CHECKING:
    from pesto.files.scan import Scan

FORMAT = "pesto-graph"
VERSION = 1
MAX_OPS = 5_000_000
MAX_EDGES = 20_000_000
"""Data and control edges together; also outputs of all ops, and entries of all runs_on."""

_KIND = Kind(
    format=FORMAT,
    version=VERSION,
    help='write "format": "pesto-graph", or import a file of another format with pesto import',
)


class _File(msgspec.Struct, kw_only=True):
    format: str
    format_version: int
    source: str = ""
    batch: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    kinds: list[str] = msgspec.field(default_factory=lambda: ["cpu", "gpu"])
    ops: list[Op]


def load(path: str | os.PathLike[str]) -> Graph:
    """Read a graph file, gzip or not; FileError when it cannot be read, InputError when its content is refused."""
    return _loads(read_bytes(path), str(path), Path(path).name)


def loads(data: bytes, source: str) -> Graph:
    """The graph of a graph file's bytes (not gzip).

    `source` names it in errors, and in the graph unless the file names a source itself. InputError, with the place
    and a remedy, when it is refused. Unknown keys are ignored and logged as warnings.
    """
    return _loads(data, source, source)


def _loads(data: bytes, what: str, source: str) -> Graph:
    file = decode_document(data, _File, what, _KIND, lambda found: _limit(found, what))
    try:
        check_labels([file.source], lambda _: "$.source", empty=True)
        if not file.ops:
            raise InputError("$.ops: there are no ops - list at least one")
        with without_collection():
            return to_graph(file.ops, _distinct(file.kinds), file.source or shown(source), file.batch)
    except InputError as error:
        raise InputError(f"{shown(what)}: {shown(error, 2000)}") from error


def _limit(found: "Scan", what: str) -> None:
    """Refuse what is too large before the decoder makes objects of it."""
    ops = ("ops", None)
    counts: dict[tuple[str, int], list[tuple[str | None, ...]]] = {
        ("ops", MAX_OPS): [("ops",)],
        ("edges", MAX_EDGES): [(*ops, "inputs"), (*ops, "control")],
        ("outputs", MAX_EDGES): [(*ops, "outputs")],
        ("entries of runs_on", MAX_EDGES): [(*ops, "runs_on")],
        ("kinds", MAX_KINDS): [("kinds",)],
    }
    for (counted, most), paths in counts.items():
        there = sum(found.paths[p].items for p in paths if p in found.paths)
        if there > most:
            raise InputError(f"{shown(what)}: {there} {counted}, at most {most} are read - coarsen the graph first")
    times = sum(len(p) == 4 and p[:3] == (*ops, "time_s") for p in found.paths)
    if times > MAX_KINDS or found.crowded:
        raise InputError(f"{shown(what)}: more than {MAX_KINDS} kinds in time_s - leave out what is not needed")


def _distinct(kinds: list[str]) -> list[str]:
    for k, kind in enumerate(kinds):
        if kind in kinds[:k]:
            raise InputError(f"$.kinds[{k}]: '{shown(kind)}' is repeated - keep one")
    if not kinds:
        raise InputError('$.kinds: there are none - list at least one, such as "gpu"')
    return kinds


def save(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph file whole or not at all, as gzip when its name ends in .gz; FileError, or see `dumps`."""
    data = dumps(graph)
    write_atomic(path, gzipped(data) if Path(path).suffix == ".gz" else data)


def dumps(graph: Graph) -> bytes:
    """The graph as a graph file: equal graphs give equal bytes, and loading them keeps the fingerprint.

    Group labels become numbers. InputError when a name or label holds what a file must not: control characters,
    nothing at all, or more than 4096 bytes.
    """
    check_labels(graph.names, lambda k: f"the name of op {k}")
    check_labels([*graph.types, graph.source], lambda k: f"type or source {k}", empty=True)
    check_labels([*graph.kinds, *graph.given_kinds], lambda k: f"kind {k}")
    batch = {} if graph.batch is None else {"batch": graph.batch}
    head = {"format": FORMAT, "format_version": VERSION, "source": graph.source, **batch, "kinds": graph.kinds}
    encoder = msgspec.json.Encoder()
    with without_collection():
        rows = b",\n".join(map(encoder.encode, _rows(graph)))
    return encoder.encode(head)[:-1] + b',"ops":[\n' + rows + b"\n]}\n"


def _rows(graph: Graph) -> Iterator[Op]:
    names, n = graph.names, graph.ops
    first = np.searchsorted(graph.tensor_op, np.arange(n + 1))
    slots = (graph.tensor - first[graph.src]).tolist()
    usual = usually_moved(n, graph.tensor_bytes, graph.tensor, graph.dst, first)
    moved = np.where(graph.moved_bytes == usual, -1, graph.moved_bytes).tolist()
    labels = [None if g < 0 else str(g) for g in graph.group.tolist()]
    data = [_reference(names[op], k) for op, k in zip(graph.src.tolist(), slots, strict=True)]
    control = [names[op] for op in graph.control_src.tolist()]
    columns = zip(
        names, graph.type_of.tolist(), _where(graph), _by_head(n, graph.dst, data),
        _by_head(n, graph.control_dst, control), _cut(graph.tensor_bytes.tolist(), first), labels,
        graph.param_bytes.tolist(), graph.flops.tolist(), moved, graph.launches.tolist(), _given(graph), strict=True,
    )  # fmt: skip
    for name, kind, runs_on, inputs, waits, outputs, group, params, flops, move, launches, times in columns:
        yield Op(
            name=name, type=graph.types[kind], runs_on=runs_on, inputs=inputs, control=waits, outputs=outputs,
            group=group, param_bytes=params, flops=flops, moved_bytes=None if move < 0 else move,
            launches=launches, time_s=times,
        )  # fmt: skip


def _reference(name: str, output: int) -> str:
    """How an input names an output: the index is left out where that is not ambiguous."""
    tail = name.rpartition(":")[2] if ":" in name else ""
    return f"{name}:{output}" if output or (tail.isascii() and tail.isdigit()) else name


def _where(graph: Graph) -> Iterator[list[str] | None]:
    """What runs_on holds for each op: None where it is every kind."""
    for row in graph.runs_on.tolist():
        yield None if all(row) else [kind for kind, there in zip(graph.kinds, row, strict=True) if there]


def _given(graph: Graph) -> Iterator[dict[str, float] | None]:
    for row in graph.given_s.tolist():
        yield {kind: s for kind, s in zip(graph.given_kinds, row, strict=True) if s == s} or None  # noqa: PLR0124


def _by_head(ops: int, head: Ints, labels: list[str]) -> Iterator[list[str]]:
    """The labels of the edges that enter each op, in the order of the edges."""
    order = np.argsort(head, kind="stable")
    bounds = np.searchsorted(head[order], np.arange(ops + 1))
    return _cut([labels[e] for e in order.tolist()], bounds)


def _cut(values: list[Any], bounds: Ints) -> Iterator[list[Any]]:
    return (values[a:b] for a, b in pairwise(bounds.tolist()))
