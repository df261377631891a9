"""Shapes of stacked tensor lists, whose number of elements the op that makes the list states."""

from collections.abc import Mapping
from typing import Any

from pesto.tf.importer.size_inference import Special
from pesto.tf.nodes.needed_nodes import StepNodes, producer
from pesto.tf.nodes.sizes import Shape
from pesto.tf.nodes.trip_counts import LOOPS, scalar_constant

_PASSES = ("Identity", "StopGradient", "ZerosLike")
"""Ops that make a list of as many elements as their input."""
_SUMS = ("Add", "AddV2", "AddN")
"""Ops that add lists, all of which have as many elements."""
_DEPTH = 64
"""Ops that a list is followed back through."""


def _stacked(nodes: StepNodes, i: int) -> Mapping[int, Shape]:
    """Return the shape of a TensorListStack, or its bound: as many rows as the list has elements."""
    shape = nodes.shapes[i][0]
    number = None if not shape else _elements(nodes, nodes.inputs[i][0], _DEPTH)
    return {} if number is None or not shape or shape[0] >= 0 else {0: (number, *shape[1:])}


def _elements(nodes: StepNodes, tensor: tuple[int, int], depth: int) -> int | None:
    """Return how many elements a list has; None where the op that made it does not say, or a loop changes it."""
    i, k = tensor
    node, given = nodes.defs[i], nodes.inputs[i]
    source, at = _before(nodes, i, k), None
    if node.op == "TensorListFromTensor":
        shape = nodes.input_upper_bounds(i)[0]
        at = shape[0] if shape else None
    elif node.op == "TensorListReserve":
        number, _ = given[1]
        if nodes.defs[number].op == "TensorListLength":
            source = nodes.inputs[number][0]
        else:
            at = scalar_constant(nodes.defs[number])
    if source is not None:
        return _elements(nodes, source, depth - 1) if depth else None
    return at if at is not None and at >= 0 else None


def _before(nodes: StepNodes, i: int, k: int) -> tuple[int, int] | None:
    """Return an input of node `i` that is a list of as many elements as its output `k`; None where there is none."""
    node = nodes.defs[i]
    if node.op in LOOPS:
        body = nodes.signatures.library.get(node.attr["body"].func.name)
        return nodes.inputs[i][k] if body is not None and _keeps(body, k) else None
    return nodes.inputs[i][0] if node.op in (*_PASSES, *_SUMS) or _sets_in_place(node) else None


def _sets_in_place(node: Any) -> bool:
    """Return True for an op that puts in one element of a list, which has as many as before."""
    return bool(node.op == "TensorListSetItem" and not node.attr["resize_if_index_out_of_bounds"].b)


def _keeps(body: Any, k: int) -> bool:
    """Return True if the list that a loop's body returns as result `k` is its argument `k`, elements apart."""
    inside = {node.name: node for node in body.node_def}
    texts, seen = [body.ret[body.signature.output_arg[k].name]], set[str]()
    while texts:
        text = texts.pop()
        if text == body.signature.input_arg[k].name:
            return True
        node = inside.get(producer(text.partition(":")[0]))
        if node is None or node.name in seen:
            continue
        seen.add(node.name)
        if node.op in _SUMS:
            texts += [given for given in node.input if not given.startswith("^")]
        elif node.op in _PASSES or _sets_in_place(node):
            texts.append(node.input[0])
    return False


STACKED: Special = {"TensorListStack": _stacked}
"""Shapes of stacked lists by op type; exact where all that is known of the inputs is, else upper bounds."""
