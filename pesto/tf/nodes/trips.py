"""How often a While loop runs, where the graph tells."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from pesto.tf.nodes.needed_nodes import Nodes

LOOPS = ("While", "StatelessWhile")
_PASSES = ("Identity", "StopGradient", "Cast")


def trips(nodes: Nodes, loop: int, known: Mapping[int, int]) -> int | None:
    """Most trips of the While node `loop`; None where they depend on the data.

    From each `counter < limit` in its condition: the counter starts at and steps by a constant, the limit is a
    constant (maximum_iterations is one), a dimension of known size (`tf.range(tf.shape(x)[1])`) or, in a gradient's
    loop, the counter of the forward loop, whose trips are in `known`.
    """
    node, library = nodes.defs[loop], nodes.signatures.library
    condition, step = library.get(node.attr["cond"].func.name), library.get(node.attr["body"].func.name)
    if condition is None or step is None:
        return None
    inside = {n.name: n for n in condition.node_def}
    at = {a.name: i for i, a in enumerate(condition.signature.input_arg)}
    counts = []
    for less in _terms(inside, next(iter(condition.ret.values()), "")):
        counter, limit = (_end(inside, at, text) for text in less.input[:2])
        if isinstance(counter, str):
            first, last = _initial(nodes, loop, at[counter], known), limit
            if isinstance(limit, str):
                last = _initial(nodes, loop, at[limit], known)
            by = _stride(step, at[counter])
            if by is not None and by < 0:
                by = _initial(nodes, loop, ~by, known)
            if first is not None and isinstance(last, int) and by is not None and by > 0:
                counts.append(max(0, -(-(last - first) // by)))
    return min(counts, default=None)


def constant(node: Any) -> int | None:
    """The value of a scalar integer Const, None for anything else."""
    value = _integers(node)
    return int(value) if value is not None and value.ndim == 0 else None


def _vector(node: Any) -> tuple[int, ...] | None:
    """The elements of an integer Const of one dimension, None for anything else."""
    value = _integers(node)
    return tuple(int(v) for v in value) if value is not None and value.ndim == 1 else None


def _integers(node: Any) -> Any:
    if node.op != "Const" or node.attr["dtype"].type not in (tf.int32.as_datatype_enum, tf.int64.as_datatype_enum):
        return None
    return tf.make_ndarray(node.attr["value"].tensor)


def _initial(nodes: Nodes, loop: int, argument: int, known: Mapping[int, int]) -> int | None:
    """The value that a loop's argument has before the first trip."""
    if argument >= len(nodes.inputs[loop]):
        return None
    node, output = nodes.inputs[loop][argument]
    while nodes.defs[node].op in _PASSES:
        node, output = nodes.inputs[node][0]
    if nodes.defs[node].op in LOOPS:
        return known.get(node) if output == 0 else None
    if nodes.defs[node].op == "StridedSlice":
        return _dimension(nodes, node)
    return constant(nodes.defs[node])


def _dimension(nodes: Nodes, node: int) -> int | None:
    """The largest value of a StridedSlice that takes one element of a tensor's shape, None for any other."""
    (vector, _), *ends = nodes.inputs[node]
    found = nodes.defs[vector]
    masks = [nodes.defs[node].attr[f"{name}_mask"].i for name in ("begin", "end", "ellipsis", "new_axis")]
    if masks != [0, 0, 0, 0] or nodes.defs[node].attr["shrink_axis_mask"].i != 1:
        return None
    begin = _vector(nodes.defs[ends[0][0]])
    shape = nodes.input_upper_bounds(vector)[0] if found.op == "Shape" else _vector(found)
    if begin is None or len(begin) != 1 or shape is None or not -len(shape) <= begin[0] < len(shape):
        return None
    return shape[begin[0]] if shape[begin[0]] >= 0 else None


def _terms(inside: Mapping[str, Any], text: str) -> list[Any]:
    """The `Less` nodes of which a condition is the conjunction, among others."""
    stack, found, seen = [text], [], set()
    while stack:
        node = _source(inside, stack.pop())
        if node is not None and node.op == "LogicalAnd" and node.name not in seen:
            seen.add(node.name)
            stack += node.input[:2]
        elif node is not None and node.op == "Less" and len(node.input) >= 2:
            found.append(node)
    return found


def _source(inside: Mapping[str, Any], text: str) -> Any:
    """The node of a function that makes a tensor, behind identities; None for an argument."""
    node = inside.get(_behind(inside, text))
    return None if node is None or node.op in _PASSES else node


def _behind(inside: Mapping[str, Any], text: str) -> str:
    name = text.partition(":")[0]
    for _ in inside:  # a damaged function may lead in a circle
        if name not in inside or inside[name].op not in _PASSES:
            break
        name = inside[name].input[0].partition(":")[0]
    return name


def _end(inside: Mapping[str, Any], at: Mapping[str, int], text: str) -> int | str | None:
    """A constant's value, the name of an argument, or None for anything else."""
    node = _source(inside, text)
    if node is not None:
        return constant(node)
    name = _behind(inside, text)
    return name if name in at else None


def _stride(step: Any, argument: int) -> int | None:
    """What the body adds to an argument: a positive constant, or `~k` for what its argument k holds; else None."""
    if argument >= len(step.signature.output_arg):
        return None
    inside = {n.name: n for n in step.node_def}
    at = {a.name: i for i, a in enumerate(step.signature.input_arg)}
    node = _source(inside, step.ret[step.signature.output_arg[argument].name])
    if node is None or node.op not in ("Add", "AddV2") or len(node.input) < 2:
        return None
    ends = [_end(inside, at, text) for text in node.input[:2]]
    added = [e for e in ends if e is None or isinstance(e, int) or at[e] != argument]
    if len(added) != 1 or added[0] is None:
        return None
    if isinstance(added[0], int):
        return added[0] if added[0] > 0 else None
    return ~at[added[0]]
