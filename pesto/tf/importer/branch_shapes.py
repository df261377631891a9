"""Shapes of what branches and loops return, from those of their functions' results.

Bodies whose keys are equal, which differ in names alone, are inferred once.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorflow.core.framework import function_pb2, node_def_pb2

from pesto.tf.importer.size_rules import BOUND_ATTRIBUTE
from pesto.tf.nodes.inline import find_called_names, flatten_function
from pesto.tf.nodes.needed_nodes import RESOURCE, VARIANT, Shape, StepNodes, find_needed_names, is_known, producer
from pesto.tf.nodes.shape_inference import copy_graph_def, infer_shapes
from pesto.tf.variables.variables import BRANCHES, Roots, find_resource_origins

Bounded = Callable[[Any, Sequence[str], "FunctionShapes"], StepNodes]
_NAMES = ("_class", "container", "debug_name", "shared_name")
"""Attributes of an op that say which object it is, on which no shape and no work depends."""
_RESULT = "pesto_result"
_SEARCH = "Where"
_OPAQUE = (RESOURCE, VARIANT)
_MOST = 64
"""Elements of a constant that a function may be given as such: sizes, axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResultShape:
    """Shape of a function's result."""

    shape: Shape
    """Shape as far as it is known before the step runs."""
    upper_bound: Shape
    searched: bool
    """True if a search (`Where`) decides the size."""


