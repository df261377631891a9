"""Errors for steps that no plan can be for: the same words at planning and at run time.

Something else than a plan would place their ops, or they take ragged or sparse inputs: no type says how many values a
batch of these holds, so they are refused by name.
"""

from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.core.source import origin_of
from pesto.tf import private

_RAGGED = (tf.RaggedTensor, tf.RaggedTensorSpec, tf.compat.v1.ragged.RaggedTensorValue)
_SPARSE = (tf.SparseTensor, tf.SparseTensorSpec, tf.compat.v1.SparseTensorValue)


class OpenSizeError(InputError):
    """A step with an output whose size is open, so that its bytes are unknown."""


def eager_error(label: str = "", *, more: str = "") -> UsageError:
    """Return the error for a step that runs op by op; more: text that its remedy ends with."""
    whole = "make the whole step one tf.function (run_eagerly=False, tf.config.run_functions_eagerly(False))"
    fault = "gradients of variables are taken outside of a tf.function, where no plan holds"
    return UsageError.build(fault, where=label, remedy=whole + more)


def xla_error(label: str) -> InputError:
    """Return the error for a step that XLA compiles."""
    return InputError.build(
        "XLA compiles the step as one kernel, which voids a plan",
        where=label,
        remedy="pass jit_compile=False to model.compile or tf.function",
    )


def loop_error(label: str) -> InputError:
    """Return the error for a step in a loop or branch of a function."""
    fault = f"{label} is called in a loop or branch of another function, where its runs may overlap or be left out"
    return InputError.build(fault, remedy="set steps_per_execution=1, or loop in Python")


def strategy_error(label: str) -> InputError:
    """Return the error for a step under a tf.distribute strategy."""
    return InputError.build(
        "a tf.distribute strategy places its ops itself", where=label, remedy="train without the strategy"
    )


def dataset_loop_error(label: str) -> InputError:
    """Return the error for a function that trains in a loop over a dataset."""
    return InputError.build(
        f"{label} loops over a dataset, which TensorFlow makes part of the dataset, where no op can be placed",
        remedy="loop over the dataset in Python, and call a tf.function that takes one batch",
    )


def check_datasets(graph: Any, label: str) -> None:
    """Raise InputError for a FuncGraph in which the loop over a dataset is given variables or other resources."""
    for op in graph.get_operations():
        if op.type in ("ScanDataset", "ReduceDataset") and any(t.dtype == tf.resource for t in op.inputs):
            raise dataset_loop_error(label)


def nested_function_error(label: str, inner: str) -> InputError:
    """Return the error for a step whose ops lie in functions that it calls."""
    return InputError.build(
        f"{label} calls another tf.function ({shown(inner)}), whose ops cannot be placed from outside",
        remedy="decorate only the step itself, or use pesto.place, which traces through inner functions (not through "
        "those of a loaded SavedModel: train the program's own, or use pesto run)",
    )


def concrete_function_error(label: str) -> UsageError:
    """Return the error for a function that was traced before a plan could be applied."""
    return UsageError.build(
        "a concrete function is traced already, and its ops cannot be placed from outside",
        where=label,
        remedy="give the tf.function itself (a loaded SavedModel has none: train the program's own, or use pesto run)",
    )


def check_process() -> None:
    """Raise InputError or UsageError for settings of this process under which no tf.function runs by a plan."""
    check_clustering()
    if tf.config.functions_run_eagerly():
        raise eager_error()


def check_clustering() -> None:
    """Raise InputError when XLA clusters the ops of all functions."""
    if tf.config.optimizer.get_jit():
        raise InputError.build(
            "XLA's automatic clustering is on, which fuses ops over a plan", remedy="tf.config.optimizer.set_jit(False)"
        )


