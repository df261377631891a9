"""Trip counts of While loops, where the graph determines them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from pesto.tf.nodes.needed_nodes import StepNodes

LOOPS = ("While", "StatelessWhile")
_COMPARISONS = ("Less", "LessEqual", "Greater", "GreaterEqual")
_PASSES = ("Identity", "StopGradient", "Cast")


class _LoopFunction(NamedTuple):
    """A function of a loop; of one that only calls another, the other."""

    inside: dict[str, Any]
    """Nodes by name."""
    at: dict[str, int]
    """Argument of the function -> index of the loop's argument."""
    outputs: list[str]
    """The tensor of each output; empty where it is none of a node inside."""


def trip_count(nodes: StepNodes, loop: int, trips_of: Mapping[int, int]) -> int | None:
    """Return the most trips of the While node `loop`; None where they depend on the data.

    From each comparison of a counter with a limit in its condition: the counter starts at and steps by a constant, the
    limit is a constant (maximum_iterations is one), a dimension of known size (`tf.range(tf.shape(x)[1])`), the length
    of a TensorArray or, in a gradient's loop, the counter of the forward loop, whose trips are in `trips_of`. A counter
    that goes down ends at a constant.
    """
    node, library = nodes.defs[loop], nodes.signatures.library
    condition, step = library.get(node.attr["cond"].func.name), library.get(node.attr["body"].func.name)
    if condition is None or step is None:
        return None
    test, body = _open_call(condition, library), _open_call(step, library)
    # Each comparison of a conjunction can end the loop, so the smallest count bounds it.
    # A conjunction stops at the first comparison that fails, so its trips are the least of all comparisons.
    stack, counts, visited = [test.outputs[0]], [], set()
    while stack:
        term = _find_source(test.inside, stack.pop())
        if term is not None and term.op == "LogicalAnd" and term.name not in visited:
            visited.add(term.name)
            stack += term.input[:2]
        elif term is not None and term.op in _COMPARISONS and len(term.input) >= 2:
            counts.append(_count_comparison_trips(nodes, loop, term, (test, body), trips_of))
    return min((count for count in counts if count is not None), default=None)


def _open_call(function: Any, library: Mapping[str, Any]) -> _LoopFunction:
    slots = {a.name: i for i, a in enumerate(function.signature.input_arg)}
    outputs = [function.ret[a.name] for a in function.signature.output_arg]
    inside = {n.name: n for n in function.node_def}
    # A loop's function may consist of one call alone: then its ops are those of the function that it calls.
    called = library.get(function.node_def[0].op) if len(inside) == 1 else None
    if called is None:
        return _LoopFunction(inside, slots, outputs)
    (call,) = function.node_def
    arguments = zip(called.signature.input_arg, call.input, strict=False)
    parts = [text.split(":") for text in outputs]
    return _LoopFunction(
        {n.name: n for n in called.node_def},
        {a.name: slots[text] for a, text in arguments if text in slots},
        [called.ret.get(part[1], "") if part[0] == call.name and len(part) > 1 else "" for part in parts],
    )