class FunctionShapes:
    """Shapes of what branches and loops return, each body being inferred once for the shapes of its arguments.

    Bodies that differ in names only count as one, also those within others.
    """

    def __init__(self, bounded: Bounded) -> None:
        """`bounded` gives the nodes of a GraphDef with bounds, and asks this for those of what it calls."""
        self._bounded, self._keys = bounded, FunctionKeys()
        self._made: dict[Any, dict[int, _ResultShape]] = {}

    def known_of_branch(self, nodes: StepNodes, i: int) -> dict[int, Shape]:
        """Return the outputs of a branch op that have the same known shape in every branch."""
        returned = self._infer_branches(nodes, i)
        return {
            k: returned[0][k].shape
            for k in (returned[0] if returned else ())
            if is_known(returned[0][k].shape) and all(of[k].shape == returned[0][k].shape for of in returned)
        }

    def bounds_of_branch(self, nodes: StepNodes, i: int) -> dict[int, Shape]:
        """Return upper bounds of the outputs of a branch op, where they have any.

        Of branches, those count in which no search (`Where`) decides the size, if there are any: its bound is a whole
        table, as if every row were found.
        """
        returned = self._infer_branches(nodes, i)
        bounds: dict[int, Shape] = {}
        for k in returned[0] if returned else ():
            of = [results[k] for results in returned]
            sure = [one.upper_bound for one in of if not one.searched] or [one.upper_bound for one in of]
            if all(is_known(shape) and len(shape or ()) == len(sure[0] or ()) for shape in sure):
                bounds[k] = tuple(max(sizes) for sizes in zip(*(shape or () for shape in sure), strict=True))
        return bounds

    def known_of_loop(self, nodes: StepNodes, i: int) -> dict[int, Shape]:
        """Return the loop variables whose shape is known and the same in every round."""
        return self._infer_loop(nodes, i, nodes.input_shapes(i), bounds=False)

    def bounds_of_loop(self, nodes: StepNodes, i: int) -> dict[int, Shape]:
        """Return upper bounds of what goes round a loop: its first size, where a round makes it no larger."""
        return self._infer_loop(nodes, i, nodes.input_upper_bounds(i), bounds=True)

    def _infer_loop(self, nodes: StepNodes, i: int, first: Sequence[Shape], *, bounds: bool) -> dict[int, Shape]:
        """Return the shapes among `first`, or the `bounds` of shapes, that a round keeps."""
        function = nodes.signatures.library.get(nodes.defs[i].attr["body"].func.name)
        if function is None:
            return {}
        root = find_resource_origins(nodes)
        constant_shapes = {k: first[k] for k in _find_open(nodes, i) if is_known(first[k])}
        # A variable that a round changes may change others in the next: repeated until a round keeps all that is left.
        while constant_shapes:
            arguments = [argument_stand_in(nodes, p, j, root) for p, j in nodes.inputs[i]]
            for k, dtype in enumerate(nodes.dtypes[i]):
                if dtype not in _OPAQUE:  # another value, and perhaps another size, in each round
                    shape = constant_shapes[k] if k in constant_shapes and not bounds else nodes.shapes[i][k]
                    arguments[k] = _placeholder(dtype, shape, constant_shapes.get(k) if bounds else None)
            after = self._infer_results(nodes, i, function, arguments, list(constant_shapes))
            staying = {}
            for k, shape in constant_shapes.items():
                size = after[k].upper_bound
                within = is_known(size) and len(size or ()) == len(shape or ())
                within = within and all(n <= most for n, most in zip(size or (), shape or (), strict=True))
                if within if bounds else after[k].shape == shape:
                    staying[k] = shape
            if staying == constant_shapes:
                break
            constant_shapes = staying
        return constant_shapes

    def _infer_branches(self, nodes: StepNodes, i: int) -> list[dict[int, _ResultShape]]:
        """Return the result shapes of each branch."""
        root, library = find_resource_origins(nodes), nodes.signatures.library
        arguments = [argument_stand_in(nodes, p, j, root) for p, j in nodes.inputs[i][1:]]
        functions = [library[name] for name in find_called_names(nodes.defs[i]) if name in library]
        return [self._infer_results(nodes, i, function, arguments, _find_open(nodes, i)) for function in functions]

    def _infer_results(
        self, nodes: StepNodes, i: int, function: Any, arguments: Sequence[Any], wanted: Sequence[int]
    ) -> dict[int, _ResultShape]:
        """Return the shapes of the wanted results of a function."""
        library = nodes.signatures.library
        key = (self._keys.key(function, library), *wanted, *map(self._keys.argument_key, arguments))
        if key not in self._made:
            flattened = flatten_function(function, arguments, library)
            flat = copy_graph_def(flattened.graph_def)
            for k in wanted:
                result = flat.node.add(name=f"{_RESULT}_{k}", op="Identity", input=[flattened.results[k]])
                result.attr["T"].type = nodes.dtypes[i][k]
            inner = self._bounded(infer_shapes(flat), [f"{_RESULT}_{k}" for k in wanted], self)
            place = {node.name: j for j, node in enumerate(inner.defs)}
            by_name = {node.name: node for node in flattened.graph_def.node}
            self._made[key] = {
                k: _ResultShape(
                    shape=inner.shapes[j][0],
                    upper_bound=inner.upper_bound(j, 0),
                    searched=any(
                        by_name[n].op == _SEARCH for n in find_needed_names(by_name, [producer(flattened.results[k])])
                    ),
                )
                for k, j in ((k, place[f"{_RESULT}_{k}"]) for k in wanted)
            }
        return self._made[key]


def _find_open(nodes: StepNodes, i: int) -> list[int]:
    both = zip(nodes.dtypes[i], nodes.shapes[i], strict=True)
    return [k for k, (dtype, shape) in enumerate(both) if dtype not in _OPAQUE and not is_known(shape)]


def argument_stand_in(nodes: StepNodes, p: int, k: int, root: Roots) -> Any:
    """Return a NodeDef that stands for tensor `k` of node `p` in a function: a handle, a constant, or a placeholder."""
    dtype, shape = nodes.dtypes[p][k], nodes.shapes[p][k]
    made_by = nodes.defs[root[p][k]] if root[p][k] >= 0 else None
    if made_by is not None and made_by.op == "VarHandleOp":
        return made_by
    if nodes.defs[p].op == "Const" and shape is not None and math.prod(shape) <= _MOST:
        return nodes.defs[p]
    return _placeholder(dtype, shape if dtype != RESOURCE else (), nodes.bounds.get((p, k)))


def _placeholder(dtype: int, shape: Shape, bound: Shape = None) -> Any:
    """Make a placeholder of a shape; where that is open, with an upper bound, which is no shape for TensorFlow."""
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


