"""The GraphDef of a divided step: each part a node on its worker's device (Tofu, arXiv:1807.08887v1, section 4.3)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.split.division import Division
from pesto.split.typed_graph import TypedGraph
from pesto.split.worker_parts import WorkerParts, build_worker_parts
from pesto.tf.partition.checkpoint_nodes import CheckpointNodes, add_checkpoints
from pesto.tf.partition.part_nodes import PartWriter
from pesto.tf.partition.part_variables import PartVariable

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
        raise UsageError(f"{len(where)} devices for {division.devices} workers - give one device for each")
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
            raise InputError(f"{shaped.source}: op {shown(name)} is not in the graph - give the graph that was divided")
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
