"""From a captured training step to `TypedGraph`: signatures of its ops, its variables, and which of them lie alike."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from pesto.core.errors import InputError
from pesto.core.graph import Graph
from pesto.split.geometry import Shape
from pesto.split.ops.op_types import CLASSES, NEVER_DIVIDED, ONCE
from pesto.split.typed_graph import RANK, Attribute, Operand, Signature, TypedGraph
from pesto.tf.importer.importer import build_graph
from pesto.tf.importer.shapes import resolve_shapes
from pesto.tf.nodes import v1_loops
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.needed_nodes import RESOURCE, BoundedShape, KnownShape, StepNodes, is_known
from pesto.tf.nodes.shape_inference import READ_ITERATOR
from pesto.tf.nodes.trip_counts import LOOPS
from pesto.tf.private import op_def
from pesto.tf.variables.variables import BRANCHES, Roots, declared_shape, find_resource_origins
from solvers.arrays import bools, ints

MOST = 64
"""Elements of a constant that is read as a value."""
_OPTIMIZERS_BRANCH = (
    "where the branch is an optimizer's own, as of Keras with gradient_accumulation_steps, leave that option out, or "
    "place the step whole by pesto.solve, which takes it as it is"
)
_LIKE_PURE = frozenset(("VarHandleOp", "Placeholder", "NoOp", "ReadVariableOp"))
_SHAPES = ("Shape", "ShapeN", "Size", "Rank")
_KEPT = frozenset(
    t.as_datatype_enum for t in (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.bool, tf.float32, tf.float64)
)
_WHOLE_NUMBERS = frozenset(t.as_datatype_enum for t in (tf.int32, tf.int64, tf.bool))
_HANDLES = ("VarHandleOp", "Placeholder")
"""Op types that make a variable's handle: in a function's graph a placeholder, which has its shape as well."""
_OWN = frozenset(("container", "shared_name", "seed", "seed2", "config_proto", "allowed_devices", "debug_name"))
"""Attributes that tell one op from another of its kind."""

Tensor = tuple[int, int]
"""A node and the number of its output."""
Use = tuple[int, int, int]
"""An op, the input by which it takes a variable's handle, and the variable."""


def shape(captured: CapturedStep, *, batch: int | None = None) -> tuple[Graph, TypedGraph]:
    """Return a step's graph, and its ops as `TypedGraph`. Raise what `build_graph` and `shape_of` raise."""
    graph = build_graph(captured, batch=batch)
    return graph, shape_of(captured, graph, batch)


def shape_of(captured: CapturedStep, graph: Graph, batch: int | None) -> TypedGraph:
    """Return the ops of `graph`, which was built of `captured`. Raise InputError for what cannot be divided yet.

    That is loops of TensorFlow 1, reference variables, and loops and branches that take a variable's handle.
    """
    nodes = resolve_shapes(captured, batch)
    if (v1_loops.find_outermost_loops(nodes) >= 0).any():
        raise InputError.build(
            "loops of TensorFlow 1 cannot be divided",
            where=captured.source,
            remedy="build the step with tf.while_loop v2",
        )
    typed = shaped(nodes, graph)
    for node in nodes.defs:
        if nodes.signatures.has_ref(node):
            raise InputError.build(
                f"op {node.name}: a reference variable cannot be divided", remedy="build it with use_resource=True"
            )
        if node.op in READ_ITERATOR:
            raise InputError.build(
                f"op {node.name}: it takes the batch from an iterator, of which every worker would take another one, "
                "so the step cannot be divided",
                remedy="give the batch to the step as an argument; pesto.solve and pesto.apply place it as it is",
            )
    for op in typed.use_op.tolist():
        if typed.once[op]:
            kind = typed.signature(op).type
            before = "build a recurrent layer with unroll=True; otherwise " if kind in LOOPS else ""
            behind = f"; {_OPTIMIZERS_BRANCH}" if kind in BRANCHES else ""
            raise InputError.build(
                f"op {typed.names[op]}: it runs once and reads a variable itself, which cannot be divided",
                remedy=f"{before}read the variable before it, and hand the value on{behind}",
            )
    return typed


