"""Sources of batches that only a step's own program fills or starts: without it the step waits for ever, or fails."""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.core.quantities import plural
from pesto.tf.nodes.needed_nodes import StepNodes, needed_names, producer

_TAKES = {
    "QueueDequeue": "QueueEnqueue", "ReaderRead": "QueueEnqueue", "Unstage": "Stage", "StagePeek": "Stage",
    "MapUnstage": "MapStage", "MapPeek": "MapStage", "OrderedMapUnstage": "OrderedMapStage",
    "OrderedMapPeek": "OrderedMapStage", "BarrierTakeMany": "BarrierInsertMany",
    "AccumulatorTakeGradient": "AccumulatorApplyGradient",
    "SparseAccumulatorTakeGradient": "SparseAccumulatorApplyGradient",
    "ResourceAccumulatorTakeGradient": "ResourceAccumulatorApplyGradient", "Recv": "Send", "HostRecv": "HostSend",
}  # fmt: skip
"""Beginnings of the types of ops that wait until something was put in, and of those that put it in."""
_STARTED = ("Iterator", "IteratorV2", "IteratorFromStringHandle", "IteratorFromStringHandleV2")
"""Types of iterators that an op of the program starts, which is no part of a step."""
_ASSERT = re.compile(r"(?:Node: '|\{\{node )([^'}]*\bAssert(?:_\d+)?)['}]")
"""The op that stopped a step because a condition of the program does not hold."""
_TABLES = ("HashTable", "HashTableV2")
"""Types of lookup tables that give nothing before they are filled."""
_FILLS = ("InitializeTable", "LookupTableImport")
"""Beginnings of the types of ops that fill them."""


def refuse_waiting(nodes: StepNodes, source: str, started: Collection[str] = ()) -> None:
    """InputError for a step that takes its batch from a queue, staging area or iterator that its program fills.

    One that the step fills itself is left alone, and an iterator among `started`, which the graph has an op for.
    """
    every = list(_with_functions(nodes))
    types = {node.op for node in every}
    for node in every:
        fills = next((put for take, put in _TAKES.items() if node.op.startswith(take)), None)
        if fills is not None and not any(op.startswith(fills) for op in types):
            name = shown(node.name)
            raise InputError.build(
                f"{name} ({node.op}) waits for what only its own program puts in, so the step would wait for ever",
                where=source,
                remedy=(
                    "read the batch from a tf.compat.v1.placeholder; with this graph a plan runs by "
                    "pesto.apply in "
                    f"a program that fills the queue, or in the GraphDef of pesto apply, fed at {name}:0"
                ),
            )
        if node.op in _STARTED and node.name not in started:
            raise InputError.build(
                f"{shown(node.name)} is an iterator that only its own program starts",
                where=source,
                remedy=(
                    "give the batch to the "
                    "step as an argument or a tf.compat.v1.placeholder, or run its program by "
                    "pesto.apply"
                ),
            )


def refuse_empty_tables(nodes: StepNodes, whole: Any, source: str, started: Mapping[str, str]) -> None:
    """InputError for a lookup table of the step that nothing fills: no op among `started`, or one without its file.

    whole: the GraphDef of the program. started: names of the ops that fill what the step reads, by handle.
    """
    by_name = {node.name: node for node in whole.node}
    for i, node in enumerate(nodes.defs):
        if node.op in _TABLES:
            reader = next((nodes.defs[j] for j, taken in enumerate(nodes.inputs) if (i, 0) in taken), node)
            what = f"{source}: table {shown(node.name)} ({node.op}), which {shown(reader.name)} reads,"
            if node.name not in started:
                fed = _fed_fill(by_name, node.name)
                why = f"is filled from the feed {shown(fed)}" if fed else "is filled by no op of the graph"
                raise InputError.build(
                    f"{what} {why}",
                    remedy=(
                        "export the program with a table that is made of constants, or run the plan by "
                        "pesto.apply in the program that fills the table"
                    ),
                )
            file = _vocabulary(by_name, started[node.name])
            if file is not None and not tf.io.gfile.exists(file):
                raise InputError.build(
                    f"{what} is filled from the file {shown(file)}, which is not there", remedy="put it there"
                )


def _fed_fill(by_name: Mapping[str, Any], table: str) -> str:
    """The feed that an op needs which fills the table; empty where none does."""
    for node in by_name.values():
        if node.op.startswith(_FILLS) and producer(node.input[0].partition(":")[0]) == table:
            feeds = [name for name in needed_names(by_name, [node.name]) if by_name[name].op.startswith("Placeholder")]
            return min(feeds, default="")
    return ""


def _vocabulary(by_name: Mapping[str, Any], fill: str) -> str | None:
    """The file from which an op fills a table; None where a constant does not say."""
    node = by_name[fill]
    if not node.op.startswith("InitializeTableFromTextFile"):
        return None
    name = by_name[producer(node.input[1].partition(":")[0])]
    return tf.make_ndarray(name.attr["value"].tensor).item().decode() if name.op == "Const" else None


def _with_functions(nodes: StepNodes) -> Iterator[Any]:
    """The nodes of the step, and those of the functions that its loops and branches run."""
    library = nodes.signatures.library
    stack, seen = [nodes.defs], set[str]()
    while stack:
        for node in stack.pop():
            yield node
            if node.op.endswith("Dataset") or node.op == "OneShotIterator":
                continue  # a dataset's functions run in its own threads
            for value in node.attr.values():
                for function in [value.func, *value.list.func]:
                    if function.name in library and function.name not in seen:
                        seen.add(function.name)
                        stack.append(library[function.name].node_def)


class BatchesEndedError(Exception):
    """A dataset or queue ended before every step of a run had its batch.

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
            f"its dataset or queue ended after {plural(had, 'step')}, and this needs batches for at least {least}"
            f"{more} - end the dataset in .repeat(){fewer}"
        )


@contextmanager
def counting_batches(had: int, warm: int, requested: tuple[int, str]) -> Iterator[None]:
    """Turn the end of a dataset or queue into a BatchesEndedError; see there."""
    try:
        yield
    except tf.errors.OutOfRangeError as error:
        raise BatchesEndedError(had, warm, requested) from error


def explain_failure(verb: str, source: str, error: Exception) -> InputError:
    """Return the error for a step that TensorFlow does not run to its end."""
    if isinstance(error, BatchesEndedError):
        return InputError(f"{verb}: {source}: {error}")
    if isinstance(error, tf.errors.InvalidArgumentError) and (check := _ASSERT.search(str(error))):
        return InputError.build(
            f"{source}: its own check {shown(check[1])} refuses the batch, which is drawn where no file gives it",
            where=verb,
            remedy="give a batch of your own (feeds)",
        )
    return InputError.build(f"{source} does not run: {shown(error)}", where=verb, remedy="run it on its own first")
