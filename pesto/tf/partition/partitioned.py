"""The GraphDef of a divided step: each part a node on its worker's device (Tofu, arXiv:1807.08887v1, section 4.3).

Sends are delayed so that no tensor arrives long before its use (section 5).
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.split.division import Division
from pesto.split.geometry import worker_boxes
from pesto.split.op_strategy import overrides_of_worker
from pesto.split.ops.op_types import FED, REPEATS, SHAPE_OPERAND, part_attributes, part_operand, repeats
from pesto.split.ops.window_kernels import KernelOverrides
from pesto.split.typed_graph import TypedGraph
from pesto.split.worker_parts import CLONE, JOIN, REDUCE, SLICE, WorkerPart, WorkerParts, build_worker_parts
from pesto.tf.nodes.needed_nodes import RECORDED
from pesto.tf.partition.part_variables import CheckpointNodes, PartVariable, add_checkpoints
from solvers.arrays import Ints, ints

HOST = "/device:CPU:0"
GAP = 32
"""A tensor that is used fewer ops after it was made, along the longest path, is sent at once."""
AHEAD = 4
"""Number of ops before its use, along the longest path, at which a tensor is sent."""
_GONE = ("_output_shapes", "_class", RECORDED)
"""Attributes that are not true of a part, or name ops that are not there."""
_WHAT = {SLICE: "block", JOIN: "joined", REDUCE: "reduced"}
_CHAINS = {"max": "Maximum", "min": "Minimum", "prod": "Mul"}
_OF_BOOLS = {"sum": "LogicalOr", "max": "LogicalOr", "min": "LogicalAnd", "prod": "LogicalAnd"}
"""Ops of two arguments that make one of partial results."""


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
        total, worker_elements = sum(prod(v.shape) for v in self.variables), [0] * len(self.devices)
        for variable in self.variables:
            for place in variable.places:
                worker_elements[place] += variable.part_elements
        return max(worker_elements) / total if total else 1.0


def partition(
    program: Any, shaped: TypedGraph, division: Division, fetches: Sequence[str], *,
    devices: Sequence[str] = (), host: str = HOST,
) -> Partition:  # fmt: skip
    """Return the partitioned graph of a flat GraphDef whose ops `shaped` lists and `division` divides.

    devices: TensorFlow's device of each worker; GPU k of worker k by default. host: where feeds come from. Raise
    InputError when the GraphDef lacks an op, UsageError for another number of devices.
    """
    where = tuple(devices) or tuple(f"/device:GPU:{k}" for k in range(division.devices))
    if len(where) != division.devices:
        raise UsageError.build(
            f"{len(where)} devices for {division.devices} workers", remedy="give one device for each"
        )
    by_name = {node.name: node for node in program.node}
    for name in shaped.names:
        if name not in by_name:
            raise InputError.build(
                f"op {shown(name)} is not in the graph", where=shaped.source, remedy="give the graph that was divided"
            )
    prefix = "w"  # of the workers' numbers, unless op names start so already
    while any(re.match(rf"{prefix}\d+/", name) for name in shaped.names):
        prefix += "_"
    index = {name: op for op, name in enumerate(shaped.names)}
    fetched = [index[name] for name in fetches]
    results = [(op, output) for op in fetched for output in range(len(shaped.signature(op).outputs))]
    parts = build_worker_parts(shaped, division, results)
    writer = PartWriter([by_name[name] for name in shaped.names], parts, where, host, prefix)
    variables = _find_used_variables(parts, writer.names)
    writer.write({name: variable for variable in variables for name in variable.parts})
    writer.write_fetches(fetched)
    writer.graph_def.library.CopyFrom(program.library)
    writer.graph_def.versions.CopyFrom(program.versions)
    return Partition(
        graph_def=writer.graph_def, fetches=tuple(fetches), variables=variables, devices=where, parts=parts,
        late=len(writer.waits), checkpoints=add_checkpoints(writer.graph_def, variables, where, host),
    )  # fmt: skip


def _find_used_variables(parts: WorkerParts, names: Sequence[str]) -> tuple[PartVariable, ...]:
    """Return the variables that the step uses; `names` are those of the parts' nodes."""
    shaped, division = parts.shaped, parts.division
    variables: dict[int, PartVariable] = {}
    uses = zip(shaped.use_op.tolist(), shaped.use_input.tolist(), shaped.use_variable.tolist(), strict=True)
    for op, slot, v in uses:
        handle = int(shaped.handle[v])
        operand = shaped.signature(op).inputs[slot]
        clones = [int(part) for part in parts.clone[handle] if part >= 0]
        if v not in variables and operand.shape is not None and clones:
            variables[v] = PartVariable(
                name=shaped.names[handle], parts=tuple(names[part] for part in clones),
                dtype=operand.dtype.removeprefix("resource:"), shape=operand.shape,
                layouts=division.variables[v], factors=division.factors,
                places=tuple(parts.place[clones].tolist()),
            )  # fmt: skip
    return tuple(variables[v] for v in sorted(variables))


