"""RNNLM: an LSTM language model on the Penn Treebank (Zaremba et al. 2014; Jozefowicz et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import Stack, dropout, embedding, placeholders, scope, softmax_entropy, unroll_carried
from pesto.tf.models.step import ModelFeed, ModelStep
from pesto.tf.models.update_step import finish, minimize, new_graph


@dataclass(frozen=True, slots=True, kw_only=True)
class RnnlmConfig:
    """Sizes and rates; `steps` is the length of back-propagation through time."""

    layers: int
    hidden: int
    batch: int = 128
    steps: int = 35
    vocabulary: int = 10_000
    dropout: float = 0.65
    init_scale: float = 0.04
    learning_rate: float = 1.0
    norm: float = 10.0


CONFIGS: dict[str, RnnlmConfig] = {
    "2x2048": RnnlmConfig(layers=2, hidden=2048),
    "4x2048": RnnlmConfig(layers=4, hidden=2048),
    "16x1024": RnnlmConfig(layers=16, hidden=1024),
    "tiny": RnnlmConfig(layers=2, hidden=32, batch=8, steps=6, vocabulary=100, dropout=0.1, init_scale=0.1),
}


def construct(config: RnnlmConfig) -> ModelStep:
    """Build one step of stochastic gradient descent on a batch of `steps` words, from the state the last one left."""
    shape = (config.steps, config.batch)
    feeds = tuple(
        ModelFeed(name=name, shape=shape, dtype="int32", low=0, high=config.vocabulary) for name in ("words", "targets")
    )
    with new_graph().as_default():
        words, targets = placeholders(feeds)
        uniform = tf.random_uniform_initializer(-config.init_scale, config.init_scale)
        looked_up = embedding("embedding", words, (config.vocabulary, config.hidden), uniform)
        with scope("embedding"):
            inputs = tf.unstack(looked_up)
        rates = {"rate": config.dropout, "first_rate": config.dropout}
        stack = Stack(layers=config.layers, hidden=config.hidden, initializer=uniform, **rates)
        outputs, carried = unroll_carried(stack, inputs)
        with scope("softmax"):
            joined = dropout(tf.concat(outputs, axis=0), config.dropout)
        entropy = softmax_entropy("softmax", joined, targets, config.vocabulary, initializer=uniform)
        with scope("loss"):
            loss = tf.reduce_sum(entropy) / config.batch
        optimizer = tf.train.GradientDescentOptimizer(config.learning_rate)
        return finish(loss, [minimize(loss, optimizer, norm=config.norm), *carried], feeds)
