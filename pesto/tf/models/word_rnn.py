"""Word-RNN: an LSTM language model over words (Sung Kim's word-rnn-tensorflow, 2017), at the sizes of ParDNN."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import Stack, embedding, placeholders, scope, softmax_entropy, unroll_carried
from pesto.tf.models.step import ModelFeed, ModelStep
from pesto.tf.models.update_step import finish, minimize, new_graph


@dataclass(frozen=True, slots=True, kw_only=True)
class WordRnnConfig:
    """Sizes and rates; `steps` is the length of back-propagation through time."""

    layers: int
    hidden: int
    batch: int
    steps: int
    vocabulary: int
    learning_rate: float = 0.002
    norm: float = 5.0


# The vocabularies are what ParDNN's parameter counts leave for the embedding and the softmax.
CONFIGS: dict[str, WordRnnConfig] = {
    "8x2048": WordRnnConfig(layers=8, hidden=2048, batch=1024, steps=28, vocabulary=17_450),
    "8x4096": WordRnnConfig(layers=8, hidden=4096, batch=32, steps=25, vocabulary=25_160),
    "tiny": WordRnnConfig(layers=2, hidden=16, batch=8, steps=5, vocabulary=100),
}


def construct(config: WordRnnConfig) -> ModelStep:
    """Build one step of Adam on a batch of `steps` words, from the state the last one left."""
    shape = (config.batch, config.steps)
    feeds = tuple(
        ModelFeed(name=name, shape=shape, dtype="int32", low=0, high=config.vocabulary) for name in ("words", "targets")
    )
    with new_graph().as_default():
        words, targets = placeholders(feeds)
        looked_up = embedding("embedding", words, (config.vocabulary, config.hidden))
        with scope("embedding"):
            inputs = tf.unstack(looked_up, axis=1)
        outputs, carried = unroll_carried(Stack(layers=config.layers, hidden=config.hidden), inputs)
        with scope("softmax"):
            joined = tf.reshape(tf.concat(outputs, axis=1), [-1, config.hidden])
        entropy = softmax_entropy("softmax", joined, targets, config.vocabulary)
        with scope("loss"):
            loss = tf.reduce_sum(entropy) / config.batch / config.steps
        optimizer = tf.train.AdamOptimizer(config.learning_rate)
        return finish(loss, [minimize(loss, optimizer, norm=config.norm, dense=True), *carried], feeds)
