"""Shapes of what a branch returns where they depend on the data: Keras' sparse updates are chosen by an `If`."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tensorflow.core.framework import node_def_pb2

from pesto.tf.nodes.inference import infer
from pesto.tf.nodes.inline import body, called
from pesto.tf.nodes.needed_nodes import Nodes, Shape, parse, producer
from pesto.tf.nodes.signatures import RESOURCE
from pesto.tf.variables.function_effects import BRANCHES
from pesto.tf.variables.variables import Roots, roots

Bounded = Callable[[Any, Sequence[str]], Nodes]
_RESULT = "pesto_result"
_SEARCH = "Where"
_MOST = 64
"""Elements of a constant that a function may be given as such: sizes, axes."""


def branch_shape(nodes: Nodes, i: int, k: int, bounded: Bounded) -> Shape:
    """An upper bound of output `k` of a branch op; None where there is none.

    `bounded` gives the nodes of a GraphDef with bounds. Of branches, those count in which no search (`Where`) decides
    the size, if there are any: its bound is a whole table, as if every row were found.
    """
    root, library = roots(nodes), nodes.signatures.library
    functions = [library[name] for name in called(nodes.defs[i]) if name in library]
    found = [_returned(nodes, i, k, function, root, bounded) for function in functions]
    sure = [shape for shape, searched in found if not searched] or [shape for shape, _ in found]
    if not sure or any(shape is None or -1 in shape or len(shape) != len(sure[0] or ()) for shape in sure):
        return None
    return tuple(max(sizes) for sizes in zip(*(shape or () for shape in sure), strict=True))


def argument(nodes: Nodes, p: int, k: int, root: Roots) -> Any:
    """A NodeDef that stands for tensor `k` of node `p` in a function: a handle, a constant, or a placeholder."""
    dtype, shape = nodes.dtypes[p][k], nodes.shapes[p][k]
    made_by = nodes.defs[root[p][k]] if root[p][k] >= 0 else None
    if made_by is not None and made_by.op == "VarHandleOp":
        return made_by
    if nodes.defs[p].op == "Const" and shape is not None and math.prod(shape) <= _MOST:
        return nodes.defs[p]
    node = node_def_pb2.NodeDef(op="Placeholder")
    node.attr["dtype"].type = dtype
    _set_shape(node.attr["shape"].shape, shape if dtype != RESOURCE else ())
    return node


def _returned(nodes: Nodes, i: int, k: int, function: Any, root: Roots, bounded: Bounded) -> tuple[Shape, bool]:
    """The shape of a function's result `k`, and whether a search decides it."""
    arguments = [argument(nodes, p, j, root) for p, j in nodes.inputs[i][1:]]
    made = body(function, arguments, nodes.signatures.library)
    result = made.graph_def.node.add(name=_RESULT, op="Identity", input=[made.results[k]])
    result.attr["T"].type = nodes.dtypes[i][k]
    inner = bounded(infer(made.graph_def), [_RESULT])
    last = next(j for j, node in enumerate(inner.defs) if node.name == _RESULT)
    needed = parse(made.graph_def, [producer(made.results[k])])
    return inner.shapes[last][0], any(node.op == _SEARCH for node in needed.defs)


def _set_shape(proto: Any, shape: Shape) -> None:
    proto.unknown_rank = shape is None
    for size in shape or ():
        proto.dim.add(size=size)


def handed_on(nodes: Nodes) -> dict[str, str]:
    """Branch output -> the tensor that it is whichever branch is taken: its value may be needed to know a shape."""
    library, found = nodes.signatures.library, {}
    for node, dtypes in zip(nodes.defs, nodes.dtypes, strict=True):
        if node.op in BRANCHES:
            functions = [library[name] for name in called(node) if name in library]
            for k in range(len(dtypes)):
                slots = {_argument_of(function, k) for function in functions}
                if len(slots) == 1 and (slot := slots.pop()) is not None:
                    found[f"{node.name}:{k}"] = str(node.input[1 + slot])
    return found


def _argument_of(function: Any, k: int) -> int | None:
    """Which of a function's arguments its result `k` is, through identities; None for what it computes."""
    arguments = {a.name: slot for slot, a in enumerate(function.signature.input_arg)}
    identities = {node.name: node.input[0] for node in function.node_def if node.op == "Identity"}
    tensor = function.ret[function.signature.output_arg[k].name]
    while (name := tensor.partition(":")[0]) in identities:
        tensor = identities[name]
    return arguments.get(tensor)
