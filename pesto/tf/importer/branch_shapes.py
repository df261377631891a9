"""Shapes of what branches and loops return, from those of their functions' results."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tensorflow.core.framework import node_def_pb2

from pesto.tf.importer.function_keys import FunctionKeys
from pesto.tf.importer.size_rules import BOUND_ATTRIBUTE
from pesto.tf.nodes.inline import called_names, flatten_function
from pesto.tf.nodes.needed_nodes import StepNodes, needed_names, producer
from pesto.tf.nodes.shape_inference import copy_graph_def, infer_shapes
from pesto.tf.nodes.signatures import RESOURCE, VARIANT
from pesto.tf.nodes.sizes import Shape, is_known
from pesto.tf.variables.function_effects import BRANCHES
from pesto.tf.variables.variables import Roots, resource_origins

Bounded = Callable[[Any, Sequence[str], "FunctionShapes"], StepNodes]
_RESULT = "pesto_result"
_SEARCH = "Where"
_OPAQUE = (RESOURCE, VARIANT)
_MOST = 64
"""Elements of a constant that a function may be given as such: sizes, axes."""


class FunctionShapes:
    """Shapes of what branches and loops return, each body being inferred once for the shapes of its arguments.

    Bodies that differ in names only count as one, also those within others.
    """

    def __init__(self, bounded: Bounded) -> None:
        """`bounded` gives the nodes of a GraphDef with bounds, and asks this for those of what it calls."""
        self._bounded, self._keys = bounded, FunctionKeys()
        self._made: dict[Any, dict[int, _ResultShape]] = {}

    def known_of_branch(self, nodes: StepNodes, i: int) -> dict[int, Shape]:
        """The outputs of a branch op that have the same known shape in every branch."""
        returned = self._of_branches(nodes, i)
        return {
            k: returned[0][k].shape
            for k in (returned[0] if returned else ())
            if is_known(returned[0][k].shape) and all(of[k].shape == returned[0][k].shape for of in returned)
        }

    def bounds_of_branch(self, nodes: StepNodes, i: int) -> dict[int, Shape]:
        """Upper bounds of the outputs of a branch op, where they have any.

        Of branches, those count in which no search (`Where`) decides the size, if there are any: its bound is a whole
        table, as if every row were found.
        """
        returned = self._of_branches(nodes, i)
        bounds: dict[int, Shape] = {}
        for k in returned[0] if returned else ():
            of = [results[k] for results in returned]
            sure = [one.upper_bound for one in of if not one.searched] or [one.upper_bound for one in of]
            if all(is_known(shape) and len(shape or ()) == len(sure[0] or ()) for shape in sure):
                bounds[k] = tuple(max(sizes) for sizes in zip(*(shape or () for shape in sure), strict=True))
        return bounds

    def known_of_loop(self, nodes: StepNodes, i: int) -> dict[int, Shape]:
        """Return the loop variables whose shape is known and the same in every round."""
        return self._of_loop(
            nodes,
            i,
            nodes.input_shapes(i),
            lambda dtype, shape, _: _placeholder(dtype, shape),
            lambda after, first: after.shape == first,
        )

    def bounds_of_loop(self, nodes: StepNodes, i: int) -> dict[int, Shape]:
        """Upper bounds of what goes round a loop: its first size, where a round makes it no larger."""
        return self._of_loop(
            nodes,
            i,
            nodes.input_upper_bounds(i),
            lambda dtype, bound, shape: _placeholder(dtype, shape, bound),
            lambda after, first: _within(after.upper_bound, first),
        )

    def _of_loop(
        self,
        nodes: StepNodes,
        i: int,
        first: Sequence[Shape],
        entering: "Callable[[int, Shape, Shape], Any]",
        stays: "Callable[[_ResultShape, Shape], bool]",
    ) -> dict[int, Shape]:
        """The shapes among `first` that a round keeps; `entering` makes an argument of one and of what is known."""
        function = nodes.signatures.library.get(nodes.defs[i].attr["body"].func.name)
        root = resource_origins(nodes)
        kept = {k: first[k] for k in _open_outputs(nodes, i) if is_known(first[k])}
        while kept and function is not None:
            arguments = [argument_stand_in(nodes, p, j, root) for p, j in nodes.inputs[i]]
            for k, dtype in enumerate(nodes.dtypes[i]):
                if dtype not in _OPAQUE:  # another value, and perhaps another size, in each round
                    shape = nodes.shapes[i][k]
                    arguments[k] = entering(dtype, kept[k], shape) if k in kept else _placeholder(dtype, shape)
            after = self._returned(nodes, i, function, arguments, list(kept))
            staying = {k: shape for k, shape in kept.items() if stays(after[k], shape)}
            if staying == kept:
                break
            kept = staying
        return kept if function is not None else {}

    def _of_branches(self, nodes: StepNodes, i: int) -> "list[dict[int, _ResultShape]]":
        """Return the result shapes of each branch."""
        root, library = resource_origins(nodes), nodes.signatures.library
        arguments = [argument_stand_in(nodes, p, j, root) for p, j in nodes.inputs[i][1:]]
        functions = [library[name] for name in called_names(nodes.defs[i]) if name in library]
        return [self._returned(nodes, i, function, arguments, _open_outputs(nodes, i)) for function in functions]

    def _returned(
        self, nodes: StepNodes, i: int, function: Any, arguments: Sequence[Any], wanted: Sequence[int]
    ) -> "dict[int, _ResultShape]":
        """Return the shapes of the wanted results of a function."""
        library = nodes.signatures.library
        key = (self._keys.key(function, library), *wanted, *map(self._keys.argument_key, arguments))
        if key not in self._made:
            made = flatten_function(function, arguments, library)
            flat = copy_graph_def(made.graph_def)
            for k in wanted:
                result = flat.node.add(name=f"{_RESULT}_{k}", op="Identity", input=[made.results[k]])
                result.attr["T"].type = nodes.dtypes[i][k]
            inner = self._bounded(infer_shapes(flat), [f"{_RESULT}_{k}" for k in wanted], self)
            place = {node.name: j for j, node in enumerate(inner.defs)}
            by_name = {node.name: node for node in made.graph_def.node}
            self._made[key] = {
                k: _ResultShape(
                    shape=inner.shapes[j][0],
                    upper_bound=inner.upper_bound(j, 0),
                    searched=any(by_name[n].op == _SEARCH for n in needed_names(by_name, [producer(made.results[k])])),
                )
                for k, j in ((k, place[f"{_RESULT}_{k}"]) for k in wanted)
            }
        return self._made[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResultShape:
    """Shape of a function's result."""

    shape: Shape
    """Shape as far as it is known before the step runs."""
    upper_bound: Shape
    searched: bool
    """True if a search (`Where`) decides the size."""