@dataclass(frozen=True, slots=True)
class DelayedSend:
    """A tensor that is sent late."""

    part: int
    output: int
    reader: int
    """The worker that it is sent to."""
    after: int
    """The clone, of that worker, after which it is sent."""


def levels(parts: WorkerParts) -> tuple[Ints, list[list[int]]]:
    """Return [p] the clones on the longest path to each part, itself with them; and the parts that it waits for."""
    src = np.concatenate([parts.src, parts.control_src])
    dst = np.concatenate([parts.dst, parts.control_dst])
    before: list[list[int]] = [[] for _ in parts.parts]
    for p, i in zip(src.tolist(), dst.tolist(), strict=True):
        before[i].append(p)
    level = [0] * len(parts.parts)
    for i, part in enumerate(parts.parts):
        level[i] = max((level[p] for p in before[i]), default=0) + (part.kind == CLONE)
    return ints(level), before


def delay_sends(parts: WorkerParts, gap: int = GAP, ahead: int = AHEAD) -> tuple[DelayedSend, ...]:
    """Return what is sent late: each waits for an op that its first reader waits for too, so it holds none up.

    The op that is waited for stands before what is sent in the order of the parts, so there is no cycle. Partial
    results are never held back: their sum is less than they are.
    """
    levels_, before = levels(parts)
    level, kinds, place = levels_.tolist(), [part.kind for part in parts.parts], parts.place.tolist()
    first_reader = [-1] * len(kinds)
    for p, i in zip(parts.src.tolist(), parts.dst.tolist(), strict=True):
        if first_reader[p] < 0 or i < first_reader[p]:
            first_reader[p] = i
    step = slice(0, parts.for_results)
    src, output, dst = parts.src[step], parts.output[step], parts.dst[step]
    # (part, output, receiving worker) -> the receiver's first reader: a tensor is sent to a worker once.
    sent: dict[tuple[int, int, int], int] = {}
    for edge in np.flatnonzero((parts.place[src] != parts.place[dst]) & ~parts.fed[src]).tolist():
        key = (int(src[edge]), int(output[edge]), place[dst[edge]])
        sent[key] = min(sent.get(key, len(kinds)), int(dst[edge]))

    def ancestor(use: int, limit: int) -> int:
        """Return the clone some ops before a clone on its worker, along the longest path; -1 where there is none."""
        clone = use
        while earlier := [p for p in before[clone] if p < limit and place[p] == place[use]]:
            clone = max(earlier, key=level.__getitem__)
            if level[clone] <= level[use] - ahead and kinds[clone] == CLONE:
                return clone
        return -1

    waits = []
    for (part, port, worker), reader in sent.items():
        use = reader
        # Slices and joins only move data; the use that matters is the first op that computes with the tensor.
        while kinds[use] not in (CLONE, REDUCE) and first_reader[use] >= 0:
            use = first_reader[use]
        if kinds[use] != CLONE or level[use] - level[part] <= gap:
            continue
        # What a block is cut from is older than the block; who is sent a part as it is need not be its first reader.
        after = ancestor(use, part if kinds[part] == SLICE else reader)
        if after >= 0 and level[after] - level[part] > gap // 2:
            waits.append(DelayedSend(part, port, worker, after))
    return tuple(waits)


@cache
def _type_enum(dtype: str) -> int:
    return int(tf.as_dtype(dtype.removeprefix("resource:")).as_datatype_enum)


