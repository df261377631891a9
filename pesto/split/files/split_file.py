"""Splits on disk (docs/guides/split.md): how each op is divided and where tensors lie, of a step that is only named."""

import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
import numpy as np

from pesto.core.distribution import VERSION
from pesto.core.errors import InputError, MismatchError, VerificationError
from pesto.core.files.disk import gzipped, read_bytes, write_atomic
from pesto.core.files.json import (
    Amount,
    Count,
    DocumentKind,
    Outline,
    check_labels,
    decode_document,
    encode_json,
    quoted,
    refuse_document,
    short_fingerprints,
    shown,
)
from pesto.core.source import GraphOrigin, read_source
from pesto.split.division import Division, reduction_warnings
from pesto.split.geometry import ONE, Layouts, Shape
from pesto.split.op_strategy import (
    ONCE_WAY,
    SUMMANDS_WAY,
    WHOLE_WAY,
    OpStrategy,
    admissible_strategies,
    replicated_strategy,
    single_worker_strategy,
    summands_strategy,
    uncut_strategy,
)
from pesto.split.program import Rules
from pesto.split.split_search import MOST_WORKERS, Split
from pesto.split.typed_graph import TypedGraph
from solvers.arrays import Ints, ints, offsets

KIND = DocumentKind(format="pesto-split", version=1, help="give a file that pesto split wrote")
MOST_ENTRIES = 20_000_000
"""Elements of all arrays of one key."""

T = TypeVar("T", bound=Hashable)
_Status = Literal["optimal", "feasible"]
_Way = Annotated[list[str], msgspec.Meta(min_length=1, max_length=10)]
_Layouts = Annotated[list[Annotated[int, msgspec.Meta(ge=ONE, le=253)]], msgspec.Meta(max_length=10)]


class CutRecord(msgspec.Struct, kw_only=True, frozen=True):
    """One cut, after those before it; bytes of all cuts so far."""

    status: _Status
    bytes: Count
    bound_bytes: Count


class SplitProvenance(msgspec.Struct, kw_only=True, frozen=True):
    """Time limit and version with which a split was made."""

    time_limit_s: Amount
    pesto_version: str


class _SplitOps(msgspec.Struct, kw_only=True):
    way: list[Count]
    kept: list[Count]


class _Rules(msgspec.Struct, kw_only=True):
    """`Rules` in the file: a halo only if there is one; of prices only that there are some, as they are a cluster's."""

    replicate: bool = False
    redundant: bool = False
    partial: bool = False
    memory_bytes: Count | None = None
    halo: bool | msgspec.UnsetType = msgspec.UNSET
    objective: Literal["seconds"] | msgspec.UnsetType = msgspec.UNSET


class _SplitObject(msgspec.Struct, kw_only=True):
    format: str
    format_version: int
    source: str
    graph_origin: GraphOrigin = GraphOrigin()
    fingerprint: str
    batch: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    feed_shapes: list[str] | msgspec.UnsetType = msgspec.UNSET
    method: str
    rules: _Rules
    factors: Annotated[
        list[Annotated[int, msgspec.Meta(ge=2, le=MOST_WORKERS)]], msgspec.Meta(min_length=1, max_length=10)
    ]
    status: _Status
    bytes: Count
    bound_bytes: Count
    params_per_worker_bytes: Count
    cuts: Annotated[list[CutRecord], msgspec.Meta(min_length=1, max_length=10)]
    notes: list[str] = []
    ways: list[_Way]
    layouts: list[_Layouts]
    ops: _SplitOps
    variables: list[Count]
    places: list[Annotated[int, msgspec.Meta(ge=0, lt=MOST_WORKERS)]] | msgspec.UnsetType = msgspec.UNSET
    made: SplitProvenance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitFile:
    """The content of a file of a split, of a step of n ops and v variables; nothing of it is verified."""

    what: str
    """The file, for people."""
    source: str
    """Line that names the origin of the step for people."""
    origin: GraphOrigin
    """The same as fields."""
    fingerprint: str
    batch: int | None
    """Batch size given for a step that leaves it open."""
    feed_shapes: tuple[str, ...]
    """Shapes given for feeds that the step leaves open, each as NAME=16,40."""
    method: str
    rules: Rules
    """Without prices."""
    for_seconds: bool
    """True if it was made to take least, by prices that the file does not tell."""
    factors: Shape
    status: str
    bytes: int
    bound_bytes: int
    params_per_worker_bytes: int
    cuts: tuple[CutRecord, ...]
    notes: tuple[str, ...]
    ways: tuple[tuple[str, ...], ...]
    """The distinct ways: a name for each cut."""
    layouts: tuple[Layouts, ...]
    """The distinct layouts."""
    way_of: Ints
    """[n] index into `ways`."""
    kept: Ints
    """Index into `layouts` of each output, op after op."""
    variables: Ints
    """[v] index into `layouts`."""
    places: tuple[int, ...]
    """[p] the device of each part of a partial split; else none."""
    made: SplitProvenance

    @property
    def devices(self) -> int:
        """The number of devices that it is for."""
        return max(prod(self.factors), 1 + max(self.places, default=0))

    def __repr__(self) -> str:
        """One line, without arrays."""
        factors = "x".join(map(str, self.factors))
        return f"SplitFile({self.what!r}, {self.source!r} in {factors} by {self.method}, {self.bytes} bytes)"


