"""Builds a training step from a loss: gradients, clipping by global norm, and the optimiser's update."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import scope, state
from pesto.tf.models.optimizers import Optimizer
from pesto.tf.models.step import ModelFeed, ModelStep

SEED = 1  # of the graph's random ops, so that two builds of one variant draw the same numbers


def new_graph() -> tf.Graph:
    """An empty graph with a fixed seed."""
    graph = tf.Graph()
    with graph.as_default():
        tf.set_random_seed(SEED)
    return graph


def step_counter() -> tf.Variable:
    """The number of updates made so far."""
    return state("global_step", [], tf.zeros_initializer(), tf.int64)


def clip(gradients: Sequence[tf.Tensor], names: Sequence[str], norm: float) -> list[tf.Tensor]:
    """Scale all gradients by norm / max(norm, their global norm) (Pascanu et al. 2013).

    Unlike tf.clip_by_global_norm the ops of a gradient carry its variable's name, so a plan can keep them together.
    """
    squares = []
    for gradient, name in zip(gradients, names, strict=True):
        with scope(f"clip/{name}"):
            squares.append(tf.nn.l2_loss(_values(gradient)))
    with scope("clip"):
        total = tf.sqrt(2.0 * tf.add_n(squares))
        factor = norm / tf.maximum(total, norm)
    clipped = []
    for gradient, name in zip(gradients, names, strict=True):
        with scope(f"clip/{name}"):
            clipped.append(_with_values(gradient, _values(gradient) * factor))
    return clipped


def densify(gradient: tf.Tensor, name: str) -> tf.Tensor:
    """A lookup's gradient as a dense tensor: Adam's sparse update would have shapes that depend on the batch."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    with scope(f"gradients/{name}_grad"):
        return tf.convert_to_tensor(gradient)


def minimize(
    loss: tf.Tensor,
    optimizer: Optimizer,
    *,
    norm: float,
    dense: bool = False,
    counter: tf.Variable | None = None,
) -> tf.Operation:
    """The update of every trainable variable of the current graph."""
    variables = tf.trainable_variables()
    names = [variable.op.name for variable in variables]
    gradients = tf.gradients(loss, variables)
    if dense:
        gradients = [densify(g, name) for g, name in zip(gradients, names, strict=True)]
    clipped = clip(gradients, names, norm)
    return optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step=counter)


def descend(loss: tf.Tensor, rate: float, momentum: float = 0.9) -> tf.Operation:
    """Momentum, unclipped: each variable is updated, by one op, as soon as its gradient is there.

    The gradients of a variable that many ops read are added one to the sum of the others, so that no two of them need
    be held: one AddN would hold them all.
    """
    optimizer = tf.train.MomentumOptimizer(rate, momentum)
    return optimizer.minimize(loss, aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE)


def finish(loss: tf.Tensor, updates: Sequence[tf.Operation], feeds: Sequence[ModelFeed]) -> ModelStep:
    """The current graph as a Step that runs all updates and gives the loss."""
    train = tf.group(*updates, name="train")
    init = tf.global_variables_initializer()
    return ModelStep(
        graph=tf.get_default_graph(),
        fetches=(train.name, loss.op.name),
        loss=loss.name,
        init=init.name,
        feeds=tuple(feeds),
    )


def _values(gradient: tf.Tensor) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _with_values(gradient: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return values
