"""A captured step made runnable in a v1 Session: variables initialised, feeds drawn at random or given by the user."""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.files.batch_file import read_batch
from pesto.core.files.json import shown
from pesto.core.quantities import plural
from pesto.tf.feed_values import FeedValues
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.needed_nodes import RESOURCE, Shape, StepNodes, find_needed_names, producer
from pesto.tf.nodes.shape_inference import READ_ITERATOR
from pesto.tf.run.implied_values import ImpliedValues
from pesto.tf.run.run_options import Batch
from pesto.tf.variables.variables import declared_shape

_TAKES = {
    "QueueDequeue": "QueueEnqueue", "ReaderRead": "QueueEnqueue", "Unstage": "Stage", "StagePeek": "Stage",
    "MapUnstage": "MapStage", "MapPeek": "MapStage", "OrderedMapUnstage": "OrderedMapStage",
    "OrderedMapPeek": "OrderedMapStage", "BarrierTakeMany": "BarrierInsertMany",
    "AccumulatorTakeGradient": "AccumulatorApplyGradient",
    "SparseAccumulatorTakeGradient": "SparseAccumulatorApplyGradient",
    "ResourceAccumulatorTakeGradient": "ResourceAccumulatorApplyGradient", "Recv": "Send", "HostRecv": "HostSend",
}  # fmt: skip
"""Prefix of op types that wait for an element -> prefix of op types that put one in."""
_STARTED = ("Iterator", "IteratorV2", "IteratorFromStringHandle", "IteratorFromStringHandleV2")
"""Types of iterators that an op of the program outside of the step starts."""
_ASSERT = re.compile(r"(?:Node: '|\{\{node )([^'}]*\bAssert(?:_\d+)?)['}]")
"""Name, in an error, of the op that stopped a step because a condition of the program does not hold."""
_TABLES = ("HashTable", "HashTableV2")
"""Types of lookup tables that are empty before they are filled."""
_FILLS = ("InitializeTable", "LookupTableImport")
"""Prefixes of op types that fill them."""
_REFERENCES = ("VariableV2", "Variable")
_LOCATION = b"loc:@"
_STARTS = {
    "MakeIterator": 1, "InitializeTable": 0, "InitializeTableV2": 0, "InitializeTableFromTextFile": 0,
    "InitializeTableFromTextFileV2": 0, "LookupTableImport": 0, "LookupTableImportV2": 0,
}  # fmt: skip
"""Ops that initialise a resource of a session -> the input that is its handle."""
_LARGEST = 0.05
"""Bound of a variable's random values, and 1 / fan-in where that is less: deep networks stay finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStart:
    """Op and feeds that give a session the next batch of a step that reads it from an iterator of its program."""

    op: str
    """Name of the op that makes the iterators anew, with that batch."""
    fed: Mapping[str, str]
    """Tensor of an iterator -> the placeholder for its value when the op runs."""


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
        """Return a batch, by tensor name."""


def start_batch(session: Any, step: RunnableStep, rng: np.random.Generator) -> dict[str, Any]:
    """Draw a batch, give the step's iterators their part of it, and return the feeds of the step's run."""
    values, start = dict(step.feed(rng)), step.batch_start
    if start is not None:
        iterator_feeds = {placeholder: values.pop(tensor) for tensor, placeholder in start.fed.items()}
        session.run(step.graph.get_operation_by_name(start.op), iterator_feeds)
    return values


def tensor_name(feed: str) -> str:
    """Return the name of the tensor that a feed is; the first output of an op is called as the op."""
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
    """Feeds whose values are drawn."""
    batch_start: BatchStart | None = None

    def feed(self, rng: np.random.Generator) -> Mapping[str, Any]:
        """Return a batch drawn from the ranges that the ops imply, and the tensors that the step closed over."""
        return {**self.given, **{tensor_name(values.name): values.draw(rng) for values in self.feed_values}}


def make_runnable(captured: CapturedStep, nodes: StepNodes) -> CapturedRunnable:
    """Return `captured` with its variables at small random values and feeds of the shapes that `nodes` have.

    Op names stay, so that a trace speaks of the same ops as the `Graph`. Raise InputError for resources other than
    variables that only the program which made the step can provide, and for queues that only it fills.
    """
    program = _make_repeatable(nodes)
    starts = _add_starts(program, captured.graph_def)
    iterators: dict[str, int] = {}  # handle of each iterator that a function takes from its program -> first reader
    for i, node in enumerate(nodes.defs if captured.function else ()):
        if node.op in READ_ITERATOR and (handle := nodes.defs[nodes.inputs[i][0][0]]).op == "IteratorV2":
            iterators.setdefault(handle.name, i)
    refuse_waiting(nodes, captured.source, {*starts, *iterators})
    refuse_empty_tables(nodes, captured.graph_def, captured.source, starts)
    initial_values: dict[str, Any] = {}
    drawn: list[FeedValues] = []
    implied = ImpliedValues.of(nodes)
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(program, name="")
        # The program set shapes that no GraphDef has, as of values looked up in a table.
        names = {op.name for op in graph.get_operations()}
        for node in captured.graph_def.node:
            if node.name in names:
                outputs = graph.get_operation_by_name(node.name).outputs
                for tensor, shape in zip(outputs, node.attr["_output_shapes"].list.shape, strict=False):
                    tensor.set_shape(shape)
        variables = [node for node in nodes.defs if node.op in ("VarHandleOp", *_REFERENCES)]
        assigned = [_make_initial_op(graph, node, k) for k, node in enumerate(variables)]
        for i, node in enumerate(nodes.defs):
            if node.op in ("Placeholder", "PlaceholderV2"):
                name = f"{node.name}:0"
                if nodes.dtypes[i][0] == RESOURCE:
                    raise InputError.build(
                        f"{shown(node.name)} is a table or another resource of its program, of which no value can be "
                        "drawn",
                        where=captured.source,
                        remedy="look things up before the step and give it the results, or train in that program "
                        "inside pesto.apply(plan), which places and verifies the step there",
                    )
                if node.name in captured.values:
                    initial_values[name] = np.asarray(captured.values[node.name])
                else:
                    shape = _require_static(nodes.shapes[i][0])
                    drawn.append(implied.feed(node.name, shape, tf.as_dtype(nodes.dtypes[i][0])))
        batch_start = _make_batch_start(graph, nodes, iterators, implied, drawn)
        init = tf.group(*assigned, *map(graph.get_operation_by_name, starts.values()), name="pesto_init")
    return CapturedRunnable(
        graph=graph, fetches=captured.fetches, init=init.name, given=initial_values, feed_values=tuple(drawn),
        batch_start=batch_start,
    )  # fmt: skip


def _make_batch_start(
    graph: Any, nodes: StepNodes, iterators: Mapping[str, int], implied: ImpliedValues, drawn: list[FeedValues]
) -> BatchStart | None:
    """Add to the graph the ops that make each iterator anew with a batch, and to `drawn` the values of that batch."""
    if not iterators:
        return None
    fed, starts = {}, []
    # All reads of an iterator in a step get one batch.
    for handle, i in iterators.items():
        name, values = nodes.defs[i].name, []
        for k, dtype in enumerate(nodes.dtypes[i]):
            shape = _require_static(nodes.shapes[i][k])
            feed = implied.feed(f"{name}:{k}" if k else name, shape, tf.as_dtype(dtype))
            values.append(tf.compat.v1.placeholder(dtype, shape, name=f"pesto_batch/{name}_{k}"))
            fed[tensor_name(feed.name)] = values[-1].name
            drawn.append(feed)
        dataset = tf.data.Dataset.from_tensors(tuple(values)).repeat()
        iterator = graph.get_tensor_by_name(f"{handle}:0")
        starts.append(tf.raw_ops.MakeIterator(dataset=tf.data.experimental.to_variant(dataset), iterator=iterator))
    return BatchStart(op=tf.group(*starts, name="pesto_batch/start").name, fed=fed)


def _add_starts(program: Any, full_graph: Any) -> dict[str, str]:
    """Add the ops that initialise the step's tables and iterators, with all that they need; return {handle: op}."""
    inside, by_name = {node.name for node in program.node}, {node.name: node for node in full_graph.node}
    started: dict[str, str] = {}
    for node in full_graph.node:
        slot = _STARTS.get(node.op)
        handle = "" if slot is None else producer(node.input[slot].partition(":")[0])
        if handle in inside and handle not in started:
            names = find_needed_names(by_name, [node.name])
            # Nothing says what a program feeds before its first step.
            if not any(by_name[name].op.startswith("Placeholder") for name in names):
                started[handle] = node.name
                for name in sorted(names - inside):
                    program.node.add().CopyFrom(by_name[name])
                    program.node[-1].device = ""
                    program.node[-1].attr.pop("_output_shapes", None)
                inside |= names
    return started


