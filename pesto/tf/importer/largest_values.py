"""Upper bounds of whole numbers that a step computes: lengths, counts, indices."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.tf.nodes.needed_nodes import Nodes
from pesto.tf.nodes.sizes import Shape

Tensor = tuple[int, int]
Largest = list[int | None]
_DEPTH = 24
"""Ops that are followed back."""
_MOST = 64
"""Elements of a vector whose bounds are told apart."""
_SAME = frozenset(("Cast", "Identity", "StopGradient", "Squeeze", "ExpandDims", "Reshape", "EnsureShape", "Snapshot"))
_SELECTED = frozenset((
    "DynamicPartition", "Gather", "GatherV2", "GatherNd", "Unique", "UniqueV2", "Slice", "StridedSlice", "Max", "Min",
    "Tile", "Transpose", "BroadcastTo", "ReverseV2",
))  # fmt: skip
"""Ops whose first output has elements of their first input alone."""


def largest(
    nodes: Nodes, shapes: Sequence[Sequence[Shape]], value: Callable[[Tensor], Any], tensor: Tensor, depth: int = _DEPTH
) -> Largest:
    """An upper bound of each element of a vector or scalar; [] where unknown."""
    i, k = tensor
    shape = shapes[i][k]
    found = _of_constant(constant) if (constant := value(tensor)) is not None else None
    if found is None:
        found = _of_op(nodes, tensor, lambda other: largest(nodes, shapes, value, other, depth - 1)) if depth else []
    if len(found) == 1 and shape is not None and -1 not in shape and math.prod(shape) <= _MOST:
        return found * math.prod(shape)
    return found


def _of_op(nodes: Nodes, tensor: Tensor, of: Callable[[Tensor], Largest]) -> Largest:
    """`largest` of what an op computes, by that of its inputs."""

    def one(other: Tensor) -> int | None:
        bounds = of(other)
        return None if not bounds or None in bounds else max(n for n in bounds if n is not None)

    i, k = tensor
    op, inputs = nodes.defs[i].op, nodes.inputs[i]
    found: Largest = []
    if not inputs or k:
        return found
    if op == "Cast" and nodes.dtypes[inputs[0][0]][inputs[0][1]] == tf.bool.as_datatype_enum:
        found = [1]
    elif op in _SAME:
        found = of(inputs[0])
    elif op == "Pack":
        found = [one(t) for t in inputs]
    elif op == "ConcatV2":
        found = [n for t in inputs[:-1] for n in (of(t) or [None])]
    elif op == "Minimum":
        found = [min(known)] if (known := [n for n in map(one, inputs) if n is not None]) else []
    elif op in _SELECTED:
        found = _single(one(inputs[0]))
    elif op in _COMPUTED:
        found = _single(_COMPUTED[op]([one(t) for t in inputs], _elements(nodes, inputs[0])))
    return found


def _elements(nodes: Nodes, tensor: Tensor) -> int | None:
    shape = nodes.shapes[tensor[0]][tensor[1]]
    return None if shape is None or -1 in shape else math.prod(shape)


def _of_constant(constant: Any) -> Largest:
    array = np.asarray(constant)
    if array.dtype.kind not in "iubf" or array.size == 0 or not np.isfinite(array).all():
        return []
    if array.ndim <= 1 and array.size <= _MOST:
        return [math.ceil(n) for n in np.ravel(array).tolist()]
    return [math.ceil(array.max())]


def _single(value: int | None) -> Largest:
    return [] if value is None else [value]


def _total(inputs: Sequence[int | None], elements: int | None) -> int | None:
    first = inputs[0]
    return None if first is None or elements is None else max(first, 0) * elements


def _remainder(inputs: Sequence[int | None], _elements: int | None) -> int | None:
    divisor = inputs[1]
    return divisor - 1 if divisor is not None and divisor > 0 else None


def _of_all(made: Callable[[Sequence[int]], int]) -> Callable[[Sequence[int | None], int | None], int | None]:
    def rule(inputs: Sequence[int | None], _elements: int | None) -> int | None:
        known = [n for n in inputs if n is not None]
        return made(known) if len(known) == len(inputs) else None

    return rule


_COMPUTED: Mapping[str, Callable[[Sequence[int | None], int | None], int | None]] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), lambda _, elements: None if elements is None else elements - 1),
    **dict.fromkeys(("Sum", "Cumsum"), _total),
    **dict.fromkeys(("Add", "AddV2"), _of_all(sum)),
    "Maximum": _of_all(max),
    "FloorMod": _remainder,
}
"""Upper bounds of what ops compute, from those of their inputs and the number of elements of the first."""
