"""WRN: the wide residual network (Zagoruyko and Komodakis 2016) on CIFAR-100, at the sizes of ParDNN.

A variant LxK has L layers (three groups of (L - 4) / 6 residual units of two convolutions) and K times the filters of a
plain residual network: 16 K, 32 K and 64 K. Units count through the groups, `block_0`, `block_1`, ...
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import channels, convolve, dense, dropout, follow, norm_variables, placeholders, relu, scope
from pesto.tf.models.step import ModelFeed, ModelStep
from pesto.tf.models.update_step import Nesterov, finish, minimize, new_graph

GROUPS = 3
NORM_DECAY = 0.9  # of the moving averages of batch normalisation
NORM_EPSILON = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class WrnConfig:
    """Sizes and rates; `units` are the residual units of a group, `widening` multiplies the filters."""

    units: int
    widening: int
    batch: int
    filters: int = 16
    image: int = 32
    classes: int = 100
    dropout: float = 0.3
    decay: float = 5e-4
    learning_rate: float = 0.1
    norm: float = 10.0


CONFIGS: dict[str, WrnConfig] = {
    "610x14": WrnConfig(units=101, widening=14, batch=16),
    "304x28": WrnConfig(units=50, widening=28, batch=4),
    "tiny": WrnConfig(units=1, widening=2, batch=4, filters=4, image=8, classes=10, dropout=0.1),
}


def construct(config: WrnConfig) -> ModelStep:
    """Build one step of Nesterov's momentum on a batch of images."""
    images = (config.batch, config.image, config.image, 3)
    feeds = (
        ModelFeed(name="images", shape=images, dtype="float32", low=-1.0, high=1.0),
        ModelFeed(name="labels", shape=(config.batch,), dtype="int32", low=0, high=config.classes),
    )
    with new_graph().as_default():
        pixels, labels = placeholders(feeds)
        net = convolve("stem", pixels, config.filters, 3)
        for k in range(GROUPS * config.units):
            net = _unit(config, k, net)
        net = relu("head", batch_norm("head/norm", net))
        with scope("head"):
            pooled = tf.reduce_mean(net, axis=[1, 2])
        logits = dense("head/logits", pooled, config.classes, bias=True)
        with scope("head/loss"):
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            decay = config.decay * tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))
            loss = tf.reduce_mean(entropy) + decay
        train = minimize(loss, Nesterov(config.learning_rate), norm=config.norm)
        return finish(loss, [train, *tf.get_collection(tf.GraphKeys.UPDATE_OPS)], feeds)


def _unit(config: WrnConfig, k: int, x: tf.Tensor) -> tf.Tensor:
    """Two 3 x 3 convolutions, each behind normalisation and rectifier, added to the input (or its projection)."""
    group, place = divmod(k, config.units)
    path, filters = f"block_{k}", config.filters * config.widening * 2**group
    stride = 2 if group > 0 and place == 0 else 1
    active = relu(path, batch_norm(f"{path}/norm_0", x))
    if place == 0:
        x = convolve(f"{path}/shortcut", active, filters, 1, stride=stride)
    inner = convolve(f"{path}/conv_0", active, filters, 3, stride=stride)
    inner = relu(path, batch_norm(f"{path}/norm_1", inner))
    with scope(path):
        inner = dropout(inner, config.dropout)
    outer = convolve(f"{path}/conv_1", inner, filters, 3)
    with scope(path):
        return x + outer


def batch_norm(path: str, x: tf.Tensor) -> tf.Tensor:
    """Apply batch normalisation (Ioffe and Szegedy 2015) of elementary ops; moving averages join the update ops."""
    scale, offset, moving = norm_variables(path, channels(x))
    with scope(path):
        moments = tf.nn.moments(x, [0, 1, 2])
        follow(moving, moments, NORM_DECAY)
        return tf.nn.batch_normalization(x, *moments, offset, scale, NORM_EPSILON)