def find_pass_through(nodes: StepNodes) -> dict[tuple[int, int], tuple[int, int]]:
    """Return branch output -> the tensor that it is whichever branch is taken: a shape may depend on its value."""
    library, sources = nodes.signatures.library, {}
    for i, node in enumerate(nodes.defs):
        if node.op in BRANCHES:
            functions = [library[name] for name in find_called_names(node) if name in library]
            for k in range(len(nodes.dtypes[i])):
                # The argument that result `k` of a function passes through; None for a computed result.
                slots = set[int | None]()
                for function in functions:
                    arguments = {a.name: slot for slot, a in enumerate(function.signature.input_arg)}
                    identities = {n.name: n.input[0] for n in function.node_def if n.op == "Identity"}
                    tensor = function.ret[function.signature.output_arg[k].name]
                    while (name := tensor.partition(":")[0]) in identities:
                        tensor = identities[name]
                    slots.add(arguments.get(tensor))
                if len(slots) == 1 and (slot := slots.pop()) is not None:
                    sources[i, k] = nodes.inputs[i][1 + slot]
    return sources


class FunctionKeys:
    """Keys of the functions of one library, each made once, and equal where names alone differ."""

    def __init__(self) -> None:
        """Start without keys."""
        self._made: dict[str, str] = {}

    def key(self, function: Any, library: Mapping[str, Any]) -> str:
        """Return a digest of a FunctionDef that is the same for functions which differ in names only.

        Arguments, nodes and results count by their numbers. Functions that it calls count by their own digests; one
        that calls itself counts by its name there.
        """
        own = function.signature.name
        if own in self._made:
            return self._made[own]
        self._made[own] = own  # what a function that calls itself finds
        numbered = {argument.name: f"a{i}" for i, argument in enumerate(function.signature.input_arg)}
        numbered |= {node.name: f"n{i}" for i, node in enumerate(function.node_def)}
        copy = function_pb2.FunctionDef()
        for argument in function.signature.input_arg:
            copy.signature.input_arg.add().CopyFrom(argument)
            copy.signature.input_arg[-1].name = numbered[argument.name]
        for i, result in enumerate(function.signature.output_arg):
            copy.ret[f"r{i}"] = _number_name(function.ret[result.name], numbered)
        for i, effect in enumerate(sorted(numbered.get(n, n) for n in function.control_ret.values())):
            copy.control_ret[f"e{i}"] = effect
        for node in function.node_def:
            anonymous = copy.node_def.add()
            anonymous.CopyFrom(node)
            anonymous.name = numbered[node.name]
            anonymous.input[:] = [_number_name(tensor, numbered) for tensor in node.input]
            self._forget_names(anonymous, library)
        for name, value in function.attr.items():
            if not name.endswith("_function_name"):
                copy.attr[name].CopyFrom(value)
        self._made[own] = hashlib.sha256(copy.SerializeToString(deterministic=True)).hexdigest()
        return self._made[own]

    def argument_key(self, argument: Any) -> bytes:
        """Return the bytes of a NodeDef that stands for a function's argument, without names."""
        copy = node_def_pb2.NodeDef()
        copy.CopyFrom(argument)
        copy.ClearField("name")
        self._forget_names(copy, {})
        return copy.SerializeToString(deterministic=True)

    def _forget_names(self, node: Any, library: Mapping[str, Any]) -> None:
        """Take off a NodeDef what names an object, and put the digests of functions in place of their names."""
        node.ClearField("device")
        node.ClearField("experimental_debug_info")
        if node.op in library:
            node.op = self.key(library[node.op], library)
        for name in _NAMES:
            node.attr.pop(name, None)
        for value in node.attr.values():
            functions = [value.func] if value.HasField("func") else value.list.func if value.HasField("list") else ()
            for called in functions:
                if called.name in library:
                    called.name = self.key(library[called.name], library)


def _number_name(tensor: str, numbered: Mapping[str, str]) -> str:
    """Return a tensor's or control input's name with the number of the node that makes it."""
    control = "^" if tensor.startswith("^") else ""
    name, colon, rest = tensor.removeprefix("^").partition(":")
    return f"{control}{numbered.get(name, name)}{colon}{rest}"
