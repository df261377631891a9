"""Tofu's wide residual network (Wang et al. 2018, section 6.1): a residual network on ImageNet with wider layers.

A variant LxW has L layers (He et al. 2016: bottlenecks of three convolutions in four stages) and W times the channels,
into each convolution and out of it. Units count through the stages, `block_0`, `block_1`, ...
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import channels, convolve, dense, placeholders, relu, scope
from pesto.tf.models.step import ModelFeed, ModelStep
from pesto.tf.models.update_step import descend, finish, new_graph
from pesto.tf.models.wrn import batch_norm

EXPANSION = 4
"""Channels out of a unit over those inside it."""
STAGES = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Units of each stage by layers (He et al. 2016, Table 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TofuWrnConfig:
    """Sizes and rates; `units` are those of each stage, `widening` multiplies the channels."""

    units: tuple[int, ...]
    widening: int
    batch: int = 32
    filters: int = 64
    image: int = 224
    classes: int = 1000
    learning_rate: float = 0.1


CONFIGS: dict[str, TofuWrnConfig] = {
    f"{layers}x{widening}": TofuWrnConfig(units=units, widening=widening)
    for layers, units in STAGES.items()
    for widening in (4, 6, 8, 10)
} | {"tiny": TofuWrnConfig(units=(1, 1), widening=2, batch=4, filters=4, image=32, classes=8)}


def construct(config: TofuWrnConfig) -> ModelStep:
    """Build one step of momentum on a batch of images."""
    feeds = (
        ModelFeed(
            name="images", shape=(config.batch, config.image, config.image, 3), dtype="float32", low=-1.0, high=1.0
        ),
        ModelFeed(name="labels", shape=(config.batch,), dtype="int32", low=0, high=config.classes),
    )
    with new_graph().as_default():
        pixels, labels = placeholders(feeds)
        width, number = config.filters * config.widening, 0
        net = relu("stem", batch_norm("stem/norm", convolve("stem", pixels, width, 7, stride=2)))
        with scope("stem"):
            net = tf.nn.max_pool2d(net, 3, 2, "SAME")
        for stage, units in enumerate(config.units):
            for place in range(units):
                # Convolutions of 1, 3 and 1, each before normalisation, added to the input (or its projection).
                path, inner, stride = f"block_{number}", net, 2 if stage and not place else 1
                filters, wide = width * 2**stage, EXPANSION * width * 2**stage
                for k, (outputs, size) in enumerate(((filters, 1), (filters, 3), (wide, 1))):
                    inner = convolve(f"{path}/conv_{k}", inner, outputs, size, stride=stride if k == 1 else 1)
                    inner = batch_norm(f"{path}/norm_{k}", inner)
                    inner = relu(path, inner) if k < 2 else inner
                if channels(net) != wide:
                    net = convolve(f"{path}/shortcut", net, wide, 1, stride=stride)
                    net = batch_norm(f"{path}/norm_shortcut", net)
                with scope(path):
                    net = tf.nn.relu(net + inner)
                number += 1
        with scope("head"):
            pooled = tf.reduce_mean(net, axis=[1, 2])
        logits = dense("head/logits", pooled, config.classes, bias=True)
        with scope("head/loss"):
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        train = descend(loss, config.learning_rate)
        return finish(loss, [train, *tf.get_collection(tf.GraphKeys.UPDATE_OPS)], feeds)
