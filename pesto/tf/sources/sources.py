"""Training steps from TensorFlow's objects and files: v1 graphs, functions, Keras models, SavedModels, GraphDefs."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

from pesto.core.errors import InputError, PestoError
from pesto.core.files.disk import is_confined
from pesto.core.files.json import quoted, shown
from pesto.core.graph import Graph, unique_name
from pesto.core.source import EVERYTHING, Cut, file_source, saved_model_source
from pesto.tf.importer.importer import build_graph
from pesto.tf.nodes.captured import CapturedStep, capture_step, redirect_names, replace_branches
from pesto.tf.nodes.graph_def_bytes import check_fetches, read_graph_def_bytes
from pesto.tf.nodes.inline import find_called_functions, retrace_inline
from pesto.tf.nodes.needed_nodes import RESOURCE, find_needed_names, producer, sinks
from pesto.tf.nodes.shape_inference import READ_ITERATOR, infer_shapes
from pesto.tf.pipelined.in_micro_batches import convert_control_flow, in_micro_batches
from pesto.tf.placement_refusals import (
    check_datasets,
    check_graph,
    check_model,
    check_process,
    concrete_function_error,
    refuse_ragged_arguments,
    xla_error,
)
from pesto.tf.private import handle_shape, jit_of, must_compile, step_label, variable_name
from pesto.tf.sources.keras_step import keras_step
from pesto.tf.variables.divided_branches import divide_branches, divide_program

EXTERNAL = frozenset(
    {
        "CacheDataset", "Copy", "CopyHost", "DebugIdentity", "DebugNanCount", "DebugNumericSummary",
        "GenerateVocabRemapping", "ImmutableConst", "InitializeTableFromTextFile", "MatchingFiles", "ReadFile",
        "RegisterDataset", "RegisterDatasetV2", "SnapshotChunkDataset", "SnapshotDataset", "SnapshotDatasetReader",
        "SnapshotDatasetV2",
    }
)  # fmt: skip
"""Stateless op types that access files or hosts as soon as shapes are inferred; stateful ones do not run then."""
_RANKED = 64
"""Ops that nothing reads whose needs are counted, to name the greatest."""
_LISTED = 5
"""Ops that nothing reads that an error names."""
_SAVERS = frozenset(("Save", "SaveSlices", "SaveV2", "Restore", "RestoreSlice", "RestoreV2", "MergeV2Checkpoints"))
"""Types of ops that write or read checkpoints."""

_log = logging.getLogger("pesto")


def from_v1(graph: Any, fetches: Iterable[Any], *, batch: int | None = None, source: str = "tf.Graph") -> Graph:
    """Return the step that fetching `fetches` (tensors, ops, variables or their names) from a v1 `tf.Graph` runs."""
    return build_graph(capture_v1(graph, fetches, source=source), batch=batch)


def from_function(fn: Any, *specs: Any, batch: int | None = None, source: str | None = None) -> Graph:
    """Return the step of a `tf.function`, a concrete function, or a plain function of tensors, called with `specs`."""
    return build_graph(capture_function(fn, *specs, batch=batch, source=source), batch=batch)


def from_keras(model: Any, batch: int, *, static: bool = False, data: Any = None, source: str | None = None) -> Graph:
    """Return the train step (forward, loss, gradients, optimizer, metrics) of a compiled Keras 3 or 2 (tf_keras) model.

    TensorFlow builds another graph when it knows the batch size. By default it does not, as for arrays or datasets
    with a last batch that is smaller; `batch` then only gives the sizes, and `pesto.apply` runs batches of up to that
    size by the plan. With `static` every batch has that size, as under drop_remainder=True, for arrays that it divides,
    and in train_on_batch, and the plan is for no other. `data` is an example of a batch, (x, y), (x, y, sample_weight)
    or x alone, or its TensorSpecs, for types other than those of the inputs and outputs.
    """
    return build_graph(capture_keras(model, batch, static=static, data=data, source=source), batch=batch)


def from_saved_model(folder: Path, signature: str | None = None, batch: int | None = None) -> Graph:
    """Build the graph of one signature of a SavedModel, the default or only one when `signature` is None."""
    return build_graph(capture_saved_model(folder, signature), batch=batch)


def from_graph_def_file(path: Path, fetches: Sequence[str] = (), batch: int | None = None) -> Graph:
    """Return the step of a `.pb` or `.pbtxt` GraphDef; without `fetches`, that of the one op that nothing reads."""
    return build_graph(capture_file(path, fetches), batch=batch)


def capture_v1(graph: Any, fetches: Iterable[Any], *, source: str = "tf.Graph") -> CapturedStep:
    """Return `from_v1` before it becomes a `Graph`. Raise InputError for a fetch that the graph lacks."""
    names = check_fetches(fetches, {op.name: len(op.outputs) for op in graph.get_operations()}, source)
    return capture_step(graph.as_graph_def(add_shapes=True), names, source)


def capture_pieces(fn: Any, *specs: Any, batch: int | None, cut: Cut, source: str) -> CapturedStep:
    """Return `capture_function` of a step that knows nothing of micro-batches, done with equal pieces of its batch.

    Raise UsageError for a step that is traced already, and what `pesto.tf.pipelined` raises for one that cannot be done
    so.
    """
    if hasattr(fn, "structured_outputs"):
        raise concrete_function_error(source)
    step = tf.function(
        in_micro_batches(convert_control_flow(fn), cut, source),
        input_signature=getattr(fn, "input_signature", None),
        jit_compile=jit_of(fn) or None,
    )
    return capture_function(step, *specs, batch=batch, source=source)


def capture_function(fn: Any, *specs: Any, batch: int | None = None, source: str | None = None) -> CapturedStep:
    """Return `from_function` before it becomes a `Graph`; `batch` stands in for open first dimensions of the specs.

    Nested functions become part of the one graph (`pesto.tf.nodes.inline`); where they cannot, their bodies
    take the place of the calls. Raise InputError when tracing fails, with the function's error, and for XLA
    compilation.
    """
    label = source or step_label(fn)
    if hasattr(fn, "structured_outputs") and hasattr(fn, "graph"):
        if must_compile(fn.function_def.attr):
            raise xla_error(label)
        return capture_func_graph(fn.graph, label)
    if jit_of(fn):
        raise xla_error(label)
    check_process()
    traceable = fn if hasattr(fn, "get_concrete_function") else tf.function(fn, autograph=True)

    def with_batch(spec: Any) -> Any:
        if batch is None or not isinstance(spec, tf.TensorSpec) or spec.shape.rank in (None, 0):
            return spec
        first, *rest = spec.shape.as_list()
        return tf.TensorSpec([batch if first is None else first, *rest], spec.dtype, spec.name)

    arguments = tf.nest.map_structure(with_batch, list(specs))
    try:
        graph = traceable.get_concrete_function(*arguments).graph
    except PestoError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise InputError.build(
            f"tracing it raised {describe_exception(error)}",
            where=label,
            remedy="call it once by hand with such inputs",
        ) from error
    check_graph(graph, label)
    check_datasets(graph, label)
    # Ops inside called functions cannot be placed by pesto.apply, so the function is traced once more with nested
    # functions run as plain Python. Where the user's code does not allow that, their bodies are inlined in the
    # GraphDef.
    step, calls = capture_func_graph(graph, label), find_called_functions(graph)
    again = retrace_inline(traceable, arguments) if calls else None
    return replace(step if again is None else capture_func_graph(again, label), calls=calls)


def capture_func_graph(graph: Any, source: str) -> CapturedStep:
    """Return the step of a FuncGraph's outputs and side effects.

    Captured variables become VarHandleOps that are shared under their own names, and iterators that only
    IteratorGetNext reads IteratorV2s, as they are in a graph of a session. Raise InputError for ragged and sparse
    arguments.
    """
    refuse_ragged_arguments(graph, source)
    values = {inner.op.name: outer for outer, inner in graph.captures}
    graph_def = graph.as_graph_def(add_shapes=True)
    taken: dict[str, int] = {}
    for node in graph_def.node:
        value: Any = values.get(node.name) if node.op == "Placeholder" else None
        shape = handle_shape(value) if hasattr(value, "numpy") and value.dtype == tf.resource else None
        if shape is not None:
            handle = _make_handle(node.name, "VarHandleOp", unique_name(variable_name(value) or node.name, taken))
            handle.attr["dtype"].type = shape[0]
            handle.attr["shape"].shape.CopyFrom(shape[1])
            node.CopyFrom(handle)
    outputs = [t.op.name for t in graph.outputs if t is not None]
    effects = [op.name for op in graph.control_outputs]
    names = check_fetches([*outputs, *effects], {op.name: len(op.outputs) for op in graph.get_operations()}, source)
    divided = divide_branches(graph_def, undivided=outputs)
    if divided:
        replace_branches(graph_def, divided)
        names = redirect_names(names, divided)
    step = capture_step(graph_def, names, source, values)
    handles = (n for n in step.graph_def.node if n.op == "Placeholder" and n.attr["dtype"].type == RESOURCE)
    readers: dict[str, list[Any]] = {node.name: [] for node in handles}
    for node in step.graph_def.node:
        for name in (producer(text.partition(":")[0]) for text in node.input):
            if name in readers:
                readers[name].append(node)
    for node in step.graph_def.node:
        reads = readers.get(node.name)
        if reads and all(reader.op in READ_ITERATOR for reader in reads):
            handle = _make_handle(node.name, "IteratorV2", node.name)
            for name in ("output_types", "output_shapes"):
                handle.attr[name].CopyFrom(reads[0].attr[name])
            node.CopyFrom(handle)
    return replace(step, function=True, divisions=divided)


def _make_handle(name: str, op: str, shared_name: str) -> Any:
    handle = node_def_pb2.NodeDef(name=name, op=op)
    handle.attr["shared_name"].s = shared_name.encode()
    handle.attr["container"].s = b""
    handle.attr["_output_shapes"].list.shape.add()
    return handle


def capture_keras(
    model: Any, batch: int | None, *, static: bool = False, data: Any = None, source: str | None = None,
    cut: Cut | None = None,
) -> CapturedStep:  # fmt: skip
    """Return `from_keras` before it becomes a `Graph`.

    Raise InputError for one that is not compiled, has no known inputs, or runs by no plan (see
    `pesto.tf.placement_refusals`), UsageError for one that runs eagerly. cut: how its train step cuts the batch, whose
    size is then fixed.
    """
    label = source or f"keras {model.name}"
    check_model(model, label)
    step, specs = keras_step(model, batch if static or cut else None, data, cut=cut)
    captured_step = capture_function(step, *specs, source=label)
    return replace(captured_step, optimizer=type(model.optimizer).__name__)


def capture_saved_model(folder: Path, signature: str | None = None) -> CapturedStep:
    """Return `from_saved_model` before it becomes a `Graph`. Raise InputError when it fails to load the signature.

    Of one that TensorFlow does not load, such as one of TensorFlow 0 or without its variables, the graph is read.
    """
    where = shown(folder)
    try:
        loaded = tf.saved_model.load(str(folder))
        signatures = dict(loaded.signatures)
    except Exception as error:  # a damaged SavedModel raises anything
        program = find_meta_graph(folder)
        if program is None:
            raise InputError.build(
                f"not a SavedModel that loads: {describe_exception(error)}", where=where, remedy="export it again"
            ) from error
        _log.warning("%s: TensorFlow does not load it (%s); its graph is planned", where, describe_exception(error))
        chosen = _choose_signature(sorted(program.signature_def), signature, where)
        ends = {tensor.name.partition(":")[0] for tensor in program.signature_def[chosen].outputs.values()}
        return capture_graph_def(program.graph_def, sorted(ends), saved_model_source(where, chosen))
    chosen = _choose_signature(sorted(signatures), signature, where)
    return capture_func_graph(signatures[chosen].graph, saved_model_source(where, chosen))


def _choose_signature(names: Sequence[str], wanted: str | None, where: str) -> str:
    """Return the signature to plan: the wanted one, the only one, or the default one, with a warning of the others."""
    default, listed = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY, ", ".join(map(shown, names))
    if not names:
        raise InputError.build("it has no signatures", where=where, remedy="save it with signatures=")
    if wanted is not None:
        if wanted not in names:
            raise InputError.build(f"it has no signature {quoted(wanted)}", where=where, remedy=f"it has {listed}")
        return wanted
    if len(names) > 1 and default not in names:
        raise InputError.build(
            f"it has the signatures {listed}", where=where, remedy="name one of them as the signature"
        )
    if len(names) > 1:
        _log.warning("%s: %s is planned, of the signatures %s; name another as the signature", where, default, listed)
        return default
    return names[0]


def capture_file(path: Path, fetches: Sequence[str] = ()) -> CapturedStep:
    """Return `from_graph_def_file` before it becomes a `Graph`."""
    return capture_graph_def(read_graph_def(path), fetches, file_source(shown(path.name)))


def capture_graph_def(graph_def: Any, fetches: Sequence[str], source: str) -> CapturedStep:
    """Return the step of a GraphDef; without `fetches`, what leads to the one op that nothing reads.

    With `EVERYTHING` to all of them. Branch ops are divided, but those that are fetched. Raise InputError, which names
    them, for several where none is fetched.
    """
    inferred = infer_shapes(graph_def)
    if not fetches:
        check_sinks(inferred, source)
    names = check_fetches(
        fetches if fetches and tuple(fetches) != EVERYTHING else sinks(inferred),
        {node.name: len(node.attr["_output_shapes"].list.shape) for node in inferred.node},
        source,
    )
    divided, _ = divide_program(inferred, lambda name, _: name not in names)
    return capture_step(divided, names, source)


def check_sinks(graph_def: Any, source: str) -> None:
    """Raise InputError for several ops that nothing reads; name them with the greatest first, those of savers last."""
    unread, by_name = sinks(graph_def), {node.name: node for node in graph_def.node}
    if len(unread) > 1:
        leads = {name: find_needed_names(by_name, [name]) for name in unread[:_RANKED]}
        rank = {name: (any(by_name[op].op in _SAVERS for op in ops), -len(ops)) for name, ops in leads.items()}
        names = [shown(name) for name in sorted(unread, key=lambda name: rank.get(name, (True, 0)))]
        listed = ", ".join([*names[:_LISTED], *([f"{len(names) - _LISTED} more"] if len(names) > _LISTED else [])])
        raise InputError.build(
            f"it ends in {len(unread)} ops that nothing reads ({listed}), of which initializers and the like "
            "are no part of a step",
            where=source,
            remedy=f"fetch those that a step runs, such as {names[0]}, or '*' for all",
        )


def describe_exception(error: BaseException) -> str:
    """Return the type and last line of an exception, for a message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {shown(lines[-1] if lines else '')}"


