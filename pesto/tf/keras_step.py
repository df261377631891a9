"""The train step of a compiled Keras 3 model as a function of one batch."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pesto.errors import InputError


def keras_step(model: Any, batch: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """(step, specs): `step(x, y)` runs `model.train_step`; the specs follow the model's inputs, outputs and losses.

    Targets have the outputs' shapes and types, but one class index an example where a loss is sparse. InputError when
    the model is not compiled, not built, or distributed by a `tf.distribute` strategy (a plan places ops itself).
    """
    name = getattr(model, "name", type(model).__name__)
    if not getattr(model, "compiled", False):
        raise InputError(f"keras {name}: the model is not compiled - call model.compile(optimizer, loss) first")
    default = tf.distribute.get_strategy()
    if tf.distribute.has_strategy() or getattr(model, "distribute_strategy", default) is not default:
        raise InputError(f"keras {name}: a tf.distribute strategy places the ops already - compile it without one")
    if not getattr(model, "inputs", None):
        raise InputError(
            f"keras {name}: its inputs are unknown - add an Input layer, or give a function with --function"
        )
    inputs = _like(model, "input", batch)
    targets = _targets(model, batch)

    def step(x: Any, y: Any) -> Any:
        return model.train_step((x, y))

    return step, (inputs, targets)


def _like(model: Any, which: str, batch: int) -> Any:
    """TensorSpecs in the structure of `model.input` or `model.output`."""
    flat = getattr(model, f"{which}s")
    try:
        tensors = getattr(model, which)
    except AttributeError:  # a Sequential has no structure
        tensors = flat[0] if len(flat) == 1 else flat
    return tf.nest.map_structure(lambda t: tf.TensorSpec([batch, *t.shape[1:]], t.dtype), tensors)


def _targets(model: Any, batch: int) -> Any:
    outputs = _like(model, "output", batch)
    loss = getattr(model, "loss", None)
    flat = tf.nest.flatten(outputs)
    if isinstance(loss, dict) and isinstance(outputs, dict):
        losses = [loss.get(key) for key in sorted(outputs)]
    elif isinstance(loss, list | tuple):
        losses = list(loss)
    else:
        losses = [loss] * len(flat)
    if len(losses) != len(flat):
        raise InputError(f"keras {model.name}: {len(losses)} losses for {len(flat)} outputs - name one per output")
    return tf.nest.pack_sequence_as(outputs, [_target(o, one) for o, one in zip(flat, losses, strict=True)])


def _target(output: Any, loss: Any) -> Any:
    name = loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", "")
    if "sparse" in str(name).lower():
        return tf.TensorSpec(output.shape[:-1], tf.int32)
    return output