class PartWriter:
    """A GraphDef in the making: the parts of a step, in their order."""

    def __init__(self, defs: Sequence[Any], parts: WorkerParts, devices: Sequence[str], host: str, prefix: str) -> None:
        """Start an empty GraphDef; `defs` are the whole step's nodes, and `prefix` begins the names of workers."""
        self.defs, self.parts, self.devices, self.host, self.prefix = defs, parts, devices, host, prefix
        self.graph_def = graph_pb2.GraphDef()
        self.names = []
        for number, part in enumerate(parts.parts):
            own, worker = parts.shaped.names[part.op], f"{prefix}{parts.place[number]}"
            name = f"{worker}/{own}" if part.kind == CLONE else f"{worker}/pesto/{own}/{_WHAT[part.kind]}{number}"
            self.names.append(name)
        self.given: list[list[tuple[int, int, int]]] = [[] for _ in self.names]
        """[p] (input, part, output) that each reads, by input."""
        self.readers: dict[int, set[int]] = defaultdict(set)
        """Part -> the devices that read it."""
        edges = zip(parts.src.tolist(), parts.output.tolist(), parts.dst.tolist(), parts.input.tolist(), strict=True)
        for src, output, dst, slot in edges:
            self.given[dst].append((slot, src, output))
            self.readers[src].add(int(parts.place[dst]))
        self.controls: dict[int, list[str]] = defaultdict(list)
        """Part -> names of the nodes that it waits for."""
        for before, after in zip(parts.control_src.tolist(), parts.control_dst.tolist(), strict=True):
            self.controls[after].append(self.names[before])
        self.is_fed = parts.fed.tolist()
        self.waits = delay_sends(parts)
        self.relays: dict[tuple[int, int, int], str] = {}
        """(part, output, reading device) -> for whom what is sent as it is waits, then the node that sends it."""
        for wait in self.waits:
            if parts.parts[wait.part].kind == SLICE:
                self.controls[wait.part].append(self.names[wait.after])
            else:
                self.relays[wait.part, wait.output, wait.reader] = f"^{self.names[wait.after]}"
        self.constants: dict[tuple[str, str, tuple[int, ...], bytes], str] = {}
        self.fed: set[str] = set()
        self.templates: dict[int, Any] = {}

    def write(self, variables: Mapping[str, PartVariable]) -> None:
        """Add all parts but those that would bring results to other workers than the first."""
        selected = slice(self.parts.for_results, None)
        src, dst = self.parts.src[selected].tolist(), self.parts.dst[selected].tolist()
        result_parts = {part for part, _ in self.parts.results}
        for p, i in zip(reversed(src), reversed(dst), strict=True):
            if i in result_parts:
                result_parts.add(p)
        left = set(dst) - result_parts
        for number, part in enumerate(self.parts.parts):
            if number in left:
                continue
            if part.kind == CLONE:
                self._clone(number, part, variables.get(self.names[number]))
            elif part.kind == SLICE:
                _, origin, output = self.given[number][0]
                place = int(self.parts.place[number])
                bounded = self.parts.shaped.signature(part.op).bounded_output(part.output)
                extents = [-1 if d in bounded else n for d, n in enumerate(part.shape or ())]  # -1: all there is
                begin, size = (self._constant(np.asarray(v, dtype=np.int32), place) for v in (part.begin, extents))
                fed = self.is_fed[origin] and self.readers[number] == {place}
                text = (
                    self.parts.shaped.names[self.parts.parts[origin].op] if fed else self._read(origin, output, place)
                )
                node = self._typed(number, "Slice", [text, begin, size])
                node.attr["Index"].type = tf.int32.as_datatype_enum
                if fed:
                    node.device = self.host
            elif part.kind == REDUCE:
                self._reduce(number, part)
            elif part.axis < 0:
                self._typed(number, "Identity", self._inputs(number))
            else:
                inputs = self._inputs(number)
                axis = self._constant(np.asarray(part.axis, dtype=np.int32), int(self.parts.place[number]))
                node = self._typed(number, "ConcatV2", [*inputs, axis])
                node.attr["N"].i, node.attr["Tidx"].type = len(inputs), tf.int32.as_datatype_enum

    def _reduce(self, number: int, part: WorkerPart) -> None:
        """Make one of partial results, and of means of parts the mean of all."""
        inputs, dtype = self._inputs(number), self._dtype(number, part.output)
        name, device = self.names[number], self._device(number)
        inner = name if part.scale == 1 else f"{name}/sum"
        bools = dtype == tf.bool.as_datatype_enum
        if part.reducer == "sum" and not bools:
            node = self._node(inner, "AddN", inputs, device, self.controls.get(number, ()))
            node.attr["T"].type, node.attr["N"].i = dtype, len(inputs)
        else:
            last, kind = inputs[0], (_OF_BOOLS if bools else _CHAINS)[part.reducer]
            for count, text in enumerate(inputs[1:], 2):
                sum_name = inner if count == len(inputs) else f"{inner}/{count}"
                node = self._node(sum_name, kind, [last, text], device)
                if not bools:
                    node.attr["T"].type = dtype
                last = sum_name
        if part.scale > 1:
            scale = np.asarray(part.scale, dtype=tf.as_dtype(dtype).as_numpy_dtype)
            divisor = self._constant(scale, int(self.parts.place[number]))
            self._node(name, "RealDiv", [inner, divisor], device).attr["T"].type = dtype

    def _node(self, name: str, op: str, inputs: Sequence[str], device: str, controls: Sequence[str] = ()) -> Any:
        node = self.graph_def.node.add(name=name, op=op, device=device)
        node.input.extend(inputs)
        node.input.extend(f"^{before}" for before in dict.fromkeys(controls))
        return node

    def _typed(self, number: int, op: str, inputs: Sequence[str]) -> Any:
        """Add the node of a part, with its type T as attribute."""
        node = self._node(self.names[number], op, inputs, self._device(number), self.controls.get(number, ()))
        node.attr["T"].type = self._dtype(number, self.parts.parts[number].output)
        return node

    def _dtype(self, number: int, output: int) -> int:
        part = self.parts.parts[number]
        port = output if part.kind == CLONE else part.output
        return _type_enum(self.parts.shaped.signature(part.op).outputs[port][1])

    def _inputs(self, number: int) -> list[str]:
        """Return the inputs of a part, in order."""
        place = int(self.parts.place[number])
        return [self._read(src, output, place) for _, src, output in sorted(self.given[number])]

    def _read(self, src: int, output: int, place: int) -> str:
        """Return the tensor that an output of a part is to the ops of a device; what is fed comes from the host."""
        if self.is_fed[src] and self.parts.place[src] != place:
            return self.parts.shaped.names[self.parts.parts[src].op]
        key = (src, output, place)
        if key not in self.relays:
            return self._port(src, output)
        if self.relays[key][0] == "^":
            part = self.parts.parts[src]
            base = f"{self.prefix}{self.parts.place[src]}/pesto/{self.parts.shaped.names[part.op]}"
            name = f"{base}/late{src}_{output}_{place}"
            after = self.relays[key][1:]
            node = self._node(name, "Identity", [self._port(src, output)], self._device(src), [after])
            node.attr["T"].type = self._dtype(src, output)
            self.relays[key] = name
        return self.relays[key]

    def _port(self, src: int, output: int) -> str:
        part = self.parts.parts[src]
        if part.kind == CLONE and output and self.parts.shaped.signature(part.op).reads_shapes_alone:
            return f"{self.names[src]}/{output}"
        return f"{self.names[src]}:{output}" if output else self.names[src]

    def _clone(self, number: int, part: WorkerPart, variable: PartVariable | None) -> None:
        signature, device = self.parts.shaped.signature(part.op), self._device(number)
        name, controls = self.parts.shaped.names[part.op], self.controls.get(number, ())
        if signature.type in FED:
            # What is fed is fed on the host, whole; a clone hands it on.
            if name not in self.fed:
                self.fed.add(name)
                node = self._node(name, signature.type, self._operands(number, part), self.host)
                node.MergeFrom(self._template(part.op))
            node = self._node(self.names[number], "Identity", [name], device, controls)
            node.attr["T"].type = self._dtype(number, 0)
            return
        if signature.reads_shapes_alone:
            # What an op reads of known shapes is a constant: of whole tensors, as in the whole step.
            for k, operand in enumerate(signature.inputs):
                if operand.shape is None:
                    raise InputError(f"op {name}: the shape that it reads is unknown")
                size, rank = int(np.prod(operand.shape, dtype=np.int64)), len(operand.shape)
                value = {"Size": size, "Rank": rank}.get(signature.type, operand.shape)
                dtype = tf.as_dtype(signature.outputs[k][1]).as_numpy_dtype
                node = self._node(self._port(number, k), "Const", (), device, controls)
                _fill(node, np.asarray(value, dtype=dtype))
            return
        node = self._node(self.names[number], signature.type, self._operands(number, part), device, controls)
        node.MergeFrom(self._template(part.op))
        sides = self._overrides(part).padding
        if sides:
            # Padding of its own before and after each dimension; none where all are 0.
            node.attr["padding"].s = b"EXPLICIT" if any(sides) else b"VALID"
            node.attr["explicit_paddings"].list.Clear()
            node.attr["explicit_paddings"].list.i.extend(sides if any(sides) else ())
        if signature.type == "VarHandleOp":
            # A handle of a part: its shape, and a name that no other handle has.
            node.attr["shared_name"].s = node.name.encode()
            if variable is not None:
                _write_shape(node, variable.boxes[0][1])
        elif "shape" in node.attr:
            # An attribute that says the whole output's shape says the part's.
            shape = self.parts.output_shape(number, 0) if signature.outputs else None
            said = tuple(d.size for d in node.attr["shape"].shape.dim)
            if shape is not None and said == signature.outputs[0][0] and said != shape:
                _write_shape(node, shape)

    def _template(self, op: int) -> Any:
        """Return the attributes of an op's clones."""
        if op not in self.templates:
            node = node_def_pb2.NodeDef()
            for name, value in self.defs[op].attr.items():
                if name not in _GONE:
                    node.attr[name].CopyFrom(value)
            for name, value in part_attributes(self.parts.shaped.signature(op)).items():
                node.attr[name].list.i[:] = value
            self.templates = {op: node}  # clones of an op follow each other
        return self.templates[op]

    def _operands(self, number: int, part: WorkerPart) -> list[str]:
        """Return the inputs of a clone: tensors, and constants of its own where values are known."""
        signature, way = self.parts.shaped.signature(part.op), self.parts.division.strategies[part.op]
        place = int(self.parts.place[number])
        read = {slot: (src, output) for slot, src, output in self.given[number]}
        inputs, constants = [], self._overrides(part).operands
        for slot, operand in enumerate(signature.inputs):
            if operand.value is None:
                inputs.append(self._read(*read[slot], place))
                continue
            value = np.asarray(constants.get(slot, operand.value), dtype=tf.as_dtype(operand.dtype).as_numpy_dtype)
            value = value.reshape(operand.shape if operand.shape is not None else value.shape)
            if SHAPE_OPERAND.get(signature.type) == slot and max(way.gives[0], default=-1) >= 0:
                own = self.parts.output_shape(number, 0) or ()
                value = np.asarray(part_operand(value.tolist(), own, signature.bounded_output(0)), dtype=value.dtype)
            elif REPEATS.get(signature.type) == slot:
                own = self.parts.output_shape(number, 0) or ()
                value = np.asarray(repeats(value.tolist(), signature.inputs[0].shape or (), own), dtype=value.dtype)
            elif max(way.needs[slot], default=-1) >= 0:
                layouts, rims = way.need(slot)
                lies = worker_boxes(value.shape, layouts, self.parts.division.factors, rims)
                begin, extents = lies[part.worker] or ((), ())
                value = value[tuple(slice(a, a + n) for a, n in zip(begin, extents, strict=True))]
            inputs.append(self._constant(value, place))
        return inputs

    def _overrides(self, part: WorkerPart) -> KernelOverrides:
        """Return what the clone of an op that reads windows has in place of the whole op's."""
        way = self.parts.division.strategies[part.op]
        return overrides_of_worker(self.parts.shaped.signature(part.op), way, self.parts.division.factors, part.worker)

    def _device(self, number: int) -> str:
        return self.devices[int(self.parts.place[number])]

    def _constant(self, value: Any, place: int) -> str:
        """Return a constant on a device, which all that need it there share."""
        key = (f"{self.prefix}{place}", str(value.dtype), value.shape, value.tobytes())
        if key not in self.constants:
            name = f"{self.prefix}{place}/pesto/constant{len(self.constants)}"
            _fill(self._node(name, "Const", (), self.devices[place]), value)
            self.constants[key] = name
        return self.constants[key]

    def write_fetches(self, fetched: Sequence[int]) -> None:
        """Add the fetches of the whole step under their names: the first worker's results, once all clones have run."""
        ports = iter(self.parts.results)
        for op in fetched:
            outputs, name = self.parts.shaped.signature(op).outputs, self.parts.shaped.names[op]
            brought = [next(ports) for _ in outputs]
            results = [self._port(*port) for port in brought]
            clones = [self.names[part] for part in self.parts.clone[op].tolist() if part >= 0]
            if name in self.fed:
                continue
            kind = "NoOp" if not outputs else "Identity" if len(outputs) == 1 else "IdentityN"
            node = self._node(name, kind, results, self._device(brought[0][0]) if outputs else self.host, clones)
            types = [_type_enum(dtype) for _, dtype in outputs]
            if len(outputs) == 1:
                node.attr["T"].type = types[0]
            elif outputs:
                node.attr["T"].list.type.extend(types)


def _write_shape(node: Any, shape: Sequence[int]) -> None:
    node.attr["shape"].shape.Clear()
    node.attr["shape"].shape.SetInParent()
    for size in shape:
        node.attr["shape"].shape.dim.add(size=size)


def _fill(node: Any, value: Any) -> None:
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, shape=value.shape))
    node.attr["dtype"].type = node.attr["value"].tensor.dtype