def refuse_external_ops(graph_def: Any, where: str) -> None:
    """Raise InputError for a graph, or a function in it, with an op that accesses files or hosts."""
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        for node in nodes:
            if node.op in EXTERNAL:
                raise InputError.build(
                    f"the op {node.op} reads files or calls other hosts, which no job may",
                    where=where,
                    remedy="export the graph with a placeholder in its place",
                )


def find_meta_graph(folder: Path) -> Any:
    """Return the MetaGraphDef of a SavedModel that is served, or its only one; None where there is none."""
    for name in ("saved_model.pb", "saved_model.pbtxt"):
        model = saved_model_pb2.SavedModel()
        try:
            data = (folder / name).read_bytes()
            programs = (text_format.Parse(data, model) if name.endswith("txt") else model.FromString(data)).meta_graphs
        except (OSError, text_format.ParseError, DecodeError, UnicodeDecodeError, ValueError, RecursionError):
            continue
        served = [program for program in programs if "serve" in program.meta_info_def.tags]
        if served or len(programs) == 1:
            return (served or programs)[0]
    return None


def read_graph_def(path: Path) -> Any:
    """Return the GraphDef in a `.pb` or `.pbtxt` file. Raise what `read_graph_def_bytes` raises.

    Raise InputError where parsing fails, and in a job for ops that read files (`refuse_external_ops`).
    """
    data, where = read_graph_def_bytes(path), shown(path)
    graph_def = graph_pb2.GraphDef()
    try:
        if path.suffix == ".pbtxt":
            text_format.Parse(data, graph_def)
        else:
            graph_def.ParseFromString(data)
    except (text_format.ParseError, DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        kind = "a GraphDef in text" if path.suffix == ".pbtxt" else "a GraphDef"
        raise InputError.build(f"not {kind}: {shown(error)}", where=where, remedy="export the graph again") from error
    if not graph_def.node:
        raise InputError.build("the graph has no ops", where=where, remedy="export the graph again")
    if is_confined():
        refuse_external_ops(graph_def, where)
    return graph_def