def check_model(model: Any, label: str) -> None:
    """Raise InputError or UsageError for a compiled Keras model whose `fit` would not run by a plan."""
    if getattr(model, "run_eagerly", False):
        raise eager_error(label)
    default = tf.distribute.get_strategy()
    if tf.distribute.has_strategy() or getattr(model, "distribute_strategy", default) is not default:
        raise strategy_error(label)
    if getattr(model, "jit_compile", False):
        raise xla_error(label)
    setting: Any = getattr(model, "_steps_per_execution", None)  # a variable in Keras 2
    if getattr(model, "autotune_steps_per_execution", False):
        raise loop_error(label)
    if (int(setting.numpy()) if hasattr(setting, "numpy") else getattr(model, "steps_per_execution", None) or 1) != 1:
        raise loop_error(label)
    if getattr(getattr(model, "optimizer", None), "jit_compile", False):
        raise InputError.build(
            "XLA compiles the updates of its optimizer, which voids a plan",
            where=label,
            remedy="set model.optimizer.jit_compile = False before the model trains",
        )


def check_graph(graph: Any, label: str) -> None:
    """Raise InputError for a training FuncGraph that something else places, or whose rounds may overlap."""
    if tf.distribute.has_strategy() or any(private.is_distributed(v) for v in graph.variables):
        raise strategy_error(label)
    if private.is_traced_for_xla(graph):
        raise xla_error(label)
    outer = graph.outer_graph
    while isinstance(outer, type(graph)):
        if private.is_body(outer):
            raise loop_error(label)
        outer = outer.outer_graph


def refuse_ragged_arguments(graph: Any, source: str) -> None:
    """Raise InputError naming the first ragged or sparse argument of a FuncGraph."""
    place = 0
    for spec in tf.nest.flatten(graph.structured_input_signature or ()):
        if is_ragged_or_sparse(spec):
            raise ragged_input_error(spec, graph.inputs[place].op.name, source)
        place += sum(isinstance(part, tf.TypeSpec) for part in tf.nest.flatten(spec, expand_composites=True))


def refuse_ragged_feeds(graph_def: Any, needed: Collection[str], source: str) -> None:
    """Raise InputError naming the first ragged or sparse placeholder of a v1 graph among the nodes `needed`."""
    feeds = [node for node in graph_def.node if node.op.startswith("Placeholder") and node.name in needed]
    shapes = {node.name: node.attr["shape"].shape for node in feeds}
    open_ = {n: x for n, x in shapes.items() if x.unknown_rank or (x.dim and x.dim[0].size == -1)}
    for one, other, kind in (("values", "indices", _SPARSE[0]), ("flat_values", "row_splits_0", _RAGGED[0])):
        for name in sorted(open_):
            scope, _, last = name.rpartition("/")
            if scope and last == one and f"{scope}/{other}" in open_:
                parts = {part: open_[part] for part in (f"{scope}/{one}", f"{scope}/{other}")}
                raise _make_input_error(kind.__name__, scope, source, parts)


def is_ragged_or_sparse(value: object) -> bool:
    """Return True if a value, its type or Keras' stand-in for it is ragged or sparse."""
    return isinstance(value, (*_RAGGED, *_SPARSE)) or any(getattr(value, kind, False) for kind in ("sparse", "ragged"))


def ragged_input_error(value: object, name: str, source: str) -> InputError:
    """Return the error for a ragged or sparse value."""
    is_ragged = isinstance(value, _RAGGED) or bool(getattr(value, "ragged", False))
    return _make_input_error((_RAGGED if is_ragged else _SPARSE)[0].__name__, name, source)


def _make_input_error(kind: str, name: str, source: str, parts: Mapping[str, Any] | None = None) -> OpenSizeError:
    """Return the error for an input; parts: the feeds of a file that it consists of, with their shapes."""
    if origin_of(source).from_file:
        sizes = {p: ",".join("N" if d.size < 0 else str(d.size) for d in x.dim) for p, x in (parts or {}).items()}
        options = " and ".join(f"shape {shown(part)}={text or 'N'}" for part, text in sizes.items())
        remedy = f"give the shapes of both its feeds ({options})" if parts else "export a signature that takes it dense"
    elif kind == "RaggedTensor":
        remedy = "pad it before the step (x.to_tensor(shape=[None, longest])) and mask what was padded"
    else:
        remedy = "make it dense before the step (tf.sparse.to_dense(x))"
    return OpenSizeError.build(
        f"input {shown(name)} is a {kind}, and how many values a batch of it holds is open, so its bytes are unknown, "
        "whatever the batch size",
        where=source,
        remedy=remedy,
    )