def _count_comparison_trips(
    nodes: StepNodes, loop: int, term: Any, functions: tuple[_LoopFunction, _LoopFunction], trips_of: Mapping[int, int]
) -> int | None:
    """Most trips that one comparison of a loop's condition allows; None where it bounds none."""
    test, body = functions
    counter, limit = (_find_end(test, text) for text in term.input[:2])
    if not isinstance(counter, str):
        return None
    first, last = _find_initial_value(nodes, loop, test.at[counter], trips_of), limit
    by = _find_stride(body, test.at[counter])
    if by is not None and by.argument is not None:
        by = by._replace(size=_find_initial_value(nodes, loop, by.argument, trips_of))
    down = term.op.startswith("Greater")
    if isinstance(limit, str):  # a dimension is known by its upper bound, which bounds no way down
        last = None if down else _find_initial_value(nodes, loop, test.at[limit], trips_of)
    if first is None or not isinstance(last, int) or by is None or by.size is None:
        return None
    stride = -by.size if down else by.size
    way = (first - last if down else last - first) + term.op.endswith("Equal")
    return max(0, -(-way // stride)) if stride > 0 else None


def scalar_constant(node: Any) -> int | None:
    """Return the value of a scalar integer Const, None for anything else."""
    value = _read_integers(node)
    return int(value) if value is not None and value.ndim == 0 else None


def _read_vector(node: Any) -> tuple[int, ...] | None:
    """The elements of an integer Const of one dimension, None for anything else."""
    value = _read_integers(node)
    return tuple(int(v) for v in value) if value is not None and value.ndim == 1 else None


def _read_integers(node: Any) -> Any:
    if node.op != "Const" or node.attr["dtype"].type not in (tf.int32.as_datatype_enum, tf.int64.as_datatype_enum):
        return None
    return tf.make_ndarray(node.attr["value"].tensor)


def _find_initial_value(nodes: StepNodes, loop: int, argument: int, trips_of: Mapping[int, int]) -> int | None:
    """The value that a loop's argument has before the first trip."""
    if argument >= len(nodes.inputs[loop]):
        return None
    node, output = nodes.inputs[loop][argument]
    while nodes.defs[node].op in _PASSES:
        node, output = nodes.inputs[node][0]
    if nodes.defs[node].op in LOOPS:
        return trips_of.get(node) if output == 0 else None
    return _find_largest_value(nodes, node)


def _find_largest_value(nodes: StepNodes, node: int) -> int | None:
    """The largest value of a node, and of a list the most elements that it has."""
    op, inputs = nodes.defs[node].op, nodes.inputs[node]
    if op == "StridedSlice":
        return _find_dimension(nodes, node)
    if op == "TensorListReserve":
        return _find_largest_value(nodes, inputs[1][0])
    if op == "TensorListFromTensor":
        shape = nodes.input_upper_bounds(node)[0]
        return shape[0] if shape and shape[0] >= 0 else None
    if op == "Sub":
        most, less = _find_largest_value(nodes, inputs[0][0]), scalar_constant(nodes.defs[inputs[1][0]])
        return None if most is None or less is None else most - less
    return scalar_constant(nodes.defs[node])


def _find_dimension(nodes: StepNodes, node: int) -> int | None:
    """The largest value of a StridedSlice that takes one element of a tensor's shape, None for any other."""
    (vector, _), *ends = nodes.inputs[node]
    source = nodes.defs[vector]
    masks = [nodes.defs[node].attr[f"{name}_mask"].i for name in ("begin", "end", "ellipsis", "new_axis")]
    if masks != [0, 0, 0, 0] or nodes.defs[node].attr["shrink_axis_mask"].i != 1:
        return None
    begin = _read_vector(nodes.defs[ends[0][0]])
    shape = nodes.input_upper_bounds(vector)[0] if source.op == "Shape" else _read_vector(source)
    if begin is None or len(begin) != 1 or shape is None or not -len(shape) <= begin[0] < len(shape):
        return None
    return shape[begin[0]] if shape[begin[0]] >= 0 else None


def _find_source(inside: Mapping[str, Any], text: str) -> Any:
    """The node of a function that makes a tensor, behind identities; None for an argument."""
    node = inside.get(_find_input(inside, text))
    return None if node is None or node.op in _PASSES else node


def _find_input(inside: Mapping[str, Any], text: str) -> str:
    name = text.partition(":")[0]
    for _ in inside:  # a damaged function may lead in a circle
        if name not in inside or inside[name].op not in _PASSES:
            break
        name = inside[name].input[0].partition(":")[0]
    return name


def _find_end(function: _LoopFunction, text: str) -> int | str | None:
    """A constant's value, the name of an argument that is it or whose length it is, or None for anything else."""
    node = _find_source(function.inside, text)
    if node is not None and node.op == "TensorListLength":
        text, node = node.input[0], None
    if node is not None:
        return scalar_constant(node)
    name = _find_input(function.inside, text)
    return name if name in function.at else None


class _CounterStride(NamedTuple):
    """Change of a counter in one trip."""

    size: int | None
    """Negative on the way down; None where an argument of the loop has it."""
    argument: int | None = None


def _find_stride(body: _LoopFunction, argument: int) -> _CounterStride | None:
    """Return the amount that the body adds to an argument: a constant, or another argument; None for anything else."""
    if argument >= len(body.outputs):
        return None
    node = _find_source(body.inside, body.outputs[argument])
    if node is None or node.op not in ("Add", "AddV2", "Sub") or len(node.input) < 2:
        return None
    ends = [_find_end(body, text) for text in node.input[:2]]
    if node.op == "Sub":
        mine = isinstance(ends[0], str) and body.at[ends[0]] == argument
        return _CounterStride(-ends[1]) if mine and isinstance(ends[1], int) else None
    added = [e for e in ends if not isinstance(e, str) or body.at[e] != argument]
    if len(added) != 1 or added[0] is None:
        return None
    return _CounterStride(added[0]) if isinstance(added[0], int) else _CounterStride(None, body.at[added[0]])
