"""The GraphDef of a divided step: each part a node on its worker's device (Tofu, arXiv:1807.08887v1, section 4.3)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.split.division import Division
from pesto.split.pieces import Box
from pesto.split.typed_graph import TypedGraph
from pesto.split.worker_parts import WorkerParts, build_worker_parts
from pesto.tf.partition.part_nodes import PartWriter
from pesto.tf.partition.part_variables import PartVariable

# Nodes by which a partitioned graph reads and writes checkpoints of the whole step, each worker its own parts.


@dataclass(frozen=True, slots=True)
class CheckpointNodes:
    """Names of what restores and saves variables, as v1 savers call them; both ask for a checkpoint's prefix."""

    prefix: str
    """The placeholder of a checkpoint's prefix."""
    restore: str
    save: str


@dataclass(frozen=True, slots=True)
class _VariableSlice:
    """A part of a variable, and who holds it."""

    variable: PartVariable
    handle: str
    device: str
    box: Box

    @property
    def spec(self) -> str:
        """Slice specification of TensorFlow's savers: the extents of the whole, then start,length of each dimension."""
        if not self.variable.shape:
            return ""
        part = ":".join(f"{begin},{size}" for begin, size in zip(*self.box, strict=True))
        return f"{' '.join(map(str, self.variable.shape))} {part}"


def add_checkpoints(
    graph_def: Any, variables: Sequence[PartVariable], devices: Sequence[str], host: str
) -> CheckpointNodes:
    """Add nodes that restore all parts of a checkpoint of the whole step, and save one, on the host."""
    base, taken = "pesto", {node.name.partition("/")[0] for node in graph_def.node}
    while base in taken:
        base += "_"
    named = CheckpointNodes(f"{base}/checkpoint", f"{base}/restore", f"{base}/save")
    node = graph_def.node.add(name=named.prefix, op="Placeholder", device=host)
    node.attr["dtype"].type = tf.string.as_datatype_enum
    node.attr["shape"].shape.SetInParent()
    slices = [
        [
            _VariableSlice(v, name, device, box)
            for v in variables
            for name, box, place in zip(v.parts, v.boxes, v.places, strict=True)
            if place == k
        ]
        for k, device in enumerate(devices)
    ]
    restored = [name for own in slices if own for name in _restore(graph_def, named, own, host)]
    _save(graph_def, named, [one for own in slices for one in own], host)
    node = graph_def.node.add(name=named.restore, op="NoOp", device=host)
    node.input.extend(f"^{name}" for name in restored)
    return named


def _restore(graph_def: Any, named: CheckpointNodes, own: Sequence[_VariableSlice], host: str) -> list[str]:
    """Names of what assigns the parts of one worker, read by one op."""
    read = f"{named.restore}/{own[0].handle.partition('/')[0]}"
    keys = _keys(graph_def, read, own, host)
    node = graph_def.node.add(name=read, op="RestoreV2", device=host, input=[named.prefix, *keys])
    node.attr["dtypes"].list.type.extend(_type(one) for one in own)
    assigned = []
    for at, one in enumerate(own):
        assigned.append(f"{named.restore}/{one.handle}")
        node = graph_def.node.add(
            name=assigned[-1], op="AssignVariableOp", device=one.device, input=[one.handle, f"{read}:{at}"]
        )
        node.attr["dtype"].type = _type(one)
    return assigned


def _save(graph_def: Any, named: CheckpointNodes, slices: Sequence[_VariableSlice], host: str) -> None:
    """Add the nodes that save all slices; a slice that several workers hold is written once."""
    once = list({(one.variable.name, one.box): one for one in reversed(slices)}.values())
    values = []
    for one in once:
        values.append(f"{named.save}/{one.handle}")
        node = graph_def.node.add(name=values[-1], op="ReadVariableOp", device=one.device, input=[one.handle])
        node.attr["dtype"].type = _type(one)
    if not once:
        graph_def.node.add(name=named.save, op="NoOp", device=host)
        return
    keys = _keys(graph_def, named.save, once, host)
    node = graph_def.node.add(name=named.save, op="SaveV2", device=host, input=[named.prefix, *keys, *values])
    node.attr["dtypes"].list.type.extend(_type(one) for one in once)


def _keys(graph_def: Any, name: str, slices: Sequence[_VariableSlice], host: str) -> list[str]:
    """Constants with the names of whole variables and the slices of them."""
    names = []
    for what, texts in (("names", [s.variable.name for s in slices]), ("slices", [s.spec for s in slices])):
        node = graph_def.node.add(name=f"{name}/{what}", op="Const", device=host)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.array(texts, dtype=object), dtype=tf.string))
        node.attr["dtype"].type = tf.string.as_datatype_enum
        names.append(node.name)
    return names


