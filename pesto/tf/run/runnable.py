"""A captured step made runnable in a v1 Session: variables initialised, feeds filled with random batches."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from pesto.errors import InputError
from pesto.files.json import shown
from pesto.tf.feed_values import FeedValues
from pesto.tf.nodes.captured import Captured
from pesto.tf.nodes.needed_nodes import Nodes, needed, producer
from pesto.tf.nodes.signatures import RESOURCE
from pesto.tf.nodes.sizes import Shape
from pesto.tf.run.implied_values import ImpliedValues
from pesto.tf.run.input_sources import refuse_waiting
from pesto.tf.variables.variables import declared_shape

_REFERENCES = ("VariableV2", "Variable")
_LOCATION = b"loc:@"
_STARTS = {
    "MakeIterator": 1, "InitializeTable": 0, "InitializeTableV2": 0, "InitializeTableFromTextFile": 0,
    "InitializeTableFromTextFileV2": 0, "LookupTableImport": 0, "LookupTableImportV2": 0,
}  # fmt: skip
"""Ops that initialise what a session keeps -> the input that says what."""
_LARGEST = 0.05
"""Bound of a variable's random values, and 1 / fan-in where that is less: deep networks stay finite."""


class Runs(Protocol):
    """One training step that a v1 Session can run; the built-in models' `Step` is one."""

    @property
    def graph(self) -> Any:
        """The `tf.Graph`."""

    @property
    def fetches(self) -> tuple[str, ...]:
        """Names of ops or tensors."""

    @property
    def init(self) -> str:
        """Name of the op that initialises every variable."""

    @property
    def feed_values(self) -> tuple[FeedValues, ...]:
        """Which values `feed` has, and why."""

    def feed(self, rng: np.random.Generator) -> Mapping[str, Any]:
        """A batch, by tensor name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """A `Runs` made from a captured step."""

    graph: Any
    fetches: tuple[str, ...]
    init: str
    given: Mapping[str, Any]
    """Tensors that the step closed over, fed as they are."""
    feed_values: tuple[FeedValues, ...]
    """What is drawn."""

    def feed(self, rng: np.random.Generator) -> Mapping[str, Any]:
        """A batch drawn from the ranges that the ops imply, and what the step closed over."""
        return {**self.given, **{f"{values.name}:0": values.draw(rng) for values in self.feed_values}}


def runnable(captured: Captured, nodes: Nodes) -> Runnable:
    """`captured` with its variables at small random values and feeds of the shapes that `nodes` have.

    Op names stay, so that a trace speaks of the same ops as the `Graph`. InputError for resources other than variables
    that only the program which made the step can provide, and for queues that only it fills.
    """
    program = _repeatable(nodes)
    starts = _add_starts(program, captured.graph_def)
    refuse_waiting(nodes, captured.source, starts)
    given: dict[str, Any] = {}
    drawn: list[FeedValues] = []
    implied = ImpliedValues.of(nodes)
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(program, name="")
        _set_shapes(graph, captured.graph_def)
        variables = [node for node in nodes.defs if node.op in ("VarHandleOp", *_REFERENCES)]
        assigned = [_initial(graph, node, k) for k, node in enumerate(variables)]
        for i, node in enumerate(nodes.defs):
            if node.op in ("Placeholder", "PlaceholderV2"):
                name = f"{node.name}:0"
                if nodes.dtypes[i][0] == RESOURCE:
                    raise InputError(
                        f"{captured.source}: {shown(node.name)} is a table or iterator of another program - give the "
                        "batch to the step as an argument, or run its program by pesto.apply"
                    )
                if node.name in captured.values:
                    given[name] = np.asarray(captured.values[node.name])
                else:
                    shape = _static(nodes.shapes[i][0])
                    drawn.append(implied.feed(node.name, shape, tf.as_dtype(nodes.dtypes[i][0])))
        init = tf.group(*assigned, *map(graph.get_operation_by_name, starts.values()), name="pesto_init")
    return Runnable(graph=graph, fetches=captured.fetches, init=init.name, given=given, feed_values=tuple(drawn))


def _add_starts(program: Any, whole: Any) -> dict[str, str]:
    """Add the ops that initialise the step's tables and iterators, with all that they need: their names, by handle.

    One that needs a feed is left out, since nothing says what a program feeds before its first step.
    """
    inside, by_name = {node.name for node in program.node}, {node.name: node for node in whole.node}
    started: dict[str, str] = {}
    for node in whole.node:
        slot = _STARTS.get(node.op)
        handle = "" if slot is None else producer(node.input[slot].partition(":")[0])
        if handle in inside and handle not in started:
            names = needed(by_name, [node.name])
            if not any(by_name[name].op.startswith("Placeholder") for name in names):
                started[handle] = node.name
                for name in sorted(names - inside):
                    program.node.add().CopyFrom(by_name[name])
                    program.node[-1].device = ""
                    program.node[-1].attr.pop("_output_shapes", None)
                inside |= names
    return started


def _set_shapes(graph: Any, whole: Any) -> None:
    """Set the shapes that the program set: no GraphDef has them, as of what is looked up in a table."""
    names = {op.name for op in graph.get_operations()}
    for node in whole.node:
        if node.name in names:
            outputs = graph.get_operation_by_name(node.name).outputs
            for tensor, shape in zip(outputs, node.attr["_output_shapes"].list.shape, strict=False):
                tensor.set_shape(shape)


def _repeatable(nodes: Nodes) -> Any:
    """The nodes on no device, their random ops seeded, so that two runs draw the same numbers.

    `_class` stays where it binds ops with references, as in `pesto.tf.nodes.groups`: the graph is the planned one.
    """
    names = {node.name.encode() for node in nodes.defs}
    graph_def = tf.compat.v1.GraphDef()
    graph_def.library.function.extend(nodes.signatures.library.values())
    graph_def.node.extend(nodes.defs)
    for k, node in enumerate(graph_def.node):
        if "seed" in node.attr and "seed2" in node.attr and not (node.attr["seed"].i or node.attr["seed2"].i):
            node.attr["seed2"].i = k + 1
        node.attr.pop("_output_shapes", None)
        node.device = ""
        if "_class" in node.attr:
            kept = [c for c in node.attr["_class"].list.s if c.removeprefix(_LOCATION) in names]
            del node.attr["_class"].list.s[:]
            if kept and nodes.signatures.has_ref(node):
                node.attr["_class"].list.s.extend(kept)
            else:
                del node.attr["_class"]
    return graph_def


def _initial(graph: Any, node: Any, number: int) -> Any:
    """The op that gives a variable its first values, other ones for each number of a variable."""
    handle = graph.get_tensor_by_name(f"{node.name}:0")
    dtype = tf.as_dtype(node.attr["dtype"].type)
    shape = _static(declared_shape(node))
    if dtype.is_floating:
        # Not negative: nothing says which variables are second moments or variances, whose roots are taken.
        high = min(_LARGEST, 1 / math.prod(shape[:-1]))
        value = tf.cast(tf.random.stateless_uniform(shape, (1, 2 + number), 0, high), dtype)
    else:
        value = tf.zeros(shape, dtype)
    if node.op == "VarHandleOp":
        return tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return tf.raw_ops.Assign(ref=handle, value=value).op


def _static(shape: Shape) -> tuple[int, ...]:
    return tuple(max(1, d) for d in shape or ())
