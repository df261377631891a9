"""Errors for steps that something else than a plan would place: the same words at planning and at run time."""

from typing import Any

import tensorflow as tf

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.tf import private

EAGERLY = (
    "gradients of variables are taken outside of a tf.function, where no plan holds - make the whole step one "
    "tf.function (run_eagerly=False, tf.config.run_functions_eagerly(False))"
)
"""Message for a step that runs op by op."""


def xla_error(label: str) -> InputError:
    """Return the error for a step that XLA compiles."""
    return InputError.build(
        "XLA compiles the step as one kernel, which voids a plan",
        where=label,
        remedy="pass jit_compile=False to model.compile or tf.function",
    )


def loop_error(label: str) -> InputError:
    """Return the error for a step in a loop or branch of a function."""
    return InputError(
        f"{label} is called in a loop or branch of another function, where its runs may overlap or be left out "
        "- set steps_per_execution=1, or loop in Python"
    )


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
    """InputError for a FuncGraph in which the loop over a dataset is given variables or other resources."""
    for op in graph.get_operations():
        if op.type in ("ScanDataset", "ReduceDataset") and any(t.dtype == tf.resource for t in op.inputs):
            raise dataset_loop_error(label)


def nested_function_error(label: str, inner: str) -> InputError:
    """Return the error for a step whose ops lie in functions that it calls."""
    return InputError.build(
        f"{label} calls another tf.function ({shown(inner)}), whose ops cannot be placed from outside",
        remedy=(
            "decorate "
            "only the step itself, or use pesto.place, which traces through inner functions (not "
            "through those of a loaded "
            "SavedModel: train the program's own, or use pesto run)"
        ),
    )


def concrete_function_error(label: str) -> UsageError:
    """Return the error for a function that was traced before a plan could be applied."""
    return UsageError.build(
        "a concrete function is traced already, and its ops cannot be placed from outside",
        where=label,
        remedy=(
            "give the tf.function itself (a loaded SavedModel has none: train the program's own, or use pesto run)"
        ),
    )


def check_process() -> None:
    """InputError or UsageError for settings of this process under which no tf.function runs by a plan."""
    check_clustering()
    if tf.config.functions_run_eagerly():
        raise UsageError(EAGERLY)


def check_clustering() -> None:
    """InputError when XLA clusters the ops of all functions."""
    if tf.config.optimizer.get_jit():
        raise InputError.build(
            "XLA's automatic clustering is on, which fuses ops over a plan", remedy="tf.config.optimizer.set_jit(False)"
        )


def check_model(model: Any, label: str) -> None:
    """InputError or UsageError for a compiled Keras model whose `fit` would not run by a plan."""
    if getattr(model, "run_eagerly", False):
        raise UsageError(f"{label}: {EAGERLY}")
    default = tf.distribute.get_strategy()
    if tf.distribute.has_strategy() or getattr(model, "distribute_strategy", default) is not default:
        raise strategy_error(label)
    if getattr(model, "jit_compile", False):
        raise xla_error(label)
    if _steps_per_execution(model) != 1:
        raise loop_error(label)
    if getattr(getattr(model, "optimizer", None), "jit_compile", False):
        raise InputError.build(
            "XLA compiles the updates of its optimizer, which voids a plan",
            where=label,
            remedy="set model.optimizer.jit_compile = False before the model trains",
        )


def _steps_per_execution(model: Any) -> int:
    """Return how many steps one call of a model's train function runs; Keras 2 keeps that in a variable."""
    if getattr(model, "autotune_steps_per_execution", False):
        return 0
    kept: Any = getattr(model, "_steps_per_execution", None)
    return int(kept.numpy()) if hasattr(kept, "numpy") else getattr(model, "steps_per_execution", None) or 1


def check_graph(graph: Any, label: str) -> None:
    """InputError for a training FuncGraph that something else places, or whose rounds may overlap."""
    if tf.distribute.has_strategy() or any(private.is_distributed(v) for v in graph.variables):
        raise strategy_error(label)
    if private.is_traced_for_xla(graph):
        raise xla_error(label)
    outer = graph.outer_graph
    while isinstance(outer, type(graph)):
        if private.is_body(outer):
            raise loop_error(label)
        outer = outer.outer_graph
