"""E3D: the Eidetic 3D LSTM (Wang et al. 2019) on Moving MNIST, at the sizes of ParDNN.

Frames of 64 x 64 pixels come as patches in the channels. Each step reads the last two frames (a zero frame before the
first) and draws the next one; past the given frames a step reads either the true frame or the one drawn (scheduled
sampling; the feed `sampled` decides). Unrolled over all frames.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import tensorflow.compat.v1 as tf

from pesto.tf.models.eidetic import Convolution, Eidetic, EideticState, advance, convolution, convolve, eidetic
from pesto.tf.models.layers import placeholders, scope
from pesto.tf.models.optimizers import Adam
from pesto.tf.models.step import ModelFeed, ModelStep
from pesto.tf.models.update_step import finish, minimize, new_graph

WINDOW = 2  # frames that a step sees


@dataclass(frozen=True, slots=True, kw_only=True)
class E3dConfig:
    """Sizes and rates; of `frames` frames the first `given` are always read, a patch has `patch` x `patch` pixels."""

    hidden: int
    patch: int
    batch: int
    layers: int = 4
    filter: int = 5
    image: int = 64
    frames: int = 20
    given: int = 10
    learning_rate: float = 1e-3
    average: float = 0.9995
    norm: float = 10.0

    @property
    def frame(self) -> tuple[int, int, int]:
        """Height, width and channels of a frame in patches."""
        side = self.image // self.patch
        return side, side, self.patch**2


CONFIGS: dict[str, E3dConfig] = {
    "320": E3dConfig(hidden=320, patch=4, batch=16),
    "512": E3dConfig(hidden=512, patch=8, batch=8),
    "tiny": E3dConfig(hidden=4, patch=2, batch=2, layers=2, filter=3, image=8, frames=3, given=1),
}


def build(variant: str, batch: int | None = None) -> ModelStep:
    """One step of Adam, with moving averages of all weights, on a batch of videos."""
    config = CONFIGS[variant]
    config = replace(config, batch=batch or config.batch)
    feeds = _feeds(config)
    with new_graph().as_default():
        video, sampled = placeholders(feeds)
        loss = _loss(config, video, _drawn(config, video, sampled))
        optimizer = Adam(config.learning_rate, beta1=0.95, beta2=0.9995, average=config.average)
        return finish(loss, [minimize(loss, optimizer, norm=config.norm)], feeds)


def _feeds(config: E3dConfig) -> tuple[ModelFeed, ...]:
    video = (config.batch, config.frames, *config.frame)
    sampled = (config.batch, config.frames - config.given - 1)
    return (
        ModelFeed(name="video", shape=video, dtype="float32", low=0.0, high=1.0),
        ModelFeed(name="sampled", shape=sampled, dtype="int32", low=0, high=2),
    )


def _layers(config: E3dConfig) -> list[Eidetic]:
    widths = [config.frame[-1]] + [config.hidden] * config.layers
    size = (WINDOW, config.filter, config.filter)
    return [eidetic(f"layer_{k}", widths[k], config.hidden, size) for k in range(config.layers)]


def _drawn(config: E3dConfig, video: tf.Tensor, sampled: tf.Tensor) -> list[tf.Tensor]:
    """The frames drawn after each step, [batch, height, width, channels]."""
    layers = _layers(config)
    head = convolution("head", (WINDOW, 1, 1), config.hidden, config.frame[-1])
    with scope("stem"):
        true = tf.unstack(video, axis=1)
        truth = tf.unstack(tf.cast(tf.reshape(sampled, [config.batch, -1, 1, 1, 1]), tf.float32), axis=1)
        last = tf.zeros([config.batch, *config.frame])
        zeros = tf.zeros([config.batch, WINDOW, *config.frame[:2], config.hidden])
    states, memory = [EideticState(hidden=zeros, cell=zeros, history=None)] * config.layers, zeros
    drawn: list[tf.Tensor] = []
    for t in range(config.frames - 1):
        now = true[t] if t < config.given else _chosen(t, truth[t - config.given], true[t], drawn[-1])
        with scope(f"stem/step_{t}"):
            x = tf.stack([last, now], axis=1)
        for k, layer in enumerate(layers):
            states[k], memory = advance(layer, t, x, states[k], memory)
            x = states[k].hidden
        drawn.append(_draw(t, x, head))
        last = now
    return drawn


def _chosen(t: int, truth: tf.Tensor, true: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
    """The true frame where `truth` is one, the drawn frame where it is zero."""
    with scope(f"stem/step_{t}"):
        return truth * true + (1.0 - truth) * drawn


def _draw(t: int, hidden: tf.Tensor, head: Convolution) -> tf.Tensor:
    with scope(f"head/step_{t}"):
        return tf.squeeze(convolve(hidden, head, window_stride=WINDOW), axis=1)


def _loss(config: E3dConfig, video: tf.Tensor, drawn: list[tf.Tensor]) -> tf.Tensor:
    """Half the squared and the absolute errors of all frames drawn, averaged over the batch."""
    with scope("loss"):
        error = tf.stack(drawn, axis=1) - video[:, 1:]
        return (tf.nn.l2_loss(error) + tf.reduce_sum(tf.abs(error))) / config.batch
