"""NMT: LSTM encoder and decoder with attention, as GNMT (Wu et al. 2016) in the version of tensorflow/nmt.

The first encoder layer runs both ways; the bottom decoder layer's output asks the attention (normalised, Bahdanau et
al. 2015), whose answer goes to all decoder layers (`gnmt_v2`); from the third layer on connections are residual.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import (
    Lstm,
    State,
    advance,
    dense,
    embedding,
    lstm,
    placeholders,
    scope,
    softmax_entropy,
    unroll_masked,
    weight,
    zero_state,
)
from pesto.tf.models.step import ModelFeed, ModelStep
from pesto.tf.models.update_step import finish, minimize, new_graph

# Normalised additive attention (Bahdanau et al. 2015; weight normalisation of Salimans and Kingma 2016).

MASKED = -1e9  # added to the score of a padded position


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMemory:
    """Values [batch, length, hidden] and their keys, the bias of padded positions [batch, length], and weights."""

    path: str
    values: tf.Tensor
    keys: tf.Tensor
    padding: tf.Tensor
    query_kernel: tf.Tensor
    direction: tf.Tensor
    offset: tf.Tensor


def memorise(path: str, outputs: Sequence[tf.Tensor], mask: tf.Tensor, initializer: object) -> AttentionMemory:
    """Build the tensors shared by all steps; outputs [batch, hidden] by step, mask [batch, length] true inside."""
    batch, hidden = (int(n) for n in outputs[0].shape)
    with scope(path):
        values = tf.stack(outputs, axis=1)
        flat = tf.reshape(values, [-1, hidden])
        padding = (1.0 - tf.cast(mask, tf.float32)) * MASKED
    keys = dense(f"{path}/memory", flat, hidden, bias=False, initializer=initializer)
    query_kernel = weight(f"{path}/query/kernel", [hidden, hidden], initializer)
    offset = weight(f"{path}/query/bias", [hidden], tf.zeros_initializer())
    # The score's weight vector: a learnt length times a direction normalised to one.
    vector = weight(f"{path}/score/direction", [hidden], initializer)
    length = weight(f"{path}/score/length", [], tf.constant_initializer(math.sqrt(1.0 / hidden)))
    with scope(f"{path}/score"):
        direction = length * vector * tf.rsqrt(tf.reduce_sum(tf.square(vector)))
    with scope(path):
        keys = tf.reshape(keys, [batch, -1, hidden])
    return AttentionMemory(
        path=path, values=values, keys=keys, padding=padding, query_kernel=query_kernel, direction=direction,
        offset=offset,
    )  # fmt: skip


def attend(memory: AttentionMemory, t: int, query: tf.Tensor) -> tf.Tensor:
    """Return the context [batch, hidden] for the query [batch, hidden] of step t."""
    with scope(f"{memory.path}/step_{t}"):
        projected = tf.expand_dims(tf.matmul(query, memory.query_kernel), 1)
        hidden = tf.tanh(memory.keys + projected + memory.offset)
        score = tf.reduce_sum(memory.direction * hidden, axis=2) + memory.padding
        share = tf.expand_dims(tf.nn.softmax(score), 1)
        return tf.squeeze(tf.matmul(share, memory.values), axis=1)


RESIDUAL_FROM = 2  # the first layer with a residual connection, in encoder and decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class NmtConfig:
    """Sizes and rates; every sentence is padded to `steps` tokens."""

    layers: int
    hidden: int
    batch: int = 128
    steps: int = 50
    vocabulary: int = 32_000
    dropout: float = 0.2
    init_scale: float = 0.1
    learning_rate: float = 1.0
    norm: float = 5.0

    @property
    def initializer(self) -> object:
        """Initialiser of all matrices."""
        return tf.random_uniform_initializer(-self.init_scale, self.init_scale)

    @property
    def table(self) -> tuple[int, int]:
        """Shape of an embedding."""
        return self.vocabulary, self.hidden


CONFIGS: dict[str, NmtConfig] = {
    "2x1024": NmtConfig(layers=2, hidden=1024),
    "4x1024": NmtConfig(layers=4, hidden=1024),
    "tiny": NmtConfig(layers=2, hidden=16, batch=8, steps=3, vocabulary=100, init_scale=0.5),
}


def construct(config: NmtConfig) -> ModelStep:
    """Build one step of stochastic gradient descent on a batch of sentence pairs, with a full softmax."""
    ids = ModelFeed(name="source", shape=(config.steps, config.batch), dtype="int32", low=0, high=config.vocabulary)
    length = ModelFeed(name="source_length", shape=(config.batch,), dtype="int32", low=1, high=config.steps + 1)
    targets = (replace(ids, name="target_in"), replace(ids, name="target_out"), replace(length, name="target_length"))
    feeds = (ids, length, *targets)
    with new_graph().as_default():
        source, source_length, target_in, target_out, target_length = placeholders(feeds)
        memory, states = _encoder(config, source, source_length)
        outputs = _decoder(config, target_in, memory, states)
        with scope("softmax"):
            joined = tf.concat(outputs, axis=0)
        entropy = softmax_entropy(
            "softmax", joined, target_out, config.vocabulary, bias=False, initializer=config.initializer
        )
        # Summed over the words of the target sentences and averaged over the batch.
        with scope("loss"):
            counted = tf.transpose(tf.sequence_mask(target_length, config.steps, tf.float32))
            loss = tf.reduce_sum(entropy * tf.reshape(counted, [-1])) / config.batch
        optimizer = tf.train.GradientDescentOptimizer(config.learning_rate)
        return finish(loss, [minimize(loss, optimizer, norm=config.norm)], feeds)


def _encoder(config: NmtConfig, source: tf.Tensor, length: tf.Tensor) -> tuple[AttentionMemory, list[State]]:
    """Return the attention memory and the last state of every layer (of the first, that of its backward half)."""
    looked_up = embedding("encoder/embedding", source, config.table, config.initializer)
    with scope("encoder/mask"):
        mask = tf.sequence_mask(length, config.steps)
        inside = tf.unstack(mask, axis=1)
    # The first layer has one LSTM per direction, outputs joined to [batch, 2 * hidden].
    path = "encoder/layer_0"
    start = zero_state(path, config.batch, config.hidden)
    with scope(f"{path}/forward"):
        inputs = tf.unstack(looked_up)
    forward, _ = unroll_masked(_layer(config, f"{path}/forward", config.hidden), inputs, start, inside)
    with scope(f"{path}/backward"):
        inputs = tf.unstack(tf.reverse_sequence(looked_up, length, seq_axis=0, batch_axis=1))
    backward, state = unroll_masked(_layer(config, f"{path}/backward", config.hidden), inputs, start, inside)
    with scope(path):
        turned = tf.unstack(tf.reverse_sequence(tf.stack(backward), length, seq_axis=0, batch_axis=1))
        outputs = [tf.concat(pair, axis=1) for pair in zip(forward, turned, strict=True)]
    states = [state]
    for k in range(1, config.layers):
        path = f"encoder/layer_{k}"
        layer = _layer(config, path, int(outputs[0].shape[-1]))
        start = zero_state(path, config.batch, config.hidden)
        inputs = outputs
        outputs, state = unroll_masked(layer, inputs, start, inside)
        if k >= RESIDUAL_FROM:
            outputs = [_add(path, t, *pair) for t, pair in enumerate(zip(inputs, outputs, strict=True))]
        states.append(state)
    return memorise("decoder/attention", outputs, mask, config.initializer), states


def _decoder(config: NmtConfig, target: tf.Tensor, memory: AttentionMemory, states: Sequence[State]) -> list[tf.Tensor]:
    """Outputs [batch, hidden] of the last layer by step."""
    looked_up = embedding("decoder/embedding", target, config.table, config.initializer)
    with scope("decoder/embedding"):
        inputs = tf.unstack(looked_up)
    layers = [_layer(config, f"decoder/layer_{k}", 2 * config.hidden) for k in range(config.layers)]
    states = list(states)
    context, _ = zero_state("decoder/attention", config.batch, config.hidden)
    outputs = []
    for t, x in enumerate(inputs):
        states[0] = _advance(layers[0], t, (x, context), states[0])
        context = attend(memory, t, states[0][1])
        output = states[0][1]
        for k, layer in enumerate(layers[1:], start=1):
            states[k] = _advance(layer, t, (output, context), states[k])
            output = _add(layer.path, t, output, states[k][1]) if k >= RESIDUAL_FROM else states[k][1]
        outputs.append(output)
    return outputs


def _layer(config: NmtConfig, path: str, inputs: int) -> Lstm:
    return lstm(path, inputs, config.hidden, rate=config.dropout, initializer=config.initializer)


def _advance(layer: Lstm, t: int, inputs: tuple[tf.Tensor, tf.Tensor], before: State) -> State:
    with scope(f"{layer.path}/step_{t}"):
        return advance(layer, tf.concat(inputs, axis=1), before)


def _add(path: str, t: int, before: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
    with scope(f"{path}/step_{t}"):
        return before + after
