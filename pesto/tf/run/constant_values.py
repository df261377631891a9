"""Values of tensors that the graph determines: constants, sizes and arithmetic on them, also inside functions.

A scope is one graph: the step, or the body of a function where one node runs it. It tells who reads which tensor.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from pesto.tf.nodes.inline import CALLS
from pesto.tf.nodes.needed_nodes import Shape, Signatures, StepNodes
from pesto.tf.nodes.trip_counts import LOOPS, trip_count

BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_FUNCTIONS = {"While": ("body", "cond"), "If": ("then_branch", "else_branch"), "Case": ("branches",)}


class ScopeTensor(NamedTuple):
    """An output of a node, or an argument of a function as output 0 of its name."""

    node: str
    output: int


class TensorRead(NamedTuple):
    """An input of a node."""

    node: str
    input: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FunctionScope:
    """Nodes of one graph: of a step, or of a function's body where one node runs it."""

    nodes: dict[str, Any]
    inputs: dict[str, list[ScopeTensor]]
    readers: dict[ScopeTensor, list[TensorRead]]
    shapes: dict[ScopeTensor, Shape]
    arguments: dict[str, int] = field(default_factory=dict)
    """Number of each argument."""
    results: dict[ScopeTensor, list[int]] = field(default_factory=dict)
    """Tensor -> indices of the function's results that it is."""
    caller: "tuple[FunctionScope, str] | None" = None
    """The calling scope and the name of the calling node."""
    trips: Mapping[str, int] = field(default_factory=dict)
    """Loop -> its largest trip count, where the graph determines it."""
    function: str = ""
    """Name of the function; empty for a step."""

    def shape(self, tensor: ScopeTensor) -> Shape:
        """Return the dimensions, -1 where unknown; None for an unknown rank."""
        return self.shapes.get(tensor)

    def dimension(self, tensor: ScopeTensor, axis: int) -> int | None:
        """Return the size of a dimension; None where it is unknown or missing."""
        shape = self.shape(tensor)
        if shape is None or not -len(shape) <= axis < len(shape) or shape[axis] < 0:
            return None
        return shape[axis]


def step_scope(nodes: StepNodes) -> FunctionScope:
    """Return the scope of the step itself."""
    names = [node.name for node in nodes.defs]
    inputs = {names[i]: [ScopeTensor(names[p], k) for p, k in read] for i, read in enumerate(nodes.inputs)}
    shapes = {ScopeTensor(names[i], k): shape for i, of in enumerate(nodes.shapes) for k, shape in enumerate(of)}
    trips_of: dict[int, int] = {}
    for i, node in enumerate(nodes.defs):
        if node.op in LOOPS and (count := trip_count(nodes, i, trips_of)) is not None:
            trips_of[i] = count
    return FunctionScope(
        nodes=dict(zip(names, nodes.defs, strict=True)), inputs=inputs, readers=_index_readers(inputs), shapes=shapes,
        trips={names[i]: count for i, count in trips_of.items()},
    )  # fmt: skip


def _index_readers(inputs: dict[str, list[ScopeTensor]]) -> dict[ScopeTensor, list[TensorRead]]:
    readers: dict[ScopeTensor, list[TensorRead]] = {}
    for name, tensors in inputs.items():
        for place, tensor in enumerate(tensors):
            readers.setdefault(tensor, []).append(TensorRead(name, place))
    return readers


@dataclass(frozen=True, slots=True)
class FunctionScopes:
    """Builds the scopes of functions, each once for each node that runs it."""

    signatures: Signatures
    _made: dict[tuple[int, str, str], FunctionScope] = field(default_factory=dict)

    def called(self, scope: FunctionScope, name: str) -> Iterator[tuple[FunctionScope, int]]:
        """Yield the functions that a node runs, and the number of its input that is the first argument."""
        node = scope.nodes[name]
        kind = node.op.removeprefix("Stateless")
        first = 1 if node.op in BRANCHES else 0
        attributes = ("f",) if node.op in CALLS else _FUNCTIONS.get(kind, ())
        for attribute in attributes:
            if attribute in node.attr:
                value = node.attr[attribute]
                for function in [value.func] if value.func.name else value.list.func:
                    if function.name in self.signatures.library:
                        key = (id(scope), name, function.name)
                        if key not in self._made:
                            self._made[key] = self._make_scope(self.signatures.library[function.name], scope, name)
                        yield self._made[key], first

    def loops(self, scope: FunctionScope, name: str) -> bool:
        """Return True if a node runs a loop, which returns its inputs where it makes no trip."""
        return scope.nodes[name].op in LOOPS

    def repeats(self, scope: FunctionScope) -> bool:
        """Return True if the function is a loop's body, whose results are its next arguments."""
        return scope.caller is not None and self.loops(*scope.caller)

    def is_condition(self, scope: FunctionScope) -> bool:
        """Return True if the function is the condition of a loop."""
        return (
            scope.function != ""
            and scope.caller is not None
            and self.repeats(scope)
            and (scope.caller[0].nodes[scope.caller[1]].attr["cond"].func.name == scope.function)
        )

    def outputs(self, node: Any) -> int:
        """Return the number of outputs of a node."""
        return len(self.signatures.output_types(node))

    def _make_scope(self, function: Any, caller: FunctionScope, name: str) -> FunctionScope:
        nodes = {node.name: node for node in function.node_def}
        arguments = {argument.name: i for i, argument in enumerate(function.signature.input_arg)}
        inputs = {
            node.name: [self._resolve_tensor(nodes, text) for text in node.input if not text.startswith("^")]
            for node in function.node_def
        }
        results: dict[ScopeTensor, list[int]] = {}
        for i, result in enumerate(function.signature.output_arg):
            results.setdefault(self._resolve_tensor(nodes, function.ret[result.name]), []).append(i)
        shapes: dict[ScopeTensor, Shape] = {}
        for node in function.node_def:
            for k, shape in enumerate(node.attr["_output_shapes"].list.shape if "_output_shapes" in node.attr else ()):
                shapes[ScopeTensor(node.name, k)] = None if shape.unknown_rank else tuple(d.size for d in shape.dim)
        first = 1 if caller.nodes[name].op in BRANCHES else 0
        caller_inputs = caller.inputs[name]
        for argument, i in arguments.items():
            if i + first < len(caller_inputs) and (caller_shape := caller.shape(caller_inputs[i + first])) is not None:
                shapes[ScopeTensor(argument, 0)] = caller_shape
        return FunctionScope(
            nodes=nodes, inputs=inputs, readers=_index_readers(inputs), shapes=shapes, arguments=arguments,
            results=results, caller=(caller, name), function=function.signature.name,
        )  # fmt: skip

    def _resolve_tensor(self, nodes: dict[str, Any], text: str) -> ScopeTensor:
        # A function's body names an argument, `node:output:number`, or `node:number`.
        name, *rest = text.split(":")
        if name not in nodes or not rest:
            return ScopeTensor(name, 0)
        if len(rest) == 1:
            return ScopeTensor(name, int(rest[0]))
        return ScopeTensor(name, self.signatures.output_offset(nodes[name], rest[0]) + int(rest[1]))


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