def save_split(shaped: TypedGraph, split: Split, path: str | os.PathLike[str], *, time_limit_s: float) -> None:
    """Write a split whole or not at all, as gzip if its name ends in .gz; raise FileError if that fails."""
    data = dumps_split(shaped, split, time_limit_s=time_limit_s)
    write_atomic(path, gzipped(data) if Path(path).suffix == ".gz" else data)


def load_split(path: str | os.PathLike[str]) -> SplitFile:
    """Read a split, gzip or not; raise FileError if it cannot be read, InputError if its content is refused."""
    return loads_split(read_bytes(path), str(path))


def dumps_split(shaped: TypedGraph, split: Split, *, time_limit_s: float) -> bytes:
    """Return canonical JSON, with nothing of the wall clock: equal splits give equal bytes."""
    division = split.division
    named, way_of = _coded(strategy.names for strategy in division.strategies)
    layouts, laid = _coded([*(at for row in division.kept for at in row), *division.variables])
    outputs = len(laid) - len(division.variables)
    cuts = [CutRecord(status=_status(cut.status), bytes=cut.value or 0, bound_bytes=cut.bound) for cut in split.cuts]
    content = SplitFile(
        what="", source=shaped.source, origin=shaped.origin, fingerprint=shaped.fingerprint, batch=shaped.batch,
        feed_shapes=shaped.feed_shapes, method=split.method, rules=split.rules,
        for_seconds=split.rules.prices is not None, factors=division.factors, status=split.status,
        bytes=split.moved_bytes, bound_bytes=split.bound_bytes, params_per_worker_bytes=split.parameter_bytes,
        cuts=tuple(cuts), notes=tuple(reduction_warnings(shaped, division)), ways=tuple(named), layouts=tuple(layouts),
        way_of=ints(way_of), kept=ints(laid[:outputs]), variables=ints(laid[outputs:]), places=division.places,
        made=SplitProvenance(time_limit_s=time_limit_s, pesto_version=VERSION),
    )  # fmt: skip
    return dumps_split_file(content)


def dumps_split_file(split: SplitFile) -> bytes:
    """Return the canonical JSON of a split's file; its name is left out."""
    rules = split.rules
    return encode_json(
        _SplitObject(
            format=KIND.format, format_version=KIND.version, source=split.source, graph_origin=split.origin,
            fingerprint=split.fingerprint, batch=split.batch or msgspec.UNSET,
            feed_shapes=list(split.feed_shapes) or msgspec.UNSET, method=split.method,
            rules=_Rules(
                replicate=rules.replicate, redundant=rules.redundant, partial=rules.partial,
                memory_bytes=rules.memory_bytes, halo=rules.halo or msgspec.UNSET,
                objective="seconds" if split.for_seconds else msgspec.UNSET,
            ),
            factors=list(split.factors), status=_status(split.status), bytes=split.bytes,
            bound_bytes=split.bound_bytes, params_per_worker_bytes=split.params_per_worker_bytes,
            cuts=list(split.cuts), notes=list(split.notes), ways=[list(names) for names in split.ways],
            layouts=[list(at) for at in split.layouts],
            ops=_SplitOps(way=split.way_of.tolist(), kept=split.kept.tolist()), variables=split.variables.tolist(),
            places=list(split.places) or msgspec.UNSET, made=split.made,
        )
    )  # fmt: skip


