"""Guards: ops before float arithmetic that keep Grappler from rewriting it into something that rounds differently."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from pesto.tf.nodes.needed_nodes import producer
from pesto.tf.nodes.shape_inference import infer_shapes
from pesto.tf.nodes.sizes import is_known
from pesto.tf.private import op_def
from pesto.tf.variables.variables import bytes_of

_GUARD = "pesto_guard/"
_SUMS = ("AddN", "AccumulateNV2")
_REORDERED = (*_SUMS, "Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "Xdivy", "BiasAdd")
_BY_SHAPE = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")
_FLOW = ("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond")
_FOLDED_BYTES = 64 * 1024
"""Grappler folds what makes up to 100 KiB; below that with room to spare, an op counts as one that will be folded."""


def guard_sum_order(graph_def: Any) -> tuple[Any, list[str]]:
    """A copy whose sums keep the order of their terms, and the guards that see to it.

    Merging equal ops sorts the inputs of commutative ops by name. With two terms that changes nothing; of more, the
    sum is rounded differently. So each term goes through a guard, and the guards' names sort as the terms stand.
    """
    copy = graph_pb2.GraphDef()
    copy.CopyFrom(graph_def)
    stay = []
    for i, node in enumerate(graph_def.node):
        # Grappler sorts the inputs of commutative ops by name to find duplicates. Floating-point sums of more than two
        # terms depend on the order.
        if node.op in _SUMS and _rounds(node):
            for slot, text in enumerate(_data(node)):
                stay.append(_guard(copy, f"{_GUARD}{i:08d}/{slot:08d}", text, node))
                copy.node[i].input[slot] = stay[-1]
    return copy, stay


def guard_rounding(graph_def: Any) -> Any:
    """A copy in which constant folding cannot see what real arithmetic gets, unless all of it is constant.

    It would turn x / 3 into x * (1 / 3) and (x + a) + b into x + (a + b), which are rounded differently.
    """
    copy = graph_pb2.GraphDef()
    copy.CopyFrom(graph_def)
    shapes = {node.name: node.attr["_output_shapes"].list.shape for node in infer_shapes(graph_def).node}
    constant = _constants(graph_def, shapes)
    guards: dict[str, str] = {}
    for i, node in enumerate(graph_def.node):
        data = _data(node)
        # If all inputs are constant, folding evaluates the op itself and rounds as the op would.
        if not _rounds(node) or all(producer(text) in constant for text in data):
            continue
        for slot, text in enumerate(data):
            if text not in guards:
                op, _, k = text.partition(":")
                guards[text] = _guard(copy, f"{_GUARD}{len(guards):08d}", text, node, shapes[op][int(k or 0)])
            copy.node[i].input[slot] = guards[text]
    return copy


def _guard(graph_def: Any, name: str, text: str, reader: Any, shape: Any = None) -> str:
    """Add an op that hands on the tensor `text` and that no pass removes, folds or sees through; its name."""
    node = graph_def.node.add(name=name, op="PlaceholderWithDefault", input=[text], device=reader.device)
    node.attr["dtype"].type = reader.attr["T"].type
    if shape is None:
        node.attr["shape"].shape.unknown_rank = True
    else:
        node.attr["shape"].shape.CopyFrom(shape)
    return name


def _data(node: Any) -> list[str]:
    return [text for text in node.input if text[0] != "^"]


def _rounds(node: Any) -> bool:
    """Return True if the result depends on the order of the arithmetic."""
    if node.op not in _REORDERED:
        return False
    dtype = tf.as_dtype(node.attr["T"].type)
    return bool(dtype.is_floating or dtype.is_complex)


def _constants(graph_def: Any, shapes: Mapping[str, Any]) -> set[str]:
    """Names of the ops whose outputs do not change from step to step and are small enough to be folded."""
    data = {node.name: [producer(text) for text in _data(node)] for node in graph_def.node}
    foldable = {node.name for node in graph_def.node if _foldable(node, shapes[node.name])}
    readers: defaultdict[str, list[str]] = defaultdict(list)
    for name, inputs in data.items():
        for op in inputs:
            readers[op].append(name)
    sized = {name for name, inputs in data.items() if all(_static(s) for op in inputs for s in shapes[op])}
    left = [n.name for n in graph_def.node if n.op == "Const" or (n.op in _BY_SHAPE and n.name in sized)]
    missing = {name: len(inputs) for name, inputs in data.items()}
    constants: set[str] = set()
    while left:
        name = left.pop()
        if name in constants or name not in foldable:
            continue
        constants.add(name)
        for reader in readers[name]:
            missing[reader] -= 1
            if not missing[reader]:
                left.append(reader)
    return constants


def _foldable(node: Any, shapes: Any) -> bool:
    definition = op_def(node.op)
    if definition is None or definition.is_stateful or node.op.startswith("Placeholder"):
        return False
    if node.op.removeprefix("Ref") in _FLOW or any(argument.is_ref for argument in definition.input_arg):
        return False
    # The widest element there is: the type of each output is not at hand.
    return all(_static(s) and bytes_of(tf.complex128.as_datatype_enum, _sizes(s)) <= _FOLDED_BYTES for s in shapes)


def _static(shape: Any) -> bool:
    return not shape.unknown_rank and is_known(_sizes(shape))


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(d.size for d in shape.dim)


def remove_guards(graph_def: Any) -> Any:
    """`graph_def` with what the guards guard in their place."""
    guards = {node.name: node for node in graph_def.node if node.name.startswith(_GUARD)}
    bare = graph_pb2.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        if node.name in guards:
            continue
        own = bare.node.add()
        own.CopyFrom(node)
        data: list[str] = []
        controls: list[str] = []
        for text in node.input:
            behind = _behind(text, guards)
            (controls if text[0] == "^" else data).append(behind[0])
            controls += behind[1:]
        own.input[:] = [*data, *dict.fromkeys(controls)]
    return bare


def _behind(text: str, guards: Mapping[str, Any]) -> list[str]:
    """Return an input without the guard before it, followed by the control inputs of the guards."""
    controls: list[str] = []
    while producer(text) in guards:
        first, *rest = guards[producer(text)].input
        text = f"^{producer(first)}" if text[0] == "^" else first
        controls += rest
    return [text, *controls]