def shaped(nodes: StepNodes, graph: Graph) -> TypedGraph:
    """Return the ops of `graph`, which was built of `nodes`."""
    signatures = make_signatures(nodes)
    number = {signature: k for k, signature in enumerate(dict.fromkeys(signatures))}
    edges = [(p, k, i, slot) for i, inputs in enumerate(nodes.inputs) for slot, (p, k) in enumerate(inputs)]
    src, output, dst, place = np.array(edges, dtype=np.int64).reshape(-1, 4).T
    root = find_resource_origins(nodes)
    handle = [i for i, of in enumerate(root) if i in of]
    variable = {i: v for v, i in enumerate(handle)}
    uses = [(i, slot, variable[root[p][k]]) for p, k, i, slot in edges if root[p][k] >= 0]
    use_op, use_input, use_variable = np.array(uses, dtype=np.int64).reshape(-1, 3).T
    return TypedGraph(
        names=tuple(node.name for node in nodes.defs),
        signatures=tuple(number),
        signature_of=ints([number[signature] for signature in signatures]),
        src=src,
        output=output,
        dst=dst,
        input=place,
        control_src=ints([p for i, inputs in enumerate(nodes.controls) for p in inputs]),
        control_dst=ints([i for i, inputs in enumerate(nodes.controls) for _ in inputs]),
        handle=ints(handle),
        tie=ints(find_tied_variables(signatures, nodes.inputs, uses, len(handle))),
        use_op=use_op,
        use_input=use_input,
        use_variable=use_variable,
        once=bools([_runs_once(node.op) for node in nodes.defs]),
        source=graph.source,
        origin=graph.origin,
        fingerprint=graph.fingerprint(),
        batch=graph.batch,
        feed_shapes=graph.feed_shapes,
    )


def _runs_once(op_type: str) -> bool:
    if NEVER_DIVIDED.get(op_type) == ONCE:
        return True
    definition = op_def(op_type)
    if definition is None:
        return True
    takes = any(argument.type == 20 for argument in definition.input_arg)  # DT_RESOURCE
    return bool(definition.is_stateful) and op_type not in _LIKE_PURE and not takes


def make_signatures(nodes: StepNodes) -> list[Signature]:
    """Return [n] the signature of each op, equal ones being one value; a variable's handle has the variable's shape."""
    values, root = constants(nodes), find_resource_origins(nodes)
    same: dict[Signature, Signature] = {}
    signatures = []
    for i, node in enumerate(nodes.defs):
        inputs = tuple(_to_operand(nodes, tensor, values, root) for tensor in nodes.inputs[i])
        sizes = [_get_size(nodes, (i, k), values) for k in range(len(nodes.dtypes[i]))]
        outputs = tuple((shape, _read_name(dtype)) for (shape, _), dtype in zip(sizes, nodes.dtypes[i], strict=True))
        bounded = tuple(dimensions for _, dimensions in sizes)
        # The attributes that the op type defines, without large tensors.
        attributes = {
            name: _READ[kind](value)
            for name, value in node.attr.items()
            if name[0] != "_" and name not in _OWN and (kind := value.WhichOneof("value")) in _READ
        }
        signature = Signature(
            node.op, tuple(sorted(attributes.items())), inputs, outputs, bounded if any(bounded) else ()
        )
        signatures.append(same.setdefault(signature, signature))
    return signatures


def _to_operand(nodes: StepNodes, tensor: tuple[int, int], values: dict[tuple[int, int], Any], root: Roots) -> Operand:
    i, k = tensor
    dtype = nodes.dtypes[i][k]
    if dtype == RESOURCE:
        node = nodes.defs[root[i][k]]
        if node.op in _HANDLES:
            shape = declared_shape(node)
            return Operand(shape if is_known(shape) else None, f"resource:{_read_name(node.attr['dtype'].type)}")
    value = values.get(tensor)
    shape, bounded = _get_size(nodes, tensor, values)
    return Operand(shape, _read_name(dtype), None if value is None else _read_nested(value.tolist()), bounded)


def _get_size(
    nodes: StepNodes, tensor: tuple[int, int], values: dict[tuple[int, int], Any]
) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """Return the shape of a tensor, or its upper bound, and the dimensions of which it is just that."""
    if tensor in values:
        return values[tensor].shape, ()
    size = nodes.size(*tensor)
    if isinstance(size, KnownShape):
        return size.extents, ()
    if isinstance(size, BoundedShape):
        is_known = size.known
        return size.upper_bound, (RANK,) if is_known is None else tuple(d for d, n in enumerate(is_known) if n < 0)
    return None, ()


