"""Patterns as JSON (docs/reference/pattern-file.md), each with its chain, so that a file is verified alone."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import numpy as np

from solvers.arrays import Ints, ints
from solvers.files.json_text import DocumentKind, Outline, check_label, decode_document
from solvers.pipelining import chain_json
from solvers.pipelining.chain import KINDS, SEND_BACKWARD, SEND_FORWARD, Allocation, Machines, MemoryModel, Pattern
from solvers.pipelining.chain_json import ChainDocument, ChainInstance, document_of, instance_of, lines_of
from solvers.problem import MOST

LARGEST = 1 << 27
"""Bytes of text that are read at most."""
MOST_ROWS = 1 << 20
MOST_DEVICES = 1 << 16

_Amount = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
_Kind = Literal["forward", "backward", "send forward", "send backward", "input gradient", "weight gradient"]
KIND = DocumentKind(format="pesto-pattern", version=1, help="give a file of that format")
"""Format name and version of pattern files."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PatternInstance:
    """A pattern with all that it is checked against. ValueError for a name that does not fit on a line, and for shapes
    that differ; whether the pattern is valid says `solvers.pipelining.pattern_check.check`.
    """

    of: ChainInstance
    """The chain that it schedules."""
    allocation: Allocation
    pattern: Pattern
    memory: int | None
    """Bytes of each device that has no limit of its own in the chain's file; None: without a limit."""
    model: MemoryModel
    """Memory model: the bytes that count as held there."""
    peaks: Ints
    """[P] most bytes on each device, as whoever made the pattern claims."""
    schedule: str = ""
    """Display name of the schedule, one line."""

    def __post_init__(self) -> None:
        """Copy, freeze and validate."""
        check_label(self.schedule, "$.schedule")
        object.__setattr__(self, "peaks", ints(self.peaks))
        for name, result, expected in (
            ("device", len(self.allocation.device), self.of.chain.layers),
            ("peak_bytes", len(self.peaks), self.allocation.devices),
        ):
            if result != expected:
                raise ValueError(f"$.{name}: {result} entries, expected {expected} - correct it there")
        named = self.of.machines
        if named is not None and named.devices != self.allocation.devices:
            raise ValueError(
                f"$.devices: {self.allocation.devices}, the chain names {named.devices} - correct one of them"
            )

    @property
    def machines(self) -> Machines:
        """The devices, equal or not, with their memory."""
        if self.of.machines is None:
            return Machines.alike(self.allocation.devices, self.memory)
        return self.of.machines.within(self.memory)


class _PatternRow(msgspec.Struct, kw_only=True):
    kind: _Kind
    layer: Annotated[int, msgspec.Meta(ge=0, lt=chain_json.MOST_LAYERS)]
    copy: _Amount
    t: _Amount
    shift: Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]


class _PatternDocument(msgspec.Struct, kw_only=True, omit_defaults=True):
    format: str
    format_version: int
    schedule: str = ""
    devices: Annotated[int, msgspec.Meta(ge=1, le=MOST_DEVICES)]
    memory_bytes: _Amount | None = None
    memory_model: MemoryModel = MemoryModel.RECEIVED
    k: Annotated[int, msgspec.Meta(ge=1, le=MOST_ROWS)]
    T: Annotated[int, msgspec.Meta(ge=1, le=MOST)]
    device: list[_Amount]
    peak_bytes: list[_Amount]
    rows: list[_PatternRow]
    chain: ChainDocument


def dumps_pattern(instance: PatternInstance) -> bytes:
    """Return the file of a pattern: equal ones give equal bytes, a row a line.

    ValueError for one of more rows than MOST_ROWS, on more devices than MOST_DEVICES, or with a row that is not on the
    device or link that its layer has.
    """
    p, where = instance.pattern, instance.allocation
    _check_rows(len(p.kind))
    if where.devices > MOST_DEVICES:
        raise ValueError(f"$.devices: {where.devices}, at most {MOST_DEVICES} - leave out idle ones")
    if (_resources(where, p.kind, p.layer) != p.resource).any():
        raise ValueError("$.rows: one is not on the device or link of its layer - check the pattern first")
    columns = (p.kind, p.layer, p.copy, p.t, p.shift)
    rows = [
        _PatternRow(kind=KINDS[kind], layer=layer, copy=copy, t=t, shift=shift)  # type: ignore[arg-type]
        for kind, layer, copy, t, shift in zip(*(column.tolist() for column in columns), strict=True)
    ]
    document = _PatternDocument(
        format=KIND.format, format_version=KIND.version, schedule=instance.schedule, devices=where.devices,
        memory_bytes=instance.memory, memory_model=instance.model, k=p.k, T=p.T, device=where.device.tolist(),
        peak_bytes=instance.peaks.tolist(), rows=rows, chain=document_of(instance.of),
    )  # fmt: skip
    return lines_of(msgspec.to_builtins(document))


