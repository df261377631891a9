"""Layers the families share: scopes, variables, dropout, layer normalisation, embedding, softmax projection."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import tensorflow.compat.v1 as tf

from pesto.tf.models.step import ModelFeed


def scope(path: str) -> AbstractContextManager[str]:
    """Open the name scope `path` counted from the root, and again under the same name if it was open before."""
    return tf.name_scope(f"{path}/")


def placeholders(feeds: Sequence[ModelFeed]) -> list[tf.Tensor]:
    """One placeholder per feed, in order."""
    return [tf.placeholder(feed.dtype, feed.shape, feed.name) for feed in feeds]


def variable(name: str, shape: Sequence[int], initializer: object = None) -> tf.Variable:
    """A trainable resource variable; the default initialiser is Glorot's uniform one."""
    return tf.get_variable(name, shape, tf.float32, initializer, use_resource=True)


def state(name: str, shape: Sequence[int], initializer: object, dtype: object = tf.float32) -> tf.Variable:
    """A resource variable that gradients leave alone: a counter, a moving average, a carried state."""
    return tf.get_variable(name, shape, dtype, initializer, trainable=False, use_resource=True)


def weight(name: str, shape: Sequence[int], initializer: object = None) -> tf.Tensor:
    """A trainable variable, read once: all unrolled steps share the tensor, and it crosses to a device once."""
    handle = variable(name, shape, initializer)
    with scope(name):
        return handle.read_value()


def dropout(x: tf.Tensor, rate: float) -> tf.Tensor:
    """Inverted dropout (Srivastava et al. 2014); nothing at rate 0."""
    return tf.nn.dropout(x, rate=rate) if rate > 0 else x


def embedding(path: str, ids: tf.Tensor, shape: tuple[int, int], initializer: object = None) -> tf.Tensor:
    """Rows of the table `path/table` of `shape` (vocabulary, hidden): [...] ids to [..., hidden]."""
    table = variable(f"{path}/table", shape, initializer)
    with scope(path):
        return tf.nn.embedding_lookup(table, ids)


def layer_norm(path: str, x: tf.Tensor, epsilon: float = 1e-6) -> tf.Tensor:
    """Layer normalisation over the last axis (Ba et al. 2016)."""
    hidden = int(x.shape[-1])
    scale = weight(f"{path}/scale", [hidden], tf.ones_initializer())
    offset = weight(f"{path}/offset", [hidden], tf.zeros_initializer())
    with scope(path):
        mean = tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(x - mean), axis=-1, keepdims=True)
        return (x - mean) * tf.rsqrt(variance + epsilon) * scale + offset


def dense(path: str, x: tf.Tensor, units: int, *, bias: bool, initializer: object = None) -> tf.Tensor:
    """x [n, inputs] times a kernel [inputs, units], plus a bias if asked for."""
    kernel = weight(f"{path}/kernel", [int(x.shape[-1]), units], initializer)
    offset = weight(f"{path}/bias", [units], tf.zeros_initializer()) if bias else None
    with scope(path):
        product = tf.matmul(x, kernel)
        return product if offset is None else tf.nn.bias_add(product, offset)