def _read_nested(value: Any) -> Any:
    return tuple(map(_read_nested, value)) if isinstance(value, list) else value


def _read_name(dtype: int) -> str:
    return tf.as_dtype(dtype % 100).name


def _read_list(listed: Any) -> Attribute:
    if listed.type:
        return tuple(map(_read_name, listed.type))
    if listed.s:
        return tuple(s.decode(errors="replace") for s in listed.s)
    if listed.shape:
        return tuple(tuple(d.size for d in shape.dim) for shape in listed.shape)
    return (*listed.i, *listed.f, *listed.b)


_READ: dict[str, Callable[[Any], Attribute]] = {
    "i": lambda value: int(value.i),
    "f": lambda value: float(value.f),
    "b": lambda value: bool(value.b),
    "s": lambda value: str(value.s.decode(errors="replace")),
    "type": lambda value: _read_name(value.type),
    "shape": lambda value: "unknown" if value.shape.unknown_rank else tuple(d.size for d in value.shape.dim),
    "func": lambda value: str(value.func.name),
    "list": lambda value: _read_list(value.list),
}
"""Kind of attribute -> reader of its value."""


def constants(nodes: StepNodes) -> dict[Tensor, Any]:
    """Return the value of each small constant, an array, and of what ops make of nothing but shapes and such constants.

    These are small integers that a step computes from its shapes: axes, permutations, the shapes of other tensors.
    """
    values: dict[Tensor, Any] = {}
    for i, node in enumerate(nodes.defs):
        if node.op == "Const" and nodes.dtypes[i][0] in _KEPT:
            size = nodes.shapes[i][0]
            if size is not None and prod(size) <= MOST:
                values[i, 0] = tf.make_ndarray(node.attr["value"].tensor)
        for k, size in enumerate(nodes.input_shapes(i)) if node.op in _SHAPES else ():
            if size is not None and (-1 not in size or node.op == "Rank"):
                dtype = np.int64 if nodes.dtypes[i][k] == tf.int64.as_datatype_enum else np.int32
                value = {"Size": prod(size), "Rank": len(size)}.get(node.op, size)
                values[i, k] = np.asarray(value, dtype=dtype)
    # Nodes that make whole numbers, few of them, of values that are known.
    evaluated, folded = set(values), []
    for i, node in enumerate(nodes.defs):
        sources = nodes.inputs[i]
        if not sources or (i, 0) in evaluated or any(tensor not in evaluated for tensor in sources):
            continue
        few = all(t in _WHOLE_NUMBERS for t in nodes.dtypes[i]) and all(
            size is not None and -1 not in size and prod(size) <= MOST for size in nodes.upper_bounds(i)
        )
        definition = op_def(node.op)
        if few and definition is not None and not definition.is_stateful:
            folded.append(i)
            evaluated.update((i, k) for k in range(len(nodes.dtypes[i])))
    return values | _evaluate(nodes, values, folded)


