"""Files of typed graphs (docs/guides/split.md): enough to split a step without TensorFlow."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

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
    encode_json,
    refuse_document,
    shown,
)
from pesto.core.source import GraphOrigin, read_source
from pesto.split.typed_graph import RANK, Attribute, Number, Operand, Signature, TypedGraph
from solvers.arrays import ints, offsets

_HANDLE = "resource"
_DAMAGED = "the file is damaged; write it anew"


def check_fed(shaped: TypedGraph) -> None:
    """Raise InputError, naming the first offender, for edges that a file can have and no imported step has.

    That is an input without just one edge, an edge whose ends differ in shape or data type, a control edge that goes
    back, an op that makes handles or nothing at all with data to read, one that runs once and takes a variable itself.
    """
    many = np.array([len(s.inputs) for s in shaped.signatures], dtype=np.int64)[shaped.signature_of]
    first = offsets(many)
    fed = np.bincount(first[shaped.dst] + shaped.input, minlength=int(first[-1]))
    wrong = np.flatnonzero(fed != 1)
    if len(wrong):
        to = int(np.searchsorted(first, wrong[0], side="right")) - 1
        at = wrong[0] - first[to]
        raise InputError.build(f"$.edges: {fed[wrong[0]]} edges to input {at} of {_op(shaped, to)}", remedy=_DAMAGED)
    kind = shaped.signature_of
    rows = np.stack([kind[shaped.src], shaped.output, kind[shaped.dst], shaped.input])
    distinct, where = np.unique(rows, axis=1, return_index=True)
    for (tail, output, head, at), edge in zip(distinct.T.tolist(), where.tolist(), strict=True):
        operand = shaped.signatures[head].inputs[at]
        made = shaped.signatures[tail].outputs[output]
        bounded = shaped.signatures[tail].bounded_output(output)
        same = made == (operand.shape, operand.dtype) and bounded == operand.bounded
        if not operand.dtype.startswith(_HANDLE) and not same:
            one, other = _op(shaped, int(shaped.src[edge])), _op(shaped, int(shaped.dst[edge]))
            raise InputError.build(
                f"$.edges: output {output} of {one} is not what input {at} of {other} is", remedy=_DAMAGED
            )
    for k, signature in enumerate(shaped.signatures):
        handles = signature.type == "VarHandleOp" and all(dtype.startswith(_HANDLE) for _, dtype in signature.outputs)
        bare = not signature.inputs and (handles or not signature.outputs)
        if signature.type in ("NoOp", "VarHandleOp") and not bare:
            raise InputError.build(f"$.kinds[{k}]: {signature.type} with data", remedy=_DAMAGED)
    back = np.flatnonzero(shaped.control_src >= shaped.control_dst)
    if len(back):
        raise InputError(f"$.controls: edge {back[0]} goes back to {_op(shaped, int(shaped.control_dst[back[0]]))}")
    once = np.flatnonzero(shaped.once[shaped.use_op])
    if len(once):
        op = _op(shaped, int(shaped.use_op[once[0]]))
        raise InputError.build(
            "it runs once and reads a variable itself", where=op, remedy="read the variable before it"
        )


def _op(shaped: TypedGraph, op: int) -> str:
    return f"op '{shown(shaped.names[op])}'"


KIND = DocumentKind(
    format="pesto-shaped", version=1,
    help="a graph file has no shapes; import the step as a file of shapes, or name the step itself",
)  # fmt: skip
MOST = {"name": 5_000_000, "kinds": 1_000_000, "src": 20_000_000, "inputs": 20_000_000, "outputs": 20_000_000}
"""Key -> maximum number of elements of its arrays together."""
MOST_ELEMENTS = 2**36
"""Maximum number of elements of one tensor, and maximum extent of a dimension."""
_MOST_RANK = 254
_NO_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""Floats that JSON has no word for: {"float": "inf"}."""

_Dimensions = Annotated[list[Annotated[int, msgspec.Meta(ge=RANK)]], msgspec.Meta(max_length=_MOST_RANK)]
_Shape = Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=MOST_ELEMENTS)]], msgspec.Meta(max_length=_MOST_RANK)]


class _Operand(msgspec.Struct, kw_only=True, omit_defaults=True):
    shape: _Shape | None
    dtype: str
    value: Any = None
    bounded: _Dimensions = []


class _Output(msgspec.Struct, kw_only=True, omit_defaults=True):
    shape: _Shape | None
    dtype: str
    bounded: _Dimensions = []


class _Kind(msgspec.Struct, kw_only=True):
    type: str
    attributes: dict[str, Any] = {}
    inputs: list[_Operand] = []
    outputs: list[_Output] = []


class _OpColumns(msgspec.Struct, kw_only=True):
    name: list[str]
    kind: list[Count]
    once: list[Count] = []


class _EdgeColumns(msgspec.Struct, kw_only=True):
    src: list[Count] = []
    output: list[Count] = []
    dst: list[Count] = []
    input: list[Count] = []


class _Controls(msgspec.Struct, kw_only=True):
    src: list[Count] = []
    dst: list[Count] = []