def _status(status: str) -> _Status:
    return "optimal" if status == "optimal" else "feasible"


def _coded(values: Iterable[T]) -> tuple[list[T], list[int]]:
    """Return the distinct values in order of appearance, and the index of each."""
    code: dict[T, int] = {}
    index = [code.setdefault(value, len(code)) for value in values]
    return list(code), index


def loads_split(data: bytes, what: str) -> SplitFile:
    """Read JSON bytes; raise InputError naming `what`, the place and a remedy if they are refused."""
    file = decode_document(data, _SplitObject, what, KIND, _limit)
    try:
        heads = ("$.source", "$.fingerprint", "$.made.pesto_version")
        check_labels([file.source, file.fingerprint, file.made.pesto_version], lambda k: heads[k], empty=True)
        origin = read_source(file.source, file.graph_origin).origin
        check_labels([origin.kind, origin.name, origin.variant], lambda _: "$.graph_origin", empty=True)
        check_labels([file.method, *(name for names in file.ways for name in names)], lambda _: "method or ways")
        check_labels(file.feed_shapes or (), lambda k: f"$.feed_shapes[{k}]")
        check_labels(file.notes, lambda k: f"$.notes[{k}]", empty=True)
        _check_tables(file)
    except InputError as error:
        raise refuse_document(what, error) from error
    written = file.rules
    rules = Rules(
        replicate=written.replicate, redundant=written.redundant, partial=written.partial,
        memory_bytes=written.memory_bytes, halo=written.halo is True,
    )  # fmt: skip
    return SplitFile(
        what=shown(what), source=file.source, origin=origin, fingerprint=file.fingerprint,
        batch=file.batch or None, feed_shapes=tuple(file.feed_shapes or ()),
        method=file.method, rules=rules, for_seconds=file.rules.objective == "seconds",
        factors=tuple(file.factors), status=file.status, bytes=file.bytes, bound_bytes=file.bound_bytes,
        params_per_worker_bytes=file.params_per_worker_bytes, cuts=tuple(file.cuts), notes=tuple(file.notes),
        ways=tuple(map(tuple, file.ways)), layouts=tuple(map(tuple, file.layouts)), way_of=ints(file.ops.way),
        kept=ints(file.ops.kept), variables=ints(file.variables), places=tuple(file.places or ()), made=file.made,
    )  # fmt: skip


def _limit(outline: Outline) -> None:
    """Refuse what is too large before the decoder makes objects of it."""
    for key, many in outline.items.items():
        if many > MOST_ENTRIES:
            raise ValueError(
                f"{many} entries of {shown(key, 40)}, at most {MOST_ENTRIES} are read - take a smaller step"
            )


def _check_tables(file: _SplitObject) -> None:
    damaged = "the file is damaged; split the step anew"
    if prod(file.factors) > MOST_WORKERS:
        raise InputError.build(f"$.factors: they come to more than {MOST_WORKERS} workers", remedy=damaged)
    tables: Sequence[tuple[str, Sequence[Sequence[object]]]] = (("ways", file.ways), ("layouts", file.layouts))
    for name, rows in tables:
        wrong = next((k for k, row in enumerate(rows) if len(row) != len(file.factors)), None)
        if wrong is not None:
            raise InputError.build(f"$.{name}[{wrong}]: not one for each of {len(file.factors)} cuts", remedy=damaged)
    for name, column, many in (
        ("ops.way", file.ops.way, len(file.ways)),
        ("ops.kept", file.ops.kept, len(file.layouts)),
        ("variables", file.variables, len(file.layouts)),
    ):
        wrong = next((k for k, index in enumerate(column) if index >= many), None)
        if wrong is not None:
            raise InputError.build(f"$.{name}[{wrong}]: {column[wrong]} is out of range", remedy=damaged)


