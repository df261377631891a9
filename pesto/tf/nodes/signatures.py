"""Types of an op's inputs and outputs, read from its OpDef and the node's attributes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.tf.private import op_def

RESOURCE, VARIANT, STRING = (t.as_datatype_enum for t in (tf.resource, tf.variant, tf.string))
TRAVELS_NOT = frozenset((RESOURCE, VARIANT, STRING))
"""Data types that are handles or stay on the host; they count no bytes."""
_REF = 100
"""TensorFlow adds this to a data type's number for a reference to it."""


class _Arg(NamedTuple):
    name: str
    dtype: int
    type_attr: str
    list_attr: str
    number_attr: str
    is_ref: bool


class _Signature(NamedTuple):
    inputs: tuple[_Arg, ...]
    outputs: tuple[_Arg, ...]


@dataclass(frozen=True, slots=True)
class Signatures:
    """Looks op types up once each; `library` are the FunctionDefs by name that a node may call directly."""

    library: Mapping[str, Any]
    _known: dict[str, _Signature] = field(default_factory=dict)

    def output_types(self, node: Any) -> tuple[int, ...]:
        """Data type numbers of a node's outputs; references count as what they refer to."""
        return tuple(t % _REF for a in self._of(node).outputs for t in _expand(a, node))

    def input_refs(self, node: Any) -> tuple[bool, ...]:
        """Return one flag an input, true for references to variables; empty when there is none."""
        return _refs(self._of(node).inputs, node)

    def output_refs(self, node: Any) -> tuple[bool, ...]:
        """Return one flag an output, true for references to variables; empty when there is none."""
        return _refs(self._of(node).outputs, node)

    def has_ref(self, node: Any) -> bool:
        """Return True if the op makes or takes references."""
        signature = self._of(node)
        return any(a.is_ref for a in signature.inputs) or any(a.is_ref for a in signature.outputs)

    def output_offset(self, node: Any, name: str) -> int:
        """Flat index of the first tensor of a named output; InputError when there is none."""
        at = 0
        for a in self._of(node).outputs:
            if a.name == name:
                return at
            at += len(_expand(a, node))
        raise InputError.build(
            f"op {shown(node.name)} of type {node.op} has no output {name!r}", remedy="the graph is damaged"
        )

    def _of(self, node: Any) -> _Signature:
        signature = self._known.get(node.op)
        if signature is None:
            definition = self.library[node.op].signature if node.op in self.library else op_def(node.op)
            if definition is None:
                raise InputError.build(
                    f"op {shown(node.name)}: TensorFlow {tf.__version__} has no op type {node.op}",
                    remedy=("load the library that registers it (tf.load_op_library) in the module of a function"),
                )
            signature = _Signature(_args(definition.input_arg), _args(definition.output_arg))
            self._known[node.op] = signature
        return signature


def _args(args: Any) -> tuple[_Arg, ...]:
    return tuple(_Arg(a.name, a.type, a.type_attr, a.type_list_attr, a.number_attr, a.is_ref) for a in args)


def _refs(args: tuple[_Arg, ...], node: Any) -> tuple[bool, ...]:
    if not any(a.is_ref for a in args):
        return ()
    return tuple(a.is_ref for a in args for _ in _expand(a, node))


def _expand(arg: _Arg, node: Any) -> list[int]:
    if arg.list_attr:
        return list(node.attr[arg.list_attr].list.type)
    dtype = arg.dtype or node.attr[arg.type_attr].type
    return [dtype] * (node.attr[arg.number_attr].i if arg.number_attr else 1)