class _VariableColumns(msgspec.Struct, kw_only=True):
    handle: list[Count] = []
    tie: list[Count] = []


class _UseColumns(msgspec.Struct, kw_only=True):
    op: list[Count] = []
    input: list[Count] = []
    variable: list[Count] = []


class _TypedGraphObject(msgspec.Struct, kw_only=True):
    format: str
    format_version: int
    source: str = ""
    graph_origin: GraphOrigin = GraphOrigin()
    fingerprint: str
    kinds: list[_Kind]
    ops: _OpColumns
    edges: _EdgeColumns = msgspec.field(default_factory=_EdgeColumns)
    controls: _Controls = msgspec.field(default_factory=_Controls)
    variables: _VariableColumns = msgspec.field(default_factory=_VariableColumns)
    uses: _UseColumns = msgspec.field(default_factory=_UseColumns)


def save_typed_graph(shaped: TypedGraph, path: str | os.PathLike[str]) -> None:
    """Write the file atomically, gzipped if its name ends in .gz; raise FileError, or InputError as of its JSON."""
    log_writing(path, shaped.ops)
    data = dumps_typed_graph(shaped)
    write_atomic(path, gzipped(data) if Path(path).suffix == ".gz" else data)


def load_typed_graph(path: str | os.PathLike[str]) -> TypedGraph:
    """Read such a file, gzip or not; raise FileError if it cannot be read, InputError if its content is refused."""
    return loads_typed_graph(read_bytes(path), str(path))


def dumps_typed_graph(shaped: TypedGraph) -> bytes:
    """Return canonical JSON; loading it gives an equal value. Raise InputError for a name that a file must not hold."""
    check_labels(shaped.names, lambda k: f"the name of op {k}")
    check_labels([shaped.source, shaped.fingerprint], lambda k: ("source", "fingerprint")[k], empty=True)
    columns = {name: getattr(shaped, name).tolist() for name in _COLUMNS}
    kinds = []
    for signature in shaped.signatures:
        inputs = [
            _Operand(
                shape=None if o.shape is None else list(o.shape), dtype=o.dtype,
                value=None if o.value is None else _plain(o.value), bounded=list(o.bounded),
            )
            for o in signature.inputs
        ]  # fmt: skip
        outputs = [
            _Output(
                shape=None if shape is None else list(shape), dtype=dtype, bounded=list(signature.bounded_output(k))
            )
            for k, (shape, dtype) in enumerate(signature.outputs)
        ]
        attributes = {name: _plain(value) for name, value in signature.attributes}
        kinds.append(_Kind(type=signature.type, attributes=attributes, inputs=inputs, outputs=outputs))
    file = _TypedGraphObject(
        format=KIND.format, format_version=KIND.version, source=shaped.source, graph_origin=shaped.origin,
        fingerprint=shaped.fingerprint,
        kinds=kinds,
        ops=_OpColumns(
            name=list(shaped.names), kind=shaped.signature_of.tolist(), once=np.flatnonzero(shaped.once).tolist()
        ),
        edges=_EdgeColumns(**{name: columns[name] for name in ("src", "output", "dst", "input")}),
        controls=_Controls(src=columns["control_src"], dst=columns["control_dst"]),
        variables=_VariableColumns(handle=columns["handle"], tie=columns["tie"]),
        uses=_UseColumns(op=columns["use_op"], input=columns["use_input"], variable=columns["use_variable"]),
    )  # fmt: skip
    try:
        return encode_json(file)
    except ValueError as error:
        raise InputError.build(
            f"{shown(shaped.source)} cannot be written: {shown(error)}", remedy="rename what it names"
        ) from error


_COLUMNS = (
    "src", "output", "dst", "input", "control_src", "control_dst", "handle", "tie", "use_op", "use_input",
    "use_variable",
)  # fmt: skip


def loads_typed_graph(data: bytes, what: str) -> TypedGraph:
    """Read JSON bytes; `what` is the step's source, too, if the file names none.

    Raise InputError naming `what`, the place and a remedy if the content is refused.
    """
    file = decode_document(data, _TypedGraphObject, what, KIND, _limit)
    try:
        origin = file.graph_origin
        check_labels([file.source], lambda _: "$.source", empty=True)
        check_labels([origin.kind, origin.name, origin.variant], lambda _: "$.graph_origin", empty=True)
        source = read_source(file.source or shown(Path(what).name), origin)
        check_labels([file.fingerprint], lambda _: "$.fingerprint", empty=True)
        check_labels(file.ops.name, lambda k: f"$.ops.name[{k}]")
        if not file.ops.name:
            raise InputError.build("$.ops.name: there are no ops", remedy="list at least one")
        seen: dict[str, int] = {}
        for k, name in enumerate(file.ops.name):
            if seen.setdefault(name, k) != k:
                raise InputError.build(f"$.ops.name[{k}]: '{shown(name)}' is also op {seen[name]}", remedy="rename one")
        ops = len(file.ops.name)
        once = np.zeros(ops, dtype=np.bool_)
        for k, op in enumerate(file.ops.once):
            if op >= ops:
                raise InputError(f"$.ops.once[{k}]: there is no op {op}")
            once[op] = True
        result = TypedGraph(
            names=tuple(file.ops.name),
            signatures=tuple(_signature(kind, f"$.kinds[{k}]") for k, kind in enumerate(file.kinds)),
            signature_of=ints(file.ops.kind), src=ints(file.edges.src), output=ints(file.edges.output),
            dst=ints(file.edges.dst), input=ints(file.edges.input),
            control_src=ints(file.controls.src), control_dst=ints(file.controls.dst),
            handle=ints(file.variables.handle), tie=ints(file.variables.tie),
            use_op=ints(file.uses.op), use_input=ints(file.uses.input), use_variable=ints(file.uses.variable),
            once=once, source=source, fingerprint=file.fingerprint,
        )  # fmt: skip
        check_fed(result)
    except InputError as error:
        error.remedy = error.remedy or "the file is damaged; write it anew"
        raise refuse_document(what, error) from error
    return result


