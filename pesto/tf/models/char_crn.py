"""Char-CRN: the character-aware language model of Kim et al. 2016, at the sizes of ParDNN.

A word's characters are embedded, convolved with kernels of several widths and pooled over the word; two highway layers
(Srivastava et al. 2015) mix the features, and an LSTM stack reads one word a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import Stack, dense, dropout, embedding, placeholders, scope, unroll_carried, weight
from pesto.tf.models.step import ModelFeed, ModelStep
from pesto.tf.models.update_step import finish, minimize, new_graph

CARRY = -2.0  # the initial bias of a highway's gate: carry rather than transform


@dataclass(frozen=True, slots=True, kw_only=True)
class CharCrnConfig:
    """Sizes and rates; words are padded to `letters` characters, `features` has the kernels of width 1, 2, ..."""

    layers: int
    hidden: int
    batch: int
    steps: int = 35
    vocabulary: int = 10_000
    alphabet: int = 51
    letters: int = 21
    embedded: int = 15
    features: tuple[int, ...] = (50, 100, 150, 200, 200, 200, 200)
    highways: int = 2
    dropout: float = 0.5
    init_scale: float = 0.05
    learning_rate: float = 1.0
    norm: float = 5.0

    @property
    def initializer(self) -> object:
        """Initialiser of everything but biases."""
        return tf.random_uniform_initializer(-self.init_scale, self.init_scale)


CONFIGS: dict[str, CharCrnConfig] = {
    "8x2048": CharCrnConfig(layers=8, hidden=2048, batch=512),
    "32x2048": CharCrnConfig(layers=32, hidden=2048, batch=128),
    "tiny": CharCrnConfig(
        layers=2,
        hidden=16,
        batch=8,
        steps=3,
        vocabulary=50,
        alphabet=10,
        letters=5,
        features=(4, 8, 8),
        dropout=0.1,
        init_scale=0.3,
    ),
}


def construct(config: CharCrnConfig) -> ModelStep:
    """Build one step of stochastic gradient descent on a batch of `steps` words, from the state the last one left."""
    shape = (config.batch, config.steps)
    feeds = (
        ModelFeed(name="letters", shape=(*shape, config.letters), dtype="int32", low=0, high=config.alphabet),
        ModelFeed(name="targets", shape=shape, dtype="int32", low=0, high=config.vocabulary),
    )
    with new_graph().as_default():
        letters, targets = placeholders(feeds)
        features = _convolve(config, letters)
        for k in range(config.highways):
            path = f"embedding/highway_{k}"
            size = int(features.shape[1])
            fresh = dense(f"{path}/fresh", features, size, bias=True, initializer=config.initializer)
            gate = dense(f"{path}/gate", features, size, bias=True, initializer=config.initializer)
            with scope(path):
                gate = tf.sigmoid(gate + CARRY)
                features = gate * tf.nn.relu(fresh) + (1.0 - gate) * features
        with scope("embedding"):
            inputs = tf.unstack(tf.reshape(features, [config.batch, config.steps, -1]), axis=1)
        rates = {"rate": config.dropout, "first_rate": 0.0}
        stack = Stack(layers=config.layers, hidden=config.hidden, initializer=config.initializer, **rates)
        outputs, carried = unroll_carried(stack, inputs)
        # Cross entropy summed over the steps and averaged over the batch; every step has a softmax of its own.
        kernel = weight("softmax/kernel", [config.hidden, config.vocabulary], config.initializer)
        bias = weight("softmax/bias", [config.vocabulary], tf.zeros_initializer())
        with scope("softmax"):
            labels = tf.unstack(targets, axis=1)
        entropies = []
        for t, output in enumerate(outputs):
            with scope(f"softmax/step_{t}"):
                logits = tf.nn.bias_add(tf.matmul(dropout(output, config.dropout), kernel), bias)
                entropies.append(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels[t], logits=logits))
        with scope("loss"):
            loss = tf.reduce_sum(tf.stack(entropies)) / config.batch
        optimizer = tf.train.GradientDescentOptimizer(config.learning_rate)
        return finish(loss, [minimize(loss, optimizer, norm=config.norm), *carried], feeds)


def _convolve(config: CharCrnConfig, letters: tf.Tensor) -> tf.Tensor:
    """Each word's largest response to every feature, [batch * steps, features]."""
    looked_up = embedding("embedding", letters, (config.alphabet, config.embedded), config.initializer)
    with scope("embedding"):
        words = tf.reshape(looked_up, [-1, 1, config.letters, config.embedded])
    pooled = []
    for width, features in enumerate(config.features, start=1):
        path = f"embedding/width_{width}"
        kernel = weight(f"{path}/kernel", [1, width, config.embedded, features], config.initializer)
        bias = weight(f"{path}/bias", [features], tf.zeros_initializer())
        with scope(path):
            response = tf.tanh(tf.nn.bias_add(tf.nn.conv2d(words, kernel, 1, "VALID"), bias))
            largest = tf.nn.max_pool2d(response, [1, config.letters - width + 1], 1, "VALID")
            pooled.append(tf.squeeze(largest, [1, 2]))
    with scope("embedding"):
        return tf.concat(pooled, axis=1)
