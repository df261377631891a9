"""Training steps of TensorFlow that cut their batch into micro-batches, add up gradients, and update once."""

from typing import Any

import keras
import tensorflow as tf
from keras import layers

BATCHES, EACH = 4, 4


def dense() -> Any:
    """Six layers, Adam."""
    sizes = [layers.Dense(24, activation="relu") for _ in range(6)]
    return _step(keras.Sequential([keras.Input((16,)), *sizes, layers.Dense(3)]), (16,))


def convolution() -> Any:
    """Convolutions with batch norm, whose moving averages each micro-batch updates."""
    x = given = keras.Input((8, 8, 3))
    for _ in range(2):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(x)))
    return _step(keras.Model(given, layers.Dense(3)(layers.GlobalAveragePooling2D()(x))), (8, 8, 3))


def attention() -> Any:
    """Attention with skip connections."""
    x = given = keras.Input((6, 8))
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(2, 4)(y, y)])
        x = layers.Add()([x, layers.Dense(8)(layers.Dense(16, activation="gelu")(x))])
    return _step(keras.Model(given, layers.Dense(3)(layers.Flatten()(x))), (6, 8))


def recurrent() -> Any:
    """Two unrolled LSTMs, gradients clipped by the norm of all."""
    x = given = keras.Input((5, 8))
    x = layers.LSTM(8, unroll=True)(layers.LSTM(8, return_sequences=True, unroll=True)(x))
    return _step(keras.Model(given, layers.Dense(3)(x)), (5, 8), keras.optimizers.Adam(1e-2, global_clipnorm=1.0))


def shared() -> Any:
    """One table at both ends."""
    table = tf.Variable(tf.random.stateless_normal([12, 8], [1, 2]), name="table")
    body = keras.Sequential([keras.Input((8,)), *[layers.Dense(8, activation="relu") for _ in range(4)]])

    class Tied(keras.Model):
        """Looks up by a product, and gives products with the same table."""

        def call(self, x: Any, training: Any = None) -> Any:
            return tf.matmul(body(tf.matmul(x, table), training=training), table, transpose_b=True)

    return _step(Tied(), (12,), variables=[table, *body.trainable_variables], gives=12)


def _step(model: Any, shape: tuple[int, ...], optimizer: Any = None, variables: Any = None, gives: int = 3) -> Any:
    optimizer = optimizer or keras.optimizers.Adam(1e-2)
    trained = variables or model.trainable_variables
    optimizer.build(trained)

    @tf.function(input_signature=[tf.TensorSpec([BATCHES * EACH, *shape]), tf.TensorSpec([BATCHES * EACH, gives])])
    def step(x: Any, y: Any) -> Any:
        added, losses = None, []
        for part, wanted in zip(tf.split(x, BATCHES), tf.split(y, BATCHES), strict=True):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(wanted - model(part, training=True)))
            gradients = tape.gradient(loss, trained)
            added = gradients if added is None else [a + b for a, b in zip(added, gradients, strict=True)]
            losses.append(loss)
        optimizer.apply_gradients([(g / BATCHES, v) for g, v in zip(added, trained, strict=True)])
        return tf.add_n(losses) / BATCHES

    return step
