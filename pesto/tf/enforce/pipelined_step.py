"""Steps and Keras models in micro-batches, as their plans have them, to be called in place of them."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from pesto.core.errors import UsageError
from pesto.core.files.json import shown
from pesto.core.plans.plan import Plan
from pesto.core.source import Cut
from pesto.tf.enforce import context
from pesto.tf.enforce.apply_options import ApplyOptions
from pesto.tf.pipelined.in_micro_batches import convert_control_flow, in_micro_batches, train_in_micro_batches
from pesto.tf.sources.keras_step import build_variables


def pipeline(step: Any, plan: Plan, options: ApplyOptions) -> Callable[..., Any]:
    """`step`, a compiled Keras model or a function, in the plan's micro-batches, placed and ordered.

    Of a model it is called as `step(x, y)` or `step(x, y, sample_weight)` and gives the loss of that batch, the mean
    over its micro-batches. A function that loops over micro-batches itself is taken as it is. UsageError for a model
    without micro-batches in its plan, and what `context.place` raises.
    """
    cut = plan.provenance.graph_origin.cut_function
    if not isinstance(step, keras.Model):
        if cut is None or not callable(step) or hasattr(step, "structured_outputs"):
            return context.place(step, plan, options)
        return context.place(_function(step, cut.cut or Cut(1)), plan, options)
    if cut is None:
        raise UsageError.build(
            f"pipeline: the plan of {shown(plan.provenance.graph_source)} is for no model that cuts its batch",
            remedy=(
                "make "
                "one by pesto pipeline, of the model as a function and a number of micro-batches, or "
                "train in pesto.apply"
            ),
        )
    return _of_model(step, plan, options, cut.cut or Cut(1))


def _function(step: Any, cut: Cut) -> Any:
    label = f"function {getattr(step, '__name__', 'step')}"
    whole = in_micro_batches(convert_control_flow(step), cut, label)
    return tf.function(whole, input_signature=getattr(step, "input_signature", None), autograph=False)


def _of_model(model: Any, plan: Plan, options: ApplyOptions, cut: Cut) -> Callable[..., Any]:
    # As fit does: run of the default strategy calls train_step with AutoGraph off, so the trace is the planned one.
    default, train = tf.distribute.get_strategy(), train_in_micro_batches(model, cut)

    def train_step(data: Any) -> Any:
        return default.run(train, args=(data,))

    placed = context.place(tf.function(train_step, autograph=False), plan, options)

    def step(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """The loss of one batch, after which the model is trained on it; metrics are the model's, of this batch."""
        given = (x,) if y is None else (x, y) if sample_weight is None else (x, y, sample_weight)
        data = tf.nest.map_structure(_tensor, given)
        build_variables(model, data)
        # Metrics accumulate over an epoch in fit; a caller of this step gets those of its batch.
        model.reset_metrics()
        logs = placed(data)
        return logs.get("loss", logs) if isinstance(logs, dict) else logs

    vars(step)["applied"] = vars(placed)["applied"]
    return step


def _tensor(value: Any) -> Any:
    """A tensor as `fit` makes it: reals in Keras' own precision."""
    made = tf.convert_to_tensor(value)
    return tf.cast(made, keras.config.floatx()) if made.dtype.is_floating else made
