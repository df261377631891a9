"""The signature of every op of a step."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pesto.split.signature import Attribute, Operand, Signature
from pesto.tf.nodes.needed_nodes import Nodes, Shape
from pesto.tf.nodes.signatures import RESOURCE
from pesto.tf.shaping.constants import constants
from pesto.tf.variables.variables import Roots, declared_shape, roots

_HANDLES = ("VarHandleOp", "Placeholder")
"""What a handle of a variable comes from: in a function's graph a placeholder, which has its shape as well."""
_OWN = frozenset(("container", "shared_name", "seed", "seed2", "config_proto", "allowed_devices", "debug_name"))
"""Attributes that tell one op from another of its kind."""


def op_signatures(nodes: Nodes) -> list[Signature]:
    """[n] what each op is, equal ones being one value; a handle of a variable has the shape of what it holds."""
    values, root = constants(nodes), roots(nodes)
    same: dict[Signature, Signature] = {}
    found = []
    for i, node in enumerate(nodes.defs):
        inputs = tuple(_operand(nodes, tensor, values, root) for tensor in nodes.inputs[i])
        outputs = tuple(
            (_closed(shape), _name(dtype)) for shape, dtype in zip(nodes.shapes[i], nodes.dtypes[i], strict=True)
        )
        made = Signature(node.op, _attributes(node), inputs, outputs)
        found.append(same.setdefault(made, made))
    return found


def _operand(nodes: Nodes, tensor: tuple[int, int], values: dict[tuple[int, int], Any], root: Roots) -> Operand:
    i, k = tensor
    dtype = nodes.dtypes[i][k]
    if dtype == RESOURCE:
        node = nodes.defs[root[i][k]]
        if node.op in _HANDLES:
            return Operand(_closed(declared_shape(node)), f"resource:{_name(node.attr['dtype'].type)}")
    value = values.get(tensor)
    if value is None:
        return Operand(_closed(nodes.shapes[i][k]), _name(dtype))
    return Operand(value.shape, _name(dtype), _nested(value.tolist()))  # what shapes say may be a guess: of axes, say


def _closed(shape: Shape) -> tuple[int, ...] | None:
    return None if shape is None or -1 in shape else shape


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


def _name(dtype: int) -> str:
    return tf.as_dtype(dtype % 100).name


def _attributes(node: Any) -> tuple[tuple[str, Attribute], ...]:
    """Those that the op type defines, without large tensors."""
    found = {name: _attribute(value) for name, value in node.attr.items() if name[0] != "_" and name not in _OWN}
    return tuple(sorted((name, value) for name, value in found.items() if value is not None))


def _attribute(value: Any) -> Attribute | None:
    kind = value.WhichOneof("value")
    return _READ[kind](value) if kind in _READ else None


def _listed(found: Any) -> Attribute:
    if found.type:
        return tuple(map(_name, found.type))
    if found.s:
        return tuple(s.decode(errors="replace") for s in found.s)
    if found.shape:
        return tuple(tuple(d.size for d in shape.dim) for shape in found.shape)
    return (*found.i, *found.f, *found.b)


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
"""What an attribute holds, by its kind."""
