"""Nodes of a partitioned GraphDef, written part by part."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from pesto.core.errors import InputError
from pesto.split.op_strategy import overrides_of_worker
from pesto.split.ops.replicated_ops import FED
from pesto.split.ops.shape_operands import REPEATS, SHAPE_OPERAND, part_attributes, part_operand, repeats
from pesto.split.ops.window_kernels import KernelOverrides
from pesto.split.pieces import worker_boxes
from pesto.split.worker_parts import CLONE, JOIN, REDUCE, SLICE, WorkerPart, WorkerParts
from pesto.tf.nodes.needed_nodes import RECORDED
from pesto.tf.partition.part_variables import PartVariable
from solvers.arrays import Ints, ints

# Sends that are delayed so that no tensor arrives long before its use (Tofu, 1807.08887v1, section 5).

GAP = 32
"""A tensor that is used fewer ops after it was made, along the longest path, is sent at once."""
AHEAD = 4
"""Number of ops before its use, along the longest path, at which a tensor is sent."""


@dataclass(frozen=True, slots=True)
class DelayedSend:
    """A tensor that is sent late."""

    part: int
    output: int
    reader: int
    """The worker that it is sent to."""
    after: int
    """The clone, of that worker, after which it is sent."""


def delayed_sends(parts: WorkerParts, gap: int = GAP, ahead: int = AHEAD) -> tuple[DelayedSend, ...]:
    """What is sent late: each waits for an op that its first reader waits for too, so that no op is held up by it.

    Who is waited for stands before what is sent in the order of the parts, so there is no cycle. Partial results are
    never held back: their sum is less than they are.
    """
    return _DelayedSends(parts, gap, ahead).find()


def levels(parts: WorkerParts) -> tuple[Ints, list[list[int]]]:
    """[p] the number of clones on the longest path to each part, itself with them; and the parts that it waits for."""
    src = np.concatenate([parts.src, parts.control_src])
    dst = np.concatenate([parts.dst, parts.control_dst])
    before: list[list[int]] = [[] for _ in parts.parts]
    for p, i in zip(src.tolist(), dst.tolist(), strict=True):
        before[i].append(p)
    level = [0] * len(parts.parts)
    for i, part in enumerate(parts.parts):
        level[i] = max((level[p] for p in before[i]), default=0) + (part.kind == CLONE)
    return ints(level), before


class _DelayedSends:
    """The parts, with what is derived from them once."""

    def __init__(self, parts: WorkerParts, gap: int, ahead: int) -> None:
        self.parts, self.gap, self.ahead = parts, gap, ahead
        level, self.before = levels(parts)
        self.level = level.tolist()
        self.first = [-1] * len(parts.parts)
        """[p] the first part that reads each."""
        for p, i in zip(parts.src.tolist(), parts.dst.tolist(), strict=True):
            if self.first[p] < 0 or i < self.first[p]:
                self.first[p] = i

    def find(self) -> tuple[DelayedSend, ...]:
        worker = self.parts.place
        step = slice(0, self.parts.for_results)
        src, output, dst = self.parts.src[step], self.parts.output[step], self.parts.dst[step]
        first: dict[tuple[int, int, int], int] = {}
        for at in np.flatnonzero((worker[src] != worker[dst]) & ~self.parts.fed[src]).tolist():
            key = (int(src[at]), int(output[at]), int(worker[dst[at]]))
            first[key] = min(first.get(key, len(worker)), int(dst[at]))
        made = (self._wait(*key, reader) for key, reader in first.items())
        return tuple(wait for wait in made if wait is not None)

    def _wait(self, part: int, output: int, worker: int, reader: int) -> DelayedSend | None:
        """The wait of what `reader` is the first to read on its worker; None where it is soon used."""
        use = reader
        # Slices and joins only move data; the use that matters is the first op that computes with the tensor.
        while self.parts.parts[use].kind not in (CLONE, REDUCE) and self.first[use] >= 0:
            use = self.first[use]
        if self.parts.parts[use].kind != CLONE or self.level[use] - self.level[part] <= self.gap:
            return None
        # What a block is cut from is older than the block; who is sent a part as it is need not be its first reader.
        limit = part if self.parts.parts[part].kind == SLICE else reader
        after = self._ancestor(use, limit)
        if after < 0 or self.level[after] - self.level[part] <= self.gap // 2:
            return None
        return DelayedSend(part, output, worker, after)

    def _ancestor(self, use: int, limit: int) -> int:
        """The clone some ops before a clone on its worker, along the longest path; -1 where there is none."""
        at, worker = use, int(self.parts.place[use])
        while True:
            before = [p for p in self.before[at] if p < limit and self.parts.place[p] == worker]
            if not before:
                return -1
            at = max(before, key=lambda p: self.level[p])
            if self.level[at] <= self.level[use] - self.ahead and self.parts.parts[at].kind == CLONE:
                return at


_GONE = ("_output_shapes", "_class", RECORDED)
"""Attributes that are not true of a part, or name ops that are not there."""
_WHAT = {SLICE: "block", JOIN: "joined", REDUCE: "reduced"}
_CHAINS = {"max": "Maximum", "min": "Minimum", "prod": "Mul"}
_OF_BOOLS = {"sum": "LogicalOr", "max": "LogicalOr", "min": "LogicalAnd", "prod": "LogicalAnd"}
"""Ops of two arguments that make one of partial results."""


@cache
def _enum(dtype: str) -> int:
    return int(tf.as_dtype(dtype.removeprefix("resource:")).as_datatype_enum)


class PartWriter:
    """A GraphDef in the making: the parts of a step, in their order."""

    def __init__(self, defs: Sequence[Any], parts: WorkerParts, devices: Sequence[str], host: str, prefix: str) -> None:
        self.defs, self.parts, self.devices, self.host, self.prefix = defs, parts, devices, host, prefix
        self.graph_def = graph_pb2.GraphDef()
        self.names = [self._name(number, part) for number, part in enumerate(parts.parts)]
        self.given: list[list[tuple[int, int, int]]] = [[] for _ in self.names]
        """[p] (input, part, output) that each reads, by input."""
        self.readers: dict[int, set[int]] = defaultdict(set)
        """Part -> the devices that read it."""
        edges = zip(parts.src.tolist(), parts.output.tolist(), parts.dst.tolist(), parts.input.tolist(), strict=True)
        for src, output, dst, at in edges:
            self.given[dst].append((at, src, output))
            self.readers[src].add(int(parts.place[dst]))
        self.controls: dict[int, list[str]] = defaultdict(list)
        """Part -> names of the nodes that it waits for."""
        for before, after in zip(parts.control_src.tolist(), parts.control_dst.tolist(), strict=True):
            self.controls[after].append(self.names[before])
        self.is_fed = parts.fed.tolist()
        self.waits = delayed_sends(parts)
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

    def _name(self, number: int, part: WorkerPart) -> str:
        own = self.parts.shaped.names[part.op]
        place = self.parts.place[number]
        if part.kind == CLONE:
            return f"{self.prefix}{place}/{own}"
        return f"{self.prefix}{place}/pesto/{own}/{_WHAT[part.kind]}{number}"

    def write(self, variables: Mapping[str, PartVariable]) -> None:
        """All parts but those that would bring results to other workers than the first."""
        left = self._unused()
        for number, part in enumerate(self.parts.parts):
            if number in left:
                continue
            if part.kind == CLONE:
                self._clone(number, part, variables.get(self.names[number]))
            elif part.kind == SLICE:
                self._slice(number, part)
            elif part.kind == JOIN:
                self._join(number, part)
            else:
                # Partial results made one, and means of parts the mean of all.
                inputs, dtype = self._inputs(number), self._dtype(number, part.output)
                name, device = self.names[number], self._device(number)
                inner = name if part.scale == 1 else f"{name}/sum"
                if part.reducer == "sum" and dtype != tf.bool.as_datatype_enum:
                    node = self._node(inner, "AddN", inputs, device, self.controls.get(number, ()))
                    node.attr["T"].type, node.attr["N"].i = dtype, len(inputs)
                else:
                    self._chain(inner, number, inputs, dtype)
                if part.scale > 1:
                    scale = np.asarray(part.scale, dtype=tf.as_dtype(dtype).as_numpy_dtype)
                    node = self._node(
                        name, "RealDiv", [inner, self._constant(scale, int(self.parts.place[number]))], device
                    )
                    node.attr["T"].type = dtype

    def _unused(self) -> set[int]:
        """Parts for results that the first worker does not need."""
        at = slice(self.parts.for_results, None)
        src, dst = self.parts.src[at].tolist(), self.parts.dst[at].tolist()
        kept = {part for part, _ in self.parts.results}
        for p, i in zip(reversed(src), reversed(dst), strict=True):
            if i in kept:
                kept.add(p)
        return set(dst) - kept

    def _node(self, name: str, op: str, inputs: Sequence[str], device: str, controls: Sequence[str] = ()) -> Any:
        node = self.graph_def.node.add(name=name, op=op, device=device)
        node.input.extend(inputs)
        node.input.extend(f"^{before}" for before in dict.fromkeys(controls))
        return node

    def _typed(self, number: int, op: str, inputs: Sequence[str], **ints: int) -> Any:
        """The node of a part that is no clone, with its type T and whole numbers as attributes."""
        part = self.parts.parts[number]
        device = self._device(number)
        node = self._node(self.names[number], op, inputs, device, self.controls.get(number, ()))
        node.attr["T"].type = self._dtype(number, part.output)
        for name, value in ints.items():
            node.attr[name].i = value
        return node

    def _dtype(self, number: int, output: int) -> int:
        part = self.parts.parts[number]
        port = output if part.kind == CLONE else part.output
        return _enum(self.parts.shaped.signature(part.op).outputs[port][1])

    def _inputs(self, number: int) -> list[str]:
        """Return the inputs of a part, in order."""
        place = int(self.parts.place[number])
        return [self._read(src, output, place) for _, src, output in sorted(self.given[number])]

    def _read(self, src: int, output: int, place: int) -> str:
        """The tensor that an output of a part is to the ops of a device; what is fed comes from the host."""
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
        if part.kind == CLONE and output and self._reads_shapes_alone(part.op):
            return f"{self.names[src]}/{output}"
        return f"{self.names[src]}:{output}" if output else self.names[src]

    def _type(self, op: int) -> str:
        return self.parts.shaped.signature(op).type

    def _reads_shapes_alone(self, op: int) -> bool:
        return self.parts.shaped.signature(op).reads_shapes_alone

    def _clone(self, number: int, part: WorkerPart, variable: PartVariable | None) -> None:
        op_type = self._type(part.op)
        if op_type in FED:
            self._from_host(number, part)
        elif self._reads_shapes_alone(part.op):
            self._shapes(number, part)
        else:
            inputs = self._operands(number, part)
            device = self._device(number)
            node = self._node(self.names[number], op_type, inputs, device, self.controls.get(number, ()))
            node.MergeFrom(self._template(part.op))
            if self._told(part).padding:
                # Padding of its own before and after each dimension; none where all are 0.
                sides = self._told(part).padding
                node.attr["padding"].s = b"EXPLICIT" if any(sides) else b"VALID"
                node.attr["explicit_paddings"].list.Clear()
                node.attr["explicit_paddings"].list.i.extend(sides if any(sides) else ())
            if op_type == "VarHandleOp":
                # A handle of a part: its shape, and a name that no other handle has.
                node.attr["shared_name"].s = node.name.encode()
                if variable is not None:
                    _write_shape(node, variable.boxes[0][1])
            elif "shape" in node.attr:
                self._mend(node, number, part)

    def _template(self, op: int) -> Any:
        """The attributes of an op's clones."""
        if op not in self.templates:
            made = node_def_pb2.NodeDef()
            for name, value in self.defs[op].attr.items():
                if name not in _GONE:
                    made.attr[name].CopyFrom(value)
            for name, value in part_attributes(self.parts.shaped.signature(op)).items():
                made.attr[name].list.i[:] = value
            self.templates = {op: made}  # clones of an op follow each other
        return self.templates[op]

    def _mend(self, node: Any, number: int, part: WorkerPart) -> None:
        """An attribute that says the whole output's shape says the part's."""
        outputs = self.parts.shaped.signature(part.op).outputs
        held = self.parts.output_shape(number, 0) if outputs else None
        said = tuple(d.size for d in node.attr["shape"].shape.dim)
        if held is not None and said == outputs[0][0] and said != held:
            _write_shape(node, held)

    def _operands(self, number: int, part: WorkerPart) -> list[str]:
        """The inputs of a clone: tensors, and constants of its own where values are known."""
        signature, way = self.parts.shaped.signature(part.op), self.parts.division.ways[part.op]
        place = int(self.parts.place[number])
        read = {at: (src, output) for at, src, output in self.given[number]}
        inputs, known = [], self._told(part).operands
        for at, operand in enumerate(signature.inputs):
            if operand.value is None:
                inputs.append(self._read(*read[at], place))
                continue
            value = np.asarray(known.get(at, operand.value), dtype=tf.as_dtype(operand.dtype).as_numpy_dtype)
            value = value.reshape(operand.shape if operand.shape is not None else value.shape)
            if SHAPE_OPERAND.get(signature.type) == at and max(way.gives[0], default=-1) >= 0:
                own = self.parts.output_shape(number, 0) or ()
                value = np.asarray(part_operand(value.tolist(), own, signature.bounded_output(0)), dtype=value.dtype)
            elif REPEATS.get(signature.type) == at:
                shape = signature.inputs[0].shape
                part_shape = self.parts.output_shape(number, 0)
                value = np.asarray(repeats(value.tolist(), shape or (), part_shape or ()), dtype=value.dtype)
            elif max(way.needs[at], default=-1) >= 0:
                layouts, rims = way.need(at)
                lies = worker_boxes(value.shape, layouts, self.parts.division.factors, rims)
                begin, extents = lies[part.worker] or ((), ())
                value = value[tuple(slice(a, a + n) for a, n in zip(begin, extents, strict=True))]
            inputs.append(self._constant(value, place))
        return inputs

    def _told(self, part: WorkerPart) -> KernelOverrides:
        """What the clone of an op that reads windows has in place of the whole op's."""
        way = self.parts.division.ways[part.op]
        return overrides_of_worker(self.parts.shaped.signature(part.op), way, self.parts.division.factors, part.worker)

    def _device(self, number: int) -> str:
        """TensorFlow's device of a part."""
        return self.devices[int(self.parts.place[number])]

    def _constant(self, value: Any, place: int) -> str:
        """A constant on a device, which all that need it there share."""
        device = self.devices[place]
        key = (f"{self.prefix}{place}", str(value.dtype), value.shape, value.tobytes())
        if key not in self.constants:
            name = f"{self.prefix}{place}/pesto/constant{len(self.constants)}"
            _fill(self._node(name, "Const", (), device), value)
            self.constants[key] = name
        return self.constants[key]

    def _from_host(self, number: int, part: WorkerPart) -> None:
        """What is fed is fed on the host, whole; a clone hands it on."""
        name = self.parts.shaped.names[part.op]
        if name not in self.fed:
            self.fed.add(name)
            inputs = self._operands(number, part)
            node = self._node(name, self._type(part.op), inputs, self.host)
            node.MergeFrom(self._template(part.op))
        device = self._device(number)
        node = self._node(self.names[number], "Identity", [name], device, self.controls.get(number, ()))
        node.attr["T"].type = self._dtype(number, 0)

    def _shapes(self, number: int, part: WorkerPart) -> None:
        """What an op reads of known shapes is a constant: of whole tensors, as in the whole step."""
        signature = self.parts.shaped.signature(part.op)
        for k, operand in enumerate(signature.inputs):
            if operand.shape is None:
                raise InputError(f"op {self.parts.shaped.names[part.op]}: the shape that it reads is unknown")
            size, rank = int(np.prod(operand.shape, dtype=np.int64)), len(operand.shape)
            value = {"Size": size, "Rank": rank}.get(signature.type, operand.shape)
            dtype = tf.as_dtype(signature.outputs[k][1]).as_numpy_dtype
            device = self._device(number)
            node = self._node(self._port(number, k), "Const", (), device, self.controls.get(number, ()))
            _fill(node, np.asarray(value, dtype=dtype))

    def _slice(self, number: int, part: WorkerPart) -> None:
        """A block, at its owner; of what is fed, on the host, where nobody else reads it."""
        _, src, output = self.given[number][0]
        place = int(self.parts.place[number])
        bounded = self.parts.shaped.signature(part.op).bounded_output(part.output)
        extents = [-1 if d in bounded else n for d, n in enumerate(part.shape or ())]  # -1: all there is
        begin, size = (self._constant(np.asarray(v, dtype=np.int32), place) for v in (part.begin, extents))
        source = self.parts.parts[src]
        fed = self.is_fed[src] and self.readers[number] == {place}
        text = self.parts.shaped.names[source.op] if fed else self._read(src, output, place)
        node = self._typed(number, "Slice", [text, begin, size])
        node.attr["Index"].type = tf.int32.as_datatype_enum
        if fed:
            node.device = self.host

    def _join(self, number: int, part: WorkerPart) -> None:
        inputs = self._inputs(number)
        if part.axis < 0:
            self._typed(number, "Identity", inputs)
            return
        axis = self._constant(np.asarray(part.axis, dtype=np.int32), int(self.parts.place[number]))
        node = self._typed(number, "ConcatV2", [*inputs, axis], N=len(inputs))
        node.attr["Tidx"].type = tf.int32.as_datatype_enum

    def _chain(self, name: str, number: int, inputs: Sequence[str], dtype: int) -> None:
        bools = dtype == tf.bool.as_datatype_enum
        kind = (_OF_BOOLS if bools else _CHAINS)[self.parts.parts[number].reducer]
        last = inputs[0]
        for at, text in enumerate(inputs[1:], 2):
            made = name if at == len(inputs) else f"{name}/{at}"
            node = self._node(made, kind, [last, text], self._device(number))
            if not bools:
                node.attr["T"].type = dtype
            last = made

    def write_fetches(self, fetched: Sequence[int]) -> None:
        """Add the fetches of the whole step under their names: the first worker's results, once all clones have run."""
        ports = iter(self.parts.results)
        for op in fetched:
            outputs, name = self.parts.shaped.signature(op).outputs, self.parts.shaped.names[op]
            brought = [next(ports) for _ in outputs]
            given = [self._port(*port) for port in brought]
            clones = [self.names[part] for part in self.parts.clone[op].tolist() if part >= 0]
            if name in self.fed:
                continue
            kind = "NoOp" if not outputs else "Identity" if len(outputs) == 1 else "IdentityN"
            node = self._node(name, kind, given, self._device(brought[0][0]) if outputs else self.host, clones)
            types = [_enum(dtype) for _, dtype in outputs]
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
    """The value of a constant."""
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, shape=value.shape))
    node.attr["dtype"].type = node.attr["value"].tensor.dtype
