"""Tofu's recurrent network (Wang et al. 2018, section 6.1): LSTM layers over 20 steps, the largest of H = 8192.

A variant LxH has L layers of H units. The weights that Table 1 counts are those of the layers alone, (8 (L - 1) + 4) H²
numbers: the first has no wide input, and there is no vocabulary. So few features come in, and few classes go out.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow.compat.v1 as tf

from pesto.tf.models.layers import lstm, placeholders, scope, softmax_entropy, unroll, zero_state
from pesto.tf.models.step import ModelFeed, ModelStep
from pesto.tf.models.update_step import descend, finish, new_graph


@dataclass(frozen=True, slots=True, kw_only=True)
class TofuRnnConfig:
    """Sizes and rates; `features` come in at each step, and one of `classes` is to come out."""

    layers: int
    hidden: int
    batch: int = 512
    steps: int = 20
    features: int = 64
    classes: int = 64
    learning_rate: float = 0.1


CONFIGS: dict[str, TofuRnnConfig] = {
    f"{layers}x{hidden}": TofuRnnConfig(layers=layers, hidden=hidden)
    for layers, hidden in (*((n, k * 1024) for n in (6, 8, 10) for k in (4, 6, 8)), (4, 8192))
} | {"tiny": TofuRnnConfig(layers=2, hidden=32, batch=8, steps=4, features=8, classes=8)}


def construct(config: TofuRnnConfig) -> ModelStep:
    """Build one step of momentum, from a state of zeros."""
    feeds = (
        ModelFeed(
            name="features", shape=(config.steps, config.batch, config.features), dtype="float32", low=-1.0, high=1.0
        ),
        ModelFeed(name="targets", shape=(config.steps, config.batch), dtype="int32", low=0, high=config.classes),
    )
    with new_graph().as_default():
        features, targets = placeholders(feeds)
        # Outputs [batch, hidden] of the last layer by step.
        with scope("embedding"):
            outputs = tf.unstack(features)
        for k in range(config.layers):
            layer = lstm(f"layer_{k}", int(outputs[0].shape[1]), config.hidden, rate=0.0)
            outputs, _ = unroll(layer, outputs, zero_state(layer.path, config.batch, config.hidden))
        with scope("softmax"):
            joined = tf.concat(outputs, axis=0)
        entropy = softmax_entropy("softmax", joined, targets, config.classes)
        with scope("loss"):
            loss = tf.reduce_mean(entropy)
        return finish(loss, [descend(loss, config.learning_rate)], feeds)