def _evaluate(nodes: StepNodes, values_known: dict[Tensor, Any], folded: list[int]) -> dict[Tensor, Any]:
    """Evaluate the folded nodes with TensorFlow."""
    if not folded:
        return {}
    inside, program = set(folded), graph_pb2.GraphDef()
    placeholder_names = {t: f"given/{t[0]}/{t[1]}" for i in folded for t in nodes.inputs[i] if t[0] not in inside}
    for tensor, name in placeholder_names.items():
        node = program.node.add(name=name, op="Const")
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values_known[tensor]))
        node.attr["dtype"].type = node.attr["value"].tensor.dtype
    for i in folded:
        node = program.node.add(name=f"made/{i}", op=nodes.defs[i].op)
        for name, attribute in nodes.defs[i].attr.items():
            if not name.startswith("_"):
                node.attr[name].CopyFrom(attribute)
        node.input.extend(f"made/{p}:{k}" if p in inside else placeholder_names[p, k] for p, k in nodes.inputs[i])
    outputs = [(i, k) for i in folded for k in range(len(nodes.dtypes[i]))]
    with tf.Graph().as_default() as graph, tf.device("/CPU:0"):
        tf.import_graph_def(program, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            values = session.run([f"made/{i}:{k}" for i, k in outputs])
    return dict(zip(outputs, values, strict=True))


def find_tied_variables(
    signatures: Sequence[Signature], inputs: Sequence[Sequence[tuple[int, int]]], uses: Sequence[Use], variables: int
) -> list[int]:
    """Return [v] the least of the variables that each lies like; only variables of one shape lie alike.

    inputs: of each op the (op, output) that it reads. Alike are variables that one op takes, as ResourceApplyAdam; and
    a weight with what element-wise ops alone bring to its updates, or bring it to, where that is a slot: a variable
    that serves nothing but updates. No two weights are tied, whatever a slot of one has to do with the other.
    """
    step = _UpdateFlow(signatures, inputs, uses)
    sets = _VariableSets(variables, [v for v in range(variables) if v not in step.slots])
    taken: dict[tuple[int, Shape | None], int] = {}
    for op, slot, v in uses:
        sets.join(taken.setdefault((op, signatures[op].inputs[slot].shape), v), v)
    pairs = step.pairs()
    for written, read in sorted(pairs, key=lambda pair: (pair[0] in step.slots, pair)):
        if written in step.slots or read in step.slots:
            sets.join(written, read, two_weights=False)
    return [sets.of(v) for v in range(variables)]


class _VariableSets:
    """Variables that lie alike, and the weights among them."""

    def __init__(self, variables: int, weights: Iterable[int]) -> None:
        self._up = list(range(variables))
        self._weights = dict.fromkeys(weights, 1)

    def of(self, v: int) -> int:
        while self._up[v] != v:
            self._up[v] = self._up[self._up[v]]
            v = self._up[v]
        return v

    def join(self, one: int, other: int, *, two_weights: bool = True) -> None:
        low, high = sorted((self.of(one), self.of(other)))
        many = self._weights.get(low, 0) + self._weights.get(high, 0)
        if low != high and (two_weights or many < 2):
            self._up[high], self._weights[low] = low, many


class _UpdateFlow:
    """Readers and writers of variables, and the ops between them."""

    def __init__(
        self, signatures: Sequence[Signature], inputs: Sequence[Sequence[tuple[int, int]]], uses: Sequence[Use]
    ) -> None:
        self.signatures, self.inputs = signatures, inputs
        self.read_of = {op: v for op, _, v in uses if signatures[op].type == "ReadVariableOp"}
        self.written_by: dict[int, list[int]] = defaultdict(list)
        self.shape: dict[int, Shape | None] = {}
        self.others: set[int] = set()
        """Variables that an op takes which neither hands on its value nor updates it alone."""
        for op, slot, v in uses:
            self.shape[v] = signatures[op].inputs[slot].shape
            if not signatures[op].outputs:
                self.written_by[op].append(v)
            elif op not in self.read_of:
                self.others.add(v)
        self.readers: dict[int, list[int]] = defaultdict(list)
        for op, op_inputs in enumerate(inputs):
            for p, _ in op_inputs:
                self.readers[p].append(op)

    @cached_property
    def slots(self) -> frozenset[int]:
        """Variables that are updated, and whose values element-wise ops bring to updates, and to nothing else."""
        reads: dict[int, list[int]] = defaultdict(list)
        for op, v in self.read_of.items():
            reads[v].append(op)
        updated = {v for written in self.written_by.values() for v in written} - self.others
        return frozenset(v for v in updated if self.shape[v] and self._serves_updates(reads[v], self.shape[v]))

    def _serves_updates(self, reads: list[int], shape: Shape | None) -> bool:
        visited, left = set(reads), list(reads)
        while left:
            after = self.readers[left.pop()]
            if not after or not all(op in self.written_by or self._is_elementwise(op, shape) for op in after):
                return False
            more = {op for op in after if op not in self.written_by} - visited
            visited |= more
            left += more
        return True

    def pairs(self) -> set[tuple[int, int]]:
        """Return (a variable that is updated, another of its shape whose value element-wise ops bring there)."""
        pairs = set()
        for op, written in self.written_by.items():
            for v in written:
                shape, visited, left = self.shape[v], {op}, [op] if self.shape[v] else []
                while left:
                    for p, _ in self.inputs[left.pop()]:
                        read = self.read_of.get(p)
                        if read is not None and read != v and self.shape[read] == shape:
                            pairs.add((v, read))
                        elif read is None and p not in visited and self._is_elementwise(p, shape):
                            visited.add(p)
                            left.append(p)
        return pairs

    def _is_elementwise(self, op: int, shape: Shape | None) -> bool:
        signature = self.signatures[op]
        return signature.type in CLASSES["elementwise"] and all(output == shape for output, _ in signature.outputs)
