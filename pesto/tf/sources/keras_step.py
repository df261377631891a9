"""The train step of a compiled Keras model as a function of one batch, or in Keras 2 of an iterator over batches."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import tensorflow as tf

from pesto.core.errors import InputError
from pesto.core.source import Cut
from pesto.tf.pipelined.in_micro_batches import train_in_micro_batches
from pesto.tf.placement_refusals import is_ragged_or_sparse, ragged_input_error


def keras_step(
    model: Any, batch: int | None, data: Any = None, *, cut: Cut | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return (step, specs): `step((x, y))` runs `model.train_step` as `fit` does, whose graph the trace of it has.

    The step of a Keras 2 (tf_keras) model is its train function, which takes an iterator over batches.

    A `batch` of None leaves the first dimension open. The specs follow the model's inputs, outputs and losses: targets
    have the outputs' shapes and types, but one class index (int32) an example where a loss is sparse. `data`, a batch
    or specs (x, y) or (x, y, sample_weight), or x where it is no tuple, says otherwise. `cut` is how the step cuts
    the batch (`pesto.tf.pipelined`). Raise InputError when the model is not compiled or not built.
    """
    check_compiled(model)
    name = _label(model)
    default = tf.distribute.get_strategy()
    if data is None and not getattr(model, "inputs", None):
        raise InputError.build(
            f"keras {name}: its inputs are unknown", remedy="add an Input layer, or give (model, (x, y))"
        )
    batch_specs = _make_fitted_specs(model, batch) if data is None else _make_specs(model, data, batch)
    if is_keras_2(model):
        where = f"keras {model.name}"
        if cut is not None:
            raise InputError.build(
                "a Keras 2 (tf_keras) model cannot be cut into micro-batches",
                where=where,
                remedy="build it in Keras 3, or plan its whole batch",
            )
        function = model.make_train_function()  # what `fit` calls with an iterator for each step
        if not hasattr(function, "get_concrete_function"):
            raise InputError.build(
                f"its make_train_function returns a {type(function).__name__}, not a tf.function",
                where=where,
                remedy="record the step as it runs: with pesto.record(batch=32) as step: model.fit(x, y); "
                "pesto.solve(step.graph, ...) plans it",
            )
        return function, (tf.data.IteratorSpec(batch_specs),)
    build_variables(model, batch_specs)
    train = model.train_step if cut is None else train_in_micro_batches(model, cut)

    @tf.autograph.experimental.do_not_convert
    def step(data: Any) -> Any:
        # As fit does: under the default strategy it calls train_step with autograph off.
        return default.run(train, args=(data,))

    return step, (batch_specs,)


def check_compiled(model: Any) -> None:
    """Raise InputError for a model that is not compiled."""
    if not getattr(model, "_is_compiled" if is_keras_2(model) else "compiled", False):
        raise InputError.build(
            f"keras {_label(model)}: the model is not compiled", remedy="call model.compile(optimizer, loss) first"
        )


def _label(model: Any) -> str:
    return str(getattr(model, "name", type(model).__name__))


def is_keras_2(model: Any) -> bool:
    """Return True if a model is made of the classes of tf_keras."""
    return any(kind.__module__.partition(".")[0] == "tf_keras" for kind in type(model).__mro__)


def _make_fitted_specs(model: Any, batch: int | None) -> Any:
    """Specs of the (x, y) that `fit` expects; of a Keras 2 model without a loss x, as its loss is in the model."""
    inputs = _make_specs_like(model, "input", batch)
    if is_keras_2(model) and not model.loss:
        return _pack_batch((inputs,))
    outputs = _make_specs_like(model, "output", batch)
    loss = getattr(model, "loss", None)
    flat = tf.nest.flatten(outputs)
    if isinstance(loss, dict) and isinstance(outputs, dict):
        losses = [loss.get(key) for key in sorted(outputs)]
    elif isinstance(loss, list | tuple):
        losses = list(loss)
    else:
        losses = [loss] * len(flat)
    if len(losses) != len(flat):
        raise InputError.build(
            f"keras {model.name}: {len(losses)} losses for {len(flat)} outputs", remedy="name one per output"
        )
    targets = []
    for output, one in zip(flat, losses, strict=True):
        text = one if isinstance(one, str) else getattr(one, "name", None) or getattr(one, "__name__", "")
        targets.append(tf.TensorSpec(output.shape[:-1], tf.int32) if "sparse" in str(text).lower() else output)
    return inputs, tf.nest.pack_sequence_as(outputs, targets)


def build_variables(model: Any, data: Any) -> None:
    """Make slots and metrics before the step is traced, as `fit` does: what makes variables is traced twice."""
    # Variables created during a trace make tf.function trace twice, and the first trace has initialisers in it.
    build = getattr(model, "_symbolic_build", None)
    if build is not None:
        with suppress(Exception):  # what the model's own code raises, its trace raises again, where it is explained
            build(data_batch=data)


def _make_specs(model: Any, data: Any, batch: int | None) -> Any:
    """TensorSpecs in the structure of a batch (arrays, tensors or specs), its first dimension replaced."""

    def spec(value: Any) -> tf.TensorSpec:
        if is_ragged_or_sparse(value):
            raise ragged_input_error(value, "data", f"keras {model.name}")
        if not hasattr(value, "shape") or not hasattr(value, "dtype") or not len(value.shape):
            raise InputError.build(
                f"keras {model.name}: data holds a {type(value).__name__} without a batch dimension",
                remedy="give arrays, tensors or tf.TensorSpecs",
            )
        # The fit of Keras 2 makes arrays of reals tensors of its own precision.
        real = is_keras_2(model) and isinstance(value, np.ndarray) and value.dtype.kind == "f"
        dtype = sys.modules["tf_keras"].backend.floatx() if real else value.dtype
        return tf.TensorSpec([batch, *value.shape[1:]], dtype)

    return tf.nest.map_structure(spec, _pack_batch(data))


def _pack_batch(data: Any) -> Any:
    """A batch in the structure in which `fit` hands it on: x alone is in no tuple, unless it is one."""
    parts = tuple(data) if isinstance(data, list | tuple) else (data,)
    return parts[0] if len(parts) == 1 and not isinstance(parts[0], list | tuple) else parts


def _make_specs_like(model: Any, which: str, batch: int | None) -> Any:
    """TensorSpecs in the structure of `model.input` or `model.output`."""
    flat = getattr(model, f"{which}s")
    for tensor in flat:
        if is_ragged_or_sparse(tensor):
            raise ragged_input_error(tensor, tensor.name, f"keras {model.name}")
    try:
        tensors = getattr(model, which)
    except AttributeError:  # a Sequential has no structure
        tensors = flat[0] if len(flat) == 1 else flat
    return tf.nest.map_structure(lambda t: tf.TensorSpec([batch, *t.shape[1:]], t.dtype), tensors)