def _bound_trips(scope: FunctionScope, argument: ScopeTensor) -> tuple[float, float] | None:
    """Return the least and the largest value of a loop's counter, where the graph tells how often the loop runs."""
    if scope.caller is None or argument.node not in scope.arguments or not varies_by_trip(scope, argument):
        return None
    outer, name = scope.caller
    place = scope.arguments[argument.node]
    count, first = outer.trips.get(name), constant_value(outer, outer.inputs[name][place])
    result = next((tensor for tensor, places in scope.results.items() if place in places), None)
    if not count or first is None or np.size(first) != 1 or result is None:
        return None
    node = scope.nodes.get(trace_origin(scope, result)[1].node)
    if node is None or node.op not in ("Add", "AddV2") or argument not in scope.inputs[node.name]:
        return None
    by = [constant_value(scope, tensor) for tensor in scope.inputs[node.name] if tensor != argument]
    if len(by) != 1 or by[0] is None or np.size(by[0]) != 1 or by[0] != 1:
        return None
    return float(first), float(first) + count - 1


def constant_value(scope: FunctionScope, tensor: ScopeTensor, depth: int = 0) -> Any | None:
    """Return the numbers of a tensor as an array; None where they depend on feeds or are many."""
    scope, tensor = trace_origin(scope, tensor)
    node = scope.nodes.get(tensor.node)
    if node is None or depth > _DEPTH:
        return None
    if node.op == "Const":
        extents = node.attr["value"].tensor.tensor_shape.dim
        small = math.prod(d.size for d in extents) <= _LARGEST
        array = tf.make_ndarray(node.attr["value"].tensor) if small else None
        return array if array is not None and array.dtype.kind in "iufb" else None
    if node.op in ("Shape", "Size"):
        shape = scope.shape(scope.inputs[node.name][0])
        if shape is None or -1 in shape:
            return None
        return np.array(shape, dtype=np.int64) if node.op == "Shape" else np.array(math.prod(shape))
    operands = [constant_value(scope, part, depth + 1) for part in scope.inputs[node.name]]
    return None if not operands or any(part is None for part in operands) else _evaluate(node, operands)


def _evaluate(node: Any, operands: list[Any]) -> Any | None:
    """Return the output of an op whose inputs are all known; None for other ops, errors and large results."""
    result: Any | None = operands[0] if node.op in SAME else None
    if node.op in _ARITHMETIC:
        try:
            result = _ARITHMETIC[node.op](operands[0], operands[1])
        except (ValueError, ZeroDivisionError):
            return None
        result = result if np.size(result) <= _LARGEST else None
    elif node.op == "Range":
        first, limit, step = (float(part) for part in operands)
        many = (limit - first) / step if step else 0
        result = first + step * np.arange(math.ceil(many)) if 0 < many <= _LARGEST else None
    elif node.op == "StridedSlice" and node.attr["shrink_axis_mask"].i == 1 and np.ndim(operands[0]) == 1:
        # One element of a vector, such as a shape.
        place = int(np.ravel(operands[1])[0])
        result = operands[0][place] if -len(operands[0]) <= place < len(operands[0]) else None
    elif node.op == "Pack":
        result = np.stack(operands) if len({np.shape(part) for part in operands}) == 1 else None
    elif node.op in ("ExpandDims", "Squeeze", "Reshape"):  # only the numbers count, in their order
        result = np.reshape(operands[0], -1) if np.ndim(operands[0]) else operands[0]
    elif node.op == "Prod":
        result = np.array(np.prod(operands[0]))
    return result


def value_interval(scope: FunctionScope, tensor: ScopeTensor) -> tuple[float, float] | None:
    """Return the least and the largest number that a tensor can hold; None where nothing says."""
    for _ in range(1000):
        scope, tensor = trace_origin(scope, tensor)
        value = constant_value(scope, tensor)
        if value is not None and np.size(value):
            return float(np.min(value)), float(np.max(value))
        node = scope.nodes.get(tensor.node)
        if node is None:
            return _bound_trips(scope, tensor)
        inputs = scope.inputs[node.name]
        if node.op == "ArgMax":
            axis = constant_value(scope, inputs[1])
            classes = None if axis is None else scope.dimension(inputs[0], int(axis))
            return None if classes is None else (0.0, classes - 1.0)
        if node.op not in _ALIKE or not inputs:
            return None
        tensor = inputs[0]
    return None
