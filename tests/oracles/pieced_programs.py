"""Models and steps that know nothing of micro-batches, for `pesto pipeline --function`, as users write them."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

ROWS = 24


def dense(loss: str | None = "mse") -> Any:
    """Seven layers."""
    keras.utils.set_random_seed(7)
    hidden = [layers.Dense(24, activation="relu") for _ in range(6)]
    model = keras.Sequential([keras.Input((16,)), *hidden, layers.Dense(3)])
    model.compile("sgd", loss, jit_compile=False)
    return model


def lossless() -> Any:
    """Compiled without a loss."""
    return dense(None)


def table() -> Any:
    """One table at both ends."""
    given = keras.Input((6,), dtype="int32")
    held = layers.Embedding(12, 8)
    x = held(given)
    for _ in range(3):
        x = layers.Dense(8, activation="relu")(x)
    last = layers.Lambda(lambda t: keras.ops.matmul(t[:, -1], keras.ops.transpose(held.embeddings)))
    model = keras.Model(given, last(x))
    model.compile("sgd", "mse", jit_compile=False)
    return model


class Own(keras.Model):
    """With a train step of its own that gives the loss itself, counts its calls, and clips by the norm of all."""

    times = 1

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [layers.Dense(24, activation="relu") for _ in range(6)]
        self.last = layers.Dense(3)
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:  # noqa: ARG002  # as Keras calls it
        for layer in self.hidden:
            x = layer(x)
        return self.last(x)

    def train_step(self, data: Any) -> Any:
        """A loss that no metric counts."""
        x, y = data
        self.calls.assign_add(1.0)
        loss = tf.reduce_mean(x)
        for _ in range(self.times):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
            found = tape.gradient(loss, self.trainable_variables)
            clipped, _ = tf.clip_by_global_norm(found, 1.0)
            self.optimizer.apply_gradients(zip(clipped, self.trainable_variables, strict=True))
        return {"loss": loss}


class Twice(Own):
    """Updates twice a batch."""

    times = 2


class Idle(Own):
    """Trains nothing."""

    times = 0


def own(kind: type = Own) -> Any:
    """The model, and a batch."""
    keras.utils.set_random_seed(7)
    model = kind()
    model.compile("sgd", "mse", jit_compile=False)
    x, y = np.ones((ROWS, 16), np.float32), np.ones((ROWS, 3), np.float32)
    model(x)
    return model, (x, y)


def twice() -> Any:
    """As `own`."""
    return own(Twice)


def idle() -> Any:
    """As `own`."""
    return own(Idle)


def two() -> Any:
    """Two inputs, both of the batch."""
    return _of_two([ROWS, 4], lambda _, b: b)


def lengths() -> Any:
    """Two inputs, one with another number of rows."""
    return _of_two([ROWS // 2, 4], lambda _, b: tf.concat([b, b], 0))


def scalar() -> Any:
    """Two inputs, one a number, which is given whole."""
    return _of_two([], lambda a, b: a[:, :4] * b)


def _of_two(shape: list[int], second: Callable[[Any, Any], Any]) -> Any:
    keras.utils.set_random_seed(7)
    first, other = keras.Input((16,)), keras.Input((4,))
    x = layers.Concatenate()([layers.Dense(8)(first), layers.Dense(8)(other)])
    for _ in range(4):
        x = layers.Dense(8, activation="relu")(x)
    model = keras.Model([first, other], layers.Dense(3)(x))

    def loss(a: Any, b: Any, y: Any) -> Any:
        return tf.reduce_mean(tf.square(y - model([a, second(a, b)])))

    specs = [tf.TensorSpec([ROWS, 16]), tf.TensorSpec(shape), tf.TensorSpec([ROWS, 3])]
    return _step(model, loss, specs, keras.optimizers.SGD(0.1).apply_gradients)


def forward() -> Any:
    """No training step at all."""
    return tf.function(dense(), input_signature=[tf.TensorSpec([ROWS, 16])])


def gradients() -> Any:
    """No optimizer: it gives what it would update by."""
    return _plain(lambda pairs: [g for g, _ in pairs])


def by_hand() -> Any:
    """No optimizer: it updates by itself."""
    return _plain(lambda pairs: [v.assign_sub(0.1 * g) for g, v in pairs])


def _plain(update: Callable[[Any], Any]) -> Any:
    model = dense()
    specs = [tf.TensorSpec([ROWS, 16]), tf.TensorSpec([ROWS, 3])]
    return _step(model, lambda x, y: tf.reduce_mean(tf.square(y - model(x))), specs, update)


def _step(model: Any, loss: Callable[..., Any], specs: Any, update: Callable[[Any], Any]) -> Any:
    if hasattr(update, "__self__"):
        update.__self__.build(model.trainable_variables)

    @tf.function(input_signature=specs, autograph=False)
    def step(*given: Any) -> Any:
        with tf.GradientTape() as tape:
            found = loss(*given)
        grads = tape.gradient(found, model.trainable_variables)
        done = update(list(zip(grads, model.trainable_variables, strict=True)))
        return (found, done) if isinstance(done, list) and isinstance(done[0], tf.Tensor) else found

    return step
