"""A captured step made runnable in a v1 Session: variables initialised, feeds filled with random batches."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.tf.feed_values import FeedValues
from pesto.tf.nodes.batch_dimension import READ_ITERATOR
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.needed_nodes import StepNodes, needed_names, producer
from pesto.tf.nodes.signatures import RESOURCE
from pesto.tf.nodes.sizes import Shape
from pesto.tf.run.implied_values import ImpliedValues
from pesto.tf.run.input_sources import refuse_empty_tables, refuse_waiting
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStart:
    """The op and feeds that give a session the next batch of a step that reads it from an iterator of its program."""

    op: str
    """Name of the op that makes the iterators anew, with that batch."""
    fed: Mapping[str, str]
    """Tensor that an iterator gives -> the placeholder that has its value when the op runs."""


class RunnableStep(Protocol):
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
        """Values that `feed` draws, with reasons."""

    @property
    def batch_start(self) -> BatchStart | None:
        """The start of the iterators that give a part of `feed`; None for a step whose feeds are all placeholders."""

    def feed(self, rng: np.random.Generator) -> Mapping[str, Any]:
        """A batch, by tensor name."""


def start_batch(session: Any, step: RunnableStep, rng: np.random.Generator) -> dict[str, Any]:
    """Draw a batch, give the step's iterators their part of it, and return what the step's run is to be fed."""
    values, start = dict(step.feed(rng)), step.batch_start
    if start is not None:
        given = {placeholder: values.pop(tensor) for tensor, placeholder in start.fed.items()}
        session.run(step.graph.get_operation_by_name(start.op), given)
    return values


def tensor_name(feed: str) -> str:
    """Name of the tensor that a feed is; the first output of an op is called as the op."""
    return feed if ":" in feed else f"{feed}:0"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRunnable:
    """A `RunnableStep` made from a captured step."""

    graph: Any
    fetches: tuple[str, ...]
    init: str
    given: Mapping[str, Any]
    """Tensors that the step closed over, fed as they are."""
    feed_values: tuple[FeedValues, ...]
    """The feeds whose values are drawn."""
    batch_start: BatchStart | None = None

    def feed(self, rng: np.random.Generator) -> Mapping[str, Any]:
        """A batch drawn from the ranges that the ops imply, and what the step closed over."""
        return {**self.given, **{tensor_name(values.name): values.draw(rng) for values in self.feed_values}}


def make_runnable(captured: CapturedStep, nodes: StepNodes) -> CapturedRunnable:
    """`captured` with its variables at small random values and feeds of the shapes that `nodes` have.

    Op names stay, so that a trace speaks of the same ops as the `Graph`. InputError for resources other than variables
    that only the program which made the step can provide, and for queues that only it fills.
    """
    program = _repeatable(nodes)
    starts = _add_starts(program, captured.graph_def)
    iterators = _handed_iterators(nodes) if captured.function else []
    refuse_waiting(nodes, captured.source, {*starts, *(handle for handle, _ in iterators)})
    refuse_empty_tables(nodes, captured.graph_def, captured.source, starts)
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
                    raise InputError.build(
                        f"{shown(node.name)} is a table or another resource of its program, of "
                        "which no value can be drawn",
                        where=captured.source,
                        remedy=(
                            "look things up before the step and give it the results, or "
                            "train in that program inside pesto.apply(plan), which places and "
                            "verifies the step there"
                        ),
                    )
                if node.name in captured.values:
                    given[name] = np.asarray(captured.values[node.name])
                else:
                    shape = _static(nodes.shapes[i][0])
                    drawn.append(implied.feed(node.name, shape, tf.as_dtype(nodes.dtypes[i][0])))
        batch_start = _batch_start(graph, nodes, iterators, implied, drawn)
        init = tf.group(*assigned, *map(graph.get_operation_by_name, starts.values()), name="pesto_init")
    return CapturedRunnable(
        graph=graph, fetches=captured.fetches, init=init.name, given=given, feed_values=tuple(drawn),
        batch_start=batch_start,
    )  # fmt: skip


def _handed_iterators(nodes: StepNodes) -> list[tuple[str, int]]:
    """(name of the handle, first node that reads it) of the iterators that a function takes from its program."""
    first: dict[str, int] = {}
    for i, node in enumerate(nodes.defs):
        if node.op in READ_ITERATOR:
            handle = nodes.defs[nodes.inputs[i][0][0]]
            if handle.op == "IteratorV2":
                first.setdefault(handle.name, i)
    return list(first.items())


def _batch_start(
    graph: Any, nodes: StepNodes, iterators: list[tuple[str, int]], implied: ImpliedValues, drawn: list[FeedValues]
) -> BatchStart | None:
    """Add to the graph what makes each of the iterators anew with a batch, and to `drawn` what they give.

    All reads of an iterator in a step get one batch.
    """
    if not iterators:
        return None
    fed, made = {}, []
    for handle, i in iterators:
        name, values = nodes.defs[i].name, []
        for k, dtype in enumerate(nodes.dtypes[i]):
            shape = _static(nodes.shapes[i][k])
            feed = implied.feed(f"{name}:{k}" if k else name, shape, tf.as_dtype(dtype))
            values.append(tf.compat.v1.placeholder(dtype, shape, name=f"pesto_batch/{name}_{k}"))
            fed[tensor_name(feed.name)] = values[-1].name
            drawn.append(feed)
        dataset = tf.data.Dataset.from_tensors(tuple(values)).repeat()
        iterator = graph.get_tensor_by_name(f"{handle}:0")
        made.append(tf.raw_ops.MakeIterator(dataset=tf.data.experimental.to_variant(dataset), iterator=iterator))
    return BatchStart(op=tf.group(*made, name="pesto_batch/start").name, fed=fed)


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
            names = needed_names(by_name, [node.name])
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


def _repeatable(nodes: StepNodes) -> Any:
    """The nodes on no device, their random ops seeded, so that two runs draw the same numbers.

    `_class` stays where it binds ops with references, as in `pesto.tf.nodes.colocation`: the graph is the planned one.
    """
    names = {node.name.encode() for node in nodes.defs}
    graph_def = tf.compat.v1.GraphDef()
    graph_def.library.function.extend(nodes.signatures.library.values())
    graph_def.node.extend(nodes.defs)
    for k, node in enumerate(graph_def.node):
        # Unseeded random ops draw from the process's entropy; two runs could not be compared. The number of the node
        # makes the seeds differ.
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