def _make_repeatable(nodes: StepNodes) -> Any:
    """Return a GraphDef of the nodes on no device, their random ops seeded, so that two runs draw the same numbers."""
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
        # `_class` stays where it binds ops with references, as in `colocation_groups`: the graph is the planned
        # one.
        if "_class" in node.attr:
            colocations = [c for c in node.attr["_class"].list.s if c.removeprefix(_LOCATION) in names]
            del node.attr["_class"].list.s[:]
            if colocations and nodes.signatures.has_ref(node):
                node.attr["_class"].list.s.extend(colocations)
            else:
                del node.attr["_class"]
    return graph_def


def _make_initial_op(graph: Any, node: Any, number: int) -> Any:
    """Return the op that gives a variable its first values, other ones for each `number` of a variable."""
    handle = graph.get_tensor_by_name(f"{node.name}:0")
    dtype = tf.as_dtype(node.attr["dtype"].type)
    shape = _require_static(declared_shape(node))
    if dtype.is_floating:
        # Not negative: nothing says which variables are second moments or variances, whose roots are taken.
        high = min(_LARGEST, 1 / math.prod(shape[:-1]))
        value = tf.cast(tf.random.stateless_uniform(shape, (1, 2 + number), 0, high), dtype)
    else:
        value = tf.zeros(shape, dtype)
    if node.op == "VarHandleOp":
        return tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return tf.raw_ops.Assign(ref=handle, value=value).op


