"""The signature of every op of a step."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from pesto.split.signature import RANK, Attribute, Operand, Signature
from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.signatures import RESOURCE
from pesto.tf.nodes.sizes import BoundedShape, KnownShape, is_known
from pesto.tf.private import op_def
from pesto.tf.variables.variables import Roots, declared_shape, resource_origins

# Small integers that a step computes from its shapes: axes, permutations, the shapes of other tensors.

MOST = 64
"""Elements of a constant that is read as a value."""
_SHAPES = ("Shape", "ShapeN", "Size", "Rank")
_KEPT = frozenset(
    t.as_datatype_enum for t in (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.bool, tf.float32, tf.float64)
)
_WHOLE_NUMBERS = frozenset(t.as_datatype_enum for t in (tf.int32, tf.int64, tf.bool))

Tensor = tuple[int, int]
"""A node and the number of its output."""


def constants(nodes: StepNodes) -> dict[Tensor, Any]:
    """The value of each small constant, an array, and of what ops make of nothing but shapes and such constants."""
    values = {
        (i, 0): tf.make_ndarray(node.attr["value"].tensor) for i, node in enumerate(nodes.defs) if _small(nodes, i)
    }
    for i, node in enumerate(nodes.defs):
        if node.op in _SHAPES:
            values.update(_of_shapes(nodes, i))
    folded = _folded(nodes, values)
    return values | _run(nodes, values, folded)


def _small(nodes: StepNodes, i: int) -> bool:
    if nodes.defs[i].op != "Const" or nodes.dtypes[i][0] not in _KEPT:
        return False
    shape = nodes.shapes[i][0]
    return shape is not None and prod(shape) <= MOST


def _of_shapes(nodes: StepNodes, i: int) -> dict[Tensor, Any]:
    """Shapes read as data, where they are known before the step runs."""
    node, values = nodes.defs[i], {}
    for k, shape in enumerate(nodes.input_shapes(i)):
        if shape is None or (-1 in shape and node.op != "Rank"):
            continue
        dtype = np.int64 if nodes.dtypes[i][k] == tf.int64.as_datatype_enum else np.int32
        value = {"Size": prod(shape), "Rank": len(shape)}.get(node.op, shape)
        values[i, k] = np.asarray(value, dtype=dtype)
    return values


def _folded(nodes: StepNodes, values: dict[Tensor, Any]) -> list[int]:
    """Nodes that make whole numbers, few of them, of values that are known."""
    known, folded = set(values), []
    for i, node in enumerate(nodes.defs):
        sources = nodes.inputs[i]
        if not sources or (i, 0) in known or any(tensor not in known for tensor in sources):
            continue
        few = all(t in _WHOLE_NUMBERS for t in nodes.dtypes[i]) and all(
            shape is not None and -1 not in shape and prod(shape) <= MOST for shape in nodes.upper_bounds(i)
        )
        definition = op_def(node.op)
        if few and definition is not None and not definition.is_stateful:
            folded.append(i)
            known.update((i, k) for k in range(len(nodes.dtypes[i])))
    return folded


def _run(nodes: StepNodes, values_known: dict[Tensor, Any], folded: list[int]) -> dict[Tensor, Any]:
    """Evaluate the folded nodes with TensorFlow."""
    if not folded:
        return {}
    inside, program = set(folded), graph_pb2.GraphDef()
    given = {t: f"given/{t[0]}/{t[1]}" for i in folded for t in nodes.inputs[i] if t[0] not in inside}
    for tensor, name in given.items():
        node = program.node.add(name=name, op="Const")
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values_known[tensor]))
        node.attr["dtype"].type = node.attr["value"].tensor.dtype
    for i in folded:
        node = program.node.add(name=f"made/{i}", op=nodes.defs[i].op)
        for name, attribute in nodes.defs[i].attr.items():
            if not name.startswith("_"):
                node.attr[name].CopyFrom(attribute)
        node.input.extend(f"made/{p}:{k}" if p in inside else given[p, k] for p, k in nodes.inputs[i])
    made = [(i, k) for i in folded for k in range(len(nodes.dtypes[i]))]
    with tf.Graph().as_default() as graph, tf.device("/CPU:0"):
        tf.import_graph_def(program, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            values = session.run([f"made/{i}:{k}" for i, k in made])
    return dict(zip(made, values, strict=True))


_HANDLES = ("VarHandleOp", "Placeholder")
"""Op types that make a variable's handle: in a function's graph a placeholder, which has its shape as well."""
_OWN = frozenset(("container", "shared_name", "seed", "seed2", "config_proto", "allowed_devices", "debug_name"))
"""Attributes that tell one op from another of its kind."""


def op_signatures(nodes: StepNodes) -> list[Signature]:
    """[n] what each op is, equal ones being one value; a handle of a variable has the shape of what it holds."""
    values, root = constants(nodes), resource_origins(nodes)
    same: dict[Signature, Signature] = {}
    signatures = []
    for i, node in enumerate(nodes.defs):
        inputs = tuple(_operand(nodes, tensor, values, root) for tensor in nodes.inputs[i])
        sizes = [_size(nodes, (i, k), values) for k in range(len(nodes.dtypes[i]))]
        outputs = tuple((shape, _name(dtype)) for (shape, _), dtype in zip(sizes, nodes.dtypes[i], strict=True))
        bounded = tuple(dimensions for _, dimensions in sizes)
        made = Signature(node.op, _attributes(node), inputs, outputs, bounded if any(bounded) else ())
        signatures.append(same.setdefault(made, made))
    return signatures


def _operand(nodes: StepNodes, tensor: tuple[int, int], values: dict[tuple[int, int], Any], root: Roots) -> Operand:
    i, k = tensor
    dtype = nodes.dtypes[i][k]
    if dtype == RESOURCE:
        node = nodes.defs[root[i][k]]
        if node.op in _HANDLES:
            shape = declared_shape(node)
            return Operand(shape if is_known(shape) else None, f"resource:{_name(node.attr['dtype'].type)}")
    value = values.get(tensor)
    shape, bounded = _size(nodes, tensor, values)
    return Operand(shape, _name(dtype), None if value is None else _nested(value.tolist()), bounded)


def _size(
    nodes: StepNodes, tensor: tuple[int, int], values: dict[tuple[int, int], Any]
) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """The shape of a tensor, or its upper bound, and the dimensions of which it is just that."""
    if tensor in values:
        return values[tensor].shape, ()
    size = nodes.size(*tensor)
    if isinstance(size, KnownShape):
        return size.extents, ()
    if isinstance(size, BoundedShape):
        known = size.known
        return size.upper_bound, (RANK,) if known is None else tuple(d for d, n in enumerate(known) if n < 0)
    return None, ()


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


def _name(dtype: int) -> str:
    return tf.as_dtype(dtype % 100).name


def _attributes(node: Any) -> tuple[tuple[str, Attribute], ...]:
    """Return the attributes that the op type defines, without large tensors."""
    attributes = {name: _attribute(value) for name, value in node.attr.items() if name[0] != "_" and name not in _OWN}
    return tuple(sorted((name, value) for name, value in attributes.items() if value is not None))


def _attribute(value: Any) -> Attribute | None:
    kind = value.WhichOneof("value")
    return _READ[kind](value) if kind in _READ else None


def _listed(listed: Any) -> Attribute:
    if listed.type:
        return tuple(map(_name, listed.type))
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
    "type": lambda value: _name(value.type),
    "shape": lambda value: "unknown" if value.shape.unknown_rank else tuple(d.size for d in value.shape.dim),
    "func": lambda value: str(value.func.name),
    "list": lambda value: _listed(value.list),
}
"""Kind of attribute -> reader of its value."""
