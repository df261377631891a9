"""The project's own graph file (docs/reference/graph-file.md): JSON, one op a line, without TensorFlow."""

import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from pesto.core.errors import InputError
from pesto.core.files.disk import gzipped, log_writing, read_bytes, write_atomic
from pesto.core.files.json import (
    Count,
    DocumentKind,
    Outline,
    check_labels,
    decode_document,
    refuse_document,
    shown,
    without_collection,
)
from pesto.core.files.toml import suggest
from pesto.core.graph import BOUND, BRANCHED, KERNEL_FORMS, KERNEL_SIZES, NOT_SAID, Graph, Variable
from pesto.core.source import GraphOrigin, read_source
from solvers.arrays import Bools, Floats, Ints, offsets

_MOST = 2**40
"""Largest size of a kernel."""


def kernel_rows(said: Sequence[tuple[str, list[int]]]) -> Ints:
    """Return [n, 12] form and sizes of kernels, from the names and sizes in a file. Raise InputError with the place."""
    rows = np.zeros((len(said), 1 + max(KERNEL_SIZES)), dtype=np.int64)
    forms = {name: k for k, name in enumerate(KERNEL_FORMS)}
    for i, (name, sizes) in enumerate(said):
        if not name and not sizes:
            continue
        form = forms.get(name, -1)
        if form < 0:
            remedy = suggest(shown(name), KERNEL_FORMS[1:])
            raise InputError.build(f"$.ops[{i}].kernel: no form is named '{shown(name)}'", remedy=remedy)
        if len(sizes) != KERNEL_SIZES[form] or max(sizes, default=0) > _MOST:
            what = f"the {KERNEL_SIZES[form]} sizes of '{name}', each up to {_MOST}"
            raise InputError.build(
                f"$.ops[{i}].sizes: {len(sizes)} sizes", remedy=f"give {what if form else 'a kernel with them'}"
            )
        rows[i, : 1 + len(sizes)] = [form, *sizes]
    return rows


MAX_KINDS = 32
"""Kinds of device in a file, and distinct keys of all its time_s."""
_MOST_BYTES = 2.0**62  # sums over all ops must stay within int64
_FEW_NAMES = 5000  # among more than these, looking for a similar one takes too long

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e6)]


