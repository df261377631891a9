"""Function calls replaced by the functions' bodies, so that every op of the step is seen and can be placed.

Nested tf.functions are run inline where the step is traced; calls of a GraphDef are replaced in it.
"""

import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from pesto.core.errors import InputError
from pesto.core.files.json import quoted, shown
from pesto.tf import private
from pesto.tf.nodes.graph_def_bytes import MAX_NODES
from pesto.tf.nodes.needed_nodes import RECORDED, Signatures
from pesto.tf.placement_refusals import xla_error
from pesto.tf.private import TraceRequest, autograph_of

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
"""Types of the ops that run another function."""
_MAX_DEPTH = 64

_log = logging.getLogger("pesto")


def inline_python_calls(python_function: Callable[..., Any]) -> Callable[..., Any]:
    """Make `python_function` call the tf.functions inside it as plain Python while it is traced.

    Give it to `tf.function` in place of `python_function`: the trace then has no calls, and ops of nested functions
    can be placed. A nested function's own autograph does not run; one that branches on a tensor in Python raises.
    """

    @functools.wraps(python_function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        with _inline():
            return python_function(*args, **kwargs)

    return traced


def find_called_functions(func_graph: Any) -> tuple[str, ...]:
    """Return the names of functions, each once, that ops of a FuncGraph run and that could have been traced inline."""
    return tuple({op.get_attr("f").name: None for op in func_graph.get_operations() if op.type in CALLS})


def retrace_inline(function: Any, specs: Sequence[Any]) -> Any | None:
    """Return the FuncGraph of a `tf.function` traced flat with `specs`; None where that fails or calls are left."""
    again = tf.function(
        inline_python_calls(function.python_function),
        input_signature=function.input_signature,
        autograph=autograph_of(function),
    )
    try:
        graph = again.get_concrete_function(*specs).graph
    except Exception as error:  # the user's code may rely on a nested function's own autograph
        _log.debug("a flat trace failed: %s", error)
        return None
    return None if find_called_functions(graph) else graph


@contextmanager
def inline_keras_2(tracing: TraceRequest) -> Iterator[None]:
    """Trace inline what a function of Keras 2 (tf_keras) calls: its recurrent layers are tf.functions of their own."""
    with _inline() if tracing.module.startswith("tf_keras.") else nullcontext():
        yield


@contextmanager
def _inline() -> Iterator[None]:
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def flatten(graph_def: Any) -> Any:
    """Return `graph_def` with all calls inlined, recursively; itself when it has none.

    A call's own name stays as a NoOp behind which its effects lie, so that control inputs and fetches of it hold. The
    functions of loops and branches stay in the library. Raise InputError for recursion, for functions that are missing,
    and for ones that XLA must compile.
    """
    library = {f.signature.name: f for f in graph_def.library.function}
    if not any(node.op in CALLS or node.op in library for node in graph_def.node):
        return graph_def
    inliner = _Inliner(library, Signatures(library))
    flat = inliner.finish(inliner.expand(graph_def.node, 0), library)
    flat.versions.CopyFrom(graph_def.versions)
    return flat


class FlatFunction(NamedTuple):
    """A function with all calls inlined."""

    graph_def: Any
    results: tuple[str, ...]
    """The tensors that it returns."""
    ops: list[str]
    """Names of the ops that make its results and effects."""


def flatten_function(function: Any, arguments: Sequence[Any], library: Mapping[str, Any]) -> FlatFunction:
    """Return a flat GraphDef of one function.

    `arguments` are NodeDefs (placeholders or variable handles) that stand for its inputs; they are given their names.
    """
    inliner = _Inliner(library, Signatures(library))
    names = [f"argument_{i}" for i in range(len(arguments))]
    nodes = []
    for name, argument in zip(names, arguments, strict=True):
        node = node_def_pb2.NodeDef()
        node.CopyFrom(argument)
        node.name = name
        nodes.append(node)
    inner, returned, effects = inliner.instantiate(function, "body", names, {}, [])
    # Importing a function costs time, and a step has several for each `If`: only those that this one needs.
    flat_nodes = [*nodes, *inliner.expand(inner, 0)]
    flat = inliner.finish(flat_nodes, reachable_functions(flat_nodes, library))
    results = tuple(inliner.resolved(t) for t in returned)
    return FlatFunction(flat, results, [c[1:] for c in _to_controls([*results, *map(inliner.resolved, effects)])])


def find_called_names(node: Any) -> Iterator[str]:
    """Yield the names of the functions that the attributes of a NodeDef hold."""
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        elif value.HasField("list"):
            yield from (f.name for f in value.list.func)


def reachable_functions(nodes: Iterable[Any], library: Mapping[str, Any]) -> dict[str, Any]:
    """Return the functions of `library` that `nodes` call, directly or through other functions."""
    functions: dict[str, Any] = {}
    stack = list(nodes)
    while stack:
        node = stack.pop()
        for name in (node.op, *find_called_names(node)):
            if name in library and name not in functions:
                functions[name] = library[name]
                stack += library[name].node_def
    return functions


@dataclass(frozen=True, slots=True)
class _Inliner:
    library: Mapping[str, Any]
    signatures: Signatures
    alias: dict[str, str] = field(default_factory=dict)
    """Output of a call -> tensor of its body."""
    counter: Iterator[int] = field(default_factory=itertools.count)

    def expand(self, nodes: Sequence[Any], depth: int) -> Iterator[Any]:
        """Yield all nodes, calls replaced by a NoOp and the nodes of their bodies."""
        for node in nodes:
            name = node.attr["f"].func.name if node.op in CALLS else node.op
            if name not in self.library and node.op in CALLS:
                raise InputError.build(
                    f"op {shown(node.name)}: the function {quoted(name)} that it calls is missing",
                    remedy="the graph is damaged",
                )
            function = self.library.get(name)
            if function is not None and (private.must_compile(node.attr) or private.must_compile(function.attr)):
                raise xla_error(f"op {shown(node.name)}")
            # A file may contain functions that call each other in a circle or double in size at each level; both limits
            # stop before memory runs out.
            if depth > _MAX_DEPTH or next(self.counter) > MAX_NODES:
                raise InputError.build(
                    f"op {shown(node.name)}: its function calls itself or grows without end", remedy="unroll it by hand"
                )
            if function is None:
                yield node
                continue
            data = [t for t in node.input if t[0] != "^"]
            attrs = {**node.attr, **(node.attr["f"].func.attr if "f" in node.attr else {})}
            controls = [t for t in node.input if t[0] == "^"]
            inner, returned, effects = self.instantiate(function, node.name, data, attrs, controls)
            for k, tensor in enumerate(returned):
                self.alias[f"{node.name}:{k}"] = tensor
            # Control inputs and fetches by the call's name still have to work: the NoOp waits for all results and
            # effects of the body.
            yield node_def_pb2.NodeDef(name=node.name, op="NoOp", input=_to_controls([*returned, *effects]) + controls)
            yield from self.expand(inner, depth + 1)

    def instantiate(
        self, function: Any, prefix: str, inputs: Sequence[str], attrs: Mapping[str, Any], controls: list[str]
    ) -> tuple[list[Any], list[str], list[str]]:
        """Return (nodes, returned tensors, ops with effects) of one call's body, named below `prefix`."""
        where = {a.name: t for a, t in zip(function.signature.input_arg, inputs, strict=False)}
        local = {node.name: node for node in function.node_def}
        nodes = []
        for inner in function.node_def:
            node = node_def_pb2.NodeDef()
            node.CopyFrom(inner)
            node.name = f"{prefix}/{inner.name}"
            node.attr.pop("_class", None)  # it speaks of names inside the function
            if "_output_shapes" in node.attr:
                node.attr[RECORDED].CopyFrom(node.attr["_output_shapes"])
            for value in node.attr.values():
                if value.placeholder and value.placeholder in attrs:
                    value.CopyFrom(attrs[value.placeholder])
            rooted = all(t.removeprefix("^").partition(":")[0] in where for t in inner.input)
            # The body waits for what the call waits for; what comes later waits for its own first ops.
            node.input[:] = [self._rename(t, prefix, where, local) for t in inner.input] + (controls if rooted else [])
            nodes.append(node)
        returned = [
            self._rename(function.ret[a.name], prefix, where, local) for a in function.signature.output_arg
        ]  # fmt: skip
        return nodes, returned, [f"{prefix}/{n}" for n in function.control_ret.values()]

    def finish(self, nodes: Any, library: Mapping[str, Any]) -> Any:
        """Make a GraphDef of `nodes` with references to calls' outputs led into the bodies, without stale shapes."""
        flat = graph_pb2.GraphDef()
        flat.library.function.extend(library.values())
        flat.node.extend(nodes)
        for node in flat.node:
            node.input[:] = [self.resolved(t) for t in node.input]
            node.attr.pop("_output_shapes", None)
        return flat

    def resolved(self, tensor: str) -> str:
        """Return the tensor that `tensor` finally comes from."""
        for _ in range(len(self.alias) + 1):
            source = self.alias.get(tensor if ":" in tensor else f"{tensor}:0")
            if source is None:
                return tensor
            tensor = source
        raise InputError.build(f"graph: tensor {shown(tensor)} is made from itself", remedy="the graph is damaged")

    def _rename(self, text: str, prefix: str, where: Mapping[str, str], local: Mapping[str, Any]) -> str:
        control = text.startswith("^")
        name, _, rest = text.removeprefix("^").partition(":")
        if name in where:
            return _to_controls([where[name]])[0] if control else where[name]
        if control:
            return f"^{prefix}/{name}"
        if name not in local:
            raise InputError.build(
                f"function behind {shown(prefix)}: its input {quoted(text)} does not exist",
                remedy="the graph is damaged",
            )
        output, _, k = rest.partition(":")
        if k and not k.isdigit():
            raise InputError.build(
                f"function behind {shown(prefix)}: its input {shown(text)} is no tensor", remedy="it is damaged"
            )
        return f"{prefix}/{name}:{self.signatures.output_offset(local[name], output) + int(k or 0)}"


def _to_controls(tensors: Sequence[str]) -> list[str]:
    return sorted({f"^{t.removeprefix('^').partition(':')[0]}" for t in tensors})