def _limit(outline: Outline) -> None:
    """Refuse what is too large before the decoder makes objects of it."""
    for key, most in MOST.items():
        if outline.items.get(key, 0) > most:
            raise ValueError(f"{outline.items[key]} entries of {key}, at most {most} are read - take a smaller step")


def _plain(value: Attribute) -> object:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    return value


def _signature(kind: _Kind, where: str) -> Signature:
    check_labels([kind.type], lambda _: f"{where}.type")
    check_labels(list(kind.attributes), lambda k: f"{where}.attributes, key {k}")
    attributes = {
        name: _attribute(value, f"{where}.attributes.{shown(name)}") for name, value in kind.attributes.items()
    }
    inputs = tuple(_operand(given, f"{where}.inputs[{k}]") for k, given in enumerate(kind.inputs))
    outputs = tuple(
        (_extents(made.shape, f"{where}.outputs[{k}]"), _dtype(made.dtype, f"{where}.outputs[{k}]"))
        for k, made in enumerate(kind.outputs)
    )
    bounded = tuple(_bounded(made.bounded, made.shape, f"{where}.outputs[{k}]") for k, made in enumerate(kind.outputs))
    return Signature(kind.type, tuple(sorted(attributes.items())), inputs, outputs, bounded if any(bounded) else ())


def _bounded(dimensions: list[int], shape: list[int] | None, where: str) -> tuple[int, ...]:
    """Return the dimensions whose extents depend on the data; raise InputError unless they ascend."""
    rank = -1 if shape is None else len(shape)
    if dimensions != sorted(set(dimensions)) or (dimensions and not dimensions[-1] < rank) or (RANK in dimensions[1:]):
        raise InputError.build(
            f"{where}.bounded: {dimensions} are no dimensions of it in ascending order", remedy="correct it there"
        )
    return tuple(dimensions)


def _operand(operand: _Operand, where: str) -> Operand:
    shape, dtype = _extents(operand.shape, where), _dtype(operand.dtype, where)
    if operand.value is None:
        return Operand(shape, dtype, bounded=_bounded(operand.bounded, operand.shape, where))
    value = _attribute(operand.value, f"{where}.value")
    if not _is_number(value) or (shape is not None and not _lies(value, shape)):
        raise InputError.build(f"{where}.value: it is not of numbers nested as the shape is", remedy="correct it there")
    return Operand(shape, dtype, value)  # type: ignore[arg-type]


def _dtype(name: str, where: str) -> str:
    check_labels([name], lambda _: f"{where}.dtype")
    return name


def _extents(shape: list[int] | None, where: str) -> tuple[int, ...] | None:
    if shape is None:
        return None
    if math.prod(shape) > MOST_ELEMENTS:
        raise InputError.build(f"{where}.shape: more than 2**36 elements", remedy="check the shape")
    return tuple(shape)


def _attribute(value: Any, where: str) -> Attribute:
    if isinstance(value, list):
        return tuple(_attribute(entry, where) for entry in value)
    if isinstance(value, Mapping):
        word = value.get("float")
        if len(value) != 1 or not isinstance(word, str) or word not in _NO_NUMBERS:
            raise InputError.build(
                "an object", where=where, remedy='write {"float": "inf"}, "-inf" or "nan", or a plain value'
            )
        return _NO_NUMBERS[word]
    if isinstance(value, bool | float | str) or (isinstance(value, int) and -(2**63) <= value < 2**64):
        return value
    raise InputError.build(
        f"{shown(value, 40)} is no value", where=where, remedy="give a number, true, false, text, or a list of them"
    )


def _is_number(value: Attribute | Number) -> bool:
    return all(map(_is_number, value)) if isinstance(value, tuple) else not isinstance(value, str)


def _lies(value: Attribute, shape: tuple[int, ...]) -> bool:
    """Return True if a value is nested as a shape says."""
    if not shape:
        return not isinstance(value, tuple)
    return isinstance(value, tuple) and len(value) == shape[0] and all(_lies(each, shape[1:]) for each in value)
