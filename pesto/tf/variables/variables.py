"""Contents of variables, and the origins of their handles."""

import functools
import math
from typing import Any

import tensorflow as tf

from pesto.core.graph import Variable, unique_name
from pesto.tf.nodes.needed_nodes import Shape, StepNodes
from pesto.tf.nodes.signatures import RESOURCE, TRAVELS_NOT

_REF_VARIABLES = ("VariableV2", "Variable", "TemporaryVariable")
NAMED = ("VarHandleOp", "VariableV2", "Variable")
"""Ops that make a variable of a name, which they may share with others."""
_ANONYMOUS = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"
"""The shared name that TensorFlow gives to handles that share with none."""
_ALIGNED = ("While", "StatelessWhile", "IdentityN")
_TOO_LARGE = 1 << 62


@functools.cache
def size_of(dtype: int) -> int:
    """Bytes of one element, by data type number; at least 1 for packed types."""
    return max(1, int(tf.as_dtype(dtype).size))


def bytes_of(dtype: int, shape: Shape) -> int:
    """Bytes of a tensor, 0 when its shape is unknown or it does not travel; capped so that sums fit 64 bits."""
    if shape is None or -1 in shape or dtype in TRAVELS_NOT:
        return 0
    return min(math.prod(shape) * size_of(dtype), _TOO_LARGE)


Roots = list[tuple[int, ...]]
"""[n] for each output of a node, the node that made the handle it carries; -1 where it is no resource."""


def resource_origins(nodes: StepNodes) -> Roots:
    """Return the origin of each resource, through identities, switches, and loops (output k is argument k)."""
    origins: Roots = []
    for i, dtypes in enumerate(nodes.dtypes):
        if RESOURCE not in dtypes:
            origins.append((-1,) * len(dtypes))
            continue
        # The edge that closes a v1 loop comes from a node that is not reached yet.
        given = [origins[p][k] if p < i else -1 for p, k in nodes.inputs[i]]
        aligned = nodes.defs[i].op in _ALIGNED
        first = next((g for g in given if g >= 0), i)
        origins.append(
            tuple(-1 if t != RESOURCE else given[k] if aligned else first for k, t in enumerate(dtypes))
        )  # fmt: skip
    return origins


def value_bytes(nodes: StepNodes, root: Roots) -> list[int]:
    """[n] bytes of the variable that a handle or a reference variable holds; 0 for every other op.

    A handle without a shape (a captured one, in a GraphDef from a file) holds what its readers read.
    """
    sizes = [0] * len(nodes.defs)
    for i, node in enumerate(nodes.defs):
        if node.op == "VarHandleOp" or node.op in _REF_VARIABLES:
            sizes[i] = bytes_of(node.attr["dtype"].type, declared_shape(node))
    for i, node in enumerate(nodes.defs):
        if node.op == "ReadVariableOp" and nodes.inputs[i]:
            p, k = nodes.inputs[i][0]
            handle = root[p][k]
            if handle >= 0 and not sizes[handle]:
                sizes[handle] = bytes_of(nodes.dtypes[i][0], nodes.shapes[i][0])
    return sizes


def shared_key(node: Any) -> tuple[bytes, bytes]:
    """The container and the name of the variable that a node makes: nodes with the same ones make one variable."""
    name = node.attr["shared_name"].s
    return node.attr["container"].s, node.name.encode() if name in (b"", _ANONYMOUS) else name


def named_variables(nodes: StepNodes) -> tuple[tuple[Variable, ...], list[int]]:
    """(variables of a step, [n] the index of the one that each node makes, or -1)."""
    place: dict[tuple[bytes, bytes], int] = {}
    variables: list[Variable] = []
    taken: dict[str, int] = {}
    of = [-1] * len(nodes.defs)
    for i, node in enumerate(nodes.defs):
        if node.op in NAMED:
            key = shared_key(node)
            of[i] = place.setdefault(key, len(place))
            if of[i] == len(variables):
                name = unique_name(key[1].decode(errors="replace"), taken)
                dtype = tf.as_dtype(node.attr["dtype"].type).base_dtype.name
                variables.append(Variable(name, dtype, declared_shape(node)))
    return tuple(variables), of


def declared_shape(node: Any) -> Shape:
    """The `shape` attribute of a variable or placeholder."""
    shape = node.attr["shape"].shape
    return None if shape.unknown_rank else tuple(d.size for d in shape.dim)
