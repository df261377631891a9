"""The signature of every op of a step."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pesto.split.signature import RANK, Attribute, Operand, Signature
from pesto.tf.nodes.needed_nodes import StepNodes
from pesto.tf.nodes.signatures import RESOURCE
from pesto.tf.nodes.sizes import BoundedShape, KnownShape, is_known
from pesto.tf.shaping.constants import constants
from pesto.tf.variables.variables import Roots, declared_shape, resource_origins

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