def loads_pattern(data: bytes) -> PatternInstance:
    """Return the pattern of a file; ValueError, one line with the place and a remedy, when it is refused.

    Refused is what is no pattern of a chain at all: other formats and versions, missing keys, numbers out of range,
    layers and devices that there are not, and a chain that `loads_chain` would refuse. Whether batches are scheduled as
    they must be says `solvers.pipelining.pattern_check.check`.
    """
    if len(data) > LARGEST:
        raise ValueError(f"{len(data)} bytes are more than {LARGEST} - keep a pattern of fewer batches")

    def check_outline(outline: Outline) -> None:
        _check_rows(max(1, outline.items.get("rows", 1)))
        layers, most = outline.items.get("layers", 1), chain_json.MOST_LAYERS
        if layers > most:
            raise ValueError(f"$.chain.layers: {layers} layers, at most {most} - fold layers together")

    result = decode_document(data, _PatternDocument, KIND, check_outline)
    _check_rows(len(result.rows))
    known = chain_json.KIND
    if (result.chain.format, result.chain.format_version) != (known.format, known.version):
        raise ValueError(f"$.chain: no {known.format} of version {known.version} - correct it there")
    of = instance_of(result.chain, "$.chain")
    check_label(result.schedule, "$.schedule")
    if len(result.device) != of.chain.layers:
        raise ValueError(f"$.device: {len(result.device)} entries, expected {of.chain.layers} - correct it there")
    try:
        allocation = Allocation(device=_column(result.device), devices=result.devices)
        # Its rows, on the devices and links that their layers have; ValueError for layers that there are not.
        kind = _column([KINDS.index(row.kind) for row in result.rows])
        layer = _column([row.layer for row in result.rows])
        beyond = np.flatnonzero(layer + _is_send(kind) >= len(allocation.device))
        if len(beyond):
            row = result.rows[beyond[0]]
            raise ValueError(f"rows[{beyond[0]}]: there is no {row.kind} of layer {row.layer}")
        pattern = Pattern(
            k=result.k, T=result.T, kind=kind, layer=layer, copy=_column([row.copy for row in result.rows]),
            resource=_resources(allocation, kind, layer), t=_column([row.t for row in result.rows]),
            shift=_column([row.shift for row in result.rows]),
        )  # fmt: skip
    except ValueError as error:
        raise ValueError(f"$: {error} - correct it there") from error
    return PatternInstance(
        of=of, allocation=allocation, pattern=pattern, memory=result.memory_bytes, model=result.memory_model,
        peaks=_column(result.peak_bytes), schedule=result.schedule,
    )  # fmt: skip


def _is_send(kind: Ints) -> Ints:
    return ints((kind == SEND_FORWARD) | (kind == SEND_BACKWARD))


def _resources(allocation: Allocation, kind: Ints, layer: Ints) -> Ints:
    """Return [r] the device of each row's layer; of a send, the link of its cut."""
    result, sends = allocation.device[layer], np.flatnonzero(_is_send(kind))
    result[sends] = allocation.link(layer[sends])
    return ints(result)


def _column(values: list[int]) -> Ints:
    return ints(np.array(values, dtype=np.int64))


def _check_rows(rows: int) -> None:
    if not 1 <= rows <= MOST_ROWS:
        remedy = "give one" if not rows else "keep a pattern of fewer batches"
        raise ValueError(f"$.rows: {rows} rows, expected 1 to {MOST_ROWS} - {remedy}")
