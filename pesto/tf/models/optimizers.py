"""Optimisers written with elementary ops, as research code of the TensorFlow 1 era often has them.

TensorFlow's own optimisers update a variable with one fused op. Here every product and sum is an op of its own, under
`<optimiser>/update_<variable>/`, and the slots are variables `<variable>/<slot>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import scope, state


class Optimizer(Protocol):
    """Interface of an optimiser for a training step: TensorFlow's own, or one of this module."""

    def apply_gradients(
        self, pairs: Iterable[tuple[tf.Tensor, tf.Variable]], /, global_step: tf.Variable | None = None
    ) -> tf.Operation:
        """One op that updates every variable by its gradient and counts the step."""


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
            updates.append(_follow(variable, self.average, updates[-1]))
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
            kept = slot.assign(velocity, read_value=False)
            return tf.group(kept, variable.assign_sub(change, read_value=False))


def _follow(variable: tf.Variable, decay: float, update: tf.Operation) -> tf.Operation:
    """The moving average `<variable>/average` of a variable, moved after the variable's `update`."""
    name = variable.op.name
    average = state(f"{name}/average", variable.shape, tf.zeros_initializer())
    with tf.control_dependencies([update]), scope(f"average/{name}"):
        return average.assign_sub((average.read_value() - variable.read_value()) * (1.0 - decay), read_value=False)