def _require_static(shape: Shape) -> tuple[int, ...]:
    return tuple(max(1, d) for d in shape or ())


# A batch of one's own, from a file or from Python, in place of drawn values.

_PYTHON = "the caller's arrays"
_NAMED = 6
_TEXTS = "OSU"
"""Kinds of numpy that hold texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserBatchStep:
    """A `RunnableStep` whose feeds have the values of a batch; those that it does not name are drawn as before."""

    step: RunnableStep
    arrays: Mapping[str, Any]
    """Arrays by the name of the op that is fed."""
    origin: str
    """Source of the arrays, for messages."""
    graph: Any = field(init=False)
    fetches: tuple[str, ...] = field(init=False)
    init: str = field(init=False)
    batch_start: BatchStart | None = field(init=False)

    def __post_init__(self) -> None:
        """Take over what the step has."""
        for name in ("graph", "fetches", "init", "batch_start"):
            object.__setattr__(self, name, getattr(self.step, name))

    @property
    def feed_values(self) -> tuple[FeedValues, ...]:
        """Values of each feed, with the source of the given ones."""
        return tuple(
            replace(values, file=self.origin, why="") if values.name in self.arrays else values
            for values in self.step.feed_values
        )

    def feed(self, rng: np.random.Generator) -> Mapping[str, Any]:
        """Return the batch, and drawn values for the other feeds."""
        return {**self.step.feed(rng), **{tensor_name(name): array for name, array in self.arrays.items()}}


def use_batch(step: RunnableStep, batch: Batch | None) -> RunnableStep:
    """Return `step` fed with `batch`; itself without one.

    Raise InputError when an array has no feed of its name, or another shape or type than its feed.
    """
    if batch is None:
        return step
    origin = shown(batch) if isinstance(batch, Path) else _PYTHON
    feeds = {values.name: values for values in step.feed_values}

    def check(name: str, shape: tuple[int, ...], dtype: Any) -> None:
        feed = feeds.get(name.removesuffix(":0"))
        if feed is None:
            raise InputError.build(
                f"no feed is named {shown(name)}",
                where=origin,
                remedy=f"name arrays as the feeds are: {_join_names(feeds)}",
            )
        is_text = feed.dtype == "object"
        # Reals may be rounded to a type that no file can hold, since it is not numpy's own.
        saved = "float32" if feed.dtype.startswith(("bfloat", "float8", "float4")) else feed.dtype
        rounds = dtype.kind == "f" and saved != feed.dtype
        if (dtype.kind not in _TEXTS) if is_text else (dtype.name != feed.dtype and not rounds):
            raise InputError.build(
                f"{shown(feed.name)} is of {dtype.name}, the feed of {'bytes' if is_text else feed.dtype}",
                where=origin,
                remedy="save texts as numpy.array(texts, dtype='S')" if is_text else f"save it with .astype('{saved}')",
            )
        if shape != feed.shape:
            raise InputError.build(
                f"{shown(feed.name)} is {list(shape)}, the feed {list(feed.shape)}",
                where=origin,
                remedy="give it in this shape, or plan for that batch",
            )

    if isinstance(batch, Path):
        named_arrays: Mapping[str, Any] = read_batch(batch, check)
    else:
        named_arrays = {name: np.asarray(array) for name, array in batch.items()}
        for name, array in named_arrays.items():
            check(name, array.shape, array.dtype)
    if not named_arrays:
        raise InputError.build(
            "there is no array", where=origin, remedy=f"name arrays as the feeds are: {_join_names(feeds)}"
        )
    arrays = {}
    for full, array in named_arrays.items():
        name = full.removesuffix(":0")
        if feeds[name].dtype == "object":
            texts = [text.encode() if isinstance(text, str) else text for text in array.ravel().tolist()]
            arrays[name] = np.array(texts, dtype=object).reshape(array.shape)
        else:
            arrays[name] = array.astype(feeds[name].dtype, copy=False)
    return UserBatchStep(step=step, arrays=arrays, origin=origin)


def _join_names(feeds: Mapping[str, FeedValues]) -> str:
    names = [shown(name) for name in feeds]
    if not names:
        return "the step has none, so leave the batch out"
    return ", ".join(names[:_NAMED]) + (f" and {plural(len(names) - _NAMED, 'other')}" if len(names) > _NAMED else "")


# Batches that only a step's own program fills or starts: without it the step waits for ever, or fails.


def refuse_waiting(nodes: StepNodes, source: str, started: Collection[str] = ()) -> None:
    """Raise InputError for a step that takes its batch from a queue, staging area or iterator that its program fills.

    One that the step fills itself is left alone, and an iterator among `started`, which the graph has an op for.
    """
    library = nodes.signatures.library
    stack, visited, every = [nodes.defs], set[str](), []
    while stack:
        for node in stack.pop():
            every.append(node)
            if node.op.endswith("Dataset") or node.op == "OneShotIterator":
                continue  # a dataset's functions run in its own threads
            for value in node.attr.values():
                for function in [value.func, *value.list.func]:
                    if function.name in library and function.name not in visited:
                        visited.add(function.name)
                        stack.append(library[function.name].node_def)
    types = {node.op for node in every}
    for node in every:
        fills = next((put for take, put in _TAKES.items() if node.op.startswith(take)), None)
        if fills is not None and not any(op.startswith(fills) for op in types):
            name = shown(node.name)
            raise InputError.build(
                f"{name} ({node.op}) waits for what only its own program puts in, so the step would wait for ever",
                where=source,
                remedy="read the batch from a tf.compat.v1.placeholder; with this graph a plan runs by pesto.apply in "
                f"a program that fills the queue, or in the GraphDef of pesto apply, fed at {name}:0",
            )
        if node.op in _STARTED and node.name not in started:
            raise InputError.build(
                f"{shown(node.name)} is an iterator that only its own program starts",
                where=source,
                remedy="give the batch to the step as an argument or a tf.compat.v1.placeholder, or run its program by "
                "pesto.apply",
            )


def refuse_empty_tables(nodes: StepNodes, program: Any, source: str, started: Mapping[str, str]) -> None:
    """Raise InputError for a lookup table of the step that nothing fills, or that is filled from a missing file.

    program: the GraphDef of the program. started: handle -> name of the op that fills it.
    """
    by_name = {node.name: node for node in program.node}
    for i, node in enumerate(nodes.defs):
        if node.op in _TABLES:
            reader = next((nodes.defs[j] for j, taken in enumerate(nodes.inputs) if (i, 0) in taken), node)
            what = f"{source}: table {shown(node.name)} ({node.op}), which {shown(reader.name)} reads,"
            if node.name not in started:
                # A program may fill the table by an op that needs a feed.
                fills = (
                    n
                    for n in program.node
                    if n.op.startswith(_FILLS) and producer(n.input[0].partition(":")[0]) == node.name
                )
                fill = next(fills, None)
                needed = find_needed_names(by_name, [fill.name]) if fill is not None else ()
                fed = min((name for name in needed if by_name[name].op.startswith("Placeholder")), default="")
                why = f"is filled from the feed {shown(fed)}" if fed else "is filled by no op of the graph"
                raise InputError.build(
                    f"{what} {why}",
                    remedy="export the program with a table that is made of constants, or run the plan by pesto.apply "
                    "in the program that fills the table",
                )
            fill = by_name[started[node.name]]
            if fill.op.startswith("InitializeTableFromTextFile"):
                name = by_name[producer(fill.input[1].partition(":")[0])]
                if name.op == "Const":
                    file = tf.make_ndarray(name.attr["value"].tensor).item().decode()
                    if not tf.io.gfile.exists(file):
                        raise InputError.build(
                            f"{what} is filled from the file {shown(file)}, which is not there", remedy="put it there"
                        )


class BatchesEndedError(Exception):
    """A dataset or queue ended before every step of a run had its batch; `remedy` says what helps.

    had: number of steps that had one. warm: number of warm-up steps among them. requested: (number, noun) of the
    requested steps, such as (20, "steps").
    """

    def __init__(self, had: int, warm: int, requested: tuple[int, str]) -> None:
        """See the class."""
        steps, noun = requested
        more = f", {warm} to warm up and {steps} timed" if warm else ""
        fewer = f", or ask for at most {had - warm} {noun}" if warm < had < warm + steps else ""
        # runs that other programs disturbed are repeated
        least = max(warm + steps, had + 1)
        super().__init__(
            f"its dataset or queue ended after {plural(had, 'step')}, and this needs batches for at least {least}{more}"
        )
        self.remedy = f"end the dataset in .repeat(){fewer}"


@contextmanager
def detect_batch_end(had: int, warm: int, requested: tuple[int, str]) -> Iterator[None]:
    """Turn the end of a dataset or queue into a BatchesEndedError; see there."""
    try:
        yield
    except tf.errors.OutOfRangeError as error:
        raise BatchesEndedError(had, warm, requested) from error


def explain_failure(verb: str, source: str, error: Exception) -> InputError:
    """Return the error for a step that TensorFlow does not run to its end."""
    if isinstance(error, BatchesEndedError):
        return InputError.build(f"{source}: {error}", where=verb, remedy=error.remedy)
    if isinstance(error, tf.errors.InvalidArgumentError) and (check := _ASSERT.search(str(error))):
        return InputError.build(
            f"{source}: its own check {shown(check[1])} refuses the batch, which is drawn where no file gives it",
            where=verb,
            remedy="give a batch of your own (feeds)",
        )
    return InputError.build(f"{source} does not run: {shown(error)}", where=verb, remedy="run it on its own first")