def _open_outputs(nodes: StepNodes, i: int) -> list[int]:
    both = zip(nodes.dtypes[i], nodes.shapes[i], strict=True)
    return [k for k, (dtype, shape) in enumerate(both) if dtype not in _OPAQUE and not is_known(shape)]


def _within(shape: Shape, bound: Shape) -> bool:
    """Return True if a shape is known and no larger than a bound."""
    if shape is None or bound is None or -1 in shape or len(shape) != len(bound):
        return False
    return all(n <= most for n, most in zip(shape, bound, strict=True))


def argument_stand_in(nodes: StepNodes, p: int, k: int, root: Roots) -> Any:
    """A NodeDef that stands for tensor `k` of node `p` in a function: a handle, a constant, or a placeholder."""
    dtype, shape = nodes.dtypes[p][k], nodes.shapes[p][k]
    made_by = nodes.defs[root[p][k]] if root[p][k] >= 0 else None
    if made_by is not None and made_by.op == "VarHandleOp":
        return made_by
    if nodes.defs[p].op == "Const" and shape is not None and math.prod(shape) <= _MOST:
        return nodes.defs[p]
    return _placeholder(dtype, shape if dtype != RESOURCE else (), nodes.bounds.get((p, k)))


def _placeholder(dtype: int, shape: Shape, bound: Shape = None) -> Any:
    """A placeholder of a shape; where that is open, with an upper bound, which is no shape for TensorFlow."""
    node = node_def_pb2.NodeDef(op="Placeholder")
    node.attr["dtype"].type = dtype
    _set_shape(node.attr["shape"].shape, shape)
    if bound is not None and is_known(bound) and not is_known(shape):
        _set_shape(node.attr[BOUND_ATTRIBUTE].shape, bound)
    return node


def _set_shape(proto: Any, shape: Shape) -> None:
    proto.SetInParent()  # a scalar has no dimension that would
    proto.unknown_rank = shape is None
    for size in shape or ():
        proto.dim.add(size=size)


def passed_through(nodes: StepNodes) -> dict[tuple[int, int], tuple[int, int]]:
    """Branch output -> the tensor that it is whichever branch is taken: its value may be needed to know a shape."""
    library, sources = nodes.signatures.library, {}
    for i, node in enumerate(nodes.defs):
        if node.op in BRANCHES:
            functions = [library[name] for name in called_names(node) if name in library]
            for k in range(len(nodes.dtypes[i])):
                slots = {_argument_of(function, k) for function in functions}
                if len(slots) == 1 and (slot := slots.pop()) is not None:
                    sources[i, k] = nodes.inputs[i][1 + slot]
    return sources


def _argument_of(function: Any, k: int) -> int | None:
    """Return the argument that result `k` of a function passes through; None for a computed result."""
    arguments = {a.name: slot for slot, a in enumerate(function.signature.input_arg)}
    identities = {node.name: node.input[0] for node in function.node_def if node.op == "Identity"}
    tensor = function.ret[function.signature.output_arg[k].name]
    while (name := tensor.partition(":")[0]) in identities:
        tensor = identities[name]
    return arguments.get(tensor)
