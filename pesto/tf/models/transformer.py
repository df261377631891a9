"""Transformer: encoder and decoder with multi-head attention (Vaswani et al. 2017).

Layer normalisation comes before each sublayer, as in tensor2tensor and the TensorFlow model garden, since the deep
variants do not train otherwise. The embeddings and the softmax have a table each: one shared table would tie the first
layer's device to the last one's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import dense, dropout, embedding, layer_norm, placeholders, scope
from pesto.tf.models.step import ModelFeed, ModelStep
from pesto.tf.models.update_step import finish, minimize, new_graph, step_counter

MASKED = -1e9  # added to the score of a position that may not be seen


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig:
    """Sizes and rates; every sentence is padded to `length` tokens.

    The feed-forward layer is `width` wide, by default 4 * hidden. With `apart` every head is computed on its own, from
    projections of its own, and the heads' outputs are joined without another projection.
    """

    layers: int
    heads: int
    hidden: int
    batch: int = 32
    length: int = 128
    vocabulary: int = 32_000
    dropout: float = 0.1
    smoothing: float = 0.1
    warmup: int = 4000
    norm: float = 5.0
    width: int | None = None
    apart: bool = False

    @property
    def inner(self) -> int:
        """Width of a feed-forward layer."""
        return self.width or 4 * self.hidden

    @property
    def bias_axes(self) -> tuple[int, ...]:
        """Axes of length one between the batch and the keys in what is added to attention scores."""
        return (1,) if self.apart else (1, 1)


CONFIGS: dict[str, TransformerConfig] = {
    "10x8x1024": TransformerConfig(layers=10, heads=8, hidden=1024),
    "12x8x1024": TransformerConfig(layers=12, heads=8, hidden=1024),
    "6x16x2048": TransformerConfig(layers=6, heads=16, hidden=2048),
    "tiny": TransformerConfig(layers=1, heads=2, hidden=16, batch=4, length=6, vocabulary=100, warmup=4),
}


def construct(config: TransformerConfig) -> ModelStep:
    """Build one step of Adam on a batch of sentence pairs."""
    ids = ModelFeed(name="source", shape=(config.batch, config.length), dtype="int32", low=0, high=config.vocabulary)
    length = ModelFeed(name="source_length", shape=(config.batch,), dtype="int32", low=1, high=config.length + 1)
    feeds = ids, length, replace(ids, name="target"), replace(length, name="target_length")
    with new_graph().as_default():
        source, source_length, target, target_length = placeholders(feeds)
        with scope("encoder/mask"):
            inside = tf.sequence_mask(source_length, config.length, tf.float32)
            padding = tf.reshape((1.0 - inside) * MASKED, [config.batch, *config.bias_axes, config.length])
        # [batch * length, hidden], as are all activations between sublayers.
        x = _embed(config, "encoder/embedding", source)
        for k in range(config.layers):
            x = _self_attention(config, f"encoder/layer_{k}/attention", x, padding)
            x = _feed_forward(config, f"encoder/layer_{k}/feed_forward", x)
        memory = layer_norm("encoder/norm", x)
        with scope("decoder/mask"):
            later = np.triu(np.full((config.length, config.length), MASKED, np.float32), k=1)
            causal = tf.constant(later.reshape([*config.bias_axes, config.length, config.length]))
            shifted = tf.pad(target, [[0, 0], [1, 0]])[:, :-1]
        x = _embed(config, "decoder/embedding", shifted)
        for k in range(config.layers):
            x = _self_attention(config, f"decoder/layer_{k}/attention", x, causal)
            path = f"decoder/layer_{k}/cross_attention"
            x = _residual(config, path, x, _attention(config, path, (layer_norm(f"{path}/norm", x), memory), padding))
            x = _feed_forward(config, f"decoder/layer_{k}/feed_forward", x)
        logits = dense("softmax", layer_norm("decoder/norm", x), config.vocabulary, bias=False)
        # Cross entropy against smoothed labels (Szegedy et al. 2016), averaged over the target's tokens.
        with scope("softmax"):
            rest = config.smoothing / (config.vocabulary - 1)
            labels = tf.one_hot(tf.reshape(target, [-1]), config.vocabulary, 1.0 - config.smoothing, rest)
            entropy = tf.nn.softmax_cross_entropy_with_logits_v2(labels=tf.stop_gradient(labels), logits=logits)
        with scope("loss"):
            counted = tf.reshape(tf.sequence_mask(target_length, config.length, tf.float32), [-1])
            loss = tf.reduce_sum(entropy * counted) / tf.reduce_sum(counted)
        counter = step_counter()
        # Linear warm-up, then decay with the square root of the step (Vaswani et al. 2017, section 5.3).
        with scope("learning_rate"):
            done = tf.cast(counter.read_value(), tf.float32) + 1.0
            rate = config.hidden**-0.5 * tf.minimum(tf.rsqrt(done), done * config.warmup**-1.5)
        optimizer = tf.train.AdamOptimizer(rate, beta1=0.9, beta2=0.98, epsilon=1e-9)
        return finish(loss, [minimize(loss, optimizer, norm=config.norm, dense=True, counter=counter)], feeds)


def _embed(config: TransformerConfig, path: str, ids: tf.Tensor) -> tf.Tensor:
    normal = tf.random_normal_initializer(stddev=config.hidden**-0.5)
    looked_up = embedding(path, ids, (config.vocabulary, config.hidden), normal)
    with scope(path):
        # Sines and cosines of geometrically spaced wavelengths, [length, hidden].
        length = config.length
        hidden = config.hidden
        rate = 10_000.0 ** -(np.arange(hidden // 2) / (hidden // 2 - 1))
        angle = np.arange(length)[:, None] * rate
        positions = np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)
        placed = looked_up * config.hidden**0.5 + positions
        return tf.reshape(dropout(placed, config.dropout), [-1, config.hidden])


def _self_attention(config: TransformerConfig, path: str, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    y = layer_norm(f"{path}/norm", x)
    return _residual(config, path, x, _attention(config, path, (y, y), bias))


def _feed_forward(config: TransformerConfig, path: str, x: tf.Tensor) -> tf.Tensor:
    inner = dense(f"{path}/inner", layer_norm(f"{path}/norm", x), config.inner, bias=True)
    with scope(path):
        inner = dropout(tf.nn.relu(inner), config.dropout)
    return _residual(config, path, x, dense(f"{path}/outer", inner, config.hidden, bias=True))


def _residual(config: TransformerConfig, path: str, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    with scope(path):
        return x + dropout(y, config.dropout)


def _attention(config: TransformerConfig, path: str, inputs: tuple[tf.Tensor, tf.Tensor], bias: tf.Tensor) -> tf.Tensor:
    """Scaled dot-product attention of inputs[0] over inputs[1]; bias goes to scores [batch, heads, length, length]."""
    if config.apart:
        # Heads [batch * length, hidden / heads] as Vaswani et al. write them: Attention(Q W_q, K W_k, V W_v).
        # Queries and values have a bias; one of the keys would move all scores of a query alike: no softmax shows it.
        size, heads = config.hidden // config.heads, []
        for head in (f"{path}/head_{h}" for h in range(config.heads)):
            projected = []
            for name, x in (("query", inputs[0]), ("key", inputs[1]), ("value", inputs[1])):
                flat = dense(f"{head}/{name}", x, size, bias=name != "key")
                with scope(f"{head}/{name}"):
                    projected.append(tf.reshape(flat, [config.batch, config.length, size]))
            query, key, value = projected
            with scope(head):
                share = tf.nn.softmax(tf.matmul(query * size**-0.5, key, transpose_b=True) + bias)
                heads.append(tf.reshape(tf.matmul(dropout(share, config.dropout), value), [-1, size]))
        with scope(path):
            return tf.concat(heads, axis=1)
    query = _heads(config, f"{path}/query", inputs[0])
    key, value = (_heads(config, f"{path}/{name}", inputs[1]) for name in ("key", "value"))
    with scope(path):
        query *= (config.hidden // config.heads) ** -0.5
        share = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) + bias)
        mixed = tf.matmul(dropout(share, config.dropout), value)
        joined = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, config.hidden])
    return dense(f"{path}/output", joined, config.hidden, bias=False)


def _heads(config: TransformerConfig, path: str, x: tf.Tensor) -> tf.Tensor:
    """Project x [batch * length, hidden] and split it into heads, [batch, heads, length, hidden / heads]."""
    projected = dense(path, x, config.hidden, bias=False)
    with scope(path):
        shape = [config.batch, config.length, config.heads, config.hidden // config.heads]
        return tf.transpose(tf.reshape(projected, shape), [0, 2, 1, 3])
