"""Normalised additive attention (Bahdanau et al. 2015; weight normalisation of Salimans and Kingma 2016)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import dense, scope, weight

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
    direction = _unit(path, hidden, initializer)
    with scope(path):
        keys = tf.reshape(keys, [batch, -1, hidden])
    return AttentionMemory(
        path=path,
        values=values,
        keys=keys,
        padding=padding,
        query_kernel=query_kernel,
        direction=direction,
        offset=offset,
    )


def attend(memory: AttentionMemory, t: int, query: tf.Tensor) -> tf.Tensor:
    """The context [batch, hidden] for the query [batch, hidden] of step t."""
    with scope(f"{memory.path}/step_{t}"):
        projected = tf.expand_dims(tf.matmul(query, memory.query_kernel), 1)
        hidden = tf.tanh(memory.keys + projected + memory.offset)
        score = tf.reduce_sum(memory.direction * hidden, axis=2) + memory.padding
        share = tf.expand_dims(tf.nn.softmax(score), 1)
        return tf.squeeze(tf.matmul(share, memory.values), axis=1)


def _unit(path: str, hidden: int, initializer: object) -> tf.Tensor:
    """The score's weight vector: a learnt length times a direction normalised to one."""
    vector = weight(f"{path}/score/direction", [hidden], initializer)
    length = weight(f"{path}/score/length", [], tf.constant_initializer(math.sqrt(1.0 / hidden)))
    with scope(f"{path}/score"):
        return length * vector * tf.rsqrt(tf.reduce_sum(tf.square(vector)))
