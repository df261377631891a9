"""A training step from a loss: gradients, clipping by global norm, and the optimiser's update.

Adam and Nesterov are written with elementary ops, as research code of the TensorFlow 1 era often has them: every
product and sum is an op of its own, under `<optimiser>/update_<variable>/`, and the slots are variables
`<variable>/<slot>`. TensorFlow's own optimisers update a variable with one fused op.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import scope, state
from pesto.tf.models.step import ModelFeed, ModelStep


class Optimizer(Protocol):
    """Interface of an optimiser for a training step: TensorFlow's own, or one of this module."""

    def apply_gradients(
        self, pairs: Iterable[tuple[tf.Tensor, tf.Variable]], /, global_step: tf.Variable | None = None
    ) -> tf.Operation:
        """Return one op that updates every variable by its gradient and counts the step."""


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam (Kingma and Ba 2015, the form at the end of their section 2) of dense gradients.

    With `average` every variable also has an exponential moving average of that decay, taken after its update.
    """

    rate: tf.Tensor | float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    average: float | None = None

    def apply_gradients(
        self, pairs: Iterable[tuple[tf.Tensor, tf.Variable]], /, global_step: tf.Variable | None = None
    ) -> tf.Operation:
        """See `Optimizer`; without a `global_step` Adam counts its own."""
        counter = state("Adam/step", [], tf.zeros_initializer(), tf.int64) if global_step is None else global_step
        with scope("Adam"):
            time = tf.cast(counter.read_value(), tf.float32) + 1.0
            length = self.rate * tf.sqrt(1.0 - tf.pow(self.beta2, time)) / (1.0 - tf.pow(self.beta1, time))
        updates = [self._update(gradient, variable, length) for gradient, variable in pairs]
        with tf.control_dependencies(updates), scope("Adam"):
            return counter.assign_add(1, read_value=False)

    def _update(self, gradient: tf.Tensor, variable: tf.Variable, length: tf.Tensor) -> tf.Operation:
        name = variable.op.name
        first, second = (state(f"{name}/{slot}", variable.shape, tf.zeros_initializer()) for slot in ("m", "v"))
        with scope(f"Adam/update_{name}"):
            mean = self.beta1 * first.read_value() + (1.0 - self.beta1) * gradient
            square = self.beta2 * second.read_value() + (1.0 - self.beta2) * tf.square(gradient)
            change = length * mean / (tf.sqrt(square) + self.epsilon)
            updates = [
                first.assign(mean, read_value=False),
                second.assign(square, read_value=False),
                variable.assign_sub(change, read_value=False),
            ]
        if self.average is not None:
            average = state(f"{name}/average", variable.shape, tf.zeros_initializer())
            with tf.control_dependencies([updates[-1]]), scope(f"average/{name}"):
                change = (average.read_value() - variable.read_value()) * (1.0 - self.average)
                updates.append(average.assign_sub(change, read_value=False))
        with scope(f"Adam/update_{name}"):
            return tf.group(*updates)


@dataclass(frozen=True, slots=True)
class Nesterov:
    """Gradient descent with Nesterov's momentum (Sutskever et al. 2013, in the form of Torch)."""

    rate: float
    momentum: float = 0.9

    def apply_gradients(
        self, pairs: Iterable[tuple[tf.Tensor, tf.Variable]], /, global_step: tf.Variable | None = None
    ) -> tf.Operation:
        """See `Optimizer`."""
        updates = [self._update(gradient, variable) for gradient, variable in pairs]
        with tf.control_dependencies(updates), scope("Nesterov"):
            return tf.no_op() if global_step is None else global_step.assign_add(1, read_value=False)

    def _update(self, gradient: tf.Tensor, variable: tf.Variable) -> tf.Operation:
        name = variable.op.name
        slot = state(f"{name}/momentum", variable.shape, tf.zeros_initializer())
        with scope(f"Nesterov/update_{name}"):
            velocity = self.momentum * slot.read_value() + gradient
            change = self.rate * (gradient + self.momentum * velocity)
            velocity_update = slot.assign(velocity, read_value=False)
            return tf.group(velocity_update, variable.assign_sub(change, read_value=False))


SEED = 1  # of the graph's random ops, so that two builds of one variant draw the same numbers


def new_graph() -> tf.Graph:
    """Return an empty graph with a fixed seed."""
    graph = tf.Graph()
    with graph.as_default():
        tf.set_random_seed(SEED)
    return graph


def step_counter() -> tf.Variable:
    """Create the counter of updates."""
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
            values = _values(gradient) * factor
            sparse = isinstance(gradient, tf.IndexedSlices)
            clipped.append(tf.IndexedSlices(values, gradient.indices, gradient.dense_shape) if sparse else values)
    return clipped


def densify(gradient: tf.Tensor, name: str) -> tf.Tensor:
    """Return a lookup's gradient as a dense tensor: Adam's sparse update would have shapes that depend on the batch."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    with scope(f"gradients/{name}_grad"):
        return tf.convert_to_tensor(gradient)


def minimize(
    loss: tf.Tensor, optimizer: Optimizer, *, norm: float, dense: bool = False, counter: tf.Variable | None = None
) -> tf.Operation:
    """Return the update of every trainable variable of the current graph."""
    variables = tf.trainable_variables()
    names = [variable.op.name for variable in variables]
    gradients = tf.gradients(loss, variables)
    if dense:
        gradients = [densify(g, name) for g, name in zip(gradients, names, strict=True)]
    clipped = clip(gradients, names, norm)
    return optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step=counter)


def descend(loss: tf.Tensor, rate: float, momentum: float = 0.9) -> tf.Operation:
    """Return the update by unclipped momentum: one op a variable, as soon as its gradient is there."""
    optimizer = tf.train.MomentumOptimizer(rate, momentum)
    # The gradients of a variable that many ops read are added one by one: one AddN would hold all of them in memory.
    return optimizer.minimize(loss, aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE)


def finish(loss: tf.Tensor, updates: Sequence[tf.Operation], feeds: Sequence[ModelFeed]) -> ModelStep:
    """Return the current graph as a step that runs all updates and returns the loss."""
    train = tf.group(*updates, name="train")
    init, graph = tf.global_variables_initializer(), tf.get_default_graph()
    fetches = (train.name, loss.op.name)
    return ModelStep(graph=graph, fetches=fetches, loss=loss.name, init=init.name, feeds=tuple(feeds))


def _values(gradient: tf.Tensor) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
