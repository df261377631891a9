"""Values of tensors that the graph determines: constants, sizes and arithmetic on them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.tf.nodes.trip_counts import LOOPS
from pesto.tf.run.function_scopes import FunctionScope, ScopeTensor

_LARGEST = 1 << 16
"""Elements up to which a value is worked out."""
_DEPTH = 24
SAME = frozenset((
    "Identity", "StopGradient", "PreventGradient", "Snapshot", "EnsureShape", "Enter", "Exit", "Cast",
))  # fmt: skip
_ALIKE = SAME | {"Reshape", "ExpandDims", "Squeeze", "Tile", "BroadcastTo", "Transpose"}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add, "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply, "Minimum": np.minimum,
    "Maximum": np.maximum, "FloorDiv": np.floor_divide,
}  # fmt: skip


def trace_origin(scope: FunctionScope, tensor: ScopeTensor) -> tuple[FunctionScope, ScopeTensor]:
    """Follow a tensor back through identities and function arguments to its origin; stop where a loop changes it."""
    for _ in range(1000):
        if tensor.node in scope.arguments and scope.caller is not None:
            outer, name = scope.caller
            first = 1 if "If" in outer.nodes[name].op or "Case" in outer.nodes[name].op else 0
            place = scope.arguments[tensor.node] + first
            if place >= len(outer.inputs[name]) or varies_by_trip(scope, tensor):
                break
            scope, tensor = outer, outer.inputs[name][place]
            continue
        node = scope.nodes.get(tensor.node)
        if (
            node is None
            or node.op not in ("Identity", "Enter", "StopGradient", "Switch")
            or not scope.inputs[node.name]
        ):
            break
        tensor = scope.inputs[node.name][0]
    return scope, tensor


def varies_by_trip(scope: FunctionScope, argument: ScopeTensor) -> bool:
    """Return True if an argument is a loop variable that may change from trip to trip."""
    if scope.caller is None or scope.caller[0].nodes[scope.caller[1]].op not in LOOPS:
        return False
    return scope.arguments[argument.node] not in scope.results.get(argument, ())


def _trips(scope: FunctionScope, argument: ScopeTensor) -> tuple[float, float] | None:
    """The least and the largest value of a loop's counter, where the graph tells how often the loop runs."""
    if scope.caller is None or argument.node not in scope.arguments or not varies_by_trip(scope, argument):
        return None
    outer, name = scope.caller
    place = scope.arguments[argument.node]
    count, first = outer.trips.get(name), constant_value(outer, outer.inputs[name][place])
    made = next((tensor for tensor, places in scope.results.items() if place in places), None)
    if not count or first is None or np.size(first) != 1 or made is None:
        return None
    _, made = trace_origin(scope, made)
    node = scope.nodes.get(made.node)
    if node is None or node.op not in ("Add", "AddV2") or argument not in scope.inputs[node.name]:
        return None
    by = [constant_value(scope, tensor) for tensor in scope.inputs[node.name] if tensor != argument]
    if len(by) != 1 or by[0] is None or np.size(by[0]) != 1 or by[0] != 1:
        return None
    return float(first), float(first) + count - 1


def constant_value(scope: FunctionScope, tensor: ScopeTensor, depth: int = 0) -> Any | None:
    """The numbers of a tensor as an array; None where they depend on what is fed or are many."""
    scope, tensor = trace_origin(scope, tensor)
    node = scope.nodes.get(tensor.node)
    if node is None or depth > _DEPTH:
        return None
    if node.op == "Const":
        array = tf.make_ndarray(node.attr["value"].tensor) if _small(node) else None
        return array if array is not None and array.dtype.kind in "iufb" else None
    if node.op in ("Shape", "Size"):
        shape = scope.shape(scope.inputs[node.name][0])
        if shape is None or -1 in shape:
            return None
        return np.array(shape, dtype=np.int64) if node.op == "Shape" else np.array(math.prod(shape))
    given = [constant_value(scope, part, depth + 1) for part in scope.inputs[node.name]]
    if not given or any(part is None for part in given):
        return None
    return _computed(node, given)


def _small(node: Any) -> bool:
    shape = node.attr["value"].tensor.tensor_shape
    return math.prod(d.size for d in shape.dim) <= _LARGEST


def _computed(node: Any, given: list[Any]) -> Any | None:
    """The output of an op of which all inputs are known; None for an op that is not."""
    if node.op in _ARITHMETIC:
        result = _elementwise(_ARITHMETIC[node.op], given)
    elif node.op == "Range":
        result = _counted(*(float(part) for part in given))
    elif node.op == "StridedSlice":
        result = _element(node, given)
    elif node.op == "Pack":
        result = np.stack(given) if len({np.shape(part) for part in given}) == 1 else None
    elif node.op in ("ExpandDims", "Squeeze", "Reshape"):  # only the numbers count, in their order
        result = np.reshape(given[0], -1) if np.ndim(given[0]) else given[0]
    elif node.op == "Prod":
        result = np.array(np.prod(given[0]))
    else:
        result = given[0] if node.op in SAME else None
    return result


def _elementwise(compute: Callable[[Any, Any], Any], given: list[Any]) -> Any | None:
    try:
        result = compute(given[0], given[1])
    except (ValueError, ZeroDivisionError):
        return None
    return result if np.size(result) <= _LARGEST else None


def _counted(first: float, limit: float, step: float) -> Any | None:
    many = (limit - first) / step if step else 0
    return first + step * np.arange(math.ceil(many)) if 0 < many <= _LARGEST else None


def _element(node: Any, given: list[Any]) -> Any | None:
    """Return one element of a vector, such as a shape."""
    if node.attr["shrink_axis_mask"].i != 1 or np.ndim(given[0]) != 1:
        return None
    place = int(np.ravel(given[1])[0])
    return given[0][place] if -len(given[0]) <= place < len(given[0]) else None


def value_interval(scope: FunctionScope, tensor: ScopeTensor) -> tuple[float, float] | None:
    """The least and the largest number that a tensor can hold; None where nothing says."""
    for _ in range(1000):
        scope, tensor = trace_origin(scope, tensor)
        known = constant_value(scope, tensor)
        if known is not None and np.size(known):
            return float(np.min(known)), float(np.max(known))
        node = scope.nodes.get(tensor.node)
        if node is None:
            return _trips(scope, tensor)
        inputs = scope.inputs[node.name]
        if node.op == "ArgMax":
            axis = constant_value(scope, inputs[1])
            classes = None if axis is None else scope.dimension(inputs[0], int(axis))
            return None if classes is None else (0.0, classes - 1.0)
        if node.op not in _ALIKE or not inputs:
            return None
        tensor = inputs[0]
    return None