def division_of(split_file: SplitFile, shaped: TypedGraph) -> Division:
    """Return the division that a file says of its step, not verified (`pesto.split.files.split_check`).

    Raise MismatchError if the file is of another step, VerificationError if an op has no strategy of a given name.
    """
    outputs = [len(signature.outputs) for signature in shaped.signatures]
    first = offsets(np.array([outputs[kind] for kind in shaped.signature_of.tolist()], dtype=np.int64))
    if split_file.fingerprint != shaped.fingerprint:
        of_split, here = short_fingerprints(split_file.fingerprint, shaped.fingerprint)
        other, remedy = "", "split this step, or give the split's own"
        if None not in (split_file.batch, shaped.batch) and split_file.batch != shaped.batch:
            other = f" with batch={shaped.batch}, not {split_file.batch}"
            remedy = f"give a batch of {split_file.batch} (batch={split_file.batch}), or split this step"
        raise MismatchError.build(
            f"the split is of graph {of_split} ({shown(split_file.source)}), this is {here} "
            f"({shown(shaped.source)}){other}",
            where=split_file.what,
            remedy=remedy,
        )
    lengths: Sequence[tuple[str, Ints, int]] = (
        ("ops", split_file.way_of, shaped.ops), ("outputs", split_file.kept, int(first[-1])),
        ("variables", split_file.variables, len(shaped.handle)),
    )  # fmt: skip
    for name, column, many in lengths:
        if len(column) != many:
            raise VerificationError.build(
                f"the split is invalid: it has {len(column)} {name}, its step {many}",
                where=split_file.what,
                remedy="split again",
            )
    known: dict[tuple[int, int, bool], OpStrategy] = {}
    strategies = []
    for op, (kind, names, once) in enumerate(
        zip(shaped.signature_of.tolist(), split_file.way_of.tolist(), shaped.once.tolist(), strict=True)
    ):
        if (kind, names, once) not in known:
            known[kind, names, once] = _strategy(split_file, shaped, op)
        strategies.append(known[kind, names, once])
    layouts = [split_file.layouts[k] for k in split_file.kept.tolist()]
    return Division(
        factors=split_file.factors,
        strategies=tuple(strategies),
        kept=tuple(tuple(layouts[first[op] : first[op + 1]]) for op in range(shaped.ops)),
        variables=tuple(split_file.layouts[k] for k in split_file.variables.tolist()),
        places=split_file.places,
    )


def _strategy(split_file: SplitFile, shaped: TypedGraph, op: int) -> OpStrategy:
    """Return the strategy of an op, made cut by cut."""
    signature, names, once = shaped.signature(op), split_file.ways[split_file.way_of[op]], bool(shaped.once[op])
    result = uncut_strategy(signature)
    for at, name in enumerate(names):
        factors = split_file.factors[: at + 1]
        if name in (WHOLE_WAY, ONCE_WAY) and not once:
            result = (replicated_strategy if name == WHOLE_WAY else single_worker_strategy)(signature, result)
            continue
        on_summands = summands_strategy(signature, result) if name == SUMMANDS_WAY and not once else None
        if on_summands is not None:
            result = on_summands
            continue
        admitted = admissible_strategies(signature, result, factors, whole=True, once=once, halo=split_file.rules.halo)
        options = {strategy.names[-1]: strategy for strategy in admitted}
        if name not in options:
            raise VerificationError.build(
                f"the split is invalid: op {shown(shaped.names[op])}: {signature.type} cannot be "
                f"cut in {factors[-1]} along {quoted(name, 40)}, only {', '.join(options)}",
                where=split_file.what,
                remedy="split again, or register the description that it was made with",
            )
        result = options[name]
    return result
