"""A captured step made runnable in a v1 Session: variables initialised, feeds filled with random batches."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from pesto.errors import InputError
from pesto.files.json import shown
from pesto.tf.nodes.captured import Captured
from pesto.tf.nodes.needed_nodes import Nodes, Shape
from pesto.tf.nodes.signatures import RESOURCE
from pesto.tf.variables.variables import declared_shape

_REFERENCES = ("VariableV2", "Variable")
_LOCATION = b"loc:@"
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

    def feed(self, rng: np.random.Generator) -> Mapping[str, Any]:
        """A batch, by tensor name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """A `Runs` made from a captured step; `given` are fed as they are, `drawn` at random."""

    graph: Any
    fetches: tuple[str, ...]
    init: str
    given: Mapping[str, Any]
    drawn: Mapping[str, tuple[tuple[int, ...], Any]]

    def feed(self, rng: np.random.Generator) -> Mapping[str, Any]:
        """Random reals in [0, 1), zeros for integers (they index), empty strings, and what the step closed over."""
        return {**self.given, **{name: _draw(rng, shape, dtype) for name, (shape, dtype) in self.drawn.items()}}


def runnable(captured: Captured, nodes: Nodes) -> Runnable:
    """`captured` with its variables at small random values and feeds of the shapes that `nodes` have.

    Op names stay, so that a trace speaks of the same ops as the `Graph`. InputError for resources other than variables
    that only the program which made the step can provide.
    """
    given: dict[str, Any] = {}
    drawn: dict[str, tuple[tuple[int, ...], Any]] = {}
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(_repeatable(nodes), name="")
        assigned = [_initial(graph, node) for node in nodes.defs if node.op in ("VarHandleOp", *_REFERENCES)]
        for i, node in enumerate(nodes.defs):
            if node.op in ("Placeholder", "PlaceholderV2"):
                name = f"{node.name}:0"
                if nodes.dtypes[i][0] == RESOURCE:
                    raise InputError(f"{captured.source}: {shown(node.name)} is a table or iterator of another program")
                if node.name in captured.values:
                    given[name] = np.asarray(captured.values[node.name])
                else:
                    drawn[name] = (_static(nodes.shapes[i][0]), tf.as_dtype(nodes.dtypes[i][0]))
        init = tf.group(*assigned, name="pesto_init")
    return Runnable(graph=graph, fetches=captured.fetches, init=init.name, given=given, drawn=drawn)


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


def _initial(graph: Any, node: Any) -> Any:
    handle = graph.get_tensor_by_name(f"{node.name}:0")
    dtype = tf.as_dtype(node.attr["dtype"].type)
    shape = _static(declared_shape(node))
    if dtype.is_floating:
        # Not negative: nothing says which variables are second moments or variances, whose roots are taken.
        high = min(_LARGEST, 1 / math.prod(shape[:-1]))
        value = tf.cast(tf.random.stateless_uniform(shape, (1, 2), 0, high), dtype)
    else:
        value = tf.zeros(shape, dtype)
    if node.op == "VarHandleOp":
        return tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return tf.raw_ops.Assign(ref=handle, value=value).op


def _static(shape: Shape) -> tuple[int, ...]:
    return tuple(max(1, d) for d in shape or ())


def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    if dtype == tf.string:
        return np.full(shape, b"", dtype=object)
    if dtype.is_floating:
        return rng.random(shape).astype(dtype.as_numpy_dtype)
    return np.zeros(shape, dtype=dtype.as_numpy_dtype)