def _type(one: _VariableSlice) -> int:
    return int(tf.as_dtype(one.variable.dtype).as_datatype_enum)


HOST = "/device:CPU:0"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partition:
    """A divided step as TensorFlow runs it."""

    graph_def: Any
    """Op i of worker k is `wk/<name of i>`; what is fed and fetched keeps its name."""
    fetches: tuple[str, ...]
    """Names of ops, those of the whole step."""
    variables: tuple[PartVariable, ...]
    devices: tuple[str, ...]
    """[K] TensorFlow's device of each worker."""
    parts: WorkerParts
    late: int
    """Tensors that are sent late."""
    checkpoints: CheckpointNodes

    @property
    def share(self) -> float:
        """Elements of all variables that the fullest worker holds over those of the whole; 1 without any."""
        total, held = sum(prod(v.shape) for v in self.variables), [0] * len(self.devices)
        for variable in self.variables:
            for place in variable.places:
                held[place] += variable.part_elements
        return max(held) / total if total else 1.0


def partition(
    program: Any, shaped: TypedGraph, division: Division, fetches: Sequence[str], *,
    devices: Sequence[str] = (), host: str = HOST,
) -> Partition:  # fmt: skip
    """The partitioned graph of a flat GraphDef whose ops `shaped` lists and `division` divides.

    devices: TensorFlow's device of each worker; GPU k of worker k by default. host: where feeds come from.
    InputError when the GraphDef lacks an op, UsageError for another number of devices.
    """
    where = tuple(devices) or tuple(f"/device:GPU:{k}" for k in range(division.devices))
    if len(where) != division.devices:
        raise UsageError.build(
            f"{len(where)} devices for {division.devices} workers", remedy="give one device for each"
        )
    index = {name: op for op, name in enumerate(shaped.names)}
    fetched = [index[name] for name in fetches]
    results = [(op, output) for op in fetched for output in range(len(shaped.signature(op).outputs))]
    parts = build_worker_parts(shaped, division, results)
    writer = PartWriter(_defs(program, shaped), parts, where, host, _prefix(shaped.names))
    variables = _variables(parts, writer)
    writer.write({name: variable for variable in variables for name in variable.parts})
    writer.write_fetches(fetched)
    writer.graph_def.library.CopyFrom(program.library)
    writer.graph_def.versions.CopyFrom(program.versions)
    return Partition(
        graph_def=writer.graph_def, fetches=tuple(fetches), variables=variables, devices=where, parts=parts,
        late=len(writer.waits), checkpoints=add_checkpoints(writer.graph_def, variables, where, host),
    )  # fmt: skip


def _defs(program: Any, shaped: TypedGraph) -> list[Any]:
    by_name = {node.name: node for node in program.node}
    for name in shaped.names:
        if name not in by_name:
            raise InputError.build(
                f"op {shown(name)} is not in the graph", where=shaped.source, remedy="give the graph that was divided"
            )
    return [by_name[name] for name in shaped.names]


def _prefix(names: Sequence[str]) -> str:
    """Return the prefix of workers' numbers: w, unless op names start so already."""
    prefix = "w"
    while any(re.match(rf"{prefix}\d+/", name) for name in names):
        prefix += "_"
    return prefix


def _variables(parts: WorkerParts, writer: PartWriter) -> tuple[PartVariable, ...]:
    """Those that the step uses, with shape and layout."""
    shaped, division = parts.shaped, parts.division
    variables: dict[int, PartVariable] = {}
    uses = zip(shaped.use_op.tolist(), shaped.use_input.tolist(), shaped.use_variable.tolist(), strict=True)
    for op, at, v in uses:
        handle = int(shaped.handle[v])
        operand = shaped.signature(op).inputs[at]
        held = [int(part) for part in parts.clone[handle] if part >= 0]
        if v not in variables and operand.shape is not None and held:
            variables[v] = PartVariable(
                name=shaped.names[handle], parts=tuple(writer.names[part] for part in held),
                dtype=operand.dtype.removeprefix("resource:"), shape=operand.shape,
                layouts=division.variables[v], factors=division.factors,
                places=tuple(parts.place[held].tolist()),
            )  # fmt: skip
    return tuple(variables[v] for v in sorted(variables))