class OpVariable(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The variable that an op stands for."""

    name: str
    dtype: str = ""
    shape: list[Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]] | None = None


class OpRecord(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One op as docs/reference/graph-file.md describes it."""

    name: str
    type: str = ""
    runs_on: list[str] | None = None
    inputs: list[str] = []
    control: list[str] = []
    outputs: list[Count] = []
    dtypes: list[str] = []
    dtype: str | None = None
    group: str | None = None
    device: str | None = None
    param_bytes: Count = 0
    flops: Annotated[float, msgspec.Meta(ge=0, le=1e24)] = 0.0
    moved_bytes: Count | None = None
    launches: bool = True
    time_s: dict[str, Seconds] | None = None
    loose: Annotated[int, msgspec.Meta(ge=BOUND, le=BRANCHED)] = BOUND
    kernel: str = ""
    sizes: Annotated[list[Count], msgspec.Meta(max_length=max(KERNEL_SIZES))] = []
    variable: OpVariable | None = None


def to_graph(
    ops: list[OpRecord],
    kinds: list[str],
    source: str,
    *,
    batch: int | None = None,
    feed_shapes: Sequence[str] = (),
    way: str = NOT_SAID,
) -> Graph:
    """Return the graph of `ops`, in their order. Raise InputError with the place and remedy of the first fault."""
    names = [op.name for op in ops]
    check_labels(names, lambda k: f"$.ops[{k}].name")
    index = {name: k for k, name in enumerate(names)}
    if len(index) < len(names):
        # The dict holds the last of each name, so the first op that is not there has a namesake below.
        k = next(k for k, name in enumerate(names) if index[name] != k)
        raise InputError.build(
            f"$.ops[{index[names[k]]}].name: '{shown(names[k])}' is also $.ops[{k}]", remedy="rename one"
        )
    check_labels(kinds, lambda k: f"$.kinds[{k}]")
    produced = np.array([len(op.outputs) for op in ops], dtype=np.int64)
    first = offsets(produced)
    tensor_bytes = _bytes("outputs", chain.from_iterable(op.outputs for op in ops))
    (src, slot, dst), (control_src, control_dst) = _read_edges(ops, index, produced)
    types, type_of = _encode_labels([op.type for op in ops], "type")
    (_, group), (devices, device_of) = (
        _encode_labels([getattr(op, key) for op in ops], key) for key in ("group", "device")
    )
    dtypes, dtype_of, tensor_dtype = _dtypes(ops)
    runs_on, given_kinds, given_s = _device_columns(ops, kinds)
    variables, variable_of = _variables(ops)
    param_bytes = _bytes("param_bytes", (op.param_bytes for op in ops))
    usual = usually_moved(len(ops), tensor_bytes, first[src] + slot, dst, first)
    said = _bytes("moved_bytes", (0 if op.moved_bytes is None else op.moved_bytes for op in ops))
    moved_bytes = np.where([op.moved_bytes is None for op in ops], usual, said)
    try:
        return Graph(
            names=tuple(index), types=types, type_of=type_of,
            tensor_op=np.repeat(np.arange(len(ops)), produced), tensor_bytes=tensor_bytes,
            src=src, dst=dst, tensor=first[src] + slot, control_src=control_src, control_dst=control_dst,
            group=group, kinds=tuple(kinds), runs_on=runs_on, param_bytes=param_bytes,
            flops=np.array([op.flops for op in ops]), moved_bytes=moved_bytes,
            launches=np.array([op.launches for op in ops]), given_kinds=given_kinds, given_s=given_s, source=source,
            batch=batch, feed_shapes=tuple(feed_shapes), dtypes=dtypes, dtype_of=dtype_of, tensor_dtype=tensor_dtype,
            loose=np.array([op.loose for op in ops], dtype=np.int64), way=way,
            kernels=kernel_rows([(op.kernel, op.sizes) for op in ops]), devices=devices, device_of=device_of,
            variables=variables, variable_of=variable_of,
        )  # fmt: skip
    except InputError as error:
        if "a cycle of" not in str(error):
            raise
        raise InputError.build(
            f"{shown(error, 1500)}", remedy="remove one of these edges; a loop must be one op"
        ) from error


def usually_moved(ops: int, tensor_bytes: Ints, tensor: Ints, dst: Ints, first: Ints) -> Ints:
    """Return [n] bytes of an op's inputs and outputs together, which it moves unless the file says otherwise.

    `first` is [n + 1], the tensors of op i being first[i] up to first[i + 1]. Raise InputError beyond 2**62 in total.
    """
    read = tensor_bytes[tensor]
    if float(read.sum(dtype=np.float64)) + float(tensor_bytes.sum(dtype=np.float64)) > _MOST_BYTES:
        raise InputError.build("$.ops: the bytes of all inputs and outputs exceed 2**62", remedy="check the unit")
    moved = np.zeros(ops, dtype=np.int64)
    np.add.at(moved, dst, read)
    total = offsets(tensor_bytes)
    return moved + total[first[1:]] - total[first[:-1]]


def _bytes(key: str, values: Iterable[int]) -> Ints:
    column = np.array(list(values), dtype=np.int64)
    if float(column.sum(dtype=np.float64)) > _MOST_BYTES:
        raise InputError.build(f"$.ops: {key} of all ops exceed 2**62", remedy="check the unit")
    return column


def _read_edges(
    ops: list[OpRecord], index: dict[str, int], produced: Ints
) -> tuple[tuple[Ints, Ints, Ints], tuple[Ints, Ints]]:
    """([e] producer, its output, and consumer of each data edge; [c] the two ends of each control edge)."""
    refs = [_parse_reference(ref) if ":" in ref else (ref, 0) for ref in chain.from_iterable(op.inputs for op in ops)]
    tail = np.array([index.get(name, -1) for name, _ in refs], dtype=np.int64)
    output = np.array([k for _, k in refs], dtype=np.int64)
    counts = np.array([len(op.inputs) for op in ops], dtype=np.int64)
    bad = np.flatnonzero((tail < 0) | (output >= produced[tail]))
    if len(bad):
        op, k = _place(int(bad[0]), counts)
        ref, (name, slot) = ops[op].inputs[k], _parse_reference(ops[op].inputs[k])
        if name in index:
            outputs = int(produced[index[name]])
            fault = f"'{shown(name)}' lists {outputs} outputs, none with index {slot}"
            remedy = "list the bytes of each output under its 'outputs', or the op under 'control'"
        elif ref in index:
            fault = f"'{shown(ref)}' ends like an output index"
            remedy = f"write '{shown(ref)}:0' for that op's first output"
        else:
            fault, remedy = _no_op(name, index)
        raise InputError.build(f"$.ops[{op}].inputs[{k}]: {fault}", remedy=remedy)
    before = [index.get(name, -1) for name in chain.from_iterable(op.control for op in ops)]
    waits = np.array([len(op.control) for op in ops], dtype=np.int64)
    src = np.array(before, dtype=np.int64)
    if len(bad := np.flatnonzero(src < 0)):
        op, k = _place(int(bad[0]), waits)
        fault, remedy = _no_op(ops[op].control[k], index)
        raise InputError.build(f"$.ops[{op}].control[{k}]: {fault}", remedy=remedy)
    own = np.arange(len(ops))
    return (tail, output, np.repeat(own, counts)), (src, np.repeat(own, waits))


def _parse_reference(ref: str) -> tuple[str, int]:
    name, _, digits = ref.rpartition(":")
    return (name, int(digits[:10])) if digits.isascii() and digits.isdigit() else (ref, 0)


def _place(edge: int, counts: Ints) -> tuple[int, int]:
    """Op and position in its list of the edge with that index."""
    ends = np.cumsum(counts)
    op = int(np.searchsorted(ends, edge, side="right"))
    return op, edge - int(ends[op] - counts[op])


def _no_op(name: str, index: dict[str, int]) -> tuple[str, str]:
    """Return what is wrong with a reference to an op that is not there, and the remedy."""
    bare = name.removeprefix("^").rpartition(":")[0] or name.removeprefix("^")
    if name.startswith("^") and name[1:] in index:
        remedy = f"list '{shown(name[1:])}' under 'control'"
    elif bare in index:
        remedy = f"write '{shown(bare)}'"
    else:
        close = difflib.get_close_matches(name, index, n=1) if len(index) <= _FEW_NAMES and len(name) < 200 else []
        remedy = f"did you mean '{shown(close[0])}'?" if close else "add the op or drop the reference"
    return f"no op is named '{shown(name)}'", remedy


def _encode_labels(labels: Sequence[str | None], key: str) -> tuple[tuple[str, ...], Ints]:
    """The distinct labels in order of appearance, and [n] the index of each op's, -1 for None."""
    code: dict[str | None, int] = {}
    for label in labels:
        if label is not None:
            code.setdefault(label, len(code))
    distinct = [label for label in code if label is not None]
    check_labels(distinct, lambda k: f"$.ops[{labels.index(distinct[k])}].{key}", empty=True)
    return tuple(distinct), np.array([-1 if label is None else code[label] for label in labels], dtype=np.int64)


def _dtypes(ops: list[OpRecord]) -> tuple[tuple[str, ...], Ints, Ints]:
    """The distinct data types, [n] the index of what each op computes in, [t] that of each output; -1 for none."""
    if not any(op.dtypes or op.dtype for op in ops):
        return (), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for i, op in enumerate(ops):
        if op.dtypes and len(op.dtypes) != len(op.outputs):
            raise InputError.build(
                f"$.ops[{i}].dtypes: {len(op.dtypes)} types of {len(op.outputs)} outputs", remedy="give each its"
            )
    listed = [op.dtypes or [""] * len(op.outputs) for op in ops]
    own = [[*op.dtypes, ""][0] if op.dtype is None else op.dtype for op in ops]
    check_labels(own, lambda k: f"$.ops[{k}].dtype", empty=True)
    for i, labels in enumerate(listed):
        check_labels(labels, lambda k, i=i: f"$.ops[{i}].dtypes[{k}]", empty=True)  # type: ignore[misc]
    dtypes, code = _encode_labels([label or None for label in chain(own, *listed)], "dtype")
    return dtypes, code[: len(ops)], code[len(ops) :]


def _variables(ops: list[OpRecord]) -> tuple[tuple[Variable, ...], Ints]:
    """The distinct variables in order of appearance, and [n] the index of each op's, -1 for none."""
    labels = [None if op.variable is None else op.variable.name for op in ops]
    names, variable_of = _encode_labels(labels, "variable.name")
    found: dict[str, Variable] = {}
    for i, op in enumerate(ops):
        if (said := op.variable) is not None:
            one = Variable(said.name, said.dtype, None if said.shape is None else tuple(said.shape))
            if (first := found.setdefault(said.name, one)) != one:
                raise InputError.build(
                    f"$.ops[{i}].variable: '{shown(said.name)}' is {one.told} here and {first.told} above",
                    remedy="rename one",
                )
    check_labels([one.dtype for one in found.values()], lambda k: f"dtype of variable {k}", empty=True)
    return tuple(found[name] for name in names), variable_of


def _device_columns(ops: list[OpRecord], kinds: list[str]) -> tuple[Bools, tuple[str, ...], Floats]:
    """([n, k] kinds that each op runs on, the keys of all time_s in order of appearance, [n, g] seconds or NaN)."""
    lists: dict[tuple[str, ...], int] = {}
    code = [lists.setdefault(tuple(kinds if op.runs_on is None else op.runs_on), len(lists)) for op in ops]
    column = {kind: k for k, kind in enumerate(kinds)}
    table = np.zeros((len(lists), len(kinds)), dtype=np.bool_)
    for row, listed in enumerate(lists):
        unknown = [kind for kind in listed if kind not in column]
        if unknown or not listed:
            problem = f"no kind of device is named '{shown(unknown[0])}'" if unknown else "the op can run nowhere"
            raise InputError.build(
                f"$.ops[{code.index(row)}].runs_on: {problem}",
                remedy=f"use {shown(', '.join(kinds))} or add to $.kinds",
            )
        table[row, [column[kind] for kind in listed]] = True
    rows = [(i, op.time_s) for i, op in enumerate(ops) if op.time_s]
    column = {kind: k for k, kind in enumerate(dict.fromkeys(chain.from_iterable(times for _, times in rows)))}
    check_labels(list(column), lambda k: f"key {k} of $.ops[...].time_s")
    seconds = np.full((len(ops), len(column)), np.nan)
    for i, times in rows:
        for kind, value in times.items():
            seconds[i, column[kind]] = value
    return table[code], tuple(column), seconds


FORMAT = "pesto-graph"
VERSION = 1
MAX_OPS = 5_000_000
MAX_EDGES = 20_000_000
"""Data and control edges together; also outputs of all ops, and entries of all runs_on."""

_KIND = DocumentKind(
    format=FORMAT,
    version=VERSION,
    help='write "format": "pesto-graph", or import a file of another format with pesto import',
)


class _GraphFile(msgspec.Struct, kw_only=True):
    format: str
    format_version: int
    source: str = ""
    graph_origin: GraphOrigin = GraphOrigin()
    batch: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    feed_shapes: list[str] = []
    way: Literal["", "session", "function"] = ""
    kinds: list[str] = msgspec.field(default_factory=lambda: ["cpu", "gpu"])
    ops: list[OpRecord]


def load(path: str | os.PathLike[str]) -> Graph:
    """Read a graph file, gzip or not. Raise FileError when it cannot be read, InputError when its content is wrong."""
    return _loads(read_bytes(path), str(path), Path(path).name)


def loads(data: bytes, source: str) -> Graph:
    """Return the graph of a graph file's bytes (not gzip).

    `source` names it in errors, and in the graph unless the file names a source itself. Raise InputError, with the
    place and a remedy, when it is refused. Unknown keys are ignored and logged as warnings.
    """
    return _loads(data, source, source)


def _loads(data: bytes, what: str, source: str) -> Graph:
    file = decode_document(data, _GraphFile, what, _KIND, _check_size)
    try:
        origin = file.graph_origin
        check_labels([file.source], lambda _: "$.source", empty=True)
        check_labels([origin.kind, origin.name, origin.variant], lambda _: "$.graph_origin", empty=True)
        check_labels(file.feed_shapes, lambda k: f"$.feed_shapes[{k}]")
        if not file.ops:
            raise InputError.build("$.ops: there are no ops", remedy="list at least one")
        for k, kind in enumerate(file.kinds):
            if kind in file.kinds[:k]:
                raise InputError.build(f"$.kinds[{k}]: '{shown(kind)}' is repeated", remedy="keep one")
        if not file.kinds:
            raise InputError.build("$.kinds: there are none", remedy='list at least one, such as "gpu"')
        with without_collection():
            source = read_source(file.source or shown(source), origin)
            return to_graph(file.ops, file.kinds, source, batch=file.batch, feed_shapes=file.feed_shapes, way=file.way)
    except InputError as error:
        raise refuse_document(what, error) from error


def _check_size(found: Outline) -> None:
    """Refuse what is too large before the decoder makes objects of it."""
    counts: dict[tuple[str, int], tuple[str, ...]] = {
        ("ops", MAX_OPS): ("ops",),
        ("edges", MAX_EDGES): ("inputs", "control"),
        ("outputs", MAX_EDGES): ("outputs",),
        ("entries of dtypes", MAX_EDGES): ("dtypes",),
        ("entries of runs_on", MAX_EDGES): ("runs_on",),
        ("kinds", MAX_KINDS): ("kinds",),
    }
    for (counted, most), keys in counts.items():
        there = sum(found.items.get(key, 0) for key in keys)
        if there > most:
            raise ValueError(f"{there} {counted}, at most {most} are read - coarsen the graph first")
    if len(found.keys(("ops", None, "time_s"))) > MAX_KINDS:
        raise ValueError(f"more than {MAX_KINDS} kinds in time_s - leave out what is not needed")


def save(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph file whole or not at all, as gzip when its name ends in .gz. Raise FileError, or as `dumps`."""
    log_writing(path, graph.ops)
    data = dumps(graph)
    write_atomic(path, gzipped(data) if Path(path).suffix == ".gz" else data)


def dumps(graph: Graph) -> bytes:
    """Return the graph as a graph file: equal graphs give equal bytes, and loading them keeps the fingerprint.

    Group labels become numbers. Raise InputError when a name or label holds what a file must not: control characters,
    nothing at all, or more than 4096 bytes.
    """
    check_labels(graph.names, lambda k: f"the name of op {k}")
    check_labels(
        [*graph.types, graph.source, graph.origin.name, graph.origin.variant],
        lambda k: f"type or source {k}",
        empty=True,
    )
    check_labels([variable.name for variable in graph.variables], lambda k: f"the name of variable {k}", empty=True)
    check_labels([*graph.kinds, *graph.given_kinds, *graph.dtypes, *graph.devices], lambda k: f"label {k}")
    check_labels(graph.feed_shapes, lambda k: f"the shape of feed {k}")
    said = {"batch": graph.batch, "feed_shapes": graph.feed_shapes or None, "way": graph.way or None}
    known = {key: value for key, value in said.items() if value is not None}
    names = {"format": FORMAT, "format_version": VERSION, "source": graph.source, "graph_origin": graph.origin}
    head = {**names, **known, "kinds": graph.kinds}
    encoder = msgspec.json.Encoder()
    with without_collection():
        rows = b",\n".join(map(encoder.encode, _rows(graph)))
    return encoder.encode(head)[:-1] + b',"ops":[\n' + rows + b"\n]}\n"


def _rows(graph: Graph) -> Iterator[OpRecord]:
    names, n = graph.names, graph.ops
    first = np.searchsorted(graph.tensor_op, np.arange(n + 1))
    slots = (graph.tensor - first[graph.src]).tolist()
    usual = usually_moved(n, graph.tensor_bytes, graph.tensor, graph.dst, first)
    moved = np.where(graph.moved_bytes == usual, -1, graph.moved_bytes).tolist()
    labels = [None if g < 0 else str(g) for g in graph.group.tolist()]
    pins = [None if d < 0 else graph.devices[d] for d in graph.device_of.tolist()]
    said = [
        OpVariable(name=v.name, dtype=v.dtype, shape=None if v.shape is None else list(v.shape))
        for v in graph.variables
    ]
    stands_for = [None if v < 0 else said[v] for v in graph.variable_of.tolist()]
    name_of = [*graph.dtypes, ""]
    dtypes = [name_of[k] for k in graph.tensor_dtype.tolist()]
    # A reference leaves out the index of the first output where that is not ambiguous.
    tails = [name.rpartition(":")[2] if ":" in name else "" for name in names]
    data = [
        f"{names[op]}:{k}" if k or (tails[op].isascii() and tails[op].isdigit()) else names[op]
        for op, k in zip(graph.src.tolist(), slots, strict=True)
    ]
    where = (
        None if all(row) else [kind for kind, there in zip(graph.kinds, row, strict=True) if there]
        for row in graph.runs_on.tolist()
    )  # fmt: skip
    given = (
        {kind: s for kind, s in zip(graph.given_kinds, row, strict=True) if s == s} or None  # noqa: PLR0124
        for row in graph.given_s.tolist()
    )
    control = [names[op] for op in graph.control_src.tolist()]
    columns = zip(
        names, graph.type_of.tolist(), where, _by_head(n, graph.dst, data),
        _by_head(n, graph.control_dst, control), _cut(graph.tensor_bytes.tolist(), first), labels,
        graph.param_bytes.tolist(), graph.flops.tolist(), moved, graph.launches.tolist(), given,
        _cut(dtypes, first), [name_of[k] for k in graph.dtype_of.tolist()], graph.loose.tolist(),
        graph.kernels.tolist(), pins, stands_for, strict=True,
    )  # fmt: skip
    for (
        name, kind, runs_on, inputs, waits, outputs, group, params, flops, move, launches, times, made, own, loose, row,
        pin, variable,
    ) in columns:  # fmt: skip
        yield OpRecord(
            name=name, type=graph.types[kind], runs_on=runs_on, inputs=inputs, control=waits, outputs=outputs,
            group=group, device=pin, param_bytes=params, flops=flops, moved_bytes=None if move < 0 else move,
            launches=launches, time_s=times, dtypes=made if any(made) else [],
            dtype=None if own == (made[0] if made else "") else own, loose=loose,
            kernel=KERNEL_FORMS[row[0]], sizes=row[1 : 1 + KERNEL_SIZES[row[0]]], variable=variable,
        )  # fmt: skip


def _by_head(ops: int, head: Ints, labels: list[str]) -> Iterator[list[str]]:
    """The labels of the edges that enter each op, in the order of the edges."""
    order = np.argsort(head, kind="stable")
    bounds = np.searchsorted(head[order], np.arange(ops + 1))
    return _cut([labels[e] for e in order.tolist()], bounds)


def _cut(values: list[Any], bounds: Ints) -> Iterator[list[Any]]:
    return (values[a:b] for a, b in pairwise(bounds.tolist()))
