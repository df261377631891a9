"""Shapes of what a branch returns where they depend on the data: Keras' sparse updates are chosen by an `If`."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tensorflow.core.framework import node_def_pb2

from pesto.tf.nodes.inference import infer
from pesto.tf.nodes.inline import body, called
from pesto.tf.nodes.needed_nodes import Nodes, parse, producer
from pesto.tf.nodes.signatures import RESOURCE
from pesto.tf.nodes.sizes import BoundedShape, KnownShape, Shape, TensorShape, UnknownShape
from pesto.tf.variables.function_effects import BRANCHES
from pesto.tf.variables.variables import Roots, roots

Bounded = Callable[[Any, Sequence[str]], Nodes]
_RESULT = "pesto_result"
_SEARCH = "Where"
_MOST = 64
"""Elements of a constant that a function may be given as such: sizes, axes."""


class Branches:
    """Shapes of what branch ops return, each inferred once for the shapes of its arguments."""

    def __init__(self, bounded: Bounded) -> None:
        """`bounded` gives the nodes of a GraphDef with bounds."""
        self._bounded = bounded
        self._known: dict[Any, list[tuple[TensorShape, bool]]] = {}

    def size(self, nodes: Nodes, i: int, k: int) -> TensorShape:
        """The shape of output `k` of a branch op: known where every branch returns the same."""
        sizes = [size for size, _ in self._returned(nodes, i, k)]
        same = sizes and isinstance(sizes[0], KnownShape) and all(size == sizes[0] for size in sizes)
        return sizes[0] if same else UnknownShape()

    def upper_bound(self, nodes: Nodes, i: int, k: int) -> tuple[int, ...] | None:
        """An upper bound of output `k` of a branch op; None where there is none.

        Of branches, those count in which no search (`Where`) decides the size, if there are any: its bound is a whole
        table, as if every row were found.
        """
        returned = self._returned(nodes, i, k)
        sure = [size for size, searched in returned if not searched] or [size for size, _ in returned]
        shapes = [_largest(size) for size in sure]
        if not shapes or any(shape is None or len(shape) != len(shapes[0] or ()) for shape in shapes):
            return None
        return tuple(max(sizes) for sizes in zip(*(shape or () for shape in shapes), strict=True))

    def _returned(self, nodes: Nodes, i: int, k: int) -> list[tuple[TensorShape, bool]]:
        """Of each branch the size of its result `k`, and whether a search decides it."""
        key = (nodes.defs[i].name, k, tuple(nodes.input_shapes(i)))
        if key not in self._known:
            root, library = roots(nodes), nodes.signatures.library
            functions = [library[name] for name in called(nodes.defs[i]) if name in library]
            self._known[key] = [_returned(nodes, i, k, function, root, self._bounded) for function in functions]
        return self._known[key]


def _largest(size: TensorShape) -> tuple[int, ...] | None:
    if isinstance(size, BoundedShape):
        return size.upper_bound
    return size.extents if isinstance(size, KnownShape) else None


def argument(nodes: Nodes, p: int, k: int, root: Roots) -> Any:
    """A NodeDef that stands for tensor `k` of node `p` in a function: a handle, a constant, or a placeholder."""
    dtype, shape = nodes.dtypes[p][k], nodes.upper_bound(p, k)
    made_by = nodes.defs[root[p][k]] if root[p][k] >= 0 else None
    if made_by is not None and made_by.op == "VarHandleOp":
        return made_by
    if nodes.defs[p].op == "Const" and shape is not None and math.prod(shape) <= _MOST:
        return nodes.defs[p]
    node = node_def_pb2.NodeDef(op="Placeholder")
    node.attr["dtype"].type = dtype
    _set_shape(node.attr["shape"].shape, shape if dtype != RESOURCE else ())
    return node


def _returned(nodes: Nodes, i: int, k: int, function: Any, root: Roots, bounded: Bounded) -> tuple[TensorShape, bool]:
    """The size of a function's result `k`, and whether a search decides it."""
    arguments = [argument(nodes, p, j, root) for p, j in nodes.inputs[i][1:]]
    made = body(function, arguments, nodes.signatures.library)
    result = made.graph_def.node.add(name=_RESULT, op="Identity", input=[made.results[k]])
    result.attr["T"].type = nodes.dtypes[i][k]
    inner = bounded(infer(made.graph_def), [_RESULT])
    last = next(j for j, node in enumerate(inner.defs) if node.name == _RESULT)
    needed = parse(made.graph_def, [producer(made.results[k])])
    return inner.size(last, 0), any(node.op == _SEARCH for node in needed.defs)


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
